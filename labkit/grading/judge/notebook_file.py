"""Read the cells of a notebook's file, which may be any bytes; or find the kind of another
file."""

from __future__ import annotations

import json
import re

from labkit.course.answers import cell_name
from labkit.course.cells import exercise_in
from labkit.course.lang import tr
from labkit.course.statements import MAX_CELL

MAX_NOTEBOOK = 32 << 20
MAX_VALUES = 2_000_000  # values in a file: each takes some 80 bytes once it is read
MAX_CELLS = 5_000
MAX_CODE = 1_000_000  # characters, which take seconds to read
ANSWER_CELL = re.compile(r"ex-\d+-\d+")


class NotANotebook(ValueError):
    """Bytes in which no notebook can be found; the message is the reason."""


def cells_of(data: bytes) -> list[dict]:
    """Return the cells of a notebook; NotANotebook if there are none."""
    if len(data) > MAX_NOTEBOOK:
        raise NotANotebook(tr("the file has {count:,} bytes; {MAX_NOTEBOOK:,} is the most",
                              count=len(data), MAX_NOTEBOOK=MAX_NOTEBOOK))  # fmt: skip
    if values_in(data) > MAX_VALUES:
        text = tr("the file holds more than {MAX_VALUES:,} values", MAX_VALUES=MAX_VALUES)
        raise NotANotebook(text)
    cells = content_of(data)["cells"]
    cells = [cell for cell in cells[:MAX_CELLS] if isinstance(cell, dict)]
    code = sum(len(text_of(cell)) for cell in cells if is_code(cell))
    if code > MAX_CODE:
        raise NotANotebook(tr("there are {code:,} characters of code; {MAX_CODE:,} is the most",
                              code=code, MAX_CODE=MAX_CODE))  # fmt: skip
    return cells


def content_of(data: bytes) -> dict:
    """A notebook's JSON, which has a list of cells. Raises NotANotebook with what to do."""
    if data.endswith(bytes(4)):  # a crash during a save can leave these bytes
        data = data.rstrip(b"\0")
    try:
        content = json.loads(data.decode(json.detect_encoding(data), errors="replace"))
    except (ValueError, RecursionError) as error:
        raise NotANotebook(wrong_form(data) or tr(
            "the file is not a notebook: it is not JSON ({error})", error=error
        )) from error  # fmt: skip
    if isinstance(content, dict) and isinstance(content.get("cells"), list):
        return content
    if isinstance(content, dict) and "worksheets" in content:
        raise NotANotebook(tr("it is a notebook of an old form, nbformat 3: open it in "
                              "Jupyter, save it, and hand it in again"))  # fmt: skip
    raise NotANotebook(tr("the file is not a notebook: it is JSON without a list of cells"))


def wrong_form(data: bytes) -> str:
    """Return the kind of a file that is often handed in instead of a notebook; "" for other
    bytes."""
    if not data.strip():
        return tr("the file is empty")
    if data.startswith(b"version https://git-lfs"):
        return tr("it is a pointer of git LFS, not the notebook: `git lfs pull` gets the file "
                  "itself; hand that in")  # fmt: skip
    if data.startswith(b"bplist"):
        return tr("it is a placeholder of iCloud: download the file itself in Finder, and hand "
                  "that in")  # fmt: skip
    if re.search(rb"^(?:<{7}|>{7}) ", data, re.MULTILINE):
        return tr("git left a conflict in it, between lines that begin with <<<<<<< and "
                  ">>>>>>>: settle it, or take one side (`git checkout --ours FILE`), and hand "
                  "it in again")  # fmt: skip
    return ""


def without_outputs(data: bytes) -> bytes:
    """Return a notebook that is too large without its outputs."""
    if values_in(data) > 4 * MAX_VALUES:
        text = tr("the file holds more than {MAX_VALUES:,} values", MAX_VALUES=MAX_VALUES)
        raise NotANotebook(text)
    content = content_of(data)
    for cell in content["cells"]:
        if isinstance(cell, dict) and "outputs" in cell:
            cell["outputs"] = []
    return json.dumps(content).encode()


def values_in(data: bytes) -> int:
    """Return the most values that a file of JSON can hold, counted before it is read."""
    return sum(map(data.count, (b",", b"[", b"{")))


def is_code(cell: dict) -> bool:
    """Whether the cell is read as Python; cells of text may be larger, with pasted pictures."""
    text = cell.get("cell_type") in ("markdown", "raw")
    claims = ANSWER_CELL.fullmatch(cell_name(cell)) or exercise_in(text_of(cell)[:MAX_CELL])
    return not text or bool(claims)


def text_of(cell: dict) -> str:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    if not isinstance(source, str):
        return ""
    return source.encode("utf-8", errors="replace").decode("utf-8")
