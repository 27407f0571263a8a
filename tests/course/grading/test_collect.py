"""Submissions as they come: LMS exports, zips of every kind, names, rosters, attempts."""

import csv
import io
import json
import os
import re
import struct
import time
import unicodedata
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from labkit.author.owned_cells import notebook_path
from labkit.cli import app
from labkit.core import files
from labkit.core.paths import ROOT
from labkit.core.syllabus import LABS
from labkit.grading.collect import archives, contents, deliver, identify, roster, table
from labkit.grading.collect.archives import Limits
from labkit.grading.collect.reader import Reader
from labkit.grading.judge.intake import MAX_NOTEBOOK, NotANotebook
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry
from labkit.grading.run.grade import print_remarks

LAB, SECOND = LABS[0], LABS[1]
TEXT = {lab.name: notebook_path(lab).read_bytes() for lab in LABS[:3]}
NO_CELLS = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
NOON = (2026, 3, 1, 12, 0, 0)


def notebook(mark="", lab=LAB):
    """A notebook that differs from others by `mark`, in a way that changes nothing.

    lab    None: of no lab
    """
    content = json.loads(TEXT[lab.name]) if lab else json.loads(NO_CELLS)
    content["metadata"]["mark"] = mark
    return json.dumps(content).encode()


def zipped(files, times=None):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (times or {}).get(name, NOON))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return buffer.getvalue()


@pytest.fixture
def take(course, tmp_path):
    """Collects the bytes of a zip."""

    def take(data, lab=None, roster=None, name="export.zip", replace=False):
        path = tmp_path / name
        path.write_bytes(data)
        if roster is not None:
            (tmp_path / "roster.csv").write_bytes(roster)
        file = tmp_path / "roster.csv" if roster is not None else None
        return deliver.collect(course, [path], lab, file, replace)

    return take


def states(lines):
    return {(line.learner, line.lab): line.state for line in lines if line.lab}


def submitted(course, learner, lab=LAB):
    return (course.root / "submitted" / learner / lab.name / f"{lab.name}.ipynb").read_bytes()


def kept(course):
    folder = course.root / "collected"
    return {path.read_bytes() for path in folder.rglob("*.ipynb")}


# What the systems export


def test_canvas(course, take):
    first, second, late = notebook("1"), notebook("2"), notebook("late")
    lines = take(zipped({
        "doejohn_12345_67990_01_rmsnorm-1.ipynb": second,
        "doejohn_12345_67890_01_rmsnorm.ipynb": first,
        "roeann_LATE_22345_67891_01_rmsnorm.ipynb": late,
        "poejim_32345_67892_homework.ipynb": notebook("by its cells"),
        "loesue_42345_67893_my_code.py": b"print()",
    }))  # fmt: skip
    assert submitted(course, "doejohn") == second
    assert submitted(course, "roeann") == late
    assert (submitted(course, "poejim")) == notebook("by its cells")
    assert first in kept(course)
    said = {line.source.rpartition("/")[2]: line.state for line in lines}
    assert said["doejohn_12345_67890_01_rmsnorm.ipynb"] == table.EARLIER
    assert any(line.learner == "loesue" and "no notebook" in line.note for line in lines)


def test_moodle_with_folders_and_without_and_zips_in_zips(course, take):
    project = zipped({
        "tinyllm/notebooks/01_rmsnorm.ipynb": notebook("kim"),
        "tinyllm/notebooks/02_rope.ipynb": notebook("kim", SECOND),
        "__MACOSX/tinyllm/notebooks/._01_rmsnorm.ipynb": b"\x00",
        "tinyllm/notebooks/.ipynb_checkpoints/01_rmsnorm-checkpoint.ipynb": notebook("old"),
    })  # fmt: skip
    lines = take(zipped({
        "Ada Lovelace_901_assignsubmission_file_/01_rmsnorm.ipynb": notebook("ada"),
        "Kim Li_902_assignsubmission_file_/hand in.zip": project,
        "Bo Ek_903_assignsubmission_file_rmsnorm.ipynb": notebook("bo"),
        "Cy Day_904_assignsubmission_onlinetext_/onlinetext.html": b"see e-mail",
    }))  # fmt: skip
    assert submitted(course, "Ada Lovelace") == notebook("ada")
    assert submitted(course, "Kim Li") == notebook("kim")
    assert submitted(course, "Kim Li", SECOND) == notebook("kim", SECOND)
    assert submitted(course, "Bo Ek") == notebook("bo")
    assert len(lines) == 5 and lines[-1].learner == "Cy Day"


def test_nbgraders_tree_keeps_its_times(course, tmp_path):
    for place in ("submitted/eva/01_rmsnorm", "submitted/Max M/01_rmsnorm"):
        folder = tmp_path / "exchange" / place
        folder.mkdir(parents=True)
        (folder / "01_rmsnorm.ipynb").write_bytes(notebook(place))
        (folder / "timestamp.txt").write_text("2026-03-01 12:00:00.000000 CET")
    deliver.collect(course, [tmp_path / "exchange"])
    stamp = (course.root / "submitted/eva/01_rmsnorm/timestamp.txt").read_text()
    assert stamp == "2026-03-01 11:00:00.000000 UTC"
    assert submitted(course, "Max M") == notebook("submitted/Max M/01_rmsnorm")


def test_a_folder_of_notebooks(course, tmp_path):
    files = {
        "anna_01_rmsnorm.ipynb": notebook("a"),
        "01_rmsnorm - Ben.ipynb": notebook("b"),
        "Çelik 01_rmsnorm (1).ipynb": notebook("c"),
        "dora/anything at all.ipynb": notebook("d"),
        "elias/01_rmsnorm/rmsnorm-Copy1.ipynb": notebook("e"),
        "notes.txt": b"none of our business",
    }
    for name, data in files.items():
        path = tmp_path / "week 3" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    deliver.collect(course, [tmp_path / "week 3"])
    found = {path.name for path in (course.root / "submitted").iterdir()}
    assert found == {"anna", "Ben", "Çelik", "dora", "elias"}


def test_one_zip_a_learner(course, tmp_path):
    for name in ("ada", "bob"):
        (tmp_path / f"{name}.zip").write_bytes(zipped({"01_rmsnorm.ipynb": notebook(name)}))
    deliver.collect(course, [tmp_path / "ada.zip", tmp_path / "bob.zip"])
    assert submitted(course, "ada") == notebook("ada")
    assert submitted(course, "bob") == notebook("bob")


def test_composed_and_decomposed_names_are_one(course, take):
    name = "José Ñuñez_77_assignsubmission_file_/01_rmsnorm.ipynb"
    take(zipped({unicodedata.normalize("NFD", name): notebook("1")}))
    times = {unicodedata.normalize("NFC", name): (2026, 3, 2, 12, 0, 0)}
    lines = take(zipped({unicodedata.normalize("NFC", name): notebook("2")}, times))
    assert states(lines) == {("José Ñuñez", LAB.name): table.NEWER}
    assert [path.name for path in (course.root / "submitted").iterdir()] == ["José Ñuñez"]


def test_unmarked_utf8_in_a_zip_is_read(course, take):
    data = zipped({"Zoë_77_assignsubmission_file_/01_rmsnorm.ipynb": notebook()})
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.index(signature) + place
        (flags,) = struct.unpack("<H", data[at : at + 2])
        data = data[:at] + struct.pack("<H", flags & ~0x800) + data[at + 2 :]
    take(data)
    assert submitted(course, "Zoë") == notebook()


# Which lab


@pytest.mark.parametrize(
    ("path", "lab"),
    [
        ("01_rmsnorm.ipynb", LAB),
        ("01-rmsnorm-final.ipynb", LAB),
        ("RMSNorm (3).ipynb", LAB),
        ("lab 1.ipynb", LAB),
        ("02_rope/ada.ipynb", SECOND),
        ("moe_01_rmsnorm.ipynb", LAB),  # a learner called Moe
        ("lab 11.ipynb", None),
        ("europe.ipynb", None),
        ("homework.ipynb", None),
    ],
)
def test_the_lab_by_name(path, lab):
    assert identify.lab_by_name(tuple(path.split("/"))) is lab


def test_the_lab_by_cells_even_without_metadata(take):
    content = json.loads(TEXT[SECOND.name])
    for cell in content["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)
    assert contents.read("x", json.dumps(content).encode()).lab is SECOND
    with pytest.raises(NotANotebook):
        contents.read("x", b"%PDF")


def test_the_lab_that_is_asked_for(course, take):
    data = zipped({
        "ada_111_1001_homework.ipynb": notebook("a", None),
        "bob_222_1002_02_rope.ipynb": notebook("b", SECOND),
    })  # fmt: skip
    lines = take(data, LAB)
    assert states(lines) == {
        ("ada", LAB.name): table.NEW, ("bob", LAB.name): table.UNGRADED
    }  # fmt: skip
    assert any(line.learner == "bob" and SECOND.name in line.note for line in lines)
    lines = take(data)
    assert any(line.state == table.REFUSED and "--lab" in line.note for line in lines)


# Again, later, earlier


def test_twice_changes_nothing(course, take):
    data = zipped({"ada_111_1001_01_rmsnorm.ipynb": notebook("a")})
    take(data)
    before = {p: p.stat().st_mtime_ns for p in (course.root / "submitted").rglob("*")}
    lines = take(data)
    assert states(lines) == {("ada", LAB.name): table.SAME}
    assert {p: p.stat().st_mtime_ns for p in (course.root / "submitted").rglob("*")} == before
    assert not list(course.root.rglob(".spool*")) and len(kept(course)) == 1


def test_a_later_attempt_replaces_and_the_earlier_is_kept(course, take):
    take(zipped({"ada_111_1001_01_rmsnorm.ipynb": notebook("a")}))
    lines = take(zipped({"ada_111_1009_01_rmsnorm-1.ipynb": notebook("b")}))
    assert states(lines) == {("ada", LAB.name): table.NEWER}
    assert submitted(course, "ada") == notebook("b") and kept(course) == {
        notebook("a"), notebook("b")
    }  # fmt: skip
    lines = take(zipped({"ada_111_1001_01_rmsnorm.ipynb": notebook("a")}))
    assert states(lines) == {("ada", LAB.name): table.OLDER}
    assert submitted(course, "ada") == notebook("b")


def test_what_was_put_there_by_hand_is_kept_and_not_replaced_by_older(course, take):
    folder = course.root / "submitted" / "ada" / LAB.name
    folder.mkdir(parents=True)
    (folder / f"{LAB.name}.ipynb").write_bytes(notebook("by hand"))
    (folder / "timestamp.txt").write_text("2026-03-05 12:00:00 UTC")
    data = zipped({"ada_111_1001_01_rmsnorm.ipynb": notebook("a")})
    assert states(take(data)) == {("ada", LAB.name): table.OLDER}
    assert submitted(course, "ada") == notebook("by hand")
    assert states(take(data, replace=True)) == {("ada", LAB.name): table.NEWER}
    assert submitted(course, "ada") == notebook("a")
    assert notebook("by hand") in kept(course)


def test_canvas_decides_what_is_late(course, take, monkeypatch):
    due = datetime(2026, 2, 1, tzinfo=timezone.utc)
    monkeypatch.setattr(Course, "due_dates", lambda self: {LAB.name: due})
    take(zipped({
        "ada_111_1001_01_rmsnorm.ipynb": notebook("a"),  # its time is that of the export
        "bob_LATE_222_1002_01_rmsnorm.ipynb": notebook("b"),
    }))  # fmt: skip
    stamps = {
        name: (course.root / "submitted" / name / LAB.name / "timestamp.txt").read_text()
        for name in ("ada", "bob")
    }
    assert stamps["ada"].startswith("2026-02-01 00:00:00")
    assert stamps["bob"].startswith("2026-03-01")


def test_a_zip_says_its_times_in_utc_where_it_can():
    info = zipfile.ZipInfo("x", NOON)
    info.extra = struct.pack("<HHBi", 0x5455, 5, 1, 1772366400)
    assert archives.time_of(info) == datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    info.extra = b"\x55\x54\xff"
    assert archives.time_of(info) == datetime(*NOON).astimezone(timezone.utc)
    assert archives.time_of(zipfile.ZipInfo("x")) is None


# Who


ROSTER = (
    "Student ID;Name;E-Mail\r\n"
    "al17;Lovelace, Ada;ada@example.edu\r\n"
    "km02;Kim Minh Mai;\r\n"
    "=cmd;Formula One;f1@example.edu\r\n"
    "jd01;John Doe;jd01@example.edu\r\njd02;John Doe;jd02@example.edu\r\n"
).encode("utf-8-sig")


def test_a_roster_maps_names_to_students_and_the_unknown_are_kept(course, take):
    lines = take(zipped({
        "lovelaceada_111_1001_01_rmsnorm.ipynb": notebook("a"),
        "Kim Minh Mai_7_assignsubmission_file_/01_rmsnorm.ipynb": notebook("k"),
        "jd01_333_1003_01_rmsnorm.ipynb": notebook("j"),
        "doejohn_334_1004_01_rmsnorm.ipynb": notebook("which"),
        "mallory_444_1005_01_rmsnorm.ipynb": notebook("m"),
    }), roster=ROSTER)  # fmt: skip
    assert submitted(course, "al17") == notebook("a")
    assert submitted(course, "km02") == notebook("k")
    assert submitted(course, "jd01") == notebook("j")
    said = {line.learner: line for line in lines}
    assert said["mallory_444"].state == table.UNKNOWN and "roster" in said["mallory_444"].note
    assert said["doejohn_334"].state == table.AMBIGUOUS
    assert "jd01 or jd02" in said["doejohn_334"].note
    assert not (course.root / "submitted" / "mallory").exists()
    assert {notebook("m"), notebook("which")} <= kept(course)
    people = {person.id: person for person in course.people()}
    assert people["al17"].name == "Ada Lovelace" and people["al17"].email == "ada@example.edu"
    lines = take(zipped({"adalovelace_111_1001_01_rmsnorm.ipynb": notebook("a")}))
    assert states(lines) == {("al17", LAB.name): table.SAME}  # the gradebook is the roster now


def test_canvas_gradebook_export_is_a_roster(course, take):
    roster = (
        "Student,ID,SIS User ID,SIS Login ID,Section\n    Points Possible,,,,\n"
        '"Doe, John",12345,x1,jdoe,A\n'
    )
    lines = take(
        zipped({"anything_12345_1001_01_rmsnorm.ipynb": notebook()}), roster=roster.encode()
    )
    assert states(lines) == {("jdoe", LAB.name): table.NEW}


def test_namesakes_without_a_roster_stay_apart(course, take):
    lines = take(zipped({
        "doejohn_111_1001_01_rmsnorm.ipynb": notebook("1"),
        "doejohn_222_1002_01_rmsnorm.ipynb": notebook("2"),
    }))  # fmt: skip
    assert submitted(course, "doejohn_111") == notebook("1")
    assert submitted(course, "doejohn_222") == notebook("2")
    assert all("several people" in line.note for line in lines)


def test_a_namesake_in_a_later_export_stays_apart(course, take):
    take(zipped({"doejohn_111_1001_01_rmsnorm.ipynb": notebook("1")}))
    take(zipped({"doejohn_222_1002_01_rmsnorm.ipynb": notebook("2")}))
    assert submitted(course, "doejohn") == notebook("1")
    assert submitted(course, "doejohn_222") == notebook("2")


@pytest.mark.parametrize(
    ("roster", "words"),
    [(b"name,mail\nA,b\n", "no column id"), (b"id\n", "nobody"), (None, "cannot be read")],
)
def test_a_bad_roster_says_so(course, tmp_path, roster, words):
    path = tmp_path / "roster.csv"
    if roster is not None:
        path.write_bytes(roster)
    with pytest.raises(CourseError, match=words):
        deliver.collect(course, [], None, path)


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "a/b\\c", "*?[x]", ".", "...", "con\x00trol", "x" * 300, "\u202e"],
)
def test_ids_stay_in_their_folder(name):
    found = files.safe_id(name)
    assert found and len(found) <= 80 and not set(found) & set("/\\*?[]\x00\u202e")
    assert found.strip(".") and Path("/a", found).resolve().parent == Path("/a")


def test_rosters_compare_names_without_case_and_accents():
    class_ = roster.Roster(
        [RosterEntry("x1", "Zoë", "Åström-Müller"), RosterEntry("x2", "Zoe", "Other")]
    )
    assert class_.find(identify.Identity(("astrommullerzoe",)))[0] == {"x1"}
    assert class_.find(identify.Identity(("Zoe Astrom Muller",)))[0] == {"x1"}
    assert class_.find(identify.Identity(("zoe",)))[0] == set()


# Hostile and broken archives


def refused(path, limits=None):
    found = list(Reader(limits or Limits()).walk(path))
    assert not [one for one in found if one.data is not None], found
    return " | ".join(one.reason for one in found)


def encrypted():
    data = zipped({"01_rmsnorm.ipynb": notebook()})
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.index(signature) + place
        data = data[:at] + bytes([data[at] | 1]) + data[at + 1 :]
    return data


def a_link():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("01_rmsnorm.ipynb", NOON)
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return buffer.getvalue()


def damaged():
    data = bytearray(zipped({"01_rmsnorm.ipynb": notebook()}))
    data[200:260] = bytes(60)
    return bytes(data)


def packed_by(method):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("01_rmsnorm.ipynb", notebook())
    return buffer.getvalue()


def nested(depth):
    data = zipped({"01_rmsnorm.ipynb": notebook()})
    for _ in range(depth):
        data = zipped({"more.zip": data})
    return data


def lying_about_its_size():
    data = zipped({"01_rmsnorm.ipynb": b" " * 100_000})
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.index(signature) + place
        data = data[:at] + struct.pack("<I", 10) + data[at + 4 :]
    return data


HOSTILE = {
    "a path out of it": (lambda: zipped({"../../x/01_rmsnorm.ipynb": b"{}"}), "leads out"),
    "an absolute path": (lambda: zipped({"/etc/01_rmsnorm.ipynb": b"{}"}), "leads out"),
    "a drive": (lambda: zipped({"C:\\01_rmsnorm.ipynb": b"{}"}), "leads out"),
    "a link": (a_link, "a link"),
    "a bomb": (lambda: zipped({"01_rmsnorm.ipynb": bytes(30 << 20)}), "bomb"),
    "too large": (lambda: zipped({"01_rmsnorm.ipynb": bytes(MAX_NOTEBOOK + 1)}), "too large"),
    "encrypted": (encrypted, "encrypted"),
    "damaged": (damaged, "broken"),
    "cut off": (lambda: zipped({"01_rmsnorm.ipynb": notebook()})[:-100], "not a readable zip"),
    "no zip": (lambda: b"PK but not really", "not a readable zip"),
    "empty": (lambda: b"", "not a readable zip"),
    "lzma": (lambda: packed_by(zipfile.ZIP_LZMA), "unusual way"),
    "too deep": (lambda: nested(4), "within one another"),
    "a false size": (lying_about_its_size, "broken"),
}


@pytest.mark.parametrize("name", ["", "/", "\\", ".."])
def test_a_file_without_a_name_costs_no_other(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.ipynb", notebook())
        archive.writestr(zipfile.ZipInfo("b"), b"")
        archive.filelist[-1].filename = name  # as the directory of the zip says it
    found = list(Reader().walk(tmp_path / "x.zip"))
    assert len([one for one in found if one.data is not None]) == 1


@pytest.mark.parametrize(("make", "words"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_and_broken_zips_are_refused_with_a_reason(tmp_path, make, words):
    path = tmp_path / "x.zip"
    path.write_bytes(make())
    assert words in refused(path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.zip"]


def test_limits_on_numbers_and_sums(tmp_path):
    path = tmp_path / "x.zip"
    path.write_bytes(zipped({f"{i}.ipynb": b"{}" for i in range(30)}))
    assert "a zip of more than 20 files" in refused(path, Limits(files=20))
    path.write_bytes(zipped({"a.ipynb": notebook()}))
    assert "bytes in one source" in refused(path, Limits(total=1000))
    found = list(Reader(Limits(files=2)).walk(folder_of(tmp_path / "many", 4)))
    assert [bool(one.data) for one in found] == [True, True, False, False]


def folder_of(folder, count):
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.ipynb").write_bytes(b"{}")
    return folder


@pytest.mark.skipif(os.name == "nt", reason="not checked: links and pipes need POSIX")
def test_links_pipes_and_giants_in_a_folder_are_refused(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.ipynb").symlink_to("/etc/passwd")
    (folder / "b").symlink_to("/", target_is_directory=True)
    os.mkfifo(folder / "c.ipynb")
    with (folder / "d.ipynb").open("wb") as file:
        file.truncate(1 << 40)  # a terabyte, of holes
    text = refused(folder)
    assert text.count("a link") == 2 and "not a file" in text and "too large" in text


ODD_NAMES = {  # which no pattern may see: some took hours
    "a control character": ("lab--" * 18 + "\n.txt", "a control character in its name"),
    "another kind of file": ("rmsnorm\x1b[31m.png", "a control character in its name"),
    "blanks": (" " * 50_000 + ".x", "a name of more than 255 characters"),
    "suffixes": ("x" + ".ipynb" * 2_000, "a name of more than 255 characters"),
    "folders": ("a/" * 20 + "01_rmsnorm.ipynb", "a path of more than 20 parts"),
}


@pytest.mark.parametrize("case", ODD_NAMES)
def test_an_odd_name_is_refused_before_it_is_looked_at(course, take, case):
    name, why = ODD_NAMES[case]
    began = time.process_time()
    lines = take(zipped({
        "ann_101_201_01_rmsnorm.ipynb": notebook("ann"),
        "eve_102_202_x.zip": zipped({name: notebook("eve")}),
    }))  # fmt: skip
    assert submitted(course, "ann") == notebook("ann")
    (line,) = [line for line in lines if line.state == table.REFUSED]
    assert line.learner == "eve" and why in line.note
    assert time.process_time() - began < 5


@pytest.mark.skipif(os.name == "nt", reason="not checked: names with line breaks need POSIX")
def test_a_folders_name_forges_no_line(course, tmp_path):
    for name in ("bob", "eve\nann: all is well"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "01_rmsnorm.ipynb").write_bytes(notebook(name))
    (tmp_path / "in" / "bob" / "Icon\r").touch()  # of macOS
    arguments = ["collect", str(tmp_path / "in"), "--course", str(course.root)]
    done = CliRunner().invoke(app, arguments)
    assert "a control character in its name" in done.output and submitted(course, "bob")
    assert not re.search("^ann: all is well", done.output, re.MULTILINE)
    assert "1 of 2 files" in done.output
    console = Console(record=True, file=io.StringIO())
    course.remarks = ["eve\nann: all is well: the folder's name has line breaks"]
    print_remarks(course, console)
    assert len(console.export_text().splitlines()) == 1


def test_no_name_takes_long():
    """The worst of 255 characters, of which thousands may come in one zip."""
    units = (" ", "_", ".ipynb", "lab--", "lab-1-", "-copy1", "_111", "\ufdfa", "+a")
    names = [(unit * 255)[: 255 - len(end)] + end for unit in units for end in ("", "!", "(1")]
    for name in [*names, "lab--" * 18 + "\n"]:
        began = time.process_time()
        for _ in range(10):
            identify.person(name, LABS, {"annlee"})
            identify.by_lms(name)
        assert time.process_time() - began < 0.5, name  # 0.005 where this was written


def test_one_bad_file_costs_no_other(course, take):
    lines = take(zipped({
        "ada_111_1001_01_rmsnorm.ipynb": notebook("a"),
        "bob_222_1002_x.zip": b"PK broken",
        "../eve_333_1003_01_rmsnorm.ipynb": notebook("e"),
    }))  # fmt: skip
    assert submitted(course, "ada") == notebook("a")
    assert sum(line.state == table.REFUSED for line in lines) == 2


# Who and when are said by what the LMS or the instructor made


def impostor(names=("ann/01_rmsnorm/01_rmsnorm.ipynb",), year=2107):
    """A learner's own zip with somebody else's name and a time of one's own inside."""
    return zipped({name: notebook("impostor") for name in names},
                  dict.fromkeys(names, (year, 1, 1, 0, 0, 0)))  # fmt: skip


ANN, EVE = notebook("ann"), "Eve Smith_7_assignsubmission_file_"
IMPOSTORS = {
    "Canvas": {"ann_111_1001_01_rmsnorm.ipynb": ANN, "eve_222_1002_mine.zip": impostor()},
    "Canvas's own pattern": {
        "ann_111_1001_01_rmsnorm.ipynb": ANN,
        "eve_222_1002_mine.zip": impostor(["ann_111_9999_01_rmsnorm.ipynb"]),
    },
    "Canvas, all zips": {
        "ann_111_1001_a.zip": zipped({"lab/01_rmsnorm.ipynb": ANN}),
        "eve_222_1002_b.zip": impostor(["ann/01_rmsnorm.ipynb"]),
    },
    "Moodle": {
        "ann_6_assignsubmission_file_/01_rmsnorm.ipynb": ANN,
        f"{EVE}/mine.zip": impostor(["ann/01_rmsnorm/01_rmsnorm.ipynb"]),
    },
    "nbgrader": {"ann/01_rmsnorm/01_rmsnorm.ipynb": ANN, "eve/01_rmsnorm/x.zip": impostor()},
    "zips": {"ann.zip": zipped({"01_rmsnorm.ipynb": ANN}), "eve.zip": impostor()},
}


@pytest.mark.parametrize("as_folder", [False, True], ids=["as a zip", "unpacked"])
@pytest.mark.parametrize("files", IMPOSTORS.values(), ids=IMPOSTORS)
def test_nobody_hands_in_for_another(course, take, tmp_path, files, as_folder):
    if as_folder:
        for name, data in files.items():
            (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "in" / name).write_bytes(data)
        deliver.collect(course, [tmp_path / "in"])
    else:
        take(zipped(files))
    assert submitted(course, "ann") == ANN
    there = {path.name for path in (course.root / "submitted").iterdir()}
    assert len(there) == 2 and any(name.casefold().startswith("eve") for name in there)


def test_a_learners_zip_in_canvas_bears_the_learners_name(course, take):
    files = {f"{who}_10{n}_20{n}_b.zip": zipped({"lab/01_rmsnorm.ipynb": notebook(who)})
             for n, who in enumerate(["ann", "bob", "carl"])}  # fmt: skip
    take(zipped(files))
    for who in ("ann", "bob", "carl"):
        assert submitted(course, who) == notebook(who)


def when(lines, learner):
    return next(line.when for line in lines if line.learner == learner)


def test_the_time_is_that_of_the_outer_file(course, take):
    early, utc = (2001, 1, 1, 0, 0, 0), datetime(*NOON).astimezone(timezone.utc)
    lines = take(zipped({
        "Moe_6_assignsubmission_file_/01_rmsnorm.ipynb": notebook("moe"),
        "Moe_6_assignsubmission_file_/timestamp.txt": b"2001-01-01 00:00:00 UTC",
        "Kim_8_assignsubmission_file_/01_rmsnorm/01_rmsnorm.ipynb": notebook("kim"),
        "Kim_8_assignsubmission_file_/01_rmsnorm/timestamp.txt": b"2001-01-01 00:00:00 UTC",
        "Zed_7_assignsubmission_file_/mine.zip": zipped(
            {"01_rmsnorm.ipynb": notebook("zed")}, {"01_rmsnorm.ipynb": early}),
    }))  # fmt: skip
    assert {when(lines, who) for who in ("Moe", "Kim", "Zed")} == {utc}


NOBODYS_TIME = b"12:1000000000000000000000000000000"  # dateutil raises ArithmeticError
EARLY = b"2001-01-01 00:00:00 UTC"


@pytest.mark.parametrize("text", [NOBODYS_TIME, b"\xff\x00", b"2026-01-01 00:00:00 /etc/x"])
@pytest.mark.parametrize(
    "place", ["Eve_7_assignsubmission_file_", "lab1-eve", "eve/01_rmsnorm"]
)
def test_no_timestamp_stops_a_class(course, take, place, text):
    files = {f"{place}/01_rmsnorm.ipynb": notebook("eve"), f"{place}/timestamp.txt": text}
    (line,) = take(zipped(files))
    assert line.state == table.NEW and line.when == datetime(*NOON).astimezone(timezone.utc)
    (path,) = (course.root / "submitted").glob("*/*/timestamp.txt")
    path.write_bytes(text)  # as somebody may copy it there
    assert len(take(zipped({f"{place}/01_rmsnorm.ipynb": notebook("again")}))) == 1


STAMPED = {  # NAME/LAB of eve and of others; whether eve's timestamp.txt counts
    "nbgrader's": (["submitted/eve/01_rmsnorm", "submitted/ann/01_rmsnorm"], True),
    "nbgrader's, another lab": (["eve/01_rmsnorm", "ann/02_rope"], True),
    "nbgrader's, an id like a clone's": (["lab-eve/01_rmsnorm", "ann/01_rmsnorm"], False),
    "clones": (["lab1-eve/01_rmsnorm", "lab1-ann/01_rmsnorm"], False),
    "folders": (["eve/01_rmsnorm", "ann/notebooks"], False),
    "folders, one without a lab's": (["eve/01_rmsnorm", "ann"], False),
    "a repository": (["eve/01_rmsnorm", "ann/01_rmsnorm", "eve/.git"], False),
    "a repository's folder": (["eve/01_rmsnorm", "ann/01_rmsnorm", ".git"], False),
    "a repository in the folder": (["eve/01_rmsnorm", "eve/01_rmsnorm/.git"], True),
    "more in the folder": (["eve/01_rmsnorm", "eve/01_rmsnorm/more"], True),
}


@pytest.mark.parametrize("as_folder", [False, True], ids=["as a zip", "as a folder"])
@pytest.mark.parametrize("case", STAMPED)
def test_a_timestamp_counts_in_nbgraders_folders_only(course, take, tmp_path, case, as_folder):
    (eves, *others), counts = STAMPED[case]
    files = {f"{eves}/01_rmsnorm.ipynb": notebook("eve"), f"{eves}/timestamp.txt": EARLY}
    for number, place in enumerate(others):
        name = "config" if place.endswith(".git") else f"{place.rpartition('/')[2]}.ipynb"
        files[f"{place}/{name}"] = notebook(str(number))
    for name, data in files.items() if as_folder else ():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    lines = deliver.collect(course, [tmp_path / "in"]) if as_folder else take(zipped(files))
    (line,) = [line for line in lines if line.source.endswith(f"{eves}/01_rmsnorm.ipynb")]
    assert (line.when.year == 2001) is counts
    told = "timestamp.txt does not count" in line.note
    assert told is not (counts or ".git" in str(others))


def test_a_files_name_sets_no_time(course, take):
    name = "eve+01_rmsnorm+2001-01-01 00:00:00 UTC+x.ipynb"
    (line,) = take(zipped({name: notebook()}))
    assert line.learner == "eve" and line.when.year == 2026


def test_a_learners_zip_sets_no_time(course, take):
    files = {"01_rmsnorm.ipynb": notebook(), "timestamp.txt": EARLY}
    files = {f"eve/01_rmsnorm/{name}": data for name, data in files.items()}
    (line,) = take(zipped(files), name="eve.zip")
    assert line.learner == "eve" and line.when.year == 2026


def test_a_time_that_has_not_come_yet_is_none(course, take):
    name = "ann_111_1001_01_rmsnorm.ipynb"
    (line,) = take(zipped({name: notebook()}, {name: (2107, 1, 1, 0, 0, 0)}))
    assert line.when is None and "2107" in line.note and submitted(course, "ann")


def test_one_learners_zip_costs_no_other_anything(course, take):
    many = zipped({f"{n}/01_rmsnorm.ipynb": b"{}" for n in range(500)})
    lines = take(zipped({
        "aaron_101_201_x.zip": many,
        "bob_102_202_01_rmsnorm.ipynb": notebook("b"),
        "carl_103_203_x.zip": zipped({"01_rmsnorm.ipynb": notebook("c")}),
    }))  # fmt: skip
    assert submitted(course, "bob") == notebook("b")
    assert submitted(course, "carl") == notebook("c")
    refused = [line for line in lines if line.state == table.REFUSED]
    assert {line.learner for line in refused} == {"aaron"} and len(refused) == 2
    assert any("more than 50 notebooks in one learner's zip" in line.note for line in refused)


def test_what_one_learners_zip_unpacks_to_is_bounded(tmp_path):
    inner = zipped({f"{n}/01_rmsnorm.ipynb": notebook(str(n)) for n in range(3)})
    path = tmp_path / "x.zip"
    path.write_bytes(zipped({"eve_101_201_x.zip": inner, "b_102_202_1.ipynb": notebook()}))
    found = list(Reader(Limits(own_bytes=2 * len(notebook("0")))).walk(path))
    assert [bool(one.data) for one in found].count(True) == 3
    assert "in one learner's zip" in found[2].reason


# The command


@pytest.mark.parametrize("name", [r"\[x]", "[bold]x", "[link=http:x]y", "[red"])
def test_no_name_is_markup(course, tmp_path, name):
    folder = tmp_path / "in" / name
    folder.mkdir(parents=True)
    (folder / "01_rmsnorm.ipynb").write_bytes(notebook())
    (folder / "[").mkdir()
    (folder / "[" / "x].zip").write_bytes(b"")
    done = CliRunner().invoke(app, ["collect", str(tmp_path / "in"), "--course",
                                    str(course.root)])  # fmt: skip
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.exception
    assert "need" in done.output


def test_a_name_in_the_gradebook_is_no_formula(course, take):
    rows = "id,name,email\nann,=1+1,@SUM(1)\nbob,\uff0bevil,\uff20x\n"
    take(zipped({"ann/01_rmsnorm/01_rmsnorm.ipynb": notebook()}), roster=rows.encode())
    for person in course.people():
        for text in (person.first_name, person.last_name, person.email):
            assert not unicodedata.normalize("NFKC", text or "")[:1].startswith(("=", "@", "+"))


def test_a_name_in_the_gradebook_is_no_markup(course, take):
    name = '<img src=x onerror=alert(1)>\x1b\n Lo\'w & "Co"'
    sheet = io.StringIO()
    csv.writer(sheet).writerows([["Identifier", "Full name", "Email address", "ID number"],
                                 ["Participant 105", name, "<b>@x.edu", "eve"]])  # fmt: skip
    files = {"eve/01_rmsnorm/01_rmsnorm.ipynb": notebook()}
    take(zipped(files), roster=sheet.getvalue().encode())
    (person,) = course.people()
    assert person.name == "img src=x onerror=alert(1) Lo'w Co" and person.email == "b@x.edu"


def test_the_command_tells_and_writes_a_table(course, tmp_path):
    evil = "=HYPERLINK(1)_111_1001_01_rmsnorm.ipynb"
    path = tmp_path / "export.zip"
    path.write_bytes(zipped({evil: notebook(), "bad.zip": b"", "\x1b[31mx.zip": b""}))
    runner = CliRunner()
    arguments = ["collect", str(path), "--course", str(course.root)]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 1 and "refused: " in done.output
    assert "\x1b[31m" not in done.output and "2 of 3 files need a look" in done.output
    with (course.root / "collected" / "last.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert not [cell for row in rows for cell in row.values() if cell.startswith("=")]
    assert runner.invoke(app, ["collect", str(ROOT / "nowhere"), "--course",
                               str(course.root)]).exit_code == 1  # fmt: skip
    inside = str(course.root / "collected")
    assert runner.invoke(app, ["collect", inside, "--course", str(course.root)]).exit_code == 2
