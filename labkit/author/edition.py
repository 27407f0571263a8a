"""The editions that are made on demand: the instructor's notebooks, the learners' project."""

from __future__ import annotations

import shutil
from pathlib import Path

from labkit.author.build import skeletons
from labkit.author.export import write_program
from labkit.author.owned_cells import filled, notebook_path, read_notebook, serialised
from labkit.author.reference import BuildError
from labkit.core.paths import ROOT
from labkit.core.syllabus import LABS

LEARNERS = (
    *("notebooks/*.ipynb", "tinyllm/__init__.py", "solutions/hints/*.md"),
    *("labkit/**/*.py", "labkit/pretrain/*.jinja", "checkpoints/*/*"),
    *("tests/checks.ini", "tests/visible/*.py", "tests/visible/stubs.json"),
    *("tests/visible/recorded/*",),
    *("pyproject.toml", "constraints.txt", "environment.yml", "README.md", "LICENSE"),
)
INSTRUCTORS_ROOMS = ("author", "grading", "bench")  # of labkit/
PROGRAMS = ("checkpoints/stories-dense",)  # they talk where no decoder is finished


def write_source(course: Path) -> list[Path]:
    """The instructor's edition: source/LAB/LAB.ipynb with the reference in every answer."""
    course = course.resolve()
    written = []
    for lab in LABS:
        path = course / "source" / lab.name / f"{lab.name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        notebook = filled(lab, read_notebook(notebook_path(lab)), solved=True)
        path.write_bytes(serialised(notebook))
        written.append(path)
    shutil.copyfile(ROOT / "nbgrader_config.py", course / "nbgrader_config.py")
    return written


def write_learners(folder: Path) -> Path:
    """The project as a class gets it: no reference, mistakes, hidden checks, grading."""
    if folder.exists() and any(folder.iterdir()):
        raise BuildError(f"{folder} is not empty; name a new folder")
    for pattern in LEARNERS:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT)
            if name.parts[0] != "labkit" or name.parts[1] not in INSTRUCTORS_ROOMS:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, folder / name)
    for derived in skeletons():
        (folder / derived.path.relative_to(ROOT)).write_bytes(derived.content)
    for name in PROGRAMS:
        write_program(ROOT / name, folder / name)
    return folder
