"""Training: learning, resuming after an interruption, refused folders, the model card."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny import DENSE, MOE
from typer.testing import CliRunner

import solutions
from labkit.learner.lessons import rewards
from labkit.learner.lessons.data import Rows, Validation
from labkit.learner.lessons.muon import Muon
from labkit.model import checkpoint
from labkit.model.tokenizer import Tokenizer
from solutions.training import causal_lm_loss
from storyworld.questions import UNTOLD
from storyworld.words import GENDER
from training import commands, measure, trainer
from training import run_folder as runs
from training.recipe import Recipe, TrainError
from training.run_folder import Run
from training.trainer import Trainer

CPU = torch.device("cpu")
DENSE, MOE = DENSE | {"vocab_size": 1536}, MOE | {"vocab_size": 1536}
RECIPE = {
    "model": DENSE, "steps": 8, "batch_size": 4, "sequence_length": 48, "warmup_steps": 2,
    "save_every": 4,
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_documents(monkeypatch):
    monkeypatch.setattr(trainer, "VALIDATION", 3)


def begin(folder, after=None, **changes) -> Trainer:
    run = Run(folder, Recipe(**RECIPE | changes))
    run.begin()
    return Trainer(run, solutions, CPU, after)


def train(folder, **changes) -> Trainer:
    trained = begin(folder, **changes)
    for _ in trained.steps():
        pass
    return trained


def start_command(*arguments) -> subprocess.Popen:
    """Start `tinyllm train` in a process that handles Ctrl-C."""
    return subprocess.Popen(
        [sys.executable, "-m", "labkit.cli", "train", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def run_command(*arguments):
    """Run a command in this process; return its exit code and output."""
    result = CliRunner().invoke(commands.app, list(map(str, arguments)))
    return result.exit_code, " ".join(result.output.split())


def write_recipe(path, **changes) -> Path:
    path.write_text(json.dumps(RECIPE | changes))
    return path


def saved_state(folder):
    return torch.load(folder / "state.pt", weights_only=True)


def check_equal(first, second):
    """Check that all numbers are equal in the dtype of the first."""
    for name, tensor in first.state_dict().items():
        assert torch.equal(second.state_dict()[name].to(tensor.dtype), tensor), name


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def dense_run(tmp_path_factory):
    """The folder of a run of three steps, not to be changed"""
    folder = tmp_path_factory.mktemp("dense")
    train(folder, steps=3)
    return folder


@pytest.fixture
def dense_copy(dense_run, tmp_path):
    return shutil.copytree(dense_run, tmp_path / "copy")


# recipes


def test_an_impossible_recipe_is_refused(tmp_path):
    for number, (changes, message) in enumerate((
        ({"steps": 0}, "steps is 0; it must be positive"),
        ({"warmup_steps": 8}, "warmup_steps is 8; it must be less than the 8 steps"),
        ({"temperature": 0}, "temperature is 0; it must be positive"),
        ({"sequence_length": 1030}, "max_position_embeddings 1024"),
        ({"model": DENSE | {"max_position_embeddings": 200}, "requests": 1}, "needs 256"),
        ({"model": DENSE | {"vocab_size": 300}}, "the course's tokenizer has 1521"),
        ({"model": DENSE | {"num_hidden_layer": 1}}, "no use for num_hidden_layer; it may"),
    )):  # fmt: skip
        with pytest.raises(TrainError, match=message):
            begin(tmp_path / str(number), **changes)
    path = tmp_path / "recipe.json"
    for content, message in (
        ("", "not valid JSON"), ('{"model": ', "not valid JSON"),
        ('{"model": {}}', "missing 1 required .*'steps'"),
        ('{"step": 3}', "no use for step; a recipe may have"),
    ):  # fmt: skip
        path.write_text(content)
        with pytest.raises(TrainError, match=rf"recipe\.json.*{message}"):
            Recipe.from_file(path)
    with pytest.raises(TrainError, match="no recipe can be read"):
        Recipe.from_file(tmp_path / "other.json")


def test_a_refused_recipe_may_be_fixed_in_its_folder(tmp_path):
    with pytest.raises(TrainError, match="no use for num_hidden_layer;"):
        begin(tmp_path, model=DENSE | {"num_hidden_layer": 1})
    assert train(tmp_path, steps=3, batch_size=2).step == 3
    assert json.loads((tmp_path / "recipe.json").read_text())["batch_size"] == 2


# data


def test_batches_hold_each_row_once(tokenizer):
    rows = Rows(tokenizer, 60)
    assert torch.equal(rows.batch(5, 6), Rows(tokenizer, 60, first=12).batch(3, 6))
    assert rows.batch(5, 6).shape == (6, 60)
    assert len({tuple(row) for step in range(4) for row in rows.batch(step, 6).tolist()}) == 24


def test_bits_per_byte_of_a_model_that_knows_nothing(tokenizer):
    """Even odds over V tokens cost log2(V) bits per token."""

    class Even(torch.nn.Linear):
        def forward(self, input_ids):
            return torch.zeros(*input_ids.shape, 1536)

    validation = Validation(tokenizer, 3, 1000)
    tokens = sum((batch[:, 1:] >= 0).sum().item() for batch in validation.batches)
    bits = validation.bits_per_byte(Even(1, 1), causal_lm_loss)
    expected = tokens * torch.log2(torch.tensor(1536.0)).item() / validation.bytes
    assert bits == pytest.approx(expected, rel=1e-5)
    assert all(batch.size(1) <= 20 for batch in Validation(tokenizer, 3, 20).batches)


# learning


@pytest.mark.parametrize("model", [DENSE, MOE])
def test_the_loss_falls_and_the_model_is_saved(tmp_path, model):
    trained = train(tmp_path, model=model, steps=40, save_every=20, learning_rate=0.02)
    first, last = trained.run.log
    assert last["loss"] < first["loss"] - 0.3
    assert (last["balance_loss"] > 0) == (model is MOE)
    assert 0 < last["bits_per_byte"] < 5
    check_equal(checkpoint.load(tmp_path / "model", solutions), trained.model)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert Tokenizer(tmp_path / "model").stop_ids == {0, 1, 2}  # the ends of texts and of turns


def test_learning_from_the_reader_raises_its_reward(tmp_path, monkeypatch):
    """The reward prefers short answers: after some steps answers are shorter."""
    monkeypatch.setattr(rewards, "MOST", 12)
    monkeypatch.setattr(rewards, "sound", lambda text: -float(len(text)))
    changes = {"steps": 30, "requests": 2, "learning_rate": 0.02, "save_every": 10}
    log = train(tmp_path, **changes).run.log
    assert [line["reward"] < 0 for line in log] == [True] * 3
    assert log[-1]["reward"] > 0.8 * log[0]["reward"]


def test_muon_steps_as_torch_does():
    """torch iterates in bfloat16: equal up to its rounding. The last matrix has no gradient."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(24, 8), (8, 24), (16, 16), (4, 4)]
    ours, expected = ([torch.nn.Parameter(torch.ones(s)) for s in shapes] for _ in range(2))
    optimizers = (
        Muon(ours, lr=0.1, weight_decay=0.3),
        torch.optim.Muon(expected, lr=0.1, weight_decay=0.3, adjust_lr_fn="match_rms_adamw"),
    )
    for _ in range(3):
        for pair in zip(ours[:-1], expected[:-1], strict=True):
            gradient = torch.randn(pair[0].shape, generator=generator)
            pair[0].grad, pair[1].grad = gradient, gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(ours, expected, atol=0.02, rtol=0.02)


def test_transformers_loads_what_was_trained(tmp_path):
    transformers = pytest.importorskip("transformers")
    trained = train(tmp_path, model=MOE, steps=3)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert loaded.dtype == torch.bfloat16
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = tokenizer("Anna had a red ball.", return_tensors="pt").input_ids
    with torch.no_grad():
        logits, expected = loaded(ids).logits.float(), trained.model.eval()(ids)
    torch.testing.assert_close(logits, expected, atol=0.02, rtol=0.02)


def test_a_loss_that_is_not_a_number_ends_the_run(tmp_path):
    broken = begin(tmp_path)
    with torch.no_grad():
        broken.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(TrainError, match="not a number at step 0"):
        next(broken.steps())


# going on


def test_a_run_that_goes_on_ends_where_an_unbroken_one_does(tmp_path, monkeypatch):
    monkeypatch.setattr(rewards, "MOST", 12)
    recipe = {"model": MOE, "steps": 4, "save_every": 2, "requests": 1}
    whole = train(tmp_path / "whole", **recipe)
    broken = begin(tmp_path / "broken", **recipe)
    for _ in zip(range(3), broken.steps(), strict=False):
        pass  # the third step is lost
    again = begin(tmp_path / "broken", **recipe)
    assert again.step == 2
    for _ in again.steps():
        pass
    check_equal(again.model, whole.model)
    logs = [[{**line, "tokens_per_second": 0} for line in r.run.log] for r in (again, whole)]
    assert logs[0] == logs[1]
    assert logs[1][-1]["tokens"] == 4 * 4 * 48


def test_a_run_begins_with_the_weights_of_another(tmp_path, dense_run):
    source = dense_run / "model"
    second = begin(tmp_path / "second", after=source, begun_with="first", seed=1)
    check_equal(checkpoint.load(source, solutions), second.model)
    assert not torch.equal(second.rows.batch(0, 4), begin(tmp_path / "a").rows.batch(0, 4))
    with pytest.raises(TrainError, match="weights of first; name them again with --from"):
        begin(tmp_path / "second", begun_with="first", seed=1)
    with pytest.raises(TrainError, match="a different shape than the recipe's model"):
        begin(tmp_path / "third", after=source, model=DENSE | {"head_dim": 4})


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
    with pytest.raises(TrainError, match=r"No space left.*goes on from there"):
        list(steps)
    assert files_in(tmp_path) == before
    monkeypatch.undo()
    assert begin(tmp_path, save_every=2).step == 2


# the command


def test_an_interrupt_saves_what_was_learned(tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path / "r.json", save_every=5)
    train_step = Trainer.train_step

    def interrupt(self):
        if self.step == 2:
            signal.raise_signal(signal.SIGINT)
        return train_step(self)

    monkeypatch.setattr(Trainer, "train_step", interrupt)
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


# the card


def test_the_card_of_a_named_model_holds_what_was_measured(tmp_path, monkeypatch):
    train(tmp_path, model=MOE, steps=3)
    folder = tmp_path / "model"
    monkeypatch.setattr(measure, "NEW_TOKENS", 8)
    scores = measure.scores_of(folder, solutions, 2)
    assert scores["greedy"]["sound"] < 1 and scores["sampled"]["visitors"] == 0
    assert scores["long sampled"]["sound"] < 1 and 0 < scores["shuffled"] <= 1
    assert len(scores["experts"]) == 2
    assert all(sum(layer) == pytest.approx(1, abs=0.01) for layer in scores["experts"])

    monkeypatch.setattr(checkpoint, "resolve", lambda name: folder)
    monkeypatch.setattr(measure, "scores_of", lambda *_: scores)
    log = (folder / "log.csv").read_bytes()
    for name, content in (([], log), (["x"], None), (["x"], log)):
        assert not (folder / "scores.json").exists()
        (folder / "log.csv").unlink(missing_ok=True)
        if content:
            (folder / "log.csv").write_bytes(content)
        code, output = run_command("measure", *name)
        assert code == 0 and "questions about a true" in output
    assert json.loads((folder / "scores.json").read_text()) == scores
    text = (folder / "README.md").read_text()
    assert f"**{scores['bits_per_byte']:.3f} bits per byte**" in text
    assert "6 experts of size 16 in every layer, of which a token uses 2" in text
    assert "temperature 0.3" in text
    assert "3 steps of 4 sequences of 48 tokens" in text and "make it again" in text


def test_a_short_context_is_measured_and_what_does_not_fit_is_wrong(tmp_path, monkeypatch):
    """Lab 08's model reads 256 tokens; stories of two chapters are longer."""
    train(tmp_path, steps=3, model=DENSE | {"max_position_embeddings": 96})
    monkeypatch.setattr(measure, "NEW_TOKENS", 8)
    scores = measure.scores_of(tmp_path / "model", solutions, 2)
    assert scores["long sampled"]["questions_right"] == 0


def test_what_visitors_ask_can_be_answered():
    """Every right answer has one of the forms of the stories' answers."""
    forms = (
        r"(NAME|Nobody) has it\.|(It|She|He) is .+\.|NAME (gave|found|fixed) it( to h\w+)?\."
        r"|(Yes|No), (she|he|it) (is|did)( not)?\.|NAME is an? \w+\."
        r"|(She|He) (has|ate|found|hid) .+\.|Because .+ (broke|lost .+)\.|.+ is in it\."
    ).replace("NAME", f"({'|'.join(GENDER)})")
    asked = measure.visitors()
    assert len(asked) == 100 and len(measure.visitors(2)) == 4
    assert sum(UNTOLD in accepted for accepted in asked.values()) == 14
    for text, accepted in asked.items():
        assert accepted and "\n" in text
        for answer in accepted:
            assert answer == UNTOLD or re.fullmatch(forms, answer), answer
