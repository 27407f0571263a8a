"""JupyterLab on the project: its root folder, the notebook to open, its kernel's Python."""

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

KERNEL = "python3"  # what the course's notebooks ask for
ANY_PYTHON = re.compile(r"python(3(\.\d+)?)?")  # Jupyter puts its own in the place of these


class NoJupyter(Exception):
    """JupyterLab would not work with this course; the message says how it will."""


def command(lab: Lab, extra: Sequence[str]) -> list[str]:
    """What starts JupyterLab with the lab's notebook open; extra goes to it as it is."""
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
    """The Python that notebooks would run in, if it is another than this; "" if it is this.

    A specification in the user's own folder, left by another environment, can lead there.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    (first, *_) = KernelSpecManager().get_kernel_spec(KERNEL).argv
    if ANY_PYTHON.fullmatch(first):
        return ""
    same = Path(first).parent == Path(sys.executable).parent  # python, python3: one folder
    return "" if same else first


def start(arguments: Sequence[str]) -> int:
    """JupyterLab's exit status; where it can be, this process becomes JupyterLab."""
    if os.name != "nt":  # Ctrl-C is then its own
        os.execv(arguments[0], arguments)
    return subprocess.call(arguments)
