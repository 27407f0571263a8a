"""Hidden checks of lab 05: fresh numbers, odd sizes, other dtypes, gradients, what must not
run."""

import pytest
import torch
from visible.test_moe import (
    balance_call,
    block_call,
    close_logits,
    distinct_logits,
    layers_call,
    route_call,
    sharp_logits,
    state,
)

from labkit.checks.runner import assert_same, compare

HALF = [torch.bfloat16, torch.float16]


@pytest.mark.exercise("5.1")
class TestRoute:
    @pytest.mark.parametrize("norm", [True, False])
    @pytest.mark.parametrize(("tokens", "experts", "top_k"), [(9, 7, 3), (1, 8, 2), (3, 5, 3)])
    def test_values(self, student, reference, rng, tokens, experts, top_k, norm):
        """{tokens} tokens, {experts} experts, top_k {top_k}, norm_topk_prob={norm}"""
        compare(student, reference, route_call(2 * rng.normal(tokens, experts), top_k, norm))

    @pytest.mark.points(2)
    def test_all_experts_count_in_the_softmax(self, student, reference, rng):
        """a logit that is not picked still lowers the weights, unless they are renormalised"""
        logits = rng.uniform(6, 5) + torch.tensor([6.0, 6, 0, 0, 0])  # the first two win
        for norm in (False, True):
            low, high = route_call(logits, 2, norm), route_call(logits.clone(), 2, norm)
            high.steps[0][1]["router_logits"][:, 4] += 3
            before, after = student(low), student(high)
            assert_same(before, reference(low))
            assert_same(after, reference(high))
            moved = (before.value[0] - after.value[0]).abs().max().item()
            assert (moved < 1e-5) == norm, f"moved by {moved:.1g}, norm_topk_prob={norm}"

    @pytest.mark.parametrize("norm", [True, False])
    def test_every_expert(self, student, reference, rng, norm):
        """top_k is the number of experts, norm_topk_prob={norm}"""
        compare(student, reference, route_call(2 * rng.normal(4, 6), 6, norm))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("norm", [True, False])
    def test_one_expert_in_all(self, student, reference, rng, norm):
        """one expert and nothing to choose, norm_topk_prob={norm}"""
        compare(student, reference, route_call(rng.normal(4, 1), 1, norm))

    def test_top_1_renormalised(self, student, reference, rng):
        """top_k 1, norm_topk_prob=True: weight 1, and no gradient"""
        logits = 2 * rng.normal(5, 6)
        compare(student, reference, route_call(logits, 1, True))
        outcome = student(route_call(logits, 1, True, grad=True))
        assert outcome.failure is None, "it raised an error when gradients were asked for"
        assert outcome.grads["router_logits"].abs().max() < 1e-5, "the gradient is not zero"

    def test_best_first(self, student, reference, rng):
        """the best expert first"""
        compare(student, reference, route_call(2 * rng.normal(6, 9), 5, True, summary=None))

    def test_many_experts(self, student, reference, rng):
        """128 experts of nearly the same probability, norm_topk_prob=True"""
        logits = torch.argsort(rng.normal(7, 128), dim=-1) / 1000
        compare(student, reference, route_call(logits, 2, True))

    def test_large_logits(self, student, reference, rng):
        """logits in the hundreds"""
        compare(student, reference, route_call(200 + 2 * rng.normal(5, 6), 2, False))

    @pytest.mark.points(0.25)
    @pytest.mark.parametrize("norm", [True, False])
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype, norm):
        """{dtype} logits, norm_topk_prob={norm}"""
        compare(student, reference, route_call(distinct_logits(rng, 8, 7, dtype), 3, norm))

    def test_close_logits(self, student, reference, rng):
        """bfloat16 logits that lie close together"""
        compare(student, reference, route_call(close_logits(rng, 64, 9), 2, True))

    def test_positions(self, student, reference, rng):
        """arguments by position: router_logits, top_k, norm_topk_prob"""
        call = route_call(2 * rng.normal(4, 6), 3, False, by_position=True)
        compare(student, reference, call)

    @pytest.mark.parametrize(("top_k", "norm"), [(2, True), (3, False), (1, False)])
    def test_gradients(self, student, reference, rng, top_k, norm):
        """gradients with top_k {top_k}, norm_topk_prob={norm}"""
        compare(student, reference, route_call(2 * rng.normal(5, 6), top_k, norm, grad=True))


@pytest.mark.exercise("5.2")
class TestBlock:
    def call(self, rng, experts=5, top_k=2, norm=True, shape=(2, 5, 8), moe_size=6, **options):
        sizes = {"sizes": (moe_size, 11), "scale": 0.6}
        return block_call(rng, experts, top_k, norm, shape, **sizes, **options)

    @pytest.mark.parametrize(("experts", "size", "inner"), [(3, 8, 5), (6, 4, 9)])
    def test_parameters(self, student, reference, rng, experts, size, inner):
        """{experts} experts of sizes {size} and {inner}: names and shapes"""
        call = self.call(rng, experts, shape=(2, 3, size), moe_size=inner, names=True)
        call.state = None  # loading it would fail before the names are seen
        call.steps.clear()
        compare(student, reference, call)

    @pytest.mark.parametrize("norm", [True, False])
    @pytest.mark.parametrize("top_k", [1, 2, 5])
    def test_values(self, student, reference, rng, top_k, norm):
        """top_k {top_k} of 5, norm_topk_prob={norm}"""
        compare(student, reference, self.call(rng, top_k=top_k, norm=norm))

    @pytest.mark.parametrize("shape", [(1, 1, 8), (3, 1, 8), (1, 7, 8), (5, 5, 5)])
    def test_shapes(self, student, reference, rng, shape):
        """input of shape {shape}"""
        compare(student, reference, self.call(rng, shape=shape))

    def test_one_expert_in_all(self, student, reference, rng):
        """one expert and nothing to choose: an ordinary MLP"""
        compare(student, reference, self.call(rng, experts=1, top_k=1))

    def test_crowded(self, student, reference, rng):
        """many tokens with one favourite expert"""
        call = self.call(rng, shape=(4, 6, 8))
        call.state["gate.weight"][3, 0] = 8.0
        call.steps[0][1]["hidden_states"][..., 0] = 1.0
        compare(student, reference, call)

    @pytest.mark.points(2)
    @pytest.mark.parametrize("norm", [True, False])
    def test_only_chosen_experts_run(self, student, reference, rng, norm):
        """experts that nobody picked hold NaN, norm_topk_prob={norm}"""
        call = self.call(rng, experts=6, norm=norm, grad=True)
        call.steps[0][1]["hidden_states"][..., 0] = 1.0
        idle = torch.argsort(rng.normal(6))[:3].tolist()
        call.state["gate.weight"][:, 0] = 0.0
        call.state["gate.weight"][idle, 0] = -60.0
        for name, weight in call.state.items():
            if name.startswith(tuple(f"experts.{x}." for x in idle)):
                weight.fill_(torch.nan)
        compare(student, reference, call)

    @pytest.mark.points(2)
    def test_only_its_own_tokens(self, student, reference, rng):
        """a token that would overflow in an expert that it did not pick"""
        call = self.call(rng, grad=True)
        hidden, gate = call.steps[0][1]["hidden_states"], call.state["gate.weight"]
        x = int(rng.integers(0, 5, 1))
        hidden[..., 0], gate[x, 0] = 1.0, 9.0  # expert x is everybody's favourite
        hidden[..., 1], hidden[1, 2, 1] = 0.0, 2.0
        gate[:, 1], gate[x, 1] = 0.0, -60.0  # but not of this token
        call.state[f"experts.{x}.gate_proj.weight"][:, 1] = 1e25
        call.state[f"experts.{x}.up_proj.weight"][:, 1] = 1e25
        compare(student, reference, call)

    @pytest.mark.parametrize(("dtype", "top_k"), [(HALF[0], 2), (HALF[0], 3), (HALF[1], 2)])
    def test_half_precision(self, student, reference, rng, dtype, top_k):
        """{dtype}, top_k {top_k}"""
        call = self.call(rng, top_k=top_k, norm=top_k == 2, dtype=dtype)
        call.state = state(5, 8, 6, lambda *sizes: rng.uniform(*sizes, low=0.1, high=0.4))
        call.state["gate.weight"] = torch.eye(5, 8)  # the logits are the first five features
        hidden = rng.uniform(10, 8, low=0.5)
        hidden[:, :5] = distinct_logits(rng, 10, 5, torch.float32) + 1
        call.steps[0][1]["hidden_states"] = hidden.view(2, 5, 8).to(dtype)
        compare(student, reference, call)

    def test_two_calls(self, student, reference, rng):
        """a second input of another size"""
        compare(student, reference, self.call(rng).then(hidden_states=rng.normal(1, 3, 8)))

    @pytest.mark.points(2)
    @pytest.mark.parametrize(("top_k", "norm"), [(2, True), (2, False), (1, False)])
    def test_gradients(self, student, reference, rng, top_k, norm):
        """gradients of input, router and experts with top_k {top_k}, norm_topk_prob={norm}"""
        call = self.call(rng, top_k=top_k, norm=norm, shape=(1, 6, 8), grad=True)
        compare(student, reference, call)


@pytest.mark.exercise("5.3")
class TestBalanceLoss:
    def mask(self, rng, batch, tokens):
        """Left or right padding of 0 to tokens - 1 places, and at least one in the batch."""
        pad = rng.integers(0, tokens, batch)
        pad[0] = 1 + pad[0] % (tokens - 1)
        mask = (torch.arange(tokens) >= pad[:, None]).long()
        return mask.flip(-1) if rng.integers(0, 2, 1) else mask

    @pytest.mark.parametrize(
        ("tokens", "experts", "top_k"),
        [(12, 6, 2), (1, 4, 2), (7, 5, 1), (6, 1, 1), (900, 6, 2)],
    )
    def test_values(self, student, reference, rng, tokens, experts, top_k):
        """{tokens} tokens, {experts} experts, top_k {top_k}"""
        compare(student, reference, balance_call(2 * rng.normal(tokens, experts), top_k))

    @pytest.mark.parametrize("top_k", [1, 3])
    def test_even(self, student, reference, rng, top_k):
        """perfect balance scores top_k, here {top_k}"""
        row = torch.sort(2 * rng.normal(6)).values
        call = balance_call(torch.stack([row.roll(turn) for turn in range(6)]), top_k)
        outcome = compare(student, reference, call)
        assert abs(outcome.value.item() - top_k) < 1e-4

    @pytest.mark.parametrize("top_k", [1, 2])
    def test_collapse(self, student, reference, rng, top_k):
        """all on the same experts scores the number of experts, top_k {top_k}"""
        lift = torch.tensor([0.0, 60, 0, 90, 0, 0, 0])
        outcome = compare(student, reference, balance_call(rng.normal(9, 7) + lift, top_k))
        assert abs(outcome.value.item() - 7) < 1e-4

    def test_every_expert(self, student, reference, rng):
        """top_k is the number of experts"""
        compare(student, reference, balance_call(2 * rng.normal(6, 4), 4))

    @pytest.mark.points(2)
    @pytest.mark.parametrize("layers", [2, 4])
    def test_layers(self, student, reference, rng, layers):
        """{layers} layers are pooled"""
        compare(
            student, reference, balance_call([2 * rng.normal(6, 5) for _ in range(layers)], 2)
        )

    def test_tuple(self, student, reference, rng):
        """a tuple of layers, or one layer in a list"""
        for given in ((2 * rng.normal(6, 5), 2 * rng.normal(6, 5)), [2 * rng.normal(6, 5)]):
            compare(student, reference, balance_call(given, 2))

    @pytest.mark.parametrize(("batch", "tokens"), [(3, 4), (1, 5)])
    def test_mask(self, student, reference, rng, batch, tokens):
        """padding in a batch of {batch}"""
        mask = self.mask(rng, batch, tokens)
        call = balance_call(2 * rng.normal(batch * tokens, 5), 2, attention_mask=mask)
        compare(student, reference, call)

    @pytest.mark.points(2)
    def test_layers_and_mask(self, student, reference, rng):
        """padding in three layers"""
        mask, logits = self.mask(rng, 2, 5), [2 * rng.normal(10, 6) for _ in range(3)]
        compare(student, reference, balance_call(logits, 2, attention_mask=mask))

    def test_mask_of_ones(self, student, reference, rng):
        """a mask without padding changes nothing"""
        call = balance_call(2 * rng.normal(6, 5), 2, attention_mask=torch.ones(2, 3).long())
        compare(student, reference, call)

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype, masked):
        """{dtype} logits, with padding: {masked}"""
        mask = (torch.arange(8) < torch.tensor([[3], [8], [5]])).long()  # 16 tokens count
        options = {"attention_mask": mask} if masked else {}
        logits = sharp_logits(rng, 24 if masked else 16, 6).to(dtype)
        call = balance_call(logits, 2, **options)
        compare(student, reference, call)

    def test_positions(self, student, reference, rng):
        """arguments by position: router_logits, top_k, attention_mask"""
        mask = self.mask(rng, 2, 4)
        call = balance_call(2 * rng.normal(8, 5), 3, attention_mask=mask, by_position=True)
        compare(student, reference, call)

    @pytest.mark.points(2)
    @pytest.mark.parametrize("layers", [1, 2])
    def test_gradients(self, student, reference, rng, layers):
        """gradients; layers: {layers}, with padding if there are two"""
        logits = [2 * rng.normal(8, 5) for _ in range(layers)]
        if layers == 1:
            compare(student, reference, balance_call(logits[0], 2, grad=True))
            return
        call = balance_call(logits, 2, attention_mask=self.mask(rng, 2, 4), grad=True)
        compare(student, reference, call)


@pytest.mark.exercise("5.4")
class TestUsesExperts:
    def listed(self, rng, count):
        """Some of twelve layers."""
        return tuple(sorted(rng.generator.permutation(12)[:count].tolist()))

    @pytest.mark.points(2)
    @pytest.mark.parametrize("step", [2, 3, 5])
    def test_step(self, student, reference, step):
        """decoder_sparse_step {step}; here step 1 is layer 0, step 12 is layer 11"""
        compare(student, reference, layers_call(6, step, (), range(12)))

    @pytest.mark.parametrize("count", [1, 4, 7])
    def test_listed(self, student, reference, rng, count):
        """{count} of layers 0 to 11 listed in mlp_only_layers; here step 1 is layer 0"""
        call = layers_call(6, 1, self.listed(rng, count), range(12))
        compare(student, reference, call)

    @pytest.mark.parametrize("step", [2, 3])
    def test_listed_and_step(self, student, reference, rng, step):
        """decoder_sparse_step {step}, and layers of both kinds listed"""
        odd = (step - 1, 0, *self.listed(rng, 4))
        compare(student, reference, layers_call(6, step, odd, range(12)))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("step", [1, 3])
    def test_dense(self, student, reference, step):
        """a dense model: num_experts 0, decoder_sparse_step {step}"""
        compare(student, reference, layers_call(0, step, (), range(12)))

    @pytest.mark.points(0.5)
    def test_every_layer(self, student, reference):
        """a mixture in every layer"""
        compare(student, reference, layers_call(6, 1, (), range(12)))

    @pytest.mark.points(0.5)
    def test_last_layer(self, student, reference):
        """the step is as large as the number of layers"""
        compare(student, reference, layers_call(2, 12, (), range(12)))

    @pytest.mark.points(0.5)
    def test_positions(self, student, reference, rng):
        """arguments by position: config, layer_idx"""
        call = layers_call(6, 2, self.listed(rng, 3), by_position=True)
        compare(student, reference, call)
