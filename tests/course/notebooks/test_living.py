"""The living model: reports on a shipped model with replaced parts."""

import ast
import importlib
import math

import pytest
import torch

import solutions.gqa
import solutions.rmsnorm
from labkit.author.owned_cells import notebook_path, read_notebook
from labkit.course.lang import speaking, tr
from labkit.course.paths import ROOT
from labkit.course.syllabus import NOTEBOOKS
from labkit.learner.lessons import living


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Use short texts, and clear caches between tests"""
    for name, few in (("DOCUMENTS", 2), ("TOKENS", 6)):
        monkeypatch.setattr(living, name, few)
    for cached in (living.as_it_ships, living._documents):
        cached.cache_clear()
    yield
    for cached in (living.as_it_ships, living._documents):
        cached.cache_clear()


@pytest.fixture
def norm_written(imported_package):
    """A package in which the learner's norm is finished"""
    (imported_package / "rmsnorm.py").write_text(
        (ROOT / "solutions" / "rmsnorm.py").read_text()
    )
    return importlib.import_module("tinyllm.rmsnorm").RMSNorm


class NoNorm(solutions.rmsnorm.RMSNorm):
    def forward(self, hidden_states):
        return hidden_states


def test_a_right_part_changes_neither_numbers_nor_words(norm_written):
    found = living.alive(RMSNorm=norm_written)
    ships, yours = found.models
    assert yours.name == "with your RMSNorm" and not found.notes
    assert yours.text == ships.text and yours.text.split()
    assert yours.nats == pytest.approx(ships.nats, abs=1e-5)
    assert 0 < ships.nats < 5  # the model was trained on stories


def test_a_wrong_part_is_measured_all_the_same_and_its_check_named(norm_written):
    class Summed(norm_written):
        def forward(self, hidden_states):
            return super().forward(hidden_states) / 14

    found = living.alive(RMSNorm=Summed)
    assert found.models[1].nats > found.models[0].nats + 0.1
    assert 'check("1.2")' in found.notes[0]


def test_a_part_that_is_not_written_is_told_and_the_model_speaks(imported_package):
    stub = importlib.import_module("tinyllm.rmsnorm").RMSNorm
    found = living.alive(RMSNorm=stub)
    assert [each.name for each in found.models] == [living.SHIPS]
    assert found.models[0].text and "1.2 RMSNorm" in found.notes[0]


def never_ready(*_):
    raise NotImplementedError("Exercise 4.1: silu")


def test_swaps():
    for parts, outcome in (
        ({"silu": lambda x: x}, "worse"),
        ({"repeat_kv": lambda x, n_rep: x.repeat(1, n_rep, 1, 1)}, "worse"),
        ({"gqa.RMSNorm": NoNorm}, "worse"),
        ({"silu": torch.nn.functional.silu}, "same"),
        ({"silu": never_ready}, "Exercise 4.1: silu is not written yet"),
        ({"RMSNorm": torch.nn.LayerNorm}, "norm.bias"),  # the checkpoint has no bias
        ({"silu": lambda x: x.no_such}, "AttributeError"),
    ):
        ships, other = living.swapped({"a stranger": parts}).models
        if outcome == "same":
            assert other.nats == pytest.approx(ships.nats, abs=1e-4)
        elif outcome == "worse":
            assert other.nats > ships.nats + 0.02
        else:
            assert outcome in other.problem and math.isnan(other.nats)


def test_a_name_with_a_module_is_swapped_in_that_module_alone():
    model = living.course_with({"gqa.RMSNorm": NoNorm}).Qwen3ForCausalLM
    decoder = model.__init__.__globals__
    attention = decoder["Qwen3Attention"].__init__.__globals__
    assert attention["RMSNorm"] is NoNorm and decoder["RMSNorm"] is not NoNorm
    with pytest.raises(KeyError, match="not a part of the course"):
        living.course_with({"softmax": None})


def test_numbers_words_and_notes_are_printed():
    models = [
        living.ModelRow("as it ships", 0.5, "Max & <b>Mia</b>."),
        living.ModelRow("no size", 5.7e20, "a a"),
    ]
    found = living.Comparison(
        [*models, living.ModelRow("x", problem="left out: 1 < 2")], ["Not yet."]
    )
    text = repr(found)
    assert "0.500" in text and "1.65" in text and "Not yet." in text
    assert "huge" in text and "6e+20" in text and "1 < 2" in text
    assert max(map(len, text.splitlines())) <= 78


def test_the_names_of_all_swaps_are_translated():
    """Names with code in them stay as they are."""
    found = []
    for lab in NOTEBOOKS:
        for cell in read_notebook(notebook_path(lab)).cells:
            if "swapped(" not in cell.source or cell.cell_type != "code":
                continue
            tables = [n for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Dict)]
            found += [key.value for table in tables for key in table.keys if " " in key.value]
    with speaking("zh"):
        english = [name for name in found if tr(name) == name and "/" not in name]
    assert len(found) > 8 and not english
