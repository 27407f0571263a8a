"""Names of models: a folder, a shipped model, a model on the hub."""

import sys
import types

import huggingface_hub.constants
import pytest

from labkit.model import hub
from labkit.model.checkpoint import CheckpointError, resolve


def test_folders_and_shipped_names(tmp_path, monkeypatch):
    shipped = {"stories": tmp_path / "a", "stories-moe": tmp_path / "b"}
    monkeypatch.setattr(hub, "SHIPPED", shipped)
    assert resolve("stories-moe") == tmp_path / "b"
    assert resolve(None) == tmp_path / "a"
    (tmp_path / "mine").mkdir()
    assert resolve(str(tmp_path / "mine")) == tmp_path / "mine"
    made = tmp_path / "run" / "model" / "config.json"  # a run's folder leads to its model
    made.parent.mkdir(parents=True)
    made.write_text("{}")
    assert resolve(str(tmp_path / "run")) == resolve(str(made.parent)) == made.parent
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/mine") == tmp_path / "mine"
    with pytest.raises(CheckpointError, match=r"no model 'storys'.*\(stories, stories-moe\)"):
        resolve("storys")
    for unknown in ("", "./nowhere", "/no/where", "a/b/c", "--", "x y/z"):
        with pytest.raises(CheckpointError, match="ships with the course"):
            resolve(unknown)


def test_a_name_on_the_hub(tmp_path, monkeypatch):
    asked = []

    def download(name, allow_patterns):
        asked.append((name, allow_patterns))
        if name == "Qwen/X":
            raise ConnectionError("no route to host\nand much more")
        return str(tmp_path)

    with monkeypatch.context() as offline:  # the real library
        offline.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        offline.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
        with pytest.raises(CheckpointError, match="could not be fetched"):
            resolve("Qwen/Qwen3-0.6B")
    library = types.SimpleNamespace(snapshot_download=download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    assert resolve("Qwen/Qwen3-0.6B") == tmp_path
    ((name, patterns),) = asked
    assert name == "Qwen/Qwen3-0.6B"
    assert not any("bin" in pattern or pattern == "*" for pattern in patterns)
    with pytest.raises(CheckpointError, match=r"no folder Qwen/X.*no route to host$"):
        resolve("Qwen/X")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match="pip install huggingface_hub"):
        resolve("Qwen/Qwen3-0.6B")
