"""Visible checks of lab 06: what check("6.1") and its sisters run."""

from dataclasses import replace

import pytest
import torch

from labkit.checks.runner import Call, Given, New, assert_same

SIZES = {
    "vocab_size": 9,
    "hidden_size": 6,
    "intermediate_size": 7,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "rope_theta": 50.0,
    "max_position_embeddings": 32,
    "rms_norm_eps": 0.01,
}
EXPERTS = {  # the middle one of three layers holds experts
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 5,
    "norm_topk_prob": True,
    "decoder_sparse_step": 2,
}


def config(**changes):
    return New("Qwen3Config", **(SIZES | changes))


def layer_state(rng, sparse, name=""):
    """Weights of one layer; those of the norms are not 1, and no two of them are alike."""
    draw = {n: 1 + 0.5 * rng.normal(6) for n in ("input_layernorm", "post_attention_layernorm")}
    draw |= {f"self_attn.{n}": 1 + 0.5 * rng.normal(4) for n in ("q_norm", "k_norm")}
    shapes = {"self_attn.q_proj": (16, 6), "self_attn.k_proj": (8, 6)}
    shapes |= {"self_attn.v_proj": (8, 6), "self_attn.o_proj": (6, 16)}
    inner, places = 7, ["mlp"]
    if sparse:
        inner, places = 5, [f"mlp.experts.{x}" for x in range(4)]
        shapes["mlp.gate"] = (4, 6)
    for place in places:
        shapes |= {f"{place}.gate_proj": (inner, 6), f"{place}.up_proj": (inner, 6)}
        shapes[f"{place}.down_proj"] = (6, inner)
    draw |= {n: rng.normal(*shape) / shape[1] ** 0.5 for n, shape in shapes.items()}
    return {f"{name}{n}.weight": weight for n, weight in draw.items()}


def causal(new, total):
    """(new, total) bool: the queries are the last of the keys."""
    return torch.ones(new, total, dtype=torch.bool).tril(total - new)


def rotary(start, end):
    """cos and sin (1, T, 4) of the positions start to end, as lab 02 makes them."""
    angles = torch.arange(start, end)[:, None] * torch.tensor([1.0, 0.1])
    angles = torch.cat((angles, angles), dim=-1)[None]
    return {"cos": angles.cos(), "sin": angles.sin()}


@pytest.mark.exercise("6.1")
class TestLayer:
    def call(self, rng, layer_idx=2, pieces=(4,), init=None, **options):
        """Layer layer_idx on 4 tokens, given in pieces."""
        given = {"config": init or config(), "layer_idx": layer_idx}
        state = layer_state(rng, sparse=init is not None and layer_idx == 1)
        call = Call("Qwen3DecoderLayer", init=given, state=state, **options)
        x, start = rng.normal(2, 4, 6), 0
        cache = (
            {} if len(pieces) == 1 else {"cache": Given("kv_cache", layer_idx=2, numbers=16)}
        )
        for piece in pieces:
            end = start + piece
            inputs = {"hidden_states": x[:, start:end], **rotary(3 + start, 3 + end)}
            call.then(**inputs, mask=causal(piece, end), **cache)
            start = end
        return call

    @pytest.mark.parametrize("layer_idx", [0, 1])
    def test_parameters(self, student, reference, layer_idx):
        """the parameters of layer {layer_idx}, where layer 1 alone holds experts"""
        init = {"config": config(**EXPERTS), "layer_idx": layer_idx}
        call = Call("Qwen3DecoderLayer", init=init, names=True)
        assert_same(student(call), reference(call))

    def test_values(self, student, reference, rng):
        """a dense layer"""
        call = self.call(rng)
        assert_same(student(call), reference(call))

    def test_with_experts(self, student, reference, rng):
        """a layer with experts, and its router logits"""
        call = self.call(rng, layer_idx=1, init=config(**EXPERTS))
        assert_same(student(call), reference(call))

    def test_cache(self, student, reference, rng):
        """4 tokens in three steps with a cache: 2, then 1, then 1"""
        call = self.call(rng, pieces=(2, 1, 1))
        assert_same(student(call), reference(call))

    def test_positions(self, student, reference, rng):
        """arguments by position: hidden_states, cos, sin, mask"""
        call = self.call(rng, by_position=True)
        assert_same(student(call), reference(call))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        call = self.call(rng, grad=True)
        assert_same(student(call), reference(call))


def model_state(rng, sparse=(), layers=3, name=""):
    draw = {f"{name}embed_tokens.weight": rng.normal(9, 6)}
    for i in range(layers):
        draw |= layer_state(rng, i in sparse, f"{name}layers.{i}.")
    return draw | {f"{name}norm.weight": 1 + 0.5 * rng.normal(6)}


def of_real_tokens(outcome, masks):
    """The outcome with zeros where the mask is 0: what comes out there is nobody's business."""

    def blanked(value, mask):
        if isinstance(value, list):
            return [blanked(item, mask) for item in value]
        for padding in (mask == 0, mask.flatten() == 0):
            if (
                isinstance(value, torch.Tensor)
                and value.shape[: padding.dim()] == padding.shape
            ):
                return value.masked_fill(padding.view(*padding.shape, 1), 0.0)
        return value

    pairs = zip(outcome.values, masks, strict=False)
    return replace(outcome, values=[blanked(value, mask) for value, mask in pairs])


@pytest.mark.exercise("6.2")
class TestModel:
    LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    GAP = torch.tensor([[0, 1, 0, 1, 1], [1, 1, 1, 1, 1]])

    def call(self, rng, sparse=(), pieces=(5,), mask=None, **options):
        """The model on two texts of 5 tokens, given in pieces; sparse is () or (1,)."""
        init = {"config": config(**(EXPERTS if sparse else {}))}
        call = Call("Qwen3Model", init=init, state=model_state(rng, sparse), **options)
        ids, start = rng.integers(0, 9, 2, 5), 0
        cache = {"cache": Given("model_cache", layers=3, numbers=16)} if len(pieces) > 1 else {}
        for piece in pieces:
            end = start + piece
            padding = {} if mask is None else {"attention_mask": mask[:, :end]}
            call.then(input_ids=ids[:, start:end], **padding, **cache)
            start = end
        return call

    def compare(self, student, reference, call, *masks):
        mine, theirs = student(call), reference(call)
        if masks:
            mine, theirs = of_real_tokens(mine, masks), of_real_tokens(theirs, masks)
        assert_same(mine, theirs)

    def test_parameters(self, student, reference):
        """the parameters of three layers, the middle one with experts"""
        call = Call("Qwen3Model", init={"config": config(**EXPERTS)}, names=True)
        assert_same(student(call), reference(call))

    def test_one_token(self, student, reference, rng):
        """one token"""
        call = self.call(rng)
        call.steps[0][1]["input_ids"] = torch.tensor([[4]])
        self.compare(student, reference, call)

    def test_values(self, student, reference, rng):
        """5 tokens, dense"""
        self.compare(student, reference, self.call(rng))

    def test_with_experts(self, student, reference, rng):
        """a mixture, and the router logits of its only layer with experts"""
        self.compare(student, reference, self.call(rng, sparse=(1,)))

    def test_left_padding(self, student, reference, rng):
        """a shorter text, padded on the left"""
        call = self.call(rng, mask=self.LEFT)
        self.compare(student, reference, call, self.LEFT)

    def test_gap(self, student, reference, rng):
        """padding in the middle too: positions count real tokens only"""
        call = self.call(rng, mask=self.GAP)
        self.compare(student, reference, call, self.GAP)

    def test_cache(self, student, reference, rng):
        """5 tokens in three steps with a cache: 2, then 1, then 2"""
        self.compare(student, reference, self.call(rng, pieces=(2, 1, 2)))

    def test_cache_and_padding(self, student, reference, rng):
        """the same with padding on the left"""
        call = self.call(rng, pieces=(3, 1, 1), mask=self.LEFT)
        masks = [self.LEFT[:, :3], self.LEFT[:, 3:4], self.LEFT[:, 4:]]
        self.compare(student, reference, call, *masks)

    def test_gradients(self, student, reference, rng):
        """gradients"""
        call = self.call(rng, grad=True)
        self.compare(student, reference, call)


@pytest.mark.exercise("6.3")
class TestCausalLM:
    def call(self, rng, tied=True, sparse=(), **options):
        """The language model of two layers, its weights as they stand in a checkpoint."""
        changes = EXPERTS if sparse else {}
        changes = {**changes, "num_hidden_layers": 2, "tie_word_embeddings": tied}
        state = model_state(rng, sparse, layers=2, name="model.")
        if not tied:
            state["lm_head.weight"] = rng.normal(9, 6)
        init = {"config": config(**changes)}
        self.ids = rng.integers(0, 9, 2, 4)
        return Call("Qwen3ForCausalLM", init=init, state=state, **options)

    @pytest.mark.parametrize("tied", [True, False])
    def test_parameters(self, student, reference, rng, tied):
        """the parameters, tie_word_embeddings={tied}"""
        call = self.call(rng, tied, names=True)
        assert_same(student(call), reference(call))

    @pytest.mark.parametrize("tied", [True, False])
    def test_values(self, student, reference, rng, tied):
        """logits, tie_word_embeddings={tied}"""
        call = self.call(rng, tied).then(input_ids=self.ids)
        assert_same(student(call), reference(call))

    def test_router_logits(self, student, reference, rng):
        """a mixture, with output_router_logits and without"""
        call = self.call(rng, sparse=(1,)).then(input_ids=self.ids)
        call.then(input_ids=self.ids, output_router_logits=True)
        assert_same(student(call), reference(call))

    def test_padding(self, student, reference, rng):
        """a shorter text, padded on the left"""
        mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
        call = self.call(rng).then(input_ids=self.ids, attention_mask=mask)
        mine, theirs = (
            of_real_tokens(perform(call), [mask]) for perform in (student, reference)
        )
        assert_same(mine, theirs)

    def test_cache(self, student, reference, rng):
        """4 tokens in two steps with a cache: 3, then 1"""
        cache = Given("model_cache", layers=2, numbers=16)
        call = self.call(rng).then(input_ids=self.ids[:, :3], cache=cache)
        call.then(input_ids=self.ids[:, 3:], cache=cache)
        assert_same(student(call), reference(call))

    @pytest.mark.parametrize("tied", [True, False])
    def test_gradients(self, student, reference, rng, tied):
        """gradients, tie_word_embeddings={tied}"""
        call = self.call(rng, tied, grad=True).then(input_ids=self.ids)
        assert_same(student(call), reference(call))

    def test_tie_after_loading(self, student, reference, rng):
        """gradients after load_state_dict(..., assign=True), which brings new Parameters"""
        call = self.call(rng, grad=True)
        call.then("load_state_dict", state_dict=call.state, assign=True)
        call.then(input_ids=self.ids)
        assert_same(student(call), reference(call))

    def test_half_precision(self, student, reference, rng):
        """the dtype of the logits is that of the weights: bfloat16"""
        call = self.call(rng, dtype=torch.bfloat16).then(input_ids=self.ids[:, :1])
        assert_same(student(call), reference(call))


@pytest.mark.exercise("6.4")
class TestCount:
    LAYERS = {"num_hidden_layers": 6}
    QWEN = {
        "vocab_size": 151936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": True,
    }

    def compare(self, student, reference, **changes):
        call = Call("count_parameters", config=config(**changes))
        assert_same(student(call), reference(call))

    def test_dense(self, student, reference):
        """a dense model"""
        self.compare(student, reference)

    def test_tied(self, student, reference):
        """tie_word_embeddings"""
        self.compare(student, reference, tie_word_embeddings=True)

    def test_bias(self, student, reference):
        """attention_bias"""
        self.compare(student, reference, attention_bias=True)

    def test_every_layer(self, student, reference):
        """experts in each of 6 layers"""
        changes = EXPERTS | self.LAYERS | {"decoder_sparse_step": 1}
        self.compare(student, reference, **changes)

    def test_sparse_step(self, student, reference):
        """experts in every third of 8 layers"""
        changes = EXPERTS | {"num_hidden_layers": 8, "decoder_sparse_step": 3}
        self.compare(student, reference, **changes)

    def test_mlp_only_layers(self, student, reference):
        """experts in every second of 6 layers, except layer 1"""
        self.compare(student, reference, **EXPERTS, **self.LAYERS, mlp_only_layers=(1,))

    def test_published(self, student, reference):
        """Qwen3-0.6B"""
        self.compare(student, reference, **self.QWEN)
