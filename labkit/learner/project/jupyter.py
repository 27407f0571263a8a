"""Starting JupyterLab in the project with a notebook open.

The kernel's Python is checked first: a kernel of another environment cannot import the course,
and the error in the notebook's first cell does not say why.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from labkit.course.lang import tr
from labkit.course.syllabus import Lab
from labkit.learner.project.notebook_file import NotebookError, way_back
from labkit.learner.project.reset import project

KERNEL = "python3"  # the kernel of the course's notebooks
ANY_PYTHON = re.compile(r"python(3(\.\d+)?)?")  # Jupyter replaces these by its own Python


class NoJupyter(Exception):
    """JupyterLab would not work with this course; the message says how to fix it."""


def command(lab: Lab, extra: Sequence[str]) -> list[str]:
    """Return the command that opens the lab's notebook in JupyterLab.

    extra    options that are passed on to JupyterLab

    Errors: NoJupyter; NotebookError if there is no notebook
    """
    other = kernels_python()
    if other:
        raise NoJupyter(
            tr(
                "Jupyter's kernel {KERNEL!r} is {other}, but the course is installed in "
                "{executable}: `{executable} -m ipykernel install --sys-prefix` gives "
                "notebooks that one, or `jupyter kernelspec remove {KERNEL}` takes the "
                "other away",
                KERNEL=KERNEL,
                other=other,
                executable=sys.executable,
            )
        )
    folder = project()
    notebook = folder / "notebooks" / f"{lab.name}.ipynb"
    if not notebook.exists():
        raise NotebookError(
            tr("there is no file {notebook}; {lab}", notebook=notebook, lab=way_back(lab))
        )
    start = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}"]
    return [*start, *extra, str(notebook)]


def kernels_python() -> str:
    """Return the Python of the kernel if it is a different one, else "".

    A kernel specification in the user's own folder may come from another environment.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    (first, *_) = KernelSpecManager().get_kernel_spec(KERNEL).argv
    if ANY_PYTHON.fullmatch(first):
        return ""
    # python and python3 are in one folder
    same = Path(first).parent == Path(sys.executable).parent
    return "" if same else first


def start(arguments: Sequence[str]) -> int:
    """Run JupyterLab and return its exit status; on POSIX this process becomes JupyterLab."""
    if os.name != "nt":  # JupyterLab then handles Ctrl-C itself
        os.execv(arguments[0], arguments)
    return subprocess.call(arguments)
