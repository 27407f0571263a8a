"""The engine of the page against the reference: logits, tokens, the next token's chances."""

from unittest import mock

import pytest
import torch

import solutions
from labkit.model import checkpoint, hub
from labkit.model.tokenizer import Tokenizer
from solutions.generation import sample_next_token

TEXT = 'Anna had a red kite. "It is mine," said the fox. Who has the kite?'
STRINGS = [
    "", " ", "  two  spaces ", "\n\n", "\ta\r\n", TEXT, "4 + 32 = 36", "don't (stop)!?",
    "Zoë's café", "e\u0301 é", "🙂🙂 👩‍👩‍👧", "日本語 Ελληνικά",
    "\x00\x1b[1m", "\ufeffx\u0085y\u00a0z", "<|im_start|>user\n<think>",
    "a<|im_end|><|im_end|>", "<|im_", "x" * 200,
]  # fmt: skip
KNOBS = [
    (0.0, None, None), (1.0, None, None), (0.5, 5, None), (1.5, None, 0.8), (0.7, 40, 0.9),
    (1.0, 1, 0.1), (2.0, 5000, 1.0),
]  # fmt: skip


@pytest.fixture(scope="module")
def engine(browser, page):
    """Run JavaScript with the model of this name as `m`, and arguments; return its value."""
    browser.get((page / "index.html").as_uri())

    def run(name, script, *given):
        whole = (
            "const [name, given, done] = arguments; TinyLLM.load(name).then((m) => {"
            f"{script} }}).then(done, (error) => done('failed: ' + error.stack));"
        )
        found = browser.execute_async_script(whole, name, given)
        assert not str(found).startswith("failed"), found
        return found

    return run


@pytest.mark.parametrize("name", ["stories-dense", "stories-moe", "own"])
def test_logits_are_the_references(engine, own_folder, name):
    folder = hub.SHIPPED.get(name, own_folder)
    model = checkpoint.load(folder, solutions, torch.float32)
    ids = Tokenizer(folder).chat_prompt([{"role": "user", "content": TEXT}])
    script = """
        const run = new TinyLLM.Run(m.model);
        return run.read(given[0]).then(() => {
            run.cut(20);  // and again from here: what was cut off leaves nothing behind
            return run.read(given[0].slice(20));
        }).then(() => run.steps.map((step) => Array.from(step.logits)));"""
    logits = torch.tensor(engine(name, script, ids))
    with torch.no_grad():
        expected = model(torch.tensor([ids]))[0]
    assert logits.shape == expected.shape and expected.std() > 0.3
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=0)


def test_the_tokenizer_makes_the_same_tokens(engine):
    tokenizer = Tokenizer(hub.SHIPPED["stories-dense"])
    script = """
        const t = m.tokenizer;
        return given[0].map((text) => {
            const ids = t.encode(text);
            const texts = [t.decode(ids), t.decode(ids, false), t.decode(ids.slice(0, -1))];
            return [ids, ...texts, t.chatPrompt(text)];
        });"""
    for text, (ids, *rest) in zip(
        STRINGS, engine("stories-dense", script, STRINGS), strict=True
    ):
        assert ids == tokenizer.encode(text), text
        assert rest == [
            tokenizer.decode(ids),
            tokenizer.decode(ids, skip_special_tokens=False),
            tokenizer.decode(ids[:-1]),
            tokenizer.chat_prompt([{"role": "user", "content": text}]),
        ]


def test_tokens_are_shown_in_pieces_that_are_whole_characters(engine):
    script = """
        const t = m.tokenizer;
        return given[0].map((text) => {
            const ids = t.encode(text);
            const cuts = [ids, ids.slice(0, -1), ids.slice(1)];
            return cuts.map((some) => [some.length, t.pieces(some)]);
        });"""
    found = dict(zip(STRINGS, engine("stories-dense", script, STRINGS), strict=True))
    for text, cuts in found.items():
        assert "".join(piece["text"] for piece in cuts[0][1]) == text
        for length, pieces in cuts:
            assert sum(piece["size"] for piece in pieces) == length
    texts = [piece["text"] for piece in found["日本語 Ελληνικά"][0][1]]
    assert texts[:3] == ["日", "本", "語"]
    whole, half = (found["🙂🙂 👩‍👩‍👧"][cut][1] for cut in (0, 1))
    assert whole[-1]["text"].strip() == "👩‍👩‍👧"
    assert half[-1]["text"].startswith("\\x")  # bytes that are not a character


def test_the_next_token_has_the_references_chances(engine):
    logits = 3 * torch.randn(1, 300, generator=torch.Generator().manual_seed(1))
    script = """
        const [temperature, topK, topP] = given[1];
        const found = TinyLLM.candidates(given[0], { temperature, topK, topP });
        const out = given[0].map(() => 0);
        for (const { id, prob } of found) out[id] = prob;
        return [out, found.reduce((sum, each) => sum + each.plain, 0)];"""
    for temperature, top_k, top_p in KNOBS:
        expected = torch.zeros(1, 300)
        with mock.patch("torch.multinomial", side_effect=torch.multinomial) as drawn:
            best = sample_next_token(logits, temperature, top_k, top_p)
        if temperature:
            probs = drawn.call_args.args[0]
            order = logits.argsort(dim=-1, descending=True)
            expected.scatter_(1, order, probs / probs.sum())
        else:
            expected[0, best] = 1
        knobs = [temperature, top_k or 0, top_p or 1]
        probs, total = engine("stories-dense", script, logits[0].tolist(), knobs)
        probs = torch.tensor([probs], dtype=torch.float32)
        torch.testing.assert_close(probs, expected, atol=1e-5, rtol=1e-4, msg=str(knobs))
        assert total == pytest.approx(1, abs=1e-4)
