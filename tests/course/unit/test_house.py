"""The structure of the packages: imports between rooms, sizes of folders, the budget, names."""

import ast
import sys
from graphlib import TopologicalSorter

import nbformat
import pytest

from labkit.course.paths import LABKIT, ROOT

# The packages that this test reads: rooms of labkit, and two that stand beside it
PACKAGES = (LABKIT, ROOT / "storyworld", ROOT / "training")
# A room imports itself and rooms on the floors below its own, which are listed before it.
FLOORS = ("storyworld", "course", "sandbox", "checks", "model", "learner", "look",
          "author", "grading", "site", "training", "cli", "__main__")  # fmt: skip
FLOOR = {room: number for number, rooms in enumerate(FLOORS, 1) for room in rooms.split()}
FLOOR[""] = 0  # labkit itself, which has the version
LEARNERS_HAVE = {"storyworld", "course", "sandbox", "checks", "model", "learner", "look",
                 "training", "cli", "__main__"}  # fmt: skip
# Packages of the extras of pyproject.toml, which a learner does not install
EXTRAS = {"nbgrader", "nbconvert", "sqlalchemy", "bleach", "distributed", "transformers"}
EXTRAS |= {"sphinx", "docutils", "latex2mathml", "nbclient"}
# Packages that may be used in addition to the standard library and the package itself
TENSORS = {"torch", "numpy"}
USE = {
    "labkit.sandbox.inside": {*TENSORS, "safetensors"},
    "storyworld": {*TENSORS, "tomli"},
    "solutions": TENSORS,
    "tinyllm": TENSORS,
}


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {name_of(path): path for package in PACKAGES for path in package.rglob("*.py")}


def imported(source):
    """The dotted names that a source imports; `from a import b` is a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def arrows(name):
    """The modules of PACKAGES that a module imports"""
    for target in imported(FILES[name].read_text()):
        if target.partition(".")[0] in {package.name for package in PACKAGES}:
            yield target if target in FILES else target.rpartition(".")[0]


def room(name):
    """The room of labkit in which a module lies, or the package beside labkit."""
    package, *rest = name.split(".")
    return "".join(rest[:1]) if package == LABKIT.name else package


def test_arrows_run_down_the_house():
    assert {room(name) for name in FILES} == set(FLOOR)
    found = {
        (name, target)
        for name in FILES
        for target in arrows(name)
        if room(target) != room(name) and FLOOR[room(target)] >= FLOOR[room(name)]
    }
    assert found == set()


# Folders of one room that import each other. nbgrader's hooks run our grading, and teachers'
# nbgrader_config.py have their address; the rest of these pairs follows from that.
LEAN_ON_EACH_OTHER = {
    ("author", "owned_cells", "translation"),
    ("checks", "mistakes", "reasons"),
    ("grading", "class_report", "nbgrader"),
    ("grading", "class_report", "run"),
    ("grading", "nbgrader", "run"),
    ("model", "chat", "tokenizer"),
}


def test_folders_of_a_room_lean_one_way():
    def place(name):
        """(room, its folder or file), of a module in labkit."""
        return tuple(name.split(".")[1:3])

    found = {
        (place(name), place(target))
        for name in FILES
        for target in arrows(name)
        if name.startswith("labkit.") and place(name)[:1] == place(target)[:1]
    }
    pairs = {(a[0], *sorted((a[1], b[1]))) for a, b in found
             if a != b and (b, a) in found and len(a) == len(b) == 2}  # fmt: skip
    assert pairs == LEAN_ON_EACH_OTHER


def test_no_files_import_each_other_in_a_circle():
    graph = {name: set(arrows(name)) for name in FILES}
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle


@pytest.mark.parametrize("package", USE)
def test_what_runs_in_the_sandbox_and_the_model_need_little(package):
    allowed = USE[package] | set(sys.stdlib_module_names)
    for path in (ROOT / package.replace(".", "/")).rglob("*.py"):
        optional = {"triton"} if path.name in ("triton_tools.py", "guard.py") else set()
        for name in imported(path.read_text()):
            assert name.startswith(f"{package}.") or name.split(".")[0] in allowed | optional, (
                path
            )


def what_a_learner_has():
    for name, path in FILES.items():
        if room(name) in LEARNERS_HAVE:
            yield name, path.read_text()
    for path in (ROOT / "tests" / "visible").glob("*.py"):
        yield name_of(path), path.read_text()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                yield f"{path.name} {cell.id}", cell.source


def test_what_a_learner_has_never_imports_the_answers_or_the_instructors_rooms():
    barred = {f"labkit.{room}" for room in FLOOR if room not in LEARNERS_HAVE}
    for where, source in what_a_learner_has():
        for name in imported(source):
            assert name.split(".")[0] not in {"solutions", *EXTRAS}, where
            assert ".".join(name.split(".")[:2]) not in barred, where


def test_what_stands_in_for_the_fast_path_has_all_that_a_learners_rooms_ask_of_it():
    stand_in = ast.parse((LABKIT / "author" / "learners" / "fast.py").read_text())
    there = {node.name for node in stand_in.body if isinstance(node, ast.FunctionDef)}
    asked = {
        name.rpartition(".")[2]
        for _, source in what_a_learner_has()
        for name in imported(source)
        if name.startswith("labkit.model.fast.")
    }
    assert {"accelerate"} <= asked <= there


def test_no_folder_is_a_drawer():
    for folder in [
        path for top in PACKAGES for path in (top, *top.rglob("*")) if path.is_dir()
    ]:
        assert len(list(folder.glob("[!_]*.py"))) <= 10, folder


# The most lines of Python and of mistakes, in round numbers
BUDGET = {
    "labkit": 29_300,
    "storyworld training": 2_900,
    "solutions/mistakes": 7_650,
    "tests/visible tests/hidden": 9_000,
    "tests/course": 24_000,
}


@pytest.mark.release
@pytest.mark.parametrize("places", BUDGET)
def test_the_house_keeps_to_its_budget(places):
    roots = [ROOT / place for place in places.split()]
    paths = [path for root in roots for path in root.rglob("*")]
    texts = [path.read_text("utf-8") for path in paths if path.suffix in (".py", ".diff")]
    lines = sum(len(text.splitlines()) for text in texts)
    assert 0 < lines <= BUDGET[places], (
        f"{places}: {lines:,} lines, the budget is {BUDGET[places]:,}. Look for lines that "
        "the change made unnecessary. If all of them earn their place, raise BUDGET here by a "
        "round number and say in the commit what the lines buy."
    )


# names that a thing must not have
PRONOUNS = {
    "own", "ours", "theirs", "mine", "yours", "whose", "here", "there", "all_",
    "kept", "held", "told", "heard", "executed", "wrapped",
}  # fmt: skip
UNREAD = {LABKIT / "grading" / name for name in ("collect", "export")}


def names_in(tree):
    """Every name that a module defines: values, parameters, functions, classes, attributes"""
    for node in ast.walk(tree):
        match node:
            case ast.Name(name, ast.Store()) | ast.Attribute(_, name, ast.Store()):
                yield name
            case ast.arg(name) | ast.FunctionDef(name) | ast.ClassDef(name):
                yield name


def test_no_thing_is_called_by_a_pronoun_or_participle():
    for path in (path for path in LABKIT.rglob("*.py") if path.parent not in UNREAD):
        names = {path.stem, *names_in(ast.parse(path.read_text("utf-8")))}
        assert not PRONOUNS & {name.lstrip("_").lower() for name in names}, path
