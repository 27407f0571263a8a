"""A lab is checked alone; all of the learner's parts together, and the wrong one is named."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tinyllm
from labkit.author.mistakes import mistakes_of
from labkit.author.reference import reference_block
from labkit.checks import assembly
from labkit.checks.in_process import package_in
from labkit.cli import app
from labkit.core import cells
from labkit.core.paths import ROOT
from labkit.core.syllabus import LABS, find_exercise
from labkit.grading.judge.assembly import assembly_rows
from labkit.learner import workspace
from labkit.learner.check import check_exercise
from labkit.learner.notebook import assemble
from labkit.sandboxed.importer import imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of our own, finished, in place of the repository's."""
    folder = tmp_path / "tinyllm"
    shutil.copytree(ROOT / "tinyllm", folder)
    for path in folder.glob("*.py"):
        if path.stem != "__init__":
            path.write_text(cells.plain((ROOT / "solutions" / path.name).read_text()))
    monkeypatch.setattr(tinyllm, "__file__", str(folder / "__init__.py"))
    monkeypatch.setattr(tinyllm, "__path__", [str(folder)])
    return folder


def change(package, module, before, after):
    path = package / f"{module}.py"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def checked(exercise_id):
    return str(check_exercise(*find_exercise(exercise_id), 'hint("1.1")')[0])


NOTE = "exercise 1.2, RMSNorm, which this one uses, does not pass its own check"


def test_a_wrong_norm_does_not_fail_attention(package):
    change(package, "rmsnorm", "square().mean(", "square().sum(")
    change(package, "rope", "import torch\n", "import torch\nimport nowhere\n")
    assert "not yet" in checked("1.2")
    report = checked("3.4")
    assert "passed" in report and "which this one uses" not in report


def test_without_the_reference_the_part_to_mend_first_is_named(package, monkeypatch):
    monkeypatch.setattr(workspace, "SOLUTIONS", Path("nowhere"))
    monkeypatch.setattr("labkit.checks.package.SOLUTIONS", Path("nowhere"))
    assert "passed" in checked("3.4")
    change(package, "rmsnorm", "square().mean(", "square().sum(")
    assert NOTE in " ".join(checked("3.4").split())
    assert "which this one uses" not in checked("1.2")


def test_a_wrong_part_of_the_same_lab_is_named(package):
    change(package, "rope", "(-second, first)", "(second, first)")
    report = " ".join(checked("2.3").split())
    assert "not yet" in report and "exercise 2.2, rotate_half, which this one uses" in report


def test_a_check_leaves_the_package_in_memory_alone(package):
    import tinyllm.rmsnorm as mine

    before = {name: item for name, item in sys.modules.items() if name.startswith("tinyllm")}
    change(package, "gqa", "from .rmsnorm", "from tinyllm.rmsnorm")
    assert "passed" in checked("3.4")
    assert before == {n: item for n, item in sys.modules.items() if n.startswith("tinyllm")}
    assert sys.modules["tinyllm.rmsnorm"] is mine and tinyllm.rmsnorm is mine
    assert not any(type(finder).__name__ == "Sources" for finder in sys.meta_path)


def test_the_line_of_an_error_is_still_counted_in_its_cell(package):
    change(package, "gqa", "return hidden_states.repeat_interleave(", "return hidden.repeat(")
    block = cells.block((package / "gqa.py").read_text(), "3.3").split("\n")
    line = next(i for i, text in enumerate(block, 1) if "hidden.repeat(" in text)
    report = " ".join(checked("3.3").split())
    assert f"name 'hidden' is not defined (line {line} of your cell)" in report


# All parts together

RIGHT = {
    path.stem: cells.plain(path.read_text())
    for path in (ROOT / "solutions").glob("*.py")
    if path.stem != "__init__"
}


def assembled(**changed):
    """The verdict on the reference with some modules changed."""
    sources = {**RIGHT, **changed}
    with imported(sources):
        return assembly.judged(package_in(), sources)


def edited(module, before, after):
    assert before in RIGHT[module]
    return RIGHT[module].replace(before, after)


def planted(exercise_id, name):
    """The exercise, and its module with a listed mistake in it."""
    lab, exercise = find_exercise(exercise_id)
    listed = [m for m in mistakes_of(lab) if m.symbol in exercise.symbols]
    (cell,) = [m.cell for m in listed if m.name == name]
    return exercise, {lab.module: cells.with_block(RIGHT[lab.module], exercise, cell)}


def named(verdict):
    """The exercise that a verdict names, and all its words in one line."""
    assert verdict.fault, verdict
    exercise = verdict.fault.exercise
    return exercise and exercise.id, " ".join(f"{label} {text}" for label, text in verdict.rows)


def test_the_reference_agrees_with_itself():
    verdict = assembled()
    assert verdict.fault is None
    text = str(verdict.rows)
    assert "dense: all 3 layers" in text and "MoE: all 4 layers" in text
    assert re.search(r"logits (equal to|within \de-0[6-9] of) the reference's", text)


PLANTED = {
    "1.2": ("sum-for-mean", "layer 0, input_layernorm: values differ in 80%"),
    "2.1": ("sine-first", "rope_cos_sin: value 1: values differ"),
    "2.2": ("minus-at-the-wrong-half", "layer 0, rotate_half: values differ"),
    "2.3": ("key-not-turned", "layer 0, apply_rotary_pos_emb: value 2: values differ"),
    "3.1": ("not-shifted", "dense: continued with a cache: causal_mask: values differ"),
    "3.2": ("mask-ignored", "layer 0, scaled_dot_product_attention: values differ"),
    "3.3": ("heads-tiled", "layer 0, repeat_kv: values differ"),
    "3.4": ("eps-not-passed-on", "layer 0, self_attn: values differ"),
    "4.1": ("relu", "layer 0, silu: values differ in 80%"),
    "4.2": ("gate-and-up-swapped", "layer 0, mlp: values differ"),
    "5.1": ("never-renormalised", "MoE: layer 1, route: value 1: values differ"),
    "5.2": ("weights-ignored", "MoE: layer 1, mlp: value 1: values differ"),
    "5.4": ("counted-from-zero", "MoE: layer 0, uses_experts: "),
}
SMALL = {"5.2": ("results-in-half", "MoE: layer 1, mlp: value 1: values differ")}


@pytest.mark.parametrize(
    ("exercise_id", "name", "look"),
    [(key, *fault) for faults in (PLANTED, SMALL) for key, fault in faults.items()],
)
def test_a_planted_mistake_is_named_with_exercise_and_layer(exercise_id, name, look):
    exercise, changed = planted(exercise_id, name)
    found, text = named(assembled(**changed))
    assert found == exercise_id, text
    assert (
        look in text and f"{exercise.title}, exercise {exercise_id}, got what it should" in text
    )


DECODER = {
    "6.1": (
        "normed = self.post_attention_layernorm(hidden_states)",
        "normed = hidden_states",
        "dense: layer 0: value 1: values differ",
    ),
    "6.2": (
        "position_ids = (attention_mask.long().cumsum(dim=-1) - 1).clamp(min=0)  # (B, S)",
        "position_ids = torch.arange(total).flip(-1)[None]",
        "dense: model: value 1: values differ",
    ),
    "6.3": ("self.lm_head(hidden_states)", "self.lm_head(hidden_states) / 2", "dense: logits:"),
}


@pytest.mark.parametrize("exercise_id", DECODER)
def test_a_block_that_joins_its_parts_wrongly_is_named(exercise_id):
    before, after, words = DECODER[exercise_id]
    found, text = named(assembled(decoder=edited("decoder", before, after)))
    assert found == exercise_id and words in text, text


ELSEWHERE = {  # wrong in itself, but what fails is somewhere else, or only where it is called
    "sin-before-cos": "2.3",
    "arguments-in-another-order": "5.1",
    "size-of-an-expert": "4.2",
    "default-eps": "6.1",
    "one-norm-for-both": "6.1",
    "always-layer-zero": "6.1",
    "cache-not-handed-on": "6.1",
    "one-layer-many-times": "6.2",
    "all-layers-numbered-zero": "6.2",
    "tied-always": "6.3",
    "cache-forgotten": "6.3",
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_exercise_that_is_wrong_is_named_and_none_that_it_meets(name):
    _, changed = planted(ELSEWHERE[name], name)
    found, text = named(assembled(**changed))
    assert found == ELSEWHERE[name], text


ANOTHER_WAY = {
    "a list for a pair": ("rope", "return angles.cos(), angles.sin()",
                          "return [angles.cos(), angles.sin()]"),
    "positions from 1": ("decoder", "(attention_mask.long().cumsum(dim=-1) - 1).clamp(min=0)",
                         "attention_mask.long().cumsum(dim=-1)"),
    "padding sees itself": ("decoder", "mask = mask & attention_mask[:, None, None, :].bool()",
                            "mask = mask & attention_mask[:, None, None, :].bool() | "
                            "torch.eye(total, dtype=torch.bool)[cached:]"),
    "blind queries get zeros": ("gqa", "weights = scores.softmax(dim=-1, dtype=torch.float32)",
                                "weights = scores.softmax(dim=-1, dtype=torch.float32) * ("
                                "1 if mask is None else mask.any(dim=-1, keepdim=True))"),
}  # fmt: skip


@pytest.mark.parametrize("way", ANOTHER_WAY)
def test_what_is_right_in_another_way_is_not_blamed_for_another_part(way):
    module, before, after = ANOTHER_WAY[way]
    changed = {module: edited(module, before, after)}
    assert assembled(**changed).fault is None
    _, silu = planted("4.1", "relu")
    assert named(assembled(**changed, **silu))[0] == "4.1"


def test_of_several_faults_the_first_is_named():
    _, norm = planted("1.2", "sum-for-mean")
    _, silu = planted("4.1", "relu")
    found, text = named(assembled(**norm, **silu))
    assert found == "1.2", text


def test_what_only_the_cache_remembers_is_traced_back():
    """The first step is right as it is: a rotation is relative."""
    _, changed = planted("2.1", "counted-on")
    assert named(assembled(**changed))[0] == "2.1"


def test_a_part_that_spoils_its_input_is_named():
    _, changed = planted("1.2", "in-place")
    found, text = named(assembled(**changed))
    assert found == "1.2" and "changed its input hidden_states in place" in text


INLINE = edited("rope", "rotate_half(query)", "torch.cat((-query.chunk(2, -1)[1], "
                "query.chunk(2, -1)[0]), -1)")  # fmt: skip


def test_a_part_written_inline_is_not_blamed():
    assert assembled(rope=INLINE).fault is None
    wrong = INLINE.replace("torch.cat((-query", "torch.cat((query")
    assert named(assembled(rope=wrong))[0] == "2.3"


def test_another_order_and_other_kinds_of_mask_are_right():
    swapped = edited(
        "gqa", "key = repeat_kv(key, self.n_rep)  # (B, H, S, D)\n        value", "value"
    )
    swapped = swapped.replace("        scale = self.head_dim", "        key = repeat_kv(key, "
                              "self.n_rep)\n        scale = self.head_dim")  # fmt: skip
    swapped = swapped.replace("    if mask is not None:", "    if mask is not None and "
                              "mask.is_floating_point():\n        scores = scores + mask\n"
                              "    elif mask is not None:")  # fmt: skip
    added = edited("decoder", "hidden_states = self.embed_tokens",
                   "mask = torch.zeros(mask.shape).masked_fill(~mask, -1e30)\n"
                   "        hidden_states = self.embed_tokens")  # fmt: skip
    assert assembled(gqa=swapped, decoder=added).fault is None
    _, changed = planted("4.1", "relu")
    assert named(assembled(gqa=swapped, decoder=added, **changed))[0] == "4.1"
    _, changed = planted("3.3", "heads-tiled")
    wrong = cells.with_block(
        swapped, find_exercise("3.3")[1], cells.block(changed["gqa"], "3.3")
    )
    assert named(assembled(gqa=wrong, decoder=added))[0] == "3.3"


STUB = 'raise NotImplementedError("Exercise 5.2: Qwen3MoeSparseMoeBlock")'
ODD = {
    "unfinished": ("moe", "self.gate = nn", f"{STUB}\n        self.gate = nn", "5.2",
                   ("dense: all 3 layers", "exercise 5.2, Qwen3MoeSparseMoeBlock, is not")),
    "crashing": ("swiglu", "gated = silu", "1 / 0\n        gated = silu", "4.2",
                 ("layer 0, mlp: it raised ZeroDivisionError: division by zero (line 2",)),
    "crashing when made": ("rmsnorm", "self.eps = eps", "self.eps = epsilon",
                           "1.2", ("input_layernorm: it raised NameError", "of your cell")),
    "NaN": ("swiglu", "self.down_proj(gated)", "self.down_proj(gated / 0)", "4.2",
            ("layer 0, mlp: 70 of 70 entries are nan",)),
    "another shape": ("gqa", ".flatten(2))  #", ".flatten(2))[:, 1:]  #", "3.4",
                      ("layer 0, self_attn: the shape is (2, 4, 7) instead of (2, 5, 7)",)),
    "not importing": ("rope", "def rotate_half(", "import nowhere\ndef rotate_half(", "2.2",
                      ("tinyllm/rope.py: it raised ModuleNotFoundError", "(line 2 of")),
    "no Python": ("rope", "def rotate_half(", "def rotate half(", "2.2", ("SyntaxError",)),
    "no Python in what only one model uses": ("moe", "def route(", "def ro ute(", "5.1",
                                              ("tinyllm/moe.py: it raised SyntaxError",)),
    "ending the process": ("swiglu", "def silu(", "raise SystemExit(0)\ndef silu(", "4.1",
                           ("tinyllm/swiglu.py: it raised SystemExit: 0 (line 2 of",)),
    "renamed": ("rmsnorm", "class RMSNorm(", "class RootNorm(", "1.2",
                ("cannot import name 'RMSNorm'",)),
    "other names": ("gqa", "self.q_norm", "self.query_norm", "3.4",
                    ("self_attn: there is no parameter q_norm.weight; it has query_norm",)),
    "other sizes": ("gqa", "q_norm = RMSNorm(config.head_dim,", "q_norm = RMSNorm(12,", "3.4",
                    ("self_attn: parameter q_norm.weight has shape (12,) instead of (6,)",)),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_whatever_goes_wrong_ends_in_a_report(odd):
    module, before, after, exercise_id, words = ODD[odd]
    found, text = named(assembled(**{module: edited(module, before, after)}))
    assert found == exercise_id, text
    assert all(part in text for part in words), text


def test_a_missing_module_ends_in_a_report():
    sources = {name: text for name, text in RIGHT.items() if name != "rope"}
    with imported(sources):
        verdict = assembly.judged(package_in(), sources)
    assert "No module named 'tinyllm.rope'" in verdict.fault.look


def test_assembling_leaves_the_package_in_memory_alone(package):
    import tinyllm.gqa as mine

    functions = dict(vars(mine))
    assert "passed" in str(assemble())
    assert functions == vars(mine) and sys.modules["tinyllm.gqa"] is mine


def test_in_a_notebook_and_in_a_terminal(package):
    right = assemble()
    assert right.passed and "Assembly" in right.html()
    assert re.search(r"logits (equal to|within \de-0\d of) the reference", str(right))
    change(package, "rmsnorm", "square().mean(", "square().sum(")
    wrong = assemble()
    assert not wrong.passed and 'next  check("1.2")' in str(wrong)
    assert str(wrong).startswith("Assembly  your own parts") and "not yet" in wrong.html()
    result = CliRunner().invoke(app, ["assemble"])
    assert result.exit_code == 1 and "`tinyllm check 1.2`" in result.output


def test_an_edition_without_the_reference_assembles(package, monkeypatch):
    monkeypatch.setattr(workspace, "SOLUTIONS", Path("nowhere"))
    assert assemble().passed


# In grading


def handed_in(**changed):
    """The reference as a learner's answers to labs 01 to 06; {exercise id: cell} replaces."""
    labs = [lab for lab in LABS if lab.number <= "06"]
    cell = {e.id: cells.plain(reference_block(lab, e)) for lab in labs for e in lab.exercises}
    cell |= changed.pop("cells", {})
    return {lab: {e.id: cell[e.id] for e in lab.exercises} for lab in labs}, labs[-1]


def graded(workers, **changed):
    answers, last = handed_in(cells=changed)
    rows, _ = assembly_rows(answers, last, workers)
    return " ".join(f"{label} {text}" for label, text in rows)


def test_grading_puts_all_that_was_handed_in_together(workers):
    text = graded(workers)
    assert "MoE: all 4 layers" in text and "look" not in text and "played" not in text


def test_grading_names_the_first_part_to_deviate(workers):
    _, changed = planted("1.2", "sum-for-mean")
    wrong = cells.block(changed["rmsnorm"], "1.2")
    text = graded(workers, **{"1.2": wrong, "2.3": None})
    assert "layer 0, input_layernorm" in text and "RMSNorm, exercise 1.2" in text
    assert "played by the course: 2.3 apply_rotary_pos_emb" in text


FORGED = (
    "import sys\nworker = sys.modules['labkit.sandboxed.worker']\n"
    "worker.perform = lambda *_: worker.Outcome(values=[3, {'a': None}, 4], names={'b': [5]})\n"
)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (None, "exercise 6.1, Qwen3DecoderLayer, is not written yet"),
        ("import os\nos._exit(0)", "ended the process"),
        ("class Qwen3DecoderLayer(:", "SyntaxError"),
        (f"{FORGED}class Qwen3DecoderLayer: pass", "look assembly: "),
    ],
)
def test_grading_survives_odd_answers_and_gives_nothing_away(workers, cell, words):
    assert words in graded(workers, **{"6.1": cell})


def test_an_untouched_package_is_told_where_to_begin(package):
    for path in (ROOT / "tinyllm").glob("*.py"):
        shutil.copy(path, package)
    report = str(assemble())
    assert "not written yet: 1.2 RMSNorm, 2.1 rope_cos_sin" in " ".join(report.split())
    assert 'next  check("1.2")' in report
