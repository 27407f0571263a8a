"""The reference, plain or sealed: text that Python runs and nobody reads by accident.

A sealed module of solutions/ is a small file of Python that holds the reference in compressed
form and lets `run` execute it. A key per lab opens it for `solution("1.2")`: keys.json holds
the hashes of the keys; unlocked.json, which git ignores, those that a learner has entered.
Sealing stops accidents, not intent.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from labkit.course.files import write_whole
from labkit.course.lang import tr
from labkit.course.paths import PROJECT, ROOT, SOLUTIONS

KEYS = SOLUTIONS / "keys.json"  # {module: digest} of what has a key; without it all is open
# {module: digest} of the keys that a learner has entered
OPENED = (SOLUTIONS if PROJECT == ROOT else PROJECT) / "unlocked.json"
MARK = "# sealed: "
FILE = '''"""{title}. It stands in until you have written your own.

Its text is sealed; `solution("...")` shows it, exercise by exercise, once the lab is open.
"""

from labkit.course.sealed import run

run(globals())

'''


class NotReady(Exception):
    """Something that is needed is not here; the message says what."""


class WrongKey(ValueError):
    """The key does not match this lab."""


def seal(source: str, title: str) -> str:
    """A module's source as a sealed one; the title is its first line."""
    return FILE.format(title=title) + encode(source)


def encode(text: str) -> str:
    """Any text in sealed form."""
    letters = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    lines = [letters[start : start + 80] for start in range(0, len(letters), 80)]
    return "".join(f"{MARK}{line}\n" for line in lines)


def read_source(path: Path) -> str:
    """The text of a module of the reference, or of a file beside it, plain or sealed."""
    source = path.read_text("utf-8")
    lines = [line.removeprefix(MARK) for line in source.splitlines() if line.startswith(MARK)]
    return zlib.decompress(base64.b64decode("".join(lines))).decode() if lines else source


def run(namespace: dict[str, Any]) -> None:
    """Run what is sealed in the module of this namespace; tracebacks find no line to show."""
    path = Path(namespace["__file__"])
    name = f"<{path.parent.name}/{path.name}, sealed>"
    exec(compile(read_source(path), name, "exec", dont_inherit=True), namespace)


# The keys


def key_of(secret: str, module: str) -> str:
    """The key of a lab's module, such as K7QF-2M9D-XWRP, made from the instructor's secret."""
    made = hmac.digest(secret.encode(), module.encode(), "sha256")
    letters = base64.b32encode(made)[:12].decode()
    return "-".join(letters[start : start + 4] for start in (0, 4, 8))


def locks(secret: str, modules: Iterable[str]) -> str:
    """What keys.json holds."""
    return json.dumps({name: _digest(name, key_of(secret, name)) for name in modules}, indent=1)


def is_open(module: str) -> bool:
    """Whether the answers of a module may be shown."""
    digest = _digests(KEYS).get(module)
    return digest is None or digest == _digests(OPENED).get(module)


def unlock(module: str, key: str) -> None:
    """Open the answers of a module for good.

    Errors: WrongKey
    """
    if is_open(module):
        return
    digest = _digests(KEYS)[module]
    if _digest(module, key) != digest:
        raise WrongKey(
            tr(
                "{key!r} is not the key of {module}: ask your instructor",
                key=key,
                module=module,
            )
        )
    opened = _digests(OPENED) | {module: digest}
    write_whole(OPENED, json.dumps(opened, indent=1))


def _digests(path: Path) -> dict[str, str]:
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _digest(module: str, key: str) -> str:
    """The hash of a key, in any spelling."""
    typed = "".join(letter for letter in key.upper() if letter.isalnum())
    typed = typed.translate(str.maketrans("018", "OIB"))  # none of them is in a key
    return hashlib.sha256(f"{module} {typed}".encode()).hexdigest()
