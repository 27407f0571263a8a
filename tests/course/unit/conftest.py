"""What the unit tests share."""

import pytest

from labkit.stories.tokenizer import train_on_stories


@pytest.fixture(scope="session")
def tokenizer():
    """A tokenizer of 300 tokens, trained on a few stories."""
    return train_on_stories(40, 300)
