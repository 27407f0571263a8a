"""A model that thinks first: its thought is folded, shown on request, kept to a budget."""

import pytest
import torch
import typer
from typer.testing import CliRunner

import solutions
from labkit.learner.talk import commands
from labkit.model.chat.stream import Speed, stream
from labkit.model.chat.thoughts import Thought
from labkit.model.checkpoint import load
from labkit.model.tokenizer import Tokenizer
from solutions import generation

app = typer.Typer()
app.command()(commands.generate)
app.command()(commands.chat)
PROMPT = [65, 66]


@pytest.fixture(scope="module")
def loaded(chat_folder):
    return load(chat_folder, solutions), Tokenizer(chat_folder)


@pytest.fixture
def scripted(loaded, monkeypatch):
    """Replaces generate: it writes a fixed reply, and its prompts are collected."""
    _, tokenizer = loaded
    prompts, reply = [], ["<think>\na b c d\n</think>\n\nthe answer"]

    def generate(model, ids, max_new_tokens, on_token, **_):
        prompt = tokenizer.decode(ids[0].tolist(), skip_special_tokens=False)
        text = reply[0]
        prompts.append(prompt)
        if len(prompts) > 1 and prompt.endswith("</think>\n\n"):
            text = "the answer"
        for token in tokenizer.encode(text)[:max_new_tokens]:
            on_token(torch.tensor([token]))

    monkeypatch.setattr(generation, "generate", generate)
    return prompts, reply


def written(loaded, budget, prompt=PROMPT, most=100):
    model, tokenizer = loaded
    shown, speed = [], Speed()
    thought = Thought(tokenizer, prompt, budget, shown.append)
    text = stream(model, tokenizer, prompt, generation.generate, lambda piece: None,
                  max_new_tokens=most, speed=speed, thought=thought)  # fmt: skip
    return text.strip("\n"), "".join(shown), thought, speed


def test_a_thought_is_told_from_the_answer(loaded, scripted):
    text, thinking, thought, speed = written(loaded, 100)
    assert text == "the answer" and thinking == "\na b c d\n"
    assert thought.count == len(loaded[1].encode("\na b c d\n")) and not speed.cut
    assert len(scripted[0]) == 1


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_a_budget_closes_the_thought_and_the_answer_comes(loaded, scripted, budget):
    text, _, thought, _ = written(loaded, budget)
    assert text == "the answer" and thought.count == budget
    _, second = scripted[0]
    ids = loaded[1].encode("<think>\na b c d")[: 1 + budget]
    assert second.endswith(loaded[1].decode(ids, False) + "\n</think>\n\n")


def test_a_prompt_that_opens_the_thought(loaded, scripted):
    prompts, reply = scripted
    reply[0] = "a b c d\n</think>\n\nthe answer"
    prompt = loaded[1].encode("<think>\n")
    assert written(loaded, 100, prompt)[:2] == ("the answer", "a b c d\n")
    assert written(loaded, 0, prompt)[:2] == ("the answer", "")
    assert prompts[-1] == "<think>\n\n</think>\n\n"


def test_an_answer_without_a_thought_and_a_thought_without_an_answer(loaded, scripted):
    scripted[1][0] = "the answer"
    text, thinking, thought, _ = written(loaded, 0)
    assert (text, thinking, thought.written) == ("the answer", "", [])
    scripted[1][0] = "<think>\na b c d"
    text, _, thought, speed = written(loaded, 50, most=4)
    assert text == "" and thought.count == 3 and speed.cut


def test_chat_folds_a_thought_or_shows_it_and_forgets_it(chat_folder, scripted):
    prompts, _ = scripted
    result = CliRunner().invoke(app, ["chat", str(chat_folder)], input="one\ntwo\n")
    assert result.stdout == "the answer\nthe answer\n", result.output
    assert result.stderr.count("(a thought of ") == 2 and "a b c" not in result.stderr
    assert "a b c" not in prompts[-1] and "the answer" in prompts[-1]
    words = ["chat", str(chat_folder), "--thoughts", "--budget", "3"]
    result = CliRunner().invoke(app, words, input="one\n")
    assert "(a thought of 3 tokens)" in result.stderr and "\na" in result.stderr
    assert result.stdout == "the answer\n"
