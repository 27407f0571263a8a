"""Training: what is learned, what survives an interruption, what is refused, the model card."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from tiny import DENSE, MOE
from typer.testing import CliRunner

import solutions
from labkit.model import checkpoint
from labkit.model.tokenizer import Tokenizer
from labkit.pretrain import commands, measure, reinforce, trainer
from labkit.pretrain import run_folder as runs
from labkit.pretrain.data import Rows, Steps, Validation
from labkit.pretrain.muon import Muon
from labkit.pretrain.recipe import Recipe, TrainError
from labkit.pretrain.run_folder import Run, last_step
from labkit.pretrain.trainer import Trainer
from labkit.stories.questions import UNTOLD
from labkit.stories.words import GENDER
from solutions.training import causal_lm_loss

CPU = torch.device("cpu")
RECIPE = {
    "model": DENSE, "steps": 8, "batch_size": 4, "sequence_length": 48, "warmup_steps": 2,
    "save_every": 4, "validate_every": 4, "validation_documents": 3,
    "tokenizer_documents": 40, "precision": "float32", "saved_dtype": "float32",
}  # fmt: skip


def begin(folder, after=None, **changes) -> Trainer:
    recipe = Recipe.from_dict(RECIPE | changes)
    if after:
        recipe = recipe.after(Recipe.from_file(after / "recipe.json"), last_step(after))
    run = Run(folder, recipe)
    run.begin()
    return Trainer(run, solutions, CPU, after)


def train(folder, **changes) -> Trainer:
    trained = begin(folder, **changes)
    for _ in trained.steps():
        pass
    return trained


def start_command(*arguments, processes=1) -> subprocess.Popen:
    """`tinyllm train` in processes of its own, which heed Ctrl-C."""
    module = ["-m", "labkit.cli"]
    if processes > 1:
        module = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        module += [str(processes), "-m", "labkit.cli"]
    return subprocess.Popen(
        [sys.executable, *module, "train", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def run_command(*arguments):
    """The exit code and the output of a command, in this process."""
    result = CliRunner().invoke(commands.app, list(map(str, arguments)))
    return result.exit_code, " ".join(result.output.split())


def write_recipe(path, **changes) -> Path:
    path.write_text(json.dumps(RECIPE | changes))
    return path


def saved_state(folder):
    return torch.load(folder / "state.pt", weights_only=True)


def check_equal(first, second):
    for name, tensor in second.state_dict().items():
        assert torch.equal(first.state_dict()[name], tensor), name


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def dense_run(tmp_path_factory):
    """The folder of a run of three steps, which is only read."""
    folder = tmp_path_factory.mktemp("dense")
    train(folder, steps=3)
    return folder


@pytest.fixture
def dense_copy(dense_run, tmp_path):
    return shutil.copytree(dense_run, tmp_path / "copy")


# recipes


def test_an_impossible_recipe_is_refused(tmp_path):
    for number, (changes, message) in enumerate((
        ({"step": 3}, "no use for step; a recipe may have model, steps, batch_size"),
        ({"steps": 0}, "steps is 0; it must be positive"),
        ({"steps": 2.5}, "steps is 2.5; expected a whole number"),
        ({"batch_size": True}, "batch_size is True; expected a whole number"),
        ({"warmup_steps": 8}, "warmup_steps is 8; it must lie between 0 and the 8 steps"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; it may be muon, adamw"),
        ({"model": []}, r"model is \[]; expected an object"),
        ({"earlier": {}}, "earlier is {}; expected a list"),
        ({"told": -1}, "told is -1; it must be 0 or more"),
        ({"told_temperature": 0}, "told_temperature is 0; it must be positive"),
        ({"ema_decay": 1}, "ema_decay is 1; it must be 0 or more, and less than 1"),
        ({"drills": 1.5}, "drills is 1.5; it must lie between 0 and 1"),
        ({"balance": "none"}, "balance is 'none'; it may be pooled, by layer"),
        ({"sequence_length": 1030}, "max_position_embeddings 1024"),
        ({"model": DENSE | {"max_position_embeddings": 200}, "asked": 1}, "leaves no room for"),
    )):  # fmt: skip
        with pytest.raises(TrainError, match=message):
            begin(tmp_path / str(number), **changes)
    with pytest.raises(TrainError, match="lacks steps"):
        Recipe.from_dict({"model": DENSE})
    path = tmp_path / "recipe.json"
    for content in ("", "[1]", '{"model": '):
        path.write_text(content)
        with pytest.raises(TrainError, match=r"recipe\.json"):
            Recipe.from_file(path)
    with pytest.raises(TrainError, match="no recipe can be read"):
        Recipe.from_file(tmp_path / "other.json")


def test_a_refused_recipe_may_be_fixed_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(reinforce, "MOST", 20)  # tokens of a story
    for wrong in (DENSE | {"max_position_embeddings": 300}, DENSE | {"num_hidden_layer": 1}):
        with pytest.raises(TrainError, match=r"take 384 or more|no use for num_hidden_layer;"):
            begin(tmp_path, model=wrong, told=2)
    (tmp_path / "tokenizer").mkdir()  # ended before the first step was saved
    assert train(tmp_path, steps=3, told=2, tokenizer_documents=30).step == 3
    assert json.loads((tmp_path / "recipe.json").read_text())["tokenizer_documents"] == 30


# data


def test_batches_hold_each_row_once_and_other_processes_write_the_same(tokenizer):
    rows = Rows(tokenizer, 60)
    whole = rows.batch(5, 6)
    assert torch.equal(whole, Rows(tokenizer, 60, first=12).batch(3, 6))
    assert whole.shape == (6, 60)
    ahead = Steps(partial(rows.batch, size=6)).of(range(4, 6), processes=2)
    assert torch.equal(list(ahead)[1], whole)  # other processes write the same
    assert len({tuple(row) for step in range(4) for row in rows.batch(step, 6).tolist()}) == 24


def test_bits_per_byte_of_a_model_that_knows_nothing(tokenizer):
    """Even odds over V tokens cost log2(V) bits per token."""

    class Even(torch.nn.Linear):
        def forward(self, input_ids):
            return torch.zeros(*input_ids.shape, 300)

    validation = Validation(tokenizer, 3, 1000)
    tokens = sum((batch[:, 1:] >= 0).sum().item() for batch in validation.batches)
    bits = validation.bits_per_byte(Even(1, 1), causal_lm_loss)
    expected = tokens * torch.log2(torch.tensor(300.0)).item() / validation.bytes
    assert bits == pytest.approx(expected, rel=1e-5)
    assert all(batch.size(1) <= 20 for batch in Validation(tokenizer, 3, 20).batches)


# learning


@pytest.mark.parametrize(
    ("model", "optimizer", "rate"), [(DENSE, "muon", 0.02), (MOE, "adamw", 0.01)]
)
def test_the_loss_falls_and_the_model_is_saved(tmp_path, model, optimizer, rate):
    options = {"model": model, "steps": 40, "save_every": 20, "validate_every": 40}
    trained = train(tmp_path, **options, optimizer=optimizer, learning_rate=rate)
    first, last = trained.run.log
    assert last["loss"] < first["loss"] - 0.3
    assert (last["balance_loss"] > 0) == (model is MOE)
    assert 0 < last["bits_per_byte"] < 5
    check_equal(checkpoint.load(tmp_path / "model", solutions), trained.model)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert Tokenizer(tmp_path / "model").stop_ids == {
        0,
        1,
        2,
    }  # of text and turn, and a new turn


@pytest.mark.parametrize("like_adamw", [False, True])
def test_muon_steps_as_torch_does(like_adamw):
    """torch iterates in bfloat16: equal up to its rounding. The last has no gradient."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(24, 8), (8, 24), (16, 16), (4, 4)]
    ours, expected = ([torch.nn.Parameter(torch.ones(s)) for s in shapes] for _ in range(2))
    adjust = "match_rms_adamw" if like_adamw else "original"
    optimizers = (
        Muon(ours, lr=0.1, weight_decay=0.3, like_adamw=like_adamw),
        torch.optim.Muon(expected, lr=0.1, weight_decay=0.3, adjust_lr_fn=adjust),
    )
    for _ in range(3):
        for pair in zip(ours[:-1], expected[:-1], strict=True):
            gradient = torch.randn(pair[0].shape, generator=generator)
            pair[0].grad, pair[1].grad = gradient, gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(ours, expected, atol=0.02, rtol=0.02)


def test_a_layer_cannot_hide_its_balance_behind_another(tmp_path):
    """Two layers, each with one favorite, but not the same: pooled that looks better."""
    losses = {}
    for balance in ("pooled", "by layer"):
        unbalanced = begin(tmp_path / balance, model=MOE, balance=balance, seed=1)
        with torch.no_grad():
            for number, layer in enumerate(unbalanced.model.model.layers):
                layer.mlp.gate.weight.zero_()
                layer.mlp.gate.weight[2 * number : 2 * number + 2] = 3.0
                layer.post_attention_layernorm.weight.abs_()
        _, parts = unbalanced.objective(unbalanced.batch(0), "float32")
        losses[balance] = parts[1].item()
    assert losses["by layer"] > losses["pooled"] + 0.1


def test_transformers_loads_what_was_trained(tmp_path):
    transformers = pytest.importorskip("transformers")
    trained = train(tmp_path, model=MOE, steps=3, saved_dtype="bfloat16")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert loaded.dtype == torch.bfloat16
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = tokenizer("Anna had a red ball.", return_tensors="pt").input_ids
    with torch.no_grad():
        logits, expected = loaded(ids).logits.float(), trained.model.eval()(ids)
    torch.testing.assert_close(logits, expected, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("model", [DENSE, pytest.param(MOE, marks=pytest.mark.slow)])
def test_bfloat16_learns_as_well(tmp_path, model):
    half = train(tmp_path / "half", model=model, precision="bfloat16", steps=4)
    exact = train(tmp_path / "exact", model=model, steps=4)
    assert half.model.lm_head.weight.dtype == torch.float32
    assert half.run.log[-1]["loss"] == pytest.approx(exact.run.log[-1]["loss"], abs=0.05)


@pytest.mark.slow
def test_compiled_layers_learn_what_others_do(tmp_path):
    """With the mean of the weights, and questions, whose layers are not compiled."""
    path = write_recipe(tmp_path / "r.json", steps=3, asked=2, ema_decay=0.5)
    for out, *more in (["plain"], ["compiled", "--compile"]):
        process = start_command(path, "--out", tmp_path / out, *more)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    plain, compiled = (saved_state(tmp_path / out)["model"] for out in ("plain", "compiled"))
    for name, tensor in plain.items():
        torch.testing.assert_close(compiled[name], tensor, atol=1e-4, rtol=1e-4)


def test_without_a_compiler_nothing_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "compile_layers", lambda model: "no C++ compiler")
    recipe = write_recipe(tmp_path / "r.json")
    code, output = run_command("train", recipe, "--out", tmp_path / "out", "--compile")
    assert code == 2
    assert "torch cannot compile here: no C++ compiler; go on without --compile" in output


def test_the_faster_precision_is_taken_and_the_choice_changes_nothing(tmp_path, monkeypatch):
    chosen = begin(tmp_path / "a", precision="auto")
    assert chosen.precision in ("float32", "bfloat16")
    check_equal(begin(tmp_path / "b").model, chosen.model)
    for half, expected in ((0.5, "bfloat16"), (2.0, "float32")):
        seconds = {"float32": 1.0, "bfloat16": half}
        monkeypatch.setattr(Trainer, "seconds", lambda _, ids, kind, s=seconds: s[kind])
        assert chosen.choose_precision() == expected


def test_a_loss_that_is_not_a_number_ends_the_run(tmp_path):
    broken = begin(tmp_path)
    with torch.no_grad():
        broken.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(TrainError, match="not a number at step 0"):
        next(broken.steps())


def test_the_mean_of_the_weights_is_the_model(tmp_path):
    run = begin(tmp_path, ema_decay=0.75)
    mean = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    for _ in run.steps():
        for name, weight in run.model.state_dict().items():
            mean[name] = 0.75 * mean[name] + 0.25 * weight
    saved = checkpoint.load(tmp_path / "model", solutions, torch.float32)
    for name, weight in saved.state_dict().items():
        torch.testing.assert_close(weight, mean[name])
    assert not torch.equal(run.model.lm_head.weight, saved.lm_head.weight)
    bits = run.validation.bits_per_byte(saved, run.loss)
    assert run.run.log[-1]["bits_per_byte"] == pytest.approx(bits, abs=1e-4)


# going on


def test_a_run_that_goes_on_ends_where_an_unbroken_one_does(tmp_path, monkeypatch):
    """With everything that a step can learn from, the mean of the weights included."""
    monkeypatch.setattr(reinforce, "MOST", 20)
    recipe = {"model": MOE, "steps": 4, "save_every": 2, "ema_decay": 0.75}
    recipe |= {"asked": 2, "told": 4}
    whole = train(tmp_path / "whole", **recipe)
    broken = begin(tmp_path / "broken", **recipe)
    for _ in zip(range(3), broken.steps(), strict=False):
        pass  # the third step is lost
    again = begin(tmp_path / "broken", **recipe)
    assert again.step == 2
    for _ in again.steps():
        pass
    check_equal(again.model, whole.model)
    check_equal(again.made, whole.made)
    logs = [[{**line, "tokens_per_second": 0} for line in r.run.log] for r in (again, whole)]
    assert logs[0] == logs[1]
    last = logs[1][-1]
    assert last["answers_loss"] > 0 and last["told_sound"] == 0
    assert last["tokens"] == 4 * 4 * 48


def test_a_run_begins_with_the_weights_of_another(tmp_path):
    first = begin(tmp_path / "first", steps=9)
    for _ in first.steps():
        first.stopping = first.step == 2  # asked to stop, it takes one more step and saves
    source = tmp_path / "first" / "model"
    second = begin(tmp_path / "second", after=source, steps=6, learning_rate=0.01)
    check_equal(second.model, first.model)
    assert torch.equal(second.batch(0), first.rows.batch(3, 4))  # no row twice
    for _ in second.steps():
        pass
    log = (tmp_path / "second" / "log.csv").read_text()
    assert log.startswith((tmp_path / "first" / "log.csv").read_text())
    assert log.splitlines()[-1].startswith(f"6,{9 * 4 * 48},")
    third = Recipe.from_dict(RECIPE).after(
        Recipe.from_file(tmp_path / "second/model/recipe.json"), 6
    )
    assert [(run["steps"], run["ended"]) for run in third.earlier] == [(9, 3), (6, 6)]
    assert third.tokens_before == 9 * 4 * 48


def test_earlier_weights_have_to_be_named_and_to_fit(tmp_path, dense_copy):
    source = dense_copy / "model"
    recipe = Recipe.from_dict(RECIPE).after(Recipe.from_file(source / "recipe.json"), 3)
    run = Run(tmp_path / "second", recipe)
    run.begin()
    with pytest.raises(TrainError, match="name them again with --from"):
        Trainer(run, solutions, CPU)
    with pytest.raises(TrainError, match="another head_dim than the recipe"):
        begin(tmp_path / "third", after=source, model=DENSE | {"head_dim": 4})
    (source / "log.csv").unlink()
    with pytest.raises(TrainError, match=r"log\.csv does not say how far"):
        begin(tmp_path / "fourth", after=source)


def test_a_folder_of_something_else_is_left_alone(tmp_path, dense_copy):
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(TrainError, match=r"holds .*thesis\.txt"):
        begin(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "all of it"
    before = files_in(dense_copy)
    with pytest.raises(TrainError, match="holds a run that differs in steps, learning_rate"):
        begin(dense_copy, steps=4, learning_rate=0.5)
    assert files_in(dense_copy) == before
    state = dense_copy / "state.pt"
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(TrainError, match=r"state\.pt is damaged"):
        begin(dense_copy, steps=3)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    run = begin(tmp_path, save_every=2)
    steps = run.steps()
    next(steps), next(steps)
    before = files_in(tmp_path)

    class Full(type(Path())):
        def open(self, mode="r", *rest, **options):
            if "w" in mode:
                raise OSError(28, "No space left on device")
            return super().open(mode, *rest, **options)

    write = runs.write_whole
    full = lambda path, content, **options: write(Full(path), content, **options)  # noqa: E731
    monkeypatch.setattr(runs, "write_whole", full)
    with pytest.raises(TrainError, match=r"no room on the disk.*goes on from there"):
        list(steps)
    assert files_in(tmp_path) == before
    monkeypatch.undo()
    assert begin(tmp_path, save_every=2).step == 2


# the command


def test_an_interrupt_saves_what_was_learned(tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path / "r.json", save_every=5)
    batch = Trainer.batch

    def interrupt(self, step):
        if step == 2:
            signal.raise_signal(signal.SIGINT)
        return batch(self, step)

    monkeypatch.setattr(Trainer, "batch", interrupt)
    code, output = run_command("train", recipe, "--out", tmp_path / "run")
    assert code == 130
    step = saved_state(tmp_path / "run")["step"]
    assert step == 3 and "stopped at step 3; the same command goes on from there" in output
    assert (tmp_path / "run" / "model" / "config.json").exists()
    code, output = run_command("train", recipe, "--out", tmp_path / "run")
    assert code == 0 and "goes on at step 3" in output
    assert saved_state(tmp_path / "run")["step"] == 8


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_ended_goes_on(tmp_path, number):
    recipe, out = write_recipe(tmp_path / "r.json", steps=5000, save_every=2), tmp_path / "run"
    process = start_command(recipe, "--out", out)
    while not (out / "state.pt").exists():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    step = saved_state(out)["step"]
    if number == signal.SIGKILL:
        assert step >= 2 and step % 2 == 0
    else:
        assert process.returncode == 130, output
        assert f"stopped at step {step}; the same command goes on from there" in output
    again = Run(out, Recipe.from_file(recipe))
    again.begin()
    assert Trainer(again, solutions, CPU).step == step


@pytest.mark.slow
def test_two_processes_learn_what_one_does(tmp_path):
    """Not bit by bit: the sums of two processes are added in a different order."""
    changes = {"model": MOE | {"decoder_sparse_step": 2}, "optimizer": "adamw"}
    changes |= {"learning_rate": 1e-3}
    recipe = write_recipe(tmp_path / "r.json", **changes)
    output, _ = start_command(recipe, "--out", tmp_path / "two", processes=2).communicate()
    assert (tmp_path / "two" / "state.pt").exists(), output
    alone = train(tmp_path / "one", **changes)
    for name, tensor in saved_state(tmp_path / "two")["model"].items():
        torch.testing.assert_close(
            tensor, alone.model.state_dict()[name], atol=1e-5, rtol=1e-4, msg=name
        )
    log = (tmp_path / "two" / "log.csv").read_text().splitlines()[1:]
    assert [line["loss"] for line in alone.run.log] == pytest.approx(
        [float(line.split(",")[2]) for line in log], abs=1e-4
    )


# the card


def test_the_card_of_a_named_model_holds_what_was_measured(tmp_path, monkeypatch):
    train(tmp_path, model=MOE, steps=3, generation={"do_sample": True, "temperature": 0.5})
    folder = tmp_path / "model"
    monkeypatch.setattr(measure, "NEW_TOKENS", 8)
    scores = measure.scores_of(folder, solutions, 2)
    assert scores["true"]["sound"] == 1 and scores["true"]["questions_right"] == 1
    assert scores["greedy"]["sound"] < 1 and scores["sampled"]["visitors"] == 0
    assert scores["long greedy"]["sound"] < 1 and scores["true"]["honest"] == 1
    assert len(scores["experts"]) == 2
    assert all(sum(layer) == pytest.approx(1, abs=0.01) for layer in scores["experts"])

    monkeypatch.setattr(commands, "CARD", 3)
    monkeypatch.setattr(checkpoint, "resolve", lambda name: folder)
    monkeypatch.setattr(measure, "scores_of", lambda *_: scores)
    log = (folder / "log.csv").read_bytes()
    for name, stories, content, message in (
        ([], 3, log, "nothing written: a card is of a MODEL that you name, and of 3 stories"),
        (
            ["x"],
            2,
            log,
            "nothing written: a card is of a MODEL that you name, and of 3 stories",
        ),
        (["x"], 3, None, "has no log.csv"),
        (["x"], 3, log, "README.md"),
    ):
        assert not (folder / "scores.json").exists()
        (folder / "log.csv").unlink(missing_ok=True)
        if content:
            (folder / "log.csv").write_bytes(content)
        code, output = run_command("measure", *name, "--stories", stories)
        assert code == 0 and "questions about a true" in output and message in output
    assert json.loads((folder / "scores.json").read_text()) == scores
    text = (folder / "README.md").read_text()
    assert f"**{scores['bits_per_byte']:.3f} bits per byte**" in text and "expert 5" in text
    assert "6 of size 16, 2 a token" in text and "temperature 0.5" in text


def test_a_short_context_is_measured_and_counts_what_does_not_fit(tmp_path, monkeypatch):
    """Lab 08's model reads 256 tokens; stories of two chapters are longer."""
    train(tmp_path, steps=3, model=DENSE | {"max_position_embeddings": 96})
    monkeypatch.setattr(checkpoint, "resolve", lambda name: tmp_path / "model")
    monkeypatch.setattr(measure, "NEW_TOKENS", 8)
    code, output = run_command("measure", "x", "--stories", 2)
    assert code == 0 and re.search(r"\d+ prompts are longer than the model's context", output)


def test_what_visitors_ask_can_be_answered():
    """In one of the forms of answers, and with words that are known."""
    forms = (
        r"(NAME|Nobody) has it\.|(It|She|He) is .+\.|NAME (gave|found|fixed) it( to h\w+)?\."
        r"|(Yes|No), (she|he|it) (is|did)( not)?\.|NAME is an? \w+\."
        r"|(She|He) (has|ate|found|hid) .+\.|Because .+ (broke|lost .+)\.|.+ is in it\."
    ).replace("NAME", f"({'|'.join(GENDER)})")
    asked = measure.visitors(200)
    assert len(asked) == 177 and len(measure.visitors(2)) == 6
    for text, accepted in asked.items():
        assert accepted and "\n" in text
        for answer in accepted:
            assert answer == UNTOLD or re.fullmatch(forms, answer), answer
