"""Derive files from their only source.

    solutions/X.py                 -> tinyllm/X.py                  the skeleton
    solutions/X.py + syllabus      -> notebooks/NN_X.ipynb          stubs, badges, check cells
    every text in English          -> course/lang/LANGUAGE/*.po       what is to be translated

Prose and figures are authored in the notebooks; the build fills in only the cells it owns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from labkit.author.owned_cells import filled, notebook_path, read_or_begin, serialised
from labkit.author.reference import BuildError, references
from labkit.author.translation import catalogs
from labkit.author.translation.texts import with_docstrings
from labkit.course import cells
from labkit.course.cells import GIVEN, cell_hash
from labkit.course.lang import ENGLISH, language, languages, speaking
from labkit.course.paths import ROOT
from labkit.course.syllabus import NOTEBOOKS, Lab
from labkit.learner.workspace import STUBS, stub_hash


@dataclass
class Derived:
    """One file of the build: its path and its right content."""

    path: Path
    content: bytes

    @property
    def stale(self) -> bool:
        return not self.path.exists() or self.path.read_bytes() != self.content


def build(check: bool = False) -> list[Path]:
    """Write the stale files and return their paths; with `check`, only return them."""
    with speaking(ENGLISH):
        stale = [derived for derived in everything() if derived.stale]
    if not check:
        for derived in stale:
            refuse_to_lose_answers(derived.path)
            derived.path.parent.mkdir(parents=True, exist_ok=True)
            derived.path.write_bytes(derived.content)
    return [derived.path for derived in stale]


def refuse_to_lose_answers(path: Path) -> None:
    """Raise if the build would overwrite a module of tinyllm/ with answers in it."""
    if path.parent != ROOT / "tinyllm" or not path.exists():
        return
    blocks = cells.split(path.read_text("utf-8"))
    filled_in = [
        key for key, text in blocks if key and not cells.is_empty(text, stub_hash(key))
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
    """Return the skeletons in one file, from which `tinyllm reset` brings them back."""
    texts = {derived.path.stem: derived.content.decode() for derived in written}
    return Derived(STUBS, (json.dumps(texts, indent=1) + "\n").encode())


def everything() -> Iterator[Derived]:
    yield from skeletons()
    given = {}
    for lab in NOTEBOOKS:
        code = []
        for name in languages():
            with speaking(name):
                notebook = filled(lab, read_or_begin(lab))
            code += [cell.source for cell in notebook.cells if cell.cell_type == "code"]
            if name == language():
                yield Derived(notebook_path(lab), serialised(notebook))
        given[lab.name] = [*dict.fromkeys(map(cell_hash, code))]
    yield Derived(GIVEN, (json.dumps(given) + "\n").encode())
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
