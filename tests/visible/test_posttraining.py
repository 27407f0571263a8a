"""Visible checks of lab 11: what check("11.1") and its sisters run."""

from functools import partial

import torch
from visible.questions import in_eval_mode

from labkit.checks.declared import Call, Given, New, Outcome, check, rows

F32, BF16 = torch.float32, torch.bfloat16
HEADER, END = (4, 7, 5), 3  # of an answer; 4, 6, 5 begins a user's turn, 5 is a line break
VOCAB = 23


def chat(rng, *sizes, closed=True):
    """A user's turn and an answer by turns, of so many tokens each."""
    ids = []
    for number, size in enumerate(sizes):
        said = rng.integers(8, VOCAB, size)
        said = torch.where(said < 10, said - 7, said).tolist()  # 1 and 2 instead of 8 and 9
        ids += [4, 7 if number % 2 else 6, 5, *said, END, 5]
    return ids if closed else ids[:-2]


def labels_call(rng, *chats, left=(), right=0, pad=0, closed=True, **options):
    """Texts in one batch: with `left` columns of padding before each and `right` behind the
    longest, a mask; the others are filled up."""
    rows = [chat(rng, *sizes, closed=closed) for sizes in chats]
    before = left or [0] * len(rows)
    total = right + max(n + len(row) for n, row in zip(before, rows, strict=True))
    ids = torch.full((len(rows), total), pad)
    mask = torch.zeros_like(ids)
    for n, row in enumerate(rows):
        place = slice(before[n], before[n] + len(row))
        ids[n, place], mask[n, place] = torch.tensor(row), 1
    inputs = {"input_ids": ids, "header": HEADER, "end_of_turn": END}
    if left:
        inputs["attention_mask"] = mask
    return Call("answer_labels", **inputs, **options)


@check("11.1", sizes=[(3, 4)], points=2)
def test_labels_turn(rng, sizes):
    """one question and its answer"""
    return labels_call(rng, sizes)


@check("11.1", chats=[((2, 3, 1, 4),)], points=2)
def test_labels_turns(rng, chats):
    """several turns: every answer counts"""
    return labels_call(rng, *chats)


@check("11.1", chats=[((3, 4),)])
def test_labels_cut(rng, chats):
    """an answer that is cut off before its end"""
    return labels_call(rng, *chats, closed=False)


@check("11.1", sizes=[(3,)])
def test_labels_none(rng, sizes):
    """a text without an answer"""
    return labels_call(rng, sizes, (2, 1))


@check("11.1", points=0.5, pad=[0, END], cases=rows(  # one text, the first whole, the last
    "chats, left, right", (((3, 2),), (2,), 2), (((2, 6), (3, 2)), (0, 0), 0),
    (((3, 2), (2, 6)), (2, 0), 0),
))  # fmt: skip
def test_labels_padding(rng, chats, left, right, pad):
    """padding of token {pad}, which attention_mask marks: {left} columns before, and behind"""
    return labels_call(rng, *chats, left=left, right=right, pad=pad, closed=False)


PIECES = (7, 5, 9, 4, 6, 7, 5, 9, 4, 7, 6, 9, 3, 4, 7, 5, 9, 3, 9)


@check("11.1", points=0.5, ids=[
    PIECES, (4, 7, 5, 9, 8, 3, 5), (5, 9, 3, 8, 4, 7), (9, 4, 7, 5, 4, 7, 5, 8),
])  # fmt: skip
def test_labels_pieces(rng, ids):
    """parts of the header in a text, or all of it in an answer: {ids}"""
    inputs = {"input_ids": torch.tensor([ids]), "header": HEADER, "end_of_turn": END}
    return Call("answer_labels", **inputs)


adaptable = partial(Given, "posttraining.Adaptable")


def linear(rows, columns, **kind):
    return Given("torch.nn.Linear", in_features=columns, out_features=rows, **kind)


def lora_call(rng, shape=(2, 5), out=4, r=2, lora_alpha=6.0, bias=True, dtype=F32, **options):
    """A LoRALinear with numbers in all its weights."""
    size = shape[-1]
    init = {"base_layer": linear(out, size, bias=bias)}
    state = {"base_layer.weight": rng.normal(out, size)}
    if bias:
        state["base_layer.bias"] = rng.normal(out)
    state |= {"lora_A.weight": rng.normal(r, size), "lora_B.weight": rng.normal(out, r)}
    init |= {"r": r, "lora_alpha": lora_alpha}
    call = Call("LoRALinear", init=init, state=state, dtype=dtype, **options)
    return call.then(x=rng.normal(*shape, dtype=dtype))


test_lora_values = check(
    "11.2", "r {r}, lora_alpha {lora_alpha}, in eval mode either", points=2,
    cases=[{"r": 2, "lora_alpha": 6.0}, {"r": 3, "lora_alpha": 4.0}],
)(in_eval_mode(lora_call))  # fmt: skip
test_lora_names = check("11.2", "names and shapes of the weights", names=True)(lora_call)
test_lora_gradients = check(
    "11.2", "gradients: the base layer is frozen", points=2, grad=True, bias=[True, False]
)(lora_call)


def beginning(outcomes):
    """Of a fresh layer: what it computes, and which weights get a gradient."""
    if outcomes[0].failure:
        return outcomes
    grads = outcomes[0].grads
    learns = {f"{name} gets a gradient": bool(grad.any()) for name, grad in grads.items()}
    return [Outcome([*outcomes[0].values, learns])]


def without_a(outcomes):
    """A is drawn at random: compared is how, and no number of it."""
    if outcomes[0].failure or "weights" not in outcomes[0].value:
        return outcomes
    shown = dict(outcomes[0].value["weights"])
    for name in [name for name in shown if name.endswith("lora_A.weight")]:
        a = shown[name]
        rows, columns = (
            (len(a.unique(dim=axis)) for axis in range(a.dim())) if a.dim() == 2 else (0, 0)
        )
        shown[name] = {
            "shape": list(a.shape), "dtype": str(a.dtype), "rows that differ": rows,
            "columns that differ": columns, "all are small": bool(a.abs().max() < 10),
        }  # fmt: skip
    return [Outcome([outcomes[0].value | {"weights": shown}])]


@check("11.2", size=[9])
def test_lora_defaults(rng, size):
    """nothing else said: r 8 and lora_alpha 16"""
    state = {"base_layer.weight": rng.normal(4, size), "lora_A.weight": rng.normal(8, size)}
    state |= {"base_layer.bias": rng.normal(4), "lora_B.weight": rng.normal(4, 8)}
    init = {"base_layer": linear(4, size)}
    return Call("LoRALinear", init=init, state=state).then(x=rng.normal(2, size))


@check("11.2", view=without_a)
def test_add_lora_defaults(rng):
    """add_lora, nothing else said: r 8, lora_alpha 16, q_proj and v_proj"""
    return Call("add_lora", model=adaptable())


@check("11.2", size=[5], view=beginning)
def test_lora_begins(rng, size, out=4, r=3):
    """a fresh layer computes what its base layer does, and can learn"""
    init = {"base_layer": linear(out, size), "r": r, "lora_alpha": 9.0}
    return Call("LoRALinear", init=init, grad=True).then(x=rng.normal(2, size))


@check("11.2")
def test_lora_merged(rng, out=4, size=6):
    """merged() leaves the layer itself as it is"""
    call = lora_call(rng, (2, size), out)
    call.steps.clear()
    return call.then("merged").then("", x=rng.normal(3, size))


@check("11.2", targets=[None, ("o_proj",)], points=2, view=without_a)
def test_add_lora(rng, targets, r=3):
    """add_lora on {targets}: which weights learn, and the output stays"""
    inputs = {"model": adaptable(), "r": r, "lora_alpha": rng.uniform(low=4.0, high=9.0).item()}
    if targets:
        inputs["target_modules"] = targets
    return Call("add_lora", **inputs)


@check("11.2", dtype=[torch.float64], r=2, view=without_a)
def test_add_lora_kind(rng, dtype, r):
    """add_lora on a model in {dtype}: A and B have the dtype of its weights"""
    return Call("add_lora", model=adaptable(dtype=dtype), r=r)


@check("11.2", dtype=[torch.float64])
def test_merge_dtype(rng, dtype, size=6):
    """merge in a model in {dtype}: the weights keep their dtype"""
    put = merge_put(rng, ("layers.0.v_proj", "layers.1.o_proj"), size, dtype=dtype)
    return Call("merge", model=adaptable(size=size, put=put, dtype=dtype))


@check("11.2")
def test_add_lora_unknown(rng, name="q"):
    """add_lora where no layer has such a name raises ValueError"""
    inputs = {"model": adaptable(), "target_modules": (name,)}
    call = Call("add_lora", model=adaptable(), summary="repeats")
    return call.then("", **inputs)


def merge_put(rng, paths, size, **kind):
    """{path: a LoRALinear that fits there}."""
    put, alpha = {}, rng.uniform(low=2.0, high=5.0).item()
    for path in paths:
        rows, columns = (size, size + 2) if "o_proj" in path else (size + 2, size)
        bias = "v_proj" in path
        base = linear(rows, columns, bias=bias, **kind)
        put[path] = New("LoRALinear", base_layer=base, r=2, lora_alpha=alpha)
    return put


@check("11.2", paths=[("layers.0.v_proj", "layers.1.q_proj")], points=2)
def test_merge(rng, paths, size=6):
    """merge of LoRA on {paths}: the weights afterwards, and the output stays"""
    return Call("merge", model=adaptable(size=size, put=merge_put(rng, paths, size)))


def log_probs_call(rng, shape=(2, 6), temperature=1.0, scale=2.0, dtype=F32, **options):
    logits = (scale * rng.normal(*shape, VOCAB)).to(dtype)
    ids = rng.integers(0, VOCAB, *shape)
    inputs = {"logits": logits, "input_ids": ids, "temperature": temperature}
    return Call("token_log_probs", **inputs, **options)


test_log_probs = check("11.3", "token_log_probs at temperature {temperature}",
                       temperature=[1.0, 0.6], points=2)(log_probs_call)  # fmt: skip
test_log_probs_gradients = check("11.3", "gradients of token_log_probs", grad=("logits",))(
    log_probs_call
)


@check("11.3", shape=[(1, 3)])
def test_log_probs_one(rng, shape):
    """token_log_probs of one text, without a temperature"""
    call = log_probs_call(rng, shape)
    del call.steps[0][1]["temperature"]
    return call


test_log_probs_large = check("11.3", "token_log_probs of large logits", scale=60.0)(
    log_probs_call
)
test_log_probs_bfloat16 = check(
    "11.3", "token_log_probs of logits in bfloat16", dtype=BF16, temperature=0.7
)(log_probs_call)


@check("11.3", scale_rewards=[True, False], points=2)
def test_advantages(rng, scale_rewards, groups=3, size=5):
    """group_advantages, scale_rewards {scale_rewards}: one group of equal rewards"""
    rewards = rng.normal(groups, size)
    rewards[1] = 0.7
    inputs = {"rewards": rewards.flatten(), "group_size": size}
    return Call("group_advantages", **inputs, scale_rewards=scale_rewards)


@check("11.3")
def test_advantages_few(rng, rewards=(1.0, 0.0, 0.0, 0.0, 1.0, 1.0)):
    """group_advantages of rewards 0 and 1, in groups of 2 and of 3"""
    call = Call("group_advantages", rewards=torch.tensor(rewards), group_size=2)
    return call.then("", rewards=torch.tensor(rewards), group_size=3)


def policy_call(
    rng, lengths=(3, 6, 1), spread=0.3, grad=("log_probs",), nan=False, room=1, **inputs
):
    """Answers of these lengths, T is `room` more; old and new are `spread` apart."""
    shape = (len(lengths), max(lengths) + room)
    mask = (torch.arange(shape[1]) < torch.tensor(lengths)[:, None]).long()
    old = -rng.uniform(*shape, low=0.1, high=3.0)
    log_probs = old + spread * rng.normal(*shape)
    if nan:
        old, log_probs = (t.masked_fill(mask == 0, -torch.inf) for t in (old, log_probs))
    given = {"log_probs": log_probs, "old_log_probs": old, "mask": mask}
    given["advantages"] = rng.normal(shape[0])
    if "beta" in inputs:
        inputs["ref_log_probs"] = (old + 0.4 * rng.normal(*shape)).nan_to_num(neginf=0.0)
    return Call("policy_loss", **given, **inputs, grad=grad)


test_policy_first = check(
    "11.3", "policy_loss where old and new are equal: loss_type {loss_type}", points=1.5,
    loss_type=["grpo", "dapo", "dr_grpo"], spread=0.0,
)(policy_call)  # fmt: skip
test_policy_clip = check(
    "11.3", "policy_loss with a ratio far from 1: clip_low {clip_low}, clip_high {clip_high}",
    cases=[{"clip_low": 0.2, "clip_high": 0.2}, {"clip_low": 0.1, "clip_high": 0.4}],
    spread=0.7, lengths=(9, 7, 8, 9, 9, 5),
)(policy_call)  # fmt: skip
test_policy_gspo = check(
    "11.3", "policy_loss gspo: one ratio per answer", loss_type="gspo", spread=0.7,
    lengths=(9, 7, 8, 1, 9, 5),
)(policy_call)  # fmt: skip
test_policy_kl = check(
    "11.3", "policy_loss with a reference model, answers of {lengths} tokens", beta=0.5,
    lengths=[(3, 6, 1), (4,)],
)(policy_call)  # fmt: skip
test_policy_masked = check(
    "11.3", "policy_loss where masked tokens have a log-probability of -inf", nan=True,
    lengths=(6, 3, 6), room=0,
)(policy_call)  # fmt: skip
test_policy_masked_kl = check(
    "11.3", "policy_loss with a reference model and masked tokens of -inf", nan=True, beta=0.2
)(policy_call)
test_policy_constant = check(
    "11.3", "policy_loss dr_grpo with max_length 10", loss_type="dr_grpo", max_length=10
)(policy_call)
test_policy_empty = check(
    "11.3", "policy_loss with answers of {lengths} tokens: {loss_type}", points=0.5,
    loss_type=["grpo", "dapo", "dr_grpo"], lengths=[(3, 0, 2), (0, 0)],
)(policy_call)  # fmt: skip
test_policy_all_gradients = check(
    "11.3", "gradients of policy_loss flow to log_probs alone", beta=0.3, points=0.5,
    grad=("log_probs", "old_log_probs", "advantages", "ref_log_probs"),
)(policy_call)  # fmt: skip


SETTINGS = (
    "temperature",
    "updates",
    "scale_rewards",
    "loss_type",
    "clip_low",
    "clip_high",
    "max_grad_norm",
)


def step_call(rng, steps=1, prompts=(3, 5), group=3, new=4, stops=(1, 2, 3, 4, 5), **inputs):
    """grpo_step on prompts of these lengths; every token has a worth. A max_grad_norm of None
    is left out."""
    longest = max(prompts)
    mask = (torch.arange(longest) >= longest - torch.tensor(prompts)[:, None]).long()
    seed = int(rng.integers(0, 1000))
    given = Given("posttraining.policy", seed=seed, used=steps > 1)
    inputs = {"max_grad_norm": 50.0, **inputs}
    settings = {k: v for k, v in inputs.items() if k in SETTINGS and v is not None}
    call = Call("grpo_step", objects=given)
    for _ in range(steps):
        call.then(
            input_ids=rng.integers(6, VOCAB, *mask.shape), attention_mask=mask,
            reward=Given("posttraining.Judge", worth=rng.uniform(VOCAB).tolist()),
            group_size=group, max_new_tokens=new, eos_token_id=list(stops),
            pad_token_id=inputs.get("pad", 0),
            generator=Given("generation.seeded", seed=int(rng.integers(1, 1000))),
            **settings,
        )  # fmt: skip
    return call


NEAR = 1e-3  # steps add up what the floats of another order leave

test_step = check(
    "11.4", "one step: what the reward is asked, and what is learned", tolerance=NEAR, points=2
)(step_call)
test_step_one_prompt = check(
    "11.4", "one question alone", tolerance=NEAR, prompts=(4,), group=4
)(step_call)
test_step_pad = check("11.4", "padded with a stop token", tolerance=NEAR, pad=2)(step_call)
test_step_temperature = check(
    "11.4", "temperature {temperature}", tolerance=NEAR, temperature=[0.6, 1e-3]
)(step_call)
test_step_updates = check(
    "11.4", "{updates} updates on the same answers, other settings left out", tolerance=NEAR,
    updates=[3], max_grad_norm=None,
)(step_call)  # fmt: skip
test_step_settings = check("11.4", "one step with {settings}", tolerance=NEAR, settings=[
        {"loss_type": "grpo", "scale_rewards": False}, {"loss_type": "dr_grpo", "new": 40},
        {"max_grad_norm": 0.05}, {"updates": 2, "clip_low": 0.01, "clip_high": 0.05},
    ],
)(lambda rng, settings, **sizes: step_call(rng, **sizes, **settings))  # fmt: skip
test_step_two = check(
    "11.4", "two steps in a row, with gradients of something else before", tolerance=NEAR,
    steps=2,
)(step_call)  # fmt: skip


def dpo_call(
    rng, lengths=(3, 5, 4, 1), scale=0.5, beta=0.3, grad=False, nan=False, first=False
):
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ref = -rng.uniform(*mask.shape, low=0.1, high=3.0)
    log_probs = ref + scale * rng.normal(*mask.shape)
    if nan:
        ref, log_probs = (t.masked_fill(mask == 0, -torch.inf) for t in (ref, log_probs))
    inputs = {"log_probs": log_probs, "ref_log_probs": ref, "mask": mask}
    if beta is not None:
        inputs["beta"] = beta
    call = Call("dpo_loss", **inputs, grad=grad, summary="first" if first else None)
    return call if first else call.returning("loss", "margin")


test_dpo = check("11.5", "pairs of answers, beta {beta}", points=2, beta=[0.3, 1.0])(dpo_call)
test_dpo_default = check("11.5", "pairs of answers, beta left out", beta=None)(dpo_call)
test_dpo_far = check(
    "11.5", "margins far from 0", scale=300.0, beta=1.0, lengths=(3, 5, 4, 1, 2, 6, 3, 2, 4, 3)
)(dpo_call)
test_dpo_masked = check(
    "11.5", "masked tokens with a log-probability of -inf, answers of {lengths} tokens",
    nan=True, lengths=[(3, 5, 4, 1), (5, 3, 1, 5)],
)(dpo_call)  # fmt: skip
test_dpo_gradients = check(
    "11.5", "gradients of the loss flow to log_probs alone", points=0.5,
    grad=("log_probs", "ref_log_probs"), first=True,
)(dpo_call)  # fmt: skip


def learns(outcomes):
    """What a fresh layer computes, and whether one of its two matrices has a gradient."""
    if outcomes[0].failure:
        return outcomes
    found = [bool(g.any()) for n, g in outcomes[0].grads.items() if "lora" in n]
    return [Outcome([{"output": outcomes[0].value, "lora_A.grad_or_lora_B.grad": any(found)}])]


@check("11.6", view=learns)
def test_web_lora(rng, size=6):
    """a fresh layer: its output, and its gradients"""
    init = {"base_layer": linear(5, size), "r": 3}
    return Call("WebLoRA", init=init, grad=True).then(x=rng.normal(4, size))


@check("11.7", updates=4)
def test_web_ratios(rng, updates, length=6):
    """the shares of {updates} updates"""
    inputs = {"scores": 0.1 * rng.normal(1, length, 9), "ids": rng.integers(0, 9, 1, length)}
    return Call("ratios", **inputs, updates=updates)


@check("11.8", start=3)
def test_web_loss(rng, start, temperature=0.6):
    """answers from place {start} on, and the gradients"""
    inputs = {"logits": rng.normal(2, 7, 9), "old": -2 + 0.5 * rng.normal(2, 6), "start": start}
    inputs |= {"ids": rng.integers(0, 9, 2, 7), "advantages": rng.normal(2)}
    return Call("web_loss", **inputs, temperature=temperature, grad=("logits",))
