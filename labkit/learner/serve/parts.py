"""The parts of the engine: the learner's of lab 15, or the reference if those fail a trial."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch import nn

from labkit.course.lang import tr
from labkit.course.syllabus import find_lab
from labkit.learner import models, workspace
from labkit.sandbox.inside.importer import PACKAGE, imported

TRIALS = ((0, 9), (5, 12), (0, 9))  # first token and length of each prompt


def engine_parts(model: nn.Module, report: Callable[[str], object]) -> SimpleNamespace:
    """Return the parts of an engine, tried on the model before a client can use them.

    report    called with a line that says who wrote them
    """
    reference, lab = _parts("solutions"), find_lab("server")
    if not models.written(lab):
        report(tr("The course's engine runs: lab 15 is empty."))
        return reference
    package = workspace.learner_modules() | workspace.reference_modules()
    try:
        package |= workspace.completed_modules([*models.DECODER_LABS, lab])
        with imported(package, workspace.folder()):
            parts = _parts(PACKAGE)
        wrong = _trial(parts, model) != _trial(reference, model)
        problem = tr("its answers are not those of the course's engine") if wrong else ""
    except Exception as error:  # a learner's code may raise anything
        problem = models.error_text(error)
    if problem:
        report(tr("Your engine cannot run yet: {problem}.", problem=problem))
        runs = tr("The course's engine runs instead; `tinyllm check 15.1` shows what is wrong.")
        report(runs)
        return reference
    report(tr("Engine: {labs}.", labs=workspace.describe_authors([lab])))
    return parts


def _parts(package: str) -> SimpleNamespace:
    names = vars(importlib.import_module(f"{package}.server"))
    return SimpleNamespace(**names, Engine=importlib.import_module(f"{package}.engine").Engine)


def _trial(parts: Any, model: nn.Module) -> list[Any]:
    """Return answers with chunks, shared blocks, drafts, a grammar, and too few blocks."""
    engine = parts.Engine(model, num_blocks=8, block_size=4, budget=5, max_running=3, drafts=2)
    requests = [parts.Request(number, list(range(3 + first, 3 + first + size)), 12)
                for number, (first, size) in enumerate(TRIALS)]  # fmt: skip
    texts = [bytes([number % 128]) for number in range(model.config.vocab_size)]
    requests[1].mask = parts.TokenMask(parts.json_machine({"a": "string"}), texts)
    for request in requests:
        engine.submit(request)
    for _ in range(500):
        if engine.is_busy:
            engine.step()
    text = parts.StopText(["ab"])
    return [*(request.output for request in requests), text.add("xa") + text.add("b")]
