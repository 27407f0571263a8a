"""Names and files with which a learner may try to stop a class, to vanish, or to hand in for
somebody else; and the effect on an honest person who is involved."""

import json
import re
import shlex

import pytest
import yaml
from typer.testing import CliRunner

from labkit.cli import app
from labkit.course.files import safe_id
from labkit.grading.collect import issues
from labkit.grading.collect.issues import OpenIssues
from labkit.grading.collect.roster import read_roster
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import RosterEntry
from labkit.grading.nbgrader.timestamp import read_manifest
from labkit.grading.platform_files import read_yaml
from labkit.grading.platforms import PLATFORMS
from tests.course.cost import at_most
from tests.course.grading.samples import LAB, notebook, zipped

FILE = f"{LAB.name}.ipynb"
A, B, C = map(notebook, "abc")
METADATA = "submission_metadata.yml"
TELLS = b"submission_1:\n  :submitters:\n  - :name: Ann Lee\n"
# Each level contains the previous one nine times
LAUGHS = "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(12)
)
BROKEN = {
    "half": b"a: [",
    "binary": bytes(range(256)),
    "laughs": LAUGHS.encode(),
    "laughs at a name": LAUGHS.encode() + b"submission_1:\n  :submitters:\n  - :name: *a11\n",
    "deep": b"[" * 100_000,
    "an object": b"a: !!python/object/apply:os.system [id]\n? [a]\n: b\n",
    "large": b"a: 1\n" * 2_000_000,
}
ODD = {  # read, but without any person
    "a number": b"5",
    "numbers": b"submission_1: {submitters: 5}",
    "names that are tables": b"submission_1: {submitters: [{name: {a: b}, sid: [1]}]}",
    "a long number": b"submission_1: {created_at: " + b"1:1" * 9_999 + b"}",
}


def known(monkeypatch, *people):
    monkeypatch.setattr(Course, "people", lambda self: [RosterEntry(*p) for p in people])


def roster(inbox, text):
    path = inbox.folder / "roster.csv"
    path.write_text(text)
    return path


def state_of(lines, learner):
    return [line.state for line in lines if line.learner == learner]


# A platform's own file


@pytest.mark.parametrize("name", [METADATA, "manifest.json", "timestamp.txt"])
@pytest.mark.parametrize(
    "place",
    ["lab1-eve", "Eve~5_assignsubmission_file_", "eve", "submission_2", "submission_2/x.zip!"],
)
def test_a_platforms_file_in_a_learners_folder_is_any_file(inboxes, place, name):
    eve, _, inner = place.replace("~", "_").partition("/")
    for content in (
        BROKEN["half"],
        BROKEN["laughs"],
        ODD["numbers"],
        TELLS.replace(b"_1", b"_2"),
    ):
        inbox, other = inboxes(), eve.replace("Eve_5", "Ann_6").replace("eve", "ann")
        other = "submission_1" if eve == "submission_2" else other
        files = {f"{other}/{FILE}": A}
        if inner:
            files[f"{eve}/x.zip"] = zipped({FILE: B, name: content})
        else:
            files |= {f"{eve}/{FILE}": B, f"{eve}/{name}": content}
        if eve == "submission_2":
            files[METADATA] = TELLS
        lines = inbox.take(files, "in")
        assert A in inbox.handed_in().values()
        assert inner or not [
            line for line in lines if line.source.endswith(name) and line.trouble
        ]
        owners = {who for who, data in inbox.handed_in().items() if data == B}
        assert bool(owners) is (eve != "submission_2") and "Ann Lee" not in owners


def test_a_broken_file_of_a_platform_is_an_issue_with_its_path(inboxes):
    for case, content in (BROKEN | ODD).items():
        inbox = inboxes()
        files = {f"submission_1/{FILE}": A, f"submission_2/{FILE}": B, METADATA: content}
        with at_most(1500, case):
            lines = inbox.take(files)
        assert len(inbox.kept("collected/unknown")) == 2 and not inbox.handed_in(), case
        found = [line for line in lines if line.source == f"export.zip/{METADATA}"]
        assert [line.state for line in found] == [issues.REFUSED] * (case in BROKEN), case
        assert case in ODD or "cannot be read" in found[0].note, case


def test_yaml_is_texts_without_aliases():
    loaded = read_yaml(b":a: 007\nb: [2026-03-01, yes, ~]\n")
    assert loaded == {":a": "007", "b": ["2026-03-01", "yes", "~"]}
    for content in (*BROKEN.values(), b"a: &x 1\nb: 2\n"):
        with pytest.raises(ValueError, match=r"\w+"):
            read_yaml(content)
    assert yaml.safe_load("a: &x 1")  # plain YAML accepts it


# Names


@pytest.mark.parametrize(
    "name",
    ["manifest.json", "needs_a_look.json", "last.csv", "unknown", "learners", ".Eve", ".git",
     "node_modules", "__MACOSX", "CON", "Icon", "._x", "site-packages"],
)  # fmt: skip
def test_no_name_stops_a_class_or_is_dropped(inboxes, name):
    for form in ("{}_105_assignsubmission_file_/#", "{}_105_201_#", "{}/#", "lab1-{}/#"):
        is_canvas = form.startswith("{}_105_2")  # Canvas keeps only letters and digits
        name = re.sub(r"\W|_", "", name) if is_canvas else name
        place = form.format(name).replace("#", FILE)
        other = form.format("ann").replace("105", "106").replace("#", FILE)
        inbox = inboxes()
        for _ in range(2):
            lines = inbox.take({place: B, other: A})
        assert inbox.handed_in().pop("ann") == A, form
        line = next(line for line in lines if name in line.source)
        if (line.state, form) != (issues.SKIPPED, "{}/#"):  # .git holds a repository
            assert B in inbox.handed_in().values() or B in inbox.kept("collected/unknown"), form
            assert set(inbox.handed_in()) <= {"ann", safe_id(name), safe_id(name).lower()}, form
        assert read_manifest(inbox.root) and (inbox.root / issues.FILE).is_file()


def test_a_name_with_a_line_break_has_a_line(inbox):
    lines = inbox.take({f"Icon\r/{FILE}": B, f"ann/{FILE}": A}, "in")
    assert inbox.handed_in() == {"ann": A}
    (line,) = [line for line in lines if line.trouble]
    assert line.state == issues.REFUSED and "control character" in line.note


def test_what_programs_put_beside_a_notebook_has_a_line(inbox):
    files = {f"ann/{FILE}": A, "ann/.git/HEAD": b"x", "ann/.venv/x/y.py": b"x",
             f"ann/.ipynb_checkpoints/{FILE}": B, "ann/Icon\r": b"", f"bob/.hidden/{FILE}": C,
             }  # fmt: skip
    lines = inbox.take(files, "in")
    assert inbox.handed_in() == {"ann": A}
    (skipped,) = [line for line in lines if line.state == issues.SKIPPED]
    assert "3 more such files" in skipped.note
    (line,) = [line for line in lines if line.trouble]
    assert line.learner == "bob" and line.state == issues.UNGRADED


def test_what_macos_adds_to_a_zip_needs_no_look(inbox):
    files = {f"ann/{FILE}": A, f"bob/{FILE}": B, "__MACOSX/._ann": b"x", ".DS_Store": b"x",
             f"__MACOSX/ann/._{FILE}": b"\0\5\x16\7", f"ann/._{FILE}": b"\0\5"}  # fmt: skip
    lines = inbox.take(files)
    assert inbox.handed_in() == {"ann": A, "bob": B}
    assert not [line for line in lines if line.trouble]


# Whose


@pytest.mark.parametrize(
    "form",
    ["{}_105_assignsubmission_file_/#", "{}_105_201_#", "lab1-{}/#", "x - {}.ipynb",
     "9-1 - {} - Dec 1, 2026 530 PM/#", "{}/Lab 1/Version 1/#"],
)  # fmt: skip
def test_a_name_that_is_a_classmates_id_or_address_is_a_question(inboxes, monkeypatch, form):
    known(monkeypatch, ("ann", "Ann", "Lee", "ann@x.edu"), ("bob", "Bob", "Day"))
    for name in ("ann", "ANN", "ann@x.edu"):
        inbox = inboxes()
        for display in (name, "zed"):
            inbox.take({form.format(display).replace("#", FILE): B}, f"{display}.zip")
        names = [form.format(display).replace("#", FILE) for display in (name, "zed")]
        inbox.take({names[0]: B, names[1].replace("105", "106"): C})
        assert inbox.handed_in() == {} and B in inbox.kept("collected/unknown"), name


def test_two_numbers_are_two_people_though_their_notebooks_are_equal(inboxes):
    for form in ("Ann Lee_{}_assignsubmission_file_/#", "leeann_{}_201_#",
                 "{}-9 - Ann Lee - Dec 1, 2026 530 PM/#"):  # fmt: skip
        inbox = inboxes()
        lines = inbox.take({form.format(n).replace("#", FILE): A for n in (1001, 1005)})
        assert [line.state for line in lines] == [issues.WHOSE] * 2, form
        assert {line.claim[-4:] for line in lines} == {"1001", "1005"}, form
        inbox = inboxes()
        for number in (1001, 1005):
            lines = inbox.take({form.format(number).replace("#", FILE): A})
        assert [line.state for line in lines] == [issues.WHOSE], form


def test_who_copies_a_notebook_gets_no_say_in_it(inbox):
    """The same notebook again is not a dispute; a later, different one of the copier's is."""
    inbox.take({f"ann/{FILE}": A}, "in")
    copied = "ann_105_assignsubmission_file_/"
    (line,) = inbox.take({f"{copied}{FILE}": A}, "copied.zip")
    assert line.state == issues.SAME
    later = zipped({f"{copied}{FILE}": B}, {f"{copied}{FILE}": (2031, 1, 1, 0, 0, 0)})
    (line,) = inbox.take(later, "later.zip")
    assert line.state == issues.WHOSE and inbox.handed_in() == {"ann": A}


def test_another_number_than_the_rosters_is_a_question(inbox):
    """Somebody else used the name: on Canvas a person has only one number."""
    class_list = roster(inbox, 'Student,ID,SIS Login ID,Section\n"Lee, Ann",501,ann7,A\n')
    (line,) = inbox.take({f"leeann_909_1001_{FILE}": B}, roster_file=class_list)
    assert line.state == issues.WHOSE and "Canvas 501 / Canvas 909" in line.note
    inbox.take({f"leeann_501_1002_{FILE}": A})
    assert inbox.handed_in() == {"ann7": A}


def test_gradescopes_student_number_decides_before_a_name(inbox):
    class_list = "Name,SID,Email\nAnna Smith,70005,a1@x.edu\nAnna Smith,70006,a2@x.edu\n"
    who = ("    :sid: '70006'\n", "    :email: a1@x.edu\n", "    :sid: '9'\n")
    metadata = "".join(
        f"submission_{n}:\n  :submitters:\n  - :name: Anna Smith\n{line}"
        for n, line in enumerate(who)
    )
    files = {f"submission_{n}/{FILE}": data for n, data in enumerate((A, B, C))}
    lines = inbox.take(
        files | {METADATA: metadata.encode()}, roster_file=roster(inbox, class_list)
    )
    assert inbox.handed_in() == {"70006": A, "70005": B}
    (line,) = [line for line in lines if line.trouble]
    assert "70005 or 70006" in line.note


def test_the_test_student_of_canvas_is_not_a_learner(inbox):
    text = 'Student,ID,SIS Login ID,Section\n"Lee, Ann",501,ann7,A\n"Student, Test",777,t,A\n'
    path = roster(inbox, text)
    assert [person.id for person in read_roster(path).people] == ["ann7"]
    files = {f"leeann_501_1001_{FILE}": A, f"studenttest_777_1002_{FILE}": B}
    for options in ({"roster_file": path}, {}):
        lines = inbox.take(files, **options)
        assert inbox.handed_in() == {"ann7": A} and not [line for line in lines if line.trouble]
        assert [line.note for line in lines if line.note] == ["Canvas's test student"]


def test_a_person_in_two_sections_is_one(inbox, monkeypatch):
    known(monkeypatch, ("17", "Ann", "Lee"))
    row = '"Lee, Ann",501,alee,17,'
    text = f"Student,ID,SIS Login ID,SIS User ID,Section\n{row}A\n{row}B\n"
    assert [
        person.id for person in read_roster(roster(inbox, text), [RosterEntry("17")]).people
    ] == ["17"]


def test_equal_names_before_the_at_are_two_people(inbox):
    text = "Last Name,First Name,Email Address\nLee,Ann,a@x.edu\nDay,Abe,a@y.edu\n"
    people = read_roster(roster(inbox, text)).people
    assert [(p.id, p.email) for p in people] == [("a", "a@x.edu"), ("a@y.edu", "a@y.edu")]


def test_rosters_of_more_platforms(inboxes):
    """Blackboard's user names, ILIAS's names with a login, Google's addresses."""
    cases = {
        "Last Name,First Name,Username,Student ID,Availability\nLee,Ann,ann7,31,Yes\n": (
            "Lab 1_ann7_attempt_2026-03-01-12-00-00_#"
        ),
        "id,first_name,last_name\nann7,Ann,Lee\n": "Lab 1/Abgaben/Lee_Ann_ann7_1234/#",
        "Last Name,First Name,Email Address,Lab 1\nLee,Ann,ann7@x.edu,\n": "x - Ann Lee.ipynb",
    }
    for text, place in cases.items():
        inbox = inboxes()
        other = place.replace("ann7", "zoe").replace("1234", "12").replace("Ann", "Zoe")
        files = {place.replace("#", FILE): A, other.replace("#", FILE): B}
        inbox.take(files, roster_file=roster(inbox, text))
        assert inbox.handed_in() == {"ann7": A}, place
        assert inbox.kept("collected/unknown") == [B], place


# Times


def test_brightspace_and_blackboard_tell_the_time(inboxes):
    hours = {
        "9-1 - {} - Mar 1, 2026 105 PM/#": 13,
        "9-1 - {} - Mar 1, 2026 1205 AM/#": 0,
        "Lab 1_{}_attempt_2026-03-01-23-05-00_#": 23,
    }
    for place, hour in hours.items():
        names = [place.format(name).replace("#", FILE) for name in ("ann", "bob")]
        lines = inboxes().take(dict(zip(names, (A, B), strict=True)))
        assert {line.when.astimezone().hour for line in lines} == {hour}, place
        assert {line.when.minute for line in lines} == {5}, place


# The messages to a person


def test_the_file_that_the_screen_prints_is_one_that_as_takes(inbox, monkeypatch):
    known(monkeypatch, ("s1", "Ann", "Lee"), ("s2", "Eve", "Low"))
    names = ("Zoe O'Neil_1_assignsubmission_file_", "x" * 90 + "_2_assignsubmission_file_")
    export = inbox.folder / "export.zip"
    export.write_bytes(
        zipped({f"{name}/{FILE}": data for name, data in zip(names, (A, B), strict=True)})
    )

    def command(*arguments):
        line = ["collect", *map(str, arguments), "--course", str(inbox.root)]
        return CliRunner().invoke(app, line, env={"COLUMNS": "60"})

    text = command(export).output
    printed = [shlex.split(line)[0] for line in text.split("\n") if line.startswith("    ")]
    assert "`tinyllm collect --as ID FILE`" in text and len(printed) == 2
    for learner, path in zip(("s1", "s2"), printed, strict=True):
        assert command("--as", learner, path).exit_code in (0, 1)
    assert sorted(inbox.handed_in()) == ["s1", "s2"] and not OpenIssues(inbox.root).open()


def test_as_with_several_notebooks_of_one_time_is_a_question(inbox):
    lines = inbox.take({f"a/{FILE}": A, "b/x.ipynb": B}, learner="ann")
    assert [line.state for line in lines] == [issues.WHOSE] * 2 and not inbox.handed_in()
    assert all("several different notebooks" in line.note for line in lines)


def test_the_help_lists_the_platforms_that_are_read():
    for command in ("collect", "grade"):
        text = CliRunner().invoke(app, [command, "--help"], terminal_width=300).output
        text = re.sub(r"[\s│]+", " ", text)
        for platform in PLATFORMS:
            if platform.name != "folder":
                assert bool(platform.layouts) is (platform.name in text), platform.name


# Large


def test_a_notebook_with_too_much_output_is_collected_without_it(inbox):
    content = json.loads(notebook("large"))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [
                {"output_type": "stream", "name": "stdout", "text": "x" * (2 << 20)}
            ]
    data = json.dumps(content).encode()
    assert len(data) > 40 << 20
    inbox.take({f"ann_111_1001_{FILE}": data, f"bob_112_1002_{FILE}": B})
    kept = json.loads(inbox.handed_in()["ann"])
    assert all(not cell.get("outputs") for cell in kept["cells"])
    assert [c["source"] for c in kept["cells"]] == [c["source"] for c in content["cells"]]
