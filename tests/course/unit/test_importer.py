"""Importing the package under test from memory, and the framing of messages."""

import inspect
import socket
import sys
import threading
import traceback
from importlib import import_module

import pytest

import tinyllm
from labkit.sandbox.inside import wire
from labkit.sandbox.inside.importer import imported

SOURCES = {
    "rmsnorm": "import math\n\ndef two():\n    return 2\n",
    "rope": "from .rmsnorm import two\n\n\ndef fail():\n    raise ValueError(two())\n",
}


def test_the_package_is_what_the_sources_say_and_then_what_it_was():
    before = {name: sys.modules[name] for name in sys.modules if name.startswith("tinyllm")}
    path = list(sys.meta_path)
    with pytest.raises(ZeroDivisionError), imported(SOURCES):
        rope = import_module("tinyllm.rope")
        assert import_module("tinyllm") is not tinyllm and rope.two() == 2
        for other in ("swiglu", "config", "rope.inner"):  # they exist, and are out of reach
            with pytest.raises(ModuleNotFoundError, match=f"tinyllm.{other}"):
                import_module(f"tinyllm.{other}")
        1 / 0  # noqa: B018
    after = {name: sys.modules[name] for name in sys.modules if name.startswith("tinyllm")}
    assert after == before and sys.meta_path == path
    assert import_module("tinyllm") is tinyllm


def test_packages_within_each_other_do_not_mix():
    with imported({"rope": "x = 1"}):
        outer = import_module("tinyllm.rope")
        with imported({"rope": "x = 2"}):
            assert import_module("tinyllm.rope").x == 2
        assert import_module("tinyllm.rope") is outer


def test_tracebacks_and_inspect_know_the_learners_file():
    with imported(SOURCES, "folder/tinyllm"):
        rope = import_module("tinyllm.rope")
        with pytest.raises(ValueError) as caught:
            rope.fail()
        last = traceback.extract_tb(caught.value.__traceback__)[-1]
        assert (last.filename, last.lineno) == ("folder/tinyllm/rope.py", 5)
        assert "raise ValueError(two())" in inspect.getsource(rope)


def test_a_module_that_fails_leaves_nothing_behind():
    with imported({"rope": "x = 1\n1 / 0"}), pytest.raises(ZeroDivisionError):
        import_module("tinyllm.rope")
    with imported({"rope": "x ="}), pytest.raises(SyntaxError):
        import_module("tinyllm.rope")
    assert getattr(sys.modules.get("tinyllm.rope"), "x", None) is None


def test_messages_come_one_by_one_however_they_are_cut():
    sender, receiver = socket.socketpair()
    long = bytes(range(256)) * 9000
    stream = b"".join(map(wire.framed, (b"", b"a", long)))
    with sender, receiver:
        send = threading.Thread(
            target=lambda: [sender.sendall(stream[:7]), sender.sendall(stream[7:])]
        )
        send.start()
        assert [wire.receive(receiver, 1 << 22, 5) for _ in range(3)] == [b"", b"a", long]
        send.join()


def test_half_a_message_silence_and_giants_are_given_up():
    for sent, hangs_up, error, words in (
        (b"", False, wire.TimedOut, "no answer in time"),
        (b"\x05\0\0\0half", False, wire.TimedOut, "no answer in time"),
        (b"\x05\0\0\0half", True, wire.Gone, "it hung up"),
        (b"\xff\xff\xff\xff", False, wire.Gone, "4,294,967,295 bytes; 1,000 is the most"),
    ):
        sender, receiver = socket.socketpair()
        with sender, receiver:
            sender.sendall(sent)
            if hangs_up:
                sender.close()
            with pytest.raises(error, match=words):
                wire.receive(receiver, 1000, seconds=0.05)
