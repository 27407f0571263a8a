"""The assembly: all labs' parts together make the model, or the report names the wrong part."""

import shutil
import sys

import pytest
from typer.testing import CliRunner

import tinyllm
from labkit.author.reference import reference_block
from labkit.checks.assembly import judged
from labkit.checks.package import reference_modules
from labkit.checks.runner import package_in
from labkit.cli import app
from labkit.course import cells
from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS, find_exercise
from labkit.grading.judge.assembly import assembly_rows
from labkit.learner.check import check_exercise
from labkit.learner.notebook import assemble
from labkit.sandbox.inside.importer import imported

RIGHT = reference_modules()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Use a finished package in place of the repository's."""
    folder = tmp_path / "tinyllm"
    shutil.copytree(ROOT / "tinyllm", folder)
    for name, source in RIGHT.items():
        (folder / f"{name}.py").write_text(source)
    monkeypatch.setattr(tinyllm, "__file__", str(folder / "__init__.py"))
    monkeypatch.setattr(tinyllm, "__path__", [str(folder)])
    return folder


def change(package, module, before, after):
    (package / f"{module}.py").write_text(edited(module, before, after)[module])


def edited(module, before, after):
    assert before in RIGHT[module]
    return {module: RIGHT[module].replace(before, after)}


def checked(exercise_id):
    report = check_exercise(*find_exercise(exercise_id), 'hint("1.1")')[0]
    return " ".join(str(report).split())


def test_a_lab_is_checked_without_the_faults_of_others(package):
    change(package, "rmsnorm", "square().mean(", "square().sum(")
    change(package, "rope", "import torch\n", "import torch\nimport nowhere\n")
    change(package, "gqa", "from .rmsnorm", "from tinyllm.rmsnorm")
    modules = {name: item for name, item in sys.modules.items() if "tinyllm" in name}
    assert "not yet" in checked("1.2") and "passed" in checked("3.4")
    assert modules == {name: item for name, item in sys.modules.items() if "tinyllm" in name}


def test_a_wrong_part_of_the_same_lab_is_named(package):
    change(package, "rope", "(-second, first)", "(second, first)")
    report = checked("2.3")
    assert "not yet" in report and "exercise 2.2, rotate_half, which this one uses" in report


def assembled(sources):
    """The exercise that the report blames, and the report in one line."""
    sources = {**RIGHT, **sources}
    with imported(sources):
        result = judged(package_in(), sources)
    text = " ".join(f"{label} {text}" for label, text in result.rows)
    assert result.passed == ("look" not in text)
    return result.exercise and result.exercise.id, text


NORM = ("rmsnorm", "square().mean(", "square().sum(")
SILU = ("swiglu", "wide * torch.sigmoid(wide)", "wide.relu()")
WRONG = [  # module, old code, new code; the exercise that is blamed, words of the report
    (*NORM, "1.2", "dense: layer 0, input_layernorm: values differ in 80%"),
    ("rmsnorm", "return self.weight * normed", "hidden_states.zero_()\n"
     "        return self.weight * normed", "1.2", "changed its input hidden_states in place"),
    ("rope", "angles.cos(), angles.sin()", "angles.sin(), angles.cos()", "2.1",
     "dense: rope_cos_sin: value 1: values differ"),
    ("rope", "(-second, first)", "(second, first)", "2.2", "layer 0, rotate_half: values"),
    ("rope", "key * cos +", "key +", "2.3", "layer 0, apply_rotary_pos_emb: value 2: values"),
    ("gqa", "key_position[key_length - query_length :]", "torch.arange(query_length)", "3.1",
     "dense: continued with a cache: causal_mask: values differ"),
    ("gqa", "hidden_states.repeat_interleave(n_rep, dim=1)", "hidden_states.repeat(1, n_rep, "
     "1, 1)", "3.3", "layer 0, repeat_kv: values differ in 40%"),
    ("gqa", "q_norm", "query_norm", "3.4", "there is no parameter q_norm.weight; it has query"),
    (*SILU, "4.1", "dense: layer 0, silu: values differ in 80%"),
    ("decoder", "torch.arange(cached, total,", "torch.arange(new,", "6.2",
     "dense, without an attention_mask: continued with a cache: "),
    ("moe", "if norm_topk_prob:", "if True:", "5.1", "MoE, norm_topk_prob=False: layer 1, "),
    ("swiglu", "gated = silu", "1 / 0\n        gated = silu", "4.2",
     "layer 0, mlp: it raised ZeroDivisionError: division by zero (line 23 of your cell)"),
    ("swiglu", "self.up_proj = nn.Linear(config.hidden_size, size, bias=False)",
     "self.up_proj = self.gate_proj", "4.2", "gate_proj.weight does not hold the weights"),
    ("moe", "said * weights[token, slot, None]", "said", "5.2", "MoE: layer 1, mlp: value 1"),
    ("moe", "self.gate = nn", 'raise NotImplementedError("Exercise 5.2: A")\n        self.gate '
     "= nn", "5.2", "layer 1, mlp: exercise 5.2, Qwen3MoeSparseMoeBlock, is not written yet"),
    ("moe", "(layer_idx + 1) % config.d", "layer_idx % config.d", "5.4", "MoE: uses_experts: "),
    ("decoder", "sin, mask, cache)\n        normed", "sin, mask)\n        normed", "6.1",
     "layer 0: after the call, the number of cached tokens of layer 0 is 0 instead of 5"),
    ("decoder", "self.lm_head(hidden_states)", "self.lm_head(hidden_states) / 2", "6.3",
     "dense: logits: values differ in 80%"),
    ("decoder", "if self.config.tie_word_embeddings:\n", "if True:\n", "6.3", "MoE: logits: "),
    ("rope", "def rotate_half(", "def rotate half(", "2.2", "tinyllm/rope.py: it raised Syn"),
    ("moe", "def route(", "import nowhere\ndef route(", "5.1", "'nowhere' (line 2 of your"),
    ("swiglu", "def silu(", "raise SystemExit(0)\ndef silu(", "4.1", "SystemExit: 0 (line 2"),
    ("rmsnorm", "class RMSNorm(", "class RootNorm(", "1.2", "cannot import name 'RMSNorm'"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "before", "after", "exercise", "look"), WRONG)
def test_the_part_that_is_wrong_is_named(module, before, after, exercise, look):
    found, text = assembled(edited(module, before, after))
    assert found == exercise and look in text, text


OTHERWISE = [  # right, but written in another way
    ("rope", "rotate_half(query)", "torch.cat((-query.chunk(2, -1)[1], query.chunk(2, -1)[0]), "
     "-1)"),
    ("decoder", "(attention_mask.long().cumsum(dim=-1) - 1).clamp(min=0)",
     "attention_mask.long().cumsum(dim=-1)"),
    ("decoder", "else Qwen3MLP(config)", "else Qwen3MLP(config, config.intermediate_size)"),
    ("gqa", "(query, key, value, mask, scale)", "(query, key, value, mask=mask)"),
    ("gqa", "value = self._heads(self.v_proj(hidden_states))", "value = [apply_rotary_pos_emb("
     "query, key, cos, sin) for _ in range(300)] and self._heads(self.v_proj(hidden_states))"),
]  # fmt: skip


@pytest.mark.parametrize("change", OTHERWISE)
def test_what_is_right_in_another_way_is_blamed_for_nothing(change):
    exercise, text = assembled(edited(*change))
    assert exercise is None and "dense: all 3 layers" in text and "MoE: all 4 layers" in text
    assert assembled({**edited(*change), **edited(*NORM)})[0] == "1.2"
    if "300" not in change[2]:  # else only the first 1000 calls are recorded
        assert assembled({**edited(*change), **edited(*SILU)})[0] == "4.1"


def test_in_a_notebook_and_in_a_terminal(package):
    import tinyllm.gqa as mine

    functions, right = dict(vars(mine)), assemble()
    assert right.passed and "Assembly" in right.html() and "logits agree with" in str(right)
    change(package, *NORM)
    wrong = assemble()
    assert not wrong.passed and 'next  check("1.2")' in str(wrong)
    assert str(wrong).startswith("Assembly  your own parts") and "not yet" in wrong.html()
    result = CliRunner().invoke(app, ["assemble"])
    assert result.exit_code == 1 and "`tinyllm check 1.2`" in result.output
    assert functions == vars(mine) and sys.modules["tinyllm.gqa"] is mine


def test_an_untouched_package_is_told_where_to_begin(package):
    for path in (ROOT / "tinyllm").glob("*.py"):
        shutil.copy(path, package)
    report = " ".join(str(assemble()).split())
    assert "not written yet: 1.2 RMSNorm, 2.1 rope_cos_sin" in report
    assert 'next check("1.2")' in report


def graded(workers, **changed):
    """The rows on labs 01 to 06 with the reference's answers, except `changed`, {exercise id:
    cell, None if not handed in}."""
    labs = [lab for lab in LABS if lab.number <= "06"]
    cell = {e.id: cells.plain(reference_block(lab, e)) for lab in labs for e in lab.exercises}
    answers = {lab: {e.id: (cell | changed)[e.id] for e in lab.exercises} for lab in labs}
    rows, _ = assembly_rows(answers, labs[-1], workers)
    return " ".join(f"{label} {text}" for label, text in rows)


def test_grading_puts_all_that_was_handed_in_together(workers):
    text = graded(workers)
    assert "MoE: all 4 layers" in text and "look" not in text and "played" not in text
    wrong = cells.block(edited(*NORM)["rmsnorm"], "1.2")
    text = graded(workers, **{"1.2": wrong, "2.3": None})
    assert "layer 0, input_layernorm" in text and "RMSNorm, exercise 1.2" in text
    assert "played by the course: 2.3 apply_rotary_pos_emb" in text


FORGED = (
    "import sys\nworker = sys.modules['labkit.sandbox.inside.worker']\n"
    "worker.perform = lambda *_: worker.Outcome(values=[{values}])\n"
    "class Qwen3DecoderLayer: pass"
)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (None, "exercise 6.1, Qwen3DecoderLayer, is not written yet"),
        ("import os\nos._exit(0)", "ended the process"),
        ("class Qwen3DecoderLayer(:", "SyntaxError"),
        (FORGED.replace("{values}", "3, {'a': None}, 4"), "the parts gave no answer"),
        (FORGED.replace("{values}", "None, None, [{'symbol': 'silu'}]"), "gave no answer"),
        (FORGED.replace("{values}", "None, None, []"), "look assembly: dense: logits"),
    ],
)
def test_grading_survives_odd_answers_and_gives_nothing_away(workers, cell, words):
    assert words in graded(workers, **{"6.1": cell})
