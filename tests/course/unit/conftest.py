"""Fixtures of the unit tests."""

import shutil
import subprocess
import sys

import pytest

from labkit.author import edition as editions
from labkit.learner.lessons import lesson


@pytest.fixture(scope="session")
def tokenizer():
    """The tokenizer of the shipped models."""
    return lesson.tokenizer()


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The learners' edition: its folder and its zip."""
    folder = tmp_path_factory.mktemp("learners") / "course"
    return editions.write_learners(folder, zipped=True)


@pytest.fixture(scope="session")
def laid_out(built, tmp_path_factory):
    """A learner's folder after `pip install`."""
    folder = tmp_path_factory.mktemp("learner") / "course"
    shutil.copytree(built[0], folder, ignore=shutil.ignore_patterns(".git"))
    command = [sys.executable, "setup.py", "-q", "--version"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder
