"""Odd notebooks and odd cells: honest answers lose nothing, and nothing stops the judge."""

import copy
import inspect
import json
import sys

import nbformat
import pytest

from labkit.author.reference import reference_block
from labkit.checks.runner import run_checks
from labkit.course import cells
from labkit.course.lang import speaking
from labkit.course.report import Report, Status
from labkit.course.syllabus import LABS, find_lab
from labkit.grading.judge.intake import cell_called, rebuild
from labkit.grading.judge.judge import Judge
from labkit.grading.judge.questions import checks_of
from labkit.grading.judge.submitted_code import SubmittedCode
from labkit.grading.nbgrader.graded_notebook import graded_notebook, written_by_place
from labkit.grading.sample_class import encoded, solved
from labkit.sandbox.inside.wire import decode_call
from labkit.sandbox.launch import Answers, Worker
from tests.course.grading.samples import judged

LAB = LABS[0]
FIRST, SECOND, THIRD, *_ = LAB.exercises
FULL = [exercise.points for exercise in LAB.exercises]


def right(exercise):
    return cells.plain(reference_block(LAB, exercise))


@pytest.fixture
def perfect(released):
    return solved(released[LAB.name], LAB)


@pytest.fixture(scope="module")
def hurried(workers, released):
    """A judge that gives each exercise two seconds, so that a loop ends soon."""
    return Judge(LAB, released[LAB.name], b"secret", workers, 2)


def cell(notebook, exercise=FIRST):
    return cell_called(notebook, exercise.answer_cell)


def graded(judge, notebook):
    judge = judge[LAB.name] if isinstance(judge, dict) else judge
    return judge.grade(notebook if isinstance(notebook, bytes) else encoded(notebook)).exercises


def scores(judge, notebook):
    return [verdict.score for verdict in graded(judge, notebook)]


def changed(notebook, exercise=FIRST, more="", replace=()):
    """A copy in which something was added to an answer, or replaced in it."""
    notebook = copy.deepcopy(notebook)
    text = cell(notebook, exercise).source
    for old, new in [replace] if replace else []:
        assert old in text
        text = text.replace(old, new)
    cell(notebook, exercise).source = text + more
    return notebook


# Notebooks as programs save them; forms.py has odd contents of cells


def each_cell(change, **metadata):
    """An edit of all cells, and of the notebook's metadata."""

    def edit(notebook):
        for number, one in enumerate(notebook.cells):
            change(one, number)
        notebook.metadata.update(metadata)
        if "id" not in notebook.cells[0]:
            notebook.nbformat_minor = 0
        return notebook

    return edit


def without_metadata(one, number):
    one.metadata.clear()


def of_colab(one, number):
    one.pop("id")
    one.metadata |= {"id": f"aB{number}", "colab": {"base_uri": "https://localhost:8080/"}}


def of_vs_code(one, number):
    one.metadata["vscode"] = {"languageId": "python"}
    one.id = f"X{number:08d}"  # VS Code makes new ids; nbgrader's marks are kept


def _by_way_of_a_script(notebook):
    """To a .py with percent cells and back: plain cells without ids, metadata and Markdown."""
    code = [one.source for one in notebook.cells if one.cell_type == "code"]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in code])
    return each_cell(lambda one, _: one.pop("id"))(made)


def _without_locked_cells_and_reversed(notebook):
    notebook.cells = [
        one for one in notebook.cells if not one.metadata.get("nbgrader", {}).get("locked")
    ][::-1]
    return notebook


def _large(notebook):
    """Ten megabytes of output, widgets, an attachment."""
    text = nbformat.v4.new_output("stream", name="stdout", text="loss 0.1\n" * 1_200_000)
    cell(notebook).outputs = [text]
    state = {"state": {f"{i:032x}": {"model_name": "IntSliderModel"} for i in range(300)}}
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": state}
    note = nbformat.v4.new_markdown_cell("![mine](attachment:mine.png)")
    note.attachments = {"mine.png": {"image/png": "iVBORw0KGgo" * 1000}}
    notebook.cells.insert(3, note)
    return notebook


def _accents(notebook):
    cell(notebook).source += "\n# \u00e9t\u00e9, \u201cfini\u201d \u20ac\n"
    return json.dumps(notebook, ensure_ascii=False)


def _marks(notebook):
    """A byte order mark and the directive of another exercise in a cell with its own id."""
    one = cell(notebook)
    one.source = "\ufeff" + one.source.replace("exercise 1.1", "exercise 1.2")
    return notebook


HONEST = {
    "no metadata at all": each_cell(without_metadata),
    "by way of a script": _by_way_of_a_script,
    "format 4.0": each_cell(lambda one, _: one.pop("id")),
    "no locked cells, in reverse": _without_locked_cells_and_reversed,
    "the same id everywhere": each_cell(lambda one, _: setattr(one, "id", "same")),
    "large": _large,
    "Colab": each_cell(of_colab, colab={"gpuType": "T4"}, accelerator="GPU"),
    "VS Code": each_cell(of_vs_code, language_info={"name": "python", "version": "3.12.1"}),
    "marks": _marks,
    "a byte order mark": lambda notebook: b"\xef\xbb\xbf" + encoded(notebook),
    "Windows-1252": lambda notebook: _accents(notebook).encode("cp1252", "replace"),
    "UTF-16": lambda notebook: _accents(notebook).encode("utf-16"),
    "line ends of Windows": lambda notebook: encoded(notebook).replace(b"\n", b"\r\n"),
    "old line ends inside": lambda notebook: encoded(notebook).replace(b"\\n", b"\\r\\n"),
    "text in pieces": lambda notebook: nbformat.writes(notebook),
}


def test_honest_notebooks_lose_nothing(released, perfect):
    """Every answer is found, and it is the learner's code, token by token."""
    expected = {exercise.id: cells.fingerprint(right(exercise)) for exercise in LAB.exercises}
    for name, edit in HONEST.items():
        data = edit(copy.deepcopy(perfect))
        if not isinstance(data, bytes):
            data = data.encode() if isinstance(data, str) else encoded(data)
        intake = rebuild(data, released[LAB.name], LAB)
        assert intake.problem is None and not intake.notes, name
        found = {key: cells.fingerprint(text or "") for key, text in intake.answers.items()}
        assert found == expected, name


FAULTS = {
    "raises at the end": "layer_norm(torch.ones(2, 3))",
    "imports what is missing": "__import__('a_package_that_is_not_here')",
    "imports the course": "__import__('labkit.learner.notebook')",
    "rebinds torch": "globals().update(torch=None)",
    "loops": "[0 for _ in iter(int, 1)]",
    "is a very long sum": " + ".join(["1"] * 2000),
}
LEFT_BEHIND = {
    "another default dtype": "torch.set_default_dtype(torch.float64)",
    "no loading of weights": "setattr(nn.Module, 'load_state_dict', None)",
    "no modules": "__import__('sys').meta_path.clear()",
}


def test_what_one_cell_does_costs_no_other_exercise(hurried, judges, perfect):
    """Neither an error nor the leftovers of a right answer cost another exercise points."""
    for name, fault in FAULTS.items():
        notebook = changed(perfect, FIRST, f"\n\nlayer_norm.more = {fault}\n")
        first, *others = graded(hurried, notebook)
        assert [verdict.score for verdict in others] == FULL[1:], name
        assert name != "loops" or "more than 2 seconds of CPU time" in first.look
    for name, fault in LEFT_BEHIND.items():
        notebook = changed(perfect, FIRST, f"\n\nlayer_norm.more = {fault}\n")
        assert scores(judges, notebook) == FULL, name


def test_a_crash_costs_only_what_comes_after_it(judges, perfect):
    body = cell(perfect).source.rsplit('"""\n', 1)[1]
    crash = "    if x.dtype == torch.float16:\n        __import__('os')._exit(0)\n"
    first, *others = scores(judges, changed(perfect, replace=(body, crash + body)))
    assert 0 < first < FULL[0] and others == FULL[1:]


def test_the_line_of_an_error_is_that_of_the_cell(judges, perfect):
    head, body = cell(perfect, SECOND).source.rsplit('"""\n', 1)
    lines = "".join(f"        # {k}\n" for k in range(4))
    wrong = body.replace("return", "raise IndexError('off')\n        return")
    cell(perfect, SECOND).source = f'{head}"""\n{lines}{wrong}'
    at = cell(perfect, SECOND).source.split("raise IndexError")[0].count("\n") + 1
    look = graded(judges, perfect)[1].look
    assert look == f"it raised IndexError: off (line {at} of your cell)"


def test_faults_and_exceptions_of_a_learners_own_are_verdicts(judges, perfect):
    wide = "wide = hidden_states.float()"
    made = (wide, wide + "\n        self.extra = nn.Parameter(torch.ones(1))")
    verdict = graded(judges, changed(perfect, SECOND, replace=made))[1]
    assert 0 < verdict.score < SECOND.points and not verdict.needs_person
    assert "extra too many" in str(verdict.report)
    derived = "\n\n\nclass Unknown(ValueError):\n    pass\n"
    notebook = changed(perfect, THIRD, derived, ("raise ValueError", "raise Unknown"))
    assert scores(judges, notebook) == FULL


BODY = """(x, weight, bias, eps=1e-5):
    wide = x.float()
    mean, var = wide.mean(-1, True), wide.var(-1, correction=0, keepdim=True)
    return ((wide - mean) * torch.rsqrt(var + eps)).to(x.dtype) * weight + bias
"""
# Right answers whose form costs the points: the code, and words for learner and teacher
FORMS = {
    f"def layer_norm{BODY}": "",
    f"def layer_norm[T: Tensor]{BODY}": "SyntaxError",
    f"type Vec = Tensor\ndef layer_norm{BODY}": "SyntaxError",
    f"""def layer_norm{BODY}\nprint(f"{{"done"}}")\n""": "SyntaxError",
    f"def layer_norm{BODY}<<<<<<< HEAD\n=======\n>>>>>>> theirs\n": "a git merge was not",
    f"def layer_norm{BODY.replace('x.float()', 'x.float().cuda()')}": "grading has no GPU",
    f"from typing import no_such\n\n@no_such\ndef layer_norm{BODY}": "cannot import name",
    "from my_norm import layer_norm\n": "`my_norm` is neither a package nor a file",
}


def test_what_form_alone_costs_is_told_by_its_name_and_asked_about(judges, perfect):
    for text, words in FORMS.items():
        cell(perfect).source = f"# %% exercise 1.1: layer_norm\n{text}"
        verdict = graded(judges, perfect)[0]
        is_read = not words or (words == "SyntaxError" and sys.version_info >= (3, 12))
        assert verdict.full is is_read and verdict.needs_person is not is_read, text
        report = " ".join(str(verdict.report).split())
        assert is_read or words in report, (text, report)
        assert "typing.py" not in report


def test_a_text_above_its_question_is_asked_about(judges, perfect, released):
    question = cell_called(perfect, LAB.questions[0].answer_cell)
    place = perfect.cells.index(question) - 1
    perfect.cells.insert(place, nbformat.v4.new_markdown_cell("Since no mean comes off."))
    for answer, expected in ((cells.EMPTY_ANSWER, [place + 1]), ("Since...", [])):
        question.source = answer
        data = encoded(perfect)
        frame = rebuild(data, released[LAB.name], LAB).notebook
        assert written_by_place(data, frame, LAB)[1] == expected
        done = graded_notebook(data, released[LAB.name], LAB, judged())
        shown = [cell_called(done, q.answer_cell).source for q in LAB.questions]
        assert ("Since no mean comes off." in shown[0]) is bool(expected)


NAMES = {  # finished functions, and whether they are refused; else a person is asked to look
    "F.group_norm(x.reshape(-1, x.shape[-1]), 1, weight, bias, eps).view_as(x)": True,
    "getattr(torch, 'layer' + '_norm')(x, weight.shape, weight, bias, eps)": True,
    "getattr(torch, 'native_' + 'layer_norm')(x, weight.shape, weight, bias, eps)[0]": True,
    "torch._C._VariableFunctions.layer_norm(x, weight.shape, weight, bias, eps)": False,
    "getattr(torch, 'ops').aten.layer_norm(x, weight.shape, weight, bias, eps)": False,
    "torch._refs.native_layer_norm(x, weight.shape, weight, bias, eps)[0]": False,
}


def test_a_finished_function_is_refused_or_shown_to_a_person(judges, perfect):
    for call, is_refused in NAMES.items():
        text = f"def layer_norm(x, weight, bias, eps=1e-5):\n    return {call}\n"
        cell(perfect).source = "# %% exercise 1.1: layer_norm\n" + text
        verdict = graded(judges, perfect)[0]
        assert (verdict.score == 0) is is_refused, call
        assert is_refused or (verdict.share > 0.8 and verdict.doubtful), call


def test_errors_alone_earn_nothing(judges, released):
    lab = find_lab("rope")
    stub = (
        "# %% exercise 2.8\nclass LearnedPositions(nn.Module):\n    def __init__(self, *_):\n"
    )
    raising = stub + "        super().__init__()\n    def forward(self, *_, **__):\n"
    notebook = solved(released[lab.name], lab)
    cell(notebook, lab.exercise("2.8")).source = raising + "        raise ValueError\n"
    verdicts = {each.id: each for each in judges[lab.name].grade(encoded(notebook)).exercises}
    assert verdicts["2.8"].score == 0


def test_a_comment_imports_nothing(workers, released):
    lab = find_lab("training")
    judge, exercise = Judge(lab, released[lab.name], b"s", workers), lab.exercise("8.2")
    module = judge.packages[exercise.id][lab.module] + "\n# from .gqa import x\n"
    assert "gqa" not in judge._request(SubmittedCode(exercise, module, ())).compiled


def test_two_helpers_of_one_name_do_not_mix(judges, perfect):
    other = "\n\n\ndef square(x):\n    return {} * x\n"
    notebook = changed(perfect, FIRST, other.format(0))
    called = ("wide.square()", "square(wide)")
    assert scores(judges, changed(notebook, SECOND, other.format("x"), called)) == FULL


def test_no_worker_holds_a_reference_that_is_still_to_be_graded(judges):
    judge = judges[LAB.name]
    for exercise in LAB.exercises:
        module = judge.packages[exercise.id][LAB.module]
        for other in LAB.exercises:
            block = cells.block(module, other.id)
            is_ahead = other.id >= exercise.id
            is_right = cells.fingerprint(block) == cells.fingerprint(right(other))
            assert is_right is not is_ahead and "###" not in block
            # a hunt begins with its bug
            assert (cells.TODO in block) == (is_ahead and not other.hunt)


def with_reports(notebook, *texts, name="text/plain"):
    """A copy with these outputs below its first check."""
    notebook = copy.deepcopy(notebook)
    check = cell_called(notebook, FIRST.check_cell)
    make = nbformat.v4.new_output
    check.outputs = [make("execute_result", data={name: text}) for text in texts]
    return notebook


def test_a_blank_cell_whose_check_passed_is_put_before_a_person(judges, released, perfect):
    blank, judge = released[LAB.name], judges[LAB.name]
    passed = str(Report(FIRST.heading, Status.PASSED, [], "passed, 4 of 4 points"))
    found = graded(judge, with_reports(blank, passed))
    assert [e.needs_person for e in found] == [True] + [False] * (len(FULL) - 1)
    assert found[0].score == 0 and found[0].status is Status.NOT_STARTED
    assert found[0].reason == (
        "not started; but its check printed passed: the answer was perhaps only in "
        "tinyllm/rmsnorm.py"
    )
    with speaking("zh"):
        spoken = str(Report(FIRST.heading, Status.PASSED))
    assert graded(judge, with_reports(blank, "4", spoken))[0].needs_person
    lost = copy.deepcopy(blank)
    lost.cells.remove(cell(lost))
    assert graded(judge, with_reports(lost, passed))[0].needs_person
    for text in (str(Report(FIRST.heading, Status.NOT_YET)), str(Report(SECOND.heading,
                 Status.NOT_STARTED)), FIRST.heading):  # fmt: skip
        assert not graded(judge, with_reports(blank, text))[0].needs_person
    wrong = changed(perfect, replace=("+ eps", "+ 2 * eps"))
    # the cell is not blank
    assert not graded(judge, with_reports(wrong, passed))[0].needs_person
    odd = json.loads(encoded(with_reports(blank, passed)))
    for outputs in (7, [7], [{"data": 7}], [{"data": {"text/plain": [7]}, "text": {}}]):
        for one in odd["cells"]:
            one["outputs"] = outputs
        assert not graded(judge, json.dumps(odd).encode())[0].needs_person


def test_written_answers_are_kept_and_locked_cells_are_not(released, perfect):
    typed = "because x<y and `list<int>`, not a <b>guess</b>"
    cell_called(perfect, "written-1-a").source = typed
    cell_called(perfect, "check-1-1").source = "4.0"
    intake = rebuild(encoded(perfect), released[LAB.name], LAB)
    assert cell_called(intake.notebook, "written-1-a").source == typed
    assert cell_called(intake.notebook, "check-1-1").source == 'check("1.1")'


def test_answers_learnt_by_heart_earn_nothing(workers, released, perfect, monkeypatch):
    """Somebody has read all numbers of a run, and hands in a table of right answers."""
    judge, first, table = Judge(LAB, released[LAB.name], b"s", workers), LAB.exercises[0], {}

    def noted(call):
        outcome = judge.oracle.reference(call)
        for (_, inputs), value in zip(call.steps, outcome.values, strict=True):
            table[key_of(**inputs)] = (value.tolist(), str(value.dtype))
        return outcome

    checks = checks_of(judge.maker.shared[first.id])
    run_checks(first, checks, noted, judge.oracle.reference)
    by_heart = (
        f"import torch\n\n\n{inspect.getsource(key_of)}\n\nTABLE = {table!r}\n{LOOKED_UP}"
    )
    intake = rebuild(encoded(perfect), released[LAB.name], LAB)
    intake.answers[first.id] = by_heart
    with monkeypatch.context() as trusting:
        shared = judge.maker.seed(first)
        trusting.setattr(judge.maker, "seed", lambda *_: shared)
        assert judge.grade_exercise(first, intake).score > 0.5 * first.points
    assert judge.grade_exercise(first, intake).score == 0


def test_a_table_in_another_cell_of_the_submission_earns_nothing(
    workers, released, monkeypatch
):
    """The cell of 2.2 never changes. It looks for answers that the cell of 2.1, which ran
    earlier in the same process, has left there: all calls of an earlier run, in both rounds."""
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

    def answer(worker, request, calls):
        return Answers([noted(decode_call(call)) for call in calls])

    with monkeypatch.context() as reading:
        reading.setattr(Worker, "answer", answer)
        assert graded({}) == [first.points, second.points] and read
    of_first, of_second = graded(read)
    assert of_first == first.points and of_second <= second.points / 9  # its gradients


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
