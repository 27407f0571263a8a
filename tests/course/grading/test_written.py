"""Written answers exported as tables, and points and comments read back into the gradebook."""

import csv
import io

import pytest
from filelock import FileLock

from labkit.grading.export import export as exports
from labkit.grading.export.written import TITLES
from labkit.grading.sample_class import Learner, encoded, hand_in, solved, with_texts
from labkit.grading.tables import Table
from tests.course.grading.samples import LAB, by_hand, graded, page_of, rows_of
from tests.course.grading.two_learners import grade, tinyllm

FIRST = LAB.questions[0]
ANSWERS = {"ann": "Because  it is scaled", "bob": "=1+1\nno idea", "cy": "because it is scaled",
           "007": "-"}  # fmt: skip


@pytest.fixture
def course(released_course):
    for learner, text in ANSWERS.items():
        graded(released_course, learner, text=text)
    released_course.feedback(LAB)
    return released_course


def export(course):
    return [*exports.export(course, "written", LAB)]


def fill(path, typed, delimiter=",", encoding="utf-8-sig", **changed):
    """Type points and comments, {learner: (points, comment)}, as a spreadsheet saves them."""
    rows = rows_of(path)
    for row in rows:
        if row["learner"] in typed:
            row["points"], row["comment"] = typed[row["learner"]]
            row |= changed
    text = io.StringIO()
    writer = csv.DictWriter(text, TITLES, delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(text.getvalue().encode(encoding))
    return path


def take(course, *paths):
    status, text = tinyllm("points", *paths, "--course", course.root)
    return status, " ".join(text.split())


def given(course, learner="ann"):
    standing = course.standings(LAB)[learner]
    grade = standing.questions[FIRST.id]
    return grade.manual, standing.comments.get(FIRST.answer_cell), grade.waiting


def state(course):
    """Everything that the gradebook has of the lab."""
    return course.standings(LAB)


def test_a_row_is_an_answer_beside_its_rubric(course):
    (path,) = export(course)
    rows = rows_of(path)
    assert [*rows[0]] == TITLES
    # equal answers together
    assert [row["learner"] for row in rows] == ["007", "bob", "ann", "cy"]
    assert rows[1]["answer"] == "'=1+1\nno idea" and len(rows[0]["rubric"]) > 20
    assert {(row["question"], row["points"], row["of"]) for row in rows} == {("1.a", "", "2")}
    assert not any(letter.isdigit() for row in rows for letter in row["state"])


def test_points_and_comments_come_back_and_reach_the_learners_page(course):
    (path,) = export(course)
    fill(path, {"ann": ("1,5", "good, but why?"), "bob": ("0", "")}, ";", "cp1252")
    status, text = take(course, path)
    assert status == 0 and text.startswith("2 answers with new points or comments")
    assert given(course) == (1.5, "good, but why?", False)
    assert given(course, "bob") == (0, None, False) and given(course, "cy")[2]
    page = page_of(course, "ann").read_text()
    assert "good, but why?" in page and "1.5 of 2" in page
    assert take(course, path)[1].startswith("0 answers")  # taking a table twice changes nothing
    (path,) = export(course)
    assert [row["points"] for row in rows_of(path)] == ["", "0", "1.5", ""]
    fill(path, {"ann": ("2", ""), "bob": ("", "")})  # corrected; an empty cell changes nothing
    assert take(course, path)[1].startswith("1 answer ")
    assert given(course) == (2, "good, but why?", False)
    assert given(course, "bob")[0] == 0


WRONG = {
    "unknown learner": ({"ann": ("1", "")}, {"learner": "7"}, "of 7: no such learner is"),
    "above the maximum": ({"ann": ("2.5", "")}, {}, "'2.5': expected a number from 0 to 2"),
    "a long number": ({"ann": ("9" * 5000, "")}, {}, "points are '999999999999...9"),
    "no number": ({"ann": ("01. Mai", "")}, {}, "points are '01. Mai': expected a number"),
    "a question": ({"ann": ("1", "")}, {"question": "1.z"}, "there is no such question"),
    "its state": ({"ann": ("1", "")}, {"state": "x"}, "the answer has changed since"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_row_changes_nothing(course, name):
    typed, changed, words = WRONG[name]
    (path,) = export(course)
    fill(path, {"bob": ("1", "fine")})
    fill(path, typed, **changed)
    before = state(course)
    status, text = take(course, path)
    assert status == 2 and "nothing was changed, as these rows cannot be taken" in text
    assert words in text and "bob" not in text
    assert state(course) == before


def test_a_stale_row_changes_nothing(course):
    """The answer has changed, or somebody gave points in formgrader meanwhile."""
    (path,) = export(course)
    fill(path, {"ann": ("1", ""), "bob": ("1", "")})
    graded(course, "ann", text="I have thought again")
    before = state(course)
    status, text = take(course, path)
    assert status == 2 and f"{LAB.name}.csv, 1.a of ann: the answer has changed since" in text
    assert state(course) == before
    path.unlink()
    (path,) = export(course)
    fill(path, {"ann": ("1", ""), "bob": ("1", "")})
    by_hand(course, FIRST, 2.0, "bob")
    before = state(course)
    status, text = take(course, path)
    assert (
        status == 2 and "1.a of bob: somebody gave 2 points and 'no comment' elsewhere" in text
    )
    assert state(course) == before


def test_points_that_are_older_than_the_answer_are_asked_again(course):
    by_hand(course, FIRST, 2.0, "ann")
    graded(course, "ann", text="I have thought again")
    (path,) = export(course)
    (row,) = (row for row in rows_of(path) if row["learner"] == "ann")
    assert row["points"] == ""
    take(course, fill(path, {"ann": ("2", "")}))
    assert not course.standings(LAB)["ann"].stale and given(course)[0] == 2


def test_two_graders_with_a_part_each_may_not_disagree(course):
    (path,) = export(course)
    other = path.with_name("other.csv")
    lines = path.read_text("utf-8-sig").splitlines(keepends=True)
    other.write_text("".join(lines), "utf-8-sig")
    fill(path, {"ann": ("2", "")})
    fill(other, {"ann": ("0", ""), "bob": ("1", "")})
    status, text = take(course, path, other)
    assert status == 2 and "other.csv, 1.a of ann: two tables say different things" in text
    fill(other, {"ann": ("", "")})
    assert take(course, path, other)[1].startswith("2 answers")


def test_nothing_typed_is_overwritten(course):
    (path,) = export(course)
    fill(path, {"ann": ("1", "")})
    typed = path.read_bytes()
    status, text = tinyllm("export", "written", "--course", course.root)
    assert status == 2 and path.read_bytes() == typed
    assert "has points for 1 answers that are not in the gradebook: `tinyllm points" in text
    fill(path, {"ann": ("9", "")})
    typed = path.read_bytes()
    status, text = tinyllm("export", "written", "--course", course.root)
    assert status == 2 and path.read_bytes() == typed and "move it away; nothing was" in text
    take(course, fill(path, {"ann": ("1", "")}))
    assert tinyllm("export", "written", "--course", course.root)[0] == 0


def test_an_answer_of_any_length_goes_out_and_its_points_come_back(course):
    graded(course, "ann", text="because\n" * 40_000)
    (path,) = export(course)
    (row,) = (row for row in rows_of(path) if row["learner"] == "ann")
    assert len(row["answer"]) < 32_767 and "(cut here: 320,000 characters" in row["answer"]
    assert take(course, fill(path, {"ann": ("1", "")}))[0] == 0 and given(course)[0] == 1


def test_a_table_of_another_kind_is_refused(course, tmp_path):
    (tmp_path / "x.csv").write_text("learner,points\nann,1\n")
    status, text = take(course, tmp_path / "x.csv")
    assert status == 2 and "has no column question, answer" in text
    assert take(course, tmp_path / "none.csv")[0] == 2


def test_points_typed_while_the_class_is_graded_are_kept(handed_in):
    """Reading the table waits, with a message; grading keeps points that came in before."""
    text = encoded(with_texts(solved(handed_in.released(LAB), LAB), LAB))
    hand_in(handed_in.root, LAB, Learner("bob", text))
    grade(handed_in)
    (path,) = export(handed_in)
    rows = Table.read(path).rows
    assert [row["question"] for row in rows] == [question.id for question in LAB.questions]
    fill(path, {"bob": ("1", "mine")})
    with FileLock(handed_in.root / ".lock"):
        status, said = take(handed_in, path)
    assert status == 2 and "in use by another command" in said
    assert take(handed_in, path)[1].startswith("3 answers")
    grade(handed_in, "--no-sandbox", "--fresh")
    assert given(handed_in, "bob") == (1, "mine", False)
