"""Our whole model against `transformers`: logits, losses, gradients, words, checkpoints."""

import oracle
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from solutions.decoder import Qwen3ForCausalLM
from solutions.generation import KVCache, generate
from solutions.moe import load_balancing_loss
from solutions.training import causal_lm_loss

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 9), (3, 12)])
def test_logits(pair, batch, length):
    model, there = pair
    ids = oracle.tokens(batch, length)
    assert_close(model(ids), there(ids).logits, **CLOSE)


def test_logits_under_left_padding(pair):
    model, there = pair
    ids, mask = oracle.left_padded((7, 3, 9))
    expected = there(ids, attention_mask=mask, position_ids=oracle.positions(mask)).logits
    assert_close(model(ids, mask)[mask.bool()], expected[mask.bool()], **CLOSE)


def test_padding_changes_nothing(pair):
    model, _ = pair
    ids, mask = oracle.left_padded((4, 9))
    assert_close(model(ids, mask)[0, -4:], model(ids[:1, -4:])[0], **CLOSE)


@pytest.mark.parametrize("sizes", [(9,), (4, 5), (3, 1, 1, 4), (1,) * 9])
def test_cached_chunks(pair, sizes):
    model, there = pair
    ids = oracle.tokens(2, sum(sizes))
    cache, memory, start = KVCache(model.config.num_hidden_layers, 20), None, 0
    whole = there(ids).logits
    with torch.no_grad():
        for size in sizes:
            chunk = ids[:, start : start + size]
            logits = model(chunk, cache=cache)
            out = there(chunk, past_key_values=memory, use_cache=True)
            memory, start = out.past_key_values, start + size
            assert_close(logits, out.logits, **CLOSE)
            assert_close(logits, whole[:, start - size : start], **CLOSE)
    assert cache.length == sum(sizes)


def test_cached_chunks_under_left_padding(pair):
    model, there = pair
    ids, mask = oracle.left_padded((5, 8))
    cache, memory = KVCache(model.config.num_hidden_layers, 8), None
    for start, end in ((0, 4), (4, 7), (7, 8)):
        chunk, seen = ids[:, start:end], mask[:, :end]
        here = oracle.positions(seen)[:, start:]
        with torch.no_grad():
            logits = model(chunk, seen, cache)
            out = there(
                chunk,
                attention_mask=seen,
                position_ids=here,
                past_key_values=memory,
                use_cache=True,
            )
        memory, real = out.past_key_values, mask[:, start:end].bool()
        assert_close(logits[real], out.logits[real], **CLOSE)


@pytest.mark.parametrize("padded", [False, True])
def test_losses_and_gradients(pair, padded):
    model, there = pair
    ids, mask = oracle.left_padded((7, 3, 9)) if padded else (oracle.tokens(3, 9), None)
    labels = ids if mask is None else ids.masked_fill(positions_without_past(mask), -100)
    extra = {} if mask is None else {"position_ids": oracle.positions(mask)}
    if model.config.num_experts:
        extra["output_router_logits"] = True
    model.zero_grad()
    there.zero_grad()

    out = there(ids, attention_mask=mask, labels=labels, **extra)
    out.loss.backward()
    logits, router_logits = model(ids, mask, output_router_logits=True)
    loss = causal_lm_loss(logits, labels)
    if model.config.num_experts:
        balance = load_balancing_loss(router_logits, model.config.num_experts_per_tok, mask)
        assert_close(balance, out.aux_loss, **CLOSE)
        loss = loss + model.config.router_aux_loss_coef * balance
    loss.backward()

    assert_close(loss, out.loss, **CLOSE)
    expected = gradients_there(there)
    ours = dict(model.named_parameters())
    assert ours.keys() <= expected.keys()
    for name, parameter in ours.items():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert_close(gradient, expected[name], **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


def positions_without_past(mask):
    """Padding, and each row's first real token: only padding could predict that one."""
    return mask.cumsum(-1) <= 1


def gradients_there(there) -> dict:
    """Gradients of transformers' model under the names on disk: one tensor an expert."""
    found = {}
    for name, parameter in there.named_parameters():
        grad = parameter.grad
        if name.endswith("mlp.experts.gate_up_proj"):
            for expert, (gate, up) in enumerate(zip(*grad.chunk(2, dim=1), strict=True)):
                stem = name.replace("gate_up_proj", str(expert))
                found[f"{stem}.gate_proj.weight"] = gate
                found[f"{stem}.up_proj.weight"] = up
        elif name.endswith("mlp.experts.down_proj"):
            for expert, down in enumerate(grad):
                stem = name.replace("experts.down_proj", f"experts.{expert}.down_proj")
                found[f"{stem}.weight"] = down
        else:
            found[name] = grad
    return found


def test_greedy_continuation(pair):
    model, there = pair
    ids, mask = oracle.left_padded((6, 2, 8))
    expected = there.generate(
        ids, attention_mask=mask, max_new_tokens=12, do_sample=False, pad_token_id=0
    )
    assert torch.equal(generate(model, ids, mask, max_new_tokens=12), expected)
    without = generate(model, ids, mask, max_new_tokens=12, use_cache=False)
    assert torch.equal(without, expected)


def test_greedy_continuation_with_stop_tokens(pair):
    model, there = pair
    ids, mask = oracle.left_padded((6, 2, 8))
    free = generate(model, ids, mask, max_new_tokens=12)[:, 8:]
    stops = [int(free[0, 2]), int(free[1, 5])]
    expected = there.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=12,
        do_sample=False,
        pad_token_id=3,
        eos_token_id=stops,
    )
    got = generate(model, ids, mask, 12, eos_token_id=stops, pad_token_id=3)
    assert torch.equal(got, expected)


@pytest.mark.parametrize(("batch", "length"), [(1, 9), (3, 12)])
def test_bf16_logits_bit_for_bit(pair_bf16, batch, length):
    model, there = pair_bf16
    ids = oracle.tokens(batch, length)
    assert model(ids).dtype == torch.bfloat16
    assert torch.equal(model(ids), there(ids).logits)


def test_bf16_padded_and_cached_bit_for_bit(pair_bf16):
    model, there = pair_bf16
    ids, mask = oracle.left_padded((7, 3, 9))
    cache = KVCache(model.config.num_hidden_layers, 9)
    with torch.no_grad():
        first = model(ids[:, :8], mask[:, :8], cache)
        out = there(
            ids[:, :8],
            attention_mask=mask[:, :8],
            position_ids=oracle.positions(mask[:, :8]),
            use_cache=True,
        )
        real = mask[:, :8].bool()
        assert torch.equal(first[real], out.logits[real])
        memory = out.past_key_values
        out = there(
            ids[:, 8:],
            attention_mask=mask,
            position_ids=oracle.positions(mask)[:, 8:],
            past_key_values=memory,
        )
        assert torch.equal(model(ids[:, 8:], mask, cache), out.logits)


def test_bf16_angles_stay_float32(pair_bf16):
    """A model cast by .to(bfloat16) has the very same angles: it has no table to cast."""
    model, _ = pair_bf16
    assert not list(model.buffers())


# --- checkpoints


@pytest.mark.parametrize("assign", [False, True])
def test_loads_what_transformers_saves(pair, tmp_path, assign):
    _, there = pair
    there.save_pretrained(tmp_path)
    model = oracle.load_here(tmp_path, assign=assign)
    ids = oracle.tokens(2, 9)
    assert_close(model(ids), there(ids).logits, **CLOSE)
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    assert tied == model.config.tie_word_embeddings


def test_config_survives_transformers(pair, tmp_path):
    model, there = pair
    there.save_pretrained(tmp_path)
    assert type(model.config).from_file(tmp_path) == model.config


def test_names_on_disk_are_ours(pair, tmp_path):
    model, there = pair
    there.save_pretrained(tmp_path)
    expected = set(model.state_dict())
    if model.config.tie_word_embeddings:
        expected.remove("lm_head.weight")
    assert set(load_file(tmp_path / "model.safetensors")) == expected


@pytest.mark.parametrize("name", ["dense", "dense-untied-bias"])
def test_dense_state_dict_loads_in_memory(name):
    import transformers

    config = oracle.CONFIGS[name]
    model = oracle.ours(config)
    there_config = transformers.Qwen3Config(**config.to_dict())
    there = transformers.Qwen3ForCausalLM(there_config)
    there.load_state_dict(model.state_dict(), strict=True)
    model.load_state_dict(there.state_dict(), strict=True)


def test_meta_device_then_assign(tmp_path):
    """A large model can be built without memory and filled from a memory-mapped file."""
    model = oracle.ours(oracle.DENSE)
    oracle.save(model, tmp_path)
    with torch.device("meta"):
        empty = Qwen3ForCausalLM(oracle.DENSE)
    empty.load_state_dict(load_file(tmp_path / "model.safetensors"), assign=True)
    ids = oracle.tokens(1, 5)
    assert torch.equal(empty(ids), model(ids))
    assert empty.lm_head.weight is empty.model.embed_tokens.weight


def test_missing_and_extra_tensors_are_errors():
    model = oracle.ours(oracle.DENSE)
    state = model.state_dict()
    for name in ("model.embed_tokens.weight", "model.layers.1.self_attn.q_norm.weight"):
        with pytest.raises(RuntimeError, match="Missing"):
            model.load_state_dict(
                {k: v for k, v in state.items() if k not in (name, "lm_head.weight")}
            )
    with pytest.raises(RuntimeError, match="Unexpected"):
        model.load_state_dict(
            {**state, "model.layers.0.self_attn.q_proj.bias": torch.zeros(40)}
        )
    assert model.lm_head.weight is model.model.embed_tokens.weight
