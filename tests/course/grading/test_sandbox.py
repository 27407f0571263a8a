"""The sandbox: every protection is really tripped, and refused where it is not there."""

import errno
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from labkit.cli import app
from labkit.grading.judge import attempts, probe, sandbox
from labkit.grading.judge.attempts import ATTEMPTS
from labkit.grading.judge.sandbox import NoSandbox, Sandbox
from labkit.grading.judge.worker_client import LoadRequest, WorkerLauncher
from labkit.sandboxed import seccomp
from labkit.sandboxed.call import Call

linux = pytest.mark.skipif(sys.platform != "linux", reason="not checked: needs Linux")


@pytest.fixture(scope="session")
def best():
    found = probe.best_sandbox()
    if found.bubblewrap is None:
        pytest.skip(f"not checked: {found.lacking}")
    return found


@pytest.fixture(scope="session")
def bare():
    return probe.probed(Sandbox())


@pytest.mark.parametrize("what", ATTEMPTS)
def test_bubblewrap_stops(best, what):
    assert what in best.stopped


@linux
@pytest.mark.parametrize("what", ATTEMPTS)
def test_the_kernel_stops_without_bubblewrap_too(bare, what):
    assert what in bare.stopped


@linux
def test_the_attempts_would_get_through_without_any_protection(tmp_path):
    """Else the probe would prove nothing."""
    source = Path(attempts.__file__).read_text("utf-8")
    (tmp_path / "secret").write_text("the gradebook")
    harmless = ["read a file", "write a file", "write a huge file", "take uncounted memory",
                "start a process", "signal another process",
                "find what another left"]  # fmt: skip
    asked = f"[attempt(what, {str(tmp_path / 'secret')!r}) for what in {harmless}]"
    done = subprocess.run(
        [sys.executable, "-c", f"{source}\nprint({asked})"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == str(["got through"] * len(harmless)), done.stderr


def values(workers, body):
    """What f(x) gives in a worker of its own, without the Python layer."""
    source = f"import os, torch\n\ndef f(x):\n    {body}\n"
    worker = workers.launch(LoadRequest({"lab": source}, "lab", (), audit=False))
    outcome = worker.ask(Call("f", x=torch.arange(3.0)))
    worker.close()
    return outcome


def test_inside_there_is_nothing_but_python(best):
    course = ("solutions", "tests", "gradebook", "home", "root", "submitted", ".git")
    with WorkerLauncher(best) as workers:
        body = "return [p + '/' + n for p, d, ns in os.walk('/') for n in d + ns " \
               "if not p.startswith(('/proc', '/sys', '/usr', '/lib'))]"  # fmt: skip
        found = values(workers, body).value
        assert found is not None
        names = {Path(path).name for path in found if "site-packages" not in path}
        assert not names.intersection(course)
        assert values(workers, "return os.getpid()").value < 1000  # of a namespace of its own
        assert values(workers, "return os.getuid()").value == int(sandbox.NOBODY)
        assert values(workers, "open('/code/labkit/x', 'w')").failure


def test_an_installed_copy_of_the_course_is_hidden(tmp_path):
    packages = tmp_path / "site-packages"
    (packages / "solutions").mkdir(parents=True)
    assert sandbox.course_folders([str(packages)]) == [str(packages / "solutions")]


@pytest.mark.parametrize("body", ["open('mine', 'w')", "os.mkdir('a')", "os.symlink('/', 'a')"])
def test_nothing_can_be_written_where_it_works(best, body):
    for found in (best, Sandbox()):
        with WorkerLauncher(found) as workers:
            assert values(workers, f"{body}; return x").failure.kind in DENIED


DENIED = ("PermissionError", "OSError")


class WithoutLandlock(Sandbox):
    """As on a kernel before 5.13."""

    def command(self, python, *rest):
        begin = "from labkit.sandboxed.worker import main"
        off = "from labkit.sandboxed import limits; limits.landlock_rules = lambda _: None"
        assert begin in python[-1]
        return super().command(
            [*python[:-1], python[-1].replace(begin, f"{off}; {begin}")], *rest
        )


def test_without_landlock_bubblewrap_still_keeps_memory_and_files(best):
    asked = ["write another's memory", "read a file", "write a file", "fill the disk"]
    source = Path(attempts.__file__).read_text("utf-8")
    with WorkerLauncher(WithoutLandlock(best.bubblewrap)) as workers:
        request = LoadRequest({"attempts": source}, "attempts", (), audit=False)
        worker = workers.launch(request)
        assert "landlock" not in worker.layers
        for what in asked:
            outcome = worker.ask(Call("attempt", what=what, path="/etc/passwd"))
            assert outcome.value.startswith("stopped by"), what


def test_the_next_learner_finds_no_process_and_no_file(best):
    with WorkerLauncher(best) as workers:
        busy = workers.launch(LoadRequest({"lab": "while True: pass"}, "lab", (), audit=False))
        busy.close()
        for folder in (".", "/proc"):  # Landlock hides both
            outcome = values(workers, f"return os.listdir('{folder}')")
            found = [] if outcome.failure else outcome.value
            assert not [name for name in found if folder == "." or name.isdigit()]


ROADS = {
    "by its function": "torch.nn.functional.silu(x)",
    "by its operator": "torch.ops.aten.silu(x)",
    "with an output": "torch.ops.aten.silu.out(x, out=torch.empty(3))",
    "in place": "torch._C._nn.silu_(x.clone())",
    "with gradients": "torch.ops.aten.silu(x.clone().requires_grad_())",
    "compiled": "torch.jit.script(torch.nn.SiLU())(x)",
    "by vmap": "torch.vmap(torch.ops.aten.silu)(x.reshape(3, 1))",
    "on another layout": "torch.ops.aten.silu(x.reshape(1, 3).to_sparse_csr())",
}


@pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
def test_refused_operators_stay_refused_on_every_road(workers, road):
    source = f"import torch\n\ndef f(x):\n    return {road}\n"
    worker = workers.launch(LoadRequest({"lab": source}, "lab", ("aten::silu", "aten::silu_")))
    assert worker.ask(Call("f", x=torch.ones(3))).failure is not None
    worker.close()
    worker = workers.launch(
        LoadRequest({"lab": source}, "lab", ())
    )  # and come back for the next
    if "script" not in road and "sparse" not in road:
        assert worker.ask(Call("f", x=torch.ones(3))).failure is None
    worker.close()


@pytest.fixture
def no_wish(monkeypatch):
    monkeypatch.delenv(sandbox.WITHOUT)


def test_a_sandbox_that_is_missing_is_an_error_unless_it_is_not_wanted(no_wish, monkeypatch):
    missing = Sandbox(lacking="bubblewrap is not installed")
    with pytest.raises(NoSandbox, match=r"not installed.*--no-sandbox"):
        sandbox.permitted(missing)
    assert sandbox.permitted(missing, True) is missing
    monkeypatch.setenv(sandbox.WITHOUT, "1")
    assert sandbox.permitted(missing) is missing


def test_without_bubblewrap_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(probe, "probed", lambda found: found)
    monkeypatch.setattr(probe, "KEPT", tmp_path / "probe.json")
    found = probe.best_sandbox.__wrapped__()
    assert found.bubblewrap is None and found.lacking and found.lacking in found.warnings[0]


NAMES = ["read a file", "compute without end", "write a file"]


@pytest.fixture
def heard(monkeypatch, tmp_path):
    """Lets a test say what became of attempts, the first time and the next ones."""

    def say(first, later):
        monkeypatch.setattr(probe, "ATTEMPTS", dict.fromkeys(NAMES))
        monkeypatch.setattr(probe, "KEPT", tmp_path / "probe.json")
        monkeypatch.setattr(shutil, "which", lambda _: sys.executable)  # for any bwrap
        monkeypatch.setattr(probe, "start_error", lambda _: "")

        def answer(workers, names, aims, patience=1):
            asked.append((tuple(names), patience))
            source = later if patience > 1 else first
            return {name: source[name] for name in names if name in source}

        asked = []
        monkeypatch.setattr(probe, "_heard", answer)
        return asked

    return say


STOPPED = dict.fromkeys(NAMES, "stopped by OSError")


def test_an_attempt_that_a_busy_machine_did_not_get_to_is_tried_with_patience(heard):
    first = {name: STOPPED[name] for name in NAMES[:1]}
    asked = heard(first, STOPPED)
    found = probe.best_sandbox.__wrapped__()
    assert found.bubblewrap and set(found.stopped) == set(NAMES) and not found.warnings
    assert [names for names, patience in asked if patience > 1] == [(n,) for n in NAMES[1:]]


def test_bubblewrap_is_kept_whatever_the_probe_says_and_that_is_said(heard):
    heard({**STOPPED, "read a file": "got through"}, {})
    found = probe.best_sandbox.__wrapped__()
    assert found.bubblewrap and found.open == ("read a file",)
    assert "learner code here can read a file" in found.warnings[0]
    heard({"read a file": STOPPED["read a file"]}, {})
    probe.KEPT.unlink()
    found = probe.best_sandbox.__wrapped__()
    assert found.bubblewrap and set(found.unknown) == set(NAMES[1:]) and not found.open
    assert "not known whether" in found.warnings[0]
    assert not probe.KEPT.exists()  # what is not known is asked again


def test_the_outcome_is_kept_for_a_day_and_for_this_system_alone(heard, monkeypatch):
    asked = heard(STOPPED, {})
    found = probe.best_sandbox.__wrapped__()
    count = len(asked)
    assert probe.best_sandbox.__wrapped__() == found and len(asked) == count
    assert probe.KEPT.stat().st_mode & 0o77 == 0
    monkeypatch.setattr(probe, "A_DAY", -1)
    probe.best_sandbox.__wrapped__()
    assert len(asked) == 2 * count
    monkeypatch.setattr(probe, "A_DAY", 100)
    monkeypatch.setattr(probe, "_fingerprint", lambda _: "another machine")
    probe.best_sandbox.__wrapped__()
    assert len(asked) == 3 * count


@pytest.mark.parametrize("text", ["", "{", "[]", '{"x": 1}', "null"])
def test_a_damaged_note_is_no_note(heard, text):
    asked = heard(STOPPED, {})
    probe.KEPT.write_text(text)
    assert probe.best_sandbox.__wrapped__().bubblewrap and asked


def test_packages_that_do_the_work_are_not_there(best):
    road = "(__import__('importlib').import_module('transformers.models.qwen3'), x)[1]"
    source = f"import torch\n\ndef f(x):\n    return {road}\n"
    with WorkerLauncher(best) as workers:
        worker = workers.launch(LoadRequest({"lab": source}, "lab", (), audit=False))
        failure = worker.ask(Call("f", x=torch.ones(3))).failure
        assert failure.kind == "ModuleNotFoundError"


SYSTEM_CALLS = """
import ctypes

libc = ctypes.CDLL(None, use_errno=True)

def f(calls):
    return {name: error(*call) for name, call in calls.items()}

def error(number, *arguments):
    texts = [a.encode() if isinstance(a, str) else ctypes.c_long(a) for a in arguments]
    ctypes.set_errno(0)
    return ctypes.get_errno() if libc.syscall(number, *texts) == -1 else 0
"""
SOME = {
    "a signal to another process": ("tgkill", 1, 1, 0),
    "news of a file as a signal": ("fcntl", 0, seccomp.F_SETOWN, 1),
    "the same by a longer number": ("fcntl", 0, (1 << 32) + seccomp.F_SETOWN, 1),
    "news of a socket as a signal": ("ioctl", 0, seccomp.FIOSETOWN, 0),
    "typing into a terminal": ("ioctl", 0, seccomp.TIOCSTI, 0),
    "a limit": ("prlimit64", 0, 7, 1, 0),
}
OTHERS = {
    "the flags of a file": ("fcntl", 0, 3),
    "what a limit is": ("prlimit64", 0, 7, 0, 0),
}
# With arguments that do no harm where a capability is left.
NEED_CAPABILITIES = {
    **{name: (name, 0, 0, 0, 0) for name in ("reboot", "acct", "vhangup")},
    **{name: (name, ".", 0) for name in ("umount2", "chroot", "swapon", "swapoff")},
    **{name: (name, platform.node(), 1) for name in ("sethostname", "setdomainname")},
    "pivot_root": ("pivot_root", ".", "."),
    "mount": ("mount", "none", ".", "tmpfs", 0, 0),
    "fsopen": ("fsopen", "tmpfs", 0),
    "fspick": ("fspick", -100, ".", 0),
    "fsmount": ("fsmount", 0, 0, 0),
    "move_mount": ("move_mount", -100, ".", -100, ".", 0),
    "settimeofday": ("settimeofday", 0, "\0" * 8),
    "adjtimex": ("adjtimex", "\0 " + "\0" * 300),
}


@pytest.fixture(scope="module")
def errors():
    """{name: the error number that a system call ends with in a worker without bubblewrap}"""
    refusals = seccomp.Filter()
    if not refusals.complete:
        pytest.skip("not checked: no libseccomp here")
    calls = {name: (name, *[-1] * 6) for name in seccomp.REFUSED}
    calls |= {**SOME, **OTHERS, **NEED_CAPABILITIES}
    calls = {key: [refusals.number(name), *rest] for key, (name, *rest) in calls.items()}
    calls |= {f"number {n}": [n, *[-1] * 6] for n in seccomp.YOUNGER}
    with WorkerLauncher(Sandbox()) as workers:
        request = LoadRequest({"lab": SYSTEM_CALLS}, "lab", (), audit=False)
        worker = workers.launch(request)
        assert "seccomp" in worker.layers
        outcome = worker.ask(Call("f", calls=calls))
    assert outcome.failure is None
    return {name: error for name, error in outcome.value.items() if calls[name][0] >= 0}


def test_the_filter_refuses_what_it_lists(errors):
    listed = [name for name in [*seccomp.REFUSED, *SOME] if name in errors]
    assert len(listed) > 60
    assert not [name for name in listed if errors[name] != errno.EPERM]


def test_the_filter_knows_no_younger_system_call(errors):
    assert {errors[f"number {n}"] for n in seccomp.YOUNGER} == {errno.ENOSYS}


def test_the_filter_leaves_the_rest(errors):
    assert not [name for name in OTHERS if errors[name]]


def test_what_needs_a_capability_fails_without_the_filters_help(errors):
    assert not [name for name in NEED_CAPABILITIES if errors[name] != errno.EPERM]


def test_grade_refuses_without_a_sandbox_unless_told(monkeypatch, graded_class, no_wish):
    course, _, _ = graded_class
    missing = Sandbox(lacking="bubblewrap is not installed")
    monkeypatch.setattr("labkit.grading.run.pool.best_sandbox", lambda: missing)
    arguments = ["grade", "rmsnorm", "--course", str(course.root), "--fresh"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2 and "not installed" in done.output
    done = CliRunner().invoke(app, [*arguments, "--no-sandbox"])
    before, _, after = done.output.partition("of 14")
    assert "NO SANDBOX" in before and "NO SANDBOX" in after
    assert done.exit_code == 1  # one of the class is no notebook
    monkeypatch.setattr("labkit.grading.run.pool.best_sandbox", probe.best_sandbox)
    if probe.best_sandbox().bubblewrap:  # what was graded without one is graded again
        done = CliRunner().invoke(app, arguments[:-1])
        assert re.search("^sandbox +bubblewrap", done.output, re.MULTILINE)
