"""The shipped checkpoints: complete, small, with true cards, and able to talk."""

import json
import os
import subprocess
import sys

import pytest
import torch
import transformers

import solutions
from labkit.learner.lessons.data import Validation
from labkit.model import checkpoint
from labkit.model.chat import manners
from labkit.model.chat.stream import Sampling
from labkit.model.hub import SHIPPED
from labkit.model.tokenizer import Tokenizer
from solutions.generation import generate
from solutions.training import causal_lm_loss
from storyworld.reader import read_story
from training import card, measure
from training.asking import asked_words
from training.recipe import Recipe

pytestmark = pytest.mark.parametrize("name", SHIPPED)
TOLD = "<|im_start|>user\nTell me a story about Anna.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def loaded():
    return {name: checkpoint.load(folder, solutions) for name, folder in SHIPPED.items()}


def read(name, file):
    return json.loads((SHIPPED[name] / file).read_text())


def test_its_card_says_what_the_files_beside_it_hold(name):
    folder = SHIPPED[name]
    recipe, config = Recipe.from_file(folder / "recipe.json"), read(name, "config.json")
    assert {key: config[key] for key in recipe.model} == recipe.model
    assert config["dtype"] == "bfloat16"
    runs = read(name, "history.json")["runs"]
    rows = [run["steps"] * (run["batch_size"] + run.get("answers", 0)) for run in runs]
    tokens = sum(n * run["sequence_length"] for n, run in zip(rows, runs, strict=True))
    last = (folder / "log.csv").read_text().splitlines()[-1]
    assert last.startswith(f"{runs[-1]['steps']},{tokens},")
    assert max(path.stat().st_size for path in folder.iterdir()) < 8e6
    text = (folder / "README.md").read_text()
    assert text == card.card(folder, solutions)
    assert len(text.splitlines()) < 90  # one page
    assert f"on {tokens / 1e6:.1f} million tokens of text in {len(runs)} runs" in text


SAMPLE = 50  # stories; all questions of visitors


def far_off(scores, sample):
    """The shares of a sample that are more than three standard errors from the scores.

    "varied" is left out: it falls with the number of stories.
    """
    found = []
    for way in measure.WAYS:
        for key in sample[way].keys() - {"varied"}:
            share, n = scores[way][key], 14 if key == "visitors_unknown" else SAMPLE
            error = 3 * (share * (1 - share) / n) ** 0.5 + 1.01 / n
            if way == "greedy" and key.startswith("visitors"):
                error = 0.03  # the same questions, decoded greedily
            if abs(sample[way][key] - share) > error:
                found.append((way, key, share, sample[way][key]))
    return found


@pytest.mark.slow
def test_its_scores_are_measured_again_on_a_sample(name):
    scores, sample = (
        read(name, "scores.json"),
        measure.scores_of(SHIPPED[name], solutions, SAMPLE),
    )
    assert far_off(scores, sample) == []


def test_a_forged_score_is_noticed(name):
    scores = read(name, "scores.json")
    assert far_off(scores, scores) == []
    forged = {way: scores[way] | {"visitors": 0.99} for way in measure.WAYS[:2]}
    assert len(far_off(scores | forged, scores)) == 2


def test_every_word_of_its_card_was_asked_for_and_the_counts_are_what_comes(name, loaded):
    scores, tokenizer = read(name, "scores.json")["asked"], Tokenizer(SHIPPED[name])
    for kind, words in manners.LISTS.items():
        for counts in scores[kind].values():
            assert sum(counts[key] for key in ("granted", "told", "refused")) == len(words)
    sample = asked_words(
        lambda texts: measure.continuations(
            loaded[name], tokenizer, generate, texts, Sampling()
        ),
        most=4,
    )
    for form, counts in sample["beings"].items():
        assert counts["granted"] <= scores["beings"][form]["granted"]
    assert sample["beings"]["with an article"]["granted"] == 4
    assert sample["names"]["two of them"]["granted"] < 4


@pytest.mark.slow
def test_its_bits_per_byte_are_measured(name, loaded):
    folder, scores = SHIPPED[name], read(name, "scores.json")
    longest = loaded[name].config.max_position_embeddings
    validation = Validation(Tokenizer(folder).library, scores["stories"], longest, split="test")
    bits = validation.bits_per_byte(loaded[name], causal_lm_loss)
    assert bits == pytest.approx(scores["bits_per_byte"], rel=1e-2)


def test_transformers_loads_it_and_agrees(name, loaded):
    theirs = transformers.AutoModelForCausalLM.from_pretrained(SHIPPED[name], dtype="float32")
    tokenizer = transformers.AutoTokenizer.from_pretrained(SHIPPED[name])
    chat = [{"role": "user", "content": "Tell me a story about Anna."}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert text == TOLD == Tokenizer(SHIPPED[name]).chat_text(chat)
    ids = tokenizer(text, return_tensors="pt").input_ids
    assert ids[0].tolist() == Tokenizer(SHIPPED[name]).encode(text)
    ours = checkpoint.load(SHIPPED[name], solutions, torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)
        written = theirs.generate(ids, max_new_tokens=40, do_sample=False)
    eos = theirs.generation_config.eos_token_id
    assert written.tolist() == generate(ours, ids, max_new_tokens=40, eos_token_id=eos).tolist()


def test_it_talks_without_a_network(name):
    """In a process that cannot open a connection"""
    code = (
        "import socket, sys\n"
        "def refuse(*_): raise OSError('no network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from labkit.cli import app\n"
        "app(['chat', *sys.argv[1:], '--temperature', '0'])\n"
    )
    model = [] if name == next(iter(SHIPPED)) else [name]
    done = subprocess.run(
        [sys.executable, "-c", code, *model],
        input="Tell me a story about Anna.\n", capture_output=True, text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reading = read_story(done.stdout)
    assert "Anna" in done.stdout and len(reading.sentences) >= 4
    assert reading.understood >= len(reading.sentences) - 1
