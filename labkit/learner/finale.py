"""What lab 09 needs: the model to load, and the memory that loading takes."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import psutil

from labkit.course.lang import tr
from labkit.course.report import clean
from labkit.course.sealed import NotReady
from labkit.learner.models import your_code as your_code
from labkit.model import checkpoint, hub
from labkit.model.tokenizer import Tokenizer

REAL = "Qwen/Qwen3-0.6B"
VARIABLE = "TINYLLM_MODEL"
SPARE = 0.8  # share of the free memory that may be used


def choose(name: str | None, code: SimpleNamespace) -> Path:
    """Return the folder of the model: `name`, else $TINYLLM_MODEL, else the one that lab 08
    trained, else a Qwen3-0.6B in the hub's cache, else the one that ships.

    If a model cannot be loaded with `code`, a line says why and the one that ships is taken.
    """
    trained = "mine" if hub.trained_folder().exists() else None
    wanted = name or os.environ.get(VARIABLE) or trained or str(hub.cached(REAL) or "")
    if wanted:
        try:
            folder = hub.resolve(wanted)
            checkpoint.load(folder, code), Tokenizer(folder)
        except Exception as error:  # code of a learner may fail in any way
            problem = clean(str(error))
            print(tr("{wanted} cannot be used: {error}", wanted=wanted, error=problem))
        else:
            where = "" if str(folder) == wanted else f", in {folder}"
            print(tr("The model is {wanted}{where}", wanted=wanted, where=where))
            return folder
    folder = hub.resolve()
    print(tr("The model is {name}, which ships with the course.", name=folder.name))
    return folder


class Memory:
    """Measures the growth of this process in a `with` block, in bytes: `grown`.

    Only resident memory counts: of a mapped file, the part that was touched.
    """

    def __enter__(self) -> Memory:
        self.before = psutil.Process().memory_info().rss
        return self

    def __exit__(self, *_) -> None:
        self.grown = psutil.Process().memory_info().rss - self.before


def require_memory(needed: int) -> None:
    """Check that this machine has room for some bytes. Errors: NotReady"""
    free = psutil.virtual_memory().available
    if needed > SPARE * free:
        sizes = {"needed": needed / 1e9, "free": free / 1e9}
        raise NotReady(tr("{needed:.1f} GB are needed, {free:.1f} GB are free", **sizes))
