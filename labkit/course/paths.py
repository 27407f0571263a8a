"""The folders of the course (an edition may lack some), and its errors with their place."""

import os
import traceback
from pathlib import Path

from labkit.course.lang import said

ROOT = Path(__file__).resolve().parents[2]
LABKIT = ROOT / "labkit"
NOTEBOOKS = ROOT / "notebooks"
GIVEN = ROOT / "given"  # in a learners' edition: the originals of the notebooks
SOLUTIONS = ROOT / "solutions"
TESTS = ROOT / "tests"
CHECKPOINTS = ROOT / "checkpoints"
INSTALLED = "site-packages"


def learners_folder() -> Path:
    """Return the folder of a learner's package, notebooks and progress: the course's own, or a
    folder in their home if the installation is shared (on a JupyterHub) or read-only."""
    home = Path(os.path.expanduser("~"))
    shared = "JUPYTERHUB_USER" in os.environ and not ROOT.is_relative_to(home)
    is_own = os.access(ROOT / "tinyllm", os.W_OK) and not shared
    return ROOT if is_own else home / "tinyllm-course"


PROJECT = learners_folder()
NOT_IN_ITS_FOLDER = said(
    "the course runs from its own folder, and this copy is installed without it: in a clone of "
    "the course, run `pip install -c constraints.txt -e .`"
)


def fault(error: BaseException) -> str:
    """An error as text, with the last line of the course's files that it passed through."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip().partition("\n")[0]
    if isinstance(error, SyntaxError) and error.filename:
        text, places = error.msg, [(error.filename, error.lineno)]
    else:
        frames = traceback.extract_tb(error.__traceback__)
        places = [(frame.filename, frame.lineno) for frame in frames]
    for name, line in reversed(places):
        path = Path(name)
        if path.is_relative_to(ROOT) and INSTALLED not in path.parts:
            return f"{path.relative_to(ROOT)}, line {line}: {type(error).__name__}: {text}"
    return f"{type(error).__name__}: {text}"
