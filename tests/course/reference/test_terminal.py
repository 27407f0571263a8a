"""chat and generate in their own process: broken pipes, a terminal, Ctrl-C."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest
import small
from test_chat import RATE

from labkit.model.chat import screen

COMMAND = (
    "import sys, typer\nfrom labkit.learner.talk import commands\napp = typer.Typer()\n"
    "app.command()(commands.generate)\napp.command()(commands.chat)\napp()"
)


def command(*arguments, script=COMMAND):
    return [sys.executable, "-c", script, *map(str, arguments)]


def environment():
    path = ":".join(p for p in sys.path if p)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TERM": "xterm"}


def test_nothing_is_imported_that_talking_does_without(chat_folder):
    """torch's compiler takes as long to import as torch. Input need not be UTF-8."""
    script = (
        "import sys\nfrom labkit.cli import app\n"
        "app(standalone_mode=False)\nprint(*sorted(sys.modules))"
    )
    chat = command("chat", chat_folder, "--max-new-tokens", 3, script=script)
    out = subprocess.run(
        chat, input=b"caf\xe9 \xff\n", capture_output=True, env=environment(), check=True
    )
    names = set(out.stdout.decode("utf-8", "replace").split())
    assert {"torch", "tokenizers"} <= names
    assert not names & {"torch._dynamo", "sympy", "matplotlib", "IPython", "nbformat"}


def test_a_reader_that_leaves(chat_folder):
    shell = " ".join(f"'{part}'" for part in command("generate", chat_folder, "-p", "Anna"))
    shell = f"{shell} | head -c 1"
    out = subprocess.run(shell, shell=True, capture_output=True, env=environment())
    assert out.stdout and b"Traceback" not in out.stderr


class Terminal:
    """A command in a pseudo-terminal: type into it, read from it."""

    def __init__(self, *arguments):
        self.screen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # a process started by a shell's `&` ignores it
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(sys.executable, command(*arguments), environment())

    def read_until(self, pattern, seconds=60):
        start, deadline = len(self.screen), time.time() + seconds
        while not re.search(pattern, self.screen[start:]):
            assert time.time() < deadline, f"no {pattern!r} in {self.screen!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                assert self.read(), f"ended: {self.screen!r}"
        return self.screen[start:]

    def read(self):
        try:
            data = os.read(self.fd, 4096)
        except OSError:
            data = b""
        self.screen += data.decode("utf-8", "replace")
        return data

    def type(self, text):
        os.write(self.fd, text.encode())

    def status(self):
        while self.read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture(scope="module")
def endless(tmp_path_factory, tokenizer_folder):
    """Arguments for an answer that takes minutes"""
    folder = tmp_path_factory.mktemp("endless") / "endless"
    small.write_chat_folder(folder, tokenizer_folder, max_position_embeddings=40_000)
    settings = ("--package", "endless", "--temperature", 9, "--seed", 3)
    return folder, *settings, "--max-new-tokens", 30_000


def test_chat_in_a_terminal(chat_folder):
    terminal = Terminal("chat", chat_folder, "--max-new-tokens", 20, "--seed", 1)
    terminal.read_until("you> ")
    terminal.type("hello\r")
    assert re.search(RATE, terminal.read_until("you> "))
    terminal.type("/reset\r")
    assert "forgotten" in terminal.read_until("you> ")
    terminal.type("\x04")
    assert terminal.status() == 0


def test_ctrl_c_ends_the_answer_not_the_program(endless):
    terminal = Terminal("chat", *endless)
    terminal.read_until("you> ")
    time.sleep(0.5)  # CPython's input() can miss a key pressed while it prints its prompt
    terminal.type("\x03")
    assert "Ctrl-D ends" in terminal.read_until("you> ")
    time.sleep(0.5)
    terminal.type("hello\r")
    terminal.read_until(r"hello\r\n(?s:.){200}")
    terminal.type("\x03")
    assert "interrupted" in terminal.read_until("you> ")
    terminal.type("/quit\r")
    assert terminal.status() == 0
    assert "Traceback" not in terminal.screen


def test_generate_shows_no_control_characters_and_ctrl_c_ends_it(endless):
    terminal = Terminal("generate", *endless, "-p", "A")
    terminal.read_until("\ufffd(?s:.){300}")  # the model has started to write
    os.kill(terminal.pid, signal.SIGINT)
    assert terminal.status() != 0
    assert "Traceback" not in terminal.screen and "\ufffd" in terminal.screen
    allowed = "\t\n\r\x1b"  # \r and \x1b come from the progress bar and line ends
    assert not set(map(chr, (*range(32), *range(127, 160)))) - set(allowed) & set(
        terminal.screen
    )


def test_a_word_that_does_not_fit_begins_the_next_line():
    wrapper = screen.WordWrapper(12)
    pieces = ("It is", " won", "derful", " a", " b\nh", " 中文中文", " c")
    expected = ["It is", " won", "derful", "\na", " b\nh", " 中文中文", " c"]
    assert [wrapper.wrap(piece) for piece in pieces] == expected
    assert wrapper.wrap(" d") == "\nd"
