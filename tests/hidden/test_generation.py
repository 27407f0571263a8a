"""Hidden checks of lab 07: other chunks, other sizes, distributions instead of draws."""

import pytest
import torch
from visible.test_generation import (
    bag_call,
    cache_call,
    forgiving,
    generate_call,
    logits_of,
    repeated,
    room,
    sample_call,
    sampled,
    script,
    scripted_call,
    shuffled,
    two_kinds,
    unsaid,
    unseeded,
    updated,
)

from labkit.checks.runner import Call, Given, Outcome, assert_drawn, assert_same, compare

HALF = [torch.bfloat16, torch.float16]


@pytest.mark.exercise("7.1")
class TestKVCache:
    def call(self, rng, *steps, layers=3, max_length=7, shape=(3, 2, 6), **options):
        call = cache_call(layers, max_length)
        return updated(call, rng, *steps, shape=shape, **options)

    @pytest.mark.parametrize("chunks", [(7,), (1, 1, 1, 1), (4, 3), (2, 1, 3), (1, 6)])
    def test_chunks(self, student, reference, rng, chunks):
        """one layer, tokens in chunks of {chunks}"""
        compare(student, reference, self.call(rng, *((1, tokens) for tokens in chunks)))

    @pytest.mark.points(2)
    @pytest.mark.parametrize("shape", [(1, 1, 3), (4, 1, 5), (2, 4, 8)])
    def test_layers(self, student, reference, rng, shape):
        """three layers take turns, (batch, KV heads, head_dim) {shape}"""
        steps = [(layer, tokens) for tokens in (3, 1, 2) for layer in (0, 1, 2)]
        compare(student, reference, self.call(rng, *steps, max_length=6, shape=shape))

    def test_length(self, student, reference, rng):
        """length before and after each step"""
        steps = [".length"]
        for tokens in (4, 1, 2):
            steps += [(0, tokens), (1, tokens), (2, tokens), ".length"]
        compare(student, reference, self.call(rng, *steps, max_length=9))

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
    def test_length_within(self, student, reference, rng, order):
        """length while layers get their new tokens in the order {order}"""
        steps = [(layer, 2) for layer in order]
        for layer in order:
            steps += [(layer, 3), ".length"]
        compare(student, reference, self.call(rng, *steps))

    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} keys and values"""
        compare(student, reference, self.call(rng, (0, 2), (0, 3), dtype=dtype))

    def test_latent(self, student, reference, rng):
        """one head whose values are larger than its keys, as a latent has it"""
        compare(student, reference, self.call(rng, (2, 3), (2, 2), shape=(2, 1, 3), wider=4))

    def test_strided(self, student, reference, rng):
        """keys and values that are not contiguous"""
        call = self.call(rng)
        for tokens in (3, 2):
            key, value = (rng.normal(2, tokens, 4, 6).transpose(1, 2) for _ in range(2))
            call.then("update", layer_idx=0, key=key, value=value)
        compare(student, reference, call)

    @pytest.mark.points(2)
    @pytest.mark.parametrize("tokens", [1, 5])
    def test_room(self, student, reference, rng, tokens):
        """room for max_length tokens from the first update on"""
        steps, sizes = ((0, tokens), ".keys", ".values"), {"layers": 1, "max_length": 11}
        call = self.call(rng, *steps, **sizes)
        assert_same(room(student(call)), room(reference(call)))

    def test_positions(self, student, reference, rng):
        """arguments by position: layer_idx, key, value"""
        call = self.call(rng, (1, 2), (1, 2))
        call.by_position = True
        compare(student, reference, call)

    def test_full(self, student, reference, rng):
        """a token too many raises ValueError"""
        compare(student, reference, self.call(rng, (0, 4), (0, 3), (0, 1)))

    def test_batch(self, student, reference, rng):
        """another batch size raises ValueError"""
        call = self.call(rng, (0, 2), shape=(3, 2, 4))
        compare(student, reference, updated(call, rng, (0, 2), shape=(1, 2, 4)))


@pytest.mark.exercise("7.2")
class TestSampleNextToken:
    EVEN = (0.24, 0.21, 0.18, 0.15, 0.1, 0.08, 0.04)
    STEEP = (0.55, 0.2, 0.1, 0.08, 0.07)

    def drawn(self, rng, probs, dtype=torch.float32, **inputs):
        logits = logits_of(rng, 600, probs, 2, dtype)
        return sample_call(rng, logits, summary="drawn", **inputs)

    @pytest.mark.parametrize("shape", [(1, 3), (6, 50), (33, 7)])
    def test_greedy(self, student, reference, rng, shape):
        """temperature 0 takes the highest score, whatever else is set"""
        logits = 5 + 0.01 * rng.normal(*shape)
        call = sample_call(rng, logits, temperature=0.0, top_k=3, top_p=0.7)
        sampled(student, reference, call)

    @pytest.mark.parametrize("settings", [{"top_k": 1}, {"temperature": 1e-6}])
    def test_determined(self, student, reference, rng, settings):
        """settings that leave one token: {settings}"""
        sampled(student, reference, sample_call(rng, rng.normal(50, 9), **settings))

    @pytest.mark.parametrize("dtype", HALF)
    def test_certain(self, student, reference, rng, dtype):
        """{dtype} rows in which one token has all the probability"""
        logits = torch.full((9, 5), -torch.inf)
        logits[range(9), rng.integers(0, 5, 9)] = rng.normal(9)
        call = sample_call(rng, logits.to(dtype), temperature=1.7, top_k=4, top_p=0.9)
        sampled(student, reference, call)

    @pytest.mark.parametrize("settings", [{}, {"top_k": 1}, {"top_p": 0.01}])
    def test_one_row(self, student, reference, rng, settings):
        """one row gives one token, (1,): {settings}"""
        logits = rng.normal(1, 9)
        logits[0, int(rng.integers(0, 9))] += 50
        sampled(student, reference, sample_call(rng, logits, **settings))

    @pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"top_k": 2, "top_p": 0.6}])
    def test_many_ids(self, student, reference, rng, settings):
        """a vocabulary of 5,000 tokens: {settings}"""
        logits = rng.normal(6, 5000)
        logits[range(6), (4097, 2049, 3, 2049, 4097, 4097)] += 30
        sampled(student, reference, sample_call(rng, logits, **settings))

    @pytest.mark.parametrize("top_k", [2, 4, 7, 30])
    def test_top_k(self, student, reference, rng, top_k):
        """top_k {top_k} of 7 tokens: which are ever drawn"""
        sampled(student, reference, self.drawn(rng, self.EVEN, top_k=top_k))

    @pytest.mark.parametrize("top_p", [0.01, 0.5, 0.7, 0.95, 1.0])
    def test_top_p(self, student, reference, rng, top_p):
        """top_p {top_p}: which are ever drawn"""
        sampled(student, reference, self.drawn(rng, self.EVEN, top_p=top_p))

    @pytest.mark.parametrize(("temperature", "top_p"), [(0.5, 0.9), (2.5, 0.6)])
    def test_temperature_first(self, student, reference, rng, temperature, top_p):
        """temperature {temperature}, then top_p {top_p}"""
        call = self.drawn(rng, self.STEEP, temperature=temperature, top_p=top_p)
        sampled(student, reference, call)

    @pytest.mark.parametrize(("top_k", "top_p"), [(3, 0.85), (5, 0.69), (4, 0.76)])
    def test_top_k_first(self, student, reference, rng, top_k, top_p):
        """top_p {top_p} of what top_k {top_k} has left"""
        probs = (0.33, 0.25, 0.09, 0.08, 0.075, 0.07, 0.06, 0.045)
        sampled(student, reference, self.drawn(rng, probs, top_k=top_k, top_p=top_p))

    @pytest.mark.points(2)
    @pytest.mark.parametrize(
        "cut",
        [{"top_k": 2}, {"top_p": 0.65}, {"top_k": 4, "top_p": 0.6}],
        ids=["top_k", "top_p", "both"],
    )
    def test_rows(self, student, reference, rng, cut):
        """rows that differ, each with its own cut: {cut}"""
        call = sample_call(rng, two_kinds(rng, 800), summary="drawn", temperature=0.9, **cut)
        sampled(student, reference, call)

    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} scores: which are ever drawn"""
        call = self.drawn(rng, self.STEEP, dtype=dtype, temperature=0.8, top_p=0.85)
        sampled(student, reference, call)

    def test_cold(self, student, reference, rng):
        """temperature 0.0005, for float16 scores below 0"""
        gaps = torch.stack([rng.integers(0, 60, 6) + 100 * torch.arange(6) for _ in range(8)])
        logits = (gaps / 4 - 200).half()
        sampled(student, reference, sample_call(rng, logits, temperature=0.0005, top_k=3))

    def test_bfloat16(self, student, reference, rng):
        """top_p 0.691, for bfloat16 scores"""
        logits = shuffled(rng, (1.625, 1.375, 1.0, 0.25), dtype=torch.bfloat16)
        sampled(student, reference, sample_call(rng, logits, top_p=0.691, summary="drawn"))

    def test_reached(self, student, reference, rng):
        """top_p reached exactly leaves no token more"""
        logits = shuffled(rng, torch.tensor((1, 0.5, 0.5)).log())
        call = sample_call(rng, logits, top_k=3, top_p=0.5, summary="drawn")
        sampled(student, reference, call)

    def test_ties(self, student, reference, rng):
        """tokens of equal score on both sides of the cut"""
        sampled(student, reference, self.drawn(rng, (0.28, 0.28, 0.28, 0.08, 0.08), top_p=0.7))

    def test_many(self, student, reference, rng):
        """a vocabulary of 90 tokens, 12 of them kept"""
        probs = (*(0.05 + 0.002 * i for i in range(12)), *(0.001 + 1e-5 * i for i in range(78)))
        sampled(student, reference, self.drawn(rng, probs, top_k=12))

    def test_strided(self, student, reference, rng):
        """scores that are not contiguous"""
        call = sample_call(rng, rng.normal(9, 20).T, top_k=1, temperature=0.7)
        sampled(student, reference, call)

    def test_logits_kept(self, student, reference, rng):
        """the logits stay as they are"""
        call = sample_call(rng, rng.normal(6, 9), temperature=1.3, top_k=1, top_p=0.9)
        call.then("", **{**call.steps[0][1], "temperature": 1.0})
        compare(student, reference, call)

    def test_no_generator(self, student, reference, rng):
        """without a generator every call draws anew"""
        sampled(student, reference, unseeded(rng.normal(80, 30), temperature=1.2, top_p=0.99))

    @pytest.mark.points(2)
    def test_generator(self, student, reference, rng):
        """the same generator draws the same, another one does not"""
        call = sample_call(rng, rng.normal(80, 30), temperature=1.2, top_p=0.99)
        sampled(student, reference, repeated(call))

    def test_positions(self, student, reference, rng):
        """arguments by position: logits, temperature, top_k, top_p, generator"""
        call = self.drawn(rng, self.EVEN, temperature=0.9, top_k=5, top_p=1.0, by_position=True)
        sampled(student, reference, call)

    def test_impossible(self, student, reference, rng):
        """impossible settings raise ValueError"""
        logits = rng.normal(2, 5)
        call = sample_call(rng, logits, top_k=1).then("", logits=logits, top_p=0.0)
        sampled(student, reference, call)

    @pytest.mark.points(2)
    @pytest.mark.parametrize(
        "settings",
        [{}, {"temperature": 0.5}, {"temperature": 3.0}, {"top_k": 3}, {"top_p": 0.6}],
        ids=["plain", "cold", "hot", "top_k", "top_p"],
    )
    def test_frequencies(self, student, reference, rng, settings):
        """how often each is drawn with {settings}"""
        logits = logits_of(rng, 2500, self.EVEN, 2)
        call = sample_call(rng, logits, summary="counts", **settings)
        probs = (logits[0].double() / settings.get("temperature", 1.0)).softmax(-1)
        kept = 3 if settings.keys() & {"top_k", "top_p"} else len(probs)
        probs = probs.where(probs >= probs.sort(descending=True).values[kept - 1], 0.0)
        assert_drawn(forgiving(student)(call), reference(call), probs)

    def test_frequencies_of_bfloat16(self, student, reference, rng):
        """how often each is drawn at temperature 1.3, for bfloat16 scores"""
        logits = shuffled(rng, (128.0, 129.0, 130.0, 131.0), 2500, torch.bfloat16)
        call = sample_call(rng, logits, temperature=1.3, summary="counts")
        probs = (logits[0].double() / 1.3).softmax(-1)
        assert_drawn(forgiving(student)(call), reference(call), probs)


@pytest.mark.exercise("7.3")
class TestGenerate:
    def scripted(self, rng, *rows, **inputs):
        return scripted_call(rng, *rows, vocab=15, pad_token_id=13, **inputs)

    def test_defaults(self, student, reference, rng):
        """nothing else said: 100 tokens, greedy, with the cache, padded with 0"""
        rows = ((4, 8, 11, 6, 5, 7), (5, 8, 7, 4, 11, 3), (6, 1, 2, 3, 4, 5))
        compare(student, reference, unsaid(rng, *rows))

    @pytest.mark.parametrize("use_cache", [True, False])
    @pytest.mark.parametrize(("rows", "tokens", "new"), [(1, 1, 1), (3, 7, 9), (2, 2, 12)])
    def test_greedy(self, student, reference, rng, use_cache, rows, tokens, new):
        """{rows} prompts of {tokens} tokens, {new} new ones, use_cache {use_cache}"""
        compare(student, reference, generate_call(rng, rows, tokens, new, use_cache=use_cache))

    def test_both_alike(self, student, reference, rng):
        """draws with the cache equal those without"""
        settings = {"temperature": 1.3, "top_k": 15, "top_p": 0.97}
        generator = Given("generator", seed=int(rng.integers(2, 2**31)))
        call = generate_call(rng, 3, 5, 8, **settings, generator=generator, summary="repeats")
        again = dict(call.steps[0][1])
        call.then("", **{**again, "use_cache": False})
        call.then("", **{**again, "generator": Given("generator", seed=1)})
        compare(student, reference, call)

    @pytest.mark.points(2)
    @pytest.mark.parametrize("use_cache", [True, False])
    def test_work(self, student, reference, rng, use_cache):
        """how many tokens the model is run on, use_cache {use_cache}"""
        table = 20.0 * torch.eye(90)[None]
        model = Given("scripted", script=table, count_work=True)
        call = generate_call(rng, tokens=6, model=model, new=7, use_cache=use_cache, grad=True)
        compare(student, reference, call)

    @pytest.mark.points(2)
    @pytest.mark.parametrize("use_cache", [True, False])
    def test_padded(self, student, reference, rng, use_cache):
        """prompts of different lengths, padded on the left, use_cache {use_cache}"""
        mask = (torch.arange(6) >= torch.tensor([[4], [0], [2], [5]])).long()
        call = generate_call(rng, 4, 6, 7, attention_mask=mask, use_cache=use_cache)
        compare(student, reference, call)

    def test_alone(self, student, reference, rng):
        """a padded prompt goes on as it does alone"""
        inputs = {"model": Given("tiny_decoder", seed=int(rng.integers(0, 10**6)))}
        call = generate_call(rng, 2, 6, 8, **inputs)
        call.steps[0][1]["attention_mask"] = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])
        both = compare(student, reference, call)
        alone = generate_call(rng, new=8, **inputs)
        alone.steps[0][1]["input_ids"] = call.steps[0][1]["input_ids"][:1, 2:]
        cut = Outcome(values=[both.value[:1, 2:]])
        assert_same(cut, reference(alone))

    def test_two(self, student, reference, rng):
        """a second prompt after the first"""
        call = generate_call(rng, 2, 5)
        call.then("", **{**call.steps[0][1], "input_ids": rng.integers(0, 23, 1, 3)})
        call.then("", **call.steps[0][1])
        compare(student, reference, call)

    def test_to_the_limit(self, student, reference, rng):
        """prompt and new tokens fill max_position_embeddings"""
        compare(student, reference, generate_call(rng, 1, 252, 4))

    @pytest.mark.parametrize("stops", [6, [6], (11, 6), (6, 11), (1, 6, 12)])
    def test_stop(self, student, reference, rng, stops):
        """a stop token ends the text and stays in it: {stops}"""
        compare(student, reference, self.scripted(rng, (4, 8, 5, 6, 7, 5), eos_token_id=stops))

    def test_stop_at_once(self, student, reference, rng):
        """a stop token as the first word"""
        compare(student, reference, self.scripted(rng, (6, 5, 7, 8), eos_token_id=6))

    def test_no_stop(self, student, reference, rng):
        """no stop token, one that never comes, and one in the prompt alone"""
        call = self.scripted(rng, (4, 5, 7, 8))
        call.then("", **{**call.steps[0][1], "eos_token_id": 14})
        late = {**call.steps[0][1], "input_ids": torch.tensor([[12, 3, 12]])}
        call.then("", **late, eos_token_id=12)
        compare(student, reference, call)

    def test_many_tokens(self, student, reference, rng):
        """a vocabulary of 5,000 tokens"""
        rows = ((2049, 5, 4097, 6, 1), (4097, 2049, 2, 6, 8))
        call = scripted_call(rng, *rows, vocab=5000, eos_token_id=(6, 7))
        call.steps[0][1]["input_ids"] = torch.tensor([[4097, 5, 2049], [7, 4097, 2049]])
        compare(student, reference, call)

    @pytest.mark.points(2)
    @pytest.mark.parametrize(("stops", "padding"), [(6, 13), ((6, 11), 13), ((6, 11), 11)])
    def test_rows(self, student, reference, rng, stops, padding):
        """each row ends by itself, at {stops}, and is padded with {padding}"""
        rows = ((4, 8, 6, 7, 5, 4, 3), (6, 5, 7, 4, 6, 3, 2), (4, 11, 8, 7, 4, 6, 1))
        settings = {"eos_token_id": stops, "pad_token_id": padding}
        compare(student, reference, scripted_call(rng, *rows, vocab=15, **settings))

    @pytest.mark.parametrize("use_cache", [True, False])
    def test_on_token(self, student, reference, rng, use_cache):
        """on_token hears every new column, padding included"""
        rows = ((4, 8, 6, 7, 5, 1), (6, 5, 7, 4, 2, 3), (4, 5, 8, 7, 6, 2))
        inputs = {"on_token": Given("listener"), "use_cache": use_cache}
        compare(student, reference, self.scripted(rng, *rows, eos_token_id=6, **inputs))

    def test_at_once(self, student, reference, rng):
        """on_token hears a token before the next is computed"""
        model = script((4, 8, 5, 7, 3), vocab=15, breaks_at=7)
        prompt = {"input_ids": rng.integers(0, 12, 1, 3), "new": 5}
        call = generate_call(rng, model=model, on_token=Given("gone_after", tokens=3), **prompt)
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
        call = generate_call(rng, rows=4, new=12, temperature=1.8, generator=generator)
        compare(student, reference, repeated(call))

    def test_generator_goes_on(self, student, reference, rng):
        """the generator goes on from token to token"""
        generator = Given("generator", seed=int(rng.integers(2, 2**31)))
        settings = {"temperature": 1.0, "generator": generator, "use_cache": False}
        call = bag_call(rng, rows=3, new=60, probs=(0.35, 0.3, 0.2, 0.15), **settings)
        compare(student, reference, call)

    def test_no_generator(self, student, reference, rng):
        """without a generator every text is drawn anew"""
        call = generate_call(rng, rows=4, new=14, temperature=1.8, summary="repeats")
        compare(student, reference, call.then("", **call.steps[0][1]))

    def test_positions(self, student, reference, rng):
        """arguments by position, in the order of the stub"""
        inputs = {"attention_mask": torch.ones(1, 3).long(), "max_new_tokens": 5}
        inputs |= {"temperature": 0.0, "top_k": None, "top_p": None, "eos_token_id": (8, 11)}
        inputs |= {"pad_token_id": 2, "generator": None, "use_cache": True}
        model = script((4, 5, 8, 7, 6), vocab=15)
        call = Call("generate", by_position=True, model=model,
                    input_ids=rng.integers(0, 12, 1, 3), **inputs)  # fmt: skip
        compare(student, reference, call)

    def test_refused(self, student, reference, rng):
        """padding on the right raises ValueError"""
        call = generate_call(rng, rows=1)
        mask = torch.tensor([[1, 1, 1, 0]])
        call.then("", **{**call.steps[0][1], "attention_mask": mask})
        compare(student, reference, call)
