"""Visible checks of lab 05: what check("5.1") and its sisters run."""

import pytest
import torch

from labkit.checks.runner import Call, New, compare


def distinct_logits(rng, rows, columns, dtype):
    """Logits of which no two of a token are equal, whatever the dtype: multiples of 1/4."""
    ranks = torch.argsort(rng.normal(rows, 3 * columns), dim=-1)[:, :columns]
    return (0.25 * ranks - 1).to(dtype)


def close_logits(rng, rows, columns):
    """Logits that bfloat16 tells apart, and whose probabilities it does not."""
    return (1 / 16 + torch.argsort(rng.normal(rows, columns), dim=-1) / 2048).bfloat16()


def route_call(logits, top_k, norm, summary="by index", **options):
    """A call that does not ask for the order of the chosen, unless `summary` is None."""
    inputs = {"router_logits": logits, "top_k": top_k, "norm_topk_prob": norm}
    call = Call("route", summary=summary, **inputs, **options)
    return call.returning("weights", "chosen")


@pytest.mark.exercise("5.1")
class TestRoute:
    def call(self, rng, top_k=2, norm=True, shift=0.0, **options):
        return route_call(2 * rng.normal(5, 6) + shift, top_k, norm, **options)

    def test_values(self, student, reference, rng):
        """norm_topk_prob=True"""
        compare(student, reference, self.call(rng, top_k=3))

    def test_not_renormalised(self, student, reference, rng):
        """norm_topk_prob=False"""
        compare(student, reference, self.call(rng, top_k=3, norm=False))

    @pytest.mark.parametrize("norm", [True, False])
    def test_one_expert(self, student, reference, rng, norm):
        """top_k 1, norm_topk_prob={norm}"""
        compare(student, reference, self.call(rng, top_k=1, norm=norm))

    def test_best_first(self, student, reference, rng):
        """the best expert first"""
        compare(student, reference, route_call(2 * rng.normal(5, 8), 4, False, summary=None))

    def test_many_experts(self, student, reference, rng):
        """128 experts of nearly the same probability, norm_topk_prob=True"""
        logits = torch.argsort(rng.normal(5, 128), dim=-1) / 1000
        compare(student, reference, route_call(logits, 2, True))

    def test_large_logits(self, student, reference, rng):
        """logits in the hundreds"""
        compare(student, reference, self.call(rng, norm=False, shift=200.0))

    @pytest.mark.parametrize("norm", [True, False])
    def test_half_precision(self, student, reference, rng, norm):
        """bfloat16 logits, norm_topk_prob={norm}"""
        logits = distinct_logits(rng, 5, 6, torch.bfloat16)
        compare(student, reference, route_call(logits, 2, norm))

    def test_close_logits(self, student, reference, rng):
        """bfloat16 logits that lie close together"""
        compare(student, reference, route_call(close_logits(rng, 40, 6), 2, False))

    def test_positions(self, student, reference, rng):
        """arguments by position: router_logits, top_k, norm_topk_prob"""
        call = self.call(rng, top_k=1, norm=False, by_position=True)
        compare(student, reference, call)
        compare(student, reference, self.call(rng, by_position=True))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        for norm in (True, False):
            compare(student, reference, self.call(rng, top_k=3, norm=norm, grad=True))


def config(experts, top_k, norm, hidden_size, moe_size, dense_size):
    """A tiny model; its dense layers, which are not built here, have a size of their own."""
    attention = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2}
    dense = {"vocab_size": 8, "num_hidden_layers": 1, "intermediate_size": dense_size}
    return New(
        "Qwen3Config",
        **(attention | dense),
        hidden_size=hidden_size,
        num_experts=experts,
        num_experts_per_tok=top_k,
        moe_intermediate_size=moe_size,
        norm_topk_prob=norm,
    )


def state(experts, hidden_size, moe_size, draw):
    """Weights of the block, made by `draw(rows, columns)`."""
    weights = {"gate.weight": draw(experts, hidden_size)}
    for x in range(experts):
        for name in ("gate_proj", "up_proj"):
            weights[f"experts.{x}.{name}.weight"] = draw(moe_size, hidden_size)
        weights[f"experts.{x}.down_proj.weight"] = draw(hidden_size, moe_size)
    return weights


def block_call(
    rng, experts=4, top_k=2, norm=True, shape=(2, 3, 6), sizes=(5, 7), scale=0.7, **options
):
    """sizes: of an expert, and of a dense layer"""
    init = {"config": config(experts, top_k, norm, shape[-1], *sizes)}
    weights = state(experts, shape[-1], sizes[0], lambda *shape: scale * rng.normal(*shape))
    inputs = {"hidden_states": rng.normal(*shape)}
    call = Call("Qwen3MoeSparseMoeBlock", init=init, state=weights, **inputs, **options)
    return call.returning("mixed", "router_logits")


@pytest.mark.exercise("5.2")
class TestBlock:
    def test_parameters(self, student, reference, rng):
        """the parameters, their names and shapes"""
        call = block_call(rng, names=True)
        call.state = None
        call.steps.clear()
        compare(student, reference, call)

    def test_values(self, student, reference, rng):
        """values"""
        compare(student, reference, block_call(rng))

    def test_not_renormalised(self, student, reference, rng):
        """norm_topk_prob=False"""
        compare(student, reference, block_call(rng, top_k=3, norm=False))

    @pytest.mark.parametrize("norm", [True, False])
    def test_one_expert_each(self, student, reference, rng, norm):
        """one expert a token, norm_topk_prob={norm}"""
        compare(student, reference, block_call(rng, top_k=1, norm=norm))

    def test_crowded(self, student, reference, rng):
        """many tokens with one favourite expert"""
        call = block_call(rng, shape=(3, 5, 6))
        call.state["gate.weight"][1, 0] = 6.0
        call.steps[0][1]["hidden_states"][..., 0] = 1.0
        compare(student, reference, call)

    def test_only_chosen_experts_run(self, student, reference, rng):
        """experts that nobody picked hold NaN, which must not show"""
        call = block_call(rng, experts=5, grad=True)
        call.steps[0][1]["hidden_states"][..., 0] = 1.0
        call.state["gate.weight"][:, 0] = torch.tensor([0.0, -60.0, 0.0, -60.0, 0.0])
        for name, weight in call.state.items():
            if name.startswith(("experts.1.", "experts.3.")):
                weight.fill_(torch.nan)
        compare(student, reference, call)

    def test_only_its_own_tokens(self, student, reference, rng):
        """a token that would overflow in an expert that it did not pick"""
        call = block_call(rng, grad=True)
        hidden, gate = call.steps[0][1]["hidden_states"], call.state["gate.weight"]
        hidden[..., 0], gate[2, 0] = 1.0, 9.0  # expert 2 is everybody's favourite
        hidden[..., 1], hidden[0, 1, 1] = 0.0, 2.0
        gate[:, 1], gate[2, 1] = 0.0, -60.0  # but not of this token
        call.state["experts.2.gate_proj.weight"][:, 1] = 1e25
        call.state["experts.2.up_proj.weight"][:, 1] = 1e25
        compare(student, reference, call)

    def test_half_precision(self, student, reference, rng):
        """bfloat16"""
        call = block_call(rng, dtype=torch.bfloat16)
        call.state = state(4, 6, 5, lambda *shape: rng.uniform(*shape, low=0.1, high=0.5))
        call.state["gate.weight"] = torch.eye(4, 6)
        hidden = rng.uniform(2, 3, 6, low=0.5)
        hidden[..., :4] = 0.5 * torch.argsort(rng.normal(2, 3, 4), dim=-1)
        call.steps[0][1]["hidden_states"] = hidden.bfloat16()
        compare(student, reference, call)

    def test_gradients(self, student, reference, rng):
        """gradients"""
        compare(student, reference, block_call(rng, shape=(1, 4, 6), grad=True))


def sharp_logits(rng, rows, columns):
    """Logits whose probabilities are all but 0 and 1, so that no dtype rounds them; the means
    of 8 or 16 tokens are exact in any, too."""
    return 16.0 * torch.argsort(rng.normal(rows, columns), dim=-1)


def balance_call(logits, top_k, **options):
    return Call("load_balancing_loss", router_logits=logits, top_k=top_k, **options)


@pytest.mark.exercise("5.3")
class TestBalanceLoss:
    MASK = torch.tensor([[0, 1, 1, 1], [0, 0, 1, 1]])  # left padding, two texts of four tokens

    def call(self, rng, layers=1, top_k=2, mask=None, **options):
        logits = [2 * rng.normal(8, 5) for _ in range(layers)]
        inputs = {} if mask is None else {"attention_mask": mask}
        return balance_call(logits[0] if layers == 1 else logits, top_k, **inputs, **options)

    def test_values(self, student, reference, rng):
        """one layer"""
        compare(student, reference, self.call(rng))

    def test_one_choice(self, student, reference, rng):
        """top_k 1"""
        compare(student, reference, self.call(rng, top_k=1))

    def test_one_of_a_kind(self, student, reference, rng):
        """one token, and one expert in all"""
        compare(student, reference, balance_call(2 * rng.normal(1, 5), 2))
        compare(student, reference, balance_call(2 * rng.normal(6, 1), 1))

    def test_many_tokens(self, student, reference, rng):
        """300 tokens"""
        compare(student, reference, balance_call(rng.normal(300, 4) + 4 * torch.eye(4)[0], 1))

    def test_collapse(self, student, reference, rng):
        """every token on the same two experts"""
        call = self.call(rng)
        call.steps[0][1]["router_logits"] += torch.tensor([0.0, 30, 0, 20, 0])
        compare(student, reference, call)

    def test_layers(self, student, reference, rng):
        """three layers in a list, two in a tuple"""
        compare(student, reference, self.call(rng, layers=3))
        two = (2 * rng.normal(8, 5), 2 * rng.normal(8, 5))
        compare(student, reference, balance_call(two, 2))

    def test_mask(self, student, reference, rng):
        """one layer, some tokens padding"""
        compare(student, reference, self.call(rng, mask=self.MASK))

    def test_layers_and_mask(self, student, reference, rng):
        """three layers, some tokens padding"""
        compare(student, reference, self.call(rng, layers=3, mask=self.MASK))

    def test_half_precision(self, student, reference, rng):
        """bfloat16 logits, with padding"""
        mask = (torch.arange(5) >= torch.tensor([[0], [3], [4]])).long()  # 8 tokens count
        call = balance_call(sharp_logits(rng, 15, 5).bfloat16(), 2, attention_mask=mask)
        compare(student, reference, call)

    def test_positions(self, student, reference, rng):
        """arguments by position: router_logits, top_k, attention_mask"""
        compare(student, reference, self.call(rng, mask=self.MASK, by_position=True))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        compare(student, reference, self.call(rng, grad=True))


def layers_call(experts, step, listed, layers=range(6), **options):
    """Which of these layers are sparse, one step a layer."""
    fields = {"decoder_sparse_step": step, "mlp_only_layers": listed}
    model = config(experts, min(2, experts) or 1, True, 4, 3, 5)
    model.arguments |= {**fields, "num_hidden_layers": 12}
    call = Call("uses_experts", **options)
    for layer_idx in layers:
        call.then(config=model, layer_idx=layer_idx)
    return call


@pytest.mark.exercise("5.4")
class TestUsesExperts:
    @pytest.mark.parametrize("step", [2, 3, 4])
    def test_step(self, student, reference, step):
        """decoder_sparse_step {step}; here step 1 is layer 0, step 6 is layer 5"""
        compare(student, reference, layers_call(4, step, ()))

    @pytest.mark.parametrize("listed", [(1, 4), (0, 2)])
    def test_listed(self, student, reference, listed):
        """mlp_only_layers {listed}; here step 1 is layer 0, step 6 is layer 5"""
        compare(student, reference, layers_call(4, 1, listed))

    def test_listed_and_step(self, student, reference):
        """decoder_sparse_step 2, mlp_only_layers (1, 2); step 1 is layer 0, step 6 layer 5"""
        compare(student, reference, layers_call(4, 2, (1, 2)))

    @pytest.mark.parametrize("step", [1, 2])
    def test_dense(self, student, reference, step):
        """a dense model: num_experts 0, decoder_sparse_step {step}"""
        compare(student, reference, layers_call(0, step, ()))

    def test_positions(self, student, reference):
        """arguments by position: config, layer_idx"""
        compare(student, reference, layers_call(4, 3, (0,), by_position=True))
