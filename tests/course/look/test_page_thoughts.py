"""A model that thinks, in the page: thoughts are folded, kept to a budget, and forgotten."""

import json
import re
import shutil

import pytest
import torch

import solutions
from labkit.look.export import model_script
from labkit.look.page import Shown, write
from labkit.model import checkpoint
from labkit.model.chat.thoughts import CLOSING
from labkit.model.tokenizer import Tokenizer
from labkit.model.values import CheckpointError
from solutions.generation import generate
from tests.course.look.conftest import Page
from tests.course.reference.small import TEMPLATE, write_chat_folder, write_tokenizer

ALWAYS = TEMPLATE.replace(  # as the templates of models that always think have it
    "{%- if enable_thinking is defined and enable_thinking is false %}",
    "{%- if enable_thinking is not false %}{{- '<think>\\n' }}{%- else %}",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("thinks")
    (place / "tokenizer").mkdir()
    write_tokenizer(place / "tokenizer", ALWAYS)
    return write_chat_folder(place / "thinker", place / "tokenizer")


@pytest.fixture(scope="module")
def thinking(browser, tmp_path_factory, folder):
    page = tmp_path_factory.mktemp("page")
    write(page, [Shown("thinker", folder), "stories-dense"])
    return Page(browser, page)


def test_a_thought_ends_with_its_budget_and_is_folded(thinking, folder, barriers):
    model = checkpoint.load(folder, solutions, torch.float32)
    tokenizer, closing = Tokenizer(folder), Tokenizer(folder).encode(CLOSING)
    talk = [{"role": "user", "content": "Hello"}]
    thinking.visit(f"{thinking.address}#tokens&temperature=0&budget=16&q=Hello")
    prompt = torch.tensor([tokenizer.chat_prompt(talk)])
    assert tokenizer.decode(prompt[0].tolist(), False).endswith("<think>\n")
    stops = sorted(tokenizer.stop_ids)
    thought = generate(model, prompt, max_new_tokens=15, eos_token_id=stops)[0].tolist()
    ids = thinking.js("return TinyLLM.app.run.ids")
    first = prompt.size(1) - 1  # the line end that the template writes counts
    assert ids[: first + 16] == thought
    assert ids[first + 16 : first + 16 + len(closing)] == closing
    whole = torch.tensor([ids[: first + 16 + len(closing)]])
    rest = len(ids) - whole.size(1)
    answer = generate(model, whole, max_new_tokens=rest, eos_token_id=stops)[0].tolist()
    assert ids == answer and rest > 0
    ((begin, _),) = thinking.js("return TinyLLM.app.answers")
    assert begin == whole.size(1)

    def seen():
        return thinking.js(
            "return [...document.querySelectorAll('#text .thought')]"
            ".filter((each) => each.checkVisibility()).length"
        )

    assert seen() == 1 and thinking.js("return fold.ariaPressed") == "false"
    shown = "getComputedStyle(document.querySelector('[data-tokens]'), '::after').content"
    assert re.search(r"a thought of \d+ tokens", thinking.js(f"return {shown}"))
    thinking.press("#fold", "Show thoughts")
    assert seen() > 15 and thinking.js("return fold.ariaPressed") == "true"
    barriers(thinking.browser)
    assert thinking.browser.get_log("browser") == []


def test_a_next_request_does_not_read_the_thought_again(thinking, folder):
    thinking.visit(f"{thinking.address}#tokens&temperature=0&budget=16&q=Hello")
    thinking.js(
        "TinyLLM.app.run.cut(TinyLLM.app.answers[0][0] + 4)"
    )  # it never stops by itself
    answer = thinking.js("return TinyLLM.app.run.ids.slice(-4)")
    thinking.ask("And now?")
    ids = thinking.js("return TinyLLM.app.run.ids")
    text = Tokenizer(folder).decode(ids, False)
    assert text.count("<think>") == 1 and text.index("And now?") < text.index("<think>")
    assert str(answer)[1:-1] in str(ids)


def test_a_budget_of_none_asks_for_an_answer_at_once(thinking, folder):
    thinking.visit(f"{thinking.address}#tokens&temperature=0&budget=0&q=Hello")
    talk = [{"role": "user", "content": "Hello"}]
    prompt = Tokenizer(folder).chat_prompt(talk, thinking=False)
    assert thinking.js("return TinyLLM.app.run.ids")[: len(prompt)] == prompt
    assert thinking.js("return [TinyLLM.app.thoughts.length, fold.hidden]") == [0, True]


def test_an_accent_joins_its_letter_before_a_text_is_encoded(thinking, folder):
    text = "cafe\u0301 de\u0301ja\u0300"
    thinking.visit(f"{thinking.address}#tokens")
    ids = thinking.js("return TinyLLM.app.loaded.tokenizer.encode(arguments[0])", text)
    assert ids == Tokenizer(folder).encode(text)


def test_a_tokenizer_of_another_kind_is_refused(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "other")
    path = other / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": {"type": "NFD"}}))
    with pytest.raises(CheckpointError, match="reads byte-level BPE"):
        model_script("other", other)


def test_a_model_that_never_thinks_is_not_asked_for_it(thinking):
    thinking.visit(f"{thinking.address}#tokens&model=stories-dense")
    assert thinking.js("return [thinks.hidden, fold.hidden]") == [True, True]
