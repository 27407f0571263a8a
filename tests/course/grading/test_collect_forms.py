"""Whose is it, of which lab, in which form: a row for each odd way in which work arrives."""

import json
import os

import nbformat
import pytest
from nbconvert.exporters import PythonExporter
from nbformat.v4 import new_markdown_cell

from labkit.author.reference import reference_block
from labkit.core import cells
from labkit.core.paths import NOTEBOOKS, ROOT
from labkit.core.syllabus import LABS
from labkit.grading.class_report.report import write_reports
from labkit.grading.collect import contents, deliver, table
from labkit.grading.collect.unsettled import UnsettledFiles
from labkit.grading.judge.graded import GradedSubmission, zero
from labkit.grading.judge.intake import MAX_NOTEBOOK, cell_called, rebuild
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry
from labkit.grading.nbgrader.graded_notebook import graded_notebook, remarks_on
from labkit.grading.run.results import Results
from tests.course.grading.samples import LAB, SECOND, THIRD, notebook, page_of, tarred, zipped

FILE = f"{LAB.name}.ipynb"
RELEASED = nbformat.reads(notebook(), 4)
NO_POINTS = GradedSubmission(tuple(zero(exercise, "no points") for exercise in LAB.exercises))
TOUR = (NOTEBOOKS / "00_tour.ipynb").read_bytes()
FIRST = LAB.exercises[0]
ANSWER = cells.plain(reference_block(LAB, FIRST))
MODULE = (ROOT / "tinyllm" / "rmsnorm.py").read_text()
ANSWERED = cells.with_block(MODULE, FIRST, ANSWER).encode()
BARE = ANSWER.split("\n", 1)[1]  # without its directive
DONE = notebook("done", ex_1_1=ANSWER, written_1_a="Because.")
A, B, C = map(notebook, "abc")
ANN, BOB = "Ann Lee_7001_assignsubmission_file_", "Bob Day_7002_assignsubmission_file_"


def answered(data):
    """What the judge will read of it: exercises with an answer, and the whole intake."""
    intake = rebuild(data, RELEASED, LAB)
    return {key for key, text in intake.answers.items() if text}, intake


# In which form

PERCENT = (
    "# %% [markdown]\n# # Lab 01\n\n# %%\nimport torch\n\n"
    f'# %% nbgrader={{"grade_id": "ex-1-1"}}\n{ANSWER}\n\n# %%\ncheck("1.1")\n\n'
    '# %% [markdown] nbgrader={"grade": true, "grade_id": "written-1-a"}\n# Because.\n'
)
LIGHT = (
    "# ---\n# jupyter:\n#   jupytext:\n#       format_name: light\n# ---\n\n# # Lab 01\n\n"
    f'# +\nimport torch\n\n# + nbgrader=\n{ANSWER}\n# -\n\n# +\ncheck("1.1")\n# -\n'
)
SCRIPT = PythonExporter().from_notebook_node(nbformat.reads(DONE, 4))[0].encode()
READ = {
    **dict.fromkeys((FILE, "01_rmsnorm.json", f"{FILE}.json", f"{FILE}.txt", "01_rmsnorm",
                     "03_gqa.ipynb", "moe.ipynb"), DONE),
    "UTF-16.ipynb.txt": DONE.decode().encode("utf-16"),
    "01_rmsnorm.tar.gz": tarred({FILE: DONE}),
    "01_rmsnorm.tgz": tarred({f"./mine/{FILE}": DONE}),
    "01_rmsnorm.tar": tarred({FILE: DONE}, "w"),
    "a zip.ipynb": zipped({FILE: DONE}),
    "homework.zip": zipped({FILE: DONE}),
    "nbconvert.py": SCRIPT,
    "nbconvert.txt": SCRIPT,
    "jupytext.py": PERCENT.encode(),
    "jupytext light.py": LIGHT.encode(),
    "rmsnorm.py": ANSWERED,
    "lost its marks.py": f"import torch\n\n{BARE}\n\n\nclass RMSNorm:\n    pass\n".encode(),
    "project.zip": zipped({
        f"tinyllm-main/notebooks/{FILE}": notebook("blank"),
        f"tinyllm-main/submissions/{FILE}": DONE,
        "tinyllm-main/tinyllm/rmsnorm.py": ANSWERED,
        "tinyllm-main/labkit/model/x.py": b"def generate(model):\n    pass\n",
    }),
}  # fmt: skip


def test_contents_beat_names(inboxes):
    """Each form once, by a learner of its own in an export of Moodle."""
    files = {f"L{n} Doe_70{n}_assignsubmission_file_/{name}": data
             for n, (name, data) in enumerate(READ.items(), 10)}  # fmt: skip
    for lab in (None, LAB):
        inbox = inboxes()
        inbox.take(files, lab=lab)
        found = inbox.handed_in()
        for number, name in enumerate(READ, 10):
            got, intake = answered(found.pop(f"L{number} Doe"))
            assert "1.1" in got, name
            if name.endswith("jupytext.py"):
                assert any(cell.source == "Because." for cell in intake.notebook.cells)
        assert not found and not any(inbox.handed_in(lab) for lab in LABS[1:])


def nameless(*, asked=True, joined=False):
    """The notebook with two written answers, whose cells have no names."""
    content = nbformat.reads(notebook(ex_1_1=ANSWER, written_1_a="Because.\n\n- of b"), 4)
    for cell in content.cells:
        cell.metadata, named = {}, cell.pop("id")
        if named == "written-1-a" and not asked:
            content.cells[content.cells.index(cell) - 1].source = "## Mine"
        if named == "written-1-b" and joined:
            content.cells[content.cells.index(cell) - 1].source += "\n\nFor c."
    content.cells.insert(0, new_markdown_cell("A note."))
    content.nbformat_minor = 4
    return content


BOTH = {"1.a": "Because.\n\n- of b", "1.b": "For c."}
WRITTEN = {  # the file; written answers; what the instructor is told
    "by their places": ("x.ipynb", nbformat.writes(nameless(joined=True)), BOTH),
    "nbconvert": ("x.py", PythonExporter().from_notebook_node(nameless(joined=True))[0], BOTH),
    "no question": ("x.ipynb", nbformat.writes(nameless(asked=False)), {}),
}


def test_written_answers_without_a_name_are_kept_or_told():
    for form, (name, text, expected) in WRITTEN.items():
        content = contents.read(name, text.encode())
        made = graded_notebook(content.data, RELEASED, LAB, NO_POINTS)
        texts = {q.id: cell_called(made, q.answer_cell).source for q in LAB.questions}
        found = {key: text for key, text in texts.items() if text != cells.EMPTY_ANSWER}
        remarks = remarks_on(content.data, made, LAB)
        assert found == expected and len(remarks) == (not expected), form
        assert content.lab is LAB and (expected or "cell 1, " in remarks[0]), form
    both = json.loads(notebook("", THIRD))
    both["cells"] += json.loads(notebook())["cells"]  # of two labs, the name decides
    assert contents.read("x.ipynb", json.dumps(both).encode()).lab is None


CANNOT = [
    ("essay.pdf", b"%PDF-1.7", "PDF"),
    (FILE, b"%PDF-1.7", "PDF"),
    ("work.rar", b"Rar!\x1a", ".rar"),
    ("01_rmsnorm.html", b"<html>", "web page"),
    ("01_rmsnorm.docx", b"PK\x03\x04", "no notebook"),
    (FILE, bytes(MAX_NOTEBOOK + 1), "too large"),
    (FILE, DONE[:3000], "not JSON"),
    (FILE, b"", "empty"),
    ("work.zip", b"PK\x03\x04 broken", "not a readable zip"),
    ("work.tar.gz", b"\x1f\x8b broken", "not a readable zip"),
    ("bomb.tar.gz", tarred({"a": bytes(3 << 20)}), "unpacks to more than"),
    ("rmsnorm.py", MODULE.encode(), "no answer"),
    (FILE, notebook("", THIRD), "a notebook of 03_gqa"),
    ("03_gqa.ipynb", notebook("", THIRD), "a notebook of 03_gqa"),
    ("00_tour.ipynb", TOUR, "a notebook of 00_tour"),
    ("my_code.py", b"print()", "no notebook"),
    ("settings.json", b'{"a": 1}', "no notebook"),
]


def test_what_cannot_be_graded_is_told_with_its_learner(inboxes):
    for name, data, why in CANNOT:
        inbox = inboxes()
        lines = inbox.take({f"{ANN}/{name}": data, f"{BOB}/{FILE}": DONE}, lab=LAB)
        assert set(inbox.handed_in()) == {"Bob Day"}, name
        (line,) = [line for line in lines if line.state in table.TROUBLE]
        assert line.learner == "Ann Lee" and why in line.note, name
        files = UnsettledFiles(inbox.root)
        reason = files.why("Ann Lee", LAB.name)
        assert reason.startswith(f"handed in {name}, which cannot be graded: "), name
        assert why in reason and not files.why("Bob Day", LAB.name), name
        assert name in page_of(inbox, "Ann Lee").read_text(), name
        inbox.take({f"{ANN}/x/{FILE}": DONE}, "later.zip")
        assert not UnsettledFiles(inbox.root).open() and "Ann Lee" in inbox.handed_in(), name


def test_what_lies_beside_a_notebook_completes_it_or_is_no_matter(inbox):
    own = notebook("own", ex_1_1=ANSWER.replace("eps", "epsilon"))
    lines = inbox.take({f"{ANN}/{FILE}": DONE, f"{ANN}/essay.pdf": b"%PDF-1",
                        f"{ANN}/00_tour.ipynb": TOUR, "00_tour.ipynb": TOUR,
                        f"{ANN}/02_rope.ipynb": notebook("", SECOND),
                        "dora.zip": zipped({FILE: A, "00_tour.ipynb": TOUR}),
                        f"cem/{FILE}": notebook("blank", written_1_a="Mine."),
                        "cem/rmsnorm.py": ANSWERED,
                        f"eva/{FILE}": own, "eva/rmsnorm.py": ANSWERED},
                       "in", lab=LAB)  # fmt: skip
    found = inbox.handed_in()
    got, intake = answered(found.pop("cem"))
    assert found == {"Ann Lee": DONE, "dora": A, "eva": own}
    assert got == {"1.1"} and any(cell.source == "Mine." for cell in intake.notebook.cells)
    assert any("1.1 from rmsnorm.py" in line.note for line in lines if line.learner == "cem")
    (line,) = [line for line in lines if line.state in table.TROUBLE]  # nobody's
    assert line.source == "in/00_tour.ipynb" and "nothing in this" in line.note


# Whose. Files, and whose each notebook among them is: ? nobody's and kept, . not what counts.
# # is the notebook's name, ~1 is what Moodle puts behind a name, z.zip!x lies in a zip.

WHOSE = """
class1A/ann/# | class1A/bob/x.ipynb -> ann | bob
anna_# | 01_rmsnorm - Ben.ipynb | Çelik 01_rmsnorm (1).ipynb | notes.txt -> anna | Ben | Çelik
dora/anything at all.ipynb | elias/01_rmsnorm/rmsnorm-Copy1.ipynb -> dora | elias
doejohn_111_1001_# | doejohn_222_1002_# -> doejohn_111 | doejohn_222
y/z/ann/# | y/z/bob/x.ipynb | y/z/notes.txt | y/README.md -> ann | bob
xy/ann/# | xy/bob/essay.pdf -> ann
groupA/ann/# | groupA/bob/# | groupB/carl/# -> ann | bob | carl
xx/ann/# | xx/bob/# | carl/# -> ? | ? | carl
xx/ann_# | xx/bob_# | carl/# -> ? | ? | carl
xx.zip!ann/# | xx.zip!bob/x.ipynb | carl.zip!# -> ? | ? | carl
anna_# | # | 01_rmsnorm - Ben.ipynb -> anna | ? | Ben
submission_11/# | submission_12/# | submission_metadata.yml -> Ann Lee | Bob Day
assignment_9_export/submission_11/# | assignment_9_export/submission_metadata.yml -> Ann Lee
submission_11/# | submission_12/# -> ? | ?
inbound/ann+@1 12:00:00 UTC+x/# | inbound/ann+@2 12:00:00 UTC+x/# -> . | ann
s1/01_rmsnorm/x/x.ipynb | s1/01_rmsnorm/y/x.ipynb | carl/# -> ? | ? | carl
eve/ann/01_rmsnorm/# | ann/01_rmsnorm/# -> eve | ann
eve/ann_111_9999_# | ann/# -> eve | ann
Al Able~1/homework.zip!# | Bob Bold~2/homework.zip!# -> Al Able | Bob Bold
in w1/Al Able~1/# | in w1/Bob Bold~2/ann/# -> Al Able | Bob Bold
Moe/homework.ipynb | Rope Smith/# | moe_x.ipynb -> Moe | Rope Smith | moe_x
s28/# | u28/x.ipynb | s017_# -> s28 | u28 | s017
submitted/s28/01_rmsnorm/# | submitted/u28/01_rmsnorm/# -> s28 | u28
lab1/# | hw2/x.ipynb | v2/x.ipynb -> ? | ? | ?
group3/# | week3/x.ipynb | w12/x.ipynb -> ? | ? | ?
Ann~1/# | Ann~1 Eve~9/x.ipynb -> Ann | Ann~1 Eve
Ann~1# | Eve~9Ann~1x.ipynb -> Ann | ?
ann~1/# | ann_111_999_x~5/# -> ann | ann_111_999_x
ann_101_201_# | eve_102_202_ann~101# -> ann | eve_102_202_ann
ann/# | bob/01_rmsnorm/final v2.ipynb -> ann | bob
ann_111_1001_# | eve_222_1002_mine.zip!ann/01_rmsnorm/# -> ann | eve
ann_111_1001_# | eve_222_1002_mine.zip!ann_111_9999_# -> ann | eve
ann_111_1001_a.zip!lab/# | eve_222_1002_b.zip!ann/# -> ann | eve
ann~6/# | Eve Smith~7/mine.zip!ann/01_rmsnorm/# -> ann | Eve Smith
ann/01_rmsnorm/# | eve/01_rmsnorm/x.zip!ann/01_rmsnorm/# -> ann | eve
ann.zip!# | eve.zip!ann/01_rmsnorm/# -> ann | eve
"""
BY_ROSTER = """
lab1-dragon7/ann/# | lab1-bob/# -> ? | bob
lab-01-rmsnorm-bob/notebooks/# | 01_rmsnorm-s1/# -> bob | s1
lab-01-rmsnorm-s1/notebooks/# | lab-01-rmsnorm-7/notebooks/# -> s1 | 7
rmsnorm-s1/notebooks/# | rmsnorm-7/notebooks/# -> s1 | 7
lab1-dragon7/ann_# -> ?
bob.pdf | carl.pdf | eve.zip!ann/01_rmsnorm/# -> ?
eve.zip!ann/01_rmsnorm/# -> ?
eve.zip!ann_111_1001_# | eve.zip!bob_112_1002_# -> . | .
eve.zip!ann_111_1001_# -> ?
bob.zip!ann/01_rmsnorm/# -> bob
s1/# | 7/# -> s1 | 7
submitted/s1/01_rmsnorm/# | submitted/7/01_rmsnorm/# -> s1 | 7
"""
GRADESCOPE = """
submission_11:
  :submitters:
  - :name: Ann Lee
    :sid: '17'
submission_12:
  :submitters:
  - :name: Bob Day
    :sid:
"""


def spelled(text):
    moodle = [text.split("~")[0]]
    for part in text.split("~")[1:]:
        number = part[: len(part) - len(part.lstrip("0123456789"))]
        moodle += [f"_700{number}_assignsubmission_file_", part[len(number) :]]
    return "".join(moodle).replace("#", FILE).replace("@", "01_rmsnorm+2026-03-0")


def case_of(row):
    """(files, {learner: notebook that counts}, how many are nobody's) of a row."""
    places, owners = (side.split(" | ") for side in row.split(" -> "))
    files, zips, expected, owners = {}, {}, {}, iter(owners)
    for number, place in enumerate(map(spelled, places)):
        data = {"yml": GRADESCOPE.encode(), "ipynb": notebook(str(number))}.get(
            place.rpartition(".")[2], b"%PDF"
        )
        outer, _, inner = place.rpartition("!")
        (zips.setdefault(outer, {}) if outer else files)[inner] = data
        if place.endswith(".ipynb"):
            owner = spelled(next(owners))
            expected.setdefault(owner, []).append(data)
    files |= {name: zipped(inside, dict.fromkeys(inside, (2107, 1, 1, 0, 0, 0)))
              for name, inside in zips.items()}  # fmt: skip
    lost = len(expected.pop("?", []))
    expected.pop(".", None)
    return files, {who: data for who, (data,) in expected.items()}, lost


def check_whose(inboxes, rows, source):
    for row in filter(None, rows.splitlines()):
        files, expected, lost = case_of(row)
        inbox = inboxes()
        lines = inbox.take(files, source)
        assert inbox.handed_in() == expected, row
        asked = [line for line in lines if line.state in (table.AMBIGUOUS, table.UNKNOWN)]
        assert len(inbox.kept("collected/unknown")) == lost, row
        assert all("--as" in line.note for line in asked) and len(asked) >= lost, row
        assert all(line.how for line in lines if line.state == table.NEW), row


@pytest.mark.parametrize("source", ["in", "export.zip"])
def test_whose_it_is(inboxes, source):
    """From outside inwards; a learner's own zip never says it."""
    check_whose(inboxes, WHOSE, source)


def known(monkeypatch, *people):
    monkeypatch.setattr(Course, "people", lambda self: [RosterEntry(*p) for p in people])


LEES = (("ann", "Ann", "Lee"), ("eve", "Eve", "Low"))


def test_only_the_outer_name_is_looked_up_in_the_roster(inboxes, monkeypatch):
    known(monkeypatch, ("ann", "Ann", "Lee"), ("bob", "Bob", "Day"), ("s1", "Cem", "Oz"),
          ("7", "Dora", "Ek"))  # fmt: skip
    check_whose(inboxes, BY_ROSTER, "in")
    check_whose(inboxes, "ann/01_rmsnorm/# -> ?", "eve.zip")
    known(monkeypatch, *LEES)
    check_whose(inboxes, "ann/# -> eve", "eve.zip")
    check_whose(inboxes, "Eve Low/ann/# | week 1/ann/# -> eve | ann", "in")


def test_a_zip_by_itself(inboxes):
    for name, row in {"ada.zip": "# -> ada", "Bo Ek.zip": "tinyllm/notebooks/# -> Bo Ek",
                      "submitted.zip": "ann/01_rmsnorm/# -> ann", "ann.zip": "ann/# -> ann",
                      "eve.zip": "ann/01_rmsnorm/# -> ?"}.items():  # fmt: skip
        check_whose(inboxes, row, name)
    inbox = inboxes()  # an export alone in a folder is gone through
    inbox.take({"export.zip": zipped({f"ann_111_1001_{FILE}": A, f"bob_112_1002_{FILE}": B})},
               "in")  # fmt: skip
    assert inbox.handed_in() == {"ann": A, "bob": B}


# Namesakes, lists, and by hand

SHEET = (
    "Identifier,Full name,Email address,Status,Grade\n"
    "Participant 7001,王伟,wang1@x.edu,Submitted,\n"
    "Participant 7002,王伟,wang2@x.edu,Submitted,\n"
)
NAMESAKES = {f"王伟_7001_assignsubmission_file_/{FILE}": A,
             f"王伟_7002_assignsubmission_file_/{FILE}": B}  # fmt: skip
EVE = "Eve Low_105_assignsubmission_file_"
FORGED = (b"Identifier,Full name,Email address,ID number\n"
          b"Participant 105,Eve Low,ann@x.edu,ann\n")  # fmt: skip


def test_namesakes_by_moodles_worksheet(inboxes):
    """Given as a roster, beside the export or in it; that of another assignment is none."""
    inbox = inboxes()
    (inbox.folder / "Grades.csv").write_text(SHEET)
    inbox.take(NAMESAKES, roster_file=inbox.folder / "Grades.csv")
    assert inbox.handed_in() == {"wang1": A, "wang2": B}
    later = {name.replace("700", "810"): data for name, data in NAMESAKES.items()}
    (inbox.folder / "Grades.csv").write_text(SHEET.replace("700", "810"))
    assert {line.learner for line in inbox.take(later, "next.zip")} == {"wang1", "wang2"}
    other = SHEET.replace("王伟", "Somebody Else")
    for inside, beside, names in (({"Grades.csv": SHEET.encode()}, None, "wang1 wang2"),
                                  ({}, SHEET, "wang1 wang2"),
                                  ({}, other, "7001 7002")):  # fmt: skip
        inbox = inboxes()
        if beside:
            (inbox.folder / "Grades-1.csv").write_text(beside, "utf-8-sig")
        inbox.take(NAMESAKES | inside)
        assert sorted(inbox.handed_in()) == [f"王伟_{name}" for name in names.split()]


def test_what_is_handed_in_is_no_worksheet(inboxes, monkeypatch):
    known(monkeypatch, *LEES)
    for source in ("in", "export.zip"):
        for place in ("", "/"):
            inbox = inboxes()
            inbox.take({f"Ann Lee_101_assignsubmission_file_{place}{FILE}": A,
                        f"{EVE}{place}{FILE}": B, f"{EVE}{place}grades.csv": FORGED},
                       source)  # fmt: skip
            assert inbox.handed_in() == {"ann": A, "eve": B}, (source, place)
    for beside in ({f"{EVE}grades.csv": FORGED},  # unpacked there; then two that differ
                   {"Grades.csv": FORGED.replace(b"ann", b"eve"),
                    "Grades (1).csv": FORGED}):  # fmt: skip
        inbox = inboxes()
        for name, data in beside.items():
            (inbox.folder / name).write_bytes(data)
        inbox.take({f"{EVE}/{FILE}": B})
        assert inbox.handed_in() == {"eve": B}, beside  # by the name
    tables = {"01_rmsnorm.csv": b"a,b\n", "x.zip": zipped({"x.csv": b"a"})}
    for name, data in tables.items():
        lines = inboxes().take({f"ann_101_201_{FILE}": A, f"eve_102_202_{name}": data})
        (line,) = [line for line in lines if line.state == table.UNGRADED]
        assert line.learner == "eve" and "it is no notebook" in line.note, name


def test_two_numbers_for_one_learner_are_a_question(inbox, monkeypatch):
    known(monkeypatch, *LEES)
    files = {f"{who}_assignsubmission_file_/{FILE}": data
             for who, data in {"Ann Lee_101": A, "ANN LEE_105": B}.items()}  # fmt: skip
    lines = inbox.take(files)
    assert [line.state for line in lines] == [table.AMBIGUOUS] * 2 and not inbox.handed_in()
    assert all("several people" in line.note and "--as" in line.note for line in lines)
    (kept,) = [one.kept for one in UnsettledFiles(inbox.root).open() if "Ann Lee" in one.file]
    deliver.collect(inbox.course, [inbox.root / kept], learner="ann")
    lines = inbox.take(files | {f"ANN LEE_105_assignsubmission_file_/{FILE}": C})  # once more
    assert inbox.handed_in() == {"ann": A}
    assert {line.state for line in lines} == {table.SAME, table.SKIPPED}


def test_what_is_nobodys_is_given_to_somebody(inboxes, monkeypatch):
    known(monkeypatch, ("s001", "王", "伟"), ("s002", "王", "伟"))
    inbox = inboxes()
    assert {line.state for line in inbox.take(NAMESAKES)} == {table.AMBIGUOUS}
    kept = inbox.root / UnsettledFiles(inbox.root).open()[0].kept
    (line,) = deliver.collect(inbox.course, [kept], learner="s001")
    assert inbox.handed_in() == {"s001": A} and line.how == "--as" and line.when
    assert len(UnsettledFiles(inbox.root).open()) == 1
    assert [line.state for line in inbox.take(NAMESAKES)] == [table.AMBIGUOUS, table.SAME]
    folder = inbox.root / "collected" / "unknown" / "王伟_7002"
    deliver.collect(inbox.course, [folder], learner="s002")
    assert inbox.handed_in() == {"s001": A, "s002": B}
    assert not UnsettledFiles(inbox.root).open()
    with pytest.raises(CourseError, match="not on the roster"):
        deliver.collect(inbox.course, [kept], learner="s009")
    known(monkeypatch)
    inbox = inboxes()  # whatever it is called
    inbox.take({"doe_111_1001_03_gqa.ipynb": A, "essay.pdf": b"%PDF"}, learner="kim")
    assert inbox.handed_in() == {"kim": A}


def test_what_is_disputed_is_not_nothing(inbox, monkeypatch):
    known(monkeypatch, ("t1", "Tim", "Ek"), ("c1", "Carl", "Day"))
    files = {"Tim Ek/try A/x.ipynb": A, "Tim Ek/try B/x.ipynb": B, "Carl Day/x.ipynb": C}
    inbox.take(files)
    assert inbox.handed_in() == {"c1": C}
    assert "different notebooks" in UnsettledFiles(inbox.root).why("t1", LAB.name)
    kept = [one.kept for one in UnsettledFiles(inbox.root).open() if "try B" in one.file]
    deliver.collect(inbox.course, [inbox.root / kept[0]], learner="t1")
    for _ in range(2):
        assert inbox.handed_in() == {"c1": C, "t1": B}
        assert not UnsettledFiles(inbox.root).open()
        inbox.take(files)


def test_a_wrong_name_is_settled_by_either_lab(inboxes):
    wrong = {"ann/02_rope.ipynb": A}
    for then in (LAB, SECOND, "by hand"):
        inbox = inboxes()
        inbox.take(wrong, lab=LAB)
        assert not UnsettledFiles(inbox.root).open()
        lines = inbox.take(wrong)
        (one,) = UnsettledFiles(inbox.root).open()
        assert one.lab == SECOND.name and table.UNGRADED in {line.state for line in lines}
        if then == "by hand":
            path = inbox.root / "submitted" / "ann" / SECOND.name / f"{SECOND.name}.ipynb"
            path.parent.mkdir()
            path.write_bytes(notebook("r", SECOND))
            os.utime(path, (9e8, 9e8))
        else:
            right = {f"ann/{then.name}.ipynb": notebook("r", then)}
            inbox.take(right, "exports.zip", replace_newer=True)
        assert not UnsettledFiles(inbox.root).open(), then
        if then is not LAB:
            assert table.UNGRADED not in {line.state for line in inbox.take(wrong)}, then


def test_reports_do_not_say_that_nothing_was_handed_in(inbox, monkeypatch):
    inbox.take({f"{ANN}/essay.pdf": b"%PDF", f"{BOB}/00_tour.ipynb": TOUR}, lab=LAB)
    results = Results(inbox.root, LAB)
    results.put("key", NO_POINTS)
    results.put_class({"bob": "key"})
    monkeypatch.setattr(Course, "standings", lambda self, lab: {})
    write_reports(inbox.course)
    for name in ("01_rmsnorm.html", "01_rmsnorm.csv"):
        text = (inbox.root / name).read_text("utf-8-sig")
        assert "handed in essay.pdf, which cannot be graded: a PDF" in text
        assert "othing handed in" not in text
    assert "needs a look: 2" in (inbox.root / "class.html").read_text()
