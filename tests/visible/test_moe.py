"""Visible checks of lab 05: what check("5.1") and its sisters run."""

import pytest
import torch

from labkit.checks.runner import Call, New, assert_same


@pytest.mark.exercise("5.1")
class TestRoute:
    def call(self, rng, top_k=2, norm=True, shift=0.0, **options):
        logits = 2 * rng.normal(5, 6) + shift
        return Call("route", router_logits=logits, top_k=top_k, norm_topk_prob=norm, **options)

    def test_values(self, student, reference, rng):
        """norm_topk_prob=True"""
        call = self.call(rng, top_k=3)
        assert_same(student(call), reference(call))

    def test_not_renormalised(self, student, reference, rng):
        """norm_topk_prob=False"""
        call = self.call(rng, top_k=3, norm=False)
        assert_same(student(call), reference(call))

    def test_one_expert(self, student, reference, rng):
        """top_k 1"""
        call = self.call(rng, top_k=1, norm=False)
        assert_same(student(call), reference(call))

    def test_large_logits(self, student, reference, rng):
        """logits in the hundreds"""
        call = self.call(rng, norm=False, shift=200.0)
        assert_same(student(call), reference(call))

    @pytest.mark.parametrize("norm", [True, False])
    def test_half_precision(self, student, reference, rng, norm):
        """bfloat16 logits, norm_topk_prob={norm}"""
        call = self.call(rng, norm=norm)
        ranks = torch.argsort(rng.normal(5, 18), dim=-1)[:, :6]  # no two of a token are equal
        call.steps[0][1]["router_logits"] = (0.25 * ranks - 1).bfloat16()
        assert_same(student(call), reference(call))

    def test_close_logits(self, student, reference, rng):
        """bfloat16 logits that lie close together"""
        call = self.call(rng, norm=False)
        ranks = torch.argsort(rng.normal(40, 6), dim=-1)
        call.steps[0][1]["router_logits"] = (0.25 + ranks / 512).bfloat16()
        assert_same(student(call), reference(call))

    def test_positions(self, student, reference, rng):
        """arguments by position: router_logits, top_k, norm_topk_prob"""
        call = self.call(rng, top_k=1, norm=False, by_position=True)
        assert_same(student(call), reference(call))
        call = self.call(rng, by_position=True)
        assert_same(student(call), reference(call))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        for norm in (True, False):
            call = self.call(rng, top_k=3, norm=norm, grad=True)
            assert_same(student(call), reference(call))


def config(experts, top_k, norm, hidden_size=6):
    """A tiny model: the experts' size, 5, is not that of a dense layer, 7."""
    attention = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2}
    dense = {"vocab_size": 8, "num_hidden_layers": 1, "intermediate_size": 7}
    return New(
        "Qwen3Config",
        **(attention | dense),
        hidden_size=hidden_size,
        num_experts=experts,
        num_experts_per_tok=top_k,
        moe_intermediate_size=5,
        norm_topk_prob=norm,
    )


def state(experts, draw, hidden_size=6):
    """Weights of the block, made by `draw(rows, columns)`."""
    weights = {"gate.weight": draw(experts, hidden_size)}
    for x in range(experts):
        for name in ("gate_proj", "up_proj"):
            weights[f"experts.{x}.{name}.weight"] = draw(5, hidden_size)
        weights[f"experts.{x}.down_proj.weight"] = draw(hidden_size, 5)
    return weights


@pytest.mark.exercise("5.2")
class TestBlock:
    def call(self, rng, experts=4, top_k=2, norm=True, shape=(2, 3, 6), **options):
        init = {"config": config(experts, top_k, norm)}
        weights = state(experts, lambda *shape: 0.7 * rng.normal(*shape))
        inputs = {"hidden_states": rng.normal(*shape)}
        return Call("Qwen3MoeSparseMoeBlock", init=init, state=weights, **inputs, **options)

    def test_parameters(self, student, reference, rng):
        """the parameters, their names and shapes"""
        call = self.call(rng, names=True)
        call.state = None
        call.steps.clear()
        assert_same(student(call), reference(call))

    def test_values(self, student, reference, rng):
        """values"""
        call = self.call(rng)
        assert_same(student(call), reference(call))

    def test_not_renormalised(self, student, reference, rng):
        """norm_topk_prob=False"""
        call = self.call(rng, top_k=3, norm=False)
        assert_same(student(call), reference(call))

    def test_crowded(self, student, reference, rng):
        """many tokens with one favourite expert"""
        call = self.call(rng, shape=(3, 5, 6))
        call.state["gate.weight"][1, 0] = 6.0
        call.steps[0][1]["hidden_states"][..., 0] = 1.0
        assert_same(student(call), reference(call))

    def test_only_chosen_experts_run(self, student, reference, rng):
        """experts that nobody picked hold NaN, which must not show"""
        call = self.call(rng, experts=5, grad=True)
        call.steps[0][1]["hidden_states"][..., 0] = 1.0
        call.state["gate.weight"][:, 0] = torch.tensor([0.0, -60.0, 0.0, -60.0, 0.0])
        for name, weight in call.state.items():
            if name.startswith(("experts.1.", "experts.3.")):
                weight.fill_(torch.nan)
        assert_same(student(call), reference(call))

    def test_only_its_own_tokens(self, student, reference, rng):
        """a token that would overflow in an expert that it did not pick"""
        call = self.call(rng)
        hidden, gate = call.steps[0][1]["hidden_states"], call.state["gate.weight"]
        hidden[..., 0], gate[2, 0] = 1.0, 9.0  # expert 2 is everybody's favourite
        hidden[..., 1], hidden[0, 1, 1] = 0.0, 2.0
        gate[:, 1], gate[2, 1] = 0.0, -60.0  # but not of this token
        call.state["experts.2.gate_proj.weight"][:, 1] = 3e38
        call.state["experts.2.up_proj.weight"][:, 1] = 3e38
        assert_same(student(call), reference(call))

    def test_half_precision(self, student, reference, rng):
        """bfloat16"""
        call = self.call(rng, dtype=torch.bfloat16)
        call.state = state(4, lambda *shape: rng.uniform(*shape, low=0.1, high=0.5))
        call.state["gate.weight"] = torch.eye(4, 6)
        hidden = rng.uniform(2, 3, 6, low=0.5)
        hidden[..., :4] = 0.5 * torch.argsort(rng.normal(2, 3, 4), dim=-1)
        call.steps[0][1]["hidden_states"] = hidden.bfloat16()
        assert_same(student(call), reference(call))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        call = self.call(rng, shape=(1, 4, 6), grad=True)
        assert_same(student(call), reference(call))


@pytest.mark.exercise("5.3")
class TestBalanceLoss:
    MASK = torch.tensor([[0, 1, 1, 1], [0, 0, 1, 1]])  # left padding, two texts of four tokens

    def call(self, rng, layers=1, top_k=2, mask=None, **options):
        logits = [2 * rng.normal(8, 5) for _ in range(layers)]
        inputs = {} if mask is None else {"attention_mask": mask}
        given = logits[0] if layers == 1 else logits
        return Call(
            "load_balancing_loss", router_logits=given, top_k=top_k, **inputs, **options
        )

    def test_values(self, student, reference, rng):
        """one layer"""
        call = self.call(rng)
        assert_same(student(call), reference(call))

    def test_one_expert(self, student, reference, rng):
        """top_k 1"""
        call = self.call(rng, top_k=1)
        assert_same(student(call), reference(call))

    def test_collapse(self, student, reference, rng):
        """every token on the same two experts"""
        call = self.call(rng)
        call.steps[0][1]["router_logits"] += torch.tensor([0.0, 30, 0, 20, 0])
        assert_same(student(call), reference(call))

    def test_layers(self, student, reference, rng):
        """a list of three layers"""
        call = self.call(rng, layers=3)
        assert_same(student(call), reference(call))

    def test_mask(self, student, reference, rng):
        """one layer, some tokens padding"""
        call = self.call(rng, mask=self.MASK)
        assert_same(student(call), reference(call))

    def test_layers_and_mask(self, student, reference, rng):
        """three layers, some tokens padding"""
        call = self.call(rng, layers=3, mask=self.MASK)
        assert_same(student(call), reference(call))

    def test_half_precision(self, student, reference, rng):
        """bfloat16 logits"""
        call = self.call(rng)
        ranks = torch.argsort(rng.normal(8, 15), dim=-1)[:, :5]  # no two of a token are equal
        call.steps[0][1]["router_logits"] = (0.25 * ranks - 1).bfloat16()
        assert_same(student(call), reference(call))

    def test_positions(self, student, reference, rng):
        """arguments by position: router_logits, top_k, attention_mask"""
        call = self.call(rng, mask=self.MASK, by_position=True)
        assert_same(student(call), reference(call))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        call = self.call(rng, grad=True)
        assert_same(student(call), reference(call))
