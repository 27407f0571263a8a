"""The process that renders a stranger's chat template: it ends whatever the template does.

It is started by its path (template.py) and imports nothing of the course. It reads one JSON
object, {template, values, seconds, bytes, letters}, and writes {text}, {error}, or {letters}
for a text that is too long. Out of time or memory, it ends without an answer.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


def set_limits(seconds: int, memory: int) -> None:
    """Limit the seconds of CPU time and the bytes of this process. Windows has no such limits,
    macOS none for memory, so the parent checks as well."""
    try:
        import resource
    except ImportError:
        return
    for limit, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory)):
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(ValueError, OSError):  # macOS refuses the limit of memory
            resource.setrlimit(limit, (most, most))


def refuse(message: str) -> None:
    raise TemplateError(message)


def answer(template: str, values: dict[str, Any], letters: int) -> dict[str, Any]:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    pieces, count = [], 0
    try:
        for piece in environment.from_string(template).generate(values):
            pieces.append(piece)
            count += len(piece)
            if count > letters:
                return {"letters": count}
    except MemoryError:
        raise
    except Exception as error:  # a template is a program and may raise anything
        return {"error": str(error)[:letters] or type(error).__name__}
    return {"text": "".join(pieces)}


if __name__ == "__main__":
    request = json.load(sys.stdin.buffer)
    set_limits(request["seconds"], request["bytes"])
    json.dump(answer(request["template"], request["values"], request["letters"]), sys.stdout)
