"""The reference, plain or sealed: text that Python runs and that is not read by accident.

A sealed module of solutions/ is a small file of Python that holds the reference in compressed
form and lets `run` execute it. Sealing stops accidents, not intent. Where the file is replaced
by a plain one, its answers are open to all.
"""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

MARK = "# sealed: "
FILE = '''"""{title}. It stands in until you have written your own.

Its text is sealed; `solution("...")` shows it, exercise by exercise, once the lab is open.
"""

from labkit.course.sealed import run

run(globals())

'''


class NotReady(Exception):
    """Something that is needed is missing; the message names it."""


def seal(source: str, title: str) -> str:
    """Return a module's source in sealed form, with a title as its first line."""
    return FILE.format(title=title) + encode(source)


def encode(text: str) -> str:
    """Return a text in sealed form."""
    letters = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    lines = [letters[start : start + 80] for start in range(0, len(letters), 80)]
    return "".join(f"{MARK}{line}\n" for line in lines)


def read_source(path: Path) -> str:
    """Return the text of a module of the reference, or of a file beside it, plain or sealed."""
    source = path.read_text("utf-8")
    lines = [line.removeprefix(MARK) for line in source.splitlines() if line.startswith(MARK)]
    return zlib.decompress(base64.b64decode("".join(lines))).decode() if lines else source


def run(namespace: dict[str, Any]) -> None:
    """Run the sealed code in the module of this namespace; tracebacks find no line to show."""
    path = Path(namespace["__file__"])
    name = f"<{path.parent.name}/{path.name}, sealed>"
    exec(compile(read_source(path), name, "exec", dont_inherit=True), namespace)


def is_sealed(path: Path) -> bool:
    return f"\n{MARK}" in f"\n{path.read_text('utf-8')}"
