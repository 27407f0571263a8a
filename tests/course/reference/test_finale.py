"""Lab 09: its notebook with checkpoints that transformers wrote, with broken ones, and with a
package that is finished, unfinished or wrong."""

import json
import re
import shutil

import oracle
import pytest
import small
import torch

import tinyllm
from labkit.author.owned_cells import read_notebook
from labkit.course import cells
from labkit.course.paths import ROOT
from labkit.learner import finale, models
from labkit.model import hub

NOTEBOOK = read_notebook(ROOT / "notebooks" / "09_tokenizer.ipynb")
SHIPPED = "The model is stories-dense, which ships with the course."


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A learner's own copy of tinyllm/, which `import tinyllm` finds"""

    shutil.copytree(ROOT / "tinyllm", tmp_path / "tinyllm")
    monkeypatch.setattr(tinyllm, "__path__", [str(tmp_path / "tinyllm")])
    monkeypatch.setattr(tinyllm, "__file__", str(tmp_path / "tinyllm" / "__init__.py"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv(finale.VARIABLE, raising=False)
    return tmp_path / "tinyllm"


@pytest.fixture
def run(capsys):
    def execute():
        """Run the cells; return {cell id: output}. Errors are not caught."""
        namespace, printed = {}, {}
        for cell in NOTEBOOK.cells:
            if cell.cell_type == "code" and not cell.id.startswith(("check-", "finish")):
                source = re.sub(r"(?m)^start\(.*", "", cell.source)
                if cell.id.startswith("ex-"):
                    source = "from solutions.tokenizer import *"
                exec(compile(source, cell.id, "exec"), namespace)
                printed[cell.id] = capsys.readouterr().out
        return printed

    return execute


def finish(package, *modules):
    for module in modules:
        source = (ROOT / "solutions" / f"{module}.py").read_text("utf-8")
        (package / f"{module}.py").write_text(cells.plain(source))


KINDS = {
    "dense-bf16-sharded": (oracle.DENSE, torch.bfloat16, "20KB"),
    "moe-float32": (oracle.MOE, torch.float32, "1GB"),
}


@pytest.mark.parametrize(
    "kind", ["dense-bf16-sharded", pytest.param("moe-float32", marks=pytest.mark.slow)]
)
def test_a_checkpoint_that_transformers_wrote(
    kind, run, package, tokenizer_folder, tmp_path, monkeypatch
):
    config, dtype, shard = KINDS[kind]
    folder = small.write_released(tmp_path, tokenizer_folder, config, dtype, shard)
    monkeypatch.setenv(finale.VARIABLE, str(folder))
    out = run()
    assert f"The model is {folder}" in out["choose-run"]
    assert "Look inside: http" in out.pop("alive-run")
    assert "left out" not in "".join(out.values())
    head = "['lm_head.weight']" if config.tie_word_embeddings else "nothing"
    assert f"only in your model: {head}\nonly in the files:  nothing" in out["names-run"]
    exact = re.search(r"predicted ([\d,]+), tensors ([\d,]+) bytes", out["load-run"])
    assert exact[1] == exact[2]
    assert "the same ids: 9 of 9 texts\nthe same text: 9 of 9 texts" in out["own-run"]
    assert "whole string: 3 turns" in out["attack-run"]
    assert "in parts: 2 turns" in out["attack-run"]
    assert out["talk-say"].count("tokens read]") == 2
    assert out["chat-run"].count("you>") == 3


@pytest.fixture(scope="module")
def released(tokenizer_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("released")
    return small.write_released(folder, tokenizer_folder, oracle.DENSE, torch.bfloat16, "20KB")


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def configured(folder, **changes):
    values = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(values))


LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
DAMAGES = {  # words of the error: the damage
    "model_type is 'llama'": lambda folder: configured(folder, **LLAMA),
    "model-00002-of": lambda folder: next(folder.glob("model-00002*")).unlink(),
    "is damaged or truncated": lambda folder: cut(next(folder.glob("model-00001*"))),
    "missing: model.layers.3.": lambda folder: configured(
        folder, num_hidden_layers=4, layer_types=None
    ),
    "tokenizer.json is missing": lambda folder: (folder / "tokenizer.json").unlink(),
    "there is no model": shutil.rmtree,
}


def test_what_cannot_be_used_is_said_and_the_shipped_model_taken(
    package, released, tmp_path, monkeypatch, capsys
):
    for number, (message, damage) in enumerate(DAMAGES.items()):
        folder = tmp_path / str(number)
        shutil.copytree(released, folder)
        damage(folder)
        monkeypatch.setenv(finale.VARIABLE, str(folder))
        assert finale.choose(None, models.reference()) == hub.SHIPPED["stories-dense"]
        first, _, last = capsys.readouterr().out.strip().rpartition("\n")
        assert first.startswith(f"{folder} cannot be used: ") and message in first
        assert last == SHIPPED and "Traceback" not in first
    for name in ("Qwen/Qwen3-0.6B", "stories-dence"):
        finale.choose(name, models.reference())
    out = capsys.readouterr().out
    assert "Qwen/Qwen3-0.6B cannot be used: there is no folder" in out
    assert "stories-dence cannot be used: there is no model 'stories-dence'" in out
    assert out.count(SHIPPED) == 2


def test_an_earlier_download_is_found(package, released, tmp_path):
    home = tmp_path / "no-hub" / "hub" / "models--Qwen--Qwen3-0.6B"
    shutil.copytree(released, home / "snapshots" / "abc")
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("abc")
    assert hub.cached(finale.REAL) == home / "snapshots" / "abc"
    assert finale.choose(None, models.reference()) == home / "snapshots" / "abc"


def test_a_package_finished_in_part_borrows_the_rest(package, run):
    finish(package, "rmsnorm", "rope", "gqa", "moe", "decoder")
    out = run()
    assert out["whose-run"] == (
        "rmsnorm: yours; rope: yours; gqa: yours; swiglu: stands in; moe: yours; "
        "decoder: yours; generation: stands in. What stands in is the course's own.\n"
    )
    assert "left out" not in "".join(out.values())
    assert out["talk-say"].count(".") > 3


def test_a_wrong_part_is_told_and_the_reference_talks(package, capsys):
    finish(package, *(lab.module for lab in models.MODEL_LABS))
    assert models.your_code().author == "yours"
    assert "Every part of this model is yours." in capsys.readouterr().out
    path = package / "gqa.py"
    source = path.read_text()
    for right, wrong, told in (
        ("torch.finfo(scores.dtype).min", "0.0", "away from the reference's"),
        ("@ value", "@ valeu", "NameError"),
    ):
        assert right in source
        path.write_text(source.replace(right, wrong))
        assert models.your_code().author == "the course's"
        out = capsys.readouterr().out
        assert told in out and "The course's own code runs instead." in out
        wrong = models.your_code(as_it_is=True)
        assert wrong.author == "yours" and "of this model is yours" in capsys.readouterr().out
