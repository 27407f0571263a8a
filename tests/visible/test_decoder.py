"""Visible checks of lab 06: what check("6.1") and its sisters run."""

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
import torch

from labkit.checks.runner import Call, Given, New, Outcome, assert_same, compare

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
    "num_experts": 0,
}
EXPERTS = {  # the middle one of three layers holds experts
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 5,
    "norm_topk_prob": True,
    "decoder_sparse_step": 2,
}


def layer_state(rng, fields, sparse=False, name=""):
    """Weights of one layer; those of the norms are not 1, and no two of them are alike."""
    size, D = fields["hidden_size"], fields["head_dim"]
    q, kv = (fields[f"num_{n}_heads"] * D for n in ("attention", "key_value"))
    norms = ("input_layernorm", "post_attention_layernorm")
    draw = {f"{n}.weight": 1 + 0.5 * rng.normal(size) for n in norms}
    draw |= {f"self_attn.{n}.weight": 1 + 0.5 * rng.normal(D) for n in ("q_norm", "k_norm")}
    shapes = {"q": (q, size), "k": (kv, size), "v": (kv, size), "o": (size, q)}
    shapes = {f"self_attn.{n}_proj": shape for n, shape in shapes.items()}
    if fields.get("attention_bias"):
        draw |= {f"{n}.bias": rng.normal(shape[0]) for n, shape in shapes.items()}
    inner, places = fields["intermediate_size"], ["mlp"]
    if sparse:
        inner = fields["moe_intermediate_size"]
        places = [f"mlp.experts.{x}" for x in range(fields["num_experts"])]
        shapes["mlp.gate"] = (fields["num_experts"], size)
    for place in places:
        shapes |= {f"{place}.gate_proj": (inner, size), f"{place}.up_proj": (inner, size)}
        shapes[f"{place}.down_proj"] = (size, inner)
    draw |= {f"{n}.weight": rng.normal(*s) / s[1] ** 0.5 for n, s in shapes.items()}
    return {f"{name}{n}": tensor for n, tensor in draw.items()}


def causal(new, total):
    """(new, total) bool: the queries are the last of the keys."""
    return torch.ones(new, total, dtype=torch.bool).tril(total - new)


def cos_sin(positions, inv_freq):
    """cos and sin (1, T, D) of these positions, as lab 02 makes them."""
    angles = positions[:, None] * inv_freq
    angles = torch.cat((angles, angles), dim=-1)[None]
    angles = angles.double()  # float32 differs from processor to processor
    return {"cos": angles.cos().float(), "sin": angles.sin().float()}


def rotary(start, end):
    """cos and sin of the tokens start to end; the first of all stands at position 3."""
    return cos_sin(torch.arange(3 + start, 3 + end), torch.tensor([1.0, 0.1]))


def cache_for(fields, pieces, name, **place):
    """The cache as an input, where the tokens come in several pieces."""
    numbers = 2 * fields["num_key_value_heads"] * fields["head_dim"]
    return {"cache": Given(name, **place, numbers=numbers)} if len(pieces) > 1 else {}


def layer_call(
    rng, fields, layer_idx=2, sparse=False, pieces=(4,), batch=2, rotary=rotary, **options
):
    """Layer layer_idx on tokens that are given in pieces; one token needs no mask."""
    init = {"config": New("Qwen3Config", **fields), "layer_idx": layer_idx}
    state = layer_state(rng, fields, sparse)
    call = Call("Qwen3DecoderLayer", init=init, state=state, **options)
    call.returning("hidden_states", "router_logits")
    x = 3 * rng.normal(batch, sum(pieces), fields["hidden_size"])
    cache = cache_for(fields, pieces, "kv_cache", layer_idx=layer_idx)
    for start, end in pairwise((0, *accumulate(pieces))):
        inputs = {"hidden_states": x[:, start:end], **rotary(start, end)}
        mask = {} if end == 1 else {"mask": causal(end - start, end)}
        call.then(**inputs, **mask, **cache)
    return call


def compare_results(student, reference, call):
    """Compare what comes out; one check of its own asks that the input stays as it was."""
    assert_same(replace(student(call), changed=[]), reference(call))


def positive(call):
    """The call with positive sums, so that bfloat16 rounds little."""
    for name, weight in call.state.items():
        call.state[name] = weight.abs() if "norm" not in name else weight
    return call


def half_precision(call):
    """The layer's call in bfloat16."""
    inputs = positive(call).steps[0][1]
    inputs["hidden_states"] = (1.5 + 0.1 * inputs["hidden_states"]).bfloat16()
    call.dtype = torch.bfloat16
    return call


@pytest.mark.exercise("6.1")
class TestLayer:
    @pytest.mark.parametrize("layer_idx", [0, 1])
    def test_parameters(self, student, reference, layer_idx):
        """the parameters of layer {layer_idx}, where layer 1 alone holds experts"""
        init = {"config": New("Qwen3Config", **SIZES | EXPERTS), "layer_idx": layer_idx}
        compare(student, reference, Call("Qwen3DecoderLayer", init=init, names=True))

    def test_values(self, student, reference, rng):
        """a dense layer"""
        compare_results(student, reference, layer_call(rng, SIZES))

    def test_with_experts(self, student, reference, rng):
        """a layer with experts, and its router logits"""
        call = layer_call(rng, SIZES | EXPERTS, layer_idx=1, sparse=True)
        compare_results(student, reference, call)

    def test_one_token(self, student, reference, rng):
        """one token in a layer with experts, no mask"""
        fields, only = SIZES | EXPERTS, {"pieces": (1,), "batch": 1}
        call = layer_call(rng, fields, layer_idx=1, sparse=True, **only)
        compare_results(student, reference, call)

    def test_cache(self, student, reference, rng):
        """4 tokens in three steps with a cache: 2, then 1, then 1"""
        compare_results(student, reference, layer_call(rng, SIZES, pieces=(2, 1, 1)))

    def test_positions(self, student, reference, rng):
        """arguments by position: hidden_states, cos, sin, mask"""
        compare_results(student, reference, layer_call(rng, SIZES, by_position=True))

    def test_eps(self, student, reference, rng):
        """a large rms_norm_eps"""
        compare_results(student, reference, layer_call(rng, SIZES | {"rms_norm_eps": 0.3}))

    def test_input(self, student, reference, rng):
        """the hidden_states that came in stay as they were"""
        compare(student, reference, layer_call(rng, SIZES))

    def test_half_precision(self, student, reference, rng):
        """bfloat16 in, bfloat16 out"""
        call = half_precision(layer_call(rng, SIZES, pieces=(1,)))
        compare_results(student, reference, call)

    @pytest.mark.parametrize("experts", [0, 4])
    def test_gradients(self, student, reference, rng, experts):
        """gradients, {experts} experts"""
        fields = SIZES | (EXPERTS if experts else {})
        call = layer_call(rng, fields, layer_idx=1, sparse=experts > 0, grad=True)
        compare(student, reference, call)


def model_state(rng, fields, sparse=(), name=""):
    """Weights of a model in which the layers `sparse` hold experts."""
    size = fields["hidden_size"]
    draw = {f"{name}embed_tokens.weight": 2 * rng.normal(fields["vocab_size"], size)}
    for i in range(fields["num_hidden_layers"]):
        draw |= layer_state(rng, fields, i in sparse, f"{name}layers.{i}.")
    return draw | {f"{name}norm.weight": 1 + 0.5 * rng.normal(size)}


def model_call(rng, fields, sparse=(), pieces=(5,), batch=2, mask=None, **options):
    """The model on texts whose tokens are given in pieces.

    mask    attention_mask for all tokens; with a list one for each piece, where None is none
    """
    init = {"config": New("Qwen3Config", **fields)}
    call = Call("Qwen3Model", init=init, state=model_state(rng, fields, sparse), **options)
    call.returning("hidden_states", "router_logits")
    ids = rng.integers(0, fields["vocab_size"], batch, sum(pieces))
    ids[-1, 0] = 0  # a word like any other
    cache = cache_for(fields, pieces, "model_cache", layers=fields["num_hidden_layers"])
    masks = mask if isinstance(mask, list) else [mask] * len(pieces)
    for mask, (start, end) in zip(masks, pairwise((0, *accumulate(pieces))), strict=True):
        padding = {} if mask is None else {"attention_mask": mask[:, :end]}
        call.then(input_ids=ids[:, start:end], **padding, **cache)
    return call


def compare_real_tokens(student, reference, call):
    """Compare what comes out at real tokens."""
    call.summary = "real tokens"
    compare(student, reference, call)


def many_tokens_call(rng):
    """A model in bfloat16 on more tokens, of more words, than bfloat16 can count: 256."""
    fields = SIZES | {"num_hidden_layers": 1, "vocab_size": 300, "rope_theta": 2.0}
    fields |= {"max_position_embeddings": 320, "num_attention_heads": 2}
    mask = torch.ones(1, 304, dtype=torch.int64)
    call = model_call(rng, fields, pieces=(300, 4), batch=1, mask=mask, dtype=torch.bfloat16)
    call.state["layers.0.self_attn.o_proj.weight"] *= 2  # attention counts
    call.state["layers.0.self_attn.q_norm.weight"] *= 1.5  # and looks closely
    return call


def compare_roughly(student, reference, call):
    """Compare the last step's hidden states with room for what bfloat16 rounds, a percent."""
    mine, right = student(call), reference(call)
    assert_same(mine, right, tolerance=1e9)  # all but the values
    last = [o.values[-1][0].float() for o in (mine, right)]
    assert_same(*(Outcome([values]) for values in last), tolerance=0.03)


@pytest.mark.exercise("6.2")
class TestModel:
    LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    GAP = torch.tensor([[0, 1, 0, 1, 1], [1, 1, 1, 1, 0]])

    def test_parameters(self, student, reference):
        """the parameters of three layers, the middle one with experts"""
        init = {"config": New("Qwen3Config", **SIZES | EXPERTS)}
        compare(student, reference, Call("Qwen3Model", init=init, names=True))

    def test_one_token(self, student, reference, rng):
        """one token"""
        compare(student, reference, model_call(rng, SIZES, pieces=(1,), batch=1))

    def test_values(self, student, reference, rng):
        """5 tokens, dense"""
        compare(student, reference, model_call(rng, SIZES))

    def test_with_experts(self, student, reference, rng):
        """a mixture, and the router logits of its two layers with experts"""
        fields = SIZES | EXPERTS | {"decoder_sparse_step": 1, "mlp_only_layers": (0,)}
        compare(student, reference, model_call(rng, fields, sparse=(1, 2)))

    def test_left_padding(self, student, reference, rng):
        """a shorter text, padded on the left"""
        compare_real_tokens(student, reference, model_call(rng, SIZES, mask=self.LEFT))

    def test_gap(self, student, reference, rng):
        """padding in the middle of one text, on the right of the other"""
        compare_real_tokens(student, reference, model_call(rng, SIZES, mask=self.GAP))

    def test_boolean_mask(self, student, reference, rng):
        """an attention_mask of True and False"""
        compare_real_tokens(student, reference, model_call(rng, SIZES, mask=self.LEFT.bool()))

    def test_cache(self, student, reference, rng):
        """5 tokens in three steps with a cache: 2, then 1, then 2"""
        compare(student, reference, model_call(rng, SIZES, pieces=(2, 1, 2)))

    def test_cache_and_padding(self, student, reference, rng):
        """the same with padding on the left"""
        call = model_call(rng, SIZES, pieces=(3, 1, 1), mask=self.LEFT)
        compare_real_tokens(student, reference, call)

    def test_mask_later(self, student, reference, rng):
        """with a cache: 3 tokens without an attention_mask, then 2 with one of ones"""
        masks = [None, torch.ones(2, 5, dtype=torch.int64)]
        compare(student, reference, model_call(rng, SIZES, pieces=(3, 2), mask=masks))

    def test_eps(self, student, reference, rng):
        """a large rms_norm_eps"""
        compare(student, reference, model_call(rng, SIZES | {"rms_norm_eps": 0.3}))

    def test_half_precision(self, student, reference, rng):
        """bfloat16 in and out, with 300 tokens and words: positions stay whole numbers"""
        compare_roughly(student, reference, many_tokens_call(rng))

    def test_refuses(self, student, reference, rng):
        """a token that is not in the vocabulary is refused"""
        call = model_call(rng, SIZES)
        call.steps[0][1]["input_ids"][1, 2] = SIZES["vocab_size"]
        compare(student, reference, call)

    def test_gradients(self, student, reference, rng):
        """gradients"""
        compare(student, reference, model_call(rng, SIZES, grad=True))


def causal_lm_call(rng, fields, sparse=(), batch=2, length=4, **options):
    """The language model, its weights as they stand in a checkpoint; and tokens for it."""
    state = model_state(rng, fields, sparse, "model.")
    if not fields["tie_word_embeddings"]:
        state["lm_head.weight"] = rng.normal(fields["vocab_size"], fields["hidden_size"])
    ids = rng.integers(0, fields["vocab_size"], batch, length)
    init = {"config": New("Qwen3Config", **fields)}
    return Call("Qwen3ForCausalLM", init=init, state=state, **options), ids


@pytest.mark.exercise("6.3")
class TestCausalLM:
    def call(self, rng, tied=True, sparse=(), bias=False, **options):
        fields = SIZES | (EXPERTS if sparse else {})
        fields |= {"num_hidden_layers": 2, "tie_word_embeddings": tied, "attention_bias": bias}
        call, self.ids = causal_lm_call(rng, fields, sparse, **options)
        return call

    @pytest.mark.parametrize("tied", [True, False])
    def test_parameters(self, student, reference, rng, tied):
        """the parameters, tie_word_embeddings={tied}, attention_bias"""
        call = self.call(rng, tied, bias=True, names=True)
        call.state = None
        compare(student, reference, call)

    @pytest.mark.parametrize("tied", [True, False])
    def test_values(self, student, reference, rng, tied):
        """logits, tie_word_embeddings={tied}"""
        compare(student, reference, self.call(rng, tied).then(input_ids=self.ids))

    def test_router_logits(self, student, reference, rng):
        """a mixture, with output_router_logits and without"""
        call = self.call(rng, sparse=(1,)).then(input_ids=self.ids)
        call.then(input_ids=self.ids, output_router_logits=True)
        compare(student, reference, call)

    def test_no_router_logits(self, student, reference, rng):
        """a dense model with output_router_logits"""
        call = self.call(rng).then(input_ids=self.ids, output_router_logits=True)
        compare(student, reference, call)

    def test_padding(self, student, reference, rng):
        """a shorter text, padded on the left"""
        mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
        call = self.call(rng).then(input_ids=self.ids, attention_mask=mask)
        compare_real_tokens(student, reference, call)

    def test_cache(self, student, reference, rng):
        """4 tokens in two steps with a cache: 3, then 1"""
        cache = Given("model_cache", layers=2, numbers=16)
        call = self.call(rng).then(input_ids=self.ids[:, :3], cache=cache)
        call.then(input_ids=self.ids[:, 3:], cache=cache)
        compare(student, reference, call)

    @pytest.mark.parametrize("tied", [True, False])
    def test_gradients(self, student, reference, rng, tied):
        """gradients, tie_word_embeddings={tied}"""
        compare(student, reference, self.call(rng, tied, grad=True).then(input_ids=self.ids))

    def test_tie_after_loading(self, student, reference, rng):
        """gradients after load_state_dict(..., assign=True), which brings new Parameters"""
        call = self.call(rng, grad=True)
        call.then("load_state_dict", state_dict=call.state, assign=True)
        call.then(input_ids=self.ids)
        compare(student, reference, call)

    def test_half_precision(self, student, reference, rng):
        """the dtype of the logits is that of the weights: bfloat16"""
        call = self.call(rng, dtype=torch.bfloat16).then(input_ids=self.ids[:, :1])
        compare(student, reference, positive(call))


COUNTED = {  # of which no two parts are equally large
    "vocab_size": 1009,
    "hidden_size": 96,
    "intermediate_size": 211,
    "num_hidden_layers": 5,
    "num_attention_heads": 12,
    "num_key_value_heads": 3,
    "head_dim": 34,
    "num_experts": 0,
}
MIXED = {
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 61,
}


def count_call(fields):
    return Call("count_parameters", config=New("Qwen3Config", **fields))


def compare_growth(student, reference, fields, **changed):
    """Compare what total and active grow by if these fields change: so one part is counted."""
    calls = [count_call(fields), count_call(fields | changed)]
    assert_same(*(growth(*map(perform, calls)) for perform in (student, reference)))


def growth(before, after):
    """What came out after, less what came out before; what is no pair of numbers stays."""
    pairs = [outcome.value for outcome in (before, after)]
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return before if before.failure else after
    if not all(isinstance(number, (int, float)) for pair in pairs for number in pair):
        return after
    return Outcome([[new - old for old, new in zip(*pairs, strict=True)]])


@pytest.mark.exercise("6.4")
class TestCount:
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

    def test_dense(self, student, reference):
        """a dense model"""
        compare(student, reference, count_call(COUNTED))

    def test_words(self, student, reference):
        """what one more word adds"""
        compare_growth(student, reference, COUNTED, vocab_size=1010)

    def test_layer(self, student, reference):
        """what one more layer adds"""
        compare_growth(student, reference, COUNTED, num_hidden_layers=6)

    def test_inner_size(self, student, reference):
        """what one more in intermediate_size adds"""
        compare_growth(student, reference, COUNTED, intermediate_size=212)

    def test_query_heads(self, student, reference):
        """what three more query heads add"""
        compare_growth(student, reference, COUNTED, num_attention_heads=15)

    def test_head_dim(self, student, reference):
        """what two more in head_dim add"""
        compare_growth(student, reference, COUNTED, head_dim=36)

    def test_tied(self, student, reference):
        """tie_word_embeddings"""
        compare(student, reference, count_call(COUNTED | {"tie_word_embeddings": True}))

    def test_bias(self, student, reference):
        """what attention_bias adds"""
        compare_growth(student, reference, COUNTED, attention_bias=True)

    def test_expert(self, student, reference):
        """what one more expert adds to each layer"""
        compare_growth(student, reference, COUNTED | MIXED, num_experts=8)

    def test_expert_size(self, student, reference):
        """what one more in moe_intermediate_size adds"""
        compare_growth(student, reference, COUNTED | MIXED, moe_intermediate_size=62)

    def test_every_layer(self, student, reference):
        """experts in each of 5 layers"""
        compare(student, reference, count_call(COUNTED | MIXED))

    def test_sparse_step(self, student, reference):
        """experts in every second of 5 layers"""
        compare(student, reference, count_call(COUNTED | MIXED | {"decoder_sparse_step": 2}))

    def test_mlp_only_layers(self, student, reference):
        """experts in each of 5 layers, except layers 0 and 3"""
        compare(student, reference, count_call(COUNTED | MIXED | {"mlp_only_layers": (0, 3)}))

    def test_published(self, student, reference):
        """Qwen3-0.6B"""
        compare(student, reference, count_call(COUNTED | self.QWEN))
