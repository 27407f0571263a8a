"""Everything derived, from its one source.

    solutions/X.py                 -> tinyllm/X.py                  the skeleton
    solutions/X.py + syllabus      -> notebooks/NN_X.ipynb          stubs, badges, check cells
    solutions + tests/visible      -> tests/visible/recorded/X      recorded answers
    every text in English          -> labkit/lang/LANGUAGE/*.po     what is to be translated

Prose and figures are authored in the notebooks; the build fills in only the cells it owns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labkit.author import assembly
from labkit.author.mistakes import live_reference
from labkit.author.owned_cells import begun, filled, notebook_path, read_notebook, serialised
from labkit.author.reference import BuildError, references
from labkit.author.translation import catalogs
from labkit.author.translation.texts import with_docstrings
from labkit.checks.assembly import RECORD
from labkit.checks.compare import GRAD_TOLERANCE, TOLERANCE, close
from labkit.checks.reference import FOLDER as RECORDED
from labkit.checks.reference import LiveReference
from labkit.checks.runner import run_checks
from labkit.core import cells
from labkit.core.paths import ROOT
from labkit.core.syllabus import NOTEBOOKS, Lab
from labkit.lang import ENGLISH, speaking
from labkit.learner.check import SEED
from labkit.learner.workspace import GIVEN, STUBS, mark_of, stub_print
from labkit.sandboxed.call import Call, Given, New, Outcome
from labkit.sandboxed.wire import call_hash, outcome_fields, pack, unpack


@dataclass
class Derived:
    """One file of the build: its path, and what it should hold."""

    path: Path
    content: bytes

    @property
    def stale(self) -> bool:
        if not self.path.exists():
            return True
        before = self.path.read_bytes()
        if self.path.suffix == ".safetensors":
            return not same_record(before, self.content)
        return before != self.content


def build(check: bool = False) -> list[Path]:
    """Write what is stale and return it; with `check`, only return it."""
    torch.set_num_threads(1)  # for so small sizes the quickest, and the same on every machine
    with speaking(ENGLISH):
        stale = [derived for derived in everything() if derived.stale]
    if not check:
        for derived in stale:
            refuse_to_lose_answers(derived.path)
            derived.path.parent.mkdir(parents=True, exist_ok=True)
            derived.path.write_bytes(derived.content)
    return [derived.path for derived in stale]


def refuse_to_lose_answers(path: Path) -> None:
    """Raise if the build would overwrite a module of tinyllm/ that somebody has filled in."""
    if path.parent != ROOT / "tinyllm" or not path.exists():
        return
    blocks = cells.split(path.read_text("utf-8"))
    filled_in = [
        key for key, text in blocks if key and not cells.is_empty(text, stub_print(key))
    ]
    if filled_in:
        raise BuildError(
            f"tinyllm/{path.name} holds answers to {', '.join(filled_in)}, which the build "
            f"would overwrite: copy them away, then `git checkout tinyllm/{path.name}`"
        )


def skeletons() -> Iterator[Derived]:
    for path in references():
        lab = next((lab for lab in NOTEBOOKS if lab.module == path.stem), None)
        text = with_docstrings(skeleton(path.read_text("utf-8"), lab))
        yield Derived(ROOT / "tinyllm" / path.name, text.encode())


def stubs(written: Iterable[Derived]) -> Derived:
    """The skeletons in one file, from which `tinyllm reset` brings them back."""
    texts = {derived.path.stem: derived.content.decode() for derived in written}
    return Derived(STUBS, (json.dumps(texts, indent=1) + "\n").encode())


def everything() -> Iterator[Derived]:
    yield from written()
    yield from (record_of(lab) for lab in NOTEBOOKS if lab.exercises)


def written() -> Iterator[Derived]:
    """All but the records of the labs, which take a minute: every mistake is made."""
    yield from skeletons()
    given = {}
    for lab in NOTEBOOKS:
        path = notebook_path(lab)
        notebook = filled(lab, read_notebook(path) if path.exists() else begun(lab))
        given[lab.name] = [mark_of(c.source) for c in notebook.cells if c.cell_type == "code"]
        yield Derived(path, serialised(notebook))
    sources = {path.stem: path.read_text("utf-8") for path in references()}
    yield Derived(GIVEN, (json.dumps(given) + "\n").encode())
    record = pack(assembly.recorded(sources))
    yield Derived(RECORDED / f"{RECORD}.safetensors", record)
    yield stubs(skeletons())  # after the skeletons
    for spoken, name in product(catalogs.translated(), catalogs.templates()):
        yield Derived(catalogs.path_of(spoken, name), catalogs.updated(spoken, name))


def skeleton(source: str, lab: Lab | None) -> str:
    """The module as a learner first opens it: every exercise a stub that names itself."""
    if lab is None:
        return source
    texts = []
    for key, text in cells.split(source):
        texts.append(cells.stub(text, lab.exercise(key)) if key else text)
    return "".join(texts)


# Recorded answers


def record_of(lab: Lab) -> Derived:
    return Derived(RECORDED / f"{lab.module}.safetensors", recorded(lab))


def recorded(lab: Lab) -> bytes:
    """Run the visible checks on the reference and keep every answer, also the wrong ones."""
    live, entries = live_reference(lab), {}

    def reference(call: Call) -> Outcome:
        entries[call.key] = entry_of(call, live)
        return live.reference(call)

    for exercise in lab.exercises:
        checks = ("visible", lab.module, exercise, live.reference, reference, SEED)
        result = run_checks(*checks)
        if not result.passed:
            fault = result.broken or result.first_failure
            raise BuildError(
                f"the reference fails the visible checks of {exercise.id}: {fault}"
            )
    return pack(entries)


def entry_of(call: Call, live: LiveReference) -> dict[str, Any]:
    """What RecordedReference reads of one call."""
    right, suspects = outcome_fields(live.reference(call)), []
    packed = pack(right)
    for suspect in live.suspects(call):
        wrong = outcome_fields(suspect.outcome)
        if pack(wrong) == packed:
            wrong = None  # the reference's own outcome
        suspects.append([suspect.name, suspect.sentence, suspect.costs, wrong])
    return {"digest": call_hash(call), "reference": right, "suspects": suspects}


def same_record(before: bytes, after: bytes) -> bool:
    """Whether two records say the same: processors differ in the last bit of a float."""
    try:
        return alike(*map(spelled_out, (unpack(before), unpack(after))))
    except ValueError:
        return False


def spelled_out(record: dict[str, Any]) -> dict[str, Any]:
    """A record in which a mistake with the reference's own outcome has it, not None: to the
    last bit that is so on some processors only."""
    for entry in record.values():
        for suspect in entry.get("suspects", ()):
            suspect[-1] = suspect[-1] or entry["reference"]
    return record


def alike(old: Any, new: Any) -> bool:
    if isinstance(new, Tensor) and isinstance(old, Tensor):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            return False
        return bool(close(old, new, max(GRAD_TOLERANCE, TOLERANCE.get(new.dtype, 0))).all())
    if type(old) is not type(new):
        return False
    if isinstance(new, (New, Given)):
        return alike(vars(old), vars(new))
    if isinstance(new, dict):
        return old.keys() == new.keys() and all(alike(old[key], new[key]) for key in new)
    if isinstance(new, (list, tuple)):
        return len(old) == len(new) and all(map(alike, old, new))
    if isinstance(new, float):
        return math.isclose(old, new, rel_tol=GRAD_TOLERANCE)
    return old == new
