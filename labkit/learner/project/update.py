"""Updating a learner's project to a newer edition of the course.

An edition never contains the files that a learner edits (notebooks/ and the modules of
tinyllm/): they are created from it, and a newer edition is merged into them. `.given/` in the
project keeps the last edition's version of each file, which separates the learner's changes
from the course's. A copy and not a git repository: a learner need not have git.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat

from labkit.course.files import write_whole
from labkit.course.lang import said, tr
from labkit.course.paths import GIVEN, ROOT
from labkit.course.syllabus import NOTEBOOKS, Lab
from labkit.learner import workspace
from labkit.learner.project import notebook_file
from labkit.learner.project.merge import merge_module, merge_notebook
from labkit.learner.project.notebook_file import NotebookError
from labkit.learner.project.reset import Change, change_to, project, write_changes
from labkit.learner.workspace import LAID_OUT

PRUNED = ("given", "labkit", "solutions", "tests")  # folders without files of a learner


class UpdateError(Exception):
    """Nothing was changed; the message says why."""


def given_files(lab: Lab) -> dict[str, str]:
    """{path in the project: text in this edition} of a lab's files"""
    skeleton = workspace.skeletons().get(lab.module)
    found = {f"tinyllm/{lab.module}.py": skeleton} if skeleton else {}
    path, folder = GIVEN / f"{lab.name}.ipynb", project() / "notebooks"
    if path.exists() and (folder.is_dir() or "JUPYTERHUB_USER" not in os.environ):
        # otherwise nbgrader brings the notebook
        found[f"notebooks/{path.name}"] = path.read_text("utf-8")
    return found


def is_behind(lab: Lab) -> bool:
    """Whether this edition has a newer version of a lab than the learner's project"""
    files = given_files(lab).items() if GIVEN.is_dir() else ()
    return any(read_text(project() / LAID_OUT / name) != text for name, text in files)


def update_if_behind(lab: Lab) -> None:
    """Create the files of a lab, or update them, and print what was done."""
    is_there = (project() / "notebooks" / f"{lab.name}.ipynb").exists()
    if GIVEN.is_dir() and (not is_there or is_behind(lab)):
        for line in update_project():
            print(line)


def require_edition() -> None:
    """Errors: UpdateError in a clone, which git updates"""
    if not GIVEN.is_dir():
        clone = said("this is a clone of the course, not its edition for learners: `git pull` "
                     "brings it up to date")  # fmt: skip
        raise UpdateError(tr(clone))


def update_project() -> list[str]:
    """Merge this edition into the learner's files; return lines that say what was done.

    Replaced files are kept in backups/.
    """
    require_edition()
    others = workspace.skeletons().keys() - {lab.module for lab in NOTEBOOKS}
    files = {f"tinyllm/{name}.py": (None, workspace.skeletons()[name]) for name in others}
    for lab in NOTEBOOKS:
        files |= {name: (lab, text) for name, text in given_files(lab).items()}
    lines: list[str] = []
    for folder in ("tinyllm/", "notebooks/"):  # notebooks are filled from the modules
        changes: list[Change] = []
        for name in sorted(name for name in files if name.startswith(folder)):
            try:
                after, done = _update_file(name, *files[name])
            except NotebookError as error:
                lines.append(tr("left as it is: {error}", error=error))
                continue
            lines += done
            changes += [change_to(project() / name, after)] if done else []
        write_changes(changes)
    for name, (_, text) in files.items():
        if read_text(project() / LAID_OUT / name) != text:
            write_whole(project() / LAID_OUT / name, text)
    return lines


def _update_file(name: str, lab: Lab | None, now: str) -> tuple[str, list[str]]:
    """Return the new text of a file, and lines that say what was done to it."""
    before, edited = read_text(project() / LAID_OUT / name), read_text(project() / name)
    after, lines = now, []
    if edited is None:
        lines.append(tr("new: {name}", name=name))
    elif before == now or edited == now:
        after = edited
    else:
        after, both = _merge(name, lab, before, edited, now)
        lines += [tr("brought up to date: {name}", name=name), *both]
    if lab and name.endswith(".ipynb"):
        after, filled = _fill_blanks(lab, after)
        lines += [f"{name}: {line}" for line in filled]
    return after, lines


def _merge(
    name: str, lab: Lab | None, before: str | None, edited: str, now: str
) -> tuple[str, list[str]]:
    """Return the new text with the learner's changes, and lines on conflicts."""
    if lab is None or edited == before:
        return now, []
    if name.endswith(".py"):
        return merge_module(lab, before or now, edited, now), []
    old, new = (nbformat.reads(text, as_version=4) for text in (before or now, now))
    merged, both = merge_notebook(lab, old, notebook_file.read(project() / name), new)
    lines = [
        tr(
            "{name}: both you and the course changed {cells}; yours stays, and the course's is "
            "in {given}",
            name=name,
            cells=tr(", ").join(both),
            given=f"{GIVEN.name}/{Path(name).name}",
        )
    ]
    return nbformat.writes(merged) + "\n", lines * bool(both)


def _fill_blanks(lab: Lab, text: str) -> tuple[str, list[str]]:
    """Return a notebook with the package's answers in its blank cells, and a line on them."""
    if not lab.exercises or not notebook_file.saved_answers(lab):
        return text, []
    content = notebook_file.parse(text.encode(), f"{lab.name}.ipynb")
    blank = notebook_file.fill_blanks(content, lab)
    if not blank:
        return text, []
    ids = tr(", ").join(exercise.id for exercise in blank)
    line = tr("blank cells filled from tinyllm/{module}.py: {ids}", module=lab.module, ids=ids)
    return nbformat.writes(content) + "\n", [line]


def read_text(path: Path) -> str | None:
    return path.read_text("utf-8", errors="replace") if path.is_file() else None


# A newer edition


def take_edition(source: Path) -> int:
    """Install a newer edition, a folder or a zip, and let its code update the learner's files.

    Returns the exit status. Errors: UpdateError if it is not an edition
    """
    require_edition()
    with edition_in(source) as edition:
        new = {path.relative_to(edition) for path in edition.rglob("*") if path.is_file()}
        new = {path for path in new if path.parts[0] != ".git" and not learner_edits(path)}
        dependencies = (edition / "pyproject.toml").read_bytes()
        is_changed = dependencies != (ROOT / "pyproject.toml").read_bytes()
        for path in sorted(new):
            content = (edition / path).read_bytes()
            if not (ROOT / path).is_file() or (ROOT / path).read_bytes() != content:
                write_whole(ROOT / path, content)
    for folder in PRUNED:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.relative_to(ROOT) not in new:
                path.unlink()
    if is_changed:
        print(tr("it needs other packages: `pip install -c constraints.txt -e .` in {folder}",
                 folder=ROOT))  # fmt: skip
    return subprocess.call([sys.executable, "-m", "labkit", "update"], cwd=ROOT)


def learner_edits(path: Path) -> bool:
    """Whether a learner edits this file, so that an edition never writes it"""
    top = path.parts[0]
    return top in ("notebooks", LAID_OUT, "backups", "submissions", "build") or (
        path.as_posix() == "progress.json" or (top == "tinyllm" and path.name != "__init__.py")
    )


@contextmanager
def edition_in(source: Path) -> Iterator[Path]:
    """Yield the folder of the edition at `source`: a folder, a folder in it, or a zip.

    Errors: UpdateError if there is none
    """
    with TemporaryDirectory() as place:
        folder = source
        if source.is_file():
            try:
                with zipfile.ZipFile(source) as archive:
                    archive.extractall(place)
            except (zipfile.BadZipFile, OSError) as error:
                reason = tr(
                    "{source} is not a readable zip: {error}", source=source, error=error
                )
                raise UpdateError(reason) from error
            folder = Path(place)
        inside = [folder, *(path for path in sorted(folder.glob("*")) if path.is_dir())]
        found = [path for path in inside if (path / GIVEN.name).is_dir()
                 and (path / "labkit" / "cli.py").is_file()]  # fmt: skip
        if not found:
            missing = said("{source} is not an edition of the course: it has no folders given/ "
                           "and labkit/")  # fmt: skip
            raise UpdateError(tr(missing, source=source))
        if found[0].resolve() == ROOT:
            raise UpdateError(tr("{source} is the folder of this course itself", source=source))
        yield found[0]
