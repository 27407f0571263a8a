"""The sandbox: a test trips every protection; if one is missing, grading is refused."""

import errno
import platform
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from labkit.course.paths import ROOT
from labkit.grading.run import judge_process, pool
from labkit.sandbox import attempts, bubblewrap, probe
from labkit.sandbox.attempts import ATTEMPTS
from labkit.sandbox.bubblewrap import GradingError, Sandbox
from labkit.sandbox.inside import seccomp
from labkit.sandbox.inside.call import Call
from labkit.sandbox.inside.wire import encode_call
from labkit.sandbox.launch import LoadRequest, WorkerLauncher
from tests.course.grading.two_learners import grade, points

linux = pytest.mark.skipif(sys.platform != "linux", reason="not checked: needs Linux")
SOURCE = Path(attempts.__file__).read_text("utf-8")


@pytest.fixture(scope="module")
def best():
    found = probe.best_sandbox()
    if found.bubblewrap is None:
        pytest.skip(f"not checked: {found.lacking}")
    with WorkerLauncher(found) as workers:
        yield workers


@pytest.fixture(scope="module")
def bare():
    """Workers without bubblewrap."""
    with WorkerLauncher(Sandbox()) as workers:
        yield workers


def ask(workers, body, banned=()):
    """Run f(x) with this body in a new process; return the outcome."""
    source = f"import os, torch\n\ndef f(x):\n    {body}\n"
    call = Call("f", x=torch.arange(3.0))
    return workers.answer(LoadRequest({"lab": source}, "lab"), [call], banned).outcomes[0]


def test_bubblewrap_stops_every_attempt(best):
    assert best.sandbox.unstopped == ()


@linux
def test_the_kernel_stops_every_attempt_without_bubblewrap():
    assert probe.probed(Sandbox()).unstopped == ()


@linux
def test_the_attempts_get_through_without_any_protection(tmp_path):
    """Otherwise the probe proves nothing."""
    (tmp_path / "secret").write_text("the gradebook")
    harmless = ["read a file", "list a folder", "write a file", "leave a file",
                "take uncounted memory", "start a process",
                "signal another process"]  # fmt: skip
    asked = f"[attempt(what, {str(tmp_path / 'secret')!r}) for what in {harmless}]"
    done = subprocess.run(
        [sys.executable, "-c", f"{SOURCE}\nprint({asked})"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == str(["got through"] * len(harmless)), done.stderr


class WithoutLandlock(Sandbox):
    """As on a kernel before 5.13."""

    def command(self, python, *rest):
        begin = "from labkit.sandbox.inside.worker import main"
        off = "from labkit.sandbox.inside import limits; limits.landlock_rules = lambda _: None"
        boot = python[-1].replace(begin, f"{off}; {begin}")
        assert boot != python[-1]
        return super().command([*python[:-1], boot], *rest)


def test_without_landlock_bubblewrap_still_protects_files(best):
    with WorkerLauncher(WithoutLandlock(best.sandbox.bubblewrap)) as workers:
        worker = workers.start()
        assert "landlock" not in worker.layers
        names = ("read a file", "write a file", "leave a file")
        calls = [encode_call(Call("attempt", what=what, path="/etc/passwd")) for what in names]
        answers = worker.answer(LoadRequest({"attempts": SOURCE}, "attempts"), calls)
        assert all(outcome.value.startswith("stopped by") for outcome in answers.outcomes)


def test_inside_there_is_nothing_but_python(best, tmp_path):
    (tmp_path / "gradebook.db").touch()
    paths = [
        tmp_path / "gradebook.db",
        ROOT / "solutions",
        ROOT / "tests",
        "/home",
        "/etc/passwd",
    ]
    assert all(Path(path).exists() for path in paths)
    body = f"return [os.path.exists(path) for path in {['/code', *map(str, paths)]}]"
    assert ask(best, body).value == [True] + [False] * len(paths)
    assert ask(best, "return os.getpid()").value < 1000  # numbered in its own namespace
    assert ask(best, "return os.getuid()").value == int(bubblewrap.NOBODY)
    assert ask(best, "open('/code/labkit/x', 'w')").failure


ROADS = """
import re, sys, torch

def f(packages, more):
    roads = [__import__, torch.importlib.import_module, re.enum.bltns.__import__]
    found = [loaded(road, name) for name in packages for road in roads]
    sys.path += more
    return found + [loaded(__import__, name) for name in packages]

def loaded(road, name):
    try:
        return road(name).__file__
    except ModuleNotFoundError:
        return None
"""


def test_a_banned_package_cannot_be_reached(best):
    """Only packages that this Python has; an empty folder is a package, too."""
    names = sorted(bubblewrap.banned_packages() - {"labkit"})
    assert {"transformers", "tokenizers", "jinja2", "regex", "tiktoken"} < {*names}
    assert find_spec("tokenizers") and find_spec("jinja2")
    homes = [Path(home, "lib") for home in (sys.base_prefix, "/usr")]
    more = [str(path) for home in homes for path in home.glob("python3*/*-packages")]
    calls = [Call("f", packages=[name, "json"], more=more) for name in names]
    outcomes = best.answer(LoadRequest({"lab": ROADS}, "lab"), calls).outcomes
    for name, outcome in zip(names, outcomes, strict=True):
        assert outcome.value[:3] + outcome.value[6:7] == [None] * 4, (name, outcome)
        assert None not in outcome.value[3:6], outcome


def test_an_installed_copy_of_the_course_is_hidden(tmp_path):
    packages = tmp_path / "site-packages"
    for folder in (packages, tmp_path / "python3.9" / "dist-packages"):
        for name in ("solutions", "transformers", "numpy"):
            (folder / name).mkdir(parents=True)
    hidden = bubblewrap.hidden_folders([str(tmp_path)])
    assert len(hidden) == 4 and not [path for path in hidden if path.endswith("numpy")]
    assert bubblewrap.hidden_folders([str(packages)]) == [
        str(packages / "solutions"), str(packages / "transformers")
    ]  # fmt: skip


def test_the_next_learner_finds_no_process_and_no_file(best, bare):
    for workers in (best, bare):
        for body in ("open('mine', 'w')", "os.mkdir('a')", "os.symlink('/', 'a')"):
            failure = ask(workers, body).failure
            assert failure.kind in ("PermissionError", "OSError"), body
    best.answer(LoadRequest({"lab": "while True: pass"}, "lab"), [], cpu_seconds=1)
    for folder in (".", "/proc"):  # Landlock hides both
        outcome = ask(best, f"return os.listdir('{folder}')")
        found = [] if outcome.failure else outcome.value
        assert not [name for name in found if folder == "." or name.isdigit()]


@pytest.fixture
def without_wish(monkeypatch):
    monkeypatch.delenv(bubblewrap.WITHOUT)


def test_a_missing_sandbox_is_an_error_unless_it_is_not_wanted(without_wish, monkeypatch):
    missing = Sandbox(lacking="bubblewrap is not installed")
    with pytest.raises(GradingError, match=r"not installed.*--no-sandbox"):
        bubblewrap.permitted(missing)
    assert bubblewrap.permitted(missing, True) is missing
    monkeypatch.setenv(bubblewrap.WITHOUT, "1")
    assert bubblewrap.permitted(missing) is missing


def test_grade_refuses_without_a_sandbox_unless_told(handed_in, bare, without_wish):
    missing = Sandbox(lacking="bubblewrap is not installed")
    judge_process.judge_for.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "best_sandbox", lambda: missing)
        patch.setattr(judge_process, "running_workers", lambda: bare)
        status, output = grade(handed_in, "--fresh")
        assert status == 2 and "not installed" in output and points(handed_in) == {}
        status, output = grade(handed_in, "--no-sandbox")
        # the warning, before and after grading
        assert status == 0 and output.count("NO SANDBOX") == 2, output
    judge_process.judge_for.cache_clear()


def test_without_bubblewrap_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(probe, "probed", lambda found: found)
    found = probe.best_sandbox.__wrapped__()
    assert found.bubblewrap is None and found.lacking and found.lacking in found.warnings[0]


def test_an_attempt_that_is_not_known_to_fail_is_a_warning(monkeypatch):
    ends = dict.fromkeys(ATTEMPTS, "stopped by OSError") | {"read a file": "got through"}
    ends["take all memory"] = ""  # the worker did not answer
    monkeypatch.setattr(probe, "attempt_results", lambda *_: ends)
    found = probe.probed(Sandbox("bwrap"))
    assert found.unstopped == ("read a file", "take all memory")
    assert "learner code here can read a file, take all memory" in found.warnings[0]


# System calls


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
REFUSED_ARGUMENTS = {
    "a signal to another process": ("tgkill", 1, 1, 0),
    "news of a file as a signal": ("fcntl", 0, seccomp.F_SETOWN, 1),
    "the same by a longer number": ("fcntl", 0, (1 << 32) + seccomp.F_SETOWN, 1),
    "news of a socket as a signal": ("ioctl", 0, seccomp.FIOSETOWN, 0),
    "typing into a terminal": ("ioctl", 0, seccomp.TIOCSTI, 0),
    "a limit": ("prlimit64", 0, 7, 1, 0),
}
ALLOWED = {"the flags of a file": ("fcntl", 0, 3), "reading a limit": ("prlimit64", 0, 7, 0, 0)}
# They fail without the filter, for lack of a capability; the arguments do no harm.
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


@linux
def test_the_filter_refuses_what_it_lists_and_leaves_the_rest(bare):
    refusals = seccomp.Filter()
    if not refusals.complete:
        pytest.skip("not checked: no libseccomp here")
    calls = {name: (name, *[-1] * 6) for name in seccomp.REFUSED}
    calls |= {**REFUSED_ARGUMENTS, **ALLOWED, **NEED_CAPABILITIES}
    calls = {key: [refusals.number(name), *rest] for key, (name, *rest) in calls.items()}
    calls |= {f"number {n}": [n, *[-1] * 6] for n in seccomp.YOUNGER}
    worker = bare.start()
    assert "seccomp" in worker.layers
    request = LoadRequest({"lab": SYSTEM_CALLS}, "lab")
    (outcome,) = worker.answer(request, [encode_call(Call("f", calls=calls))]).outcomes
    assert outcome.failure is None
    errors = {name: error for name, error in outcome.value.items() if calls[name][0] >= 0}
    refused = [name for name in (*seccomp.REFUSED, *REFUSED_ARGUMENTS) if name in errors]
    refused += NEED_CAPABILITIES
    assert len(refused) > 70
    assert [name for name in refused if errors[name] != errno.EPERM] == []
    assert {errors[f"number {n}"] for n in seccomp.YOUNGER} == {errno.ENOSYS}
    assert [name for name in ALLOWED if errors[name]] == []
