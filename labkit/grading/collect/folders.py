"""The folders that collect writes to: the attempts that count, and a copy of each."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.course.files import safe_id, write_whole
from labkit.grading.collect import issues
from labkit.grading.collect.attempts import Attempt
from labkit.grading.nbgrader import timestamp


class CollectFolders:
    """COURSE/submitted and COURSE/collected, and the manifest of the attempts that count."""

    def __init__(self, root: Path):
        self.root, self.collected = root, root / "collected"
        self.collected.mkdir(parents=True, exist_ok=True)
        self.manifest = timestamp.read_manifest(root)

    def write_manifest(self) -> None:
        text = json.dumps(self.manifest, indent=1, sort_keys=True)
        write_whole(self.root / timestamp.MANIFEST, text)

    def current(self, learner: str, lab: str) -> dict[str, Any]:
        """The manifest's entry of the attempt that counts; {} if it came by other means."""
        path = issues.submitted(self.root, learner, lab)
        entry = self.manifest.get(f"{learner}/{lab}", {})
        is_there = path.is_file() and timestamp.sha_of(path) == entry.get("sha")
        return entry if is_there else {}

    def copies_folder(self, attempt: Attempt) -> Path:
        owner = ("learners", attempt.learner) if attempt.learner else (
            "unknown", safe_id(attempt.shown))  # fmt: skip
        return self.collected.joinpath(*owner, attempt.lab.name)

    def find_copy(self, attempt: Attempt) -> Path | None:
        return next(self.copies_folder(attempt).glob(f"*{attempt.sha[:12]}.ipynb"), None)

    def keep(self, attempt: Attempt) -> Path:
        """Keep a copy, named by time and content; the same content only once."""
        if path := self.find_copy(attempt):
            return path
        when = f"{attempt.when:%Y-%m-%dT%H-%M-%SZ}-" if attempt.when else ""
        path = self.copies_folder(attempt) / f"{when}{attempt.sha[:12]}.ipynb"
        write_whole(path, attempt.content.read_bytes())
        if attempt.when:  # from which `collect --as` takes it
            os.utime(path, (attempt.when.timestamp(), attempt.when.timestamp()))
        return path

    def put(self, attempt: Attempt, replace_newer: bool, is_chosen: bool) -> str:
        """Let an attempt count, unless a later one counts already; return its state.

        replace_newer    also replace a later attempt
        is_chosen        a person named its learner
        """
        name = f"{attempt.learner}/{attempt.lab.name}"
        path = issues.submitted(self.root, attempt.learner, attempt.lab.name)
        current = self.current(attempt.learner, attempt.lab.name)
        entry = {"sha": attempt.sha, "order": attempt.order, "claim": attempt.claim.key,
                 "source": attempt.file, "late": attempt.claim.late}  # fmt: skip
        entry |= {"chosen": True} if is_chosen else {}
        if path.is_file():
            sha, when = timestamp.sha_of(path), issues.handed_in(path)
            order = current.get("order") or [0, when.timestamp()]
            if sha == attempt.sha:
                entry["order"] = max(attempt.order, order) if current else attempt.order
                if current and not is_chosen:  # a copy by somebody else changes nothing
                    entry |= {"claim": current["claim"], "source": current["source"]}
                self.manifest[name] = current | entry
                return issues.SAME
            # compare the numbers of files, else their times
            by = 0 if attempt.order[0] and order[0] else 1
            if not replace_newer and attempt.order[by] <= order[by]:
                return issues.EARLIER
            self.keep(replace(attempt, sha=sha, when=when, content=path))
        state = issues.NEWER if path.is_file() else issues.NEW
        stamp = path.with_name(timestamp.STAMP)
        if attempt.when:  # first: if the run is killed here, the notebook is collected again
            write_whole(stamp, timestamp.timestamp_text(attempt.when))
        else:
            stamp.unlink(missing_ok=True)
        write_whole(path, attempt.content.read_bytes())
        self.manifest[name] = entry
        return state
