"""A temporary package, and a notebook run without a kernel."""

import shutil
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

import tinyllm
from labkit.author.owned_cells import setup_cell
from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS
from labkit.learner import notebook


@pytest.fixture
def package(tmp_path):
    """A fresh copy of the skeleton package"""
    shutil.copytree(ROOT / "tinyllm", tmp_path / "tinyllm")
    return tmp_path / "tinyllm"


@pytest.fixture
def imported_package(package, monkeypatch):
    """The copy, which `import tinyllm` finds during the test"""

    def taken_out():
        names = [name for name in sys.modules if name.startswith("tinyllm.")]
        return {name: sys.modules.pop(name) for name in names}

    modules, ours = taken_out(), dict(vars(tinyllm))
    monkeypatch.setattr(tinyllm, "__file__", str(package / "__init__.py"))
    monkeypatch.setattr(tinyllm, "__path__", [str(package)])
    yield package
    taken_out()
    sys.modules.update(modules)
    vars(tinyllm).clear()
    vars(tinyllm).update(ours)


@pytest.fixture
def run(imported_package, tmp_path, monkeypatch):
    """Runs a cell in a notebook of the first lab; returns its output as one text.

    IPython's shell runs it in this process, with the events that it has in a kernel.
    """
    monkeypatch.setattr(notebook, "_session", None)
    monkeypatch.chdir(tmp_path)
    config = Config({"HistoryManager": {"enabled": False}})
    shell = InteractiveShell.instance(config=config, ipython_dir=str(tmp_path / "ipython"))

    def run_cell(source, cell_id=None):
        with capture_output() as shown:
            shell.run_cell(source, cell_id=cell_id)
        displayed = [output.data.get("text/plain", "") for output in shown.outputs]
        return " ".join(" ".join([shown.stdout, *displayed]).split())

    run_cell(setup_cell(LABS[0]))
    yield run_cell
    shell.restore_sys_module_state()
    InteractiveShell.clear_instance()
