"""The confined process: the things that learner code finds in it, and odd answers of it."""

import os
import signal
import time

import pytest
import torch

from labkit.course.syllabus import LABS
from labkit.grading.judge.intake import cell_called
from labkit.grading.judge.judge import Judge
from labkit.grading.sample_class import encoded, solved
from labkit.sandbox import launch
from labkit.sandbox.bubblewrap import Sandbox
from labkit.sandbox.inside import wire
from labkit.sandbox.inside.call import Call
from labkit.sandbox.launch import BOOT, LoadRequest, WorkerLauncher
from labkit.sandbox.probe import best_sandbox


def ask(workers, body, module=""):
    """The outcome of calling f(x), with `body` as its text."""
    source = f"import torch\n{module}\ndef f(x):\n    {body}\n"
    call = Call("f", x=torch.arange(3.0))
    answers = workers.answer(LoadRequest({"lab": source}, "lab"), [call], cpu_seconds=2)
    return answers.outcomes[0]


def test_nothing_of_the_judge_enters(monkeypatch):
    """Neither its environment nor a test or a reference; the attacks try the rest."""
    monkeypatch.setenv("SECRET_OF_THE_JUDGE", "the gradebook's password")
    with WorkerLauncher(best_sandbox()) as fresh:
        names = ask(fresh, "return dict(__import__('os').environ)").value
        modules = ask(fresh, "return list(__import__('sys').modules)").value
    assert names["PATH"] == os.defpath and "SECRET_OF_THE_JUDGE" not in names
    ours = [name for name in modules if name.split(".")[0] in
            ("solutions", "tests", "labkit", "pytest", "transformers")]  # fmt: skip
    around = {name for name in ours if not name.startswith("labkit.sandbox.inside")}
    assert around == {"labkit", "labkit.sandbox"}


def test_odd_ends_are_outcomes(workers):
    for body, words in {
        "import sys; sys.exit(0)": "SystemExit",
        "while True: print('x' * 10_000)": "OutputLimit",
        "while True: pass": "TimeLimit",
        "import os; os._exit(0)": "ended the process",
        "import ctypes; ctypes.string_at(0)": "",
        "return torch.empty(10**12)": "",
        "def g(n): return g(n + 1)\n    return g(0)": "RecursionError",
        "return x.to_sparse()": "",
        "x.loop = x\n    a = []\n    a.append(a)\n    return a": "",
    }.items():
        failure = ask(workers, body).failure
        assert failure and words in f"{failure.kind} {failure.text}", (body, failure)
    for body in ("return object()", "return {'a': lambda: 1}"):
        assert ask(workers, body).failure is None, body


FORGED = """
import os, socket, stat
def door():
    for number in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                return number
        except OSError:
            continue
"""


def test_the_judge_waits_no_longer_than_its_limit(workers, monkeypatch):
    for body in (
        "os.write(door(), b'x'); __import__('time').sleep(60)",  # half a frame, then silence
        "os.write(door(), b'\\xff\\xff\\xff\\xff'); return x",  # a frame of four gigabytes
        "os.write(door(), b'\\x04\\0\\0\\0oops'); return x",  # a frame that is not an answer
        "return {'a': 'y' * 20_000_000}",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(launch, "WALL_SECONDS", 2)
            patch.setattr(launch, "PER_CPU_SECOND", 0)
            start = time.monotonic()
            outcome = ask(workers, body, module=FORGED)
        assert outcome.failure.kind in ("NoAnswer", "PermissionError"), body
        assert time.monotonic() - start < 30, body
    assert ask(workers, "return x.sum()").value == 3


@pytest.mark.full
def test_a_process_that_only_waits_is_ended_long_before_one_that_computes(workers, monkeypatch):
    monkeypatch.setattr(wire, "IDLE_SECONDS", 1.5)  # enough time even on a busy machine
    for body in (
        "import time; time.sleep(10**6)",
        "import time\n    while True: time.sleep(0.2)",
        "import threading; threading.Event().wait()",
        "os.read(os.pipe()[0], 1)",
        "os.write(door(), b'x'); __import__('select').select([], [], [])",
    ):
        start = time.monotonic()
        failure = ask(workers, body, module=FORGED).failure
        assert failure.kind == "NoAnswer" and time.monotonic() - start < 15, body
    slow = "import time\n    while time.process_time() < 1.5: pass\n    return 3"
    assert ask(workers, slow).value == 3


def test_the_answers_of_an_exercise_are_bounded_in_sum(workers, monkeypatch):
    monkeypatch.setattr(launch, "MAX_ANSWERS", 3 << 20)
    source = "import torch\n\ndef f(x):\n    return torch.zeros(1 << 18)\n"  # a megabyte
    calls = [Call("f", x=n) for n in range(4)]
    outcomes = workers.answer(LoadRequest({"lab": source}, "lab"), calls).outcomes
    failures = [outcome.failure for outcome in outcomes]
    assert failures[:2] == [None, None] and failures[2].kind == failures[3].kind == "NoAnswer"


def test_the_next_exercise_starts_clean_and_a_dead_parent_is_replaced(workers):
    ask(workers, "torch.Tensor.sum = None; return x")
    assert ask(workers, "return x.sum()").value == 3
    os.kill(workers.process.pid, signal.SIGKILL)
    workers.process.wait()
    assert ask(workers, "return x.sum()").value == 3


def test_where_nothing_can_fork_each_learner_starts_a_process(released, monkeypatch):
    """As on Windows, it connects to a port of this machine with a token."""
    monkeypatch.delattr(os, "fork")
    monkeypatch.setattr(launch, "BOOT", f"import os; del os.fork; {BOOT}")
    lab, started = LABS[0], []
    notebook = solved(released[lab.name], lab)
    with WorkerLauncher(Sandbox()) as workers:
        spawn = workers._spawn
        monkeypatch.setattr(workers, "_spawn", lambda: started.append(1) or spawn())
        judge = Judge(lab, released[lab.name], b"secret", workers)
        assert judge.grade(encoded(notebook)).score == sum(e.points for e in lab.exercises)
        assert len(started) == 1
        cell = cell_called(notebook, lab.exercises[0].answer_cell)
        cell.source = cell.source.replace(" + eps", "")
        graded = judge.grade(encoded(notebook)).exercises
        assert 0 < graded[0].score < lab.exercises[0].points and graded[0].why
        assert len(started) == 4  # a wrong answer is tried again in its own process
