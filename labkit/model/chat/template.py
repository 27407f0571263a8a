"""Render the chat template of a checkpoint: a stranger's program, run in a separate process
with limits. No limit inside this process could end one long call of Jinja's C code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil

from labkit.course.lang import tr

CHILD = Path(__file__).with_name("render_child.py")
SECONDS = 5  # seconds of CPU time
# times as many seconds by the clock, for a busy machine or one without a limit of CPU time
WALL = 4
MOST_LETTERS = 2**20
MOST_MEMORY = 2**30  # bytes
TICK = 0.05  # seconds between two looks at the memory
# Hashes of the templates of this course's models, which need no process
COURSE_TEMPLATES = {"e772b6ad1ea2a9b717ead97c3d9266a75e14489ec55a751b956003420d7b4981"}


class TemplateFailed(Exception):
    """A template that cannot be rendered; the message says why."""


def render(template: str, **values: Any) -> str:
    """Return the text of a template with these values.

    Errors: TemplateFailed if it exceeds the limits of time, memory or text, or raises an error
    """
    if sha256(template.encode()).hexdigest() in COURSE_TEMPLATES:
        from labkit.model.chat.render_child import answer

        return answer(template, values, MOST_LETTERS)["text"]
    request = {"template": template, "values": values, "seconds": SECONDS,
               "bytes": MOST_MEMORY, "letters": MOST_LETTERS}  # fmt: skip
    # The current folder may be the stranger's, so no code is imported from there
    path = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        [sys.executable, CHILD], env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            written = _output(process, json.dumps(request).encode())
        finally:
            process.kill()
    if not written:
        limits = {"count": SECONDS, "most": MOST_MEMORY // 2**20}
        raise TemplateFailed(
            tr("it takes more than {count} seconds or {most:,} MB of memory", **limits)
        )
    answer = json.loads(written)
    if "letters" in answer:
        raise TemplateFailed(tr("it writes more than {most:,} letters", most=MOST_LETTERS))
    if "error" in answer:
        raise TemplateFailed(answer["error"])
    return answer["text"]


def _output(process: subprocess.Popen[bytes], request: bytes) -> bytes:
    """Return the output of the process; nothing if it is out of time or memory."""
    end, about = time.monotonic() + WALL * SECONDS, psutil.Process(process.pid)
    while time.monotonic() < end:
        try:
            return process.communicate(request, timeout=TICK)[0]
        except subprocess.TimeoutExpired:
            request = b""  # it is being sent
        try:
            if about.memory_info().rss > MOST_MEMORY:
                break
        except psutil.Error:  # it has just ended
            pass
    return b""
