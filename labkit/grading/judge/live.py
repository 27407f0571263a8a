"""The live oracle: the reference package and the listed mistakes, performed on demand."""

from __future__ import annotations

from importlib import import_module

from labkit.checks.runner import KnownMistake
from labkit.core.syllabus import Lab
from labkit.sandboxed.call import Call, Outcome, perform
from labkit.sandboxed.wire import fingerprint
from solutions.mistakes import Mistake, mistakes_of


class LiveReference:
    """Right answers from `solutions`, wrong ones from `solutions.mistakes`.

    Outcomes are kept by the fingerprint, so that a class that meets the same calls does not
    pay for them again.
    """

    def __init__(self, lab: Lab):
        self.namespace = vars(import_module(f"solutions.{lab.module}"))
        self.mistakes = mistakes_of(lab.module)
        self.kept: dict[bytes, Outcome] = {}
        self.kept_suspects: dict[bytes, list[KnownMistake]] = {}

    def reference(self, call: Call) -> Outcome:
        key = fingerprint(call)
        if key not in self.kept:
            self.kept[key] = perform(call, self.namespace)
        return self.kept[key]

    def suspects(self, call: Call) -> list[KnownMistake]:
        key = fingerprint(call)
        if key not in self.kept_suspects:
            self.kept_suspects[key] = [
                KnownMistake(m.name, m.sentence, m.costs, self.perform_mistake(call, m))
                for m in self.mistakes
                if m.symbol == call.symbol
            ]
        return self.kept_suspects[key]

    def perform_mistake(self, call: Call, mistake: Mistake) -> Outcome:
        outcome = perform(call, {**self.namespace, mistake.symbol: mistake.code})
        if outcome.failure:  # the learner's class bears the exercise's name, and so do errors
            outcome.failure.text = outcome.failure.text.replace(mistake.name, mistake.symbol)
        return outcome
