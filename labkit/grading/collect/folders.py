"""The folders that collect writes to: the attempt that counts, and a copy of each."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.course.files import safe_id, write_whole
from labkit.grading.collect import issues
from labkit.grading.collect.attempts import Attempt, read_notebook
from labkit.grading.judge.intake import NotANotebook
from labkit.grading.nbgrader import timestamp


class CollectFolders:
    """COURSE/submitted and COURSE/collected, and the manifest of what counts."""

    def __init__(self, root: Path):
        self.root, self.collected = root, root / "collected"
        self.collected.mkdir(parents=True, exist_ok=True)
        self.manifest = timestamp.read_manifest(root)

    def write_manifest(self) -> None:
        text = json.dumps(self.manifest, indent=1, sort_keys=True)
        write_whole(self.root / timestamp.MANIFEST, text)

    def current(self, learner: str, lab: str) -> dict[str, Any]:
        """The manifest's entry of what counts; {} if that came by other means."""
        path = issues.submitted(self.root, learner, lab)
        entry = self.manifest.get(f"{learner}/{lab}", {})
        is_there = path.is_file() and timestamp.sha_of(path) == entry.get("sha")
        return entry if is_there else {}

    def keep(self, attempt: Attempt) -> Path:
        """A copy, named by time and content; the same content only once."""
        if path := self.find_copy(attempt):
            return path
        when = f"{attempt.when:%Y-%m-%dT%H-%M-%SZ}-" if attempt.when else ""
        path = self.copies_folder(attempt) / f"{when}{attempt.sha[:12]}.ipynb"
        write_whole(path, attempt.content.read_bytes())
        if attempt.when:  # from which `collect --as` takes it
            os.utime(path, (attempt.when.timestamp(), attempt.when.timestamp()))
        return path

    def find_copy(self, attempt: Attempt) -> Path | None:
        return next(self.copies_folder(attempt).glob(f"*{attempt.sha[:12]}.ipynb"), None)

    def copies_folder(self, attempt: Attempt) -> Path:
        owner = attempt.learner or Path("unknown", safe_id(attempt.shown))
        return self.collected / owner / attempt.lab.name

    def put(
        self, attempt: Attempt, replace_newer: bool, is_chosen: bool
    ) -> tuple[str, frozenset[str]]:
        """Make an attempt what counts, unless what is there is later: what was done, and what
        was answered there before."""
        state, begun = issues.NEW, frozenset[str]()
        path = issues.submitted(self.root, attempt.learner, attempt.lab.name)
        current = self.current(attempt.learner, attempt.lab.name)
        entry = {"sha": attempt.sha, "order": attempt.order, "claim": attempt.claim.key,
                 "source": attempt.file, "late": attempt.claim.late}  # fmt: skip
        if is_chosen:
            entry["chosen"] = True
        if path.is_file():
            state = issues.NEWER
            if timestamp.sha_of(path) == attempt.sha:
                entry["order"] = max(attempt.order, current.get("order", attempt.order))
                self.manifest[f"{attempt.learner}/{attempt.lab.name}"] = current | entry
                return issues.SAME, begun
            if not (replace_newer or is_later(attempt, order_of(path, current))):
                return issues.OLDER, begun
            with suppress(NotANotebook):
                begun = read_notebook(path.read_bytes())[1]
            sha, when = timestamp.sha_of(path), issues.handed_in(path)
            self.keep(replace(attempt, sha=sha, when=when, content=path))
        stamp = path.with_name("timestamp.txt")
        if attempt.when:  # first: should this be the last thing done, the notebook comes again
            write_whole(stamp, timestamp.timestamp_text(attempt.when))
        else:
            stamp.unlink(missing_ok=True)
        write_whole(path, attempt.content.read_bytes())
        self.manifest[f"{attempt.learner}/{attempt.lab.name}"] = entry
        return state, begun


def order_of(path: Path, current: dict[str, Any]) -> Sequence[float]:
    """What `Attempt.order` was of the notebook that counts."""
    return current.get("order") or [0, issues.handed_in(path).timestamp()]


def is_later(attempt: Attempt, order: Sequence[float]) -> bool:
    """Whether an attempt comes after this order: by numbers of files if both have them."""
    if attempt.order[0] and order[0]:
        return attempt.order[0] > order[0]
    return attempt.when is not None and attempt.order[1] > order[1]
