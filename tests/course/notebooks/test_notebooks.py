"""The notebooks as a learner meets them: in a kernel, with a package of their own."""

import copy
import os
import shutil
from contextlib import contextmanager
from functools import cache

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from labkit.author.build import (
    filled,
    notebook_path,
    read_notebook,
    reference_block,
    setup_cell,
)
from labkit.core import cells
from labkit.core.paths import ROOT
from labkit.core.syllabus import LABS, NOTEBOOKS, find_exercise, find_lab
from labkit.grading.sample_class import solved


@contextmanager
def environment(**variables):
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def package(tmp_path):
    """A fresh copy of the skeleton package, which the kernel imports instead of ours."""
    shutil.copytree(ROOT / "tinyllm", tmp_path / "tinyllm")
    return tmp_path / "tinyllm"


def run(notebook, package, **variables):
    """Execute in a kernel whose `tinyllm` is `package`; errors stay in the outputs."""
    notebook = copy.deepcopy(notebook)
    # one thread: the tests run side by side, and threads that wait for each other burn time
    options = {"PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1"}
    options |= {"TINYLLM_MINUTES": "0.05", **variables}
    with environment(**options):
        client = NotebookClient(
            notebook, timeout=300, kernel_name="python3", allow_errors=True,
            resources={"metadata": {"path": str(package.parent)}},
        )  # fmt: skip
        client.execute()
    return notebook


def run_cells(package, *sources, lab=LABS[0], **variables):
    notebook = new_notebook(
        cells=[new_code_cell(source) for source in (setup_cell(lab), *sources)]
    )
    return run(notebook, package, **variables).cells[1:]


def text_of(cell):
    parts = []
    for output in cell.outputs:
        parts.append(output.get("text", ""))
        parts.append(output.get("data", {}).get("text/plain", ""))
        parts.append(f"{output.get('ename', '')} {output.get('evalue', '')}")
    return " ".join(" ".join(parts).split())


def answer(exercise_id):
    lab, exercise = find_exercise(exercise_id)
    return cells.plain(reference_block(lab, exercise))


def finished(lab):
    return cells.plain((ROOT / "solutions" / f"{lab.module}.py").read_text())


@pytest.fixture(scope="session")
def solved_run(tmp_path_factory, released):
    """Of a lab: its notebook executed with the reference in it, and the package it filled, in
    which the labs before it are finished."""

    @cache
    def execute(lab):
        package = tmp_path_factory.mktemp(lab.module) / "tinyllm"
        shutil.copytree(ROOT / "tinyllm", package)
        for earlier in NOTEBOOKS[: NOTEBOOKS.index(lab)]:
            if earlier.exercises:
                (package / f"{earlier.module}.py").write_text(finished(earlier))
        return run(solved(released[lab.name], lab), package), package

    return execute


@pytest.mark.parametrize("lab", NOTEBOOKS, ids=lambda lab: lab.name)
def test_runs_top_to_bottom_with_the_reference_in_it(lab, solved_run):
    done, package = solved_run(lab)
    for cell in done.cells:
        if cell.cell_type == "code":
            errors = [o for o in cell.outputs if o.output_type == "error"]
            assert not errors, f"{cell.id}: {errors[0].ename}: {errors[0].evalue}"
    for exercise in lab.exercises:
        cell = next(c for c in done.cells if c.id == exercise.check_cell)
        assert f"{exercise.title} passed" in text_of(cell)
        html = cell.outputs[0]["data"]["text/html"]
        assert exercise.title in html and "passed" in html and "<script" not in html
    if not lab.exercises:
        return
    assert (package / f"{lab.module}.py").read_text() == finished(lab)


@pytest.mark.parametrize("lab", NOTEBOOKS, ids=lambda lab: lab.name)
def test_every_figure_has_a_text_for_those_who_cannot_see_it(lab, solved_run):
    done, _ = solved_run(lab)
    pictures = [
        output["data"]["text/html"]
        for cell in done.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "<img" in output.get("data", {}).get("text/html", "")
    ]
    assert len(pictures) >= 3
    assert all('alt="' in html and 'alt=""' not in html for html in pictures)


def test_an_untouched_notebook_saves_nothing_and_says_not_started(package, released):
    before = (package / "rmsnorm.py").read_text()
    done = run(released["01_rmsnorm"], package)
    for cell in done.cells:
        if cell.id.startswith("check-"):
            assert "not started" in text_of(cell)
    assert (package / "rmsnorm.py").read_text() == before


def test_a_wrong_answer_is_named_and_the_ladder_climbs(package):
    wrong = answer("1.2").replace("wide.square().mean(", "wide.square().sum(")
    cells_run = run_cells(
        package,
        wrong,
        'check("1.2")',
        'hint("1.2")',
        'hint("1.2")',
        'hint("1.2")',
        'check("1.2")',
    )
    saved, report, one, two, three, again = map(text_of, cells_run)
    assert "saved to tinyllm/rmsnorm.py" in saved
    assert "not yet" in report and "summed instead of averaged" in report
    assert 'hint("1.2") shows rung 1 of 3' in report
    assert "rung 1 of 3" in one and "rung 2 of 3" in two and "rung 3 of 3" in three
    assert 'solution("1.2")' in three and 'solution("1.2") shows the answer' in again


def test_a_cell_that_raises_is_not_saved(package):
    before = (package / "rmsnorm.py").read_text()
    (cell,) = run_cells(package, answer("1.1") + "\nraise RuntimeError('oops')")
    assert "was not saved" in text_of(cell)
    assert (package / "rmsnorm.py").read_text() == before


def test_a_renamed_function_is_not_judged_by_its_old_self(package):
    renamed = answer("1.1").replace("def layer_norm(", "def layernorm(")
    _, saved, report, used = run_cells(
        package, answer("1.1"), renamed, 'check("1.1")', "layer_norm"
    )
    assert "the exercise needs layer_norm; this cell defines layernorm" in text_of(saved)
    assert "not yet" in text_of(report) and "layer_norm is not defined" in text_of(report)
    assert "NameError" in text_of(used)


def test_an_answer_without_its_first_line_says_so(package):
    bare = answer("1.1").split("\n", 1)[1]
    cell, report = run_cells(package, bare, "check(1.1)")
    assert 'begins with the line "# %% exercise 1.1: layer_norm"' in text_of(cell)
    assert "not started" in text_of(report)


def test_after_a_failed_run_the_check_says_what_it_judges(package):
    wrong = answer("1.1").replace("wide = x.float()", "wide = x.flaot()")
    _, broken, report = run_cells(package, wrong, "# %% exercise 1.1\ndef f(:", 'check("1.1")')
    assert "was not saved" in text_of(broken)
    assert "this is about the version before it" in text_of(report)
    assert "not stored on `self`" in text_of(report) or "flaot" in text_of(report)


def test_a_stub_never_overwrites_an_answer(package):
    lab, exercise = find_exercise("1.1")
    stub = cells.stub(reference_block(lab, exercise), exercise)
    first, second, report = run_cells(package, answer("1.1"), stub, 'check("1.1")')
    assert "saved" in text_of(first)
    assert "stays as it is" in text_of(second)
    assert "passed" in text_of(report)


def test_the_copy_before_an_overwrite_is_kept(package):
    run_cells(package, answer("1.1"), answer("1.1").replace("mean", "average"))
    assert "average" not in (package / "rmsnorm.py~").read_text()


def test_a_name_from_another_cell_is_reported_where_it_is_missing(package):
    uses = answer("1.1").replace("wide = x.float()", "wide = widened(x)")
    scratch = "def widened(x):\n    return x.float()"
    _, _, report = run_cells(package, scratch, uses, 'check("1.1")')
    assert "name 'widened' is not defined" in text_of(report)


def test_what_is_not_allowed_is_refused_with_its_line(package):
    uses = (
        "# %% exercise 1.1\nimport torch.nn.functional as G\n"
        "def layer_norm(x, weight, bias, eps=1e-5):\n"
        "    return G.layer_norm(x, x.shape[-1:], weight, bias, eps)"
    )
    _, report = run_cells(package, uses, 'check("1.1")')
    assert "line 4: F.layer_norm may not be used here" in text_of(report)


def test_wrong_ids_say_what_exists(package):
    one, two, three = run_cells(package, 'check("9.9")', 'hint("1.2", rung=7)', 'hint("x")')
    assert "1.2 RMSNorm" in text_of(one) and "the rungs are 1 to 3" in text_of(two)
    assert "there is no exercise 'x'" in text_of(three)


def test_the_reference_stands_in_for_an_unfinished_earlier_lab(package):
    """Lab 05 needs Qwen3MLP; without the reference the check says whose turn it is."""
    before = (package / "swiglu.py").read_text()
    lab, block = find_lab("moe"), answer("5.2")
    hide = "from pathlib import Path\nfrom labkit import workspace\n"
    hide += 'workspace.SOLUTIONS = Path("nowhere")\nstart("moe")'
    used = "type(Qwen3MLP(config, 4)).__name__"
    config = 'from tinyllm.config import PRESETS\nconfig = PRESETS["Qwen3-0.6B"]'
    _, _, report, _, name, told, alone = run_cells(
        package, answer("5.1"), block, 'check("5.2")', config, used, hide, 'check("5.2")',
        lab=lab,
    )  # fmt: skip
    assert "passed" in text_of(report) and "Qwen3MLP" in text_of(name)
    assert "Exercise 4.2, Qwen3MLP, is unfinished: finish it first" in text_of(told)
    assert "exercise 4.2, which this one uses, is still empty" in text_of(alone)
    assert (package / "swiglu.py").read_text() == before


def test_under_nbgrader_a_check_is_a_plain_number(package):
    half = answer("1.3").replace('"deepnorm"', '"deep"')
    _, partial, _, full = run_cells(
        package,
        half,
        'check("1.3")',
        answer("1.1"),
        'check("1.1")',
        NBGRADER_EXECUTION="autograde",
    )
    results = [
        float(
            next(o for o in cell.outputs if o.output_type == "execute_result")["data"][
                "text/plain"
            ]
        )
        for cell in (partial, full)
    ]
    assert 0 < results[0] < 4 and results[1] == 4


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.name
)
def test_committed_notebooks_are_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"nbgrader"}
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None
            if "nbgrader" not in cell.metadata:
                lines = cell.source.split("\n")
                assert len(lines) <= 16, f"{cell.id} has {len(lines)} lines"
                assert max(map(len, lines)) <= 78, f"{cell.id} is too wide"


@pytest.mark.parametrize("lab", NOTEBOOKS, ids=lambda lab: lab.name)
def test_every_section_lets_the_learner_act_within_150_words(lab):
    words = 0
    for cell in filled(lab, read_notebook(notebook_path(lab))).cells:
        if cell.cell_type == "code" or cell.id.startswith("written-"):
            words = 0
            continue
        prose = [
            line
            for line in cell.source.split("\n")
            if not line.startswith(("|", "    ", "```"))
        ]
        words += len(" ".join(prose).split())
        assert words <= 190, f"{cell.id}: {words} words without a pause"
