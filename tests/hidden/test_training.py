"""Hidden checks of lab 08: fresh numbers, odd shapes, other dtypes, gradients, two steps."""

import pytest
import torch
from visible.test_training import adamw_call, train_call

from labkit.checks.runner import Call, Given, compare

HALF = [torch.bfloat16, torch.float16]


@pytest.mark.exercise("8.1")
class TestCausalLmLoss:
    def call(self, rng, shape, vocab, scale=2.0, dtype=torch.float32, ignored=0.4, **options):
        labels = rng.integers(0, vocab, *shape)
        labels[0, -1] = 0  # a token like any other
        if ignored:
            drop = rng.uniform(*shape) < ignored
            drop[0] = True  # the texts hold different numbers of labels that count
            drop[0, -1] = False
            drop[-1, -2:] = True
            drop[-1, 2:4] = False
            labels[drop] = -100
        logits = (scale * rng.normal(*shape, vocab)).to(dtype)
        return Call("causal_lm_loss", logits=logits, labels=labels, **options)

    @pytest.mark.parametrize("shape", [(3, 7), (1, 9), (4, 6), (2, 2)])
    def test_values(self, student, reference, rng, shape):
        """values for B and T {shape}"""
        compare(student, reference, self.call(rng, shape, vocab=13, ignored=0))

    @pytest.mark.points(2)
    @pytest.mark.parametrize("shape", [(2, 7), (3, 9)])
    def test_ignored(self, student, reference, rng, shape):
        """labels of -100 do not count"""
        compare(student, reference, self.call(rng, shape, vocab=17))

    def test_one_label(self, student, reference, rng):
        """a single label that counts"""
        call = self.call(rng, (2, 5), vocab=6, ignored=0)
        labels = call.steps[0][1]["labels"]
        kept = labels[1, 3].clone()
        labels.fill_(-100)
        labels[1, 3] = kept
        compare(student, reference, call)

    def test_large(self, student, reference, rng):
        """large logits"""
        compare(student, reference, self.call(rng, (2, 6), vocab=12, scale=300.0))

    def test_sure(self, student, reference, rng):
        """a model that is sure and right"""
        call = self.call(rng, (2, 6), vocab=12, ignored=0)
        inputs = call.steps[0][1]
        following = torch.nn.functional.one_hot(inputs["labels"].roll(-1, 1), 12)
        inputs["logits"] = 150.0 * following + inputs["logits"]
        compare(student, reference, call)

    @pytest.mark.points(0.25)
    @pytest.mark.parametrize("dtype", HALF)
    @pytest.mark.parametrize("scale", [3.0, 30.0])
    def test_half_precision(self, student, reference, rng, dtype, scale):
        """logits in {dtype}"""
        compare(student, reference, self.call(rng, (3, 8), vocab=40, scale=scale, dtype=dtype))

    @pytest.mark.points(0.5)
    def test_by_position(self, student, reference, rng):
        """arguments by position: logits, labels"""
        compare(student, reference, self.call(rng, (2, 5), vocab=8, by_position=True))

    @pytest.mark.points(2)
    @pytest.mark.parametrize("scale", [1.0, 40.0])
    def test_gradients(self, student, reference, rng, scale):
        """gradients of the logits"""
        compare(student, reference, self.call(rng, (2, 7), vocab=9, scale=scale, grad=True))


@pytest.mark.exercise("8.2")
class TestLearningRate:
    def call(self, rng, step, warmup_steps=5, total_steps=33, floor=True, **options):
        inputs = {"peak": 2 + rng.uniform(1).item()}
        inputs |= {"warmup_steps": warmup_steps, "total_steps": total_steps}
        if floor:
            inputs["floor"] = 0.7 + 0.2 * rng.uniform(1).item()  # above step 0 of the warm-up
        return Call("learning_rate", step=step, **inputs, **options)

    @pytest.mark.parametrize("step", [300_000, 650_000, 900_000])
    def test_long_warmup(self, student, reference, rng, step):
        """step {step} of a million steps of warm-up"""
        call = self.call(rng, step, warmup_steps=1_000_000, total_steps=4_000_000)
        compare(student, reference, call)

    @pytest.mark.points(0.15)
    @pytest.mark.parametrize("floor", [False, True])
    @pytest.mark.parametrize("step", [0, 2, 4])
    def test_warmup(self, student, reference, rng, step, floor):
        """step {step} of 5 steps of warm-up"""
        compare(student, reference, self.call(rng, step, floor=floor))

    @pytest.mark.parametrize("step", [5, 6, 19, 27, 32])
    def test_cosine(self, student, reference, rng, step):
        """step {step} of 33, after a warm-up"""
        compare(student, reference, self.call(rng, step, floor=False))

    @pytest.mark.parametrize("step", [5, 13, 26, 32])
    def test_floor(self, student, reference, rng, step):
        """step {step} of 33, with a floor"""
        compare(student, reference, self.call(rng, step))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("floor", [False, True])
    @pytest.mark.parametrize("step", [33, 40])
    def test_beyond(self, student, reference, rng, step, floor):
        """step {step}, when all 33 are done"""
        compare(student, reference, self.call(rng, step, floor=floor))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("step", [0, 7])
    def test_no_warmup(self, student, reference, rng, step):
        """step {step} without a warm-up"""
        compare(student, reference, self.call(rng, step, warmup_steps=0, total_steps=9))

    @pytest.mark.points(0.5)
    def test_by_position(self, student, reference, rng):
        """arguments by position: step, peak, warmup_steps, total_steps, floor"""
        compare(student, reference, self.call(rng, 11, by_position=True))


def given(rng, layers=2, experts=0, groups=1, watched=False):
    """A model with fresh weights, in which the balance loss weighs much."""
    sizes = {"vocab_size": 13, "hidden_size": 5, "layers": layers, "experts": experts}
    seed = rng.integers(0, 1000, 1).item()
    sizes |= {"groups": groups, "watched": watched}
    return Given("training", **sizes, coefficient=0.3, seed=seed)


@pytest.mark.exercise("8.3")
class TestTrainStep:
    def call(self, rng, rates=(0.1,), texts=3, layers=2, experts=0, groups=1, **options):
        made = given(rng, layers, experts, groups)
        return train_call(rng, made, rates, (texts, 6), vocab=13, cut=3, **options)

    @pytest.mark.points(2)
    @pytest.mark.parametrize("texts", [1, 4])
    def test_one_step(self, student, reference, rng, texts):
        """one step, texts in the batch: {texts}"""
        compare(student, reference, self.call(rng, texts=texts))

    @pytest.mark.points(2)
    @pytest.mark.parametrize("max_grad_norm", [0.02, 0.3])
    def test_clipped(self, student, reference, rng, max_grad_norm):
        """clipped gradients"""
        compare(student, reference, self.call(rng, max_grad_norm=max_grad_norm))

    @pytest.mark.points(3)
    def test_three_steps(self, student, reference, rng):
        """three steps in a row: rates change, momentum is kept"""
        compare(student, reference, self.call(rng, rates=(0.1, 0.02, 0.05)))

    def test_padded(self, student, reference, rng):
        """padding"""
        compare(student, reference, self.call(rng, rates=(0.1, 0.05), padded=True))

    @pytest.mark.parametrize(("experts", "layers"), [(4, 2), (6, 1)])
    def test_experts(self, student, reference, rng, experts, layers):
        """a model with {experts} experts"""
        compare(student, reference, self.call(rng, layers=layers, experts=experts))

    def test_clipped_experts(self, student, reference, rng):
        """clipped gradients of a model with 3 experts"""
        compare(student, reference, self.call(rng, experts=3, max_grad_norm=0.2))

    def test_padded_experts(self, student, reference, rng):
        """padding, 4 experts"""
        call = self.call(rng, rates=(0.1, 0.05), experts=4, padded=True)
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    def test_groups(self, student, reference, rng):
        """an optimizer with two groups of parameters"""
        compare(student, reference, self.call(rng, groups=2))

    @pytest.mark.points(0.5)
    def test_default_max_grad_norm(self, student, reference, rng):
        """the default of max_grad_norm, also where a wild step makes gradients large"""
        call = self.call(rng, rates=(9.0, 0.1, 0.1), max_grad_norm=None)
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    def test_by_position(self, student, reference, rng):
        """arguments by position"""
        call = self.call(rng, experts=3, padded=True, max_grad_norm=0.3, by_position=True)
        compare(student, reference, call)


@pytest.mark.exercise("8.4")
class TestTrainStepInParts:
    def call(self, rng, parts, rates=(0.1,), texts=3, experts=0, watched=False, **options):
        made = given(rng, experts=experts, watched=watched)
        shape = (texts, 6)
        return train_call(rng, made, rates, shape, vocab=13, cut=3, parts=parts, **options)

    def test_whole(self, student, reference, rng):
        """a batch in a single part"""
        compare(student, reference, self.call(rng, 1, experts=3))

    @pytest.mark.points(2)
    @pytest.mark.parametrize(("parts", "texts"), [(2, 6), (3, 5), (5, 5)])
    def test_parts(self, student, reference, rng, parts, texts):
        """a batch of {texts} texts in {parts} parts"""
        watched = texts % parts == 0  # whatever rounds in its own way has its own check
        call = self.call(rng, parts, rates=(0.1, 0.05), texts=texts, watched=watched)
        for _, inputs in call.steps:
            inputs["labels"][1, :4] = -100
        compare(student, reference, call)

    @pytest.mark.points(2)
    def test_clipped(self, student, reference, rng):
        """clipped gradients of 3 parts"""
        compare(student, reference, self.call(rng, 3, max_grad_norm=0.1, watched=True))

    @pytest.mark.points(0.6)
    @pytest.mark.parametrize("experts", [0, 3])
    def test_cut(self, student, reference, rng, experts):
        """7 texts in 3 parts, {experts} experts"""
        call = self.call(rng, 3, texts=7, experts=experts, watched=True)
        compare(student, reference, call)

    @pytest.mark.points(0.6)
    def test_fewer_parts(self, student, reference, rng):
        """5 texts in 4 parts"""
        compare(student, reference, self.call(rng, 4, rates=(0.1, 0.05), texts=5))

    @pytest.mark.points(0.6)
    def test_first_label(self, student, reference, rng):
        """first labels that are not -100"""
        call = self.call(rng, 3)
        inputs = call.steps[0][1]
        inputs["labels"][1:, 0] = inputs["input_ids"][1:, 0]
        compare(student, reference, call)

    @pytest.mark.points(0.4)
    @pytest.mark.parametrize("part", [1, 2, 3])
    def test_a_part_without_labels(self, student, reference, rng, part):
        """two steps; in the second no label counts in part {part} of 3"""
        call = self.call(rng, 3, rates=(0.1, 0.05))
        call.steps[1][1]["labels"][part - 1] = -100
        compare(student, reference, call)

    def test_padded(self, student, reference, rng):
        """padding"""
        compare(student, reference, self.call(rng, 2, texts=4, padded=True))

    @pytest.mark.parametrize("parts", [2, 4])
    def test_experts(self, student, reference, rng, parts):
        """4 texts, padding and experts, in {parts} parts"""
        call = self.call(rng, parts, texts=4, experts=4, padded=True, max_grad_norm=0.4)
        call.steps[0][1]["labels"][0, :4] = -100
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    def test_by_position(self, student, reference, rng):
        """arguments by position, max_grad_norm left at its default"""
        options = {"padded": True, "max_grad_norm": None, "by_position": True}
        call = self.call(rng, 3, rates=(9.0, 0.1, 0.1), **options)
        compare(student, reference, call)


@pytest.mark.exercise("8.5")
class TestAdamWStep:
    @pytest.mark.points(2)
    @pytest.mark.parametrize("shape", [(5,), (2, 3, 4)])
    def test_first(self, student, reference, rng, shape):
        """the first step, shape {shape}"""
        call = adamw_call(rng, 0, shape, fresh=True, weight_decay=0.0)
        compare(student, reference, call)

    @pytest.mark.points(2)
    @pytest.mark.parametrize("step", [1, 3, 40])
    def test_later(self, student, reference, rng, step):
        """step {step}"""
        call = adamw_call(rng, step, (4, 7), betas=(0.8, 0.95), weight_decay=0.0)
        compare(student, reference, call)

    def test_late(self, student, reference, rng):
        """step 50000"""
        compare(student, reference, adamw_call(rng, 50_000, (7, 2), weight_decay=0.0))

    @pytest.mark.points(2)
    @pytest.mark.parametrize(("step", "weight_decay"), [(0, 3.0), (9, 0.7)])
    def test_decay(self, student, reference, rng, step, weight_decay):
        """step {step}, weight_decay {weight_decay}"""
        call = adamw_call(rng, step, (3, 5), weight_decay=weight_decay, lr=0.2)
        compare(student, reference, call)

    @pytest.mark.parametrize("eps", [0.1, 1.0])
    def test_eps(self, student, reference, rng, eps):
        """eps {eps}"""
        compare(student, reference, adamw_call(rng, 2, (6,), eps=eps, weight_decay=0.0))

    @pytest.mark.points(0.5)
    def test_small(self, student, reference, rng):
        """gradients as small as the default of eps"""
        compare(student, reference, adamw_call(rng, 6, size=1e-8, betas=(0.9, 0.95)))

    @pytest.mark.points(0.5)
    def test_idle(self, student, reference, rng):
        """a weight that never had a gradient"""
        call = adamw_call(rng, 11, fresh=True, size=0.0, weight_decay=0.5)
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    def test_by_position(self, student, reference, rng):
        """arguments by position, the last three left at their defaults"""
        compare(student, reference, adamw_call(rng, 5, (2, 9), by_position=True))
