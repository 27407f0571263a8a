"""Visible checks of lab 10: what check("10.1") and its sisters run."""

import torch
from visible.questions import in_eval_mode

from labkit.checks.declared import Call, Given, New, Outcome, check
from labkit.sandbox.inside.call import tensors_in

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


# 10.1


def tiles_call(rng, shape=(2, 4, 2, 5, 5, 6), features=None, block_size=2, size=1.0, dtype=F32,
               **options):  # fmt: skip
    """shape    (B, H, K, T, S, D); size is that of the scores, about"""
    batch, heads, kv_heads, new, total, head_dim = shape
    query = size * rng.normal(batch, heads, new, head_dim)
    key = rng.normal(batch, kv_heads, total, head_dim) + 0.3
    value = rng.normal(batch, kv_heads, total, features or head_dim) + 1.0
    inputs = {"query": query.to(dtype), "key": key.to(dtype), "value": value.to(dtype)}
    return Call("tiled_attention", **inputs, block_size=block_size, **options)


test_tiles = check("10.1", "blocks of {block_size} keys, every query sees every key",
                   block_size=[8, 2], is_causal=False)(tiles_call)  # fmt: skip
test_tiles_uneven = check("10.1", "7 keys in blocks of {block_size}", block_size=[3, 64],
                          shape=(1, 2, 1, 3, 7, 4), is_causal=False)(tiles_call)  # fmt: skip
test_tiles_causal = check("10.1", "causal, 5 tokens and none cached, blocks of {block_size}",
                          block_size=[8, 2, 1])(tiles_call)  # fmt: skip
test_tiles_offset = check("10.1", "causal, (B, H, K, T, S, D) {shape}", shape=[
    (2, 4, 2, 3, 8, 6), (1, 2, 1, 1, 7, 4)], block_size=3)(tiles_call)  # fmt: skip
test_tiles_heads = check("10.1", "which KV head a query head reads, (B, H, K, T, S, D) {shape}",
                         shape=[(1, 6, 2, 1, 4, 3)], is_causal=False)(tiles_call)  # fmt: skip
test_tiles_scale = check("10.1", "scale {scale}, values with 3 features", scale=[0.7, 0.0],
                         features=3)(tiles_call)  # fmt: skip
test_tiles_large = check("10.1", "scores of some {size}: their exponentials overflow alone",
                         size=[400.0], block_size=2)(tiles_call)  # fmt: skip


@check("10.1", size=[60.0])
def test_tiles_rising(rng, size, tokens=8, block_size=2, falling=False):
    """scores that rise from key to key: every block has a larger one than those before"""
    call = tiles_call(rng, (1, 2, 1, 2, tokens, 4), block_size=block_size, is_causal=False)
    ramp = torch.linspace(-1.0, 1.0, tokens)[:, None].expand(tokens, 4) * size
    call.steps[0][1]["key"] += (-ramp if falling else ramp) * 0.1
    call.steps[0][1]["query"] = call.steps[0][1]["query"].abs() + 0.2
    return call


@check("10.1", dtype=[BF16])
def test_tiles_sums(rng, dtype, total=80):
    """{dtype}: many small weights after a large one, with sums in float32"""
    call = tiles_call(rng, (1, 2, 1, 1, total, 4), dtype=dtype, block_size=1, scale=1.0)
    inputs = call.steps[0][1]
    inputs["query"].fill_(1.0)
    inputs["key"].zero_()[:, :, 0] = 1.5625  # a weight of 1, all others some 1 / 500
    inputs["value"].fill_(1.0)[:, :, 0, :2] = torch.tensor([3.0, 0.0])
    return call


test_tiles_half = check(
    "10.1", "{dtype}, with sums in float32",
    dtype=[BF16], shape=(1, 4, 2, 6, 30, 8), size=3.0, block_size=4,
)(tiles_call)  # fmt: skip
test_tiles_gradient = check("10.1", "gradients", block_size=2, grad=True)(tiles_call)


@check("10.1", cases=[
    {"shape": (1, 2, 2, 48, 48, 4), "most": 1600},
    {"shape": (1, 2, 1, 1, 900, 4), "most": 800},
    {"shape": (1, 2, 1, 2, 400, 16), "most": 390, "dtype": BF16},
])  # fmt: skip
def test_tiles_memory(rng, shape, most, dtype=F32, block_size=8):
    """no table of T x S scores, nothing as long as all keys: (B, H, K, T, S, D) {shape}"""
    return tiles_call(rng, shape, dtype=dtype, block_size=block_size, most_numbers=most)


test_tiles_positions = check(
    "10.1", "arguments by position, in the order of the stub", is_causal=True, scale=0.4,
    by_position=True,
)(tiles_call)  # fmt: skip


# 10.2


def rounded(rng, rows=3, columns=8, bits=8, group_size=None, zeros=False):
    """A matrix that rounds without doubt: each number near a whole multiple of its scale."""
    limit, size = 2 ** (bits - 1) - 1, group_size or columns
    whole = rng.integers(-limit, limit + 1, rows, columns // size, size).float()
    whole[..., 1:] += 0.8 * rng.uniform(*whole[..., 1:].shape) - 0.4
    whole = whole.clamp(-limit, limit)
    signs = 2 * rng.integers(0, 2, rows, columns // size).float() - 1
    whole[..., 0] = limit * signs  # the largest magnitude, positive or negative
    if zeros:
        whole[1] = 0
    scales = rng.uniform(rows, columns // size, 1, low=0.01, high=2.0)
    return (whole * scales).flatten(1)


def quantize_call(rng, dtype=F32, **how):
    sizes = {name: how.pop(name) for name in ("rows", "columns", "zeros") if name in how}
    settings = {name: how[name] for name in ("bits", "group_size") if name in how}
    weight = rounded(rng, **sizes, **settings).to(dtype)
    call = Call("quantize", weight=weight, **how)
    return call.returning("quantized", "scale")


test_quantize = check("10.2", "8 bits, one scale per row")(quantize_call)
test_quantize_four = check("10.2", "{bits} bits", bits=[4, 2])(quantize_call)
test_quantize_groups = check("10.2", "{bits} bits in groups of {group_size}", group_size=[4, 2],
                             bits=4)(quantize_call)  # fmt: skip
test_quantize_zeros = check("10.2", "a row of zeros", zeros=True)(quantize_call)


@check("10.2", dtype=[BF16])
def test_quantize_half(rng, dtype, bits=8, group_size=4):
    """a weight in {dtype}, computed in float32"""
    weight = rng.normal(3, 8).to(dtype)
    groups = weight.float().unflatten(1, (-1, group_size))
    quotient = groups / groups.abs().amax(dim=-1, keepdim=True) * (2 ** (bits - 1) - 1)
    doubtful = (quotient % 1 - 0.5).abs() < 0.1  # may be rounded up or down
    weight = weight.masked_fill(doubtful.flatten(1), 0)
    how = {"bits": bits, "group_size": group_size}
    return Call("quantize", weight=weight, **how).returning("quantized", "scale")


@check("10.2", wrong=[{"bits": 9}, {"group_size": 3}])
def test_quantize_refused(rng, wrong):
    """{wrong} raises ValueError"""
    call = quantize_call(rng)
    return call.then("", **{**call.steps[0][1], **wrong})


@check("10.2", groups=[1, 4])
def test_dequantize(rng, groups, rows=3, columns=8):
    """whole numbers with {groups} scales per row"""
    quantized = rng.integers(-127, 128, rows, columns).to(torch.int8)
    return Call("dequantize", quantized=quantized, scale=rng.uniform(rows, groups, low=0.1))


def layer_call(rng, bits=8, group_size=None, bias=False, dtype=F32, shape=(2, 3), rows=5,
               columns=8, **options):  # fmt: skip
    weight, added = rounded(rng, rows, columns, bits, group_size), rng.normal(rows)
    x = rng.normal(*shape, columns)
    if dtype != F32:  # positive sums round little
        weight, added, x = weight.abs(), added.abs(), x.abs().to(dtype)
    init = {"weight": weight, "bias": added if bias else None}
    init |= {"bits": bits, "group_size": group_size}
    return Call("QuantizedLinear", init=init, hidden_states=x, **options)


test_layer = check(
    "10.2", "QuantizedLinear with {bits} bits, groups of {group_size}, in eval mode either",
    cases=[{"bits": 8, "group_size": None}, {"bits": 4, "group_size": 4}],
)(in_eval_mode(layer_call))  # fmt: skip
test_layer_bias = check("10.2", "QuantizedLinear with a bias, which is no Parameter either",
                        bias=True, grad=True)(layer_call)  # fmt: skip
test_layer_names = check("10.2", "QuantizedLinear: names and shapes of what it stores",
                         names=True, bits=4, group_size=2, bias=True)(layer_call)  # fmt: skip
test_layer_half = check("10.2", "QuantizedLinear on {dtype}, with a bias: {bias}", dtype=[BF16],
                        bias=[False, True])(layer_call)  # fmt: skip


@check("10.2")
def test_layer_plain(rng, rows=3, columns=8):
    """QuantizedLinear and quantize by default: 8 bits, a scale per row"""
    weight = rounded(rng, rows, columns)
    layer = Call(
        "QuantizedLinear", init={"weight": weight}, hidden_states=rng.normal(2, columns)
    )
    return layer, Call("quantize", weight=weight)


@check("10.2")
def test_layer_stored(rng, **how):
    """QuantizedLinear stores whole numbers and scales, and nothing to be trained"""
    call = layer_call(rng, grad=True, **{"bits": 4, "group_size": 4, **how})
    return call.then(".quantized").then(".scale")


def float_matrices(outcomes):
    """Of a layer's attributes, the shapes of float tensors with more than one axis."""
    if outcomes[0].failure:
        return outcomes
    *values, attributes = outcomes[0].values
    found = [list(t.shape) for _, t in tensors_in(attributes, "") if t.is_floating_point()]
    kept = sorted(shape for shape in found if len(shape) > 1)
    return [Outcome([*values, {"float matrices": str(kept)}], changed=outcomes[0].changed)]


@check("10.2")
def test_layer_detached(rng, rows=5, columns=8, **how):
    """QuantizedLinear made of Parameters: no buffer requires grad"""
    weight, bias = rounded(rng, rows, columns), rng.normal(rows)
    init = {"weight": Given("torch.nn.Parameter", data=weight)}
    init["bias"] = Given("torch.nn.Parameter", data=bias)
    call = Call("QuantizedLinear", init=init | how)
    return call.then(".scale.requires_grad").then(".bias.requires_grad")


@check("10.2", view=float_matrices)
def test_layer_loaded(rng, bits=4, group_size=4, rows=5, columns=8):
    """QuantizedLinear after other whole numbers were loaded: no float copy of the first ones"""
    call = layer_call(rng, bits, group_size, rows=rows, columns=columns)
    whole = rng.integers(-7, 8, rows, columns).to(torch.int8)
    state = {"quantized": whole, "scale": rng.uniform(rows, columns // group_size, low=0.1)}
    return (
        call.then("load_state_dict", state_dict=state).then("", **call.steps[0][1])
        .then(".__dict__")
    )  # fmt: skip


# 10.3


def pool(rng, steps, layers=1, num_blocks=6, block_size=2, heads=2, dim=3, wider=0, dtype=F32,
         **options):  # fmt: skip
    """The steps of a PagedCache, and what its books say in the end:

    ("add", n)  ("fork", n, m)  ("free", n)
    ("append", n, T)  ("?append", n, T)  ("gather", n)   in all layers, one after the other
    ("pass", n, T)                                       per layer append, then gather
    ("append", n, T, i)  ("gather", n, i)                in layer i alone
    """
    sizes = {"num_hidden_layers": layers, "num_blocks": num_blocks, "block_size": block_size}
    call = Call("PagedCache", init=sizes, **options).returning("key", "value")

    def append(action, sequence, layer, tokens):
        key, value = rng.normal(heads, tokens, dim), rng.normal(heads, tokens, dim + wider)
        call.then(action, sequence=sequence, layer_idx=layer, key=key.to(dtype),
                  value=value.to(dtype))  # fmt: skip

    for action, sequence, *more in steps:
        if action == "fork":
            call.then("fork", parent=sequence, child=more[0])
        elif action in ("add", "free"):
            call.then(action, sequence=sequence)
        else:
            tokens = () if action == "gather" else (more.pop(0),)
            for layer in more or range(layers):
                if action != "gather":
                    append(action.replace("pass", "append"), sequence, layer, *tokens)
                if action in ("gather", "pass"):
                    call.then("gather", sequence=sequence, layer_idx=layer)
    for name in (".block_table", ".free_blocks", ".ref_count", ".lengths", ".keys"):
        call.then(name)
    return call


def books(outcomes):
    """Of a PagedCache: what gather gave, how many blocks are free, shared, in use by each text,
    and the shape of the pool. Which blocks they are is left open."""
    outcome = outcomes[0]
    if outcome.failure:
        return outcomes
    *values, table, free, counts, lengths, keys = outcome.values
    try:
        shown = [block for blocks in table.values() for block in blocks]
        told = [
            {f"len(block_table[{name}])": len(blocks) for name, blocks in table.items()},
            {"free blocks": len(set(free)), "free and in use": len(set(free) & set(shown))},
            {"shared blocks": sum(count > 1 for count in counts),
             "as in the tables": all(shown.count(b) == n for b, n in enumerate(counts)),
             }, {f"lengths[{name}]": str(held) for name, held in lengths.items()},
        ]  # fmt: skip
    except (TypeError, AttributeError):
        return outcomes
    told.append({"numbers in the pool": sum(t.numel() for _, t in tensors_in(keys, ""))})
    return [Outcome([*values, *told], changed=outcome.changed)]


def check_pool(*texts, **values):
    return check("10.3", *texts, view=books, **values)(pool)


ONE = (("add", 7), ("append", 7, 3), ("gather", 7))
test_pool_one = check_pool("one text of three tokens, blocks of {block_size}",
                           steps=ONE, block_size=[4, 2, 1])  # fmt: skip
test_pool_chunks = check_pool(
    "one text in chunks, blocks of {block_size}", block_size=[3, 2],
    steps=(("add", 0), ("append", 0, 3), ("append", 0, 1), ("gather", 0), ("append", 0, 2),
           ("append", 0, 1), ("gather", 0)),
)  # fmt: skip
TWO = (("add", 0), ("add", 1), ("append", 0, 3), ("append", 1, 2), ("append", 0, 2),
       ("append", 1, 1), ("gather", 0), ("gather", 1))  # fmt: skip
test_pool_two = check_pool("two texts in turn", steps=TWO)
test_pool_layers = check_pool("two texts, {layers} layers", steps=TWO, layers=[2])
PASSES = (("add", 0), ("pass", 0, 3), ("fork", 0, 1), ("pass", 1, 2), ("pass", 0, 1))
test_pool_passes = check_pool(
    "as a decoder does it: {layers} layers, each gathers before the next one appends",
    steps=PASSES, layers=[2],
)  # fmt: skip
test_pool_forms = check_pool("{dtype}, values with 2 more features than keys", wider=2,
                             dtype=[BF16], steps=ONE)  # fmt: skip
FREED = (("add", 0), ("append", 0, 5), ("add", 1), ("append", 1, 3), ("free", 0), ("add", 2),
         ("append", 2, 7), ("gather", 2), ("gather", 1))  # fmt: skip
test_pool_free = check_pool("blocks of a text that has left serve the next", steps=FREED)
FORK = (("add", 0), ("append", 0, 4), ("fork", 0, 1), ("gather", 1))
FORKS = (*FORK, ("fork", 1, 2), ("free", 0), ("gather", 2))
test_pool_fork = check_pool("forks share all blocks of their parent", steps=FORKS, layers=[2])
WRITE = (("add", 0), ("append", 0, 3), ("fork", 0, 1), ("append", 1, 2), ("append", 0, 1),
         ("gather", 0), ("gather", 1))  # fmt: skip
test_pool_write = check_pool(
    "a fork and its parent write into a shared block: copy on write, {layers} layers",
    steps=WRITE, layers=[1, 2],
)  # fmt: skip
BOUNDARY = (*FORK[:-1], ("append", 1, 1), ("append", 0, 1), ("gather", 0), ("gather", 1))
test_pool_boundary = check_pool(
    "a fork of full blocks copies none of them", steps=BOUNDARY, layers=[2]
)
LEFT = (*FORK[:-1], ("free", 0), ("gather", 1), ("add", 2), ("append", 2, 8), ("gather", 1))
test_pool_left = check_pool("the parent leaves, its fork still reads the blocks", steps=LEFT)
LAST = (("add", 0), ("append", 0, 1), ("add", 1), ("append", 1, 8), ("add", 2),
        ("append", 2, 1), ("free", 1), ("fork", 0, 3), ("fork", 2, 4), ("append", 3, 1),
        ("append", 4, 1), ("gather", 3), ("gather", 4))  # fmt: skip
test_pool_last = check_pool("the first and the last block of the pool are copied", steps=LAST)
FAMILY = (
    *(("add", 5), ("append", 5, 5), ("fork", 5, 6), ("fork", 6, 7), ("append", 7, 1)),
    *(("append", 6, 2), ("free", 6), ("append", 5, 1), ("fork", 7, 8), ("append", 8, 3)),
    *(("free", 5), ("gather", 7), ("gather", 8)),
)
test_pool_family = check_pool(
    "forks of forks, some of which leave", steps=FAMILY, num_blocks=12
)
FULL = (("add", 0), ("append", 0, 3), ("?append", 0, 4), ("gather", 0))
test_pool_full = check_pool(
    "too few blocks are free: ValueError, and nothing has changed", steps=FULL, num_blocks=3
)
SHARED = (("add", 0), ("append", 0, 3), ("fork", 0, 1), ("?append", 1, 2), ("gather", 1),
          ("gather", 0))  # fmt: skip
test_pool_refused = check_pool(
    "no block is free for a copy: ValueError, and nothing has changed",
    steps=[SHARED, (*SHARED[:3], ("?append", 1, 1), *SHARED[4:])], num_blocks=2,
)  # fmt: skip
test_pool_half = check_pool(
    "one block is free, and a copy and a new one are needed: ValueError, nothing has changed",
    steps=SHARED, num_blocks=3,
)  # fmt: skip
AHEAD = (("add", 0), ("append", 0, 2), ("append", 0, 3, 0), ("gather", 0), ("fork", 0, 1),
         ("gather", 1), ("append", 1, 3, 1), ("gather", 1), ("gather", 0))  # fmt: skip
test_pool_ahead = check_pool("a layer ahead of the other, a fork between them", steps=AHEAD,
                             layers=2, num_blocks=8)  # fmt: skip


# 10.4


def served(rng, requests, rounds=4, blocks=12, block_size=2, batch=3, eos=(), model=None,
           late=(), **options):  # fmt: skip
    """requests (prompt tokens, max_new_tokens); `late` ones are handed in after one round."""
    model = model or Given("generation.TinyDecoder", seed=int(rng.integers(0, 10**6)), layers=1)
    sizes = {"num_hidden_layers": 1, "num_blocks": blocks, "block_size": block_size}
    init = {"model": model, "cache": New("PagedCache", **sizes), "max_batch_size": batch}
    call = Call("Scheduler", init={**init, "eos_token_id": eos}, **options)

    def submit(numbered):
        for number, (tokens, new) in numbered:
            prompt = rng.integers(0, 23, tokens).tolist()
            request = New("Request", number=number, prompt=prompt, max_new_tokens=new)
            call.then("submit", request=request)

    submit(enumerate(requests, 10))
    for number in range(rounds):
        call.then("step").then(".passes").then(".finished")
        if number == 0:
            submit(enumerate(late, 30))
    return call.then(".running").then(".waiting")


def check_served(*texts, **values):
    return check("10.4", *texts, view=lines, **values)(served)


def lines(outcomes):
    """Of what a Scheduler did, round by round: its new passes and what has finished; in the end
    how many requests run and wait. Requests themselves are left open."""
    outcome = outcomes[0]
    if outcome.failure:
        return outcomes
    *values, running, waiting = outcome.values
    passes, answers = 0, {}
    for number, value in enumerate(values):
        if isinstance(value, list):
            values[number] = {"new [texts, tokens]": str(value[passes:])}
            passes = len(value)
        elif isinstance(value, dict):
            new = [f"{k}: {v}" for k, v in sorted(value.items()) if answers.get(k) != v]
            values[number], answers = {"new": f"{{{', '.join(new)}}}"}, value
    ends = [len(x) if isinstance(x, (list, tuple)) else -1 for x in (running, waiting)]
    return [Outcome([*values, *ends], changed=outcome.changed)]


test_served_one = check_served("one request, alone", requests=((3, 4),))
test_served_together = check_served("three requests of one length are decoded together",
                                    requests=((3, 4),) * 3)  # fmt: skip
test_served_lengths = check_served("prompts and answers of different lengths",
                                   requests=((5, 3), (1, 5), (3, 2)), rounds=5)  # fmt: skip
test_served_batch = check_served("more requests than max_batch_size 2: each place is filled "
                                 "as soon as it is free", requests=((2, 2), (3, 5), (2, 3)),
                                 batch=2, rounds=6, blocks=20)  # fmt: skip
test_served_blocks = check_served("blocks for two of three requests at a time", blocks=8,
                                  requests=((4, 4), (5, 4), (3, 3)), rounds=7)  # fmt: skip
test_served_promised = check_served(
    "blocks that running requests still take, and no more, are promised", blocks=7,
    requests=((2, 2), (2, 4), (3, 4), (4, 4)),
)  # fmt: skip
test_served_order = check_served("nobody overtakes a long request that waits", blocks=8,
                                 requests=((4, 3), (7, 5), (1, 2)), rounds=6)  # fmt: skip
test_served_late = check_served("a request that comes while others are decoded",
                                requests=((3, 5), (2, 4)), late=((4, 3),))  # fmt: skip
test_served_first = check_served(
    "answers of one token end with their prompt's pass", requests=((3, 1), (2, 1), (4, 2)),
    batch=1, rounds=3,
)  # fmt: skip


test_served_stop = check_served(
    "stop tokens end an answer and stay in it: eos_token_id {eos}",
    requests=((3, 6), (2, 6), (4, 6)),
    eos=[(0, 2, 4, 6, 8, 10, 13, 15, 17, 19, 21)], batch=2, rounds=6, blocks=20,
)  # fmt: skip


# 10.5


def spoken(rng, drafts, q, p, rows=1, counts=None, **options):
    """All rows alike: drafts (k,), q (k, V), p (k + 1, V), under new names for the tokens.

    counts   how likely -1 and each token are, where they are counted
    """
    order = torch.from_numpy(rng.generator.permutation(len(p[0])))
    q, p = (torch.tensor(table)[:, order.argsort()] for table in (q, p))
    inputs = {"draft_tokens": order[list(drafts)].repeat(rows, 1)}
    inputs |= {"draft_probs": q.repeat(rows, 1, 1), "target_probs": p.repeat(rows, 1, 1)}
    call = Call("speculative_step", **inputs, summary=counts and "counts", **options)
    if counts:
        call.drawn_from(
            torch.tensor(counts)[torch.cat((torch.tensor([0]), 1 + order.argsort()))]
        )
    return call


def shares(rng, *shape):
    numbers = rng.uniform(*shape, low=0.1)
    return numbers / numbers.sum(dim=-1, keepdim=True)


@check("10.5", passes=[3, 0, 1])
def test_speculative_sure(rng, passes, rows=1, k=3, vocab=9):
    """{passes} of 3 drafts pass, and one token is left to follow"""
    drafts = rng.integers(0, vocab, rows, k)
    q, p = shares(rng, rows, k, vocab), shares(rng, rows, k + 1, vocab)
    counts = rng.integers(0, k + 1, rows).tolist() if passes is None else [passes] * rows
    for row, count in enumerate(counts):
        for place in range(count):  # p and q of the draft are equal
            x = drafts[row, place]
            others = torch.arange(vocab) != x
            p[row, place, others] = q[row, place, others].flip(0)
            p[row, place, x] = q[row, place, x]
        first, second = (int(token) for token in rng.generator.permutation(vocab)[:2])
        p[row, count] = 0.0
        p[row, count, first] = 1.0
        if count < k:  # what is left of p has one token of two
            x = drafts[row, count] = (set(range(3)) - {first, second}).pop()
            p[row, count, second] = p[row, count, first] = 0.5
            q[row, count] = 0.0
            q[row, count, x], q[row, count, second] = 0.3, 0.7
    inputs = {"draft_tokens": drafts, "draft_probs": q, "target_probs": p}
    return Call("speculative_step", **inputs)


test_speculative_rows = check(
    "10.5", "{rows} rows, each with drafts, q and p of its own", points=2, passes=None, rows=30
)(test_speculative_sure)  # fmt: skip


def column(number, columns=2):
    """How often each token, and -1, is in one column of what comes out; -1 counts as 0."""

    def counted(outcomes):
        outcome = outcomes[0]
        value = outcome.value
        if outcome.failure or not isinstance(value, torch.Tensor) or value.dim() != 2:
            return outcomes
        if value.dtype != torch.int64 or value.size(1) != columns:
            return outcomes
        return [Outcome([(value[:, number] + 1).clamp(min=0).bincount()])]

    return counted


A, B, C, D = map(tuple, torch.eye(4).tolist())
EVEN = (0.25, 0.25, 0.25, 0.25)
P, Q = (0.5, 0.3, 0.15, 0.05), (0.2, 0.4, 0.05, 0.35)  # p - q leaves two tokens


def frequencies(rng, drafted, p=P, q=Q, draws=2000, further=EVEN, before=0):
    """A draft that is always the same, so that min(1, p/q) and what is left show.

    before    drafts before it, which always pass
    """
    qs, ps = [EVEN] * before + [q], [C] * before + [p, further]
    target, draft = torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64)
    accepted = min(1.0, float(target[drafted] / draft[drafted]))
    left = (target - draft).clamp(min=0)
    probs = (1 - accepted) * left / left.sum().clamp(min=1e-9)
    probs[drafted] += accepted
    return spoken(rng, [2] * before + [drafted], qs, ps, draws, [0.0, *probs.tolist()])


test_speculative_accepted = check(
    "10.5", "how often a draft passes, and what takes its place", view=column(0),
    drafted=[1, 3],
)(frequencies)  # fmt: skip
test_speculative_nearly = check(
    "10.5", "a draft that nearly always passes: p is {p[0]}, q is {q[0]}", view=column(0),
    drafted=0, p=(0.495, 0.505, 0.0, 0.0), q=(0.5, 0.3, 0.2, 0.0), draws=4000,
)(frequencies)  # fmt: skip
test_speculative_second = check(
    "10.5", "how often the second draft passes, and what takes its place", drafted=3, before=1,
    view=column(1, columns=3),
)(frequencies)  # fmt: skip


@check("10.5", view=column(1))
def test_speculative_last(rng, p=P, draws=2000):
    """after all drafts passed, the token more is drawn from the last p"""
    return spoken(rng, (2,), [EVEN], [C, p], draws, [0.0, *p])


@check("10.5", view=column(1))
def test_speculative_dropped(rng, draws=2000):
    """nothing follows a draft that was rejected"""
    qs, ps = [[0.5, 0.5, 0.0, 0.0]], [[0.25, 0.25, 0.5, 0.0], B]
    return spoken(rng, (0,), qs, ps, draws, [0.5, 0.0, 0.5, 0.0, 0.0])


@check("10.5", view=column(2, columns=3), ratio=[0.5])
def test_speculative_dice(rng, ratio, draws=2000):
    """two drafts pass with probability {ratio} each, independently of each other"""
    ps = [(ratio, 1 - ratio, 0.0, 0.0)] * 2 + [B]
    return spoken(rng, (0, 0), [A, A], ps, draws, [1 - ratio**2, 0.0, ratio**2, 0.0, 0.0])


@check("10.5")
def test_speculative_generator(rng, rows=6):
    """the generator decides the draw"""
    seed = Given("generation.seeded", seed=int(rng.integers(0, 10**6)))
    call = spoken(rng, (3, 0), [EVEN, EVEN], [P, Q, P], rows, generator=seed)
    call.summary = "repeats"
    return call.then("", **call.steps[0][1])


# 10.6


def four_bits(rng, rows=2, columns=6):
    numbers = rng.integers(-8, 8, rows, columns).to(torch.int8)
    numbers.view(-1)[:4] = torch.tensor([-8, 7, 0, -1])
    return numbers


@check("10.6")
def test_pack(rng, **sizes):
    """pairs of numbers from -8 to 7 in bytes"""
    return Call("pack_int4", quantized=four_bits(rng, **sizes))


@check("10.6")
def test_unpack(rng, rows=3, size=4):
    """bytes of every kind, read again"""
    packed = rng.integers(0, 256, rows, size).to(torch.uint8)
    packed[0] = torch.tensor([0, 255, 8, 128]).repeat(size)[:size]
    return Call("unpack_int4", packed=packed)


@check("10.6", columns=3)
def test_pack_odd(rng, columns):
    """an odd number of columns raises ValueError"""
    numbers = four_bits(rng)
    return Call("pack_int4", quantized=numbers).then("", quantized=numbers[:, :columns])


@check("10.6", more=2)
def test_pack_unfit(rng, more):
    """a number that does not fit raises ValueError"""
    numbers = four_bits(rng)
    return Call("pack_int4", quantized=numbers).then("", quantized=numbers + more)


@check("10.7", length=8)
def test_web_attention(rng, length):
    """scores that fall, and scores that rise, {length} of them"""
    scores = (3 * rng.normal(length)).sort().values
    for each in (scores.flip(0), scores):
        yield Call("web_attention", scores=each, values=10 * rng.normal(length))


@check("10.8", bits=4)
def test_web_zeros(rng, bits):
    """{bits} bits, with a row of zeros"""
    weight = rng.normal(4, 6)
    weight[int(rng.integers(0, 4))] = 0.0
    return Call("web_fake_quantize", weight=weight, bits=bits)


@check("10.9", size=3)
def test_web_outcome(rng, size):
    """a draft that is often wrong; {size} tokens"""
    return Call("web_outcome", **{n: (2 * rng.normal(size)).softmax(0) for n in "qp"})
