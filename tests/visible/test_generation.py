"""Visible checks of lab 07: what check("7.1") and its sisters run."""

from dataclasses import replace
from functools import partial
from math import inf

import torch
from visible.questions import hunted

from labkit.checks.declared import Call, Given, Outcome, check, rows
from labkit.sandbox.inside.call import tensors_in

F32, BF16 = torch.float32, torch.bfloat16


def cache_call(
    rng, *steps, layers=2, max_length=6, shape=(2, 3, 4), dtype=F32, wider=0, **options
):
    """The steps of a cache: (layer, tokens) or (layer, tokens, batch) for an update, ".length".

    shape    (B, K, D) of keys; the D of values is `wider`
    """
    init = {"num_hidden_layers": layers, "max_length": max_length}
    call = Call("KVCache", init=init, **options)
    for step in steps:
        if isinstance(step, str):
            call.then(step)
            continue
        layer, tokens, batch = (*step, shape[0])[:3]
        key = rng.normal(batch, shape[1], tokens, shape[2]).to(dtype)
        value = rng.normal(batch, shape[1], tokens, shape[2] + wider).to(dtype)
        call.then("update", layer_idx=layer, key=key, value=value)
    return call


@check("7.1", chunks=[(3,), (1, 3, 2)])
def test_cache_chunks(rng, chunks, layer=0, **sizes):
    """one layer, tokens in chunks of {chunks}"""
    return cache_call(rng, *((layer, tokens) for tokens in chunks), **sizes)


@check("7.1", shape=[(2, 3, 4)])
def test_cache_layers(rng, shape, chunks=(3, 2), layers=2):
    """layers take turns, (batch, KV heads, head_dim) {shape}"""
    steps = [(layer, tokens) for tokens in chunks for layer in range(layers)]
    return cache_call(rng, *steps, layers=layers, shape=shape)


@check("7.1")
def test_cache_length(rng, chunks=(3, 2), layers=2, **sizes):
    """length before and after each step"""
    steps = [".length"]
    for tokens in chunks:
        steps += [*((layer, tokens) for layer in range(layers)), ".length"]
    return cache_call(rng, *steps, layers=layers, **sizes)


@check("7.1", order=[(0, 1), (1, 0)])
def test_cache_length_within(rng, order, **sizes):
    """length while layers get their new tokens in the order {order}"""
    later = [step for layer in order for step in ((layer, 3), ".length")]
    return cache_call(rng, *((layer, 2) for layer in order), *later, **sizes)


@check("7.1", cases=[{"dtype": BF16, "wider": 0}, {"dtype": F32, "wider": 1}])
def test_cache_forms(rng, dtype, wider, **sizes):
    """{dtype}, values with {wider} more features than keys"""
    return cache_call(rng, (0, 3), (0, 1), dtype=dtype, wider=wider, **sizes)


def room_sizes(outcomes):
    """How many numbers a cache holds room for, from its attributes keys and values."""
    outcome = outcomes[0]
    if outcome.failure:
        return outcomes
    keys, values = (sum(t.numel() for _, t in tensors_in(v, "")) for v in outcome.values[-2:])
    return [
        Outcome([{"room for keys, in numbers": keys, "room for values, in numbers": values}])
    ]


@check("7.1", view=room_sizes)
def test_cache_room(rng, tokens=2, **sizes):
    """room for max_length tokens from the first update on"""
    return cache_call(rng, (0, tokens), ".keys", ".values", layers=1, **sizes)


@check("7.1")
def test_cache_positions(rng, **sizes):
    """arguments by position: layer_idx, key, value"""
    return cache_call(rng, (1, 1), (1, 2), by_position=True, **sizes)


@check("7.1", steps=[((0, 5), (0, 2)), ((0, 2), (0, 2, 1))])
def test_cache_refusal(rng, steps, **sizes):
    """a token too many or another batch size raises ValueError: (layer, tokens) {steps}"""
    return cache_call(rng, *steps, **sizes)


PROBS = (0.4, 0.3, 0.15, 0.1, 0.05)
HEAD = (0.3, 0.25, 0.09, 0.085, 0.08, 0.075, 0.065, 0.055)  # two large ones, and a long tail


def log(probs):
    """In float64 first: float32's own differs from processor to processor."""
    return torch.tensor(probs, dtype=torch.float64).log().float()


def shuffled(rng, scores, rows=600, dtype=F32):
    """(rows, V), all rows alike: these very scores, in an order of its own."""
    order = torch.from_numpy(rng.generator.permutation(len(scores)))
    return torch.as_tensor(scores, dtype=dtype)[order].repeat(rows, 1)


def two_kinds(rng, rows=600):
    """(rows, 10): by turns, rows that know what they want and rows that do not, each with five
    tokens of its own."""
    logits = torch.full((2, 10), -50.0)
    logits[0, 0::2] = log((0.7, 0.2, 0.06, 0.025, 0.015)) + 6
    logits[1, 1::2] = log((0.24, 0.22, 0.2, 0.18, 0.16))
    return logits[:, torch.from_numpy(rng.generator.permutation(10))].repeat(rows // 2, 1)


def seeded(rng):
    """A generator of another seed than that of `repeated`."""
    return Given("generation.seeded", seed=int(rng.integers(2, 2**31)))


def sample_call(rng, logits, **inputs):
    return Call("sample_next_token", logits=logits, **inputs, generator=seeded(rng))


def drawn_call(rng, probs, shift=3.0, dtype=F32, **inputs):
    """Which tokens of these probabilities are ever drawn; their scores are shifted."""
    logits = shuffled(rng, log(probs) + shift * rng.normal(1), dtype=dtype)
    return sample_call(rng, logits, summary="drawn", **inputs)


def repeated(call):
    """The call made again, and with another generator; only whether they repeat counts."""
    again, call.summary = dict(call.steps[0][1]), "repeats"
    call.then("", **again)
    return call.then("", **{**again, "generator": Given("generation.seeded", seed=1)})


def forgive_changes(outcomes):
    """Logits that are written into cost one check and not all."""
    return [replace(outcome, changed=[]) for outcome in outcomes]


check_sampling = partial(check, "7.2", view=forgive_changes)


@check_sampling(cases=[
    {"settings": {"temperature": 0.0}, "gap": 0.01},
    {"settings": {"temperature": 0.0}, "gap": 1e-6, "level": 0.0},
    {"settings": {"temperature": 1.5, "top_k": 1}, "gap": 1.0},
])  # fmt: skip
def test_sample_best(rng, settings, gap, level=3.0, shape=(40, 9)):
    """settings that take the highest score: {settings}, scores that are some {gap} apart"""
    return sample_call(rng, level + gap * rng.normal(*shape), **settings)


@check_sampling(size=[60])
def test_sample_many(rng, size):
    """which of {size} equal scores are ever drawn, nothing else said"""
    return sample_call(rng, torch.zeros(2500, size), summary="drawn")


@check_sampling(cases=[
    {"shape": (1, 9), "settings": {"top_k": 1}},
    {"shape": (4, 5000), "settings": {"top_p": 0.9}},
    {"shape": (9, 5), "settings": {}, "ahead": inf},
])  # fmt: skip
def test_sample_certain(rng, shape, settings, ahead=50.0, dtype=F32):
    """logits of shape {shape}, in each row one token far ahead: {settings}"""
    best = torch.tensor((4097, 2049, 3, 2049, 4097, 1, 2, 3, 4))[: shape[0], None] % shape[1]
    logits = (rng.normal(*shape) - ahead).scatter(1, best, rng.normal(shape[0], 1))
    return sample_call(rng, logits.to(dtype), **settings)


@check_sampling(cases=[
    *({"probs": PROBS, "settings": settings} for settings in ({}, {"top_k": 3}, {"top_k": 9})),
    *({"probs": PROBS, "settings": {"top_p": top_p}} for top_p in (0.02, 0.6, 0.92, 1.0)),
    {"probs": PROBS, "settings": {"temperature": 0.5, "top_p": 0.8}},
    {"probs": PROBS, "settings": {"temperature": 3.0, "top_p": 0.8}},
    {"probs": HEAD, "settings": {"top_k": 4, "top_p": 0.74}},
    {"probs": HEAD, "settings": {"top_k": 5, "top_p": 0.67}},
    {"probs": (0.35, 0.35, 0.2, 0.07, 0.03), "settings": {"top_p": 0.6}},
    {"probs": (0.5, 0.25, 0.25), "settings": {"top_p": 0.5}, "shift": 0.0},
    *({"probs": (p, 0.1, 0.08, 0.82 - p), "settings": {"top_p": top_p}}  # float32 counts
      for p, top_p in ((0.7475, 0.7473), (0.7465, 0.7475))),
])  # fmt: skip
def test_sample_drawn(rng, probs, settings, **options):
    """which of the probabilities {probs} are ever drawn with {settings}"""
    return drawn_call(rng, probs, **options, **settings)


@check_sampling(cut=[{"top_k": 3}, {"top_p": 0.6}])
def test_sample_rows(rng, cut, **settings):
    """rows that differ, each with its own cut: {cut}"""
    return sample_call(rng, two_kinds(rng), summary="drawn", **settings, **cut)


@check_sampling(temperature=[0.001])
def test_sample_cold(rng, temperature, size=5, top_k=2):
    """temperature {temperature}, for float16 scores below 0"""
    gaps = [rng.integers(0, 60, size) + 100 * torch.arange(size) for _ in range(8)]
    logits = (torch.stack(gaps) / 4 - 250).half()
    return sample_call(rng, logits, temperature=temperature, top_k=top_k)


@check_sampling(cases=[{"top_p": 0.769, "scores": (2.375, 1.125, 0.5, 0.375, 0.0)}])
def test_sample_bfloat16(rng, top_p, scores):
    """top_p {top_p}, for bfloat16 scores"""
    return sample_call(rng, shuffled(rng, scores, dtype=BF16), top_p=top_p, summary="drawn")


@check_sampling()
def test_sample_generator(rng, size=20, **settings):
    """the same generator draws the same, another one does not"""
    return repeated(sample_call(rng, rng.normal(64, size), **settings))


@check_sampling()
def test_sample_no_generator(rng, size=20, **settings):
    """without a generator every call draws anew"""
    call = Call("sample_next_token", summary="repeats", logits=rng.normal(64, size), **settings)
    return call.then("", **call.steps[0][1]).then("", **call.steps[0][1])


@check_sampling()
def test_sample_positions(rng, probs=PROBS, top_k=3):
    """arguments by position: logits, temperature, top_k, top_p, generator"""
    return drawn_call(rng, probs, temperature=0.9, top_k=top_k, top_p=1.0, by_position=True)


@check_sampling()
def test_sample_impossible(rng):
    """impossible settings raise ValueError"""
    logits = rng.normal(2, 5)
    return sample_call(rng, logits, top_k=1).then("", logits=logits, top_p=0.0)


@check("7.2")
def test_sample_logits_kept(rng, temperature=0.7):
    """the logits stay as they are"""
    call = sample_call(rng, rng.normal(6, 9), temperature=temperature, top_k=1, top_p=0.9)
    return call.then("", **{**call.steps[0][1], "temperature": 1.0})


@check_sampling(cases=[
    {"scores": (2.0, 1.99, 1.97, 1.96, 1.94), "settings": {"temperature": 0.02}},
    {"scores": (1.0, 0.4, -1.0, -1.8, -3.0), "settings": {"temperature": 2.0}},
    {"scores": (64.0, 64.5, 65.0, 65.5), "settings": {"temperature": 0.7}, "dtype": BF16},
    {"scores": (2000.0, 2000.4, 2000.8), "settings": {"temperature": 0.9}},
])  # fmt: skip
def test_sample_frequencies(rng, scores, settings, kept=None, draws=4000, dtype=F32):
    """how often each of the scores {scores} is drawn with {settings}"""
    logits = shuffled(rng, scores, draws, dtype)
    probs = (logits[0].double() / settings.get("temperature", 1.0)).softmax(-1)
    probs = probs.where(probs >= probs.topk(kept or len(probs)).values[-1], 0.0)
    return sample_call(rng, logits, summary="counts", **settings).drawn_from(probs)


def generate_call(rng, rows=1, tokens=4, new=6, **inputs):
    if "model" not in inputs:
        inputs["model"] = Given("generation.TinyDecoder", seed=int(rng.integers(0, 10**6)))
    inputs = {"input_ids": rng.integers(0, 23, rows, tokens), **inputs}
    return Call("generate", max_new_tokens=new, **inputs)


def scripted_model(*rows, vocab=15, **options):
    """A model that writes these tokens after a prompt of three."""
    script = torch.tensor([[0, 0, 0, *row] for row in rows])
    table = 20.0 * torch.nn.functional.one_hot(script, vocab).float()
    return Given("generation.Scripted", script=table, **options)


def scripted_call(rng, *rows, vocab=15, **inputs):
    inputs = {"input_ids": rng.integers(0, 12, len(rows), 3), "pad_token_id": 13, **inputs}
    return generate_call(
        rng, new=len(rows[0]), model=scripted_model(*rows, vocab=vocab), **inputs
    )


def bag_call(rng, rows=600, new=1, probs=PROBS, **inputs):
    """Which tokens a model of such probabilities ever writes; the prompt is all 7s."""
    order = torch.from_numpy(rng.generator.permutation(len(probs)))
    table = torch.full((1, 9, 8), -torch.inf)
    table[:, :, order] = log(probs)
    model = Given("generation.Scripted", script=table)
    inputs |= {"model": model, "input_ids": torch.full((rows, 3), 7), "summary": "drawn"}
    return generate_call(rng, new=new, **inputs)


test_generate_greedy = check(
    "7.3", "{rows} prompts of {tokens} tokens, {new} new ones, use_cache {use_cache}",
    use_cache=[False, True], cases=rows("rows, tokens, new", (2, 4, 3), (1, 254, 2)),
)(generate_call)  # fmt: skip


@check("7.3")
def test_generate_defaults(rng, script=((4, 8, 6, 5, 7), (5, 8, 7, 4, 6))):
    """nothing else said: 100 tokens, greedy, with the cache, padded with 0"""
    model = scripted_model(*script, vocab=12, count_work=True)
    inputs = {"model": model, "input_ids": rng.integers(0, 12, len(script), 3)}
    return Call("generate", **inputs, eos_token_id=6).then("", **inputs)


@check("7.3", use_cache=[True, False])
def test_generate_work(rng, use_cache, tokens=4, new=5):
    """how many tokens the model is run on, use_cache {use_cache}"""
    model = Given("generation.Scripted", script=20.0 * torch.eye(90)[None], count_work=True)
    return generate_call(rng, 1, tokens, new, model=model, use_cache=use_cache, grad=True)


@check("7.3", use_cache=[True, False])
def test_generate_padded(rng, use_cache, padding=(3, 0, 2), tokens=5, new=5):
    """prompts of different lengths, padded on the left, use_cache {use_cache}"""
    mask = (torch.arange(tokens) >= torch.tensor(padding)[:, None]).long()
    return generate_call(
        rng, len(padding), tokens, new, attention_mask=mask, use_cache=use_cache
    )


@check("7.3")
def test_generate_two(rng, rows=1):
    """a second prompt after the first"""
    call = generate_call(rng, rows, 5, new=4)
    first = call.steps[0][1]
    return call.then("", **{**first, "input_ids": rng.integers(0, 23, 1, 3)}).then("", **first)


LINE = ((4, 8, 6, 7, 5),)
ROWS = ((4, 8, 6, 7, 5, 4), (6, 5, 7, 4, 6, 3), (4, 11, 8, 7, 6, 1))


@check("7.3", cases=[
    *({"script": LINE, "stops": stops, "padding": 13} for stops in (6, [11, 6], (6, 11))),
    {"script": ((6, 5, 7),), "stops": 6, "padding": 13},
    {"script": ((4, 0, 7),), "stops": 0, "padding": 13},
    *({"script": ROWS, "stops": 6, "padding": padding} for padding in (13, 6)),
])  # fmt: skip
def test_generate_stop(rng, script, stops, padding):
    """each row ends by itself, at {stops}, and is padded with {padding}"""
    return scripted_call(rng, *script, eos_token_id=stops, pad_token_id=padding)


@check("7.3")
def test_generate_no_stop(rng, script=(4, 5, 7, 8)):
    """no stop token, one that never comes, and one in the prompt alone"""
    call = scripted_call(rng, script)
    first = call.steps[0][1]
    prompt = torch.tensor([[12, 3, 12]])
    call.then("", **first, eos_token_id=14)
    return call.then("", **{**first, "input_ids": prompt}, eos_token_id=12)


@check("7.3", vocab=[5000])
def test_generate_many_tokens(rng, vocab, script=((2049, 5, 4097, 7),), stops=()):
    """a vocabulary of {vocab} tokens"""
    prompt = torch.tensor([[4097, 5, 2049], [7, 4097, 2049]])[: len(script)]
    return scripted_call(rng, *script, vocab=vocab, input_ids=prompt, eos_token_id=stops)


@check("7.3", use_cache=[True, False])
def test_generate_on_token(rng, use_cache, script=ROWS):
    """on_token hears every new column, padding included"""
    inputs = {"on_token": Given("generation.Listener"), "use_cache": use_cache}
    return scripted_call(rng, *script, eos_token_id=6, **inputs)


@check("7.3")
def test_generate_at_once(rng, script=(4, 8, 5, 7), heard=2):
    """on_token hears a token before the next is computed"""
    inputs = {"model": scripted_model(script, breaks_at=heard + 4)}
    inputs["on_token"] = Given("generation.Listener", most=heard)
    return generate_call(rng, tokens=3, new=len(script), **inputs)


@check("7.3", settings=[{"top_k": 3}, {"top_p": 0.6}, {"top_p": 0.8, "temperature": 0.5}, {}])
def test_generate_settings(rng, settings):
    """settings for the draw: {settings}"""
    return bag_call(rng, **{"temperature": 1.0, **settings})


@check("7.3")
def test_generate_generator(rng, rows=8, new=4):
    """the generator decides the draw"""
    return repeated(bag_call(rng, rows, new, temperature=1.0, generator=seeded(rng)))


@check("7.3")
def test_generate_generator_goes_on(rng, probs=(0.25, 0.25, 0.25, 0.25), **inputs):
    """the generator goes on from token to token"""
    return bag_call(rng, 3, 25, probs, temperature=1.0, generator=seeded(rng), **inputs)


@check("7.3")
def test_generate_no_generator(rng, rows=8, new=4):
    """without a generator every text is drawn anew"""
    call = bag_call(rng, rows, new, temperature=1.0)
    call.summary = "repeats"
    return call.then("", **call.steps[0][1])


@check("7.3")
def test_generate_positions(rng, script=(4, 5, 8, 7), **last):
    """arguments by position, in the order of the stub"""
    inputs = {"model": scripted_model(script), "input_ids": rng.integers(0, 12, 1, 3)}
    inputs |= {"attention_mask": torch.ones(1, 3).long(), "max_new_tokens": len(script)}
    inputs |= {"temperature": 0.0, "top_k": None, "top_p": None, "eos_token_id": (8, 11)}
    return Call("generate", by_position=True, **inputs, **last)


@check("7.3")
def test_generate_refused(rng):
    """padding on the right raises ValueError"""
    call = generate_call(rng, new=1)
    mask = torch.tensor([[1, 1, 1, 0]])
    return call.then("", **{**call.steps[0][1], "attention_mask": mask})


@check("7.4", "which tokens are ever drawn", view=forgive_changes)
def test_web_top_p(rng, sure=0.95):
    for probs, top_p in (
        ((0.4, 0.3, 0.2, 0.1), 0.6),
        ((sure, (1 - sure) / 2, (1 - sure) / 2), 0.9),
    ):
        yield hunted("web_top_p", drawn_call)(rng, probs=probs, top_p=top_p)
