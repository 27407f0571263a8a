"""The learners' edition: what goes along and what never does, the keys, a first hour."""

import json
import re
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from typer.testing import CliRunner

from labkit.author import edition as editions
from labkit.author.build import skeletons
from labkit.author.owned_cells import filled, read_notebook
from labkit.author.reference import reference_block, references
from labkit.cli import app
from labkit.core import cells, sealed
from labkit.core.paths import ROOT
from labkit.core.syllabus import LABS, NOTEBOOKS, find_exercise
from labkit.learner.hints import sections

SECRET = "a secret of the tests"
LONG = 20  # shorter lines are anybody's
# away with the editable install, through which the repository would answer
AWAY = """import sys; sys.path.insert(0, '.')
sys.meta_path = [each for each in sys.meta_path if "editable" not in repr(each).lower()]
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder and the zip."""
    folder = tmp_path_factory.mktemp("learners") / "course"
    return editions.write_learners(folder, secret=SECRET, zipped=True)


@pytest.fixture(scope="module")
def folder(built):
    return built[0]


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The same without stand-ins, built where somebody has tried the labs."""

    def tried(path):
        notebook = read_notebook(path)
        lab = next(lab for lab in NOTEBOOKS if lab.name == path.stem)
        return filled(lab, notebook, solved=True)

    target = tmp_path_factory.mktemp("bare") / "course"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(editions, "read_notebook", tried)
        return editions.write_learners(target, stand_ins=False)[0]


def answer(exercise_id):
    return cells.plain(reference_block(*find_exercise(exercise_id)))


def write(folder, exercise_id, code):
    lab, exercise = find_exercise(exercise_id)
    module = folder / "tinyllm" / f"{lab.module}.py"
    module.write_text(cells.with_block(module.read_text(), exercise, code))


def files_in(folder):
    """{name: text} of all but git's own."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    texts = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return {name: data for name, data in texts.items() if not name.startswith(".git/")}


def git(folder, *words):
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


# What goes along


def secret_lines():
    """Of the reference's answers, the lines that no skeleton has; neighbours in pairs."""
    given = {line.strip() for derived in skeletons() for line in text_lines(derived.content)}
    lines, pairs = set(), set()
    for path in references():
        for region in cells.REGION.finditer(path.read_text()):
            new = [line for line in text_lines(region["body"].encode()) if line not in given]
            lines.update(line for line in new if len(line) >= LONG)
            pairs.update(pair for pair in pairwise(new) if min(map(len, pair)) >= LONG)
    return lines, pairs


def text_lines(data):
    """The lines of code in it, also where it is a notebook's."""
    text = data.decode("utf-8", "replace").replace("\\n", "\n").replace('\\"', '"')
    lines = [line.partition("  #")[0].strip(' ",') for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def sealed_modules():
    return [f"solutions/{lab.module}.py" for lab in NOTEBOOKS if lab.exercises]


def test_no_file_holds_an_answer(built, bare):
    folder, packed = built
    lines, pairs = secret_lines()
    assert len(lines) > 200 and len(pairs) > 100
    with zipfile.ZipFile(packed) as archive:
        for name, data in files_in(folder).items():
            assert archive.read(f"course/{name}") == data
            if name in sealed_modules():
                assert not lines.intersection(text_lines(data)), name
                assert not [line for line in lines if line.encode() in data], name
    for name, data in [*files_in(folder).items(), *files_in(bare).items()]:
        quoted = pairs.intersection(pairwise(text_lines(data)))
        assert len(quoted) <= name.endswith(".ipynb"), (name, quoted)  # a bug hunt may


def test_only_what_is_the_learners_goes_along(folder, bare):
    names = set(files_in(folder))
    wrong = r"labkit/(author|grading|bench)/|tests/(hidden|course)|course/"
    assert not [name for name in names if re.match(wrong, name) or name.endswith((".pyc", "~"))]
    hints = {f"solutions/hints/{lab.module}.md" for lab in NOTEBOOKS if lab.exercises}
    given = {"solutions/__init__.py", "solutions/config.py", "solutions/keys.json"}
    answers = {f"solutions/answers/{lab.module}.md" for lab in LABS}
    stand_ins = {*sealed_modules(), *given, *answers}
    assert {name for name in names if name.startswith("solutions/")} == hints | stand_ins
    assert set(files_in(bare)) == names - stand_ins | {"solutions/__init__.py"}
    top = {name for name in names if "/" not in name}
    assert top == {".gitignore", "LICENSE", "README.md", "constraints.txt", "pyproject.toml"}
    assert len(git(folder, "log", "--format=%an")) == 1
    assert git(folder, "status", "--porcelain") == []
    assert set(git(folder, "ls-files")) == names
    ours = [
        "notebooks/submissions/01_rmsnorm.ipynb",
        "solutions/unlocked.json",
        "progress.json",
    ]
    assert git(folder, "check-ignore", *ours) == ours


def test_its_readme_and_project_speak_of_nothing_else(folder, bare):
    readme, project = ((folder / name).read_text() for name in ("README.md", "pyproject.toml"))
    assert len(readme.splitlines()) < 90 and "<!--" not in readme
    assert "sealed" in readme and "sealed" not in (bare / "README.md").read_text()
    for word in ("grading", "demo", "nbgrader", "hidden", "instructor edition"):
        assert word not in readme and word not in project
    assert re.findall(r"^(\w+) = \[", project.split("optional-dependencies")[1], re.M)[:1] == [
        "hub"
    ]
    tables = re.findall(r"^\[(.*)\]$", project, re.MULTILINE)
    assert tables == [
        "build-system", "project", "project.optional-dependencies", "project.scripts",
        "tool.setuptools.packages.find",
    ]  # fmt: skip


# The keys


def test_a_sealed_module_is_the_reference_word_for_word(folder):
    for path in references():
        assert sealed.text_of(folder / "solutions" / path.name) == path.read_text()


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_model_answers_go_along_sealed_and_without_rubrics(folder, lab):
    path = folder / "solutions" / "answers" / f"{lab.module}.md"
    found = sections(sealed.text_of(path))
    assert [*found] == [question.id for question in lab.questions]
    assert all([*parts] == ["model answer"] for parts in found.values())
    assert "###" not in path.read_text()


def test_a_key_opens_one_lab_however_it_is_typed(tmp_path, monkeypatch):
    monkeypatch.setattr(sealed, "KEYS", tmp_path / "keys.json")
    monkeypatch.setattr(sealed, "OPENED", tmp_path / "unlocked.json")
    assert sealed.is_open("rope")
    sealed.KEYS.write_text(sealed.locks(SECRET, ["rope", "gqa"]))
    tracked, key = sealed.KEYS.read_text(), sealed.key_of(SECRET, "rope")
    assert re.fullmatch(r"[A-Z2-7]{4}(-[A-Z2-7]{4}){2}", key)
    assert key != sealed.key_of(SECRET, "gqa") and key != sealed.key_of("other", "rope")
    with pytest.raises(sealed.WrongKey, match="is not the key of gqa: it opens rope"):
        sealed.unlock("gqa", key)
    sealed.unlock("rope", f" {key.lower().replace('-', ' ').replace('o', '0')} ")
    assert sealed.is_open("rope") and not sealed.is_open("gqa")
    assert sealed.KEYS.read_text() == tracked
    with pytest.raises(sealed.WrongKey, match="is not the key of gqa: ask who gave"):
        sealed.unlock("gqa", "KEY")


def test_keys_are_kept_beside_the_edition_and_stay_the_same(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(editions, "write_learners", lambda *given: seen.append(given) or [])

    def build(*options):
        done = CliRunner().invoke(app, ["build", "--learners", str(tmp_path / "x"), *options])
        return done.exit_code

    kept = tmp_path / "x-keys.txt"
    assert build("--open") == build("--without-stand-ins", "--zip") == 0 and not kept.exists()
    assert [given[1:4] for given in seen] == [(True, None, False), (False, None, True)]
    assert build() == build() == 0 and seen[2][2] == seen[3][2]
    assert build("--key", "mine") == 0 and seen[4][2] == "mine"
    for lab in LABS:
        assert re.search(
            rf"unlock {lab.module} +{sealed.key_of('mine', lab.module)}\n", kept.read_text()
        )
    assert build("--open", "--without-stand-ins") == 2


# A learner's first hour

HOUR = """
import contextlib, inspect, io, json, traceback
import torch, solutions
from IPython.core.interactiveshell import InteractiveShell
from typer.testing import CliRunner
from labkit.cli import app
shell, out = InteractiveShell.instance(), {}
def tinyllm(*words, **more):
    done = CliRunner().invoke(app, list(words), **more)
    out[" ".join(words)] = " ".join(done.output.split())
def run(name, source):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        shell.run_cell(source)
    out[name] = " ".join(said.getvalue().split())
def shown(name, action):
    try:
        action()
    except Exception:
        out[name] = traceback.format_exc()
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
run("locked", 'solution("3.1")'); run("wrong", 'solution("3.1", "KEY")')
run("tour", 'solution("0.1")')
run("unlocked", f'solution("3.1", "{KEY}")')
tinyllm("solution", "3.2"); tinyllm("solution", "1.2"); tinyllm("build"); tinyllm("grade", "x")
tinyllm("train", "x"); tinyllm("measure", "x")
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def hour(folder):
    """{what was done: what was said} by a learner who began with 1.1, got 1.2 wrong, and then
    opened lab 03."""
    notebook = nbformat.read(folder / "notebooks" / "03_gqa.ipynb", as_version=4)
    setup = next(cell.source for cell in notebook.cells if cell.id == "setup")
    write(folder, "1.1", answer("1.1"))
    write(folder, "1.2", answer("1.2").replace(".square().mean(", ".square().sum("))
    given = f"{AWAY}SETUP, KEY = {setup!r}, {sealed.key_of(SECRET, 'gqa')!r}\n"
    return said_in(folder, given + HOUR)


def said_in(folder, code):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_nothing_shows_the_reference_by_accident(hour):
    lines, _ = secret_lines()
    seen = [hour[name] for name in ("source", "method", "trace", "what??", "shell")]
    assert "OSError" in seen[0] and "OSError" in seen[1]
    assert "<solutions/gqa.py, sealed>" in seen[2]
    assert not [line for line in lines for text in seen if line in text]


def test_the_commands_are_the_learners_own(hour):
    listed = set(re.findall(r"│ (\w+) ", hour["--help"]))
    assert {"status", "check", "hint", "solution", "unlock", "submit", "chat"} <= listed
    assert not listed & {"build", "mutants", "demo", "collect", "grade", "report", "bench"}
    assert "No such command 'build'" in hour["build"]
    assert "No such command 'grade'" in hour["grade x"]
    assert "x" in hour["train x"] and "x" in hour["measure x"]


def test_what_is_not_written_is_stood_in_for_and_told(hour):
    assert "summed instead of averaged" in hour["check 1.2"]
    assert "rmsnorm: yours; rope: stands in" in hour["assemble"]
    assert "exercise 1.2" in hour["assemble"]  # its own part is wrong, others are only missing
    assert "away from the reference's" in hour["chat --seed 1"]
    assert "Anna" in hour["chat --seed 1"]
    assert "From earlier labs: rmsnorm: yours; rope: stands in." in hour["start"]
    assert "not started" in hour["check"] and "Error" not in hour["look"]


def test_answers_open_with_the_key_lab_by_lab(hour):
    assert 'solution("3.1", "KEY") opens them' in hour["hint"]
    assert "the answers of lab 03 are locked: ask" in hour["locked"]
    assert "'KEY' is not the key of gqa" in hour["wrong"]
    assert "def next_token" in hour["tour"]  # it is practice
    assert "def causal_mask" in hour["unlocked"] and "BEGIN SOLUTION" not in hour["unlocked"]
    assert "def scaled_dot_product_attention" in hour["solution 3.2"]
    assert "locked: ask your instructor for the key" in hour["solution 1.2"]
    assert "`tinyllm unlock rmsnorm KEY` opens" in hour["solution 1.2"]


BARE = """
import contextlib, io, json
from IPython.core.interactiveshell import InteractiveShell
shell, out = InteractiveShell.instance(), {}
def run(name, source):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        shell.run_cell(source)
    out[name] = " ".join(said.getvalue().split())
for name, source in CELLS.items():
    run(name, source)
run("start", 'start("gqa")'); run("solution", 'solution("3.1")')
print(json.dumps(out))
"""


def test_without_stand_ins_the_tour_says_why_nothing_talks(bare):
    notebook = nbformat.read(bare / "notebooks" / "00_tour.ipynb", as_version=4)
    sources = {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "code"}
    names = ("setup", "talk", "shapes", "attention", "attention-measure", "attention-figure")
    code = f"{AWAY}CELLS = { {name: sources[name] for name in names}!r}\n{BARE}"
    out = said_in(bare, code)
    assert "it raises NotImplementedError: Exercise" in out["talk"]
    assert "no model talks: numbers drawn at random babble here" in out["talk"]
    assert out["attention-measure"].startswith("left out: this model has no layers")
    assert "the cell that makes it was left out" in out["attention-figure"]
    assert "Exercise 1.2, RMSNorm, is empty: finish it first" in out["start"]
    assert "not part of this edition: ask your instructor" in out["solution"]
    assert "Traceback" not in "".join(out.values())


def test_the_tour_begins(folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(folder / "notebooks" / "00_tour.ipynb", as_version=4)
    names = [cell.id for cell in notebook.cells]
    notebook.cells[names.index("ex-0-1")].source = answer("0.1")
    notebook.cells = [new_code_cell(AWAY), *notebook.cells[: names.index("check-0-1") + 1]]
    resources = {"metadata": {"path": str(folder / "notebooks")}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    said = {cell.id: str(cell.get("outputs")) for cell in notebook.cells}
    assert "course's own code" in said["talk"] and "passed" in said["check-0-1"]
    assert (folder / "tinyllm" / "tour.py~").exists()


def test_a_folder_that_is_not_empty_is_refused():
    with pytest.raises(editions.BuildError, match="is not empty"):
        editions.write_learners(Path(ROOT))
