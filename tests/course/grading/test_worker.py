"""The confined process: what learner code cannot do, and what becomes of it when it tries."""

import os
import signal
import sys
import time

import pytest
import torch

from labkit.core.syllabus import LABS
from labkit.grading.judge.intake import cell_called
from labkit.grading.judge.judge import Judge
from labkit.grading.judge.probe import best_sandbox
from labkit.grading.judge.sandbox import Sandbox
from labkit.grading.judge.worker_client import BOOT, ROOT, LoadRequest, WorkerLauncher
from labkit.grading.sample_class import encoded, solved
from labkit.sandboxed import limits
from labkit.sandboxed.call import Call, perform
from labkit.sandboxed.wire import decode_call, encode_call

ANSWER = "import torch\nfrom torch import Tensor, nn\n"


def ask(workers, body, module="", banned=()):
    """The outcome of calling f(x), with `body` as its text."""
    source = f"{ANSWER}{module}\ndef f(x):\n    {body}\n"
    worker = workers.launch(LoadRequest({"lab": source}, "lab", list(banned)))
    outcome = worker.ask(Call("f", x=torch.arange(3.0)))
    worker.close()
    return outcome


def test_a_call_comes_back(workers):
    assert torch.equal(ask(workers, "return 2 * x").value, torch.tensor([0.0, 2.0, 4.0]))


def test_gradients_of_chosen_inputs_alone():
    inputs = {"x": torch.arange(3.0), "scale": torch.ones(3)}
    for grad, names in ((True, {"x", "scale"}), (("x",), {"x"}), (False, set())):
        call = decode_call(encode_call(Call("f", grad=grad, **inputs)))
        outcome = perform(call, {"f": lambda x, scale: x * scale})
        assert set(outcome.grads) == names
        assert outcome.failure is None


def test_the_environment_of_the_judge_does_not_enter(monkeypatch):
    """All else that is out of reach, the attacks try."""
    monkeypatch.setenv("SECRET_OF_THE_JUDGE", "the gradebook's password")
    with WorkerLauncher(best_sandbox()) as fresh:
        names = ask(fresh, "return ','.join(__import__('os').environ)").value
    assert "PATH" in names and "SECRET_OF_THE_JUDGE" not in names


def test_no_test_and_no_reference_is_in_memory(workers):
    body = "return ','.join(m for m in __import__('sys').modules)"
    names = ask(workers, body).value.split(",")
    loaded = [n for n in names if n.split(".")[0] in ("solutions", "tests", "labkit", "pytest")]
    assert all(name == "labkit" or name.startswith("labkit.sandboxed") for name in loaded)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import sys; sys.exit(0)", "SystemExit"),
        ("while True: print('x' * 10_000)", "OutputLimit"),
        ("import os; os._exit(0)", "ended the process"),
        ("import ctypes; ctypes.string_at(0)", ""),
        ("return torch.empty(10**12)", ""),
        ("def g(n): return g(n + 1)\n    return g(0)", "RecursionError"),
        ("return x.to_sparse()", ""),
        ("return object()", None),
        ("return {'a': lambda: 1}", None),
        ("x.loop = x\n    a = []\n    a.append(a)\n    return a", ""),
    ],
)
def test_odd_ends_are_outcomes(workers, body, words):
    outcome = ask(workers, body)
    if words is None:
        assert outcome.failure is None
    else:
        assert words in f"{outcome.failure.kind} {outcome.failure.text}"


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


@pytest.mark.parametrize(
    "body",
    [
        "os.write(door(), b'x'); __import__('time').sleep(60)",  # half a frame, then silence
        "os.write(door(), b'\\xff\\xff\\xff\\xff'); return x",  # a frame of four gigabytes
        "os.write(door(), b'\\x04\\0\\0\\0oops'); return x",  # a frame that is no answer
        "__import__('time').sleep(60)",
        "return {'a': 'y' * 20_000_000}",
    ],
)
def test_the_judge_waits_no_longer_than_it_said(workers, body, monkeypatch):
    monkeypatch.setattr("labkit.grading.judge.worker_client.WALL_SECONDS", 3)
    start = time.monotonic()
    outcome = ask(workers, body, module=FORGED)
    assert outcome.failure.kind in ("NoAnswer", "PermissionError")
    assert time.monotonic() - start < 30
    assert ask(workers, "return x.sum()").value == 3


def test_a_dead_parent_is_replaced(workers):
    ask(workers, "return x")
    os.kill(workers.process.pid, signal.SIGKILL)
    workers.process.wait()
    assert ask(workers, "return x.sum()").value == 3


def test_a_loop_is_stopped(workers):
    outcome = ask(workers, "while True: pass")
    assert outcome.failure.kind == "TimeLimit"


def test_the_next_exercise_starts_clean(workers):
    ask(workers, "torch.Tensor.sum = None; return x")
    assert ask(workers, "return x.sum()").value == 3


def test_banned_functions_raise_however_they_are_reached(workers):
    body = "return getattr(torch.nn.functional, 'rms_' + 'norm')(x, (3,))"
    outcome = ask(workers, body, banned=["torch.nn.functional.rms_norm"])
    assert "F.rms_norm may not be used here" in outcome.failure.text


def test_layers_of_protection_are_named(tmp_path):
    if sys.platform == "linux":
        assert limits.readable_folders()
    assert not any(str(ROOT) == str(path) for path in limits.readable_folders())


def test_where_nothing_can_fork_each_learner_starts_a_process(released, monkeypatch):
    """As on Windows: over a port of this machine, with a token."""
    monkeypatch.delattr(os, "fork")
    monkeypatch.setattr(
        "labkit.grading.judge.worker_client.BOOT", f"import os; del os.fork; {BOOT}"
    )
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
        assert len(started) == 3
