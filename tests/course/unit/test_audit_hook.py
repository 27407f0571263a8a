"""The audit hook, the friendly layer on every system: what it refuses, and what it lets."""

import pytest

from labkit.core.paths import ROOT
from labkit.sandboxed.limits import AuditHook, readable_folders

SECRET = str(ROOT / "solutions" / "rmsnorm.py")


@pytest.fixture
def watch(tmp_path):
    (tmp_path / "scratch").mkdir()
    return AuditHook([tmp_path / "python", tmp_path / "scratch"])


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        *(("open", (SECRET, "r", 0)), ("open", (SECRET.encode(), "rb", 0))),
        *(("open", ("/tmp/left-behind", "w", 0)), ("open", ("../classmate", "r", 0))),
        *(("os.listdir", (str(ROOT),)), ("os.scandir", ("/",)), ("os.chdir", ("/",))),
        *(("os.remove", (SECRET, -1)), ("os.symlink", (SECRET, "mine", -1))),
        *(("shutil.copyfile", (SECRET, "mine")), ("sqlite3.connect", ("gradebook.db",))),
        *(("subprocess.Popen", ("true",)), ("os.system", ("true",)), ("os.exec", ("true",))),
        *(("os.fork", ()), ("os.kill", (1, 9)), ("socket.connect", (None, ("127.0.0.1", 9)))),
        *(("ctypes.dlopen", (None,)), ("resource.setrlimit", (0, ()))),
    ],
)
def test_it_refuses(watch, event, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "scratch")
    with pytest.raises(PermissionError):
        watch(event, arguments)


def test_it_follows_links_out_of_the_folder(watch, tmp_path):
    link = tmp_path / "scratch" / "mine"
    link.symlink_to(SECRET)
    with pytest.raises(PermissionError, match="may not open files here"):
        watch("open", (str(link), "r", 0))
    with pytest.raises(PermissionError):
        watch("open", (str(tmp_path / "scratch-of-another"), "r", 0))


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        *(("open", ("python/torch.py", "r", 0)), ("open", ("scratch/mine", "w", 0))),
        *(("open", (3, "r", 0)), ("os.listdir", ("scratch",)), ("import", ("torch", None))),
        ("compile", (b"x", "f")),
    ],
)
def test_it_lets(watch, event, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    watch(event, arguments)


def test_no_folder_that_can_be_read_holds_the_course():
    for folder in readable_folders():
        assert not ROOT.is_relative_to(folder) and not folder.is_relative_to(ROOT / "labkit")
    assert readable_folders()
