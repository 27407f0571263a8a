"""Hidden checks of lab 11: other sizes, dtypes, gradients, settings."""

import torch
from visible import test_posttraining as visible

from labkit.checks.declared import Call, check, rows

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16

test_turn = check("11.1", points=2, sizes=[(1, 9), (6, 1), (2, 0)])(visible.test_labels_turn)
test_turns = check(
    "11.1", points=2, chats=[((1, 2, 5, 3, 2, 1),), ((2, 3), (1, 1, 4, 2), (5,))]
)(visible.test_labels_turns)
test_cut = check("11.1", chats=[((2, 1, 1, 6),), ((4, 0),)])(visible.test_labels_cut)
test_none = check("11.1", sizes=[(7,), (1,)])(visible.test_labels_none)
test_padding = check("11.1", cases=rows("chats, left, right", (((4, 3),), (3,), 2),
    (((2, 3), (1, 7), (4, 1)), (0, 0, 0), 0), (((5, 7), (1, 7), (4, 2)), (0, 3, 1), 0),
    (((2, 3), (6, 7)), (3, 0), 0),
))(visible.test_labels_padding)  # fmt: skip
test_pieces = check("11.1", ids=[
    (5, 4, 7, 4, 7, 5, 9, 9, 3, 5, 4, 6, 5, 9, 7, 5, 9, 4, 7), (4, 7), (4, 7, 5, 3, 4, 7, 5),
    (3, 3, 4, 7, 5, 3, 9, 3, 4), (8, 4, 7, 5, 9, 9, 8),
])(visible.test_labels_pieces)  # fmt: skip


@check("11.1", length=[1, 2, 4])
def test_labels_header(rng, length):
    """a header of {length} tokens, arguments by position"""
    header = tuple(range(10, 10 + length))
    ids = torch.tensor([[10, 9, 9, *header, 8, 8, 1, 6, *header, 7, 1], [9] * (2 * length + 9)])
    call = Call("answer_labels", by_position=True)
    return call.then("", input_ids=ids[:, : ids.size(1)], header=header, end_of_turn=1)


test_lora_values = check("11.2", points=3, cases=[
    {"r": 1, "lora_alpha": 5.0, "out": 7, "shape": (3, 4, 6)},
    {"r": 4, "lora_alpha": 2.0, "out": 3, "shape": (8,)},
    {"r": 2, "lora_alpha": 1.0, "out": 5, "shape": (2, 3), "bias": False},
    {"r": 2, "lora_alpha": 3.0, "out": 5, "shape": (2, 3), "dtype": torch.float64},
])(visible.test_lora_values)  # fmt: skip
test_lora_names = check("11.2", names=True, bias=[True, False], r=[3])(visible.lora_call)
test_lora_gradients = check("11.2", points=2, grad=True, bias=[True, False], r=[1,
    3])(visible.lora_call)  # fmt: skip
test_lora_defaults = check("11.2", size=[11])(visible.test_lora_defaults)
test_add_lora_defaults = check("11.2", view=visible.without_a)(visible.test_add_lora_defaults)
test_lora_begins = check("11.2", size=[7], out=[3])(visible.test_lora_begins)
test_add_lora = check(
    "11.2", points=2, view=visible.without_a, r=[2],
    targets=[None, ("q_proj", "o_proj"), ("lm_head",), ("v_proj", "lm_head")],
)(visible.test_add_lora)  # fmt: skip
test_merge = check("11.2", points=4, paths=[
    ("layers.0.q_proj",), ("layers.1.v_proj", "layers.0.o_proj"), ("layers.1.v_proj",),
])(visible.test_merge)  # fmt: skip


test_add_lora_kind = check("11.2", r=[3])(visible.test_add_lora_kind)
test_merge_dtype = check("11.2", size=[4])(visible.test_merge_dtype)
test_lora_merged = check("11.2", out=[3])(visible.test_lora_merged)
test_add_lora_unknown = check("11.2", name=["proj"])(visible.test_add_lora_unknown)

test_log_probs = check("11.3", points=4, temperature=[1.0, 0.3, 2.5], shape=[(3,
    5)])(visible.log_probs_call)  # fmt: skip
test_log_probs_one = check("11.3", shape=[(1, 6), (1, 2), (4, 2)])(visible.test_log_probs_one)
test_log_probs_large = check(
    "11.3", "token_log_probs of large logits, {dtype}", cases=[
        {"scale": 60.0, "dtype": F32}, {"scale": 40.0, "dtype": F16}, {"dtype": BF16},
    ], temperature=0.7,
)(visible.log_probs_call)  # fmt: skip
test_log_probs_gradients = check("11.3", temperature=[0.7])(visible.test_log_probs_gradients)
test_advantages = check(
    "11.3", points=2.5, scale_rewards=[True, False], groups=[3, 4], size=[2, 5]
)(visible.test_advantages)
test_advantages_few = check("11.3", rewards=[(0.0, 1.0, 1.0, 0.0, 0.0,
    0.0)])(visible.test_advantages_few)  # fmt: skip


@check("11.3", eps=[1e-8, 0.5])
def test_advantages_eps(rng, eps):
    """group_advantages with eps {eps}, and a number of rewards that is no multiple"""
    call = Call("group_advantages", rewards=rng.normal(8), group_size=4, eps=eps)
    return call.then("", rewards=rng.normal(9), group_size=4)


TYPES = ["grpo", "dapo", "dr_grpo"]
test_policy = check("11.3", points=1.5, tolerance=1e-3, loss_type=TYPES, lengths=[(4, 1, 7,
    2)])(visible.test_policy_first)  # fmt: skip
test_policy_clip = check("11.3", points=2, spread=[0.6], loss_type=TYPES, cases=[
    {"clip_low": 0.2, "clip_high": 0.28}, {"clip_low": 0.4, "clip_high": 0.1},
], lengths=[(9, 4, 7, 8, 2)])(visible.test_policy_clip)  # fmt: skip
test_policy_gspo = check("11.3", points=0.5, spread=[0.5], lengths=[(6, 2, 0, 4, 1), (5,)],
    cases=[{"clip_low": 0.2, "clip_high": 0.1}, {"nan": True}])(
    visible.test_policy_gspo)  # fmt: skip
test_policy_kl = check("11.3", beta=[0.04, 1.5], loss_type=["dapo"], lengths=[(3, 6, 1),
    (5,)])(visible.test_policy_kl)  # fmt: skip
test_policy_masked = check("11.3", loss_type=TYPES)(visible.test_policy_masked)
test_policy_masked_kl = check("11.3", loss_type=TYPES)(visible.test_policy_masked_kl)
test_policy_empty = check("11.3", points=0.5, loss_type=TYPES, lengths=[(3, 0, 2), (0, 0,
    0)])(visible.test_policy_empty)  # fmt: skip
test_policy_constant = check("11.3", max_length=[4, 33])(visible.test_policy_constant)
test_policy_all_gradients = check(
    "11.3", "gradients flow to log_probs alone", points=0.5, beta=0.3,
    grad=("log_probs", "old_log_probs", "advantages", "ref_log_probs"),
)(visible.policy_call)  # fmt: skip


@check("11.3")
def test_policy_unknown(rng):
    """an unknown loss_type is refused"""
    call = visible.policy_call(rng)
    return call.then("", **{**call.steps[0][1], "loss_type": "ppo"})


test_step = check("11.4", points=2, prompts=[(2, 6, 3)], group=[2, 4])(visible.test_step)
test_step_one_prompt = check("11.4", prompts=[(1,)], group=[5])(visible.test_step_one_prompt)
test_step_pad = check("11.4", pad=[3])(visible.test_step_pad)
test_step_temperature = check("11.4", points=2, temperature=[0.5, 1.6,
    1e-3])(visible.test_step_temperature)  # fmt: skip
test_step_updates = check("11.4", points=2, updates=[2, 4])(visible.test_step_updates)
test_step_settings = check("11.4", prompts=[(4, 2)], settings=[
    {"loss_type": "grpo"}, {"loss_type": "dr_grpo", "new": 33, "scale_rewards": False},
    {"max_grad_norm": 0.02}, {"scale_rewards": False},
    {"updates": 2, "clip_low": 0.3, "clip_high": 0.01},
    {"updates": 2, "clip_low": 0.005, "clip_high": 0.3},
])(visible.test_step_settings)  # fmt: skip
test_step_two = check("11.4", new=[4], group=[4])(visible.test_step_two)

test_dpo = check("11.5", points=2, tolerance=1e-3, beta=[0.1, 2.0], lengths=[(2, 7, 3, 5, 1,
    4)])(visible.test_dpo)  # fmt: skip
test_dpo_default = check("11.5", lengths=[(3, 2, 4, 1)])(visible.test_dpo_default)
test_dpo_far = check("11.5", tolerance=1e-3, scale=[200.0])(visible.test_dpo_far)
test_dpo_masked = check("11.5", tolerance=1e-3, lengths=[(4, 2), (6, 1, 2, 6)])(
    visible.test_dpo_masked
)
test_dpo_gradients = check("11.5", lengths=[(4, 2), (1, 6, 2, 3)])(visible.test_dpo_gradients)
test_web_lora = check("11.6", size=[4, 9])(visible.test_web_lora)
test_web_ratios = check("11.7", updates=[3, 5], length=8)(visible.test_web_ratios)
test_web_loss = check("11.8", start=[2, 4], temperature=1.5)(visible.test_web_loss)
