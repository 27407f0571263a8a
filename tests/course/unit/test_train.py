"""Training: what is learnt, kept through a kill, and shared among processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import solutions
from labkit.model import checkpoint
from labkit.model.tokenizer import Tokenizer
from labkit.pretrain import commands, measure, trainer
from labkit.pretrain import run_folder as runs
from labkit.pretrain.data import Rows, Steps, Validation
from labkit.pretrain.muon import Muon
from labkit.pretrain.parallel import Team
from labkit.pretrain.recipe import Recipe, TrainError
from labkit.pretrain.run_folder import Run, last_step
from labkit.pretrain.stories.questions import UNTOLD
from labkit.pretrain.stories.words import GENDER
from labkit.pretrain.trainer import Trainer

ALONE = Team(torch.device("cpu"))
DENSE = {
    "model_type": "qwen3", "vocab_size": 300, "hidden_size": 24, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "rope_theta": 1e4, "max_position_embeddings": 1024, "tie_word_embeddings": True,
}  # fmt: skip
MOE = DENSE | {
    "model_type": "qwen3_moe", "num_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "norm_topk_prob": True, "router_aux_loss_coef": 0.1,
}  # fmt: skip
SMALL = {
    "model": DENSE, "steps": 8, "batch_size": 4, "sequence_length": 48, "warmup_steps": 2,
    "save_every": 2, "validate_every": 4, "validation_documents": 3,
    "tokenizer_documents": 40, "precision": "float32", "saved_dtype": "float32",
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def begun(folder: Path, package=solutions, after: Path | None = None, **changes) -> Trainer:
    recipe = Recipe.from_dict(SMALL | changes)
    if after:
        recipe = recipe.after(Recipe.from_file(after / "recipe.json"), last_step(after))
    run = Run(folder, recipe)
    run.begin()
    return Trainer(run, package, ALONE, after)


def finished(folder: Path, **changes) -> Trainer:
    made = begun(folder, **changes)
    for _ in made.steps():
        pass
    return made


def command(*arguments: object, processes: int = 1, **options) -> subprocess.Popen:
    start = ["-m", "labkit.cli"]
    if processes > 1:
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        start += [str(processes), "-m", "labkit.cli"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *start, "train", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, **options,
    )  # fmt: skip


def written(path: Path, **changes) -> Path:
    path.write_text(json.dumps(SMALL | changes))
    return path


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "state.pt", weights_only=True)["model"]


# recipes


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"step": 3}, "no use for step; a recipe may have model, steps, batch_size"),
        ({"steps": 0}, "steps is 0; it must be positive"),
        ({"steps": 2.5}, "steps is 2.5; expected a whole number"),
        ({"batch_size": True}, "batch_size is True; expected a whole number"),
        ({"warmup_steps": 8}, "warmup_steps is 8; it must lie between 0 and the 8 steps"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; it may be muon, adamw"),
        ({"model": []}, "model is []; expected an object"),
        ({"earlier": {}}, "earlier is {}; expected a list"),
        ({"told": -1}, "told is -1; it must be 0 or more"),
        ({"told_temperature": 0}, "told_temperature is 0; it must be positive"),
        ({"ema_decay": 1}, "ema_decay is 1; it must be 0 or more, and less than 1"),
        ({"drills": 1.5}, "drills is 1.5; it must lie between 0 and 1"),
        ({"balance": "none"}, "balance is 'none'; it may be pooled, by layer"),
    ],
)
def test_an_impossible_recipe_is_refused(changes, says):
    with pytest.raises(TrainError, match=says.replace("[", r"\[")):
        Recipe.from_dict(SMALL | changes)


def test_what_a_recipe_lacks_is_named():
    with pytest.raises(TrainError, match="lacks steps"):
        Recipe.from_dict({"model": DENSE})


@pytest.mark.parametrize("content", ["", "[1]", '{"model": '])
def test_a_recipe_that_is_none(tmp_path, content):
    path = tmp_path / "recipe.json"
    path.write_text(content)
    with pytest.raises(TrainError, match=r"recipe\.json"):
        Recipe.from_file(path)
    with pytest.raises(TrainError, match="no recipe can be read"):
        Recipe.from_file(tmp_path / "other.json")


def test_a_sequence_longer_than_the_model_allows(tmp_path):
    with pytest.raises(TrainError, match="max_position_embeddings 1024"):
        begun(tmp_path / "run", sequence_length=1030)


def test_a_refused_recipe_may_be_mended(tmp_path):
    for wrong in (DENSE | {"max_position_embeddings": 300}, DENSE | {"num_hidden_layer": 1}):
        with pytest.raises(TrainError, match=r"take 384 or more|no use for num_hidden_layer;"):
            begun(tmp_path, model=wrong, told=2)
    (tmp_path / "tokenizer").mkdir()  # ended before the first step was saved
    assert finished(tmp_path, steps=3, told=2, tokenizer_documents=30).step == 3
    assert json.loads((tmp_path / "recipe.json").read_text())["tokenizer_documents"] == 30


def test_answers_need_room(tmp_path):
    model = {**SMALL["model"], "max_position_embeddings": 200}
    with pytest.raises(TrainError, match="embeddings 200 leaves no room for a story and an"):
        begun(tmp_path / "run", model=model, asked=1)


# data


@pytest.fixture(scope="module")
def tokenizer():
    from labkit.pretrain.stories.tokenizer import train_on_stories

    return train_on_stories(40, 300)


def test_processes_share_a_batch_without_gap_or_overlap(tokenizer):
    rows = Rows(tokenizer, 60)
    whole = rows.batch(5, 6)
    assert torch.equal(whole, Rows(tokenizer, 60, first=12).batch(3, 6))
    shares = [rows.batch(5, 6, rank, 3) for rank in range(3)]
    assert whole.shape == (6, 60)
    assert torch.equal(whole, torch.stack(shares, dim=1).flatten(0, 1))
    ahead = Steps(partial(rows.batch, size=6)).of(range(4, 6), processes=2)
    assert torch.equal(list(ahead)[1], whole)  # other processes write the same
    assert len({tuple(row) for step in range(4) for row in rows.batch(step, 6).tolist()}) == 24


def test_bits_per_byte_of_a_model_that_knows_nothing(tokenizer):
    """Even odds over V tokens cost log2(V) bits a token."""
    validation = Validation(tokenizer, 3, 1000)
    tokens = sum((batch[:, 1:] >= 0).sum().item() for batch in validation.batches)

    class Even(torch.nn.Linear):
        def forward(self, input_ids):
            return torch.zeros(*input_ids.shape, 300)

    from solutions.training import causal_lm_loss

    assert all(batch.size(1) <= 20 for batch in Validation(tokenizer, 3, 20).batches)
    bits = validation.bits_per_byte(Even(1, 1), causal_lm_loss)
    expected = tokens * torch.log2(torch.tensor(300.0)).item() / validation.bytes
    assert bits == pytest.approx(expected, rel=1e-5)


# learning


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("model", [DENSE, MOE], ids=["dense", "moe"])
def test_the_loss_falls_and_the_model_is_saved(tmp_path, model, optimizer):
    rate = {"muon": 0.02, "adamw": 0.01}[optimizer]
    options = {"model": model, "steps": 40, "save_every": 20, "validate_every": 40}
    made = finished(tmp_path, **options, optimizer=optimizer, learning_rate=rate)
    first, last = made.run.log
    assert last["loss"] < first["loss"] - 0.3
    assert (last["balance_loss"] > 0) == (model is MOE)
    assert 0 < last["bits_per_byte"] < 5
    loaded = checkpoint.load(tmp_path / "model", solutions)
    for name, tensor in made.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    stops = Tokenizer(tmp_path / "model").stop_ids  # ends of text and turn, a turn begun
    assert stops == {0, 1, 2}


@pytest.mark.parametrize("like_adamw", [False, True])
def test_muon_steps_as_torch_does(like_adamw):
    """Torch iterates in bfloat16: equal up to its rounding. The last has no gradient."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(24, 8), (8, 24), (16, 16), (4, 4)]
    ours, theirs = (
        [torch.nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2)
    )
    adjust = "match_rms_adamw" if like_adamw else "original"
    made = [
        Muon(ours, lr=0.1, weight_decay=0.3, like_adamw=like_adamw),
        torch.optim.Muon(theirs, lr=0.1, weight_decay=0.3, adjust_lr_fn=adjust),
    ]
    for _ in range(3):
        for mine, other in zip(ours[:-1], theirs[:-1], strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            other.grad = mine.grad.clone()
        for optimizer in made:
            optimizer.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=0.02, rtol=0.02)


def test_a_layer_cannot_hide_its_balance_behind_another(tmp_path):
    """Two layers, each with one favourite, but not the same: pooled that looks better."""
    losses = {}
    for balance in ("pooled", "by layer"):
        made = begun(tmp_path / balance.replace(" ", ""), model=MOE, balance=balance, seed=1)
        with torch.no_grad():
            for number, layer in enumerate(made.model.model.layers):
                layer.mlp.gate.weight.zero_()
                layer.mlp.gate.weight[2 * number : 2 * number + 2] = 3.0
                layer.post_attention_layernorm.weight.abs_()
        _, told = made.objective(made.batch(0), "float32")
        losses[balance] = told[1].item()
    assert losses["by layer"] > losses["pooled"] + 0.1


def test_transformers_loads_what_was_trained(tmp_path):
    transformers = pytest.importorskip("transformers")
    made = finished(tmp_path, model=MOE, steps=4, saved_dtype="bfloat16")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert theirs.dtype == torch.bfloat16
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = tokenizer("Anna had a red ball.", return_tensors="pt").input_ids
    ours = made.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits.float(), ours(ids), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("model", [DENSE, MOE], ids=["dense", "moe"])
def test_bfloat16_learns_as_well(tmp_path, model):
    made = finished(tmp_path, model=model, precision="bfloat16", steps=4)
    exact = finished(tmp_path / "exact", model=model, steps=4)
    assert made.model.lm_head.weight.dtype == torch.float32
    assert made.run.log[-1]["loss"] == pytest.approx(exact.run.log[-1]["loss"], abs=0.05)


def test_compiled_layers_learn_what_others_do(tmp_path):
    """With the mean of the weights, and what is asked besides, which is not compiled."""
    path = written(tmp_path / "r.json", steps=3, asked=2, ema_decay=0.5)
    found = []
    for more in ([], ["--compile"]):
        out = tmp_path / f"out{len(more)}"
        process = command(path, "--out", out, *more)
        text, _ = process.communicate(timeout=300)
        assert process.returncode == 0, text
        found.append(weights(out))
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, atol=1e-4, rtol=1e-4)


def test_where_torch_cannot_compile_nothing_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "compile_layers", lambda model: "no C++ compiler")
    arguments = ["--out", str(tmp_path / "out"), "--compile"]
    result = CliRunner().invoke(
        commands.app, ["train", str(written(tmp_path / "r.json")), *arguments]
    )
    said = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert "torch cannot compile here: no C++ compiler; go on without --compile" in said


@pytest.mark.parametrize(("half", "chosen"), [(0.5, "bfloat16"), (2.0, "float32")])
def test_the_faster_precision_is_taken(tmp_path, monkeypatch, half, chosen):
    seconds = {"float32": 1.0, "bfloat16": half}
    monkeypatch.setattr(Trainer, "seconds", lambda self, ids, precision: seconds[precision])
    assert begun(tmp_path, precision="auto").precision == chosen


def test_choosing_a_precision_changes_nothing(tmp_path):
    made, plain = begun(tmp_path / "a", precision="auto"), begun(tmp_path / "b")
    assert made.precision in ("float32", "bfloat16")
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(made.model.state_dict()[name], tensor)


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    made = begun(tmp_path)
    with torch.no_grad():
        made.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(TrainError, match="not a number at step 0"):
        next(made.steps())


def test_the_mean_of_the_weights_is_the_model(tmp_path):
    made = begun(tmp_path, ema_decay=0.75)
    mean = {name: w.clone() for name, w in made.model.state_dict().items()}
    for _ in made.steps():
        for name, weight in made.model.state_dict().items():
            mean[name] = 0.75 * mean[name] + 0.25 * weight
    saved = checkpoint.load(tmp_path / "model", solutions, torch.float32)
    for name, weight in saved.state_dict().items():
        torch.testing.assert_close(weight, mean[name])
    assert not torch.equal(made.model.lm_head.weight, saved.lm_head.weight)
    bits = made.validation.bits_per_byte(saved, made.loss)
    assert made.run.log[-1]["bits_per_byte"] == pytest.approx(bits, abs=1e-4)


# going on


@pytest.mark.parametrize("ema_decay", [0.0, 0.75])
def test_a_run_that_goes_on_ends_where_an_unbroken_one_does(tmp_path, ema_decay):
    whole = finished(tmp_path / "whole", model=MOE, ema_decay=ema_decay)
    broken = begun(tmp_path / "broken", model=MOE, ema_decay=ema_decay)
    for _, _step in zip(range(5), broken.steps(), strict=False):
        pass  # the fifth step is lost: steps are saved by twos
    again = begun(tmp_path / "broken", model=MOE, ema_decay=ema_decay)
    assert again.step == 4
    for _ in again.steps():
        pass
    for ended, unbroken in ((again.model, whole.model), (again.made, whole.made)):
        for name, tensor in unbroken.state_dict().items():
            assert torch.equal(ended.state_dict()[name], tensor), name
    told = [{**line, "tokens_per_second": 0} for line in again.run.log]
    assert told == [{**line, "tokens_per_second": 0} for line in whole.run.log]


def test_a_run_begins_with_the_weights_of_another(tmp_path):
    first = begun(tmp_path / "first", steps=9)
    for _ in first.steps():
        first.stopping = first.step == 2  # asked to stop, it does one more, and saves
    source = tmp_path / "first" / "model"
    made = begun(tmp_path / "second", after=source, steps=6, learning_rate=0.01)
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(made.model.state_dict()[name], tensor), name
    assert torch.equal(made.batch(0), first.rows.batch(3, 4))  # no row twice
    for _ in made.steps():
        pass
    log = (tmp_path / "second" / "log.csv").read_text()
    assert log.startswith((tmp_path / "first" / "log.csv").read_text())
    assert log.splitlines()[-1].startswith(f"6,{9 * 4 * 48},")
    third = Recipe.from_dict(SMALL).after(
        Recipe.from_file(tmp_path / "second/model/recipe.json"), 6
    )
    assert [(run["steps"], run["ended"]) for run in third.earlier] == [(9, 3), (6, 6)]
    assert third.tokens_before == 9 * 4 * 48


def test_earlier_weights_have_to_be_named_and_to_fit(tmp_path):
    finished(tmp_path / "first", steps=3)
    source = tmp_path / "first" / "model"
    recipe = Recipe.from_dict(SMALL).after(Recipe.from_file(source / "recipe.json"), 3)
    run = Run(tmp_path / "second", recipe)
    run.begin()
    with pytest.raises(TrainError, match="name them again with --from"):
        Trainer(run, solutions, ALONE)
    with pytest.raises(TrainError, match="another head_dim than the recipe"):
        begun(tmp_path / "third", after=source, model=DENSE | {"head_dim": 4})
    (source / "log.csv").unlink()
    with pytest.raises(TrainError, match=r"log\.csv does not say how far"):
        begun(tmp_path / "fourth", after=source)


def test_a_mixture_begins_with_a_dense_model(tmp_path):
    dense = finished(tmp_path / "first", steps=3)
    source = tmp_path / "first" / "model"
    # three experts of a third each: together the whole layer, once
    thirds = MOE | {"num_experts": 3, "num_experts_per_tok": 3}
    mixture = begun(tmp_path / "second", after=source, model=thirds)
    for layer in mixture.model.model.layers:
        layer.mlp.gate.weight.data.zero_()  # every expert counts a third
    ids = mixture.batch(0)
    with torch.no_grad():
        assert torch.allclose(mixture.model(ids), dense.model(ids), atol=1e-4)
    with pytest.raises(TrainError, match="another hidden_size than the recipe"):
        begun(tmp_path / "third", after=source, model=MOE | {"hidden_size": 32})
    for _ in mixture.steps():
        pass
    # from one mixture to another there is no such road
    made = tmp_path / "second" / "model"
    with pytest.raises(TrainError, match="another num_experts, num_experts_per_tok than"):
        begun(tmp_path / "fourth", after=made, model=MOE)


@pytest.mark.parametrize("model", [DENSE, MOE], ids=["dense", "moe"])
def test_a_deeper_model_begins_with_a_shallower_one(tmp_path, model):
    shallow = finished(tmp_path / "first", steps=3, model=model)
    source = tmp_path / "first" / "model"
    more = model["num_hidden_layers"] * 2
    step = {"decoder_sparse_step": 2} if model is MOE else {}
    deeper = {"num_hidden_layers": more, **step}
    if model is MOE:  # every second layer has experts: they would lie where none were
        with pytest.raises(TrainError, match=r"nothing to begin .*mlp\.gate_proj"):
            begun(tmp_path / "second", after=source, model=MOE | deeper)
        deeper = {"num_hidden_layers": more}
    deep = begun(tmp_path / "third", after=source, model=model | deeper)
    ids = deep.batch(0)
    with torch.no_grad():
        assert torch.equal(deep.model(ids), shallow.model(ids))  # new layers add nothing
    before = [weight.clone() for weight in deep.model.parameters()]
    for _ in deep.steps():
        pass
    now = deep.model.parameters()
    assert not any(torch.equal(*pair) for pair in zip(before, now, strict=True))  # but learn
    with pytest.raises(TrainError, match="another num_hidden_layers than"):
        begun(tmp_path / "fourth", after=tmp_path / "third" / "model", model=model)


def test_another_recipe_in_the_same_folder_is_refused(tmp_path):
    finished(tmp_path, steps=3)
    with pytest.raises(TrainError, match="holds a run that differs in steps, learning_rate"):
        begun(tmp_path, steps=4, learning_rate=0.5)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(TrainError, match=r"holds thesis\.txt"):
        begun(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_damaged_state_is_named(tmp_path):
    finished(tmp_path, steps=3)
    state = tmp_path / "state.pt"
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(TrainError, match=r"state\.pt is damaged"):
        begun(tmp_path, steps=3)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    made = begun(tmp_path)
    steps = made.steps()
    next(steps), next(steps)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    class Full(type(Path())):
        def open(self, mode="r", *rest, **options):
            if "w" in mode:
                raise OSError(28, "No space left on device")
            return super().open(mode, *rest, **options)

    whole = runs.write_whole
    full = lambda path, content, **options: whole(Full(path), content, **options)  # noqa: E731
    monkeypatch.setattr(runs, "write_whole", full)
    with pytest.raises(TrainError, match=r"no room on the disk.*goes on from there"):
        list(steps)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert after == before
    monkeypatch.undo()
    assert begun(tmp_path).step == 2


# the command


def wait_for(path: Path, process: subprocess.Popen) -> None:
    while not path.exists():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)


def test_killed_in_the_middle_it_goes_on(tmp_path):
    recipe, out = written(tmp_path / "r.json", steps=400), tmp_path / "run"
    process = command(recipe, "--out", out)
    wait_for(out / "state.pt", process)
    process.kill()
    process.communicate()
    step = torch.load(out / "state.pt", weights_only=True)["step"]
    assert step >= 2 and step % 2 == 0
    again = Run(out, Recipe.from_file(recipe))
    again.begin()
    assert Trainer(again, solutions, ALONE).step == step


def test_an_interrupt_saves_what_was_learnt(tmp_path):
    recipe, out = written(tmp_path / "r.json", steps=5000), tmp_path / "run"
    process = command(recipe, "--out", out, preexec_fn=default_interrupt)
    wait_for(out / "state.pt", process)
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 130, told
    step = torch.load(out / "state.pt", weights_only=True)["step"]
    assert f"stopped at step {step}; the same command goes on from there" in told


def default_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_two_processes_learn_what_one_does(tmp_path):
    """Not bit by bit: the sums of two processes are added in another order."""
    model = MOE | {"decoder_sparse_step": 2}
    recipe = written(tmp_path / "r.json", model=model, optimizer="adamw", learning_rate=1e-3)
    told, _ = command(recipe, "--out", tmp_path / "two", processes=2).communicate()
    assert (tmp_path / "two" / "state.pt").exists(), told
    alone = finished(tmp_path / "one", model=model, optimizer="adamw", learning_rate=1e-3)
    for name, tensor in weights(tmp_path / "two").items():
        torch.testing.assert_close(
            tensor, alone.model.state_dict()[name], atol=1e-5, rtol=1e-4, msg=name
        )
    assert [line["loss"] for line in alone.run.log] == pytest.approx(
        [float(line.split(",")[2]) for line in rows_of(tmp_path / "two" / "log.csv")], abs=1e-4
    )


def rows_of(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:]


def test_a_batch_that_cannot_be_shared(tmp_path):
    recipe = Recipe.from_dict(SMALL | {"batch_size": 5})
    with pytest.raises(TrainError, match="5 cannot be shared by 2 processes"):
        trainer._check_fit(recipe, None, Team(torch.device("cpu"), 0, 2))


# the card


def test_only_a_named_model_and_enough_stories_make_a_card(tmp_path, monkeypatch):
    finished(tmp_path, steps=3)
    folder = tmp_path / "model"
    monkeypatch.setattr(commands, "CARD", 3)
    monkeypatch.setattr("labkit.model.checkpoint.resolve", lambda name: folder)
    log = (folder / "log.csv").read_bytes()
    for named, stories, has_log, says in (
        (True, 2, True, "a MODEL that you name, and of 3 stories"),
        (False, 3, True, "a MODEL that you name, and of 3 stories"),
        (True, 3, False, "has no log.csv"),
        (True, 3, True, "README.md"),
    ):
        (folder / "log.csv").unlink(missing_ok=True)
        if has_log:
            (folder / "log.csv").write_bytes(log)
        told = CliRunner().invoke(
            commands.app, ["measure", *["x"] * named, "--stories", str(stories)]
        )
        assert told.exit_code == 0 and "questions about a true" in told.output
        written = says == "README.md"
        assert (folder / "scores.json").exists() == written
        assert ("nothing written" in told.output) != written and says in told.output


def test_a_short_context_is_measured_and_says_what_does_not_fit(tmp_path, monkeypatch):
    """Lab 08's model reads 256 tokens; stories of two chapters are longer."""
    finished(tmp_path, steps=3, model=DENSE | {"max_position_embeddings": 96})
    monkeypatch.setattr("labkit.model.checkpoint.resolve", lambda name: tmp_path / "model")
    done = CliRunner().invoke(commands.app, ["measure", "x", "--stories", "2"])
    assert done.exit_code == 0, done.output
    assert re.search(r"\d+ prompts are longer than\s+the model's context", done.output)


def test_padding_takes_little_of_a_short_context():
    prompts = [([0] * length, str(length)) for length in sorted([15, 16, *range(30, 250, 7)])]
    for limit in (256, 1024):
        batches = list(measure.batches(prompts, limit))
        widths = [len(batch[-1][0]) - len(batch[0][0]) for batch in batches]
        assert max(widths) <= (measure.SLACK if limit == 256 else 235)
        assert (len(batches) == 1) == (limit == 1024)


def test_what_visitors_ask_can_be_answered():
    """By one of the forms of answers, and with words that are known."""
    forms = (
        r"(NAME|Nobody) has it\.|(It|She|He) is .+\.|NAME (gave|found|fixed) it( to h\w+)?\."
        r"|(Yes|No), (she|he|it) (is|did)( not)?\.|NAME is a \w+\.|NAME is an \w+\."
        r"|(She|He) (has|ate|found|hid) .+\.|Because .+ (broke|lost .+)\.|.+ is in it\."
    ).replace("NAME", f"({'|'.join(GENDER)})")
    asked = measure.visitors(200)
    kinds = Counter()
    for text, accepted in asked.items():
        assert accepted and "\n" in text
        for answer in accepted:
            assert answer == UNTOLD or re.fullmatch(forms, answer), answer
            kinds[" ".join(answer.split()[1:3])] += 1
    assert len(asked) == 177 and kinds["do not"] == 41 and len(kinds) > 25
    assert len(measure.visitors(2)) == 6


def test_the_card_holds_what_was_measured(tmp_path):
    finished(tmp_path, model=MOE, steps=4, generation={"do_sample": True, "temperature": 0.5})
    folder = tmp_path / "model"
    found = measure.scores_of(folder, solutions, 2)
    assert found["true"]["sound"] == 1 and found["true"]["questions_right"] == 1
    assert found["greedy"]["sound"] < 1 and found["sampled"]["visitors"] == 0
    (folder / "scores.json").write_text(json.dumps(found))
    measure.write_card(folder, solutions)
    text = (folder / "README.md").read_text()
    assert f"**{found['bits_per_byte']:.3f} bits per byte**" in text
    assert len(found["experts"]) == 2 and "expert 5" in text
    assert all(sum(layer) == pytest.approx(1, abs=0.01) for layer in found["experts"])
    assert found["long greedy"]["sound"] < 1 and found["true"]["honest"] == 1
    assert "6 of size 16, 2 a token" in text and "temperature 0.5" in text
