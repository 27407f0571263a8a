"""Recorded answers: what the reference and the known mistakes give for every visible check.

A learner's checks use this file, so that they need no reference and run no second model.
`tinyllm build` writes it; a call that no longer fits the record is reported as stale.
"""

from __future__ import annotations

from typing import Any

from labkit.checks.runner import TESTS, KnownMistake, Oracle
from labkit.sandboxed.call import Call, Outcome
from labkit.sandboxed.wire import digest, outcome_fields, outcome_from, pack, unpack

FOLDER = TESTS / "visible" / "recorded"


class Stale(Exception):
    """The record does not know this call: a check changed and was not recorded again."""


class RecordedReference:
    """An oracle that looks answers up."""

    def __init__(self, module: str):
        path = FOLDER / f"{module}.safetensors"
        if not path.exists():
            raise Stale(f"{path} is missing; `tinyllm build` writes it")
        content = unpack(path.read_bytes())
        self.entries: dict[str, Any] = content["calls"]
        self.stubs: dict[str, str] = content["stubs"]  # {exercise id: fingerprint of its stub}

    def reference(self, call: Call) -> Outcome:
        return outcome_from(self._entry(call)["reference"])

    def suspects(self, call: Call) -> list[KnownMistake]:
        entry = self._entry(call)
        return [
            KnownMistake(name, sentence, costs, outcome_from(fields or entry["reference"]))
            for name, sentence, costs, fields in entry["suspects"]
        ]

    def _entry(self, call: Call) -> dict[str, Any]:
        entry = self.entries.get(call.key)
        if entry is None or entry["digest"] != digest(call):
            raise Stale(
                f"no recorded answer fits {call.key}; `tinyllm build` records them anew"
            )
        return entry


class RecordingReference:
    """An oracle that asks another one and keeps every answer."""

    def __init__(self, live: Oracle):
        self.live = live
        self.entries: dict[str, Any] = {}

    def reference(self, call: Call) -> Outcome:
        right = self.live.reference(call)
        fields = outcome_fields(right)
        suspects = []
        for suspect in self.live.suspects(call):
            theirs = outcome_fields(suspect.outcome)
            same = pack(theirs) == pack(fields)
            kept = None if same else theirs
            suspects.append([suspect.name, suspect.sentence, suspect.costs, kept])
        self.entries[call.key] = {
            "digest": digest(call),
            "reference": fields,
            "suspects": suspects,
        }
        return right

    def suspects(self, call: Call) -> list[KnownMistake]:
        return self.live.suspects(call)

    def blob(self, stubs: dict[str, str]) -> bytes:
        return pack({"stubs": stubs, "calls": self.entries})
