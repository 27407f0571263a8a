"""Harmful archives and folders: the parts that are read, and the reasons for refusing the
rest."""

import io
import os
import re
import struct
import zipfile

import pytest
from rich.console import Console
from typer.testing import CliRunner

from labkit.cli import app
from labkit.grading.collect import issues, walk
from labkit.grading.collect.attempts import SourceLayout
from labkit.grading.collect.labs import lab_by_name
from labkit.grading.collect.walk import files_of
from labkit.grading.nbgrader.submitted import Remark
from labkit.grading.run.grade import print_remarks
from tests.course.cost import at_most
from tests.course.grading.samples import LAB, notebook, zipped

FILE = f"{LAB.name}.ipynb"
A, B, C = map(notebook, "abc")
posix = pytest.mark.skipif(os.name == "nt", reason="not checked: links and pipes need POSIX")


def patched(data, local, central, flags=None, size=None):
    """A zip of one file, with bytes changed in both of its headers."""
    value = struct.pack("<H", flags) if size is None else struct.pack("<I", size)
    for signature, place in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        at = data.index(signature) + place
        data = data[:at] + value + data[at + len(value) :]
    return data


def refused(path):
    """Return why a source was refused as a whole."""
    found = list(files_of(path))
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
    "too large": (zipped({FILE: bytes(walk.LARGEST + 1)}), "more than the"),
    "encrypted": (patched(ONE, 6, 8, flags=1), "encrypted"),
    "damaged": (ONE[:200] + bytes(60) + ONE[260:], "cannot be read"),
    "cut off": (ONE[:-100], "cannot be read"),
    "no zip": (b"PK but not really", "cannot be read"),
    "empty": (b"", "cannot be read"),
    "lzma": (zipped({FILE: A}, method=zipfile.ZIP_LZMA), "unusual way"),
    "too deep": (nested(2), "a zip in a zip"),
    "a false size": (patched(zipped({FILE: b" " * 10**5}), 22, 24, size=10), "cannot be read"),
}


def test_hostile_and_broken_zips_are_refused_with_a_reason(tmp_path):
    path = tmp_path / "x.zip"
    for case, (data, words) in HOSTILE.items():
        path.write_bytes(data)
        assert words in refused(path), case
        assert [p.name for p in tmp_path.iterdir()] == ["x.zip"], case


def test_limits_on_numbers_and_sums(tmp_path, monkeypatch):
    path = tmp_path / "x.zip"
    path.write_bytes(zipped({f"{i}.ipynb": b"{}" for i in range(30)}))
    monkeypatch.setattr(walk, "MOST_FILES", 20)
    assert "a zip of more than 20 files" in refused(path)
    inner = zipped({f"{n}/{FILE}": notebook(str(n)) for n in range(3)})
    path.write_bytes(zipped({"eve_101_201_x.zip": inner, "b_102_202_1.ipynb": A}))
    monkeypatch.setattr(walk, "MOST_BYTES", 2 * len(A))
    eve, other = files_of(path)
    assert "more than is read of one learner's zip" in eve.reason and other.data == A


@posix
def test_links_pipes_and_giants_in_a_folder_are_refused(tmp_path):
    (tmp_path / "a.ipynb").symlink_to("/etc/passwd")
    (tmp_path / "b").symlink_to("/", target_is_directory=True)
    os.mkfifo(tmp_path / "c.ipynb")
    with (tmp_path / "d.ipynb").open("wb") as file:
        file.truncate(1 << 40)  # a terabyte, of holes
    text = refused(tmp_path)
    assert text.count("a link, a pipe or a device, not a file") == 3 and "more than the" in text


ODD_NAMES = {  # refused before any pattern is tried: some took hours
    "a control character": ("lab--" * 18 + "\n.txt", "a control character in its name"),
    "another kind of file": ("rmsnorm\x1b[31m.png", "a control character in its name"),
    "blanks": (" " * 50_000 + ".x", "a name of more than 255 characters"),
    "suffixes": ("x" + ".ipynb" * 2_000, "a name of more than 255 characters"),
    "folders": ("a/" * 20 + FILE, "a path of more than 20 parts"),
}


def test_an_odd_name_is_refused_before_it_is_looked_at(inboxes):
    for case, (name, why) in ODD_NAMES.items():
        inbox, inner = inboxes(), zipped({name: B})
        with at_most(1500, case):
            lines = inbox.take({f"ann_101_201_{FILE}": A, "eve_102_202_x.zip": inner})
        assert inbox.handed_in() == {"ann": A}, case
        (line,) = [line for line in lines if line.state == issues.REFUSED]
        assert line.learner == "eve" and why in line.note, case


def test_no_name_takes_long():
    """The slowest names have 255 characters; one zip may have thousands of them."""
    units = (" ", "_", ".ipynb", "lab--", "lab-1-", "-copy1", "_111", "\ufdfa", "+a")
    names = [(unit * 255)[: 255 - len(end)] + end for unit in units for end in ("", "!", "(1")]
    for name in [*names, "lab--" * 18 + "\n"]:
        with at_most(100, name):
            for _ in range(10):
                SourceLayout([(name, FILE)]).claims([(name, FILE)])
                lab_by_name((name,))


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
    bad = [line for line in lines if line.state == issues.REFUSED]
    assert [line.learner for line in bad].count("aaron") == 1 and len(bad) == 3
    assert any("more than is read of one learner's zip" in line.note for line in bad)
    for name in ("", "/", "\\", ".."):  # the name in the directory of a zip
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
            archive.writestr("a.ipynb", A)
            archive.writestr(zipfile.ZipInfo("b"), b"")
            archive.filelist[-1].filename = name
        found = list(files_of(tmp_path / "x.zip"))
        assert len([one for one in found if one.data is not None]) == 1, name


@posix
def test_a_folders_name_forges_no_line_and_is_no_markup(inbox, tmp_path):
    folder = tmp_path / "in"
    names = ("bob", "eve\nann: all is well", r"\[x]", "[bold]x", "[link=http:x]y", "[red")
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / FILE).write_bytes(notebook(name))
    (folder / "bob" / "Icon\r").touch()  # a file of macOS
    (folder / "[").mkdir()
    (folder / "[" / "x].zip").write_bytes(b"")
    done = CliRunner().invoke(app, ["collect", str(folder), "--course", str(inbox.root)])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.exception
    assert "a control character in its name" in done.output and "need" in done.output
    assert inbox.handed_in()["bob"] == notebook("bob")
    assert not re.search("^ann: all is well", done.output, re.MULTILINE)
    seen = Console(file=io.StringIO(), width=80)
    print_remarks([Remark("line breaks", "eve\nann: all is well")], seen)
    assert len(seen.file.getvalue().splitlines()) == 1
