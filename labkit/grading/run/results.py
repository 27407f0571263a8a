"""Finished gradings: a JSON file each, named by a hash of the submission and of the judge.

An existing result is never computed again, no matter how the previous run ended. A changed
submission,
check, reference or released stub has a different name; its first half depends on the submission
alone. A result holds shares of the points, not points.

A file per result survives a kill at any moment; a database of ours would need code for that.
The price: results of earlier versions stay until somebody deletes them."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from labkit.course.files import hash_of, write_whole
from labkit.course.paths import ROOT
from labkit.course.syllabus import Lab
from labkit.grading.judge.graded import GradedSubmission
from labkit.grading.nbgrader.published import HAND_IN
from labkit.sandbox.bubblewrap import GradingError
from labkit.sandbox.inside.limits import CPU_SECONDS

# Files that can change a score; a change of colors, commands or pages causes no new grading.
JUDGING = (
    *("labkit/course/*.py", "labkit/course/labs/*_{lab}.toml"),
    "labkit/sandbox/**/*.py",
    "labkit/checks/*.py",
    "labkit/author/reference.py",
    "labkit/grading/judge/*.py",
    "solutions/*.py",
    "solutions/mistakes/{lab}.*",
    "tests/*/test_{lab}.py",
)


@cache
def judging(lab: str) -> str:
    """The versions of all that can change a score: our files (a hash), torch, Python."""
    names = [name.format(lab=lab) for name in JUDGING]
    checks = hash_of(path for name in names for path in ROOT.glob(name))
    return f"checks {checks}, torch {version('torch')}, Python {platform.python_version()}"


@dataclass(frozen=True)
class GradingSpec:
    """Everything that a process on any machine needs to judge submissions of a lab."""

    lab: str  # its module
    released: str  # the notebook as JSON
    secret: bytes
    judging: str
    unsandboxed: bool | None = None  # see sandbox.permitted
    cpu_seconds: int = CPU_SECONDS

    @cached_property
    def stubs(self) -> bytes:
        """The answer cells of the released notebook; its text and points change no score."""
        cells = json.loads(self.released)["cells"]
        marked = [(cell["metadata"].get("nbgrader", {}), cell["source"]) for cell in cells]
        stubs = [(marks["grade_id"], text) for marks, text in marked if marks.get("solution")]
        return json.dumps(stubs).encode()

    @classmethod
    def of(cls, lab: Lab, released: NotebookNode, secret: bytes, **options: Any) -> GradingSpec:
        text = nbformat.v4.writes_json(released)
        return cls(lab.module, text, secret, judging(lab.module), **options)

    @property
    def made_by(self) -> str:
        """The versions of `judging` as text for people."""
        return re.sub(r"(checks \w{7})\w*", r"\1", self.judging)

    def key(self, data: bytes, before: str = "") -> str:
        """Return the name of the result for this content and these answers to earlier labs: a
        hash of the submission, then a hash of the judge."""
        judges = f"{self.judging} {self.cpu_seconds} ".encode()
        halves = ((data, before.encode()), (judges, self.stubs, self.secret))
        return "".join(hash_parts(half)[:HAND_IN] for half in halves)


def hash_parts(parts: Iterable[bytes]) -> str:
    digests = (hashlib.sha256(part).digest() for part in parts)
    return hashlib.sha256(b"".join(digests)).hexdigest()


class Results:
    """The finished gradings of a lab, in the course folder; one process writes them.

    .results/LAB/KEY.json    a record
    .results/LAB.json        {learner: the key of their record; null if grading broke off}
    """

    def __init__(self, course_root: Path, lab: Lab):
        self.lab = lab
        self.folder = course_root / ".results" / lab.name
        self.learners = course_root / ".results" / f"{lab.name}.json"

    def get(self, key: str) -> GradedSubmission | None:
        """Return the finished result; None if none can be read."""
        try:
            return GradedSubmission.from_json(self._path(key).read_text("utf-8"))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def put(self, key: str, submission: GradedSubmission) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._path(key), submission.to_json().encode())

    def of_class(self) -> dict[str, GradedSubmission | None] | None:
        """Return {learner: record} as the lab was graded last, with None if grading broke off
        or the record cannot be read; None if the lab never was graded."""
        if not self.learners.exists():
            return None
        return {learner: self.get(key or "") for learner, key in self.keys().items()}

    def keys(self) -> dict[str, str | None]:
        """{learner: the key of their record} of the last grading; GradingError if damaged."""
        if not self.learners.exists():
            return {}
        try:
            return dict(json.loads(self.learners.read_text("utf-8")))
        except (OSError, ValueError, TypeError) as error:
            again = f"`tinyllm grade {self.lab.module}` makes it again"
            raise GradingError(f"{self.learners} cannot be read: {again}") from error

    def put_class(self, keys: Mapping[str, str | None]) -> None:
        write_whole(self.learners, json.dumps(dict(keys)).encode())

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
