"""Visible checks of lab 14: what check("14.1") and its sisters run."""

from functools import partial

import torch

from labkit.checks.declared import Call, Given, New, Outcome, check, rows

F32, BF16 = torch.float32, torch.bfloat16
GROUP = Given("parallel.group")
one_of = partial(Given, "parallel.group")  # rank=, size=: a group that only counts
loose = partial(check, tolerance=1e-4)  # where another order of sums is as right


def each(values):
    """An input that differs between ranks."""
    return Given("parallel.by_rank", values=list(values))


def numbers(rng, shapes, dtype=F32):
    return each((3 * rng.normal(*shape)).to(dtype) for shape in shapes)


# 14.1


def pass_call(rng, shapes, **options):
    """Rank r receives what the rank before it sends."""
    received = each(torch.zeros(shape) for shape in (shapes[-1], *shapes[:-1]))
    inputs = {"tensor": numbers(rng, shapes), "received": received, "group": GROUP}
    return Call("pass_on", ranks=len(shapes), traffic="bytes", **inputs, **options)


test_pass = check("14.1", "pass_on: {shapes} on the ranks", shapes=[
    ((3,), (3,)), ((2, 2), (5,), (1,)), ((2,), (4,), (3,), (1,)),
])(pass_call)  # fmt: skip
test_pass_alone = check("14.1", "pass_on: a rank alone", points=0.5, shapes=((4,),))(pass_call)


def ring_call(rng, size, shape, dtype=F32, **options):
    """If size does not divide the numbers, any of the pieces may be the shorter ones."""
    traffic = "total" if torch.Size(shape).numel() % size else "bytes"
    inputs = {"tensor": numbers(rng, [shape] * size, dtype), "group": GROUP}
    if not dtype.is_floating_point or dtype == BF16:  # every order of sums is exact
        inputs["tensor"] = each(rng.integers(-9, 9, *shape).to(dtype) for _ in range(size))
    return Call("ring_all_reduce", ranks=size, traffic=traffic, **inputs, **options)


test_ring = check(
    "14.1", "{size} ranks, shape {shape}: the sum, and what each rank sends", points=2,
    cases=rows("size, shape", (2, (4,)), (4, (2, 6)), (3, (9,))),
)(ring_call)  # fmt: skip
test_ring_uneven = check(
    "14.1", "{size} ranks, shape {shape}: pieces of different sizes", points=2,
    cases=rows("size, shape", (3, (7,)), (4, (5, 2)), (4, (9,)), (4, (2,))),
)(ring_call)  # fmt: skip
test_ring_alone = check("14.1", "a rank alone", points=0.5, size=1, shape=(3,))(ring_call)
test_ring_dtype = check(
    "14.1", "numbers of {dtype}", points=0.5, size=2, shape=(6,), dtype=[torch.int64, BF16]
)(ring_call)


def same_bits(outcomes):
    """Whether all ranks have the very same numbers."""
    if outcomes[0].failure or not all(
        isinstance(value, torch.Tensor)
        for name, value in outcomes[0].value.items() if name.startswith("rank")
    ):  # fmt: skip
        return outcomes
    first, *others = (v for n, v in outcomes[0].value.items() if n.startswith("rank"))
    return [Outcome([first, {"all ranks have the same bits": all(
        torch.equal(first, other) for other in others
    )}])]  # fmt: skip


test_ring_strided = check(
    "14.1", "a tensor that is not contiguous, and that stays as it was", points=0.5, size=2,
    shape=(4, 3),
)(lambda rng, size, shape: Call("ring_all_reduce", ranks=size, group=GROUP, tensor=each(
    rng.normal(*shape).T for _ in range(size)
)))  # fmt: skip
test_ring_bits = check(
    "14.1", "the same bits on all ranks", view=same_bits, size=3, shape=(50,)
)(ring_call)


# 14.2

VOCAB = 7


def texts(rng, sizes, share=0.7):
    """input_ids and labels by rank; of `sizes` (B, T) and how many labels count at least."""
    ids = [rng.integers(0, VOCAB, *size) for size in sizes]
    dropped = [rng.uniform(*size) > share for size in sizes]
    labels = [i.masked_fill(drop, -100) for i, drop in zip(ids, dropped, strict=True)]
    labels[0][0, 1] = ids[0][0, 1]  # at least one counts
    return ids, labels


def data_call(rng, sizes, share=0.7, without=(), steps=1, groups=1, traffic="none", **more):
    """`without`: ranks on which no label counts, or pairs of a rank and one of its texts."""
    seed = int(rng.integers(0, 1000))
    objects = Given("training.training", seed=seed, vocab_size=VOCAB, hidden_size=3,
                    groups=groups, stale=True)  # fmt: skip
    options = {"ranks": len(sizes), "objects": objects, "traffic": traffic}
    call = Call("data_parallel_step", **options)
    for _ in range(steps):
        ids, labels = texts(rng, sizes, share)
        for place in without:
            rank, text = place if isinstance(place, tuple) else (place, slice(None))
            labels[rank][text] = -100
        inputs = {"input_ids": each(ids), "labels": each(labels), "lr": 0.3, "group": GROUP}
        call.then("", **inputs, **more)
    return call


test_data = check("14.2", "two ranks, every label counts", sizes=((2, 4), (2, 4)), share=1.0)(
    data_call
)
test_data_masks = check(
    "14.2", "labels that do not count, more on some ranks than on others", points=3,
    sizes=[((2, 5), (2, 5)), ((1, 6), (3, 3), (2, 4))], share=0.5,
)(data_call)  # fmt: skip
test_data_silent = check(
    "14.2", "a rank on which no label counts", sizes=((2, 4), (2, 4)), without=[(0,), (1,)]
)(data_call)
test_data_parts = check(
    "14.2", "each rank in {accumulation_steps} parts", sizes=((3, 4), (4, 4)),
    accumulation_steps=[2, 3],
)(data_call)  # fmt: skip
test_data_parts_silent = check(
    "14.2", "parts in which no label counts", points=0.5, sizes=((2, 4), (3, 4)),
    accumulation_steps=2, without=((1, 0), (1, 1)),
)(data_call)  # fmt: skip
test_data_clip = check(
    "14.2", "gradients that are clipped, by the norm of their sum", points=1.5,
    sizes=((2, 4), (1, 4)), max_grad_norm=[0.05],
)(data_call)  # fmt: skip
test_data_free = check(
    "14.2", "gradients that are not clipped", points=0.5, sizes=((2, 4), (2, 4)),
    max_grad_norm=99.0,
)(data_call)  # fmt: skip
test_data_steps = check(
    "14.2", "two steps, an optimizer with two groups", steps=2, sizes=((2, 4), (1, 5)), groups=2
)(data_call)
test_data_buckets = check(
    "14.2", "buckets of at most {bucket_size} numbers", sizes=((2, 4), (1, 4)),
    traffic="buckets", bucket_size=[30, 45, 57, 1000],
)(data_call)  # fmt: skip
test_data_kinds = check(
    "14.2", "all_reduce is all that travels", points=0.5, sizes=((1, 4), (2, 3)),
    traffic="kinds",
)(data_call)  # fmt: skip
test_data_alone = check("14.2", "a rank alone", points=0.5, sizes=((3, 4),))(data_call)


# 14.3


def adamw_call(
    rng, size, shapes=((4, 2), (3,), (1,)), steps=1, lr=0.1, without=(), clip=None,
    traffic="none", read=".params", betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, **given,
):  # fmt: skip
    """Steps, each after gradients of its own; then what `read` says."""
    seed = int(rng.integers(0, 1000))
    made = Given("parallel.weights", shapes=list(shapes), seed=seed)
    init = {"params": made, "group": GROUP, "lr": lr, "betas": betas, "eps": eps}
    call = Call("ShardedAdamW", init=init | {"weight_decay": weight_decay}, ranks=size,
                traffic=traffic, by_position=True)  # fmt: skip
    for number in range(steps):
        rate = Given("parallel.gradients", seed=seed + number, without=without,
                     value=lr * (1 + number), **given)  # fmt: skip
        call.then("__setattr__", name="lr", value=rate)
        call.then("step", max_grad_norm=clip)
    return call.then(read)


test_adamw = check("14.3", "one step on {size} ranks", points=2, size=[2, 3])(adamw_call)
test_adamw_uneven = check(
    "14.3", "{size} ranks, which do not divide the numbers", size=4,
    shapes=[((3, 2), (4,), (1,)), ((2,), (1,))],
)(adamw_call)  # fmt: skip
test_adamw_alone = check("14.3", "a rank alone", points=0.5, size=1)(adamw_call)
test_adamw_steps = check(
    "14.3", "three steps, each with another lr and fresh gradients", points=2, size=2, steps=3
)(adamw_call)
test_adamw_settings = check(
    "14.3", "betas, eps and weight_decay", size=2, steps=2, betas=(0.7, 0.9), eps=0.1,
    weight_decay=0.5,
)(adamw_call)  # fmt: skip
test_adamw_none = check(
    "14.3", "a parameter without a gradient", size=2, steps=2, without=(1,)
)(adamw_call)
test_adamw_clip = check(
    "14.3", "clipped to {clip}, by the norm of all ranks together", points=1.5, size=2,
    clip=[0.5, 100.0], steps=2, eps=0.5,
)(adamw_call)  # fmt: skip
test_adamw_tiny = check(
    "14.3", "tiny gradients: the 1e-6 beside the norm", points=0.25, size=2, clip=1e-6,
    scale=1e-6, eps=1e-6, steps=[1],
)(adamw_call)  # fmt: skip
test_adamw_loaded = check(
    "14.3", "weights that were loaded between two steps", points=0.5, size=2, steps=2,
    loaded=True,
)(adamw_call)  # fmt: skip
test_adamw_moments = check(
    "14.3", "{read} has the size of a shard", size=3, read=[".exp_avg", ".exp_avg_sq"],
    shapes=((4, 2), (3,)),
)(adamw_call)  # fmt: skip
test_adamw_kinds = check(
    "14.3", "gradients travel by reduce_scatter, weights by all_gather", size=2,
    traffic="kinds", clip=1.0,
)(adamw_call)  # fmt: skip


# 14.4


def pair_call(rng, symbol, size=2, shape=(2, 3), **options):
    """CopyToRanks of one tensor, ReduceFromRanks of one per rank; and the gradient."""
    x = rng.normal(*shape)
    if symbol == "ReduceFromRanks":
        x = numbers(rng, [shape] * size)
    call = Call(symbol, ranks=size, by_position=True, grad=("x",), **options)
    return call.then("apply", x=x, group=GROUP)


test_copy = check(
    "14.4", "CopyToRanks on {size} ranks, and its gradient", symbol="CopyToRanks", size=[2, 3]
)(pair_call)
test_reduce = check(
    "14.4", "ReduceFromRanks on {size} ranks, and its gradient", symbol="ReduceFromRanks",
    size=[2, 3],
)(pair_call)  # fmt: skip


test_copy_residual = check(
    "14.4", "CopyToRanks(x) + x, and the gradient", points=0.25, symbol="CopyToRanks",
    add_input="x",
)(pair_call)  # fmt: skip


def layer_call(
    rng, symbol, size=2, inputs=4, outputs=8, bias=False, shape=(2, 3), dtype=F32, **options
):
    """A parallel layer with numbers in all its weights."""
    is_row = symbol.startswith("Row")
    here = (outputs, inputs // size) if is_row else (outputs // size, inputs)
    states = [{"weight": rng.normal(*here)} for _ in range(size)]
    whole = rng.normal(outputs)
    for state in states if bias else ():
        state["bias"] = whole if is_row else rng.normal(here[0])
    x = rng.normal(*shape, inputs, dtype=dtype)
    if is_row:
        x = numbers(rng, [(*shape, inputs // size)] * size, dtype)
    init = {"in_features": inputs, "out_features": outputs, "group": GROUP, "bias": bias}
    call = Call(symbol, init=init, state=each(states), ranks=size, dtype=dtype, **options)
    return call.then(x=x)


test_column = check(
    "14.4", "ColumnParallelLinear, {size} ranks, with gradients", symbol="ColumnParallelLinear",
    size=[2, 4], grad=True, points=2,
)(layer_call)  # fmt: skip
test_row = check(
    "14.4", "RowParallelLinear, {size} ranks, with gradients", symbol="RowParallelLinear",
    size=[2, 4], grad=True, points=2,
)(layer_call)  # fmt: skip
test_layer_bias = check(
    "14.4", "{symbol} with a bias", symbol=["ColumnParallelLinear", "RowParallelLinear"],
    bias=True, grad=True,
)(layer_call)  # fmt: skip
test_layer_half = check(
    "14.4", "{symbol} in {dtype}", symbol=["ColumnParallelLinear", "RowParallelLinear"],
    points=0.5, dtype=BF16,
)(layer_call)  # fmt: skip
test_layer_traffic = check(
    "14.4", "{symbol}: what travels forward and backward", points=0.5, traffic="bytes",
    symbol=["ColumnParallelLinear", "RowParallelLinear"], grad=True,
)(layer_call)  # fmt: skip


# 14.5


def embedding_call(rng, size=2, vocab=12, shape=(2, 5), **options):
    states = [{"weight": rng.normal(vocab // size, 3)} for _ in range(size)]
    init = {"num_embeddings": vocab, "embedding_dim": 3, "group": GROUP}
    call = Call("VocabParallelEmbedding", init=init, state=each(states), ranks=size, **options)
    return call.then(input_ids=rng.integers(0, vocab, *shape))


test_embedding = check("14.5", "VocabParallelEmbedding on {size} ranks", size=[1, 2, 3])(
    embedding_call
)
test_embedding_gradient = check("14.5", "its gradient", grad=True, traffic="kinds")(
    embedding_call
)


def loss_call(rng, size=2, vocab=8, shape=(2, 5), scale=3.0, dropped=0.0, dtype=F32, **options):
    logits = [(scale * rng.normal(*shape, vocab // size)).to(dtype) for _ in range(size)]
    labels = rng.integers(0, vocab, *shape)
    labels = labels.masked_fill(rng.uniform(*shape) < dropped, -100)
    labels[0, 1] = int(rng.integers(0, vocab))
    inputs = {"logits": each(logits), "labels": labels, "group": GROUP}
    return Call("vocab_parallel_cross_entropy", ranks=size, **inputs, **options)


test_loss = check("14.5", "the loss on {size} ranks", size=[1, 2, 4], points=1.5)(loss_call)
test_loss_gradient = check("14.5", "its gradient", grad=("logits",), points=1.5)(loss_call)
test_loss_dropped = check("14.5", "labels of -100 do not count", dropped=0.5, grad=("logits",))(
    loss_call
)
test_loss_large = check("14.5", "logits that differ by hundreds", scale=300.0)(loss_call)
test_loss_half = check("14.5", "logits in {dtype}", points=0.5, dtype=BF16)(loss_call)
test_loss_kinds = check(
    "14.5", "logits never travel: all_reduce of a number per position", points=0.5,
    traffic="kinds", most_numbers=2 * 5 * 8 - 1, size=2,
)(loss_call)  # fmt: skip

SIZES = {"vocab_size": 24, "hidden_size": 6, "intermediate_size": 8, "head_dim": 2}
SIZES |= {"num_hidden_layers": 1, "num_attention_heads": 24}


def shard_call(rng, name, shape, rank=1, size=2, kv_heads=4, **options):
    config = New("Qwen3Config", num_key_value_heads=kv_heads, **SIZES)
    inputs = {"weight": rng.normal(*shape), "config": config}
    inputs["group"] = one_of(rank=rank, size=size)
    return Call("shard_weight", name=name, **inputs, **options)


LAYER = "model.layers.0."
test_shard_rows = check("14.5", "shard_weight of {name}", points=0.5, cases=rows(
    "name, shape", (LAYER + "self_attn.q_proj.weight", (16, 6)), ("lm_head.weight", (24, 6)),
    (LAYER + "mlp.up_proj.weight", (8, 6)), ("model.embed_tokens.weight", (24, 6)),
))(shard_call)  # fmt: skip
test_shard_columns = check("14.5", "shard_weight of {name}", points=0.5, cases=rows(
    "name, shape", (LAYER + "self_attn.o_proj.weight", (6, 16)),
    (LAYER + "mlp.experts.3.down_proj.weight", (6, 8)),
))(shard_call)  # fmt: skip
test_shard_heads = check(
    "14.5", "shard_weight of k_proj: {kv_heads} KV heads, rank {rank} of {size}",
    name=LAYER + "self_attn.k_proj.weight",
    cases=rows("kv_heads, shape, rank, size", (4, (8, 6), 1, 2), (2, (4, 6), 2, 4),
               (1, (2, 6), 1, 2)),
)(shard_call)  # fmt: skip
test_shard_whole = check("14.5", "shard_weight of {name}: whole", points=0.5, cases=rows(
    "name, shape", (LAYER + "input_layernorm.weight", (6,)),
    (LAYER + "mlp.gate.weight", (4, 6)), (LAYER + "self_attn.o_proj.bias", (6,)),
))(shard_call)  # fmt: skip
test_shard_refused = check(
    "14.5", "what {size} ranks do not divide raises ValueError: {name}", points=0.5, size=4,
    kv_heads=[6], cases=rows("name, shape", ("lm_head.weight", (22, 6)),
                             (LAYER + "self_attn.v_proj.weight", (12, 6))),
)(shard_call)  # fmt: skip


# 14.6

E, X = 4, 4


def moe_call(
    rng, size=2, shapes=((1, 3), (2, 2)), top_k=2, norm=True, lean=(), experts=X, loaded=True,
    **options,
):  # fmt: skip
    """`lean`: experts that the router of every token prefers; loaded: with weights of its own,
    else with those of the block."""
    config = New("Qwen3Config", num_key_value_heads=4, num_experts=experts,
                 num_experts_per_tok=top_k, norm_topk_prob=norm, moe_intermediate_size=3,
                 **SIZES | {"hidden_size": E})  # fmt: skip
    block = New("Qwen3MoeSparseMoeBlock", config=config)
    gate, tokens = rng.normal(experts, E), [rng.normal(*shape, E) for shape in shapes]
    for expert in lean:
        gate[expert] = 0.1 * gate[expert] + 9 / E
    if lean:
        tokens = [x.abs() + 0.1 for x in tokens]
    sizes = {"gate_proj": (3, E), "up_proj": (3, E), "down_proj": (E, 3)}
    weights = [{n: rng.normal(*s) for n, s in sizes.items()} for _ in range(experts)]
    states, here = [], experts // size
    for rank in range(size):
        mine = enumerate(weights[rank * here : (rank + 1) * here])
        state = {f"experts.{i}.{n}.weight": w for i, made in mine for n, w in made.items()}
        states.append({"gate.weight": gate, **state})
    call = Call("ExpertParallelMoe", init={"block": block, "group": GROUP}, ranks=size,
                state=each(states) if loaded else None, **options)  # fmt: skip
    return call.then(hidden_states=each(tokens))


test_moe = check("14.6", "two ranks, {top_k} experts per token", points=2, top_k=[1, 2])(
    moe_call
)
test_moe_ranks = check(
    "14.6", "four ranks with different numbers of tokens", points=2, size=4, experts=8,
    shapes=((1, 2), (2, 2), (1, 1), (1, 3)), top_k=3,
)(moe_call)  # fmt: skip
test_moe_own = check("14.6", "the weights of the block", loaded=False)(moe_call)
test_moe_norm = check("14.6", "weights that do not sum to 1", points=0.5, norm=False)(moe_call)
test_moe_idle = check(
    "14.6", "every token wants the experts of rank 0", lean=(0, 1), grad=True
)(moe_call)
test_moe_empty = check("14.6", "a rank without tokens", shapes=((1, 3), (0, 2)))(moe_call)
test_moe_alone = check("14.6", "a rank alone", points=0.5, size=1, shapes=((2, 3),))(moe_call)
test_moe_gradient = check("14.6", "gradients of tokens, router and experts", grad=True,
                          points=1.5)(moe_call)  # fmt: skip
test_moe_kinds = check("14.6", "all_to_all is all that travels", points=0.5, traffic="kinds")(
    moe_call
)
test_moe_names = check("14.6", "names and shapes of the weights", points=0.5, names=True)(
    moe_call
)


# 14.7


def attention_call(
    rng, size=2, shape=(2, 4, 2, 3, 4), scale=1.0, dtype=F32, traffic="none", **options
):
    """shape: B, H, K, T, D of each rank."""
    batch, heads, kv_heads, length, features = shape
    sizes = {"query": heads, "key": kv_heads, "value": kv_heads}
    inputs = {
        name: each((scale * rng.normal(batch, count, length, features)).to(dtype)
                   for _ in range(size))
        for name, count in sizes.items()
    }  # fmt: skip
    call = Call("ring_attention", ranks=size, traffic=traffic)
    return call.then(**inputs, group=GROUP, **options)


test_attention = check("14.7", "{size} ranks, every key for every query", points=2,
                       size=[2, 3], is_causal=False)(attention_call)  # fmt: skip
test_attention_causal = check("14.7", "{size} ranks, causal", points=3, size=[2, 3, 4])(
    attention_call
)
test_attention_alone = check("14.7", "a rank alone", points=0.5, size=1)(attention_call)
test_attention_heads = check(
    "14.7", "{shape[1]} query heads, {shape[2]} KV heads", size=2,
    shape=[(1, 6, 2, 2, 4), (1, 3, 3, 1, 2), (1, 2, 1, 4, 2)],
)(attention_call)  # fmt: skip
test_attention_large = check("14.7", "scores that differ by hundreds", scale=30.0)(
    attention_call
)
test_attention_half = check("14.7", "{dtype} in, {dtype} out", points=0.5, dtype=BF16)(
    attention_call
)
test_attention_traffic = check(
    "14.7", "what each rank sends", size=3, traffic="bytes", shape=(1, 4, 2, 3, 4)
)(attention_call)


# 14.8


def schedule_call(rng, kind, place, few=False, **options):
    """A pipeline of 4 or more stages; place: which of them. few: less work than stages."""
    num_stages = 4 + int(rng.integers(0, 3))
    num_micro = num_stages + int(rng.integers(0, 4))
    middle = 1 + int(rng.integers(0, 2))
    if few:
        num_micro, middle = num_stages - 2, 1
    stage = {"the first": 0, "a middle": middle, "the last": num_stages - 1}[place]
    inputs = {"stage": stage, "num_stages": num_stages, "num_micro": num_micro, "kind": kind}
    return Call("pipeline_schedule", **inputs, **options)


PLACES = ["the first", "a middle", "the last"]
test_gpipe = check("14.8", "gpipe: {place} stage", kind="gpipe", place=PLACES[:2])(
    schedule_call
)
test_1f1b = check("14.8", "1f1b: {place} stage", kind="1f1b", place=PLACES)(schedule_call)
test_1f1b_few = check("14.8", "1f1b: {place} stage, fewer micro-batches than stages",
                      kind="1f1b", few=True, place=PLACES[:2])(schedule_call)  # fmt: skip
test_schedule_alone = check("14.8", "a pipeline of one stage, {kind}", points=0.5,
                            kind=["gpipe", "1f1b"])(
    lambda rng, kind: Call("pipeline_schedule", stage=0, num_stages=1,
                           num_micro=2 + int(rng.integers(0, 4)), kind=kind)
)  # fmt: skip
test_schedule_kind = check("14.8", "another kind raises ValueError", points=0.5, kind="2f2b",
                           place="the first")(schedule_call)  # fmt: skip


@check("14.9", size=2)
def test_web_count(rng, size):
    """{size} ranks with labels, then one of them with none"""
    labels = [rng.integers(0, 9, 4) for _ in range(size)]
    for last in (labels[-1], torch.full((4,), -100)):
        yield Call("web_count", labels=each([*labels[:-1], last]), group=GROUP, ranks=size)


@check("14.10", size=2)
def test_web_row(rng, size):
    """{size} ranks, with a bias"""
    inputs = {"x": rng.normal(3, 12), "weight": rng.normal(5, 12), "bias": rng.normal(5)}
    return Call("web_row_linear", **inputs, group=GROUP, ranks=size)
