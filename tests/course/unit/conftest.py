"""What the unit tests share."""

import pytest

from labkit.learner.lessons import lesson


@pytest.fixture(scope="session")
def tokenizer():
    """The tokenizer of the shipped models."""
    return lesson.tokenizer()
