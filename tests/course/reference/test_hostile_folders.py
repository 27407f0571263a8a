"""Hostile checkpoint folders: each is refused soon, in one sentence without control
characters."""

import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from labkit.learner.talk import commands
from labkit.look.commands import look
from labkit.model import hub
from labkit.model.chat import template
from labkit.model.tokenizer import Tokenizer
from labkit.model.weights import INDEX, SINGLE
from solutions import generation

GOOD = hub.SHIPPED["stories-dense"]
DEEP = "[" * 100_000 + "]" * 100_000
HUGE = 10**9
MOE = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}
CONFIG, TOKENIZER, TEMPLATE = "config.json", "tokenizer.json", "chat_template.jinja"
SETTINGS, GENERATION = "tokenizer_config.json", "generation_config.json"

app = typer.Typer()
app.command()(commands.chat)
app.command()(look)


def values(file, **changes):
    def change(folder):
        found = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(found | changes))

    return change


def text(file, content):
    data = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / file).write_bytes(data)


def model(**changes):
    """Changes of the model in tokenizer.json."""

    def change(folder):
        found = json.loads((folder / TOKENIZER).read_text())
        found["model"] |= changes
        (folder / TOKENIZER).write_text(json.dumps(found))

    return change


def pattern(expression):
    return pattern_of({"Regex": expression})


def pattern_of(expression):
    step = {"type": "Split", "pattern": expression, "behavior": "Isolated", "invert": False}
    return values(TOKENIZER, pre_tokenizer=steps("pretokenizers", step))


def special_tokens(folder):
    found = json.loads((folder / TOKENIZER).read_text())
    first, last = found["added_tokens"][-1], len(found["model"]["vocab"]) + 1000
    found["added_tokens"] += [
        first | {"id": last + n, "content": f"<{n}>", "special": True} for n in range(10_000)
    ]
    (folder / TOKENIZER).write_text(json.dumps(found))


def replacing(text, other):
    return {"type": "Replace", "pattern": {"String": text}, "content": other}


def steps(key, step, times=1):
    return {"type": "Sequence", key: [step] * times}


def index(places):
    def change(folder):
        (folder / SINGLE).rename(folder / "part.safetensors")
        (folder / INDEX).write_text(places if isinstance(places, str) else json.dumps(places))

    return change


def header(dtype, *names):
    """A file of empty tensors"""
    tensor = {"dtype": dtype, "shape": [0], "data_offsets": [0, 0]}
    data = json.dumps(dict.fromkeys(names, tensor)).encode()
    return text(SINGLE, len(data).to_bytes(8, "little") + data)


def pipe(file):
    def change(folder):
        (folder / file).unlink(missing_ok=True)
        os.mkfifo(folder / file)

    return change


def large(file):
    def change(folder):
        with (folder / file).open("wb") as made:
            made.truncate(20 * 2**30)

    return change


LOOP = "{% for a in range(99999) %}"
DOUBLED = "{% set n = namespace(v='xx') %}{% for i in range(60) %}{% set n.v = n.v ~ n.v %}"
LONG = "[" * 400 + "]" * 400

REFUSED = {  # {name: (a change of the folder, words of the error)}
    "eos a dict": (values(GENERATION, eos_token_id={"a": 1}), "eos_token_id is {'a': 1}; exp"),
    "eos too large": (values(GENERATION, eos_token_id=10**30), "expected a token id or a"),
    "deep settings": (text(GENERATION, DEEP), f"{GENERATION} is nested too deeply"),
    "end token an object": (values(SETTINGS, eos_token={"content": {}}), "eos_token is {'con"),
    "template a number": (values(SETTINGS, chat_template=3), "chat_template is 3; expected te"),
    "config deep": (text(CONFIG, DEEP), f"{CONFIG} is nested too deeply"),
    "config a pipe": (pipe(CONFIG), f"there is no {{folder}}/{CONFIG}"),
    "kind of model a list": (values(CONFIG, model_type=[]), "model_type is []; expected text"),
    "architectures": (values(CONFIG, architectures=5), "architectures is 5; expected a list"),
    "rope nested": (values(CONFIG, rope_parameters={"rope_type": [1]}), "rope_type is [1]"),
    "rope infinite": (values(CONFIG, rope_theta=float("inf")), "rope_theta is inf"),
    "dense layers": (values(CONFIG, mlp_only_layers=[[1]]), "mlp_only_layers is [[1]]; expec"),
    "message too long": (values(CONFIG, hidden_act="x" * 10**6), "x ..."),
    "message too deep": (values(CONFIG, hidden_act=json.loads(LONG)), "only 'silu' is built"),
    "many layers": (values(CONFIG, num_hidden_layers=HUGE), "holds 46 tensors; by num_hidden"),
    "many words": (values(CONFIG, vocab_size=HUGE), "by vocab_size in its config.json the mo"),
    "wide experts": (
        values(CONFIG, **MOE, num_experts=8, moe_intermediate_size=HUGE),
        "by moe_intermediate_size in its config.json",
    ),
    "pattern that backtracks": (pattern("(a+)+$"), "the pattern '(a+)+$' is not Qwen3's"),
    "pattern a text": (pattern_of("(a+)+$"), "the pattern '(a+)+$' is not Qwen3's"),
    "special tokens": (special_tokens, "has 10,003 special tokens; expected at most 10,000"),
    "text that grows": (
        values(TOKENIZER, normalizer=steps("normalizers", replacing("h", "hh"), 40)),
        "normalizer has a step 'Replace'",
    ),
    "escapes in the decoder": (
        values(TOKENIZER, decoder=steps("decoders", replacing(" ", "\x1b[31m"))),
        "decoder has a step 'Replace'; a byte-level tokenizer such as Qwen3's has only Seq",
    ),
    "a step without a type": (
        values(TOKENIZER, normalizer={"pattern": {"String": "h"}, "content": "hh"}),
        "normalizer has a step None",
    ),
    "another tokenizer": (model(type="WordLevel"), "model has a step 'WordLevel'"),
    "prefix longer than words": (model(continuing_subword_prefix="ééé"), "expected nothing"),
    "large token ids": (model(vocab={"a": 4 * HUGE}, merges=[]), "token ids go up to 400000"),
    "escapes in merges": (model(merges=[["\x1b[31mX", "b"]]), "out of vocabulary"),
    "tokenizer a pipe": (pipe(TOKENIZER), f"{TOKENIZER} is missing"),
    "template that loops": (
        text(TEMPLATE, LOOP * 3 + "{% endfor %}" * 3),
        f"the chat template in {{folder}}/{TEMPLATE}: it takes more than 1 seconds"),
    "template that writes": (
        text(TEMPLATE, LOOP * 2 + "x" * 99 + "{% endfor %}" * 2),
        "it writes more than 1,048,576 letters",
    ),
    "template with a huge power": (text(TEMPLATE, "{{ 7 ** (10**9) }}"), "it takes more than"),
    "template that counts": (text(TEMPLATE, "{{ range(10**9)|length }}"), "Range too big"),
    "template that doubles": (text(TEMPLATE, DOUBLED + "{% endfor %}"), "it takes more than"),
    "template with escapes": (text(TEMPLATE, "{{ raise_exception('\x1b[') }}"), "\ufffd["),
    "template in Latin-1": (text(TEMPLATE, b"\xff\xfe"), f"{TEMPLATE} is not text in UTF-8"),
    "template of 20 GB": (large(TEMPLATE), f"{TEMPLATE} has more than 64 MB"),
    "shard a number": (index({"weight_map": {"a": 3, "b": "x"}}), "weight_map is {'a': 3, '"),
    "shard elsewhere": (index({"weight_map": {"a": "../x.safetensors"}}), "expected an object"),
    "index empty": (index({"weight_map": {}}), "no weight_map, or an empty one"),
    "many tensors": (header("F32", *map(str, range(140_000))), "140,000 tensors; expected at"),
    "escapes in a name": (header("I8", "\x1b[31m"), "\ufffd[31m in {folder}"),
}  # fmt: skip

TAKEN = {  # harmless changes: the model writes the same text
    "as it is": lambda folder: None,
    "padding": values(TOKENIZER, padding={
        "strategy": {"Fixed": 10**10}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}),
    "truncation": values(TOKENIZER, truncation={
        "direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}),
    "nothing said of the end": values(GENERATION, eos_token_id=None),
    "a card in Latin-1 that is not read": text("README.md", b"\xff"),
}  # fmt: skip
FOR_THE_PAGE = {
    "template without messages": (text(TEMPLATE, "hello"), "wrote 0 of 3"),
    "template that repeats": (
        text(TEMPLATE, "{% for m in messages %}{{ m.content * 2 }}{% endfor %}"),
        "wrote 6 of 3",
    ),
    "weights of other sizes": (values(CONFIG, vocab_size=1000), "of another shape"),
    "card not in UTF-8": (text("README.md", b"\xff"), "README.md is not text in UTF-8"),
}
OF_REFUSED = ("eos a dict", "config a pipe", "many layers", "index empty", "escapes in a name")


@pytest.fixture(autouse=True)
def limits():
    """Limits of memory and time, for a folder that is not refused"""

    def end(*_):
        raise TimeoutError

    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, end)
    resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30, before[1]))
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, handler)
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(template, "SECONDS", 1)
    monkeypatch.setattr(template, "WALL", 3)
    return Path(shutil.copytree(GOOD, tmp_path / "stranger"))


def run(*arguments):
    stdin = "hello " + "a" * 40 + "!\n"
    result = CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "\x1b" not in result.output and "Traceback" not in result.output
    return result


def chat(folder):
    flags = ("--package", "solutions", "--max-new-tokens", 5, "--seed", 1)
    return run("chat", folder, *flags)


def refused(result, folder, words):
    assert result.exit_code == 2, result.output
    said = " ".join(result.stderr.split())
    assert words.replace("{folder}", str(folder)) in said and len(said) < 1500


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_that_cannot_be(name, folder):
    change, words = REFUSED[name]
    change(folder)
    refused(chat(folder), folder, words)


@pytest.mark.parametrize("name", TAKEN)
def test_a_folder_that_does_no_harm(name, folder, tmp_path):
    expected = chat(shutil.copytree(folder, tmp_path / "good")).stdout
    TAKEN[name](folder)
    result = chat(folder)
    assert result.exit_code == 0 and result.stdout == expected


@pytest.mark.parametrize("name", [*FOR_THE_PAGE, *OF_REFUSED])
def test_a_folder_that_no_page_shows(name, folder):
    change, words = {**REFUSED, **FOR_THE_PAGE}[name]
    change(folder)
    page = folder.parent / "page"
    refused(run("look", "--no-browser", "--to", page, folder), folder, words)
    assert not page.exists()


def test_what_a_model_writes_steers_no_terminal(folder, monkeypatch):
    """An escape sequence may span tokens; joiners are printable."""
    written = "\x1b[31mred\x1b]0;title\x07 \x9b2J\u202eok \u200d\U0001f525\r\n"
    ids = Tokenizer(folder).encode(written)
    assert len(ids) > 15

    def scripted(model, input_ids, on_token, **_):
        for token in ids:
            on_token(torch.tensor([token]))

    monkeypatch.setattr(generation, "generate", scripted)
    mark = "\ufffd"
    shown = f"{mark}[31mred{mark}]0;title{mark} {mark}2J{mark}ok \u200d\U0001f525{mark}\n\n"
    assert chat(folder).stdout == shown
