"""Visible checks of lab 08: what check("8.1") and its sisters run."""

import pytest
import torch

from labkit.checks.runner import Call, Given, compare

VOCAB = 11


@pytest.mark.exercise("8.1")
class TestCausalLmLoss:
    def call(self, rng, scale=2.0, dtype=torch.float32, ignored=True, **options):
        labels = rng.integers(1, VOCAB, 2, 6)
        labels[0, 2] = 0  # a token like any other
        if ignored:
            labels[0, :2] = labels[0, 5] = labels[1, 5] = -100
        logits = (scale * rng.normal(2, 6, VOCAB)).to(dtype)
        return Call("causal_lm_loss", logits=logits, labels=labels, **options)

    def test_values(self, student, reference, rng):
        """every label counts"""
        compare(student, reference, self.call(rng, ignored=False))

    def test_ignored(self, student, reference, rng):
        """labels of -100 do not count"""
        compare(student, reference, self.call(rng))

    def test_large(self, student, reference, rng):
        """large logits"""
        compare(student, reference, self.call(rng, scale=100.0))

    def test_sure(self, student, reference, rng):
        """a model that is sure and right"""
        call = self.call(rng, ignored=False)
        inputs = call.steps[0][1]
        following = torch.nn.functional.one_hot(inputs["labels"].roll(-1, 1), VOCAB)
        inputs["logits"] = 200.0 * following + inputs["logits"]
        compare(student, reference, call)

    def test_bfloat16(self, student, reference, rng):
        """logits in bfloat16"""
        compare(student, reference, self.call(rng, scale=4.0, dtype=torch.bfloat16))

    def test_by_position(self, student, reference, rng):
        """arguments by position: logits, labels"""
        compare(student, reference, self.call(rng, by_position=True))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("scale", [2.0, 100.0])
    def test_gradients(self, student, reference, rng, scale):
        """gradients, of logits as large as {scale}"""
        compare(student, reference, self.call(rng, scale=scale, grad=True))


@pytest.mark.exercise("8.2")
class TestLearningRate:
    def call(self, step, warmup_steps=4, total_steps=20, **options):
        inputs = {"peak": 2.0, "warmup_steps": warmup_steps, "total_steps": total_steps}
        return Call("learning_rate", step=step, **inputs, **options)

    def test_long_warmup(self, student, reference):
        """in the middle of a long warm-up"""
        call = self.call(700_000, warmup_steps=1_000_000, total_steps=3_000_000)
        compare(student, reference, call)

    @pytest.mark.parametrize("step", [0, 1, 3])
    def test_warmup(self, student, reference, step):
        """step {step} of 4 steps of warm-up"""
        compare(student, reference, self.call(step))

    @pytest.mark.parametrize("step", [4, 5, 9, 12, 17, 19])
    def test_cosine(self, student, reference, step):
        """step {step}, after 4 steps of warm-up, of 20"""
        compare(student, reference, self.call(step))

    @pytest.mark.parametrize("step", [0, 1, 4, 12, 17, 20, 25])
    def test_floor(self, student, reference, step):
        """step {step} of 20, with a floor"""
        compare(student, reference, self.call(step, floor=0.6))

    @pytest.mark.parametrize("step", [20, 23])
    def test_beyond(self, student, reference, step):
        """step {step}, when all 20 are done"""
        compare(student, reference, self.call(step))

    @pytest.mark.parametrize("step", [0, 1])
    def test_no_warmup(self, student, reference, step):
        """step {step} without a warm-up"""
        compare(student, reference, self.call(step, warmup_steps=0))

    def test_by_position(self, student, reference):
        """arguments by position: step, peak, warmup_steps, total_steps, floor"""
        compare(student, reference, self.call(7, floor=0.6, by_position=True))


def small_model(experts, groups=1, **options):
    """A model of few weights: the recorded mistakes leave them behind in many copies."""
    sizes = {"vocab_size": 7, "hidden_size": 4, "layers": 2 if experts else 1}
    return Given("training", **sizes, experts=experts, groups=groups, **options)


def train_call(
    rng, given, rates, shape, vocab=7, cut=2, padded=False, max_grad_norm=100.0,
    parts=0, **options,
):  # fmt: skip
    """One step for every rate, all on one model: the next shows what the last left behind.

    cut    tokens at the beginning of a text that have no label, or are padding
    parts  0: train_step; otherwise train_step_in_parts, and no first label counts
    """
    call = Call("train_step_in_parts" if parts else "train_step", objects=given, **options)
    for lr in rates:
        input_ids = rng.integers(0, vocab, *shape)
        labels = input_ids.clone()
        labels[0, :cut] = -100
        inputs = {"input_ids": input_ids, "labels": labels, "lr": lr}
        if parts:
            labels[:, 0] = -100
            inputs["accumulation_steps"] = parts
        if padded:
            mask = torch.ones_like(input_ids)
            mask[1, :cut] = mask[2, :1] = 0
            labels[mask == 0] = -100
            inputs["attention_mask"] = mask
        if max_grad_norm:
            inputs["max_grad_norm"] = max_grad_norm
        call.then(**inputs)
    return call


@pytest.mark.exercise("8.3")
class TestTrainStep:
    def call(self, rng, experts=0, groups=1, rates=(0.1,), **options):
        return train_call(rng, small_model(experts, groups), rates, (3, 5), **options)

    def test_one_step(self, student, reference, rng):
        """one step, nothing to clip"""
        compare(student, reference, self.call(rng))

    def test_clipped(self, student, reference, rng):
        """gradients longer than max_grad_norm"""
        compare(student, reference, self.call(rng, max_grad_norm=0.25))

    def test_two_steps(self, student, reference, rng):
        """two steps in a row"""
        compare(student, reference, self.call(rng, rates=(0.1, 0.05)))

    def test_padded(self, student, reference, rng):
        """padding"""
        compare(student, reference, self.call(rng, padded=True))

    def test_experts(self, student, reference, rng):
        """a model with experts"""
        compare(student, reference, self.call(rng, experts=3))

    def test_experts_padded(self, student, reference, rng):
        """a model with experts, and padding"""
        compare(student, reference, self.call(rng, experts=3, padded=True))

    def test_groups(self, student, reference, rng):
        """an optimizer with two groups of parameters"""
        compare(student, reference, self.call(rng, groups=2))

    def test_by_position(self, student, reference, rng):
        """arguments by position, max_grad_norm left at its default"""
        call = self.call(rng, padded=True, max_grad_norm=None, by_position=True)
        compare(student, reference, call)


@pytest.mark.exercise("8.4")
class TestTrainStepInParts:
    def call(self, rng, parts, shape=(3, 5), experts=0, rates=(0.1,), watched=False, **options):
        given = small_model(experts, watched=watched)
        return train_call(rng, given, rates, shape, parts=parts, **options)

    def test_whole(self, student, reference, rng):
        """a batch in a single part"""
        compare(student, reference, self.call(rng, 1))

    def test_equal_parts(self, student, reference, rng):
        """2 parts that hold equally many labels"""
        compare(student, reference, self.call(rng, 2, shape=(4, 5), cut=0, watched=True))

    def test_unequal_parts(self, student, reference, rng):
        """3 parts that hold 3, 4 and 1 counted labels"""
        call = self.call(rng, 3, watched=True)
        call.steps[0][1]["labels"][2, 1:4] = -100
        compare(student, reference, call)

    def test_odd(self, student, reference, rng):
        """5 texts in 2 parts, two steps in a row"""
        compare(student, reference, self.call(rng, 2, shape=(5, 4), rates=(0.1, 0.05)))

    def test_clipped(self, student, reference, rng):
        """gradients longer than max_grad_norm"""
        compare(student, reference, self.call(rng, 3, max_grad_norm=0.25, watched=True))

    @pytest.mark.points(0.5)
    def test_cut(self, student, reference, rng):
        """7 texts in 3 parts: 3, 3 and 1"""
        compare(student, reference, self.call(rng, 3, shape=(7, 3), watched=True))

    @pytest.mark.points(0.5)
    def test_fewer_parts(self, student, reference, rng):
        """5 texts in 4 parts, which are only 3"""
        compare(student, reference, self.call(rng, 4, shape=(5, 3)))

    def test_first_label(self, student, reference, rng):
        """first labels that are not -100: they are never scored"""
        call = self.call(rng, 3)
        inputs = call.steps[0][1]
        inputs["labels"][1:, 0] = inputs["input_ids"][1:, 0]
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("part", [1, 2, 3])
    def test_a_part_without_labels(self, student, reference, rng, part):
        """two steps; in the second no label counts in part {part} of 3"""
        call = self.call(rng, 3, rates=(0.1, 0.05))
        call.steps[1][1]["labels"][part - 1] = -100
        compare(student, reference, call)

    def test_padded(self, student, reference, rng):
        """padding"""
        compare(student, reference, self.call(rng, 3, padded=True))

    def test_experts(self, student, reference, rng):
        """a model with experts, padding, and 2 parts that hold 7 and 3 counted labels"""
        call = self.call(rng, 2, shape=(6, 5), experts=3, padded=True, watched=True)
        call.steps[0][1]["labels"][2:, 1:4] = -100
        compare(student, reference, call)

    def test_by_position(self, student, reference, rng):
        """arguments by position, max_grad_norm left at its default"""
        call = self.call(rng, 3, padded=True, max_grad_norm=None, by_position=True)
        compare(student, reference, call)


def adamw_call(rng, step, shape=(3, 4), fresh=False, size=1.0, **options):
    """One step of AdamW; fresh: the means are still zeros, as before the first one."""
    exp_avg, exp_avg_sq = size * rng.normal(*shape), size**2 * rng.uniform(*shape)
    inputs = {"weight": rng.normal(*shape), "grad": size * rng.normal(*shape)}
    inputs |= {"exp_avg": exp_avg * (not fresh), "exp_avg_sq": exp_avg_sq * (not fresh)}
    inputs |= {"step": step, "lr": 0.1} | options
    by_position = inputs.pop("by_position", False)
    call = Call("adamw_step", by_position=by_position).then(**inputs)
    return call.returning("weight", "exp_avg", "exp_avg_sq")


@pytest.mark.exercise("8.5")
class TestAdamWStep:
    def test_first(self, student, reference, rng):
        """the first step, without decay"""
        compare(student, reference, adamw_call(rng, 0, fresh=True, weight_decay=0.0))

    @pytest.mark.parametrize("step", [1, 5])
    def test_later(self, student, reference, rng, step):
        """step {step}, without decay"""
        compare(student, reference, adamw_call(rng, step, weight_decay=0.0))

    def test_late(self, student, reference, rng):
        """step 100000, when nothing is left to correct"""
        compare(student, reference, adamw_call(rng, 100_000, weight_decay=0.0))

    @pytest.mark.parametrize("step", [0, 7])
    def test_decay(self, student, reference, rng, step):
        """step {step}, with a weight_decay of 2"""
        compare(student, reference, adamw_call(rng, step, fresh=not step, weight_decay=2.0))

    def test_betas(self, student, reference, rng):
        """other betas: 0.5 and 0.8"""
        call = adamw_call(rng, 2, betas=(0.5, 0.8), weight_decay=0.0)
        compare(student, reference, call)

    def test_eps(self, student, reference, rng):
        """a large eps: 0.5"""
        compare(student, reference, adamw_call(rng, 3, eps=0.5, weight_decay=0.0))

    @pytest.mark.points(0.5)
    def test_idle(self, student, reference, rng):
        """a weight that never had a gradient"""
        compare(student, reference, adamw_call(rng, 4, fresh=True, size=0.0))

    @pytest.mark.points(0.5)
    def test_by_position(self, student, reference, rng):
        """arguments by position, betas, eps and weight_decay left at their defaults"""
        compare(student, reference, adamw_call(rng, 2, by_position=True))
