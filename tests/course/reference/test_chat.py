"""The token stream, and the commands chat and generate with pipes and bad input."""

import re
import sys
import types

import oracle
import pytest
import torch
import typer
from typer.testing import CliRunner

import solutions
from labkit.learner.talk import commands
from labkit.model import hub
from labkit.model.chat.stream import ChatError, Sampling, Speed, fit_history, stream
from labkit.model.checkpoint import load
from labkit.model.tokenizer import Tokenizer
from solutions import generation

app = typer.Typer()
app.command()(commands.generate)
app.command()(commands.chat)
WHOSE = "The course's own code stands in for all of yours, labs 01 to 07.\n"
RATE = r"\d+ prompt tokens in [\d.]+ s, \d+ written at [\d.]+ tokens/s"


@pytest.fixture(scope="module")
def loaded(chat_folder):
    return load(chat_folder, solutions), Tokenizer(chat_folder)


def run(*arguments, stdin=""):
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


def refused(*arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr and not result.stdout


# ------------------------------------------------------------------------------ the stream


def pieces_of(*arguments, **settings):
    """The pieces that `stream` shows"""
    pieces = []
    whole = stream(*arguments, pieces.append, **settings)
    assert whole == "".join(pieces)
    return pieces


def test_stream_is_what_generate_writes(loaded):
    model, tokenizer = loaded
    ids, speed = tokenizer.encode("Anna has"), Speed()
    settings = {"speed": speed, "max_new_tokens": 60}
    pieces = pieces_of(model, tokenizer, ids, generation.generate, **settings)
    whole = generation.generate(
        model, torch.tensor([ids]), max_new_tokens=60, eos_token_id=list(tokenizer.stop_ids)
    )[0, len(ids) :].tolist()
    assert "".join(pieces) == tokenizer.decode(whole) and len(pieces) > 5
    assert len(speed.arrivals) == len(whole)
    assert re.fullmatch(RATE, str(speed))


def test_stream_comes_while_it_is_written_and_ends_when_its_reader_does(loaded):
    """The third piece is shown long before the last token is computed."""
    model, tokenizer = loaded
    asked, shown, at_third = [], [], []

    def counted(*args, on_token, **settings):
        def count(column):
            asked.append(1)
            on_token(column)

        return generation.generate(*args, on_token=count, **settings)

    def show(piece):
        shown.append(piece)
        if len(shown) == 3:
            at_third.append(len(asked))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stream(model, tokenizer, tokenizer.encode("The"), counted, show, max_new_tokens=120)
    assert len(asked) < 60 and at_third == [len(asked)]  # no further token was computed


def test_a_stop_token_ends_and_is_not_shown_and_errors_reach_the_reader(loaded):
    model, tokenizer = loaded
    stop = tokenizer.token_id("<|im_end|>")

    def scripted(model, ids, on_token, eos_token_id, **_):
        assert stop in eos_token_id
        for token in (*tokenizer.encode("a🙂"), stop):
            on_token(torch.tensor([token]))
        if ids.size(1) > 1:
            raise ZeroDivisionError("mine")

    speed, whole = Speed(), len(tokenizer.encode("a🙂")) + 1
    pieces = pieces_of(model, tokenizer, [1], scripted, speed=speed, max_new_tokens=whole)
    assert "".join(pieces) == "a🙂" and not speed.cut
    with pytest.raises(ZeroDivisionError, match="mine"):
        pieces_of(model, tokenizer, [1, 1], scripted)


def test_prompts_that_cannot_be_continued(loaded):
    model, tokenizer = loaded
    for ids, new, words in (
        ([], 5, "the prompt is empty"),
        ([1, 100_000], 5, "holds token 100000"),
        ([-1], 5, "holds token -1"),
        ([1] * 150, 11, "150 tokens and 11 shall follow; the model has room for 160"),
    ):
        with pytest.raises(ChatError, match=words):
            pieces_of(model, tokenizer, ids, generation.generate, max_new_tokens=new)


def test_a_model_whose_logits_are_nan_says_so(loaded):
    model, tokenizer = loaded
    norm = model.model.norm.weight
    before = norm.data.clone()
    norm.data[0] = float("nan")
    try:
        with pytest.raises(ChatError, match="logits are nan"):
            pieces_of(model, tokenizer, [1, 2], generation.generate)
    finally:
        norm.data.copy_(before)


def test_settings_from_the_checkpoint():
    qwen = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    assert Sampling.chosen(qwen) == Sampling(0.6, 20, 0.95)
    assert Sampling.chosen(qwen, top_k=5, temperature=None) == Sampling(0.6, 5, 0.95)
    assert Sampling.chosen({}) == Sampling(0.0)
    assert Sampling.chosen({"temperature": 0.6}, top_p=0.5) == Sampling(1.0, None, 0.5)
    assert Sampling.chosen({"do_sample": True, "top_k": 0}) == Sampling(1.0)


def test_history_drops_whole_turns(loaded):
    _, tokenizer = loaded
    turns = [
        {"role": role, "content": f"{role} {number}"}
        for number in range(4)
        for role in ("user", "assistant")
    ]
    messages = [{"role": "system", "content": "s"}, *turns, {"role": "user", "content": "end"}]
    whole = len(tokenizer.chat_prompt(messages))
    for room, expected in (
        (whole, messages),
        (whole - 1, [messages[0], *messages[3:]]),
        (1, [messages[0], messages[-1]]),
    ):
        kept, ids = fit_history(tokenizer, messages, room)
        assert kept == expected and ids == tokenizer.chat_prompt(expected)


# ------------------------------------------------------------------------------- generate


def test_generate_from_an_option_and_from_a_pipe(chat_folder, loaded):
    model, tokenizer = loaded
    ids = tokenizer.encode("Anna has")
    expected = "".join(pieces_of(model, tokenizer, ids, generation.generate, max_new_tokens=20))
    for arguments, stdin in ((["-p", "Anna has"], ""), ([], "Anna has\n")):
        result = run("generate", chat_folder, "--max-new-tokens", 20, *arguments, stdin=stdin)
        assert result.exit_code == 0, result.stderr
        assert result.stdout == expected + "\n"
        # no speed and no bar, as this is not a terminal
        told, size, end = result.stderr.split("\n")
        assert (told + "\n", end) == (WHOSE, "")
        count = sum(parameter.numel() for parameter in model.parameters())
        how = "float32, sped up by labkit/model/fast.py"
        assert size == f"{chat_folder}: {count:,} parameters in {how}."


def test_a_seed_draws_the_same_text(chat_folder):
    outputs = [
        run("generate", chat_folder, "-p", "A", "--temperature", 2, "--seed", seed).stdout
        for seed in (1, 1, 2)
    ]
    assert outputs[0] == outputs[1] != outputs[2]


def test_bad_requests(chat_folder, monkeypatch, tmp_path):
    for arguments, words in (
        (["-p", ""], "the prompt is empty"),
        ([], "the prompt is empty"),
        (["-p", "a b " * 100], "the model has room for 160"),
        (["-p", "a", "--max-new-tokens", 500], "500 shall follow"),
        (["-p", "a", "--max-new-tokens", 0], "--max-new-tokens"),
        (["-p", "a", "--device", "toaster"], "device 'toaster' cannot be used"),
        (["-p", "a", "--package", "no_such"], "there is no package 'no_such'"),
        (["-p", "a", "--package", "json"], "json offers no Qwen3Config"),
        (["-p", "x", "--temperature", -1.0], "temperature is -1.0"),
        (["-p", "x", "--temperature", "nan"], "temperature is nan"),
        (["-p", "x", "--temperature", "inf"], "temperature is inf"),
        (["-p", "x", "--top-k", 0], "top_k is 0"),
        (["-p", "x", "--top-p", 0.0], "top_p is 0.0"),
        (["-p", "x", "--top-p", 1.5], "top_p is 1.5"),
    ):
        refused("generate", chat_folder, *arguments, words=words)
    monkeypatch.setattr(hub, "SHIPPED", {"stories": tmp_path})
    for name in ("storys", "./nowhere"):
        refused("chat", name, words=f"there is no model '{name}'")


def test_a_package_that_does_not_run(chat_folder, monkeypatch):
    def stub(config):
        raise NotImplementedError("Exercise 6.3: Qwen3ForCausalLM")

    mine = types.ModuleType("mine")
    mine.Qwen3Config, mine.Qwen3ForCausalLM = oracle.Qwen3Config, stub
    monkeypatch.setitem(sys.modules, "mine", mine)
    words = "Exercise 6.3: Qwen3ForCausalLM is not written yet"
    refused("generate", chat_folder, "-p", "a", "--package", "mine", words=words)


# ----------------------------------------------------------------------------------- chat


@pytest.fixture
def seen(loaded, monkeypatch):
    """Replaces generate: it writes "answer N", and its prompts are collected."""
    _, tokenizer = loaded
    prompts = []

    def scripted(model, ids, on_token, **_):
        prompts.append(tokenizer.decode(ids[0].tolist(), skip_special_tokens=False))
        for token in tokenizer.encode(f"answer {len(prompts)}"):
            on_token(torch.tensor([token]))

    monkeypatch.setattr(generation, "generate", scripted)
    return prompts


def test_chat_through_a_pipe(chat_folder, loaded, seen):
    _, tokenizer = loaded
    lines = "one\n\n  \ntwo\n/reset\nthree\n/what\n/quit\nnever\n"
    result = run("chat", chat_folder, "--system", "S", "--no-think", stdin=lines)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "answer 1\nanswer 2\nanswer 3\n"
    told, _, forgotten, unknown, end = result.stderr.split("\n")
    assert (told + "\n", forgotten, end) == (WHOSE, "forgotten", "")
    assert unknown.startswith("there is no /what")
    system = {"role": "system", "content": "S"}
    asked = [{"role": "user", "content": text} for text in ("one", "two", "three")]
    first = {"role": "assistant", "content": "answer 1"}
    chats = [[system, asked[0]], [system, asked[0], first, asked[1]], [system, asked[2]]]
    assert seen == [tokenizer.chat_text(chat, thinking=False) for chat in chats]


def test_chat_helps_and_lets_go(seen):
    for leave in ("exit", "Quit", "/exit"):
        result = run("chat", "stories-dense", stdin=f"/help\n{leave}\nnever\n")
        assert result.exit_code == 0 and not result.stdout and not seen
        said = " ".join(result.stderr.split())
        assert "exit or Ctrl-D ends it" in said and "there is no" not in said
        assert "It knows few words" in said and "Tell me a story about a rabbit." in said


def test_chat_forgets_the_oldest_and_says_so(chat_folder, loaded, seen):
    _, tokenizer = loaded
    lines = "".join(f"question number {i}\n" for i in range(8))
    result = run("chat", chat_folder, stdin=lines)
    assert result.exit_code == 0 and len(seen) == 8
    told = " ".join(result.stderr.split())
    assert re.search(r"the model forgets the oldest \d+ messages, with any story", told)
    assert 80 < max(len(tokenizer.encode(prompt)) for prompt in seen) <= 120
    assert "number 0" not in seen[-1] and "number 7" in seen[-1]
    assert all(prompt.startswith("<|im_start|>user\n") for prompt in seen)


def test_chat_says_where_an_answer_is_cut(chat_folder, loaded, seen):
    count = len(loaded[1].encode("answer 1"))
    for more, cut in ((0, True), (1, False)):
        seen.clear()
        result = run("chat", chat_folder, "--max-new-tokens", count + more, stdin="one\n")
        assert result.stdout == "answer 1\n"
        assert (f"cut here, after {count} tokens" in " ".join(result.stderr.split())) is cut


def test_chat_goes_on_after_a_message_that_is_too_long(chat_folder, seen):
    result = run("chat", chat_folder, stdin="one\n" + "long " * 200 + "\ntwo")
    assert result.exit_code == 0, result.stderr
    assert "say it shorter" in result.stderr
    assert result.stdout == "answer 1\nanswer 2\n"
    assert "one" in seen[1] and "long" not in seen[1]


def test_a_chat_with_the_reference_is_sped_up(chat_folder):
    flags = ["--package", "solutions", "--max-new-tokens", 12]
    result = run("chat", chat_folder, *flags, stdin="hello\nhow are you\n")
    assert result.exit_code == 0 and result.stdout.endswith("\n")
    assert "fast.py" in result.stderr
    assert result.stderr.startswith("All code is that of the package solutions.\n")
    quiet = run("chat", chat_folder, *flags)
    assert not quiet.stdout
