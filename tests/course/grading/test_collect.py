"""Collecting: the owner of each notebook, by the layouts of platforms and a roster; the attempt
that counts; the questions for a person."""

import csv
import io
import re
import time
import unicodedata
from datetime import datetime, timezone

import pytest
from rich.console import Console
from typer.testing import CliRunner

from labkit.author.reference import reference_block
from labkit.cli import app
from labkit.course import cells
from labkit.course.files import safe_id
from labkit.course.paths import NOTEBOOKS, ROOT
from labkit.grading import platforms
from labkit.grading.class_report.report import write_reports
from labkit.grading.collect import deliver, issues
from labkit.grading.collect.issues import OpenIssues
from labkit.grading.collect.labs import lab_by_name
from labkit.grading.collect.roster import read_roster
from labkit.grading.judge.graded import GradedSubmission, zero
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry
from labkit.grading.nbgrader.timestamp import parse_timestamp, read_manifest
from labkit.grading.platforms import Layout, Platform
from labkit.grading.run.follow import apply_course_rules
from labkit.grading.run.results import Results
from tests.course.grading.samples import (
    FULL,
    LAB,
    NOON,
    SECOND,
    WORKSHEETS,
    graded,
    notebook,
    page_of,
    rows_of,
    zipped,
)

FILE = f"{LAB.name}.ipynb"
NOON_UTC = datetime(*NOON).astimezone(timezone.utc)
EARLY = b"2001-01-01 00:00:00 UTC"
A, B, C, D = map(notebook, "abcd")
TOUR = (NOTEBOOKS / "00_tour.ipynb").read_bytes()
ANN, BOB = "Ann Lee_7001_assignsubmission_file_", "Bob Day_7002_assignsubmission_file_"


def states(lines):
    return {line.learner: line.state for line in lines if line.lab}


def line_of(lines, learner):
    (line,) = [line for line in lines if line.learner == learner]
    return line


def known(monkeypatch, *people):
    monkeypatch.setattr(Course, "people", lambda self: [RosterEntry(*p) for p in people])


def collect_command(inbox, *arguments):
    return CliRunner().invoke(app, ["collect", *arguments, "--course", str(inbox.root)])


# Owners: files, then the owner of each notebook: ? unknown, so it is kept; . does not count.
# # is the notebook's name, ~1 is what Moodle puts behind a name, %1 is a time of Brightspace,
# $1 of Blackboard, z.zip!x lies in a zip.

LAYOUTS = """
ann/01_rmsnorm/# | bob/01_rmsnorm/x.ipynb -> ann | bob
submitted/s28/01_rmsnorm/# | submitted/u28/01_rmsnorm/# -> s28 | u28
inbound/ann+@1 12:00:00 UTC+x/# | inbound/ann+@2 12:00:00 UTC+x/# -> . | ann
ann_111_1001_# | bob_LATE_222_1002_my work.ipynb -> ann | bob
Ann~1/# | Bob Ek~2/any.ipynb | Cy~3# -> Ann | Bob Ek | Cy
submission_11/# | submission_12/# | submission_metadata.yml -> Ann Lee | Bob Day
assignment_9_export/submission_11/# | assignment_9_export/submission_metadata.yml -> Ann Lee
submission_11/# | submission_12/# -> ? | ?
lab1-bob/notebooks/# | lab1-s1/# -> bob | s1
lab-01-rmsnorm-s1/# | lab-01-rmsnorm-7/notebooks/# -> s1 | 7
01_rmsnorm-bob/# | 01_rmsnorm-s1/# -> bob | s1
lab1-bob/# | lab1-ann/# | lab1-rope-ann/# -> bob | ann | rope-ann
lab1-bob/notebooks/# | lab1-bob/submissions/# | lab1-ann/# -> . | bob | ann
dora/anything at all.ipynb | elias/x/rmsnorm-Copy1.ipynb -> dora | elias
ann.zip!tinyllm/x.ipynb | bob.zip!# -> ann | bob
anna_# | # | notes.txt -> ? | ?
ann/# | bob/# | loose.ipynb -> ann | bob | ?
Ann Lee~1/# | week/x.ipynb | Bob~2/# -> Ann Lee | ? | Bob
eve/ann/01_rmsnorm/# | ann/01_rmsnorm/# -> eve | ann
eve/ann_111_9999_# | ann/# -> eve | ann
eve/ann_111_9999_# -> eve
eve/01_rmsnorm/x.zip!ann/01_rmsnorm/# | ann/01_rmsnorm/# -> eve | ann
Eve~1/ann/01_rmsnorm/# -> Eve
ann_111_1001_# | eve_222_1002_mine.zip!ann_111_9999_# -> ann | eve
ann~1/# | ann_111_999_x~5/# -> ann | ann_111_999_x
ann_111_999_x_1_assignsubmission_file__5_assignsubmission_file_/# -> !
ann_101_201_# | bob_103_203_# | eve_102_202_ann~101# -> ann | bob | eve
Ann~1# | Bob~2# | Eve~9Ann~1x.ipynb -> Ann | Bob | ?
doejohn_111_1001_# | doejohn_222_1002_# -> ? | ?
xy/try A/# | xy/try B/# | carl/# -> ? | ? | carl
_90006_700060_# | bob_222_1002_# -> ? | bob
1-9 - Ann Lee - %1/# | 1-9 - Ann Lee - %2/# | 2-9 - Bo Ek - %1/x.zip!# -> . | Ann Lee | Bo Ek
1-9 - Ann - %1 - # | 1-9 - Ann - %2 - # | 2-9 - B - C - %1 - # -> . | Ann | B - C
1-9 - Ann Lee - %1/# | 2-9 - Ann Lee - %2/# -> ? | ?
1-9 - Ann Lee - %1/# | 1-9 - Bob Day - %1/# -> Ann Lee | Bob Day
Lab 1_ann_attempt_$1_# | Lab 1_ann_attempt_$2_# | Lab 1_ann_attempt_$2.txt -> . | ann
Lab_1_ann_attempt_$1_# | Lab_1_b_d_attempt_$1_# | Lab_1_cy_attempt_$2_# -> ann | b_d | cy
Lab_1_ann_attempt_$1_# -> ?
Lab 1/Abgaben/Lee_Ann_ann_1234/# | Lab 1/Abgaben/Day_Bob_b_d_12/# -> Lee_Ann_ann | Day_Bob_b_d
Submitted files/A/Lab 1/Version 2/# | Submitted files/A/Lab 1/Version 10/# -> . | A
Submitted files/A/Lab 1/Version 1/# | Submitted files/B/Lab 1/Version 1/# -> A | B
x - Ann Lee.ipynb | my - lab - Bob Day (1).ipynb -> Ann Lee | Bob Day
notes - final.ipynb -> ?
.Eve Low~5/# | Ann~1/# -> Eve Low | Ann
.eve/# | submitted/# | node_modules/# | CON/# -> eve | ? | node_modules | CON_
._Eve~5# | __MACOSX~6# | .git~7# -> _Eve | __MACOSX | git
manifest.json/# | last.csv/# -> manifest.json | last.csv
unknown/# | learners/# -> unknown | learners
"""
GRADESCOPE = b"""
submission_11:
  :submitters:
  - :name: Ann Lee
    :sid:
submission_12:
  :submitters:
  - :name: Bob Day
"""


def spelled(text):
    moodle = [text.split("~")[0]]
    for part in text.split("~")[1:]:
        number = part[: len(part) - len(part.lstrip("0123456789"))]
        moodle += [f"_700{number}_assignsubmission_file_", part[len(number) :]]
    text = "".join(moodle).replace("#", FILE).replace("@", "01_rmsnorm+2026-03-0")
    text = text.replace("%1", "Dec 1, 2026 1030 PM").replace("%2", "Dec 2, 2026 105 AM")
    return re.sub(r"\$(\d)", r"2026-03-0\1-12-00-00", text)


def case_of(row):
    """Parse a row: (files, {learner: the notebook that counts}, number without a known
    owner)."""
    places, owners = (side.split(" | ") for side in row.split(" -> "))
    files, zips, expected, owners = {}, {}, {}, iter(owners)
    for number, place in enumerate(map(spelled, places)):
        data = {"yml": GRADESCOPE, "ipynb": notebook(str(number))}.get(
            place.rpartition(".")[2], b""
        )
        outer, _, inner = place.rpartition("!")
        (zips.setdefault(outer, {}) if outer else files)[inner] = data
        if place.endswith(".ipynb"):
            expected.setdefault(next(owners), []).append(data)
    files |= {name: zipped(inside) for name, inside in zips.items()}
    lost = len(expected.pop("?", []))
    expected.pop(".", None)
    return files, {who: data for who, (data,) in expected.items()}, lost


@pytest.mark.parametrize("source", ["in", "export.zip"])
def test_the_layout_decides_the_owner(inboxes, source):
    """The layout of the source decides; a name inside a learner's folder or zip never does."""
    for row in filter(None, LAYOUTS.splitlines()):
        files, expected, lost = case_of(row)
        inbox = inboxes()
        lines = inbox.take(files, source)
        if "!" in expected:  # nobody else's, in any case
            assert not {"ann", "Ann"} & set(inbox.handed_in()), row
            continue
        assert inbox.handed_in() == expected, row
        asked = [line for line in lines if line.state == issues.WHOSE]
        assert len(inbox.kept("collected/unknown")) == lost == len(asked), row
        assert all((inbox.root / line.kept).is_file() for line in asked), row


def test_another_layout_is_one_record(inbox, monkeypatch):
    """A new layout works at any place in the list; --as remembers its number."""
    pattern = r"(?P<who>[a-z]+_[a-z]+)_(?P<user>\d+)/"
    record = Platform("Canvas Files", layouts=(Layout(pattern),))
    monkeypatch.setattr(platforms, "PLATFORMS", (record, *platforms.PLATFORMS))
    known(monkeypatch, ("s1", "Ann", "Lee"), ("s2", "Eve", "Low"))
    inbox.take({f"lee_ann_17/{FILE}": A, f"day_bob_18/{FILE}": B})
    assert inbox.handed_in() == {"s1": A}
    (issue,) = OpenIssues(inbox.root).open()
    deliver.collect(inbox.course, [inbox.root / issue.kept], learner="s2")
    inbox.take({f"bob_day_18/{SECOND.name}.ipynb": notebook("b", SECOND)}, "next")
    assert set(inbox.handed_in(SECOND)) == {"s2"}
    inbox.take({f"{ANN}/{FILE}": C})  # other layouts are found as before
    assert inbox.handed_in()["s1"] == A and "Moodle 7001" in (
        OpenIssues(inbox.root).open()[0].claim
    )


# Rosters

ROSTER = (
    "Student ID;Name;E-Mail\r\n"
    "al17;Lovelace, Ada;ada@example.edu\r\n"
    "km02;Kim Minh Mai;\r\n"
    "jd01;John Doe;jd01@example.edu\r\njd02;John Doe;jd02@example.edu\r\n"
)


def listed(inbox, text):
    """A roster's file."""
    (inbox.folder / "roster.csv").write_text(text, "utf-8-sig")
    return inbox.folder / "roster.csv"


def test_a_roster_maps_names_to_students_and_the_unknown_are_kept(inbox):
    lines = inbox.take({
        f"lovelaceada_111_1001_{FILE}": A,
        f"jd01_333_1003_{FILE}": C,  # a learner's chosen name that is another one's id
        f"doejohn_334_1004_{FILE}": D,
        f"mallory_444_1005_{FILE}": notebook("m"),
    }, roster_file=listed(inbox, ROSTER))  # fmt: skip
    assert inbox.handed_in() == {"al17": A}
    mallory, which = line_of(lines, "mallory_444"), line_of(lines, "doejohn_334")
    assert "roster" in mallory.note and "jd01 or jd02" in which.note
    assert {notebook("m"), C, D} == set(inbox.kept("collected/unknown"))
    people = {person.id: person for person in inbox.course.people()}
    assert people["al17"].name == "Ada Lovelace" and people["al17"].email == "ada@example.edu"
    lines = inbox.take({f"ada@example.edu/{FILE}": A, f"Kim Minh Mai/{FILE}": B}, "in")
    assert inbox.handed_in()["km02"] == B  # the gradebook is the roster now
    assert line_of(lines, "al17").state == issues.SAME


def test_an_lms_gradebook_is_a_roster(inbox):
    for text in ("Name,SID,Email,Total Score\nAnn Lee,17,ann@x.edu,3\n",
                 "First Name,Last Name,SID,Email\nAnn,Lee,17,ann@x.edu\n",
                 "First name,Surname,ID number,Email address\nAnn,Lee,17,ann@x.edu\n",
                 'Student,ID,Section\nPoints Possible,,\n"Lee, Ann",17,A\n'):  # fmt: skip
        (person,) = read_roster(listed(inbox, text)).people
        assert (person.id, person.name) == ("17", "Ann Lee"), text
    canvas = 'Student,ID,SIS User ID,SIS Login ID,Email\n"Lee, Ann",900,17,alee,ann@x.edu\n'
    for person in (RosterEntry("17", "Ann", "Lee", lms_user_id="900"),
                   RosterEntry("alee", "A.", "Lee"),
                   RosterEntry("x", "A.", "L.", "ann@x.edu")):  # fmt: skip
        roster = read_roster(listed(inbox, canvas + '"Lee, Bo",,18,blee,\n'), [person])
        # a known person keeps the id
        assert [p.id for p in roster.people] == [person.id, "blee"]
    lines = inbox.take({f"_900_1001_{FILE}": A}, roster_file=listed(inbox, canvas))
    assert states(lines) == {"alee": issues.NEW}


def test_numbers_of_a_worksheet_and_github_names(inboxes, monkeypatch):
    """They take precedence over names, which people choose themselves."""
    sheet = (
        "Identifier,Full name,Email address\nParticipant 7001,王伟,wang1@x.edu\n"
        "Participant 7002,王伟,wang2@x.edu\nParticipant 7003,Group A,team@x.edu\n"
    )
    inbox = inboxes()
    inbox.take({f"王伟_7001_assignsubmission_file_/{FILE}": A,
                f"王伟_7002_assignsubmission_file_/{FILE}": B,
                f"Team-X_7003_assignsubmission_file_/{FILE}": C},
               roster_file=listed(inbox, sheet))  # fmt: skip
    assert inbox.handed_in() == {"wang1": A, "wang2": B, "team": C}
    known(monkeypatch, ("s1", "Ann", "Lee", "ann@x.edu"))
    classroom = "identifier,github_username,github_id,name\nann@x.edu,octo133-dev,1,Ann Lee\n"
    for names in (classroom, "id,name,GitHub\ns1,Ann Lee,octo133-dev\n"):
        inbox = inboxes()
        inbox.take({f"lab1-octo133-dev/{FILE}": A}, "in", roster_file=listed(inbox, names))
        assert inbox.handed_in() == {"s1": A}
        inbox.take({f"lab2-octo133-dev/{SECOND.name}.ipynb": notebook(lab=SECOND)}, "next")
        assert set(inbox.handed_in(SECOND)) == {"s1"}  # the owner is remembered


@pytest.mark.parametrize("language", WORKSHEETS)
def test_a_worksheet_in_any_language_is_a_roster(inbox, language):
    """A team's file begins with the team's name; the number in it identifies the learner."""
    inbox.take({"Ann Lee_7001_assignsubmission_file_/x.ipynb": A,
                "Gruppe 1-Bo Ek_7002_assignsubmission_file_/x.ipynb": B},
               roster_file=listed(inbox, WORKSHEETS[language]))  # fmt: skip
    assert inbox.handed_in() == {"ann": A, "bo": B}


def test_ids_with_numbers_are_no_worksheet(inbox):
    text = "id,name,email\ns17,Ann,ann@x.edu\ns18,Bo,bo@x.edu\n"
    assert [p.id for p in read_roster(listed(inbox, text)).people] == ["s17", "s18"]


@pytest.mark.parametrize("ids", [("17/a", "17:a"), ("s" * 80 + "1", "s" * 80 + "2")])
def test_two_ids_of_a_roster_never_become_one(inbox, ids):
    text = "id,name\n" + "".join(f"{each},Ann {n}\n" for n, each in enumerate(ids))
    with pytest.raises(CourseError, match=f"{ids[0]}.*{ids[1]}.*change one of them"):
        read_roster(listed(inbox, text))


def test_a_bad_roster_says_so(inbox):
    for text, words in {"name,mail\nA,b\n": "no column id", "id\n": "nobody"}.items():
        with pytest.raises(CourseError, match=words):
            deliver.collect(inbox.course, [], None, listed(inbox, text))
    with pytest.raises(CourseError, match="cannot be read"):
        deliver.collect(inbox.course, [], None, inbox.folder / "nowhere.csv")


def test_a_list_that_a_learner_hands_in_is_no_roster(inboxes, monkeypatch):
    known(monkeypatch, ("ann", "Ann", "Lee"), ("eve", "Eve", "Low"))
    eve = "Eve Low_105_assignsubmission_file_"
    forged = (
        b"Identifier,Full name,Email address,ID number\nParticipant 105,Eve Low,ann@x,ann\n"
    )
    for place in ("", "/"):
        inbox = inboxes()
        inbox.take({f"Ann Lee_101_assignsubmission_file_{place}{FILE}": A,
                    f"{eve}{place}{FILE}": B, f"{eve}{place}grades.csv": forged})  # fmt: skip
        assert inbox.handed_in() == {"ann": A, "eve": B}
    lines = inboxes().take({f"leeann_101_201_{FILE}": A, "loweve_102_202_01.csv": forged})
    (line,) = [line for line in lines if line.state == issues.UNGRADED]
    assert line.learner == "eve" and "it is no notebook" in line.note


def test_no_learner_decides_what_system_an_export_is_of(inboxes):
    """Neither with a display name in Moodle nor with the names of several files in Canvas."""
    names = [f"low_102_20{n}_x_{n}_assignsubmission_file_.ipynb" for n in range(5)]
    eves = {name: notebook(name) for name in names}
    for source in ("export.zip", "in"):
        inbox = inboxes()
        inbox.take({f"ann_101_201_{FILE}": A, f"bob_103_203_{FILE}": B} | eves, source)
        assert inbox.handed_in() == {"ann": A, "bob": B, "low": eves[names[-1]]}
        inbox = inboxes()
        folders = ("ann_111_999_x_105", "Ann Lee_101")
        inbox.take({f"{folder}_assignsubmission_file_/{FILE}": data
                    for folder, data in zip(folders, (B, A), strict=True)}, source)  # fmt: skip
        assert inbox.handed_in() == {"ann_111_999_x": B, "Ann Lee": A}


def test_ids_stay_in_their_folder(tmp_path):
    for name in ("../../etc/passwd", "a/b\\c", "*?[x]", ".", "...", "con\x00trol", "x" * 300,
                 "\u202e"):  # fmt: skip
        found = safe_id(name)
        assert found and len(found) <= 80 and not set(found) & set("/\\*?[]\x00\u202e"), name
        assert found.strip(".") and (tmp_path / found).resolve().parent == tmp_path.resolve()


def test_a_name_in_the_gradebook_is_no_formula_and_no_markup(inbox):
    name = '<img src=x onerror=alert(1)>\x1b\n Lo\'w & "Co"'
    path = inbox.folder / "roster.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "name", "email"], ["eve", name, "<b>@x.edu"],
                                    ["ann", "=1+1", "@SUM(1)"],
                                    ["bob", "\uff0bevil", "\uff20x"]])  # fmt: skip
    inbox.take({f"ann/01_rmsnorm/{FILE}": A}, roster_file=path)
    people = {person.id: person for person in inbox.course.people()}
    assert people["eve"].name == "img src=x onerror=alert(1) Lo'w Co"
    assert people["eve"].email == "b@x.edu"
    texts = [t or "" for p in people.values() for t in (p.first_name, p.last_name, p.email)]
    assert not [t for t in texts if unicodedata.normalize("NFKC", t)[:1] in tuple("=@+")]


# Disputes, and how a person settles them with --as


def test_two_numbers_for_one_learner_are_a_question(inbox, monkeypatch):
    """The number named with --as counts; the other one has no owner yet and stays open."""
    known(monkeypatch, ("ann", "Ann", "Lee"), ("eve", "Eve", "Low"))
    files = {f"{who}_assignsubmission_file_/{FILE}": data
             for who, data in {"Ann Lee_101": A, "ANN LEE_105": B}.items()}  # fmt: skip
    lines = inbox.take(files)
    assert [line.state for line in lines] == [issues.WHOSE] * 2 and not inbox.handed_in()
    assert all("several people" in line.note and line.kept for line in lines)
    (kept,) = [one.kept for one in OpenIssues(inbox.root).open() if "Ann Lee" in one.file]
    (line,) = deliver.collect(inbox.course, [inbox.root / kept], learner="ann")
    assert line.state == issues.NEW and line.when == NOON_UTC
    for again in (C, B):
        lines = inbox.take(files | {f"ANN LEE_105_assignsubmission_file_/{FILE}": again})
        assert inbox.handed_in() == {"ann": A}
        assert sorted(line.state for line in lines) == [issues.SAME, issues.WHOSE]
        (*_, kept) = [one.kept for one in OpenIssues(inbox.root).open()]
    deliver.collect(inbox.course, [inbox.root / kept], learner="eve")
    later = {f"ANN LEE_105_assignsubmission_file_/{FILE}": D}
    inbox.take(zipped(files | later, dict.fromkeys(later, (2026, 3, 2, 1, 1, 1))))
    assert inbox.handed_in() == {"ann": A, "eve": D}  # the owner of the number is known now


def test_notebooks_from_different_sources_are_a_question(inbox):
    inbox.take({f"doejohn_111_1001_{FILE}": A})
    inbox.take({f"doejohn_222_1002_{SECOND.name}.ipynb": notebook("b", SECOND)})
    lines = inbox.take({f"doejohn/{FILE}": B}, "in")
    assert [line.state for line in lines] == [issues.WHOSE]
    assert inbox.handed_in() == {"doejohn": A} and not inbox.handed_in(SECOND)
    assert len(OpenIssues(inbox.root).open()) == 2
    assert not {"collected/doejohn"} & {one.kept for one in OpenIssues(inbox.root).open()}
    assert B in inbox.kept("collected/unknown")
    lines = inbox.take({f"doejohn/{FILE}": A}, "other")  # the same notebook is not a dispute
    assert [line.state for line in lines] == [issues.SAME]


def test_what_is_nobodys_is_given_to_somebody(inboxes, monkeypatch):
    known(monkeypatch, ("t1", "Tim", "Ek"), ("c1", "Carl", "Day"))
    files = {f"Tim Ek/try A/{FILE}": A, f"Tim Ek/try B/{FILE}": B, f"Carl Day/{FILE}": C}
    inbox = inboxes()
    inbox.take(files, "in")
    assert inbox.handed_in() == {"c1": C}
    assert "different notebooks" in OpenIssues(inbox.root).of_lab(LAB.name)["t1"]
    kept = [one.kept for one in OpenIssues(inbox.root).open() if "try B" in one.file]
    deliver.collect(inbox.course, [inbox.root / kept[0]], learner="t1")
    for _ in range(2):
        assert inbox.handed_in() == {"c1": C, "t1": B}
        assert not OpenIssues(inbox.root).open()
        inbox.take(files, "in")
    with pytest.raises(CourseError, match="not on the roster"):
        deliver.collect(inbox.course, [inbox.root / kept[0]], learner="s009")
    known(monkeypatch)
    inbox = inboxes()  # with any file name
    inbox.take({"doe_111_1001_03_gqa.ipynb": A, "essay.pdf": b"%PDF"}, learner="kim")
    assert inbox.handed_in() == {"kim": A}


def test_a_mark_of_lateness_stays_with_what_a_person_gives_to_a_learner(inbox, monkeypatch):
    known(monkeypatch, ("s1", "Ann", "Lee"))
    inbox.take({f"roe_LATE_22345_67891_{FILE}": A})
    (issue,) = OpenIssues(inbox.root).open()
    deliver.collect(inbox.course, [inbox.root / issue.kept], learner="s1")
    assert read_manifest(inbox.root)[f"s1/{LAB.name}"]["late"] is True


def test_a_command_is_printed_whole(inbox):
    """So that it can be copied from a narrow window."""
    command = "`tinyllm collect --as ann " + "folder/" * 20 + "rmsnorm.py` lets that count"
    line = issues.Line("ann", "", LAB.name, None, issues.BLANK, command, "x")
    out = io.StringIO()
    issues.show(inbox.root, [line], [], Console(file=out, width=80))
    assert command in out.getvalue()


def test_a_long_roster_is_read_in_a_moment(tmp_path):
    """No row is compared with all others, so time grows in proportion to the rows."""
    path, seconds = tmp_path / "roster.csv", []
    for count in (200, 1000):
        path.write_text("id,name,email\n" + "".join(
            f"u{n},Ann{n} Lee{n},u{n}@x.edu\n" for n in range(count)))  # fmt: skip
        people = read_roster(path).people
        started = time.process_time()
        assert len(read_roster(path, people).people) == count
        seconds.append(time.process_time() - started)
    assert seconds[1] < 12 * seconds[0]


# Attempts and times


def test_the_latest_attempt_counts_and_every_other_is_kept(inbox):
    """A second collect changes nothing; a notebook that was put there by hand is replaced only
    on request."""
    first, later = {f"ada_111_1001_{FILE}": A}, {f"ada_111_1009_{FILE}": B}

    def times():
        return {p: p.stat().st_mtime_ns for p in (inbox.root / "submitted").rglob("*")}

    assert states(inbox.take(first)) == {"ada": issues.NEW}
    before = times()
    assert states(inbox.take(first)) == {"ada": issues.SAME} and times() == before
    assert not list(inbox.root.rglob(".spool*")) and inbox.kept() == [A]
    (inbox.root / "collected" / ".spool-killed" / "x").mkdir(parents=True)
    assert states(inbox.take(later)) == {"ada": issues.NEWER}
    assert not list(inbox.root.rglob(".spool*"))
    assert states(inbox.take(first)) == {"ada": issues.EARLIER}
    assert inbox.handed_in() == {"ada": B} and sorted(inbox.kept()) == sorted([A, B])
    again = {f"ada_111_1010_{FILE}": A}  # the first one, handed in once more
    assert states(inbox.take(again)) == {"ada": issues.NEWER}
    assert inbox.handed_in() == {"ada": A}
    assert states(inbox.take({f"ada_111_1011_{FILE}": B})) == {"ada": issues.NEWER}
    folder = inbox.root / "submitted" / "ada" / LAB.name
    (folder / FILE).write_bytes(C)
    (folder / "timestamp.txt").write_text("2026-03-05 12:00:00 UTC")
    assert states(inbox.take(later)) == {"ada": issues.EARLIER}
    old = {f"ada_111_1000_{FILE}": D}
    assert states(inbox.take(old)) == {"ada": issues.EARLIER} and D in inbox.kept()
    assert inbox.handed_in() == {"ada": C}
    assert states(inbox.take(later, replace_newer=True)) == {"ada": issues.NEWER}
    assert inbox.handed_in() == {"ada": B} and C in inbox.kept()


def test_a_persons_choice_among_attempts_holds_when_they_come_again(inboxes):
    full = notebook(
        ex_1_1=cells.directive(LAB.exercises[0]) + "\ndef layer_norm(x): return x\n"
    )
    files = {f"{ANN}/{FILE}": full, f"{ANN}/Copy1.ipynb": A}
    export = zipped(files, {f"{ANN}/Copy1.ipynb": (2026, 3, 1, 12, 1, 0)})
    for choice, other in ((full, A), (A, full)):
        inbox = inboxes()
        inbox.take(export)
        assert inbox.handed_in() == {"Ann Lee": A} and not OpenIssues(inbox.root).open()
        (path,) = [p for p in (inbox.root / "collected").rglob("*.ipynb")
                   if p.read_bytes() == choice]  # fmt: skip
        deliver.collect(inbox.course, [path], learner="Ann Lee", replace_newer=True)
        for _ in range(2):
            assert inbox.handed_in() == {"Ann Lee": choice}
            assert not [line for line in inbox.take(export) if line.trouble]
        newest = zipped(
            files | {f"{ANN}/x.ipynb": B}, {f"{ANN}/x.ipynb": (2026, 3, 2, 9, 0, 0)}
        )
        inbox.take(newest)
        assert inbox.handed_in() == {"Ann Lee": B} and other in inbox.kept()
    inbox = inboxes()
    lines = inbox.take(files)  # with the same time: a person decides which one counts
    assert {line.state for line in lines} == {issues.WHOSE} and not inbox.handed_in()


def test_canvas_late_mark_decides_whenever_the_deadline_is_set(released_course, tmp_path):
    """Set or changed before or after collecting and grading, in both directions."""
    course = released_course
    late, early = f"roeann_LATE_22345_67891_{FILE}", f"doejohn_12345_67890_{FILE}"
    (tmp_path / "export.zip").write_bytes(zipped({late: C, early: B}))
    clone = tmp_path / "clones" / "lab1-octo" / FILE  # its time is the time of cloning
    clone.parent.mkdir(parents=True)
    clone.write_bytes(A)
    deliver.collect(course, [tmp_path / "export.zip", tmp_path / "clones"])
    for learner, data in {"roeann": C, "doejohn": B, "octo": A}.items():
        folder = course.root / "submitted" / learner / LAB.name
        graded(course, learner, FULL, (folder / "timestamp.txt").read_text())
        (folder / FILE).write_bytes(data)
    for month in (2, 4, 1):
        rules = (
            f"[deadlines]\nrmsnorm = 2026-{month:02}-01T00:00Z\n[late]\npercent_a_day = 10\n"
        )
        (course.root / "course.toml").write_text(rules)
        course = Course(course.root)
        apply_course_rules(course, LAB)
        found = course.standings(LAB)
        assert found["doejohn"].late_penalty == 0 < found["roeann"].late_penalty, month
        told = [str(remark) for remark in course.remarks if "LATE" in remark.text]
        assert len(told) == (month == 4) and all("files: roeann" in text for text in told)
        assert found["octo"].late_penalty == 0 and found["octo"].handed_at is None, month
        stamp = course.root / "submitted" / "roeann" / LAB.name / "timestamp.txt"
        assert parse_timestamp(stamp.read_bytes()) > course.due_dates()[LAB.name], month


def test_the_time_is_that_of_the_outer_file(inbox):
    early = (2001, 1, 1, 0, 0, 0)
    lines = inbox.take({
        f"Moe_6_assignsubmission_file_/{FILE}": A,
        "Moe_6_assignsubmission_file_/timestamp.txt": EARLY,
        "Zed_7_assignsubmission_file_/mine.zip": zipped({FILE: C}, {FILE: early}),
    })  # fmt: skip
    assert {line.when for line in lines} == {NOON_UTC}


@pytest.mark.parametrize("source", ["export.zip", "in"])
def test_no_time_that_a_learner_can_write_counts(inboxes, source):
    """Neither a timestamp.txt nor the name of the only folder of a source."""
    cases = {"eve/01_rmsnorm": ["ann/01_rmsnorm"], "lab1-eve": ["lab1-ann"],
             "eve+01_rmsnorm+2001-01-01 00:00:00 UTC": []}  # fmt: skip
    for eves, others in cases.items():
        files = {f"{eves}/{FILE}": A, f"{eves}/timestamp.txt": EARLY}
        files |= {f"{other}/{FILE}": B for other in others}
        lines = inboxes().take(files, source)
        (line,) = [line for line in lines if line.source.endswith(f"{eves}/{FILE}")]
        assert line.state == issues.NEW and line.when.year >= 2026, eves


# Which lab, and what cannot be graded


def test_the_lab_by_cells_then_by_name(inbox):
    named = {
        FILE: LAB,
        "1-rmsnorm-final.ipynb": LAB,
        "02_rope/ada.ipynb": SECOND,
        "moe_01_rmsnorm.ipynb": LAB,
        "europe.ipynb": None,
        "lab 1.ipynb": None,
    }
    for path, lab in named.items():
        assert lab_by_name(tuple(path.split("/"))) is lab, path
    files = {"ada_111_1001_homework.ipynb": notebook("a", None),
             "bob_222_1002_02_rope.ipynb": notebook("b", SECOND),
             "cem_333_1003_02_rope.ipynb": C}  # fmt: skip
    lines = inbox.take(files, lab=LAB)
    assert states(lines) == {"ada": issues.NEW, "bob": issues.UNGRADED, "cem": issues.NEW}
    assert SECOND.name in line_of(lines, "bob").note
    assert any(line.state == issues.REFUSED and "--lab" in line.note
               for line in inbox.take(files))  # fmt: skip


CANNOT = [
    ("essay.pdf", b"%PDF-1.7", "no notebook"),
    (FILE, b"%PDF-1.7", "not JSON"),
    ("work.tar.gz", b"\x1f\x8b\x08", "not a readable zip"),
    (FILE, notebook("done")[:3000], "not JSON"),
    (FILE, b"<<<<<<< HEAD\n" + notebook("a") + b"\n=======\n", "git left a conflict"),
    (FILE, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    (FILE, b'{"worksheets": [{"cells": []}], "nbformat": 3}', "nbformat 3: open it in Jupyter"),
    (f".{FILE}.icloud", b"bplist00\xd4", "a placeholder of iCloud"),
    (FILE, b"", "empty"),
    ("work.zip", b"PK\x03\x04 broken", "not a readable zip"),
    (FILE, notebook("", SECOND), "a notebook of 02_rope"),
    ("00_tour.ipynb", TOUR, "nothing in this notebook is graded"),
]


def test_what_cannot_be_graded_is_told_with_its_learner(inboxes):
    for name, data, why in CANNOT:
        inbox = inboxes()
        lines = inbox.take({f"{ANN}/{name}": data, f"{BOB}/{FILE}": A}, lab=LAB)
        assert set(inbox.handed_in()) == {"Bob Day"}, name
        (line,) = [line for line in lines if line.trouble]
        assert line.learner.startswith("Ann Lee") and why in line.note, name
        (reason,) = OpenIssues(inbox.root).of_lab(LAB.name).values()
        assert reason.startswith(f"handed in {name}, which cannot be graded: "), name
        assert why in reason and name in page_of(inbox, "Ann Lee").read_text(), name
        inbox.take({f"{ANN}/x/{FILE}": B}, "later.zip")
        assert not OpenIssues(inbox.root).open() and "Ann Lee" in inbox.handed_in(), name


def test_nul_bytes_behind_a_notebook_are_no_matter(inbox):
    inbox.take({f"{ANN}/{FILE}": A, f"{BOB}/{FILE}": B + bytes(9)})
    assert inbox.handed_in() == {"Ann Lee": A, "Bob Day": B + bytes(9)}


def test_what_lies_beside_a_notebook_is_no_matter(inbox):
    lines = inbox.take({f"{ANN}/{FILE}": A, f"{ANN}/essay.pdf": b"%PDF-1",
                        f"{ANN}/tour.ipynb": TOUR,
                        f"{BOB}/hand in.zip": zipped({
                            f"tinyllm/notebooks/{FILE}": B,
                            "tinyllm/notebooks/02_rope.ipynb": notebook("kim", SECOND),
                            f"__MACOSX/tinyllm/notebooks/._{FILE}": b"\x00",
                            "tinyllm/.ipynb_checkpoints/01_rmsnorm-checkpoint.ipynb": D}),
                        "notes.txt": b"x"})  # fmt: skip
    assert inbox.handed_in() == {"Ann Lee": A, "Bob Day": B} and set(inbox.handed_in(SECOND))
    assert not [line for line in lines if line.trouble]


def test_reports_do_not_say_that_nothing_was_handed_in(inbox, monkeypatch):
    inbox.take({f"{ANN}/essay.pdf": b"%PDF", f"{BOB}/00_tour.ipynb": TOUR}, lab=LAB)
    results = Results(inbox.root, LAB)
    nothing = GradedSubmission(tuple(zero(exercise, "no points") for exercise in LAB.exercises))
    results.put("key", nothing)
    results.put_class({"bob": "key"})
    monkeypatch.setattr(Course, "standings", lambda self, lab: {})
    write_reports(inbox.course)
    for name in ("01_rmsnorm.html", "01_rmsnorm.csv"):
        text = (inbox.root / name).read_text("utf-8-sig")
        assert "handed in essay.pdf, which cannot be graded: it is no notebook" in text
        assert "o file of theirs" not in text
    assert "needs a look: 2" in (inbox.root / "class.html").read_text()


# The command


def test_the_command_prints_one_screen_and_writes_a_table(inbox):
    """One line per lab if all is well. Open issues of all collects are listed; the path of the
    table comes last."""

    def lines_of(*arguments):
        done = CliRunner().invoke(app, ["collect", *arguments, "--course", str(inbox.root)],
                                  env={"COLUMNS": "80"})  # fmt: skip
        *lines, last = done.output.strip().split("\n")
        assert "".join(last.split()).endswith("collected/last.csv"), done.output
        assert len(lines) < 23 and max(map(len, lines)) <= 80 and "\x1b[31m" not in done.output
        return done.exit_code, "\n".join(lines)

    class_of_150 = {f"p{n}_{n}1_{n}_{FILE}": notebook(f"{n}") for n in range(1000, 1150)}
    (inbox.folder / "well.zip").write_bytes(zipped(class_of_150))
    done = collect_command(inbox, str(inbox.folder / "well.zip"))
    assert (done.exit_code, done.output) == (0, "01_rmsnorm: 150 new\n")

    evil = f"=HYPERLINK(1)_111_1001_{FILE}"
    many = {f"p{n:02}x_{n}11_1{n:02}1_{FILE}": notebook(f"{n}") for n in range(10, 80)}
    odd = {f"Ann_99{n}_900{n}_essay.pdf": b"%PDF" for n in range(9)} | {"\x1b[31mx.zip": b""}
    path = inbox.folder / "export.zip"
    path.write_bytes(zipped(odd | {evil: A} | many))
    code, text = lines_of(str(path), "--lab", LAB.module)
    assert code == 1 and "71 new" in text and "10 of 81 files need a look" in text
    rows = rows_of(inbox.root / "collected" / "last.csv")
    assert not [cell for row in rows for cell in row.values() if cell.startswith("=")]
    assert len([row for row in rows if "essay.pdf" in row["file"]]) == 9
    code, text = lines_of()
    assert code == 1 and "10 more from earlier" in text and "essay.pdf" in text
    assert rows_of(inbox.root / "collected" / "last.csv") == rows  # nothing was collected
    assert collect_command(inbox, str(inbox.folder / "nowhere")).exit_code == 1
    assert collect_command(inbox, str(inbox.root / "collected")).exit_code == 2


# A module beside a notebook


def module(*answered):
    """The lab's module, with these exercises answered."""
    text = (ROOT / "tinyllm" / f"{LAB.module}.py").read_text()
    for exercise in answered:
        answer = cells.plain(reference_block(LAB, exercise))
        text = cells.with_block(text, exercise, answer)
    return text.encode()


@pytest.mark.parametrize(
    "place", ["{}/rmsnorm.py", "{}/my course/tinyllm/rmsnorm.py", "{}/01/rmsnorm-1.py"]
)
def test_a_module_beside_a_blank_notebook_is_a_question(inbox, place):
    """It is open until a notebook comes that `tinyllm submit` wrote."""
    first, second, *_ = LAB.exercises
    answer = cells.plain(reference_block(LAB, second))
    files = {f"ann/{FILE}": notebook(ex_1_2=answer), f"bob/{FILE}": B,
             place.format("ann"): module(first, second)}  # fmt: skip
    lines = inbox.take(files)
    assert states(lines)["ann"] == issues.BLANK and states(lines)["bob"] == issues.NEW
    (note,) = [line.note for line in lines if line.learner == "ann" and line.trouble]
    assert note.startswith("1.1: blank in the notebook, answered in rmsnorm.py; ask for")
    assert [issue.learner for issue in OpenIssues(inbox.root).open()] == ["ann"]
    inbox.take({f"ann/{FILE}": D}, learner="ann", replace_newer=True)
    assert OpenIssues(inbox.root).open() == [] and inbox.handed_in()["ann"] == D


def run_collect(inbox, *arguments):
    command = ["collect", *arguments, "--course", str(inbox.root)]
    return CliRunner().invoke(app, command).exit_code


def test_a_person_may_let_the_blank_notebook_count(inbox):
    files = {f"ann/{FILE}": A, "ann/rmsnorm.py": module(LAB.exercises[0]), f"bob/{FILE}": B}
    assert states(inbox.take(files))["ann"] == issues.BLANK
    (copy,) = (inbox.root / "collected" / "learners" / "ann" / LAB.name).glob("*.ipynb")
    assert run_collect(inbox, "--as", "ann", str(copy)) == 0
    assert not any(line.trouble for line in inbox.take(files))


@pytest.mark.parametrize("beside", ["solutions/rmsnorm.py", "tests/rmsnorm.py", "rope.py"])
def test_files_of_the_course_and_empty_modules_raise_no_question(inbox, beside):
    full = module(*LAB.exercises)
    files = {f"ann/{FILE}": A, f"ann/{beside}": full, f"bob/{FILE}": B,
             "bob/tinyllm/rmsnorm.py": module()}  # fmt: skip
    assert not any(line.trouble for line in inbox.take(files))


def test_of_a_project_what_the_learner_works_in_counts(inbox):
    """Neither the released lesson, nor a backup, nor the copies of released files count."""
    project = {f"given/{FILE}": A, f"notebooks/{FILE}": B, f".given/notebooks/{FILE}": A,
               f"backups/2026-11-28/notebooks/{FILE}": C, "tinyllm/rmsnorm.py": module(),
               f"solutions/{LAB.module}.py": module(*LAB.exercises)}  # fmt: skip
    files = {f"ann/{name}": data for name, data in project.items()}
    files |= {"bob.zip": zipped({f"tinyllm/{name}": data for name, data in project.items()})}
    files |= {f"cem/{name}": data for name, data in project.items()}
    files |= {f"cem/submissions/{FILE}": D, f"given/{FILE}": D}
    files = {name.replace("bob.zip", "bob/all.zip"): data for name, data in files.items()}
    lines = inbox.take(files)
    assert not any(line.trouble for line in lines), lines
    assert inbox.handed_in() == {"ann": B, "bob": B, "cem": D, "given": D}
