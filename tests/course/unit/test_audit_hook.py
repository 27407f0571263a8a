"""The audit hook, the friendly layer on every system: what it refuses, and what it lets."""

import pytest

from labkit.core.paths import ROOT
from labkit.sandbox.inside.limits import AuditHook, readable_folders

SECRET = str(ROOT / "solutions" / "rmsnorm.py")


def test_it_refuses_what_is_not_python_and_lets_the_rest(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "mine").symlink_to(SECRET)
    watch = AuditHook([tmp_path / "python", scratch])
    monkeypatch.chdir(scratch)
    for event, *arguments in (
        *(("open", SECRET, "r", 0), ("open", SECRET.encode(), "rb", 0)),
        *(("open", "/tmp/left-behind", "w", 0), ("open", "../classmate", "r", 0)),
        *(("open", "mine", "r", 0), ("open", f"{scratch}-of-another", "r", 0)),
        *(("os.listdir", str(ROOT)), ("os.scandir", "/"), ("os.chdir", "/")),
        *(("os.remove", SECRET, -1), ("os.symlink", SECRET, "link", -1)),
        *(("shutil.copyfile", SECRET, "copy"), ("sqlite3.connect", "gradebook.db")),
        *(("subprocess.Popen", "true"), ("os.system", "true"), ("os.exec", "true")),
        *(("os.fork",), ("os.kill", 1, 9), ("socket.connect", None, ("127.0.0.1", 9))),
        *(("ctypes.dlopen", None), ("resource.setrlimit", 0, ())),
    ):
        with pytest.raises(PermissionError):
            watch(event, tuple(arguments))
            pytest.fail(f"it lets {event} {arguments}")
    monkeypatch.chdir(tmp_path)
    for event, *arguments in (
        *(("open", "python/torch.py", "r", 0), ("open", "scratch/new", "w", 0)),
        *(("open", 3, "r", 0), ("os.listdir", "scratch"), ("import", "torch", None)),
        ("compile", b"x", "f"),
    ):
        watch(event, tuple(arguments))


def test_no_folder_that_can_be_read_holds_the_course():
    assert readable_folders()
    for folder in readable_folders():
        assert not ROOT.is_relative_to(folder) and not folder.is_relative_to(ROOT / "labkit")
