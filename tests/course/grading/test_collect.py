"""Submissions as they come: what an LMS exports, attempts, times, rosters, hostile archives."""

import csv
import io
import os
import re
import struct
import time
import unicodedata
import zipfile
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from labkit.cli import app
from labkit.core.files import safe_id
from labkit.core.syllabus import LABS
from labkit.grading.collect import archives, deliver, identify, table
from labkit.grading.collect.archives import Limits
from labkit.grading.collect.reader import Reader
from labkit.grading.collect.roster import read_roster
from labkit.grading.judge.intake import MAX_NOTEBOOK
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry
from labkit.grading.run.grade import print_remarks
from tests.course.grading.samples import LAB, NOON, SECOND, notebook, rows_of, zipped

FILE = f"{LAB.name}.ipynb"
NOON_UTC = datetime(*NOON).astimezone(timezone.utc)
EARLY = b"2001-01-01 00:00:00 UTC"
A, B, C, D = map(notebook, "abcd")
posix = pytest.mark.skipif(os.name == "nt", reason="not checked: links and pipes need POSIX")


def states(lines):
    return {line.learner: line.state for line in lines if line.lab}


def line_of(lines, learner):
    (line,) = [line for line in lines if line.learner == learner]
    return line


def collect_command(inbox, *arguments):
    return CliRunner().invoke(app, ["collect", *arguments, "--course", str(inbox.root)])


# What the systems export


def test_canvas(inbox, monkeypatch):
    """Its number of a file tells attempts apart, and its late mark decides over the time."""
    due = datetime(2026, 2, 1, tzinfo=timezone.utc)
    monkeypatch.setattr(Course, "due_dates", lambda self: {LAB.name: due})
    first = f"doejohn_12345_67890_{FILE}"
    lines = inbox.take({
        "doejohn_12345_67990_01_rmsnorm-1.ipynb": A,
        first: B,
        f"roeann_LATE_22345_67891_{FILE}": C,
        "poejim_32345_67892_homework.ipynb": D,
        "loesue_42345_67893_my_code.py": b"print()",
    })  # fmt: skip
    assert inbox.handed_in() == {"doejohn": A, "roeann": C, "poejim": D} and B in inbox.kept()
    assert {line.source: line.state for line in lines}[f"export.zip/{first}"] == table.EARLIER
    assert "no notebook" in line_of(lines, "loesue").note
    days = {path.parts[-3]: path.read_text()[:10] for path in inbox.root.rglob("timestamp.txt")}
    assert days["doejohn"] == "2026-02-01" and days["roeann"] == "2026-03-01"


def test_moodle_with_folders_and_without_and_zips_in_zips(inbox):
    project = zipped({
        f"tinyllm/notebooks/{FILE}": B,
        "tinyllm/notebooks/02_rope.ipynb": notebook("kim", SECOND),
        f"__MACOSX/tinyllm/notebooks/._{FILE}": b"\x00",
        "tinyllm/notebooks/.ipynb_checkpoints/01_rmsnorm-checkpoint.ipynb": D,
    })  # fmt: skip
    lines = inbox.take({
        f"Ada Lovelace_901_assignsubmission_file_/{FILE}": A,
        "Kim Li_902_assignsubmission_file_/hand in.zip": project,
        "Bo Ek_903_assignsubmission_file_rmsnorm.ipynb": C,
        "Cy Day_904_assignsubmission_onlinetext_/onlinetext.html": b"see e-mail",
    })  # fmt: skip
    assert inbox.handed_in() == {"Ada Lovelace": A, "Kim Li": B, "Bo Ek": C}
    assert inbox.handed_in(SECOND) == {"Kim Li": notebook("kim", SECOND)}
    assert len(lines) == 5 and lines[-1].learner == "Cy Day"


def test_nbgraders_tree_keeps_its_times(inbox):
    stamp = b"2026-03-01 12:00:00.000000 CET"
    places = [f"submitted/{name}/{LAB.name}" for name in ("eva", "Max M")]
    files = {f"{place}/{FILE}": A for place in places}
    inbox.take(files | {f"{place}/timestamp.txt": stamp for place in places}, "exchange")
    assert inbox.handed_in() == {"eva": A, "Max M": A}
    kept = (inbox.root / "submitted/eva" / LAB.name / "timestamp.txt").read_text()
    assert kept == "2026-03-01 11:00:00.000000 UTC"


def test_names_composed_decomposed_and_in_unmarked_utf8_are_the_same(inbox):
    name = f"José Ñuñez_77_assignsubmission_file_/{FILE}"
    inbox.take({unicodedata.normalize("NFD", name): A})
    composed = unicodedata.normalize("NFC", name)
    lines = inbox.take(zipped({composed: B}, {composed: (2026, 3, 2, 12, 0, 0)}))
    assert states(lines) == {"José Ñuñez": table.NEWER}
    unmarked = patched(zipped({composed: B}), 6, 8, flags=0)
    assert states(inbox.take(unmarked)) == {"José Ñuñez": table.SAME}
    assert list(inbox.handed_in()) == ["José Ñuñez"]


def patched(data, local, central, flags=None, size=None):
    """A zip of one file with other bytes in both of its headers."""
    value = struct.pack("<H", flags) if size is None else struct.pack("<I", size)
    for signature, place in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        at = data.index(signature) + place
        data = data[:at] + value + data[at + len(value) :]
    return data


# Which lab


def test_the_lab_by_name():
    named = {FILE: LAB, "01-rmsnorm-final.ipynb": LAB, "RMSNorm (3).ipynb": LAB,
             "lab 1.ipynb": LAB, "02_rope/ada.ipynb": SECOND, "moe_01_rmsnorm.ipynb": LAB,
             "lab 11.ipynb": None, "europe.ipynb": None, "homework.ipynb": None}  # fmt: skip
    for path, lab in named.items():
        assert identify.lab_by_name(tuple(path.split("/"))) is lab, path


def test_the_lab_that_is_asked_for(inbox):
    files = {"ada_111_1001_homework.ipynb": notebook("a", None),
             "bob_222_1002_02_rope.ipynb": notebook("b", SECOND)}  # fmt: skip
    lines = inbox.take(files, lab=LAB)
    assert states(lines) == {"ada": table.NEW, "bob": table.UNGRADED}
    assert SECOND.name in line_of(lines, "bob").note
    assert any(line.state == table.REFUSED and "--lab" in line.note
               for line in inbox.take(files))  # fmt: skip


# Again, later, earlier


def test_the_latest_attempt_counts_and_every_other_is_kept(inbox):
    """Twice changes nothing; what somebody put there by hand is replaced only if asked."""
    first, later = {f"ada_111_1001_{FILE}": A}, {f"ada_111_1009_{FILE}": B}

    def times():
        return {p: p.stat().st_mtime_ns for p in (inbox.root / "submitted").rglob("*")}

    assert states(inbox.take(first)) == {"ada": table.NEW}
    before = times()
    assert states(inbox.take(first)) == {"ada": table.SAME} and times() == before
    assert not list(inbox.root.rglob(".spool*")) and inbox.kept() == [A]
    assert states(inbox.take(later)) == {"ada": table.NEWER}
    assert states(inbox.take(first)) == {"ada": table.OLDER}
    assert inbox.handed_in() == {"ada": B} and sorted(inbox.kept()) == sorted([A, B])
    folder = inbox.root / "submitted" / "ada" / LAB.name
    (folder / FILE).write_bytes(C)
    (folder / "timestamp.txt").write_text("2026-03-05 12:00:00 UTC")
    assert states(inbox.take(later)) == {"ada": table.OLDER}
    assert inbox.handed_in() == {"ada": C}
    assert states(inbox.take(later, replace_newer=True)) == {"ada": table.NEWER}
    assert inbox.handed_in() == {"ada": B} and C in inbox.kept()


# Times: what the LMS or the instructor made says them, never what a learner wrote


def test_a_zip_says_its_times_in_utc_where_it_can():
    info = zipfile.ZipInfo("x", NOON)
    info.extra = struct.pack("<HHBi", 0x5455, 5, 1, 1772366400)
    assert archives.time_of(info) == datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    info.extra = b"\x55\x54\xff"
    assert archives.time_of(info) == NOON_UTC and archives.time_of(zipfile.ZipInfo("x")) is None


def test_the_time_is_that_of_the_outer_file(inbox):
    early, where = (2001, 1, 1, 0, 0, 0), "_assignsubmission_file_"
    lines = inbox.take({
        f"Moe_6{where}/{FILE}": A,
        f"Moe_6{where}/timestamp.txt": EARLY,
        f"Kim_8{where}/01_rmsnorm/{FILE}": B,
        f"Kim_8{where}/01_rmsnorm/timestamp.txt": EARLY,
        f"Zed_7{where}/mine.zip": zipped({FILE: C}, {FILE: early}),
        f"eve+01_rmsnorm+{EARLY.decode()}+x.ipynb": D,
    })  # fmt: skip
    assert {line.learner: line.when for line in lines} == dict.fromkeys(
        ("Moe", "Kim", "Zed", "eve"), NOON_UTC
    )
    files = {f"ann/01_rmsnorm/{FILE}": A, "ann/01_rmsnorm/timestamp.txt": EARLY}
    assert line_of(inbox.take(files, "ann.zip"), "ann").when == NOON_UTC
    name = f"zoe_111_1001_{FILE}"
    line = line_of(inbox.take(zipped({name: A}, {name: (2107, 1, 1, 0, 0, 0)})), "zoe")
    assert line.when is None and "2107" in line.note and inbox.handed_in()["zoe"] == A


def test_no_timestamp_stops_a_class(inboxes):
    texts = [b"12:1" + b"0" * 30, b"\xff\x00", b"2026-01-01 00:00:00 /etc/x"]
    for place in ("Eve_7_assignsubmission_file_", "lab1-eve", "eve/01_rmsnorm"):
        inbox = inboxes()
        for number, text in enumerate(texts):
            data = notebook(str(number))
            lines = inbox.take({f"{place}/{FILE}": data, f"{place}/timestamp.txt": text})
            assert number or (lines[0].state, lines[0].when) == (table.NEW, NOON_UTC), place
            (path,) = (inbox.root / "submitted").glob("*/*/timestamp.txt")
            path.write_bytes(text)  # as somebody may copy it there


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


@pytest.mark.parametrize("source", ["export.zip", "in"])
def test_a_timestamp_counts_in_nbgraders_folders_only(inboxes, source):
    for case, ((eves, *others), counts) in STAMPED.items():
        files = {f"{eves}/{FILE}": A, f"{eves}/timestamp.txt": EARLY}
        for number, place in enumerate(others):
            name = "config" if place.endswith(".git") else f"{place.rpartition('/')[2]}.ipynb"
            files[f"{place}/{name}"] = notebook(str(number))
        lines = inboxes().take(files, source)
        (line,) = [line for line in lines if line.source.endswith(f"{eves}/{FILE}")]
        assert (line.when.year == 2001) is counts, case
        told = "timestamp.txt does not count" in line.note
        assert told is not (counts or ".git" in str(others)), case


# Rosters

ROSTER = (
    "Student ID;Name;E-Mail\r\n"
    "al17;Lovelace, Ada;ada@example.edu\r\n"
    "km02;Kim Minh Mai;\r\n"
    "=cmd;Formula One;f1@example.edu\r\n"
    "jd01;John Doe;jd01@example.edu\r\njd02;John Doe;jd02@example.edu\r\n"
)


def listed(inbox, text):
    """A roster's file."""
    (inbox.folder / "roster.csv").write_text(text, "utf-8-sig")
    return inbox.folder / "roster.csv"


def test_a_roster_maps_names_to_students_and_the_unknown_are_kept(inbox):
    lines = inbox.take({
        f"lovelaceada_111_1001_{FILE}": A,
        f"Kim Minh Mai_7_assignsubmission_file_/{FILE}": B,
        f"jd01_333_1003_{FILE}": C,
        f"doejohn_334_1004_{FILE}": D,
        f"mallory_444_1005_{FILE}": notebook("m"),
    }, roster_file=listed(inbox, ROSTER))  # fmt: skip
    assert inbox.handed_in() == {"al17": A, "km02": B, "jd01": C}
    mallory, which = line_of(lines, "mallory_444"), line_of(lines, "doejohn_334")
    assert mallory.state == table.UNKNOWN and "roster" in mallory.note
    assert which.state == table.AMBIGUOUS and "jd01 or jd02" in which.note
    assert {notebook("m"), D} == set(inbox.kept("collected/unknown"))
    people = {person.id: person for person in inbox.course.people()}
    assert people["al17"].name == "Ada Lovelace" and people["al17"].email == "ada@example.edu"
    lines = inbox.take({f"adalovelace_111_1001_{FILE}": A})
    assert states(lines) == {"al17": table.SAME}  # the gradebook is the roster now


def test_an_lms_gradebook_is_a_roster(inbox):
    for text in ("Name,SID,Email,Total Score\nAnn Lee,17,ann@x.edu,3\n",
                 "First Name,Last Name,SID,Email\nAnn,Lee,17,ann@x.edu\n",
                 "First name,Surname,ID number,Email address\nAnn,Lee,17,ann@x.edu\n",
                 'Student,ID,Section\nPoints Possible,,\n"Lee, Ann",17,A\n'):  # fmt: skip
        ((person,), _) = read_roster(listed(inbox, text))
        assert (person.id, person.name) == ("17", "Ann Lee"), text
    canvas = 'Student,ID,SIS User ID,SIS Login ID,Email\n"Lee, Ann",900,17,alee,ann@x.edu\n'
    for known in (RosterEntry("17", "Ann", "Lee", lms_user_id="900"),
                  RosterEntry("alee", "A.", "Lee"),
                  RosterEntry("x", "A.", "L.", "ann@x.edu")):  # fmt: skip
        people, _ = read_roster(listed(inbox, canvas + '"Lee, Bo",,18,blee,\n'), [known])
        assert [person.id for person in people] == [known.id, "blee"]  # who is known keeps it
    lines = inbox.take({f"anything_900_1001_{FILE}": A}, roster_file=listed(inbox, canvas))
    assert states(lines) == {"alee": table.NEW}


def test_a_bad_roster_says_so(inbox):
    for text, words in {"name,mail\nA,b\n": "no column id", "id\n": "nobody"}.items():
        with pytest.raises(CourseError, match=words):
            deliver.collect(inbox.course, [], None, listed(inbox, text))
    with pytest.raises(CourseError, match="cannot be read"):
        deliver.collect(inbox.course, [], None, inbox.folder / "nowhere.csv")


def test_a_namesake_in_a_later_export_stays_apart(inbox):
    inbox.take({f"doejohn_111_1001_{FILE}": A})
    inbox.take({f"doejohn_222_1002_{FILE}": B})
    assert inbox.handed_in() == {"doejohn": A, "doejohn_222": B}


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


# Hostile and broken archives


def refused(path, limits=None):
    """Why nothing of a source was read."""
    found = list(Reader(limits or Limits()).walk(path))
    assert not [one for one in found if one.data is not None], found
    return " | ".join(one.reason for one in found)


def nested(depth):
    data = zipped({FILE: A})
    for _ in range(depth):
        data = zipped({"more.zip": data})
    return data


ONE = zipped({FILE: A})
HOSTILE = {
    "a path out of it": (zipped({f"../../x/{FILE}": b"{}"}), "leads out"),
    "an absolute path": (zipped({f"/etc/{FILE}": b"{}"}), "leads out"),
    "a drive": (zipped({f"C:\\{FILE}": b"{}"}), "leads out"),
    "a link": (zipped({FILE: b"/etc/passwd"}, external_attr=0o120777 << 16), "a link"),
    "a bomb": (zipped({FILE: bytes(30 << 20)}), "bomb"),
    "too large": (zipped({FILE: bytes(MAX_NOTEBOOK + 1)}), "too large"),
    "encrypted": (patched(ONE, 6, 8, flags=1), "encrypted"),
    "damaged": (ONE[:200] + bytes(60) + ONE[260:], "broken"),
    "cut off": (ONE[:-100], "not a readable zip"),
    "no zip": (b"PK but not really", "not a readable zip"),
    "empty": (b"", "not a readable zip"),
    "lzma": (zipped({FILE: A}, method=zipfile.ZIP_LZMA), "unusual way"),
    "too deep": (nested(4), "within one another"),
    "a false size": (patched(zipped({FILE: b" " * 10**5}), 22, 24, size=10), "broken"),
}


def test_hostile_and_broken_zips_are_refused_with_a_reason(tmp_path):
    path = tmp_path / "x.zip"
    for case, (data, words) in HOSTILE.items():
        path.write_bytes(data)
        assert words in refused(path), case
        assert [p.name for p in tmp_path.iterdir()] == ["x.zip"], case


def test_limits_on_numbers_and_sums(tmp_path):
    path = tmp_path / "x.zip"
    path.write_bytes(zipped({f"{i}.ipynb": b"{}" for i in range(30)}))
    assert "a zip of more than 20 files" in refused(path, Limits(files=20))
    path.write_bytes(zipped({"a.ipynb": A}))
    assert "bytes in one source" in refused(path, Limits(total=1000))
    inner = zipped({f"{n}/{FILE}": notebook(str(n)) for n in range(3)})
    path.write_bytes(zipped({"eve_101_201_x.zip": inner, "b_102_202_1.ipynb": A}))
    found = list(Reader(Limits(own_bytes=2 * len(A))).walk(path))
    assert [bool(one.data) for one in found].count(True) == 3
    assert "in one learner's zip" in found[2].reason
    (tmp_path / "many").mkdir()
    for number in range(4):
        (tmp_path / "many" / f"{number}.ipynb").write_bytes(b"{}")
    found = list(Reader(Limits(files=2)).walk(tmp_path / "many"))
    assert [bool(one.data) for one in found] == [True, True, False, False]


@posix
def test_links_pipes_and_giants_in_a_folder_are_refused(tmp_path):
    (tmp_path / "a.ipynb").symlink_to("/etc/passwd")
    (tmp_path / "b").symlink_to("/", target_is_directory=True)
    os.mkfifo(tmp_path / "c.ipynb")
    with (tmp_path / "d.ipynb").open("wb") as file:
        file.truncate(1 << 40)  # a terabyte, of holes
    text = refused(tmp_path)
    assert text.count("a link") == 2 and "not a file" in text and "too large" in text


ODD_NAMES = {  # which no pattern may see: some took hours
    "a control character": ("lab--" * 18 + "\n.txt", "a control character in its name"),
    "another kind of file": ("rmsnorm\x1b[31m.png", "a control character in its name"),
    "blanks": (" " * 50_000 + ".x", "a name of more than 255 characters"),
    "suffixes": ("x" + ".ipynb" * 2_000, "a name of more than 255 characters"),
    "folders": ("a/" * 20 + FILE, "a path of more than 20 parts"),
}


def test_an_odd_name_is_refused_before_it_is_looked_at(inboxes):
    for case, (name, why) in ODD_NAMES.items():
        inbox, began = inboxes(), time.process_time()
        inner = zipped({name: B})
        lines = inbox.take({f"ann_101_201_{FILE}": A, "eve_102_202_x.zip": inner})
        assert inbox.handed_in() == {"ann": A}, case
        (line,) = [line for line in lines if line.state == table.REFUSED]
        assert line.learner == "eve" and why in line.note, case
        assert time.process_time() - began < 5, case


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


def test_one_learners_files_cost_no_other_anything(inbox, tmp_path):
    many = zipped({f"{n}/{FILE}": b"{}" for n in range(500)})
    lines = inbox.take({
        "aaron_101_201_x.zip": many,
        f"bob_102_202_{FILE}": B,
        "carl_103_203_x.zip": zipped({f"lab/{FILE}": C}),
        "dan_104_204_x.zip": b"PK broken",
        f"../eve_105_205_{FILE}": A,
    })  # fmt: skip
    assert inbox.handed_in() == {"bob": B, "carl": C}
    bad = [line for line in lines if line.state == table.REFUSED]
    assert [line.learner for line in bad].count("aaron") == 2 and len(bad) == 4
    assert any("more than 50 notebooks in one learner's zip" in line.note for line in bad)
    for name in ("", "/", "\\", ".."):  # as the directory of a zip says it
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
            archive.writestr("a.ipynb", A)
            archive.writestr(zipfile.ZipInfo("b"), b"")
            archive.filelist[-1].filename = name
        found = list(Reader().walk(tmp_path / "x.zip"))
        assert len([one for one in found if one.data is not None]) == 1, name


# The command


@posix
def test_a_folders_name_forges_no_line_and_is_no_markup(inbox, tmp_path):
    folder = tmp_path / "in"
    names = ("bob", "eve\nann: all is well", r"\[x]", "[bold]x", "[link=http:x]y", "[red")
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / FILE).write_bytes(notebook(name))
    (folder / "bob" / "Icon\r").touch()  # of macOS
    (folder / "[").mkdir()
    (folder / "[" / "x].zip").write_bytes(b"")
    done = collect_command(inbox, str(folder))
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.exception
    assert "a control character in its name" in done.output and "need" in done.output
    assert inbox.handed_in()["bob"] == notebook("bob")
    assert not re.search("^ann: all is well", done.output, re.MULTILINE)
    seen = Console(file=io.StringIO(), width=80)
    print_remarks(SimpleNamespace(remarks=["eve\nann: all is well: line breaks"]), seen)
    assert len(seen.file.getvalue().splitlines()) == 1


def test_the_command_tells_and_writes_a_table(inbox):
    """What needs a look comes last and is counted, over all collects."""

    def last_lines():
        return rows_of(inbox.root / "collected" / "last.csv")

    evil = f"=HYPERLINK(1)_111_1001_{FILE}"
    first = {f"p{n:02}x_{n}11_1{n:02}1_{FILE}": notebook(f"{n}") for n in range(10, 80)}
    odd = {"Ann_991_9001_essay.pdf": b"%PDF", "Bob_992_9002_x.zip": b"", "\x1b[31mx.zip": b""}
    path = inbox.folder / "export.zip"
    path.write_bytes(zipped(odd | {evil: A} | first))
    done = collect_command(inbox, str(path), "--lab", LAB.module)
    assert done.exit_code == 1 and "refused: " in done.output and "\x1b[31m" not in done.output
    assert done.output.strip().splitlines()[-1] == "3 of 74 files need a look"
    assert done.output.index("71 new") < done.output.index("essay.pdf")
    assert not [cell for row in last_lines() for cell in row.values() if cell.startswith("=")]
    path.write_bytes(zipped({"Cem_993_9003_01_rmsnorm.rar": b"Rar!"}))
    done = collect_command(inbox, str(path))
    assert done.output.strip().splitlines()[-1] == "1 of 1 files needs a look"
    assert "essay.pdf" in done.output and "from earlier" in done.output
    (row,) = last_lines()
    assert row["learner"] == "Cem" and row["name from"] == "Canvas's file name"
    assert collect_command(inbox, str(inbox.folder / "nowhere")).exit_code == 1
    assert collect_command(inbox, str(inbox.root / "collected")).exit_code == 2
