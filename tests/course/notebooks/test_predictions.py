"""Predictions and the end of a lab: recorded in the project, and compared with the outcome."""

import json
import re

import nbformat
import pytest
from test_notebooks import answer, finished

from labkit.author.owned_cells import notebook_path, read_notebook
from labkit.course import sealed
from labkit.course.syllabus import LABS, NOTEBOOKS, PREDICTIONS, find_lab
from labkit.learner import record
from labkit.learner.progress import predictions
from labkit.learner.project import notebook_file, reset

ALL = sum(exercise.points for exercise in LABS[0].exercises)
CORE = sum(exercise.points for exercise in LABS[0].exercises if exercise.core)
TOLD = re.compile(r'(?:show\(\w+, |outcome\()"(\d+\.[\w-]+)"[,)]')


@pytest.mark.parametrize("lab", NOTEBOOKS, ids=lambda lab: lab.name)
def test_each_prediction_is_asked_for_once_and_told_once_and_later(lab):
    cells = read_notebook(notebook_path(lab)).cells
    asked, told = [], []
    for at, cell in enumerate(cells):
        asked += [(name, at) for name in re.findall(r'predict\("(.+?)", ""\)', cell.source)]
        told += [(name, at) for name in TOLD.findall(cell.source) if name in PREDICTIONS]
    names = sorted(lab.predictions)
    assert names == sorted(name for name, _ in asked) == sorted(name for name, _ in told)
    for name, at in asked:
        assert at < dict(told)[name]
        prompt = cells[at - 1]
        assert prompt.cell_type == "markdown" and "**Predict, then run" in prompt.source, name


def test_a_choice_is_kept_and_told_beside_what_came_out(run, package):
    other = 'predict("1.why", "{}")'.format
    assert run(other("")).startswith("Choose first, then run: put a, b or c between")
    assert "Prediction 1.why you made none was c" in run('outcome("1.why")')
    assert "There is no choice 'x' here. There is a, about 7;" in run(other("x"))
    assert not (package.parent / "progress.json").exists()
    assert run(other("A")) == "You say a, about 7. Run on and see."
    run(other("b"))  # a change of mind, before the outcome
    said = run('outcome("1.why")')
    assert "otherwise than you said" in said
    assert "said b, about 40 was c, above 200 why 1.1 to the 60th" in said
    assert run(other("c")) == "Your prediction was b, and it counts: the outcome was told."
    assert "is it 1.why?" in run('outcome("1.way")')
    run('predict("1.living", "a")')
    said = run('outcome("1.living", "what the cell shows")')
    assert said.index("as you said") and "what the cell shows" in said
    assert predictions.tally(LABS[0]) == "1 of 5 as you said"


def test_a_lab_begun_anew_forgets_its_predictions_and_keeps_a_copy(run, package):
    for name in ("1.why", "2.why"):
        run(f'predict("{name}", "a")')
    lab, exercises = reset.find_exercises("rmsnorm")
    assert reset.find_changes(lab, exercises[:1]) == []
    backup = reset.write_changes(reset.find_changes(lab, exercises))
    assert [*record.remembered(record.PREDICTIONS)] == ["2.why"]
    assert "1.why" in (backup / "progress.json").read_text()


def test_a_figure_tells_the_outcome_of_its_name(run):
    run("import matplotlib.pyplot as plt; from labkit.learner.figures.drawing import show")
    run('predict("1.cloud", "c")')
    assert run('show(plt.figure(), "1.cloud")').endswith("only a sign is left.")
    assert "Prediction" not in run('show(plt.figure(), "1.circle")')


def test_the_end_of_a_lab_sums_it_up(run, package):
    said = run('finish("rmsnorm")')
    assert f"0 of {ALL:g} points" in said and "said predictions: none made" in said
    run(answer("1.1"))
    run(answer("1.2"))
    run('predict("1.why", "c")')  # right, and can be changed until the outcome is shown
    said = run('finish("rmsnorm")')
    assert "Lab 01 Normalization" in said and f"{CORE:g} of {ALL:g} points" in said
    assert "ok 1.1 layer_norm | 1.2 RMSNorm open 1.3 residual (stretch): not started" in said
    assert "said predictions: 0 of 5 as you said" in said
    assert "write 1.a, 1.b, 1.c: 6 points more" in said
    assert "next `tinyllm submit rmsnorm` packs what you hand in; then lab 02" in said
    minutes = find_lab("rope").minutes
    assert said.endswith(f"02_rope.ipynb, {minutes} minutes of core exercises")
    assert "that was the last lab" in run(f'finish("{NOTEBOOKS[-1].module}")')


def test_the_map_knows_what_has_passed_until_it_is_changed(run, package):
    for name in ("1.1", "1.2"):
        run(answer(name))
    assert record.passed_labs() == frozenset()
    run('check("1.1"), check("1.2")')
    assert record.passed_labs() == {"rmsnorm"}
    run(answer("1.2").replace("wide.square().mean(", "wide.square().sum("))
    assert record.passed_labs() == frozenset()
    (package / "rmsnorm.py").write_text(finished(LABS[0]))
    assert record.passed_labs() == {"rmsnorm"}
    (package / "rmsnorm.py").unlink()
    assert record.passed_labs() == frozenset()


def test_what_cannot_be_read_is_as_if_it_were_not_there(run, package):
    file = package.parent / "progress.json"
    for spoilt in ("", "[1]", '{"passed": 3, "predictions": {"1.why": 5}}', "[" * 100_000):
        file.write_text(spoilt)
        assert record.passed_labs() == frozenset()
        assert "you made none" in run('outcome("1.why")')
        run('predict("1.why", "c")')
        assert "as you said" in run('outcome("1.why")')
        kept = json.loads(file.read_text())["predictions"]["1.why"]
        assert kept == {"choice": "c", "told": True}


def test_a_model_answer_is_shown_once_something_is_written(run, package, monkeypatch):
    assert "Write your own answer to 1.a first" in run('solution("1.a")')
    notebook = read_notebook(notebook_path(LABS[0]))
    path = notebook_file.notebook_path(LABS[0])
    path.parent.mkdir()
    nbformat.write(notebook, path)
    assert "Write your own answer to 1.a first" in run('solution("1.a")')
    cell = next(cell for cell in notebook.cells if cell.id == "written-1-a")
    cell.source = "[5, 5, 5, 5]: zeros, and ones"
    nbformat.write(notebook, path)
    shown = run('solution("1.a")')
    assert "A model answer to 1.a." in shown and "[3, 3, 3, 3]" in shown
    assert "2 points" not in shown and "Write your own answer to 1.b" in run('solution("1.b")')
    assert "still empty in the saved notebook: 1.b, 1.c" in run('finish("rmsnorm")')
    monkeypatch.setattr(sealed, "is_sealed", lambda path: True)
    assert "the model answers of lab 01 are sealed" in run('solution("1.a")')
    assert "the answers of lab 01 are sealed" in run('solution("1.1")')
    for exercise in ("1.1", "1.2"):
        run(answer(exercise))
        assert "passed" in run(f'check("{exercise}")')
    assert "torch.rsqrt" in run('solution("1.1")')  # the core passes, so the code may be shown
    assert "the model answers of lab 01 are sealed" in run('solution("1.a")')
    assert "shows a model answer" not in run('finish("rmsnorm")')
