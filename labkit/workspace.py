"""The learner's package on disk: where an exercise lives, saving a cell, reloading it."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import tinyllm
from labkit import cells
from labkit.syllabus import LABS, Exercise, Lab

ROOT = Path(__file__).resolve().parents[1]
HINTS = ROOT / "solutions" / "hints"
SOLUTIONS = ROOT / "solutions"


class MissingModule(FileNotFoundError):
    """A module of tinyllm/ is gone; the message says how to get it back."""


@dataclass(frozen=True)
class Saved:
    """What became of a cell that was run: `text` says it, `kept` whether the file changed."""

    text: str
    kept: bool


def module_path(lab: Lab) -> Path:
    return Path(tinyllm.__file__).parent / f"{lab.module}.py"


def module_source(lab: Lab) -> str:
    path = module_path(lab)
    if not path.exists():
        backup = path.with_suffix(".py~")
        last = f"; {shown(backup)} holds what you had before your last change" * backup.exists()
        raise MissingModule(
            f"{path} is missing: `git checkout {shown(path)}` brings the empty one back{last}"
        )
    return path.read_text("utf-8")


def shown(path: Path) -> str:
    """The path as a person would type it from the project's folder."""
    return f"{path.parent.name}/{path.name}"


def save(lab: Lab, exercise: Exercise, cell: str) -> Saved:
    """Write an exercise cell into its module; a stub never overwrites an answer."""
    path, source = module_path(lab), module_source(lab)
    before = cells.block(source, exercise.id)
    if is_stub(lab, exercise, cell):
        if is_stub(lab, exercise, before):
            return Saved("", kept=False)
        text = f"this cell is still empty; your earlier code in {shown(path)} stays as it is"
        return Saved(text, kept=False)
    after = cells.with_block(source, exercise, cell)
    if after == source:
        return Saved(f"{shown(path)} already holds this code", kept=True)
    write_whole(path.with_suffix(".py~"), source)  # one step back, should a cell go wrong
    write_whole(path, after)
    defined = cells.defined_names(cells.tidied(cell))
    missing = [name for name in exercise.symbols if name not in defined]
    if missing:
        found = ", ".join(defined) or "nothing"
        text = f"saved to {shown(path)}, but the exercise needs {', '.join(missing)}"
        return Saved(f"{text}; this cell defines {found}", kept=True)
    return Saved(f'saved to {shown(path)}; next: check("{exercise.id}")', kept=True)


def is_stub(lab: Lab, exercise: Exercise, cell: str | None) -> bool:
    """True while nothing was written into the cell, whatever comments were added."""
    if cell is None or not cells.plain(cell).strip():
        return True
    from labkit.recorded import Recorded

    return cells.fingerprint(cell) == Recorded(lab.module).stubs[exercise.id]


def write_whole(path: Path, text: str) -> None:
    """Write so that a crash leaves the old file or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)


def load(lab: Lab) -> ModuleType:
    """The lab's module as the file has it now, and with it every lab module in memory."""
    importlib.invalidate_caches()
    name = f"tinyllm.{lab.module}"
    fresh = name not in sys.modules
    module = importlib.import_module(name)
    for other in LABS:
        loaded = sys.modules.get(f"tinyllm.{other.module}")
        if loaded is not None and not (fresh and loaded is module):
            for old in [name for name in vars(loaded) if not name.startswith("__")]:
                delattr(loaded, old)  # reload alone would keep what the file no longer has
            importlib.reload(loaded)
    return module
