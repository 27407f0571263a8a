"""Visible checks of lab 07: what check("7.1") and its sisters run."""

import pytest
import torch

from labkit.checks.runner import Call, Given, Outcome, assert_drawn, assert_same, compare
from labkit.sandboxed.call import tensors_in


def room(outcome):
    """How many numbers a cache holds room for, from its attributes keys and values."""
    if outcome.failure:
        return outcome
    sizes = [sum(t.numel() for _, t in tensors_in(v, "")) for v in outcome.values[-2:]]
    named = zip(
        ("room for keys, in numbers", "room for values, in numbers"), sizes, strict=True
    )
    return Outcome(values=[dict(named)])


def cache_call(layers=2, max_length=6, **options):
    init = {"num_hidden_layers": layers, "max_length": max_length}
    return Call("KVCache", init=init, **options)


def updated(call, rng, *steps, shape=(2, 3, 4), dtype=torch.float32, wider=0):
    """The call with more steps: (layer, new tokens) for an update, or ".attribute".

    shape    (B, K, D) of keys; the D of values is `wider`
    """
    batch, heads, size = shape
    for step in steps:
        if isinstance(step, str):
            call.then(step)
            continue
        layer, tokens = step
        key = rng.normal(batch, heads, tokens, size).to(dtype)
        value = rng.normal(batch, heads, tokens, size + wider).to(dtype)
        call.then("update", layer_idx=layer, key=key, value=value)
    return call


@pytest.mark.exercise("7.1")
class TestKVCache:
    def test_first(self, student, reference, rng):
        """the first update gives back what it got"""
        compare(student, reference, updated(cache_call(), rng, (0, 3)))

    def test_append(self, student, reference, rng):
        """three updates of one layer, up to the last place"""
        compare(student, reference, updated(cache_call(), rng, (0, 1), (0, 3), (0, 2)))

    def test_layers(self, student, reference, rng):
        """two layers take turns"""
        compare(student, reference, updated(cache_call(), rng, (0, 3), (1, 3), (0, 2), (1, 2)))

    def test_length(self, student, reference, rng):
        """length before and after each step"""
        steps = (".length", (0, 3), (1, 3), ".length", (0, 2), (1, 2), ".length")
        compare(student, reference, updated(cache_call(), rng, *steps))

    @pytest.mark.parametrize("ahead", [0, 1])
    def test_length_within(self, student, reference, rng, ahead):
        """length while only layer {ahead} has its new tokens"""
        call = updated(cache_call(), rng, (0, 3), (1, 3), (ahead, 2), ".length")
        compare(student, reference, call)

    def test_dtype(self, student, reference, rng):
        """bfloat16 keys and values"""
        call = updated(cache_call(), rng, (0, 3), (0, 1), dtype=torch.bfloat16)
        compare(student, reference, call)

    def test_value_size(self, student, reference, rng):
        """values with more features than keys"""
        compare(student, reference, updated(cache_call(), rng, (0, 2), (0, 2), wider=1))

    def test_room(self, student, reference, rng):
        """room for max_length tokens from the first update on"""
        call = updated(cache_call(layers=1), rng, (0, 2), ".keys", ".values")
        assert_same(room(student(call)), room(reference(call)))

    def test_positions(self, student, reference, rng):
        """arguments by position: layer_idx, key, value"""
        compare(student, reference, updated(cache_call(by_position=True), rng, (1, 1), (1, 2)))

    def test_full(self, student, reference, rng):
        """a token too many raises ValueError"""
        compare(student, reference, updated(cache_call(), rng, (0, 5), (0, 2)))

    def test_batch(self, student, reference, rng):
        """another batch size raises ValueError"""
        call = updated(cache_call(), rng, (0, 2))
        compare(student, reference, updated(call, rng, (0, 2), shape=(1, 3, 4)))


PROBS = (0.4, 0.3, 0.15, 0.1, 0.05)
HEAD = (0.3, 0.25, 0.09, 0.085, 0.08, 0.075, 0.065, 0.055)  # two large ones, and a long tail


def log(probs):
    """In float64 first: float32's own differs from processor to processor."""
    return torch.tensor(probs, dtype=torch.float64).log().float()


def logits_of(rng, rows, probs=PROBS, shift=3, dtype=torch.float32):
    """(rows, V), all rows alike, in an order of its own."""
    order = torch.from_numpy(rng.generator.permutation(len(probs)))
    row = torch.zeros(len(probs))
    row[order] = log(probs)
    return (row + shift * rng.normal(1)).to(dtype).repeat(rows, 1)


def two_kinds(rng, rows=600):
    """(rows, 10): by turns, rows that know what they want and rows that do not, each with five
    tokens of its own."""
    logits = torch.full((2, 10), -50.0)
    logits[0, 0::2] = log((0.7, 0.2, 0.06, 0.025, 0.015)) + 6
    logits[1, 1::2] = log((0.24, 0.22, 0.2, 0.18, 0.16))
    return logits[:, torch.from_numpy(rng.generator.permutation(10))].repeat(rows // 2, 1)


def shuffled(rng, logits, rows=600, dtype=torch.float32):
    """(rows, V), all rows alike: these very scores, in an order of its own."""
    order = torch.from_numpy(rng.generator.permutation(len(logits)))
    return torch.as_tensor(logits, dtype=dtype)[order].repeat(rows, 1)


def sample_call(rng, logits, **inputs):
    generator = Given("generator", seed=int(rng.integers(0, 2**31)))
    options = {k: inputs.pop(k) for k in ("summary", "by_position") if k in inputs}
    inputs = {"logits": logits, **inputs, "generator": generator}
    return Call("sample_next_token", **options, **inputs)


def forgiving(student):
    """The student, forgiven for writing into the logits: that costs one check and not all."""

    def perform(call):
        outcome = student(call)
        outcome.changed.clear()
        return outcome

    return perform


def sampled(student, reference, call):
    return compare(forgiving(student), reference, call)


def unseeded(logits, **inputs):
    """Three calls without a generator; only whether they repeat counts."""
    inputs = {"logits": logits, **inputs}
    call = Call("sample_next_token", summary="repeats", **inputs)
    return call.then("", **inputs).then("", **inputs)


def repeated(call):
    """The call made again, and with another generator; only whether they repeat counts."""
    again, call.summary = dict(call.steps[0][1]), "repeats"
    return call.then("", **again).then("", **{**again, "generator": Given("generator", seed=1)})


@pytest.mark.exercise("7.2")
class TestSampleNextToken:
    def drawn(self, rng, probs=PROBS, **inputs):
        return sample_call(rng, logits_of(rng, 600, probs), summary="drawn", **inputs)

    def test_greedy(self, student, reference, rng):
        """temperature 0 takes the highest score"""
        call = sample_call(rng, 3 + 0.01 * rng.normal(7, 9), temperature=0.0)
        sampled(student, reference, call)

    def test_certain(self, student, reference, rng):
        """a token that has all the probability"""
        logits = torch.full((4, 6), -torch.inf)
        logits[range(4), rng.integers(0, 6, 4)] = rng.normal(4)
        sampled(student, reference, sample_call(rng, logits))

    def test_all(self, student, reference, rng):
        """every token may be drawn where nothing is cut off"""
        sampled(student, reference, self.drawn(rng))

    def test_top_1(self, student, reference, rng):
        """top_k 1 leaves the best"""
        call = sample_call(rng, rng.normal(40, 6), temperature=1.5, top_k=1)
        sampled(student, reference, call)

    def test_one_row(self, student, reference, rng):
        """one row gives one token, (1,)"""
        sampled(student, reference, sample_call(rng, rng.normal(1, 6), top_k=1))

    def test_many_tokens(self, student, reference, rng):
        """a vocabulary of 4,100 tokens"""
        logits = rng.normal(4, 4100)
        logits[range(4), (2049, 4097, 2049, 3)] += 30
        sampled(student, reference, sample_call(rng, logits, top_p=0.9))

    @pytest.mark.parametrize("top_k", [3, 9])
    def test_top_k(self, student, reference, rng, top_k):
        """top_k {top_k} of 5 tokens: which are ever drawn"""
        sampled(student, reference, self.drawn(rng, top_k=top_k))

    def test_top_p_one(self, student, reference, rng):
        """top_p below the best probability leaves the best"""
        sampled(student, reference, self.drawn(rng, top_p=0.02))

    @pytest.mark.parametrize("top_p", [0.6, 0.92, 1.0])
    def test_top_p(self, student, reference, rng, top_p):
        """top_p {top_p}: which are ever drawn"""
        sampled(student, reference, self.drawn(rng, top_p=top_p))

    @pytest.mark.parametrize("temperature", [0.5, 3.0])
    def test_temperature_and_top_p(self, student, reference, rng, temperature):
        """top_p 0.8 after temperature {temperature}"""
        sampled(student, reference, self.drawn(rng, temperature=temperature, top_p=0.8))

    @pytest.mark.parametrize(("top_k", "top_p"), [(4, 0.74), (5, 0.67)])
    def test_top_k_and_top_p(self, student, reference, rng, top_k, top_p):
        """top_p {top_p} of what top_k {top_k} has left"""
        sampled(student, reference, self.drawn(rng, HEAD, top_k=top_k, top_p=top_p))

    @pytest.mark.parametrize("cut", [{"top_k": 3}, {"top_p": 0.6}], ids=["top_k", "top_p"])
    def test_rows(self, student, reference, rng, cut):
        """rows that differ, each with its own cut: {cut}"""
        call = sample_call(rng, two_kinds(rng), summary="drawn", **cut)
        sampled(student, reference, call)

    def test_ties(self, student, reference, rng):
        """two tokens of equal score"""
        logits = logits_of(rng, 200, (0.35, 0.35, 0.2, 0.07, 0.03))
        sampled(student, reference, sample_call(rng, logits, top_p=0.6, summary="drawn"))

    def test_reached(self, student, reference, rng):
        """top_p 0.5 of 0.5, 0.25 and 0.25 leaves one token"""
        logits = shuffled(rng, log((1, 0.5, 0.5)))
        sampled(student, reference, sample_call(rng, logits, top_p=0.5, summary="drawn"))

    def test_cold(self, student, reference, rng):
        """temperature 0.001, for float16 scores below 0"""
        gaps = torch.stack([rng.integers(0, 60, 5) + 100 * torch.arange(5) for _ in range(8)])
        logits = (gaps / 4 - 250).half()
        sampled(student, reference, sample_call(rng, logits, temperature=0.001, top_k=2))

    def test_bfloat16(self, student, reference, rng):
        """top_p 0.769, for bfloat16 scores"""
        logits = shuffled(rng, (2.375, 1.125, 0.5, 0.375, 0.0), dtype=torch.bfloat16)
        sampled(student, reference, sample_call(rng, logits, top_p=0.769, summary="drawn"))

    def test_generator(self, student, reference, rng):
        """the same generator draws the same, another one does not"""
        sampled(student, reference, repeated(sample_call(rng, rng.normal(64, 20))))

    def test_no_generator(self, student, reference, rng):
        """without a generator every call draws anew"""
        sampled(student, reference, unseeded(rng.normal(64, 20)))

    def test_positions(self, student, reference, rng):
        """arguments by position: logits, temperature, top_k, top_p, generator"""
        call = self.drawn(rng, temperature=0.9, top_k=3, top_p=1.0, by_position=True)
        sampled(student, reference, call)

    def test_impossible(self, student, reference, rng):
        """impossible settings raise ValueError"""
        logits = rng.normal(2, 5)
        call = sample_call(rng, logits, top_k=1).then("", logits=logits, top_p=0.0)
        sampled(student, reference, call)

    def test_logits_kept(self, student, reference, rng):
        """the logits stay as they are"""
        call = sample_call(rng, rng.normal(6, 9), temperature=0.7, top_k=1, top_p=0.9)
        call.then("", **{**call.steps[0][1], "temperature": 1.0})
        compare(student, reference, call)

    @pytest.mark.parametrize("temperature", [0.6, 2.0])
    def test_frequencies(self, student, reference, rng, temperature):
        """how often each is drawn at temperature {temperature}"""
        logits = logits_of(rng, 4000)
        call = sample_call(rng, logits, temperature=temperature, summary="counts")
        probs = (logits[0].double() / temperature).softmax(-1)
        assert_drawn(forgiving(student)(call), reference(call), probs)

    def test_frequencies_of_bfloat16(self, student, reference, rng):
        """how often each is drawn at temperature 0.7, for bfloat16 scores"""
        logits = shuffled(rng, (64.0, 64.5, 65.0, 65.5), 4000, torch.bfloat16)
        call = sample_call(rng, logits, temperature=0.7, summary="counts")
        probs = (logits[0].double() / 0.7).softmax(-1)
        assert_drawn(forgiving(student)(call), reference(call), probs)


def generate_call(rng, rows=1, tokens=4, new=6, **inputs):
    options = {k: inputs.pop(k) for k in ("summary", "by_position", "grad") if k in inputs}
    if "model" not in inputs:
        inputs["model"] = Given("tiny_decoder", seed=int(rng.integers(0, 10**6)))
    inputs = {"input_ids": rng.integers(0, 23, rows, tokens), **inputs}
    return Call("generate", **options, max_new_tokens=new, **inputs)


def script(*rows, vocab=12, **options):
    """A model that says these tokens after a prompt of three."""
    said = torch.tensor([[0, 0, 0, *row] for row in rows])
    table = 20.0 * torch.nn.functional.one_hot(said, vocab).float()
    return Given("scripted", script=table, **options)


def scripted_call(rng, *rows, vocab=12, **inputs):
    prompt = {"tokens": 3, "rows": len(rows), "new": len(rows[0])}
    inputs = {"pad_token_id": 9, **inputs}
    inputs["input_ids"] = rng.integers(0, 12, len(rows), 3)
    return generate_call(rng, model=script(*rows, vocab=vocab), **prompt, **inputs)


def unsaid(rng, *rows, **inputs):
    """Prompts of three, all settings left to their defaults but a stop token, and then that."""
    said = torch.tensor([[0, 0, 0, *row] for row in rows])
    table = 20.0 * torch.nn.functional.one_hot(said, 12).float()
    model = Given("scripted", script=table, count_work=True)
    inputs = {"model": model, "input_ids": rng.integers(0, 12, len(rows), 3), **inputs}
    return Call("generate", **inputs, eos_token_id=6).then("", **inputs)


def bag(rng, probs=PROBS):
    """A model that gives tokens 0, 1, 2, ... probabilities, in an order of its own."""
    order = torch.from_numpy(rng.generator.permutation(len(probs)))
    table = torch.full((1, 9, 8), -torch.inf)
    table[:, :, order] = log(probs)
    return Given("scripted", script=table)


def bag_call(rng, rows=600, new=1, probs=PROBS, **inputs):
    """Which of its tokens a bag says; the prompt is all 7s."""
    call = generate_call(rng, model=bag(rng, probs), new=new, summary="drawn", **inputs)
    call.steps[0][1]["input_ids"] = torch.full((rows, 3), 7)
    return call


@pytest.mark.exercise("7.3")
class TestGenerate:
    def test_without_cache(self, student, reference, rng):
        """greedy, without a cache"""
        compare(student, reference, generate_call(rng, rows=2, use_cache=False))

    def test_with_cache(self, student, reference, rng):
        """greedy, with the cache"""
        compare(student, reference, generate_call(rng, rows=2))

    def test_defaults(self, student, reference, rng):
        """nothing else said: 100 tokens, greedy, with the cache, padded with 0"""
        compare(student, reference, unsaid(rng, (4, 8, 6, 5, 7), (5, 8, 7, 4, 11)))

    @pytest.mark.parametrize("use_cache", [True, False])
    def test_work(self, student, reference, rng, use_cache):
        """how many tokens the model is run on, use_cache {use_cache}"""
        every = torch.arange(40) % 40
        table = 20.0 * torch.nn.functional.one_hot(every, 40).float()[None]
        model = Given("scripted", script=table, count_work=True)
        call = generate_call(rng, model=model, new=5, use_cache=use_cache, grad=True)
        compare(student, reference, call)

    def test_padded(self, student, reference, rng):
        """prompts of different lengths, padded on the left"""
        mask = (torch.arange(5) >= torch.tensor([[3], [0], [2]])).long()
        call = generate_call(rng, rows=3, tokens=5, new=5, attention_mask=mask)
        compare(student, reference, call)

    def test_two(self, student, reference, rng):
        """a second prompt after the first"""
        call = generate_call(rng, tokens=5)
        call.then("", **{**call.steps[0][1], "input_ids": rng.integers(0, 23, 1, 3)})
        compare(student, reference, call)

    def test_stop(self, student, reference, rng):
        """a stop token ends the text and stays in it"""
        compare(student, reference, scripted_call(rng, (4, 8, 6, 7, 5), eos_token_id=6))

    def test_stop_at_once(self, student, reference, rng):
        """a stop token as the first word"""
        compare(student, reference, scripted_call(rng, (6, 5, 7), eos_token_id=6))

    def test_several(self, student, reference, rng):
        """several stop tokens"""
        for stops in ([11, 6], (6, 11)):
            compare(student, reference, scripted_call(rng, (4, 8, 6, 7, 5), eos_token_id=stops))

    def test_stop_in_prompt(self, student, reference, rng):
        """a stop token in the prompt ends nothing"""
        call = scripted_call(rng, (4, 8, 5, 6, 7), eos_token_id=6)
        call.steps[0][1]["input_ids"] = torch.tensor([[3, 6, 2]])
        compare(student, reference, call)

    def test_many_tokens(self, student, reference, rng):
        """a vocabulary of 4,100 tokens"""
        call = scripted_call(rng, (2049, 5, 4097, 7), vocab=4100)
        call.steps[0][1]["input_ids"] = torch.tensor([[4097, 3, 2049]])
        compare(student, reference, call)

    @pytest.mark.parametrize("padding", [9, 6])
    def test_rows(self, student, reference, rng, padding):
        """each row ends by itself, at 6, and is padded with {padding}"""
        rows = ((4, 8, 6, 7, 5, 4), (6, 5, 7, 4, 6, 3), (4, 5, 8, 7, 6, 1))
        call = scripted_call(rng, *rows, eos_token_id=6, pad_token_id=padding)
        compare(student, reference, call)

    def test_on_token(self, student, reference, rng):
        """on_token hears every new column"""
        rows = ((4, 8, 6, 7, 5), (6, 5, 7, 4, 3), (4, 5, 8, 6, 1))
        call = scripted_call(rng, *rows, eos_token_id=6, on_token=Given("listener"))
        compare(student, reference, call)

    def test_at_once(self, student, reference, rng):
        """on_token hears a token before the next is computed"""
        model = script((4, 8, 5, 7), breaks_at=6)
        prompt = {"input_ids": rng.integers(0, 12, 1, 3), "new": 4}
        call = generate_call(rng, model=model, on_token=Given("gone_after", tokens=2), **prompt)
        compare(student, reference, call)

    @pytest.mark.parametrize(
        "settings",
        [{"top_k": 3}, {"top_p": 0.6}, {"top_p": 0.8, "temperature": 0.5}, {}],
        ids=["top_k", "top_p", "temperature", "all"],
    )
    def test_settings(self, student, reference, rng, settings):
        """settings for the draw: {settings}"""
        compare(student, reference, bag_call(rng, **{"temperature": 1.0, **settings}))

    def test_generator(self, student, reference, rng):
        """the generator decides the draw"""
        generator = Given("generator", seed=int(rng.integers(2, 2**31)))
        call = generate_call(rng, rows=3, new=12, temperature=1.5, generator=generator)
        compare(student, reference, repeated(call))

    def test_generator_goes_on(self, student, reference, rng):
        """the generator goes on from token to token"""
        generator = Given("generator", seed=int(rng.integers(2, 2**31)))
        settings = {"temperature": 1.0, "generator": generator}
        call = bag_call(rng, rows=3, new=60, probs=(0.4, 0.3, 0.2, 0.1), **settings)
        compare(student, reference, call)

    def test_no_generator(self, student, reference, rng):
        """without a generator every text is drawn anew"""
        call = generate_call(rng, rows=3, new=12, temperature=1.5, summary="repeats")
        compare(student, reference, call.then("", **call.steps[0][1]))

    def test_positions(self, student, reference, rng):
        """arguments by position, in the order of the stub"""
        inputs = {"attention_mask": torch.ones(1, 3).long(), "max_new_tokens": 4}
        inputs |= {"temperature": 0.0, "top_k": None, "top_p": None, "eos_token_id": (8, 11)}
        model = script((4, 5, 8, 7))
        call = Call("generate", by_position=True, model=model,
                    input_ids=rng.integers(0, 12, 1, 3), **inputs)  # fmt: skip
        compare(student, reference, call)

    def test_refused(self, student, reference, rng):
        """padding on the right raises ValueError"""
        call = generate_call(rng, rows=1)
        mask = torch.tensor([[1, 1, 1, 0]])
        call.then("", **{**call.steps[0][1], "attention_mask": mask})
        compare(student, reference, call)
