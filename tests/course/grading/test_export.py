"""Grades and pages on their way back to Canvas and Moodle: from a roster through collect and
the gradebook to the files that they import."""

import json
import zipfile

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.grading.class_report.read_results import results_of
from labkit.grading.collect.deliver import collect
from labkit.grading.collect.roster import read_roster
from labkit.grading.export import export as exports
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry, enrol
from labkit.grading.platforms import takes_grades
from labkit.grading.run.results import Results
from labkit.grading.tables import Table
from tests.course.grading.samples import (
    LAB,
    WORKSHEETS,
    graded,
    handed,
    notebook,
    page_of,
    rows_of,
    zipped,
)

CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,Lab 01: norms (9911),02 Rope (9912),Final\n"
    "    Points Possible,,,,,14.0,20,(read only)\n"
    '"Able, Ann",501,u-ann,ann7,S1,,,\n'
    '"=Bold, Bob",502,,bob8,S1,,,\n'
    '"王, 伟",503,,wei9,S2,,,\n'
    '"Student, Test",777,,,,,,\n'
)  # fmt: skip
WORKSHEET = (
    "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,"
    "Last modified (submission)\n"
    'Participant 7001,Ann Able,ann7@uni.example,Submitted,,"21,00",Yes,-\n'
    'Participant 7002,=Bob Bold,bob8@uni.example,Submitted,,"21,00",Yes,-\n'
    'Participant 7003,伟 王,wei9@uni.example,No submission,,"21,00",No,-\n'
)
SCORES = {"ann7": (4.0, 6.0, 4.0), "bob8": (4.0, 0.55, 0.0)}


def written(course, kind, roster=None):
    """Export; return {file name: its rows as dictionaries, or its members}, and the remarks."""
    found, remarks = {}, []
    for part in exports.export(course, kind, LAB, roster):
        if isinstance(part, str):
            remarks.append(part)
        elif part.suffix == ".csv":
            found[part.name] = rows_of(part)
        else:
            with zipfile.ZipFile(part) as archive:
                found[part.name] = archive.namelist()
    return found, " | ".join(remarks)


def graded_class(course, scores):
    """A class after grading: results, gradebook, pages."""
    for learner, points in scores.items():
        graded(course, learner, points)
    Results(course.root, LAB).put_class({learner: learner for learner in scores})
    course.feedback(LAB)


@pytest.fixture
def course(released_course):
    return released_course


@pytest.fixture
def handed_in(course, tmp_path):
    """Two of the three in Canvas's roster handed in through Canvas and were graded."""
    (tmp_path / "canvas.csv").write_text(CANVAS)
    (tmp_path / "worksheet.csv").write_text(WORKSHEET)
    names = ("ableann_501_90001_01_rmsnorm-1.ipynb", "boldbob_LATE_502_90002_01_rmsnorm.ipynb")
    (tmp_path / "export.zip").write_bytes(zipped({name: notebook(name) for name in names}))
    collect(course, [tmp_path / "export.zip"], LAB, tmp_path / "canvas.csv")
    graded_class(course, SCORES)
    return course


def test_canvas_gets_its_own_rows_back_with_grades(handed_in, tmp_path):
    def late(book):
        found = book.find_submission_notebook(LAB.name, LAB.name, "ann7")
        found.late_submission_penalty = 2.5
        book.db.commit()

    handed_in.gradebook.do(late)
    found, remarks = written(handed_in, "canvas", tmp_path / "canvas.csv")
    rows, title = found[f"{LAB.name}_canvas.csv"], "Lab 01: norms (9911)"
    assert list(rows[0]) == [*CANVAS.split(",")[:5], title]  # no other column is touched
    assert rows[0] | {"Student": "Points Possible", title: "21"} == rows[0]
    assert [row["ID"] for row in rows[1:]] == ["501", "502", "503", "777"]
    assert [row["SIS User ID"] for row in rows[1:3]] == ["u-ann", ""]
    assert [row[title] for row in rows[1:]] == ["11.5", "4.55", "", ""]
    assert rows[2]["Student"] == "'=Bold, Bob" and rows[3]["Student"] == "王, 伟"
    assert "worth 14 points in Canvas, here 21" in remarks
    assert f"written answers still to be graded by hand: {LAB.name} 2" in remarks


def test_a_person_in_two_rows_gets_the_grade_in_both(handed_in, tmp_path):
    """A person in two sections; rows of different people that match one learner stay empty."""
    path = tmp_path / "canvas.csv"
    ann, bob = '"Able, Ann",501,u-ann,ann7,{},,,\n', '"=Bold, Bob",{},,bob8,S1,,,\n'
    head = CANVAS.partition('"Able')[0]
    path.write_text(
        head + "".join(map(ann.format, ("S1", "S2"))) + "".join(map(bob.format, (502, 9)))
    )
    found, remarks = written(handed_in, "canvas", path)
    title = "Lab 01: norms (9911)"
    rows = found[f"{LAB.name}_canvas.csv"][1:]
    assert [row[title] for row in rows] == ["14", "14", "", ""]
    assert [row["Section"] for row in rows[:2]] == ["S1", "S2"]
    assert "no grade there: bob8" in remarks and "ann7" not in remarks


def test_moodles_worksheet_comes_back_filled_in(handed_in, tmp_path):
    handed_in.gradebook.do(
        lambda book: enrol(book, [RosterEntry("wei9", email="wei9@uni.example")])
    )
    graded_class(handed_in, SCORES | {"wei9": (4.0, 0.0, 0.0), "lost": (4.0, 6.0, 4.0)})
    sheet = tmp_path / "worksheet.csv"
    found, remarks = written(handed_in, "moodle", sheet)
    rows = found[f"{LAB.name}_moodle.csv"]
    assert [row["Identifier"][-4:] for row in rows] == ["7001", "7002", "7003"]
    assert [row["Grade"] for row in rows] == ["14", "4,55", "4"]
    assert rows[1]["Full name"] == "'=Bob Bold" and rows[0]["Status"] == "Submitted"
    assert "not in worksheet.csv, so no grade there: lost" in remarks
    assert "worth" not in remarks  # the maximum is 21 in both
    sheet.write_text(WORKSHEET + 'Participant 7004,X Y,ann7@other.example,-,,"21,00",Yes,-\n')
    found, remarks = written(handed_in, "moodle", sheet)  # two rows match one learner
    grades = [row["Grade"] for row in found[f"{LAB.name}_moodle.csv"]]
    assert grades == ["", "4,55", "4", ""] and "no grade there: ann7" in remarks


@pytest.mark.parametrize("language", WORKSHEETS)
def test_a_worksheet_in_any_language_comes_back(course, tmp_path, language):
    """It keeps its titles; people are matched by id or e-mail address."""
    (tmp_path / "sheet.csv").write_text(WORKSHEETS[language], "utf-8-sig")
    graded_class(course, {"ann": (4.0, 6.0, 4.0), "bo": (4.0, 0.55, 0.0)})
    found, remarks = written(course, "moodle", tmp_path / "sheet.csv")
    rows = found[f"{LAB.name}_moodle.csv"]
    head = WORKSHEETS[language].partition("\n")[0].split(",")
    assert list(rows[0]) == head and "no grade there" not in remarks
    comma = language == "de"
    assert [row[head[-2]] for row in rows] == ["14", "4,55" if comma else "4.55"]


def test_pages_have_the_names_of_the_export(handed_in):
    """Canvas's flat names; Moodle's names with and without folders."""
    course, path = handed_in, handed_in.root / "collected" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest |= {
        f"mia/{LAB.name}": {
            "claim": "Moodle 7001",
            "source": "Mia M_7001_assignsubmission_file/x.ipynb",
        },
        f"zoe/{LAB.name}": {
            "claim": "Moodle 7002",
            "source": "a.zip/Zoe_7002_assignsubmission_file_x.ipynb",
        },
    }
    path.write_text(json.dumps(manifest))
    graded_class(course, SCORES | dict.fromkeys(("mia", "zoe"), (4.0, 6.0, 4.0)))
    found, remarks = written(course, "feedback")
    folders = ("Mia M_7001_assignsubmission_file", "Zoe_7002_assignsubmission_file_")
    names = [f"{folder}/{LAB.name}.html" for folder in folders]
    canvas = ["ableann_501_90001_01_rmsnorm-1.html", "boldbob_LATE_502_90002_01_rmsnorm.html"]
    assert list(found.values()) == [canvas, names] and remarks == ""
    page = page_of(course, "mia")
    with zipfile.ZipFile(course.root / "export" / f"{LAB.name}_feedback_moodle.zip") as archive:
        assert archive.read(names[0]) == page.read_bytes()
    page.unlink()
    assert written(course, "feedback")[1].endswith("as there is no page of: mia")
    path.unlink()
    found, remarks = written(course, "feedback")
    assert found == {} and "Moodle and Canvas names: ann7, bob8, zoe" in remarks


def test_the_page_of_a_file_that_could_not_be_read_goes_back_too(handed_in, tmp_path):
    """It explains the fault of the file, and does not say that the learner handed in
    nothing."""
    files = {"choncy_503_90003_lab.pdf": b"%PDF-1.7", "boldbob_LATE_502_90004_x.ipynb": b"{"}
    (tmp_path / "more.zip").write_bytes(zipped(files))
    collect(handed_in, [tmp_path / "more.zip"], LAB)
    found, remarks = written(handed_in, "feedback")
    names = found[f"{LAB.name}_feedback_canvas.zip"]
    assert "choncy_503_90003_lab.html" in names and len(names) == 3 and remarks == ""
    with zipfile.ZipFile(
        handed_in.root / "export" / f"{LAB.name}_feedback_canvas.zip"
    ) as archive:
        assert b"nothing of it could be graded" in archive.read("choncy_503_90003_lab.html")
    (results,) = (results_of(handed_in, lab) for lab in [LAB])
    assert [entry.learner for entry in results.not_gradable] == ["wei9"]
    assert "wei9" not in [entry.learner for entry in results.missing]


def test_a_remark_on_many_is_one_line(course):
    graded_class(course, {f"s{number:03}": (4.0, 6.0, 4.0) for number in range(15)})
    remarks = written(course, "feedback")[1]
    assert "names: s000, s001," in remarks and remarks.endswith(", s011 and 3 more")


def test_an_older_page_of_somebody_whose_grading_broke_off_stays(handed_in):
    Results(handed_in.root, LAB).put_class({"ann7": "ann7", "bob8": None})
    found, remarks = written(handed_in, "feedback")
    assert len(found[f"{LAB.name}_feedback_canvas.zip"]) == 1
    assert "there is no page of: bob8" in remarks


def test_the_command(handed_in, tmp_path):
    def export(*arguments):
        done = CliRunner().invoke(app, ["export", "--course", str(handed_in.root), *arguments])
        return done.exit_code, " ".join(done.output.split())

    with pytest.raises(CourseError, match="--roster FILE is needed: Canvas's gradebook export"):
        written(handed_in, "canvas")
    for kind, words in (("canvas", "no columns ID and Student"), ("moodle", "no columns Id")):
        other = tmp_path / ("worksheet.csv" if kind == "canvas" else "canvas.csv")
        with pytest.raises(CourseError, match=words):
            written(handed_in, kind, other)
    with pytest.raises(CourseError, match="cannot be read: No such file"):
        written(handed_in, "canvas", tmp_path / "none.csv")
    (tmp_path / "long.csv").write_text("ID,Student\nann," + "x" * 200_000)
    with pytest.raises(CourseError, match=r"long\.csv cannot be read: field larger than"):
        written(handed_in, "canvas", tmp_path / "long.csv")
    code, text = export("teams")
    assert code == 2 and f"expected {', '.join(takes_grades())}, feedback, answers" in text
    code, text = export("canvas", "feedback", "--roster", str(tmp_path / "canvas.csv"))
    assert code == 1 and "canvas.csv" in text and "canvas.zip" in text and "by hand" in text
    assert export("feedback")[0] == 0
    code, text = export("canvas", "--lab", "rope")
    assert code == 2 and "nothing is graded yet" in text


def test_brightspace_gets_points_by_its_ids(handed_in, tmp_path):
    """In the column of the lab, or a new one before the end of the line."""
    path, end = tmp_path / "grades.csv", "End-of-Line Indicator"
    for column, title in {
        "01 Norms Points Grade <Numeric MaxPoints:21 Weight:10>,": "01 Norms Points Grade",
        "02 Rope Points Grade,": f"Lab {LAB.number} Points Grade",
    }.items():
        path.write_text(f"OrgDefinedId,Username,Email,{column}{end}\n"
                        "#ann7,#ann,ann@x.edu,,#\n#17,#b,bob8@x.edu,,#\n"
                        "#9,#cy,,,#\n")  # fmt: skip
        found, remarks = written(handed_in, "brightspace", path)
        rows = found[f"{LAB.name}_brightspace.csv"]
        (title,) = (name for name in rows[0] if name.startswith(title))
        assert [row[title] for row in rows] == ["14", "4.55", ""]
        assert [*rows[0]][-1] == end and rows[0][end] == "#"
        assert [row["OrgDefinedId"] for row in rows] == ["#ann7", "#17", "#9"]
        assert ("it will be new" in remarks) == title.startswith("Lab")
    assert [person.id for person in read_roster(path).people] == ["ann7", "17", "9"]


def test_every_platform_is_in_the_help(handed_in):
    shown = CliRunner().invoke(app, ["export", "--help"], terminal_width=200).output
    assert all(name in shown for name in takes_grades())


def test_answers_leave_as_code(handed_in):
    code = "# %% exercise 1.2\nclass RMSNorm: ..."
    handed(handed_in, "ann7").path.write_bytes(notebook("ann", ex_1_2=code))
    (folder,) = exports.export(handed_in, "answers", LAB)
    assert "class RMSNorm: ..." in (folder / "ann7" / "1_2.py").read_text()
    assert not (folder / "bob8").exists()  # who answered nothing
    stub = (folder.with_name(f"{LAB.name}_given") / "stubs" / "1_2.py").read_text()
    assert "NotImplementedError" in stub


def test_a_table_whose_lines_end_as_they_once_did_on_a_mac(tmp_path):
    (tmp_path / "roster.csv").write_bytes(b"id,name\rann,Ann Lee\rben,Ben Ray\r")
    assert Table.read(tmp_path / "roster.csv").column("name") == ["Ann Lee", "Ben Ray"]
