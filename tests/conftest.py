"""Lets `pytest tests/visible/test_rmsnorm.py` check your tinyllm package by hand.

`check("1.2")` and `tinyllm check 1.2` run the same checks and say more.
"""

from importlib import import_module

import pytest

from labkit.checks.declared import checks_in
from labkit.checks.diagnose import diagnose
from labkit.checks.messages import learner_report
from labkit.checks.mistakes import Oracle
from labkit.checks.runner import Result, run_check
from labkit.course.syllabus import NOTEBOOKS, find_lab
from labkit.sandbox.inside.perform import perform


def pytest_pycollect_makemodule(module_path, parent):
    """The files of checks are not test modules of pytest's own kind."""
    if module_path.parent.name in ("visible", "hidden"):
        return CheckFile.from_parent(parent, path=module_path)
    return None


class CheckFile(pytest.File):
    def collect(self):
        module = self.path.stem.removeprefix("test_")
        for check in checks_in(self.path.parent.name, module):
            item = CheckItem.from_parent(self, name=check.address)
            item.check, item.lab = check, find_lab(module, NOTEBOOKS)
            yield item


class CheckItem(pytest.Item):
    def runtest(self):
        package = vars(import_module(f"tinyllm.{self.lab.module}"))
        oracle = Oracle(self.lab)
        check = self.check.prepared("by hand")
        found = run_check(check, lambda call: perform(call, package), oracle.reference)
        if not found.passed:
            exercise = self.lab.exercise(check.declaration.exercise)
            result = Result(exercise, [found])
            raise Failed(str(learner_report(result, diagnose(result, oracle))))

    def repr_failure(self, excinfo, style=None):
        return (
            str(excinfo.value)
            if excinfo.errisinstance(Failed)
            else super().repr_failure(excinfo)
        )

    def reportinfo(self):
        return self.path, None, f"{self.check.declaration.exercise} {self.check.title}"


class Failed(AssertionError):
    """A check that did not pass; its text is the report."""
