"""Finished gradings: one JSON file each, named by what was judged and by what judged it.

A result that is there is never made again, whoever handed the notebook in and however the run
before ended; a changed submission, check, reference or released notebook has another name.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import torch
from nbformat import NotebookNode
from nbgrader.utils import compute_checksum, determine_grade, is_grade, is_solution

from labkit.core.paths import ROOT
from labkit.core.report import Report, Status
from labkit.core.syllabus import Lab, find_lab
from labkit.grading.judge.judge import REMEMBER, Graded, Submission
from labkit.sandboxed.limits import CPU_SECONDS

# Rooms that can change a score; colours, commands and pages regrade nobody.
JUDGING = ("core", "sandboxed", "checks", "grading/judge")


@cache
def judging(lab_module: str) -> str:
    """Tells apart versions of everything that has a say in a score."""
    names = [f"labkit/{room}/**/*.py" for room in JUDGING]
    names += ["solutions/*.py", f"solutions/mistakes/{lab_module}.*"]
    names += [f"tests/*/test_{lab_module}.py"]
    hasher = hashlib.sha256(f"{platform.python_version()} {torch.__version__}".encode())
    for path in sorted(path for name in names for path in ROOT.glob(name)):
        hasher.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return hasher.hexdigest()


@dataclass(frozen=True)
class GradingSpec:
    """All that a process anywhere needs to judge submissions of a lab."""

    lab: str  # its module
    released: str  # the notebook as JSON
    secret: bytes
    judging: str
    require_sandbox: bool = False
    cpu_seconds: int = CPU_SECONDS
    remember: int = REMEMBER

    @classmethod
    def of(cls, lab: Lab, released: NotebookNode, secret: bytes, **options: Any) -> GradingSpec:
        text = nbformat.v4.writes_json(released)
        return cls(lab.module, text, secret, judging(lab.module), **options)

    def key(self, data: bytes, before: str = "") -> str:
        """The name of the result for a submission with this content, after those."""
        hasher = hashlib.sha256(f"{self.judging} {self.cpu_seconds} ".encode())
        for part in (self.released.encode(), self.secret, before.encode(), data):
            hasher.update(hashlib.sha256(part).digest())
        return hasher.hexdigest()


@dataclass(frozen=True)
class Verdict:
    """A graded submission as it crosses between processes and lies in a file.

    grades     {grade cell: points}; None where a person has to give them
    comments   {answer cell: what nbgrader says of it by itself, or None}
    notebook   the graded notebook, for autograded/; empty in a file
    """

    lab: str
    exercises: list[dict[str, Any]]
    grades: dict[str, float | None]
    comments: dict[str, str | None]
    problem: str | None
    layers: list[str]
    late: bool
    digest: str  # of the notebook
    notebook: bytes = b""

    @classmethod
    def of(cls, submission: Submission) -> Verdict:
        notebook = submission.notebook
        content = file_content(notebook)
        grades, comments = {}, {}
        for cell in notebook.cells:
            name = cell.metadata.get("nbgrader", {}).get("grade_id")
            if is_grade(cell):
                grades[name] = determine_grade(cell)[0]
            if is_solution(cell):
                same = cell.metadata.nbgrader.get("checksum") == compute_checksum(cell)
                comments[name] = "No response." if same else None
        return cls(
            submission.lab.module,
            [packed(graded) for graded in submission.exercises],
            grades,
            comments,
            submission.problem,
            submission.layers,
            submission.late,
            digest(content),
            content,
        )

    def submission(self) -> Submission:
        """As the tables and reports want it; its notebook is in autograded/."""
        lab = find_lab(self.lab)
        exercises = [unpacked(lab, fields) for fields in self.exercises]
        return Submission(lab, exercises, NotebookNode(), self.problem, self.layers)

    @property
    def for_a_person(self) -> set[str]:
        """Check cells whose points the judge could not find out."""
        lab = find_lab(self.lab)
        odd = {fields["id"] for fields in self.exercises if fields["needs_person"]}
        return {exercise.check_cell for exercise in lab.exercises if exercise.id in odd}


def file_content(notebook: NotebookNode) -> bytes:
    """As a file, without nbformat's validation: all of it is from our own hands."""
    return (json.dumps(notebook, ensure_ascii=False, sort_keys=True) + "\n").encode()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def packed(graded: Graded) -> dict[str, Any]:
    report = {name: getattr(graded.report, name) for name in ("heading", "verdict", "rows")}
    fields = {name: getattr(graded, name) for name in ("score", "why", "look", "needs_person")}
    report["status"] = graded.report.status.value
    return {"id": graded.exercise.id, **fields, "report": report}


def unpacked(lab: Lab, fields: dict[str, Any]) -> Graded:
    rows = [(label, text) for label, text in fields["report"]["rows"]]
    report = dict(fields["report"], rows=rows, status=Status(fields["report"]["status"]))
    rest = {name: fields[name] for name in ("score", "why", "look", "needs_person")}
    return Graded(lab.exercise(fields["id"]), report=Report(**report), **rest)


class Results:
    """The folder of a lab's finished gradings; one process writes it."""

    def __init__(self, folder: Path):
        self.folder = folder

    def get(self, key: str) -> Verdict | None:
        """The finished result; None if there is none that can be read."""
        try:
            return Verdict(**json.loads((self.folder / f"{key}.json").read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def put(self, key: str, verdict: Verdict) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f"{key}.part"
        temporary.write_text(json.dumps({**vars(verdict), "notebook": ""}), "utf-8")
        os.replace(temporary, self.folder / f"{key}.json")
