"""What the last notebook stands on: whose code runs, which model it loads, what that takes."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import SimpleNamespace
from typing import Any

import psutil
import torch
from torch import Tensor

from labkit.core.syllabus import LABS, Exercise, Lab
from labkit.learner import workspace
from labkit.learner.check import check_exercise
from labkit.learner.models import error_text
from labkit.model import checkpoint, hub
from labkit.model.chat.stream import ChatError
from labkit.model.tokenizer import Tokenizer
from labkit.model.weights import CheckpointError, stored_tensors
from labkit.sandboxed.importer import PACKAGE, imported

REAL = "Qwen/Qwen3-0.6B"
VARIABLE = "TINYLLM_MODEL"
PARTS = ("Qwen3Config", "Qwen3ForCausalLM", "count_parameters", "KVCache", "generate")
MODEL_LABS = [lab for lab in LABS if lab.number <= "07"]
CLOSE = 0.01  # logits of two right models in float32; a wrong one is further away


class NotReady(Exception):
    """Something a cell needs and that is not here; the message says what."""


@contextmanager
def when_ready() -> Iterator[None]:
    """Ends its block with one printed line where it lacks a model, room, or what a block
    above it had to leave out. All other errors pass."""
    try:
        yield
    except NameError as error:
        if not _in_one_file(error.__traceback__.tb_next):  # the first frame is this one
            raise
        print(f"left out: {error}; the cell that makes it was left out or not run")
    except (NotReady, CheckpointError, ChatError) as error:
        print(f"left out: {error}")


def _in_one_file(trace: Any) -> bool:
    """Whether the cell itself raised, and no code that it called."""
    files = [frame.f_code.co_filename for frame, _ in walk_tb(trace)]
    return files[0] == files[-1]


# Whose code


def your_code() -> SimpleNamespace:
    """What the notebook runs: your package, made whole by the reference where it is empty.

    Prints whose it is. The reference takes over where your model raises an error or
    gives other logits; without a reference (a learners' edition) each part raises NotReady.
    """
    here, exercises = _reference_is_here(), core_exercises()
    empty = [f"{each.id} {each.title}" for _, each, is_empty in exercises if is_empty]
    total = len(exercises)
    print(f"{total - len(empty)} of the {total} core exercises of labs 01 to 07 are written.")
    try:
        code = _yours(here)
    except Exception as error:  # a learner's code may fail in any way
        known = isinstance(error, NotReady)
        problem = str(error) if known else f"it raises {error_text(error)}"
        print(f"Your model does not run yet: {problem}. `tinyllm status` shows where.")
        print("The course's own code runs instead." if here else "Its cells are left out.")
        return _reference() if here else _refusing(problem)
    listed = ", ".join(empty) if len(empty) < total else "all"
    stands_in = f"The course's own code stands in for {listed}."
    print(stands_in if empty else "The model is yours.")
    return code


def core_exercises() -> list[tuple[Lab, Exercise, bool]]:
    """Those of the labs on the model, and whether they are still empty."""
    empty = [exercise for lab in MODEL_LABS for exercise in workspace.unfinished(lab)]
    return [(lab, e, e in empty) for lab in MODEL_LABS for e in lab.exercises if e.core]


def _yours(reference: bool) -> SimpleNamespace:
    """tinyllm as its files are now, once it has run; the reference, if there is one, plays what
    is empty, and its logits are the right ones."""
    package = workspace.own_package()
    if reference:
        package |= workspace.completed_modules(MODEL_LABS)
    with imported(package, workspace.folder()):
        code = _namespace(importlib.import_module(PACKAGE), "yours")
    logits = _trial(code)
    if reference:
        pairs = zip(logits, _trial(_reference()), strict=True)
        gap = max(float((a - b).abs().max()) for a, b in pairs)
        if not gap < CLOSE:  # nan is not
            raise NotReady(f"its logits are {gap:.2g} away from the reference's")
    return code


def _reference_is_here() -> bool:
    return all(workspace.reference_path(lab).exists() for lab in MODEL_LABS)


def _reference() -> SimpleNamespace:
    return _namespace(importlib.import_module("solutions"), "the course's")


def _namespace(package: Any, whose: str) -> SimpleNamespace:
    return SimpleNamespace(
        whose=whose, **{name: checkpoint.part(package, name) for name in PARTS}
    )


def _refusing(problem: str) -> SimpleNamespace:
    def refuse(*_, **__):
        raise NotReady(f"your model does not run yet: {problem}")

    config = importlib.import_module("tinyllm.config").Qwen3Config  # given code
    parts = {**dict.fromkeys(PARTS, refuse), "Qwen3Config": config}
    return SimpleNamespace(whose="nobody's", **parts)


@torch.no_grad()
def _trial(code: SimpleNamespace) -> list[Tensor]:
    """Logits of the shipped models for one text, and a few tokens written with the cache."""
    found = []
    for folder in hub.SHIPPED.values():
        model = checkpoint.load(folder, code, torch.float32)
        input_ids = torch.arange(3, 40)[None]  # (1, T)
        found.append(model(input_ids))
        written = code.generate(model, input_ids, max_new_tokens=3)
        found.append(model(written)[:, -1])
        code.count_parameters(model.config)
    return found


def whose_parts() -> None:
    """Print which core exercises pass their checks, which do not, and which are borrowed."""
    borrowed = "borrowed" if _reference_is_here() else "not written yet"
    found: dict[str, list[str]] = {"yours": [], "yours, not right yet": [], borrowed: []}
    for lab, exercise, is_empty in core_exercises():
        if is_empty:
            state = borrowed
        elif check_exercise(lab, exercise, "", quiet=True)[0].passed:
            state = "yours"
        else:
            state = "yours, not right yet"
        found[state].append(f"{exercise.id} {exercise.title}")
    for state, titles in found.items():
        if titles:
            print(f"{state} ({len(titles)}): {', '.join(titles)}")


# Which model


def choose(name: str | None, code: SimpleNamespace) -> Path:
    """The folder of the model: `name`, else $TINYLLM_MODEL, else a Qwen3-0.6B that was
    fetched before, else the one that ships. What cannot be used is told in a sentence."""
    cached = hub.cached(REAL)
    wanted = name or os.environ.get(VARIABLE) or (cached and str(cached))
    if wanted:
        try:
            folder = _usable(hub.resolve(wanted), code)
        except Exception as error:  # a checkpoint, or a learner's code, may fail in any way
            kind = "" if isinstance(error, CheckpointError) else f"{type(error).__name__}: "
            print(f"{wanted} cannot be used: {kind}{error}")
        else:
            where = "" if str(folder) == wanted else f", in {folder}"
            print(f"The model is {wanted}{where}")
            return folder
    folder = hub.resolve()
    print(f"The model is {folder.name}, which ships with the course.")
    return folder


def _usable(folder: Path, code: SimpleNamespace) -> Path:
    """Read everything but the numbers, so that what is wrong is said now."""
    tokens = Tokenizer(folder).library.get_vocab_size()
    stored_tensors(folder)
    try:
        config = checkpoint.load(folder, code).config
    except NotReady:
        return folder
    if tokens > config.vocab_size:
        raise CheckpointError(
            f"its tokenizer has {tokens} tokens, the model {config.vocab_size}: they do not "
            "belong together"
        )
    return folder


# What it takes


class Memory:
    """How far this process grew in a `with` block, in bytes: at its end, and at most.

    What counts is what is resident: of a file that is mapped, the part that was touched.
    """

    def __enter__(self) -> Memory:
        self.before, self.highest, self._over = resident(), 0, threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._watcher.join()
        self.grown = resident() - self.before
        self.highest = max(self.highest, self.grown)

    def _watch(self) -> None:
        while not self._over.wait(0.001):
            self.highest = max(self.highest, resident() - self.before)


def resident() -> int:
    return psutil.Process().memory_info().rss


def room_for(needed: int) -> None:
    """Raise NotReady unless so many bytes are free on this machine, and some to spare."""
    free = psutil.virtual_memory().available
    if needed > 0.8 * free:
        raise NotReady(f"{needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
