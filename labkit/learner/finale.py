"""What lab 09 needs: who wrote which part, which model to load, how much memory it takes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import SimpleNamespace
from typing import Any

import psutil

from labkit.course.lang import tr
from labkit.course.report import clean
from labkit.course.sealed import NotReady
from labkit.learner import workspace
from labkit.learner.check import check_exercise
from labkit.learner.models import MODEL_LABS, your_code
from labkit.learner.session import UNMADE
from labkit.model import checkpoint, hub
from labkit.model.chat.stream import ChatError
from labkit.model.tokenizer import Tokenizer
from labkit.model.values import CheckpointError
from labkit.model.weights import stored_tensors

__all__ = ["Memory", "choose", "room_for", "when_ready", "whose_parts", "your_code"]

REAL = "Qwen/Qwen3-0.6B"
VARIABLE = "TINYLLM_MODEL"


@contextmanager
def when_ready() -> Iterator[None]:
    """If a model, memory or the name of a skipped cell is missing, print why and go on."""
    try:
        yield
    except NameError as error:
        if not _in_one_file(error.__traceback__.tb_next):  # the first frame is this one
            raise
        print(tr(UNMADE, name=error.name))
    except (NotReady, CheckpointError, ChatError) as error:
        print(tr("left out: {error}", error=error))


def _in_one_file(trace: Any) -> bool:
    """Whether the cell itself raised, and no code that it called."""
    files = [frame.f_code.co_filename for frame, _ in walk_tb(trace)]
    return files[0] == files[-1]


# Whose code


def whose_parts() -> None:
    """Print which core exercises pass their checks, which do not, and which are borrowed."""
    passing, wrong, borrowed = tr("yours"), tr("yours, not right yet"), tr("borrowed")
    found: dict[str, list[str]] = {passing: [], wrong: [], borrowed: []}
    empty = [exercise for lab in MODEL_LABS for exercise in workspace.unfinished(lab)]
    pairs = [(lab, e) for lab in MODEL_LABS for e in lab.exercises if e.core]
    for lab, exercise in pairs:
        if exercise in empty:
            state = borrowed
        elif check_exercise(lab, exercise, "", quiet=True)[0].passed:
            state = passing
        else:
            state = wrong
        found[state].append(f"{exercise.id} {exercise.title}")
    for state, titles in found.items():
        if titles:
            print(
                tr(
                    "{state} ({count}): {names}",
                    state=state,
                    count=len(titles),
                    names=tr(", ").join(titles),
                )
            )


# Which model


def choose(name: str | None, code: SimpleNamespace) -> Path:
    """The folder of the model: `name`, else $TINYLLM_MODEL, else the one that lab 08 trained,
    else a Qwen3-0.6B in the hub's cache, else the one that ships. A model that cannot be used
    is skipped with a printed reason."""
    trained = "mine" if hub.trained_folder().exists() else None
    wanted = name or os.environ.get(VARIABLE) or trained or str(hub.cached(REAL) or "")
    if wanted:
        try:
            folder = _usable(hub.resolve(wanted), code)
        except Exception as error:  # a checkpoint, or a learner's code, may fail in any way
            kind = "" if isinstance(error, CheckpointError) else f"{type(error).__name__}: "
            print(
                tr(
                    "{wanted} cannot be used: {kind}{error}",
                    wanted=wanted,
                    kind=kind,
                    error=clean(str(error)),
                )
            )
        else:
            where = "" if str(folder) == wanted else f", in {folder}"
            print(tr("The model is {wanted}{where}", wanted=wanted, where=where))
            return folder
    folder = hub.resolve()
    print(tr("The model is {name}, which ships with the course.", name=folder.name))
    return folder


def _usable(folder: Path, code: SimpleNamespace) -> Path:
    """Read everything but the numbers. Errors: CheckpointError for a model that does not fit"""
    tokens = Tokenizer(folder).library.get_vocab_size()
    stored_tensors(folder)
    config = checkpoint.load(folder, code).config
    if tokens > config.vocab_size:
        raise CheckpointError(
            "its tokenizer has {tokens} tokens, the model {vocab_size}: they do not "
            "belong together",
            tokens=tokens,
            vocab_size=config.vocab_size,
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
        raise NotReady(
            tr(
                "{needed:.1f} GB are needed, {free:.1f} GB are free",
                needed=needed / 1000000000.0,
                free=free / 1000000000.0,
            )
        )
