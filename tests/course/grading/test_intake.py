"""Odd notebooks and odd cells: honest answers lose nothing, and nothing stops the judge."""

import copy
import inspect
import json

import nbformat
import pytest

from labkit.author.reference import reference_block
from labkit.core import cells
from labkit.core.syllabus import LABS, find_lab
from labkit.grading.judge.intake import MAX_CELL, cell_called, rebuild
from labkit.grading.judge.judge import Judge, laid_over
from labkit.grading.judge.sandbox import GradingError
from labkit.grading.judge.worker_client import ExpectedCalls
from labkit.grading.sample_class import encoded, solved

LAB = LABS[0]
FIRST, SECOND, THIRD = LAB.exercises
FULL = [exercise.points for exercise in LAB.exercises]


def right(exercise):
    return cells.plain(reference_block(LAB, exercise))


@pytest.fixture
def perfect(released):
    return solved(released[LAB.name], LAB)


def scores(judges, notebook):
    data = notebook if isinstance(notebook, bytes) else encoded(notebook)
    return [graded.score for graded in judges[LAB.name].grade(data).exercises]


def cell(notebook, exercise=FIRST):
    return cell_called(notebook, exercise.answer_cell)


HARMLESS = {
    "a future import": lambda text: text.replace(
        "\n", "\nfrom __future__ import annotations\n", 1
    ),
    "a magic on top": lambda text: "%%time\n" + text,
    "a shell line": lambda text: text + "\n!ls -la\n",
    "a question": lambda text: text + "\nlayer_norm?\n",
    "its own check": lambda text: text + '\ncheck("1.1")\nhint("1.1")\n',
    "a trial": lambda text: text + "\nprint(layer_norm(torch.ones(2, 3), 1.0, 0.0))\n",
    "windows lines": lambda text: text.replace("\n", "\r\n"),
    "a byte order mark": lambda text: "\ufeff" + text,
    "tabs": lambda text: text.replace("    ", "\t"),
    "no directive": lambda text: text.split("\n", 1)[1],
    "the directive of another exercise": lambda text: text.replace(
        "exercise 1.1", "exercise 1.2"
    ),
    "the stub's last line left": lambda text: (
        text
        + '\n    # YOUR CODE HERE\n    raise NotImplementedError("Exercise 1.1: layer_norm")\n'
    ),
    "code before the directive": lambda text: "import math\n\n" + text,
}


@pytest.mark.parametrize("edit", HARMLESS.values(), ids=HARMLESS)
def test_harmless_additions_cost_nothing(judges, perfect, edit):
    cell(perfect).source = edit(cell(perfect).source)
    assert scores(judges, perfect) == FULL


def _pasted_twice(notebook):
    for exercise in LAB.exercises:
        notebook.cells.append(copy.deepcopy(cell(notebook, exercise)))
    return notebook


def _without_metadata(notebook):
    notebook.metadata.clear()
    for one in notebook.cells:
        one.metadata.clear()
    return notebook


def _without_directives(notebook):
    for exercise in LAB.exercises:
        cell(notebook, exercise).source = cell(notebook, exercise).source.split("\n", 1)[1]
    return notebook


def _by_way_of_a_script(notebook):
    """To a .py with percent cells and back: plain cells without ids, metadata and Markdown."""
    code = [one.source for one in notebook.cells if one.cell_type == "code"]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in code])
    for one in made.cells:
        one.pop("id")
    made.nbformat_minor = 2
    return made


def _format_4_0(notebook):
    for one in notebook.cells:
        one.pop("id")
    notebook.nbformat_minor = 0
    return notebook


def _merged(notebook):
    first, rest = cell(notebook), [cell(notebook, exercise) for exercise in LAB.exercises[1:]]
    for one in rest:
        first.source += "\n\n" + one.source
        notebook.cells.remove(one)
    return notebook


def _shuffled(notebook):
    notebook.cells = notebook.cells[::-1]
    return notebook


def _without_locked_cells(notebook):
    notebook.cells = [
        one for one in notebook.cells if not one.metadata.get("nbgrader", {}).get("locked")
    ]
    return notebook


def _same_ids(notebook):
    for one in notebook.cells:
        one.id = "same"
    return notebook


def _ten_megabytes_of_output(notebook):
    text = nbformat.v4.new_output("stream", name="stdout", text="loss 0.1\n" * 1_200_000)
    cell(notebook).outputs = [text]
    return notebook


def _widgets_and_attachments(notebook):
    state = {"state": {f"{i:032x}": {"model_name": "IntSliderModel"} for i in range(300)}}
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": state}
    picture = {"image/png": "iVBORw0KGgo" * 1000}
    note = nbformat.v4.new_markdown_cell("![mine](attachment:mine.png)")
    note.attachments = {"mine.png": picture}
    notebook.cells.insert(3, note)
    return notebook


def _colab(notebook):
    notebook.metadata["colab"] = {"provenance": [], "gpuType": "T4"}
    notebook.metadata["accelerator"] = "GPU"
    for number, one in enumerate(notebook.cells):
        one.metadata["id"] = f"aB{number}"
        one.metadata["colab"] = {"base_uri": "https://localhost:8080/"}
        one.pop("id")
    notebook.nbformat_minor = 0
    mount = "from google.colab import drive\ndrive.mount('/content/drive')"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(mount))
    return notebook


def _vs_code(notebook):
    notebook.metadata["language_info"] = {"name": "python", "version": "3.12.1"}
    for number, one in enumerate(notebook.cells):
        one.metadata["vscode"] = {"languageId": "python"}
        one.id = f"X{number:08d}"  # VS Code makes ids of its own
    return notebook


def _own_cells(notebook):
    for place in range(len(notebook.cells), 0, -3):
        text = "x = torch.randn(3)\n%timeit x.sum()"
        notebook.cells.insert(place, nbformat.v4.new_code_cell(text))
    return notebook


def _renamed_ids(notebook):
    """nbgrader's marks kept, the cells' own ids made anew, as some editors do."""
    for number, one in enumerate(notebook.cells):
        one.id = f"cell-{number}"
    return notebook


def _accents(notebook):
    one = cell(notebook)
    one.source += "\n# \u00e9t\u00e9, \u201cfini\u201d \u20ac\n"
    return json.dumps(notebook, ensure_ascii=False)


HONEST = {
    "pasted twice": _pasted_twice,
    "no metadata at all": _without_metadata,
    "no directives": _without_directives,
    "by way of a script": _by_way_of_a_script,
    "format 3": lambda notebook: nbformat.writes(nbformat.v3.downgrade(notebook), version=3),
    "format 4.0": _format_4_0,
    "merged cells": _merged,
    "cells in reverse": _shuffled,
    "no locked cells": _without_locked_cells,
    "the same id everywhere": _same_ids,
    "new ids": _renamed_ids,
    "ten megabytes of output": _ten_megabytes_of_output,
    "widgets and attachments": _widgets_and_attachments,
    "Colab": _colab,
    "VS Code": _vs_code,
    "cells of their own": _own_cells,
    "a byte order mark": lambda notebook: b"\xef\xbb\xbf" + encoded(notebook),
    "Windows-1252": lambda notebook: _accents(notebook).encode("cp1252", "replace"),
    "UTF-16": lambda notebook: _accents(notebook).encode("utf-16"),
    "line ends of Windows": lambda notebook: encoded(notebook).replace(b"\n", b"\r\n"),
    "old line ends inside": lambda notebook: encoded(notebook).replace(b"\\n", b"\\r\\n"),
    "text in pieces": lambda notebook: nbformat.writes(notebook),
}


@pytest.mark.parametrize("edit", HONEST.values(), ids=HONEST)
def test_honest_notebooks_lose_nothing(released, perfect, edit):
    """Every answer is found, and it is the learner's code, token by token."""
    expected = {exercise.id: cells.fingerprint(right(exercise)) for exercise in LAB.exercises}
    data = edit(perfect)
    if not isinstance(data, bytes):
        data = data.encode() if isinstance(data, str) else encoded(data)
    intake = rebuild(data, released[LAB.name], LAB)
    assert intake.problem is None and not intake.notes
    found = {key: cells.fingerprint(text or "") for key, text in intake.answers.items()}
    assert found == expected


FAULTS = {
    "raises at the end": "layer_norm(torch.ones(2, 3))",
    "imports what is missing": "__import__('a_package_that_is_not_here')",
    "imports the course": "__import__('labkit.learner.notebook')",
    "rebinds torch": "globals().update(torch=None)",
    "loops": "[0 for _ in iter(int, 1)]",
    "is a very long sum": " + ".join(["1"] * 2000),
}


@pytest.fixture(scope="module")
def hurried(workers, released):
    """A judge that gives each exercise two seconds, so that a loop ends soon."""
    return {LAB.name: Judge(LAB, released[LAB.name], b"secret", workers, 2)}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_in_one_cell_costs_no_other_exercise(hurried, perfect, fault):
    cell(perfect, FIRST).source += f"\n\nlayer_norm.more = {fault}\n"
    assert scores(hurried, perfect)[1:] == FULL[1:]


LEFT_BEHIND = {
    "another default dtype": "torch.set_default_dtype(torch.float64)",
    "no loading of weights": "setattr(nn.Module, 'load_state_dict', None)",
    "no modules": "__import__('sys').meta_path.clear()",
}


@pytest.mark.parametrize("fault", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_what_a_right_answer_leaves_behind_costs_no_other_exercise(judges, perfect, fault):
    cell(perfect, FIRST).source += f"\n\nlayer_norm.more = {fault}\n"
    assert scores(judges, perfect) == FULL


def test_right_answers_share_a_process_and_others_have_their_own(judges, perfect, monkeypatch):
    workers, launched = judges[LAB.name].workers, []
    launch = workers.launch
    monkeypatch.setattr(workers, "launch", lambda *a: launched.append(a) or launch(*a))
    assert scores(judges, perfect) == FULL
    assert len(launched) == 1
    launched.clear()
    cell(perfect, SECOND).source = cell(perfect, SECOND).source.replace(".mean(", ".sum(")
    assert scores(judges, perfect)[1] < FULL[1]
    assert len(launched) == 3  # the second exercise once more, alone


def test_the_line_of_an_error_is_ones_own(judges, perfect):
    text = cell(perfect, SECOND).source
    head, body = text.rsplit('"""\n', 1)
    for number in (1, 4):
        lines = "".join(f"        # {k}\n" for k in range(number))
        wrong = body.replace("return", "raise IndexError('off')\n        return")
        cell(perfect, SECOND).source = f'{head}"""\n{lines}{wrong}'
        at = cell(perfect, SECOND).source.split("raise IndexError")[0].count("\n") + 1
        graded = judges[LAB.name].grade(encoded(perfect)).exercises[1]
        assert graded.look == f"it raised IndexError: off (line {at} of your cell)"


def test_a_crash_costs_only_what_comes_after_it(judges, perfect):
    text = cell(perfect, FIRST).source
    body = text.rsplit('"""\n', 1)[1]
    crash = "    if x.dtype == torch.float16:\n        __import__('os')._exit(0)\n"
    cell(perfect, FIRST).source = text.replace(body, crash + body)
    first, *others = scores(judges, perfect)
    assert 0 < first < FULL[0] and others == FULL[1:]


def test_a_slow_answer_has_its_time(judges, perfect, monkeypatch):
    monkeypatch.setattr("labkit.grading.judge.judge.QUICK_SECONDS", 1)
    wait = "RMSNorm.wait = [0 for _ in iter(lambda: time.process_time() - began > 1.5, True)]\n"
    cell(perfect, SECOND).source += f"\n\nimport time\nbegan = time.process_time()\n{wait}"
    assert scores(judges, perfect) == FULL


SHARED = """

import math

TINY = 1e-6


def rms(x, eps):
    return math.sqrt(1.0) * torch.sqrt(x.square().mean(-1, True) + eps)
"""
USES_SHARED = """# %% exercise 1.2: RMSNorm
class RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=TINY):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(hidden_size)), eps

    def forward(self, hidden_states):
        x = hidden_states.float()
        return self.weight * (x / rms(x, self.eps)).to(hidden_states.dtype)
"""
FORBIDDEN = """


def do(x, weight, bias, eps):
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)
"""


def test_helpers_from_other_cells_come_along(judges, perfect):
    cell(perfect, FIRST).source += SHARED
    cell(perfect, SECOND).source = USES_SHARED
    assert scores(judges, perfect) == FULL


def test_two_helpers_of_one_name_do_not_mix(judges, perfect):
    cell(perfect, FIRST).source += "\n\n\ndef square(x):\n    return 0 * x\n"
    text = cell(perfect, SECOND).source.replace("wide.square()", "square(wide)")
    cell(perfect, SECOND).source = text + "\n\n\ndef square(x):\n    return x * x\n"
    assert scores(judges, perfect) == FULL


def test_a_helper_may_not_do_the_exercise_either(judges, perfect):
    cell(perfect, THIRD).source += FORBIDDEN
    cell(perfect, FIRST).source = (
        "# %% exercise 1.1: layer_norm\ndef layer_norm(x, weight, bias, eps=1e-5):\n"
        "    return do(x, weight, bias, eps)\n"
    )
    graded = judges[LAB.name].grade(encoded(perfect)).exercises
    assert [one.score for one in graded] == [0, *FULL[1:]]
    assert "in another cell: F.layer_norm may not be used" in graded[0].look


@pytest.mark.parametrize(
    "call",
    [
        "torch._C._VariableFunctions.layer_norm(x, weight.shape, weight, bias, eps)",
        "getattr(torch, 'layer' + '_norm')(x, weight.shape, weight, bias, eps)",
        "getattr(torch, 'ops').aten.layer_norm(x, weight.shape, weight, bias, eps)",
        "getattr(torch, 'native_' + 'layer_norm')(x, weight.shape, weight, bias, eps)[0]",
        "nn.functional.group_norm(x.reshape(-1, x.shape[-1]), 1, weight, bias, eps).view_as(x)",
    ],
)
def test_what_does_the_exercise_is_refused_by_every_name(judges, perfect, call):
    cell(perfect, FIRST).source = (
        "# %% exercise 1.1: layer_norm\ndef layer_norm(x, weight, bias, eps=1e-5):\n"
        f"    return {call}\n"
    )
    assert scores(judges, perfect)[0] == 0


def test_a_parameter_made_on_the_way_is_a_fault_and_no_crash(judges, perfect):
    text = cell(perfect, SECOND).source
    text = text.replace(
        "wide = hidden_states.float()",
        "wide = hidden_states.float()\n        self.extra = nn.Parameter(torch.ones(1))",
    )
    cell(perfect, SECOND).source = text
    graded = judges[LAB.name].grade(encoded(perfect)).exercises[1]
    assert 0 < graded.score < SECOND.points and not graded.needs_person
    assert "extra too many" in str(graded.report)


def test_an_error_of_the_judge_is_no_verdict(judges, perfect, monkeypatch):
    def broken(module, exercise, answer):
        if "of this learner" in answer or fails_for_all:
            raise ZeroDivisionError
        return laid_over(module, exercise, answer)

    fails_for_all = False
    monkeypatch.setattr("labkit.grading.judge.judge.laid_over", broken)
    cell(perfect, FIRST).source += "\n# of this learner"
    with pytest.raises(ZeroDivisionError):
        judges[LAB.name].grade(encoded(perfect))
    fails_for_all = True
    with pytest.raises(GradingError, match="even at the reference"):
        judges[LAB.name].grade(encoded(perfect))


def test_a_derived_exception_is_the_exception(judges, perfect):
    text = cell(perfect, THIRD).source.replace("raise ValueError", "raise Unknown")
    cell(perfect, THIRD).source = text + "\n\n\nclass Unknown(ValueError):\n    pass\n"
    assert scores(judges, perfect) == FULL


def test_options_for_pytest_change_no_score(judges, perfect, monkeypatch):
    text = cell(perfect, FIRST).source.replace(" + eps)", ")")
    cell(perfect, FIRST).source = text
    before = scores(judges, perfect)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-x")
    assert scores(judges, perfect) == before and 0 < before[0] < FULL[0]


def test_no_worker_holds_a_reference_that_is_still_to_be_graded(judges):
    judge = judges[LAB.name]
    for exercise in LAB.exercises:
        module = judge.packages[exercise.id][LAB.module]
        for other in LAB.exercises:
            block = cells.block(module, other.id)
            assert (cells.TODO in block) == (other.id >= exercise.id)


ODD_FILES = {
    "empty": b"",
    "json, no cells": b"{}",
    "a list": b"[1, 2]",
    "a number": b"7",
    "deeply nested": b"[" * 100_000,
    "cells is no list": b'{"cells": 3, "nbformat": 4}',
    "cells of anything": b'{"cells": [1, null, "x", {"source": 5}, {"source": [1, "a"]}]}',
    "metadata is a list": b'{"cells": [{"cell_type": "code", "metadata": [], "source": "x"}]}',
    "nul bytes": b'{"cells": [{"source": "# %% exercise 1.1\\u0000"}]}',
    "a lone surrogate": b'{"cells": [{"source": "# %% exercise 1.1\\nx = \\"\\ud800\\""}]}',
    "not unicode": b"\xff\xfe{\x00}\x00",
    "an old format": b'{"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": "?"}',
    "a huge cell": json.dumps(
        {"cells": [{"source": "# %% exercise 1.1\n" + "#" * (MAX_CELL + 1)}]}
    ).encode(),
}


@pytest.mark.parametrize("data", ODD_FILES.values(), ids=ODD_FILES)
def test_any_bytes_get_a_verdict(judges, released, data):
    submission = judges[LAB.name].grade(data)
    assert submission.score == 0
    assert all(graded.look for graded in submission.exercises)
    nbformat.validate(rebuild(data, released[LAB.name], LAB).notebook)


def test_the_last_filled_copy_counts_and_is_mentioned(judges, perfect):
    first = cell(perfect)
    wrong = copy.deepcopy(first)
    wrong.source = wrong.source.replace("+ bias", "- bias")
    place = perfect.cells.index(first)
    perfect.cells.insert(place, wrong)
    submission = judges[LAB.name].grade(encoded(perfect))
    assert submission.score == sum(FULL)
    one, two = place + 1, place + 2
    text = " ".join(str(submission.exercises[0].report).split())
    assert f"2 cells answer this exercise, {one} and {two}; the last one, {two}, counts" in text


def test_written_answers_are_kept_and_locked_cells_are_not(released, perfect):
    typed = "because x<y and `list<int>`, not a <b>guess</b>"
    cell_called(perfect, "written-1-a").source = typed
    cell_called(perfect, "check-1-1").source = "4.0"
    intake = rebuild(encoded(perfect), released[LAB.name], LAB)
    assert cell_called(intake.notebook, "written-1-a").source == typed
    assert cell_called(intake.notebook, "check-1-1").source == 'check("1.1")'


def test_grading_leaves_the_released_notebook_as_it_is(judges, perfect):
    before = copy.deepcopy(judges[LAB.name].released)
    judges[LAB.name].grade(encoded(perfect))
    assert judges[LAB.name].released == before


def test_the_interrupt_of_a_person_is_passed_on(judges, perfect, monkeypatch):
    judge = judges[LAB.name]

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(judge, "right", {})  # so that something is compared
    monkeypatch.setattr(judge.oracle, "reference", interrupted)
    with pytest.raises(KeyboardInterrupt):
        judge.grade(encoded(perfect))


HOLDS = Judge._holds_elsewhere


def test_right_answers_are_tried_with_numbers_of_their_own(judges, perfect, monkeypatch):
    tried = []
    monkeypatch.setattr(Judge, "_holds_elsewhere", lambda *a: tried.append(a) or HOLDS(*a))
    assert scores(judges, perfect) == FULL and len(tried) == len(FULL)


def test_a_verdict_is_remembered_only_if_all_that_was_asked_was_foreseen(
    workers, released, perfect
):
    judge = Judge(LAB, released[LAB.name], b"s", workers)
    plans = judge.plans
    judge.plans = {key: ExpectedCalls() for key in plans}
    assert scores({LAB.name: judge}, perfect) == FULL and not judge.right
    judge.plans = plans
    assert scores({LAB.name: judge}, perfect) == FULL and len(judge.right) == len(FULL)


def test_answers_learnt_by_heart_earn_nothing(workers, released, perfect, monkeypatch):
    """Somebody has read all numbers of a run and hands in a table of right answers."""
    judge, first, table = Judge(LAB, released[LAB.name], b"s", workers), LAB.exercises[0], {}

    def noted(call):
        outcome = judge.oracle.reference(call)
        for (_, inputs), value in zip(call.steps, outcome.values, strict=True):
            table[key_of(**inputs)] = (value.tolist(), str(value.dtype))
        return outcome

    judge._check(first, noted)
    by_heart = (
        f"import torch\n\n\n{inspect.getsource(key_of)}\n\nTABLE = {table!r}\n{LOOKED_UP}"
    )
    intake = rebuild(encoded(perfect), released[LAB.name], LAB)
    intake.answers[first.id] = by_heart
    with monkeypatch.context() as trusting:
        trusting.setattr(Judge, "_holds_elsewhere", lambda *_: True)
        assert judge.grade_exercise(first, intake).score > 0.5 * first.points
    assert judge.grade_exercise(first, intake).score == 0


def test_a_table_in_another_cell_of_the_submission_earns_nothing(
    workers, released, monkeypatch
):
    """The cell of 2.2 never changes. It looks for answers where that of 2.1, which ran in the
    same process before, has left all that was asked in an earlier run, in both rounds."""
    lab, read = find_lab("rope"), {}
    judge, (first, second, *_) = Judge(lab, released[lab.name], b"s", workers), lab.exercises

    def noted(call):
        outcome = judge.oracle.reference(call)
        if call.symbol == "rotate_half":
            for (_, inputs), value in zip(call.steps, outcome.values, strict=True):
                read[key_of(**inputs)] = (value.tolist(), str(value.dtype))
        return outcome

    def graded(table):
        intake = rebuild(encoded(solved(released[lab.name], lab)), released[lab.name], lab)
        intake.answers[first.id] += f"\n\nimport builtins\nbuiltins.TABLE = {table!r}\n"
        intake.answers[second.id] = f"{inspect.getsource(key_of)}\n{LEFT_ELSEWHERE}"
        try:
            return [judge.grade_exercise(each, intake).score for each in (first, second)]
        finally:
            judge._end_worker()

    with monkeypatch.context() as reading:
        reading.setattr(Judge, "_student", lambda *_: noted)
        assert graded({}) == [first.points, second.points] and read
    judge.right.clear()
    of_first, of_second = graded(read)
    assert of_first == first.points and of_second <= second.points / 10  # for its gradients


LEFT_ELSEWHERE = """
import builtins


def rotate_half(x):
    if x.requires_grad:  # gradients are beyond a table
        return torch.cat((-x[..., x.size(-1) // 2 :], x[..., : x.size(-1) // 2]), dim=-1)
    numbers, dtype = builtins.TABLE[key_of(x)]
    return torch.tensor(numbers, dtype=getattr(torch, dtype.removeprefix("torch.")))
"""


def key_of(x, eps=1e-5, **_):
    return f"{x.double().sum().item():.6f} {tuple(x.shape)} {x.dtype} {eps}"


LOOKED_UP = """

def layer_norm(x, weight, bias=None, eps=1e-5):
    numbers, dtype = TABLE[key_of(x, eps)]
    return torch.tensor(numbers, dtype=getattr(torch, dtype.removeprefix("torch.")))
"""
