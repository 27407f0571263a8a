"""Lets `pytest tests/visible/test_rmsnorm.py` check your tinyllm package by hand.

`check("1.2")` and `tinyllm check 1.2` run the same tests and explain what they find.
"""

import importlib

import pytest

from labkit.checks.runner import Rng, declare_markers
from labkit.sandboxed.call import perform


def pytest_configure(config):
    declare_markers(config)


def package(request, name):
    module = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    namespace = vars(importlib.import_module(f"{name}.{module}"))
    return lambda call: perform(call, namespace)


@pytest.fixture
def student(request):
    return package(request, "tinyllm")


@pytest.fixture
def reference(request):
    return package(request, "solutions")


@pytest.fixture
def rng(request):
    return Rng(f"by hand:{request.node.name}")
