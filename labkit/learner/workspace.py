"""The learner's package `tinyllm` on disk: reading, saving and reloading its modules."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

import tinyllm
from labkit.checks.package import compose, modules_in, reference_modules
from labkit.course import cells
from labkit.course.answers import Cell, Notebook
from labkit.course.files import write_whole
from labkit.course.lang import tr
from labkit.course.paths import PROJECT, ROOT, TESTS
from labkit.course.syllabus import LABS, NOTEBOOKS, Exercise, Lab

LAID_OUT = ".given"  # in a learner's project: copies of the files as the course gave them
STUBS = TESTS / "visible" / "stubs.json"
if PROJECT != ROOT:  # one installation for many users, each with a package in their home
    tinyllm.__file__ = str(PROJECT / "tinyllm" / "__init__.py")
    tinyllm.__path__ = [str(PROJECT / "tinyllm")]


class MissingModule(FileNotFoundError):
    """A module of tinyllm/ is missing or cannot be saved; the message says what to do."""

    def _render_traceback_(self) -> list[str]:
        """Let IPython show the message instead of a traceback."""
        return [str(self)]


def exercise_named(error: NotImplementedError) -> str:
    """Translate the error of a stub, "Exercise 1.2: RMSNorm"."""
    id, _, name = str(error).removeprefix("Exercise ").partition(": ")
    return tr("Exercise {id}: {name}", id=id, name=name)


def folder() -> str:
    """Return the folder of the learner's package; if it is empty, write the skeletons there."""
    path = Path(tinyllm.__file__).parent
    if not any((path / f"{name}.py").exists() for name in skeletons()):
        first = (ROOT / "tinyllm" / "__init__.py").read_text("utf-8")
        try:
            for name, text in (skeletons() | {"__init__": first}).items():
                write_whole(path / f"{name}.py", text)
                write_whole(path.parent / LAID_OUT / "tinyllm" / f"{name}.py", text)
        except OSError as error:
            raise not_writable(path, error) from error
    return str(path)


def not_writable(path: Path, error: OSError) -> MissingModule:
    return MissingModule(
        tr(
            "nothing can be saved to {path}: {reason}. Make room there, or ask the person who "
            "runs this machine for a home folder that you may write to",
            path=path,
            reason=error.strerror or error,
        )
    )


def require_writable() -> None:
    """Check that the learner's package can be written. Errors: MissingModule"""
    if not os.access(folder(), os.W_OK):
        raise not_writable(Path(folder()), PermissionError(errno.EACCES, "Permission denied"))


def module_path(lab: Lab) -> Path:
    return Path(folder()) / f"{lab.module}.py"


def module_source(lab: Lab) -> str:
    if lab.module in _source_overrides:
        return _source_overrides[lab.module]
    path = module_path(lab)
    if not path.exists():
        raise MissingModule(
            tr(
                "{path} is missing: `tinyllm reset {module}` brings the empty one back",
                path=path,
                module=lab.module,
            )
        )
    return path.read_text("utf-8")


_source_overrides: dict[str, str] = {}  # {module: source}


@contextmanager
def override_source(lab: Lab, source: str) -> Iterator[None]:
    """While open, the lab's module has this source instead of its file's."""
    _source_overrides[lab.module] = source
    try:
        yield
    finally:
        del _source_overrides[lab.module]


def source_in(path: Path) -> str:
    """Return the source of a module, from override_source if it is open."""
    return _source_overrides.get(path.stem) or path.read_text("utf-8")


def short_path(path: Path) -> str:
    """The path relative to the project's folder"""
    return f"{path.parent.name}/{path.name}"


def save(
    lab: Lab, exercise: Exercise, cell: str, carried: Sequence[str] = ()
) -> tuple[str, bool]:
    """Write an exercise cell into its module; a stub never overwrites an answer.

    carried    names in the cell that come from other cells

    Returns a message, and whether the module has the cell now.
    """
    path, source = module_path(lab), module_source(lab)
    name = short_path(path)
    before = cells.block(source, exercise.id)
    if is_empty(exercise, cell):
        if is_empty(exercise, before):
            return "", False
        return tr(
            "this cell is still empty; your earlier code in {name} stays, and the notebook "
            "uses it",
            name=name,
        ), False
    after = cells.with_block(source, exercise, cell)
    if after == source:
        return tr("{name} already holds this code", name=name), True
    # the previous version, in case a cell goes wrong
    write_whole(path.with_suffix(".py~"), source)
    write_whole(path, after)
    defined = cells.defined_names(cells.without_tools(cell))
    missing = [symbol for symbol in exercise.symbols if symbol not in defined]
    if missing:
        return tr(
            "saved to {name}, but the exercise needs {missing}; this cell defines {defined}",
            name=name,
            missing=tr(", ").join(missing),
            defined=tr(", ").join(defined) or tr("nothing"),
        ), True
    along = (
        tr(", with {carried} of other cells", carried=tr(", ").join(carried)) if carried else ""
    )
    return tr(
        'saved to {name}{along}; next: check("{id}")', name=name, along=along, id=exercise.id
    ), True


def notebook_of(lab: Lab, ran: Sequence[Cell]) -> Notebook:
    """Return the executed cells as a Notebook: first what only the module has, helpers last."""
    source = module_source(lab)
    answered = [key for cell in ran for key, part in cell.parts.items()
            if not is_empty(lab.exercise(key), part)]  # fmt: skip
    before, carried = [], []
    for key, text in cells.split(source):
        carried.append(Cell(cells.carried_part(text)))
        if key and key not in answered and not is_empty(lab.exercise(key), text):
            loose = text.partition("\n")[0].endswith(cells.LOOSE)
            answer = cells.without_carried(text)
            before.append(Cell(answer, parts={} if loose else {key: answer}))
    return Notebook(lab, [*before, *ran, *carried], known_names(lab), is_empty)


def known_names(lab: Lab) -> list[str]:
    """The names that the lab's module defines or imports before anything is written"""
    return cells.given_names(skeletons()[lab.module])


def is_empty(exercise: Exercise, cell: str | None) -> bool:
    """Whether a cell has no code beyond its stub; comments do not count"""
    return cells.is_empty(cell, stub_hash(exercise.id))


@cache
def skeletons() -> dict[str, str]:
    """{module: source of its stubs}, written by `tinyllm build`"""
    return json.loads(STUBS.read_text("utf-8")) if STUBS.exists() else {}


@cache
def stub_hash(exercise_id: str) -> str | None:
    """Return the fingerprint of an exercise's stub, None if there is no such exercise."""
    found = (cells.block(source, exercise_id) for source in skeletons().values())
    return next((cells.fingerprint(stub) for stub in found if stub), None)


def load(lab: Lab, others: Sequence[str] = ()) -> ModuleType:
    """Load the lab's module from its file, and reload every lab module in memory.

    The unfinished exercises of earlier labs come from the reference.

    others    modules to import before
    """
    importlib.invalidate_caches()
    name = f"tinyllm.{lab.module}"
    fresh = name not in sys.modules
    for each in others:
        importlib.import_module(each)
    module = importlib.import_module(name)
    for other in NOTEBOOKS:
        loaded = sys.modules.get(f"tinyllm.{other.module}")
        if loaded is None or (fresh and loaded is module):
            continue
        for old in [name for name in vars(loaded) if not name.startswith("__")]:
            delattr(loaded, old)  # reload would keep names that the file no longer has
        importlib.reload(loaded)
        if other in LABS and other.number < lab.number and fill_from_reference(other, loaded):
            fresh = False  # the lab's module has imported the empty exercises
    names = {f"tinyllm.{other.module}" for other in NOTEBOOKS}
    for given in [sys.modules[each] for each in others if each not in names]:
        if names & {getattr(part, "__module__", "") for part in vars(given).values()}:
            importlib.reload(given)  # this module has imported the empty exercises
    return module


def fill_from_reference(lab: Lab, module: ModuleType) -> bool:
    """Fill the unfinished exercises of a loaded module from the reference, in memory only.

    Returns False if there are none.
    """
    if not unfinished(lab):
        return False
    source = completed_modules([lab])[lab.module]
    exec(compile(source, str(module_path(lab)), "exec", dont_inherit=True), vars(module))
    return True


def completed_modules(labs: Sequence[Lab]) -> dict[str, str]:
    """Return the labs' modules with the reference's code in unfinished exercises."""
    modules, reference = {lab.module: module_source(lab) for lab in labs}, reference_modules()
    blocks = {
        exercise.id: cells.block(reference[lab.module], exercise.id) or ""
        for lab in labs
        for exercise in unfinished(lab)
    }
    return compose(modules, blocks)


def unfinished(lab: Lab) -> list[Exercise]:
    """The exercises that are still empty"""
    return [e for e in lab.exercises if is_empty(e, cells.block(module_source(lab), e.id))]


def describe_authors(labs: Iterable[Lab]) -> str:
    """Describe who wrote the labs' parts: "rmsnorm: yours; rope: stands in"."""
    parts = []
    for lab in labs:
        core = [exercise for exercise in lab.exercises if exercise.core]
        empty = [exercise for exercise in unfinished(lab) if exercise.core]
        state = tr("stands in") if empty else tr("yours")
        if 0 < len(empty) < len(core):
            names = tr(", ").join(exercise.id for exercise in empty)
            state = tr("yours, except {names}", names=names)
        parts.append(lab.module + tr(": ") + state)
    return tr("; ").join(parts)


def learner_modules() -> dict[str, str]:
    """{module: source} of the learner's package"""
    return modules_in(Path(folder()))


def judged_package(lab: Lab) -> dict[str, str]:
    """Return the package in which a lab is checked: its own module among the reference's.

    In an edition without a reference, all modules are the learner's.
    """
    return {**learner_modules(), **reference_modules(), lab.module: module_source(lab)}


def used_by(lab: Lab, exercise: Exercise) -> list[Exercise]:
    """The other exercises of the lab that the learner's code for this one uses"""
    used, new = {exercise}, [exercise]
    while new:
        tree = cells.parsed(cells.block(module_source(lab), new.pop().id) or "")
        names = cells.used_names(tree) if tree else set()
        found = {other for other in lab.exercises if names & {*other.symbols}} - used
        used |= found
        new += found
    return [other for other in lab.exercises if other in used and other is not exercise]


def labs_used(lab: Lab) -> list[Lab]:
    """The earlier labs from which this lab's module imports"""
    modules = set(re.findall(r"^from \.(\w+) import", module_source(lab), re.MULTILINE))
    return [other for other in LABS if other.number < lab.number and other.module in modules]
