"""Visible checks of lab 10: what check("10.1") and its sisters run."""

import torch

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
test_tiles_scale = check("10.1", "scale {scale}, values with 3 features", scale=0.7,
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
def test_tiles_half(rng, dtype, shape=(1, 4, 2, 6, 30, 8), size=3.0, block_size=4):
    """{dtype}, with sums in float32"""
    return tiles_call(rng, shape, dtype=dtype, size=size, block_size=block_size)


test_tiles_gradient = check("10.1", "gradients", block_size=2, grad=True)(tiles_call)


@check("10.1", cases=[
    {"shape": (1, 2, 2, 48, 48, 4), "most": 1600},
    {"shape": (1, 16, 1, 1, 100, 8), "most": 3200},
])  # fmt: skip
def test_tiles_memory(rng, shape, most, block_size=8):
    """no table of T x S scores, no copies of keys: (B, H, K, T, S, D) {shape}"""
    return tiles_call(rng, shape, block_size=block_size, most_numbers=most)


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
def test_quantize_half(rng, dtype, **sizes):
    """a weight in {dtype}"""
    whole = rng.integers(-7, 8, 3, 8).float()
    whole[:, 0] = 7
    weight = (whole * 2.0 ** rng.integers(-3, 3, 3, 1)).to(dtype)  # exact in every dtype
    return Call("quantize", weight=weight, bits=4, **sizes).returning("quantized", "scale")


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
    init = {"weight": rounded(rng, rows, columns, bits, group_size)}
    init["bias"] = rng.normal(rows) if bias else None
    init |= {"bits": bits, "group_size": group_size}
    x = rng.normal(*shape, columns).to(dtype)
    return Call("QuantizedLinear", init=init, hidden_states=x, **options)


test_layer = check("10.2", "QuantizedLinear with {bits} bits, groups of {group_size}",
                   cases=[{"bits": 8, "group_size": None}, {"bits": 4, "group_size": 4}],
                   )(layer_call)  # fmt: skip
test_layer_bias = check("10.2", "QuantizedLinear with a bias", bias=True)(layer_call)
test_layer_names = check("10.2", "QuantizedLinear: names and shapes of what it stores",
                         names=True, bits=4, group_size=2, bias=True)(layer_call)  # fmt: skip
test_layer_half = check("10.2", "QuantizedLinear on {dtype}", dtype=[BF16])(layer_call)


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


# 10.3


def pool(rng, *steps, layers=1, num_blocks=6, block_size=2, heads=2, dim=3, wider=0, dtype=F32,
         **options):  # fmt: skip
    """The steps of a PagedCache, on layers one after the other:

    ("add", n)  ("fork", n, m)  ("free", n)  ("append", n, T)  ("gather", n)
    and what its books say in the end.
    """
    sizes = {"num_hidden_layers": layers, "num_blocks": num_blocks, "block_size": block_size}
    call = Call("PagedCache", init=sizes, **options)
    for action, sequence, *more in steps:
        if action == "fork":
            call.then("fork", parent=sequence, child=more[0])
        elif action in ("add", "free"):
            call.then(action, sequence=sequence)
        for layer in range(layers) if action in ("append", "gather") else ():
            new = {"sequence": sequence, "layer_idx": layer}
            if action == "append":
                new["key"] = rng.normal(heads, more[0], dim).to(dtype)
                new["value"] = rng.normal(heads, more[0], dim + wider).to(dtype)
            call.then(action, **new)
    return call.then(".free_blocks").then(".block_table").then(".ref_count").then(".keys")


def books(outcomes):
    """Of a PagedCache: what gather gave, how many blocks are free, shared, in use by each text,
    and the shape of the pool. Which blocks they are is left open."""
    outcome = outcomes[0]
    if outcome.failure:
        return outcomes
    *values, free, table, counts, keys = outcome.values
    try:
        shared = sum(count > 1 for count in counts)
        uses = {f"blocks of text {name}": len(blocks) for name, blocks in table.items()}
        shown = [block for blocks in table.values() for block in blocks]
        told = {
            "free blocks": len(set(free)), "shared blocks": shared, **uses,
            "blocks that are free and in use": len(set(free) & set(shown)),
            "ref_count right": all(shown.count(b) == n for b, n in enumerate(counts)),
        }  # fmt: skip
    except (TypeError, AttributeError):
        return outcomes
    shapes = {"numbers in the pool": sum(t.numel() for _, t in tensors_in(keys, ""))}
    return [Outcome([*values, {**told, **shapes}], changed=outcome.changed)]


def check_pool(*texts, **values):
    return check("10.3", *texts, view=books, **values)(pool_check)


def pool_check(rng, steps, **sizes):
    return pool(rng, *steps, **sizes)


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
test_pool_forms = check_pool("{dtype}, values with 2 more features than keys", wider=2,
                             dtype=[BF16], steps=ONE)  # fmt: skip
FREED = (("add", 0), ("append", 0, 5), ("add", 1), ("append", 1, 3), ("free", 0), ("add", 2),
         ("append", 2, 7), ("gather", 2), ("gather", 1))  # fmt: skip
test_pool_free = check_pool("blocks of a text that has left serve the next", steps=FREED)
FORK = (("add", 0), ("append", 0, 4), ("fork", 0, 1), ("gather", 1))
test_pool_fork = check_pool("a fork shares all blocks of its parent", steps=FORK, layers=[2])
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


@check("10.3", full=[(("append", 0, 4),), (("fork", 0, 1), ("append", 1, 1))])
def test_pool_refused(rng, full, **sizes):
    """no block is free: ValueError, {full}"""
    steps = (("add", 0), ("append", 0, 3), ("gather", 0), *full)
    return pool(rng, *steps, **{"num_blocks": 2, "layers": 1, "block_size": 2} | sizes)


# 10.4


def served(rng, requests, rounds=4, blocks=12, block_size=2, batch=3, eos=(), model=None,
           late=(), **options):  # fmt: skip
    """requests (prompt tokens, max_new_tokens); `late` ones are handed in after one round."""
    model = model or Given("tiny_decoder", seed=int(rng.integers(0, 10**6)))
    sizes = {"num_hidden_layers": 2, "num_blocks": blocks, "block_size": block_size}
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
    """Of what a Scheduler did: running and waiting as numbers of requests, or how many."""
    outcome = outcomes[0]
    if outcome.failure:
        return outcomes
    *values, running, waiting = outcome.values
    sizes = {}
    for name, line in (("running", running), ("waiting", waiting)):
        sizes[name] = len(line) if isinstance(line, (list, tuple)) else -1
    return [Outcome([v for v in values if v is not None] + [sizes], changed=outcome.changed)]


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


def spoken(rng, drafts, q, p, rows=1, **options):
    """All rows alike: drafts (k,), q (k, V), p (k + 1, V)."""
    k = len(drafts)
    return Call(
        "speculative_step",
        draft_tokens=torch.tensor(drafts).expand(rows, k).clone(),
        draft_probs=torch.tensor(q).expand(rows, k, -1).clone(),
        target_probs=torch.tensor(p).expand(rows, k + 1, -1).clone(),
        **options,
    )


A, B, C, D = map(tuple, torch.eye(4).tolist())
EVEN = (0.25, 0.25, 0.25, 0.25)
test_speculative_all = check(
    "10.5", "every draft passes where p has at least q, and one token more",
    drafts=(2, 0), q=(EVEN, (0.5, 0.5, 0.0, 0.0)), p=(C, A, D),
)(spoken)  # fmt: skip
test_speculative_first = check(
    "10.5", "the first draft has p = 0", drafts=(2, 0, 1), q=(EVEN, EVEN, EVEN), p=(B, A, B, D)
)(spoken)
test_speculative_middle = check(
    "10.5", "the second of three has p = 0", drafts=(2, 0, 1), q=(EVEN, A, EVEN),
    p=(C, D, B, A),
)(spoken)  # fmt: skip
test_speculative_left = check(
    "10.5", "what is left of p has one token", drafts=(0,), q=((0.8, 0.2, 0.0, 0.0),),
    p=((0.0, 0.2, 0.8, 0.0), EVEN),
)(spoken)  # fmt: skip


@check("10.5")
def test_speculative_rows(rng):
    """each row is judged by itself"""
    p = torch.tensor([[C, A, D], [B, A, D], [C, B, D]])
    return Call(
        "speculative_step", draft_tokens=torch.tensor([[2, 0]] * 3),
        draft_probs=torch.full((3, 2, 4), 0.25), target_probs=p,
    )  # fmt: skip


def column(number):
    """How often each token, and -1, is in one column of what comes out; -1 counts as 0."""

    def counted(outcomes):
        outcome = outcomes[0]
        value = outcome.value
        if outcome.failure or not isinstance(value, torch.Tensor) or value.dim() != 2:
            return outcomes
        if value.dtype != torch.int64 or value.size(1) != 2:
            return outcomes
        return [Outcome([(value[:, number] + 1).clamp(min=0).bincount()])]

    return counted


P, Q = (0.5, 0.3, 0.15, 0.05), (0.1, 0.4, 0.2, 0.3)


def frequencies(rng, drafted, p=P, q=Q, draws=4000, further=EVEN):
    """A draft that is always the same, so that min(1, p/q) and what is left show."""
    call = spoken(rng, (drafted,), [q], [p, further], rows=draws, summary="counts")
    target, draft = torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64)
    accepted = min(1.0, float(target[drafted] / draft[drafted]))
    left = (target - draft).clamp(min=0)
    probs = (1 - accepted) * left / left.sum().clamp(min=1e-9)
    probs[drafted] += accepted
    return call.drawn_from(torch.cat((torch.zeros(1), probs)))


test_speculative_accepted = check(
    "10.5", "how often draft {drafted} passes, and what takes its place", view=column(0),
    drafted=[1, 3, 0],
)(frequencies)  # fmt: skip


@check("10.5", view=column(1))
def test_speculative_last(rng, p=P, draws=4000):
    """after all drafts passed, the token more is drawn from the last p"""
    call = spoken(rng, (2,), [EVEN], [C, p], rows=draws, summary="counts")
    return call.drawn_from(torch.tensor([0.0, *p]))


@check("10.5", view=column(1))
def test_speculative_dropped(rng, draws=4000):
    """nothing follows a draft that was rejected"""
    call = spoken(rng, (0,), [[0.5, 0.5, 0.0, 0.0]], [[0.25, 0.25, 0.5, 0.0], B], rows=draws,
                  summary="counts")  # fmt: skip
    return call.drawn_from(torch.tensor([0.5, 0.0, 0.5]))


@check("10.5")
def test_speculative_generator(rng, rows=6):
    """the generator decides the draw"""
    seed = Given("generator", seed=int(rng.integers(0, 10**6)))
    call = spoken(rng, (3, 0), [EVEN, EVEN], [P, Q, P], rows, generator=seed, summary="repeats")
    return call.then("", **call.steps[0][1])
