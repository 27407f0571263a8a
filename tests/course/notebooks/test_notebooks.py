"""The notebooks as a learner has them, with a temporary package: cell by cell, and whole in a
kernel."""

import copy
import os
import shutil
from contextlib import contextmanager

import nbformat
import pytest
from nbclient import NotebookClient

from labkit.author.owned_cells import filled, notebook_path, read_notebook, setup_cell
from labkit.author.reference import reference_block
from labkit.course import cells
from labkit.course.lang import speaking, tr
from labkit.course.paths import ROOT
from labkit.course.syllabus import NOTEBOOKS, find_exercise, find_lab
from labkit.grading.sample_class import solved
from labkit.learner import notebook, workspace
from labkit.learner.project import notebook_file
from tests.course.raw import english_in, raw_in

# LINES and COLUMNS of a code cell; WORDS of prose before the learner acts
LINES, COLUMNS, WORDS = 16, 78, 190


@contextmanager
def environment(**variables):
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def execute(notebook, package):
    """Execute in a kernel whose `tinyllm` is `package`; errors stay in the outputs."""
    notebook = copy.deepcopy(notebook)
    # one thread: the tests run side by side, and threads that wait for each other burn time
    path = os.pathsep.join([str(package.parent), str(ROOT)])  # labkit of this repository
    options = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with environment(**options, TINYLLM_MINUTES="0.005"):
        client = NotebookClient(
            notebook, timeout=300, kernel_name="python3", allow_errors=True,
            resources={"metadata": {"path": str(package.parent)}},
        )  # fmt: skip
        client.execute()
    return notebook


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


def stub_of(exercise_id):
    lab, exercise = find_exercise(exercise_id)
    return cells.stub(reference_block(lab, exercise), exercise)


def finished(lab):
    return cells.plain((ROOT / "solutions" / f"{lab.module}.py").read_text())


# inserted below the first cell: less data, shorter stories, a smaller model for lab 08
QUICK = """from labkit.learner.lessons import lesson, living, rewards
living.DOCUMENTS, living.TOKENS, rewards.MOST = 2, 12, 40
lesson.SHAPE |= {"hidden_size": 64, "intermediate_size": 128, "head_dim": 32}
lesson.tell.__defaults__ = ("Tell me a story.", 1, 20, 0.7, 0)"""
# {notebook: {cell: (code, its replacement)}}: fewer steps, runs, tokens
CUTS = {
    "00_tour": {"attention-measure": ("range(40)", "range(8)")},
    "01_rmsnorm": {"warm-up-train": ("range(120)", "range(20)")},
    "03_gqa": {
        "leak-train": ("range(120)", "range(10)"),
        "growth-train": ("steps=60", "steps=10"),
    },
    "04_swiglu": {"race-train": ("range(120)", "range(10)")},
    "05_moe": {
        "train": ("range(200)", "range(10)"),
        "cost": ("number=10", "number=1"),
    },
    "07_generation": {
        "time-run": ("new=150", "new=90"),
        "seeds-run": ("new=30", "new=5"),
        "repeat-run": ("160", "20"),
    },
    "08_training": {
        "look-8-3": ("steps=100", "steps=20"),
        "peaks-run": ("steps=60", "steps=12"),
        "break-shift-run": ("in BATCHES", "in BATCHES[:10]"),
        "train-run": ("max(20,", "max(5,"),
        "truth-run": ("count=16", "count=2"),
        "buys-code": ("steps=100", "steps=3"),
        "half-code": ("steps=60", "steps=3"),
    },
    "10_serving": {
        "arrivals-code": ("56 *", "12 *"),
        "preempt-run": ("(20, 40, 80, 140)", "(9, 80)"),
        "bits-run": ("documents=12, longest=128", "documents=2, longest=32"),
        "pay-code": ("new=48", "new=8"),
        "batch-run": ("new=24", "new=4"),
    },
    "11_posttraining": {
        "live-rules": ("10 if SHORT", "4 if SHORT"),
        "look-11-2-run": ("range(60)", "range(5)"),
    },
    "12_hybrid": {
        "recall-train": ("steps=250", "steps=10"),
        "sink-fit": ("steps=400", "steps=25"),
    },
    "13_thinking": {
        "modes-code": ("count=200", "count=20"),
        "look-13-2": ("count=200", "count=10"),
        "draws-code": ("count=60", "count=6"),
        "experiment-with": ("count=100", "count=8"),
    },
    "14_parallel": {
        "real-run": ("steps=20", "steps=3"),
        "ending-code": ("new=90", "new=4"),
    },
    "15_server": {
        "load-run": ("range(5)", "range(1)"),
        "alone-code": ("range(16)", "range(4)"),
        "pay-run": ("(0, 1, 2, 4)", "(0, 4)"),
        "pay-figure": ("(0, 1, 2, 4), rates", "(0, 4), rates"),
        "together-code": ("range(20)", "range(5)"),
    },
}


SAMPLE = find_lab("rmsnorm")  # the one that a commit runs in another language, too
AT_ONCE = ("00_tour", "01_rmsnorm", "06_decoder")  # a commit waits for these, CI for all


def later(lab, lang="en", slow=()):
    """Return the mark of a notebook that a commit does not wait for."""
    if lab.name in slow or (lang != "en" and lab != SAMPLE):
        return pytest.mark.slow
    return () if lab.name in AT_ONCE else pytest.mark.full


RUNS = [
    pytest.param("en", lab, CUTS.get(lab.name, {}), id=lab.name, marks=later(lab))
    for lab in NOTEBOOKS
]
WHOLE = [
    pytest.param(lang, lab, {}, id=f"{lab.name}, whole, {lang}", marks=pytest.mark.slow)
    for lang in ("en", "zh")
    for lab in NOTEBOOKS
    if lab.name in CUTS or lang != "en"
]


def shortened(notebook, cuts):
    """Apply CUTS to a notebook."""
    for name, (long, short) in cuts.items():
        (cell,) = [cell for cell in notebook.cells if cell.id == name]
        assert long in cell.source, name
        cell.source = cell.source.replace(long, short)
    setup = next(at for at, cell in enumerate(notebook.cells) if cell.id == "setup")
    notebook.cells.insert(setup + 1, nbformat.v4.new_code_cell(QUICK))
    return notebook


def code_cells_that_ran(notebook, package, lang):
    """Execute a notebook; return its code cells, none of which has an error."""
    with environment(TINYLLM_LANG=lang):
        done = [c for c in execute(notebook, package).cells if c.cell_type == "code"]
    for cell in done:
        errors = [o for o in cell.outputs if o.output_type == "error"]
        assert not errors, f"{cell.id}: {errors[0].ename}: {errors[0].evalue}"
        assert not raw_in(text_of(cell), is_prose=False), cell.id
        if lang != "en" and cell.id not in SPOKEN:
            assert english_in(text_of(cell), cell.source) == [], cell.id
    return done


@pytest.mark.parametrize(("lang", "lab", "cuts"), RUNS + WHOLE)
def test_runs_top_to_bottom_with_the_reference_in_it(lang, lab, cuts, tmp_path):
    with speaking(lang):
        notebook = solved(filled(lab, read_notebook(notebook_path(lab))), lab)
    package = tmp_path / "tinyllm"
    shutil.copytree(ROOT / "tinyllm", package)
    for earlier in NOTEBOOKS[: NOTEBOOKS.index(lab)]:
        if earlier.exercises:
            (package / f"{earlier.module}.py").write_text(finished(earlier))
    done = code_cells_that_ran(shortened(notebook, cuts), package, lang)
    pictures = []
    for cell in done:
        pages = [output.get("data", {}).get("text/html", "") for output in cell.outputs]
        pictures += [html for html in pages if "<img" in html]
    assert len(pictures) >= 3 or not lab.exercises  # the page on torch has no pictures
    assert all('alt="' in html and 'alt=""' not in html for html in pictures)
    for exercise in lab.exercises:
        cell = next(c for c in done if c.id == exercise.check_cell)
        with speaking(lang):
            assert tr("passed") in text_of(cell)
        html = cell.outputs[0]["data"]["text/html"]
        assert exercise.title in html and "<script" not in html
    if lab.exercises:
        saved = (package / f"{lab.module}.py").read_text()
        assert saved.replace(cells.FUTURE_LINE, "") == finished(lab)


# cells with the words of a spoiled model, with parts of words, with names of tables and records
SPOKEN = """living-swap-run opened-words train-run model-run merges-run steps-run crawl-run
clean-run together-run roof-run roof-table check-14-9
deadlock-run first-run mask-run look-1-run race-run"""
LONG = ("03_gqa", "08_training", "09_tokenizer")  # notebooks with long given cells
EMPTY = [
    pytest.param(lang, lab, id=f"{lab.name}, {lang}", marks=later(lab, lang, LONG))
    for lang in ("en", "zh")
    for lab in NOTEBOOKS
]


@pytest.mark.parametrize(("lang", "lab"), EMPTY)
def test_runs_top_to_bottom_with_nothing_written(lang, lab, tmp_path):
    """A cell that needs an unfinished exercise prints a sentence and not a traceback, and so do
    the cells after it."""
    with speaking(lang):
        notebook = filled(lab, read_notebook(notebook_path(lab)))
        left_out = tr("left out: {error}", error="")
    package = tmp_path / "tinyllm"
    shutil.copytree(ROOT / "tinyllm", package)
    notebook = shortened(notebook, CUTS.get(lab.name, {}))
    texts = [text_of(cell) for cell in code_cells_that_ran(notebook, package, lang)]
    assert any(left_out in text for text in texts) == bool(lab.exercises)


def test_an_untouched_notebook_saves_nothing_and_says_not_started(run, package, released):
    before = (package / "rmsnorm.py").read_text()
    shown = {
        cell.id: run(cell.source, cell.id)
        for cell in released["01_rmsnorm"].cells
        if cell.id.startswith(("ex-", "check-"))
    }
    hunt = shown.pop("check-1-4")  # its cell holds code from the start
    assert "not yet" in hunt and "why" in hunt
    checks = [text for name, text in shown.items() if name.startswith("check-")]
    assert len(checks) == 3 and all("not started" in text for text in checks)
    assert (package / "rmsnorm.py").read_text() == before


def test_a_wrong_answer_is_named_and_the_ladder_climbs(run):
    wrong = answer("1.2").replace("wide.square().mean(", "wide.square().sum(")
    assert "saved to tinyllm/rmsnorm.py" in run(wrong)
    report = run('check("1.2")')
    assert "not yet" in report and "summed instead of averaged" in report
    assert 'hint("1.2") shows rung 1 of 3' in report
    assert "after the last rung; hint" in run('solution("1.2")')
    one, two, three = [run('hint("1.2")') for _ in range(3)]
    assert "rung 1 of 3" in one and "rung 2 of 3" in two and "rung 3 of 3" in three
    assert 'solution("1.2")' in three
    assert 'solution("1.2") shows the answer' in run('check("1.2")')
    assert "class RMSNorm" in run('solution("1.2")')


def test_a_cell_that_raises(run, package):
    shown = run(answer("1.1").replace("= 1e-5", "= nowhere"))
    assert "but tinyllm/rmsnorm.py fails: NameError: name 'nowhere'" in shown
    shown = run(answer("1.1") + "\nraise RuntimeError('oops')")
    assert "saved to tinyllm/rmsnorm.py" in shown
    assert "oops" not in (package / "rmsnorm.py").read_text()
    assert "passed" in run('check("1.1")')
    # an empty cell does not delete the answer
    assert "your earlier code in" in run(stub_of("1.1"))
    assert "passed" in run('check("1.1")')
    assert run("print(layer_norm(torch.ones(1, 2), torch.ones(2), torch.ones(2)))") == (
        "tensor([[1., 1.]])"
    )
    run(answer("1.1").replace("mean", "average"))
    assert "average" in (package / "rmsnorm.py").read_text()
    assert "average" not in (package / "rmsnorm.py~").read_text()  # the previous copy


def test_after_a_restart_a_lost_cell_is_played_by_what_was_saved(run):
    run(answer("1.1"))
    run("del layer_norm")
    assert "in use here: 1.1 layer_norm" in run('start("rmsnorm")')
    assert "'tinyllm.rmsnorm'" in run("layer_norm.__module__")


def test_after_a_failed_run_the_check_says_what_it_judges(run):
    run(answer("1.1").replace("wide = x.float()", "wide = x.flaot()"))
    assert "was not saved" in run("# %% exercise 1.1\ndef f(:")
    report = run('check("1.1")')
    assert "this is about the version before it" in report and "flaot" in report
    typeset = answer("1.1").replace("wide = x.float()", "wide =\u00a0x.float()")
    for shown in (run(typeset), run('check("1.1")')):
        assert "has a no-break space, as pages do: type a plain space" in shown


def test_a_blank_cell_of_the_saved_notebook_is_told_where_the_package_passes(
    run, package, released, monkeypatch
):
    lab, exercise = find_exercise("1.1")
    workspace.save(lab, exercise, answer("1.1"))
    saved = package.parent / f"{lab.name}.ipynb"
    assert "blank" not in run('check("1.1")')  # there is no notebook to look into
    nbformat.write(released[lab.name], saved)
    words = "blank in your saved notebook, where it earns nothing: 1.1. Your code is in"
    assert words in run('check("1.1")') and words in run('finish("rmsnorm")')
    assert "`tinyllm submit rmsnorm` writes it into the file to hand in" in run('check("1.1")')
    run(answer("1.1"))  # not saved yet
    assert "blank" not in run('check("1.1")') and "blank in" not in run('finish("rmsnorm")')
    monkeypatch.setattr(notebook, "_session", None)
    content = notebook_file.read(saved)
    notebook_file.put(content, lab, exercise, answer("1.1"))
    nbformat.write(content, saved)
    assert "blank" not in run('check("1.1")')


def test_a_renamed_function_is_not_judged_by_its_old_self(run):
    run(answer("1.1"))
    saved = run(answer("1.1").replace("def layer_norm(", "def layernorm("))
    assert "the exercise needs layer_norm; this cell defines layernorm" in saved
    report = run('check("1.1")')
    assert "not yet" in report and "layer_norm is not defined" in report
    assert "NameError" in run("layer_norm")


def test_a_cell_is_known_by_its_first_line_or_by_its_id(run):
    bare = answer("1.1").split("\n", 1)[1]
    assert 'no cell with the line "# %% exercise 1.1: layer_norm" answers 1.1' in run(bare)
    assert "passed" in run("check(1.1)")
    assert "saved to tinyllm/rmsnorm.py" in run(bare, "ex-1-1")
    assert "passed" in run("check(1.1)")


def test_a_name_from_another_cell_is_reported_where_it_is_missing(run):
    run(answer("1.2"))
    run("trial = RMSNorm(4).eps")
    run(answer("1.1").replace("wide = x.float()", "wide = x.float() + 0 * trial"))
    assert "name 'trial' is not defined" in run('check("1.1")')


def test_what_is_not_allowed_is_refused_with_its_line(run):
    run(
        "# %% exercise 1.1\nimport torch.nn.functional as G\n"
        "def layer_norm(x, weight, bias, eps=1e-5):\n"
        "    return G.layer_norm(x, x.shape[-1:], weight, bias, eps)"
    )
    assert "line 4: F.layer_norm may not be used here" in run('check("1.1")')


def test_wrong_ids_say_what_exists(run):
    assert "`tinyllm status` lists all" in run('check("9.9")')
    assert "1.1, 1.2, 1.3, 1.4?" in run('check("1.9")')
    assert "the rungs are 1 to 3" in run('hint("1.2", rung=7)')
    assert "there is no exercise 'x'" in run('hint("x")')


def test_the_reference_stands_in_for_an_unfinished_earlier_lab(run, package):
    """Lab 05 needs Qwen3MLP of lab 04."""
    before = (package / "swiglu.py").read_text()
    assert "From earlier labs: swiglu: stands in." in run(setup_cell(find_lab("moe")))
    run(answer("5.1"))
    run(answer("5.2"))
    assert "passed" in run('check("5.2")')
    run('from tinyllm.config import PRESETS\nconfig = PRESETS["Qwen3-0.6B"]')
    assert "Qwen3MLP" in run("type(Qwen3MLP(config, 4)).__name__")
    assert (package / "swiglu.py").read_text() == before


def test_the_reference_stands_in_for_a_lab_that_a_given_cell_imports(run):
    """Lab 13 trains with lab 08, and lab 15's engine is built on labs 01 to 10."""
    run(setup_cell(find_lab("thinking")))
    told = run("from tinyllm.training import learning_rate\nlearning_rate(0, 1.0, 1, 9)")
    assert told.endswith("1.0")
    run(setup_cell(find_lab("server")))
    told = run(
        "from tinyllm.engine import Engine\nfrom tinyllm.rope import rope_cos_sin\n"
        "tuple(rope_cos_sin(torch.arange(2), 4, 1e4)[0].shape)"
    )
    assert told.endswith("(2, 4)")


def test_a_cell_that_needs_what_is_not_written_gets_a_sentence(run):
    run(stub_of("1.1"))
    # no cell was left out before, so this is the learner's own error
    assert "NameError" in run("curve")
    told = run("curve = layer_norm(torch.ones(2, 3), torch.ones(3), torch.zeros(3))")
    assert told == "left out: Exercise 1.1: layer_norm is not written yet"
    assert "name 'curve' is not defined; the cell that makes it was left out" in run("curve")
    run("curve, rows = [], 2")
    left_out = "import math\nfor rows in (3,): curve = layer_norm(torch.ones(2, rows), 1, 0)"
    assert "Exercise 1.1" in run(left_out)
    assert "name 'rows' is not defined" in run("rows")  # the older value is gone
    assert "module 'math'" in run("math")  # only values are forgotten
    assert "Traceback" in run("raise NotImplementedError('mine')")
    assert "ZeroDivisionError" in run("1 / 0")


def test_under_nbgrader_a_check_is_a_plain_number(run, monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    run(answer("1.3").replace('"deepnorm"', '"deep"'))
    run(answer("1.1"))
    partial, full = (float(run(f"check({name})").split()[-1]) for name in ("1.3", "1.1"))
    assert 0 < partial < 4 and full == 4


@pytest.mark.parametrize("lab", NOTEBOOKS, ids=lambda lab: lab.name)
def test_a_notebook_is_clean_and_lets_the_learner_act_within_150_words(lab, released):
    notebook = nbformat.read(notebook_path(lab), as_version=4)
    nbformat.validate(notebook)
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"nbgrader"}
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None
            lines = cell.source.split("\n")
            fits = len(lines) <= LINES and max(map(len, lines)) <= COLUMNS
            assert fits or "nbgrader" in cell.metadata, cell.id
    words = 0
    for cell in released[lab.name].cells:
        if cell.cell_type == "code" or cell.id.startswith("written-"):
            words = 0
            continue
        lines = cell.source.split("\n")
        prose = [line for line in lines if not line.startswith(("|", "    ", "```"))]
        words += len(" ".join(prose).split())
        assert words <= WORDS, f"{cell.id}: {words} words without a pause"
