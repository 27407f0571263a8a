"""The learners' edition: its files, the secrets that it must not contain, a learner's first
hour."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from itertools import pairwise

import nbformat
import pytest
from typer.testing import CliRunner

from labkit.author import edition as editions
from labkit.author.build import skeletons
from labkit.author.owned_cells import written_answer
from labkit.author.reference import reference_block, references
from labkit.cli import app
from labkit.course import cells, sealed
from labkit.course.paths import ROOT, SOLUTIONS
from labkit.course.syllabus import LABS, NOTEBOOKS, find_exercise
from labkit.learner.hints import sections

LONG = 20  # shorter lines occur in any code
# without the editable install, which would import the repository
AWAY = """import sys; sys.path.insert(0, '.')
sys.meta_path = [each for each in sys.meta_path if "editable" not in repr(each).lower()]
"""


@pytest.fixture(scope="module")
def folder(built):
    return built[0]


def answer(exercise_id):
    return cells.plain(reference_block(*find_exercise(exercise_id)))


def write(folder, exercise_id, code):
    lab, exercise = find_exercise(exercise_id)
    module = folder / "tinyllm" / f"{lab.module}.py"
    module.write_text(cells.with_block(module.read_text(), exercise, code))


def files_in(folder):
    """{name: content} of all files but git's"""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return {name: data for name, data in contents.items() if not name.startswith(".git/")}


def git(folder, *words):
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


# The files of the edition


def secret_lines():
    """Lines of the reference's answers that are in no skeleton, and pairs of adjacent ones."""
    given = {line.strip() for derived in skeletons() for line in text_lines(derived.content)}
    lines, pairs = set(), set()
    for path in references():
        for region in cells.REGION.finditer(path.read_text()):
            new = [line for line in text_lines(region["body"].encode()) if line not in given]
            lines.update(line for line in new if len(line) >= LONG)
            pairs.update(pair for pair in pairwise(new) if min(map(len, pair)) >= LONG)
    return lines, pairs


def text_lines(data):
    """The lines of code in a file, which may be a notebook"""
    text = data.decode("utf-8", "replace").replace("\\n", "\n").replace('\\"', '"')
    lines = [line.partition("  #")[0].strip(' ",') for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


SEALED = {f"solutions/{lab.module}.py" for lab in NOTEBOOKS if lab.exercises}


def test_no_file_holds_an_answer(built):
    folder, packed = built
    lines, pairs = secret_lines()
    assert len(lines) > 200 and len(pairs) > 100
    files = files_in(folder)
    with zipfile.ZipFile(packed) as archive:
        assert all(archive.read(f"course/{name}") == data for name, data in files.items())
    for name, data in files.items():
        if name in SEALED:
            assert not [line for line in lines if line.encode() in data], name
        quoted = pairs.intersection(pairwise(text_lines(data)))
        # only bug hunts may quote a line
        assert len(quoted) <= name.endswith(".ipynb"), (name, quoted)


def test_only_what_is_the_learners_goes_along(folder):
    names = set(files_in(folder))
    wrong = r"labkit/(author|grading|site)/|tests/(hidden|course)|course/"
    assert not [name for name in names if re.match(wrong, name) or name.endswith((".pyc", "~"))]
    found = {name for name in names if name.startswith("solutions/")}
    expected = {f"solutions/hints/{lab.module}.md" for lab in NOTEBOOKS if lab.exercises}
    expected |= {f"solutions/answers/{lab.module}.md" for lab in LABS} | SEALED
    given = (
        "__init__",
        "byte_level",
        "config",
        "engine",
        "hybrid_model",
        "ranks",
        "triton_tools",
    )
    expected |= {f"solutions/{name}.py" for name in given}
    mistakes = {f"solutions/mistakes/{lab.module}.diff" for lab in NOTEBOOKS}
    assert expected <= found <= expected | mistakes
    for name in found & mistakes:
        assert b"\n+ " not in (folder / name).read_bytes(), f"{name} is not sealed"
    top = {name for name in names if "/" not in name}
    assert top == {".gitignore", "LICENSE", "README.md", "constraints.txt", "pyproject.toml",
                   "setup.py"}  # fmt: skip
    assert len(git(folder, "log", "--format=%an")) == 1
    written = [name for name in names if name.startswith(("tinyllm/", "notebooks/"))]
    assert written == ["tinyllm/__init__.py"]  # no file that a learner edits
    given = {name for name in names if name.startswith("given/")}
    assert given == {f"given/{lab.name}.ipynb" for lab in NOTEBOOKS}
    assert git(folder, "status", "--porcelain") == []
    assert set(git(folder, "ls-files")) == names
    kept = ["notebooks/submissions/01_rmsnorm.ipynb", "progress.json"]
    assert git(folder, "check-ignore", *kept) == kept


def test_a_learners_rooms_are_there_with_their_data(folder):
    rooms = git(ROOT, "ls-files", "labkit", "storyworld", "training")
    instructors = re.compile(r"labkit/(author|grading|site)/|.*/glossary\.csv$")
    missing = {name for name in rooms if not instructors.match(name)} - {*files_in(folder)}
    assert missing == set()


def test_the_zip_holds_no_repository_that_would_replace_a_learners(built):
    with zipfile.ZipFile(built[1]) as archive:
        assert not [name for name in archive.namelist() if "/.git/" in name]


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(editions.BuildError, match="neither empty nor an older edition"):
        editions.write_learners(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_its_readme_and_project_mention_nothing_else(folder):
    readme, project = ((folder / name).read_text() for name in ("README.md", "pyproject.toml"))
    assert len(readme.splitlines()) < 90 and "<!--" not in readme and "sealed" in readme
    for word in ("grading", "demo", "nbgrader", "hidden", "instructor edition"):
        assert word not in readme and word not in project
    extras = project.split("optional-dependencies")[1]
    assert re.findall(r"^(\w+) = \[", extras, re.M)[:1] == ["hub"]
    tables = re.findall(r"^\[(.*)\]$", project, re.MULTILINE)
    assert tables == [
        "build-system", "project", "project.optional-dependencies", "project.scripts",
        "tool.setuptools.packages.find",
    ]  # fmt: skip


# The sealed files


def test_the_reference_and_model_answers_are_sealed_and_without_rubrics(folder):
    for path in references():
        assert sealed.read_source(folder / "solutions" / path.name) == path.read_text()
    for lab in LABS:
        path = folder / "solutions" / "answers" / f"{lab.module}.md"
        found = sections(sealed.read_source(path))
        assert [*found] == [question.id for question in lab.questions]
        for question, parts in zip(lab.questions, found.values(), strict=True):
            assert parts == {"model answer": written_answer(lab, question)["model answer"]}
        assert "###" not in path.read_text()


def test_the_edition_for_self_study_is_open(tmp_path):
    options = ["build", "--learners", str(tmp_path), "--open"]
    assert CliRunner().invoke(app, options).exit_code == 0
    solutions = tmp_path / "solutions"
    files = [*solutions.glob("*.py"), *(solutions / "answers").iterdir()]
    assert len(files) > 20 and not [path for path in files if sealed.is_sealed(path)]


# A learner's first hour

HOUR = """
import contextlib, inspect, io, json, os, traceback
import torch, solutions
from IPython.core.interactiveshell import InteractiveShell
from typer.testing import CliRunner
from labkit.cli import app
shell, out = InteractiveShell.instance(), {}
def tinyllm(*words, **more):
    done = CliRunner().invoke(app, list(words), **more)
    out[" ".join(words)] = " ".join(done.output.split())
def run(name, source):
    with contextlib.redirect_stdout(io.StringIO()) as screen:
        shell.run_cell(source)
    out[name] = " ".join(screen.getvalue().split())
def shown(name, action):
    try:
        action()
    except Exception:
        out[name] = traceback.format_exc()
for name, source in TOUR.items():
    run(name, source)
out["kept"] = os.path.exists("tinyllm/tour.py~")
from solutions.gqa import Qwen3Attention
shown("source", lambda: inspect.getsource(Qwen3Attention))
shown("method", lambda: inspect.getsource(Qwen3Attention.forward))
shown("trace", lambda: solutions.gqa.repeat_kv(None, 2))
run("what??", "from solutions.gqa import repeat_kv\\nrepeat_kv??")
run("shell", "repeat_kv(None, 2)")
tinyllm("--help"); tinyllm("check", "1.2"); tinyllm("assemble")
tinyllm("chat", "--seed", "1", input="Tell me a story about Anna.")
run("start", SETUP)
run("look", "RMSNorm(4)(torch.ones(1, 4)).tolist()")
run("check", 'check("3.1")'); run("hint", '[hint("3.1") for _ in range(3)][-1]')
run("sealed", 'solution("3.1")'); run("written", 'solution("3.a")')
run("tour", '[hint("0.1") for _ in range(3)]; solution("0.1")')
open("solutions/gqa.py", "w").write(PLAIN); run("opened", 'solution("3.1")')
[tinyllm("hint", "3.2") for _ in range(3)]; tinyllm("solution", "3.2")
tinyllm("solution", "1.2"); tinyllm("build"); tinyllm("grade", "x")
tinyllm("train", "x"); tinyllm("measure", "x")
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def first_hour(laid_out, tmp_path_factory):
    """{action: result} of a learner who began with the tour and 1.1, got 1.2 wrong, and then
    opened lab 03."""
    folder = tmp_path_factory.mktemp("hour") / "course"  # other tests copy laid_out as it is
    shutil.copytree(laid_out, folder)
    tour, gqa = (
        nbformat.read(folder / "notebooks" / name, as_version=4).cells
        for name in ("00_tour.ipynb", "03_gqa.ipynb")
    )
    last = next(place for place, cell in enumerate(tour) if cell.id == "check-0-1")
    sources = {cell.id: cell.source for cell in tour[: last + 1] if cell.cell_type == "code"}
    sources["ex-0-1"] = answer("0.1")
    setup = next(cell.source for cell in gqa if cell.id == "setup")
    write(folder, "1.1", answer("1.1"))
    write(folder, "1.2", answer("1.2").replace(".square().mean(", ".square().sum("))
    plain = (SOLUTIONS / "gqa.py").read_text()
    values = f"SETUP, PLAIN, TOUR = {setup!r}, {plain!r}, {sources!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", AWAY + values + HOUR], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_tour_begins(first_hour):
    assert "course's own code" in first_hour["talk"] and "passed" in first_hour["check-0-1"]
    assert first_hour["kept"]


def test_nothing_shows_the_reference_by_accident(first_hour):
    lines, _ = secret_lines()
    seen = [first_hour[name] for name in ("source", "method", "trace", "what??", "shell")]
    assert "OSError" in seen[0] and "OSError" in seen[1]
    assert "<solutions/gqa.py, sealed>" in seen[2]
    assert not [line for line in lines for text in seen if line in text]


def test_the_commands_are_the_learners_own(first_hour):
    listed = set(re.findall(r"│ (\w+) ", first_hour["--help"]))
    assert {"status", "check", "hint", "solution", "submit", "chat"} <= listed
    assert not listed & {"build", "demo", "collect", "grade", "report"}
    assert "No such command 'build'" in first_hour["build"]
    assert "No such command 'grade'" in first_hour["grade x"]
    assert "x" in first_hour["train x"] and "x" in first_hour["measure x"]


def test_what_is_not_written_is_stood_in_for_and_told(first_hour):
    assert "summed instead of averaged" in first_hour["check 1.2"]
    assert "rmsnorm: yours; rope: stands in" in first_hour["assemble"]
    # the lab's own part is wrong, others are only missing
    assert "exercise 1.2" in first_hour["assemble"]
    assert "away from the reference's" in first_hour["chat --seed 1"]
    assert "Anna" in first_hour["chat --seed 1"]
    assert "From earlier labs: rmsnorm: yours; rope: stands in." in first_hour["start"]
    assert "not started" in first_hour["check"] and "Error" not in first_hour["look"]


def test_answers_are_sealed_until_their_file_is_replaced(first_hour):
    assert "the answers of lab 03 are sealed; they open once the core" in first_hour["hint"]
    assert "the answers of lab 03 are sealed; they open once the core" in first_hour["sealed"]
    assert "the model answers of lab 03 are sealed" in first_hour["written"]
    assert "def next_token" in first_hour["tour"]  # it is practice
    assert (
        "def causal_mask" in first_hour["opened"]
        and "BEGIN SOLUTION" not in first_hour["opened"]
    )
    assert "def scaled_dot_product_attention" in first_hour["solution 3.2"]
    assert "the answers of lab 01 are sealed" in first_hour["solution 1.2"]
