"""What right answers and known mistakes give: asked on the spot, or looked up.

The visible checks of a learner look it up in tests/visible/recorded/, so that they need no
reference and run no second model. `tinyllm build` writes those files; a call that no longer
fits them is reported as stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from labkit.checks.runner import TESTS, KnownMistake, Oracle
from labkit.sandboxed.call import Call, Outcome, perform
from labkit.sandboxed.wire import (
    call_hash,
    outcome_fields,
    outcome_from,
    pack,
    unpack,
)

FOLDER = TESTS / "visible" / "recorded"


class Stale(Exception):
    """The record does not know this call: a check changed and was not recorded again."""


class Performable(Protocol):
    """A wrong version of `symbol` that can be run: labkit.author.mistakes has them."""

    symbol: str
    name: str
    sentence: str
    costs: bool
    namespace: dict[str, Any]


class LiveReference:
    """Performs calls with the reference and with mistakes, on demand.

    Outcomes are kept by the hash of their call, so that a class that meets the same calls does
    not pay for them again.
    """

    def __init__(self, namespace: dict[str, Any], mistakes: Sequence[Performable]):
        self.namespace, self.mistakes = namespace, mistakes
        self.outcomes: dict[str, Outcome] = {}
        self.wrong: dict[str, list[KnownMistake]] = {}

    def reference(self, call: Call) -> Outcome:
        key = call_hash(call)
        if key not in self.outcomes:
            self.outcomes[key] = perform(call, self.namespace)
        return self.outcomes[key]

    def suspects(self, call: Call) -> list[KnownMistake]:
        key = call_hash(call)
        if key not in self.wrong:
            self.wrong[key] = [
                KnownMistake(m.name, m.sentence, m.costs, perform(call, m.namespace))
                for m in self.mistakes
                if m.symbol == call.symbol
            ]
        return self.wrong[key]


class RecordedReference:
    """An oracle that looks answers up."""

    def __init__(self, module: str):
        path = FOLDER / f"{module}.safetensors"
        if not path.exists():
            raise Stale(f"{path} is missing; `tinyllm build` writes it")
        self.entries: dict[str, Any] = unpack(path.read_bytes())

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
        if entry is None or entry["digest"] != call_hash(call):
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
            "digest": call_hash(call),
            "reference": fields,
            "suspects": suspects,
        }
        return right

    def suspects(self, call: Call) -> list[KnownMistake]:
        return self.live.suspects(call)

    def blob(self) -> bytes:
        return pack(self.entries)
