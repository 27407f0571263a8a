# The code of transformers for lab 02, in the course's signatures.

# %% exercise 2.1: Qwen3RotaryEmbedding
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding


def rope_cos_sin(position_ids, head_dim, rope_theta):
    parameters = {"rope_type": "default", "rope_theta": rope_theta}
    rotary = Qwen3RotaryEmbedding(Qwen3Config(head_dim=head_dim, rope_parameters=parameters))
    return rotary(torch.empty(0), position_ids)


# %% exercise 2.2: rotate_half of Qwen3
from transformers.models.qwen3.modeling_qwen3 import rotate_half


# %% exercise 2.3: apply_rotary_pos_emb of Qwen3
from transformers.models.qwen3 import modeling_qwen3 as qwen3


def apply_rotary_pos_emb(query, key, cos, sin):
    # made for tables (B, T, D), in the model's dtype
    cos, sin = (table.to(query.dtype) for table in (cos, sin))
    return qwen3.apply_rotary_pos_emb(query, key, cos, sin, unsqueeze_dim=-3)


# %% exercise 2.5: build_alibi_tensor of Bloom
from transformers.models.bloom.modeling_bloom import build_alibi_tensor


def alibi_bias(num_heads, query_length, key_length):
    # Bloom adds only slope * j: softmax ignores a term that is the same for all keys
    ramp = build_alibi_tensor(torch.ones(1, key_length), num_heads, torch.float32)  # (H, 1, S)
    return -(ramp.mT[:, key_length - query_length :] - ramp).abs()


# %% exercise 2.6: rel_shift of XLNet
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention


def relative_scores(query, key, relative_key, content_bias, position_bias):
    new, total = query.size(2), key.size(2)
    zeros = relative_key.new_zeros(relative_key.size(0), new, relative_key.size(2))
    table = torch.cat((zeros[:, :1], relative_key.flip(1), zeros), dim=1)  # S, ..., 0, -1, ...
    by_content = (query + content_bias[:, None]) @ key.mT
    by_distance = (query + position_bias[:, None]) @ table.mT
    scores = by_content + XLNetRelativeAttention.rel_shift_bnij(by_distance, total)
    future = torch.ones(new, total, dtype=torch.bool).triu(total - new + 1)
    return scores.masked_fill(future, -torch.inf)


# %% exercise 2.7: YaRN of transformers
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding


def yarn_cos_sin(
    position_ids,
    head_dim,
    rope_theta,
    factor,
    original_max_position_embeddings,
    attention_factor=None,
    beta_fast=32.0,
    beta_slow=1.0,
):
    parameters = {
        "rope_type": "yarn",
        "rope_theta": rope_theta,
        "factor": factor,
        "original_max_position_embeddings": original_max_position_embeddings,
        "attention_factor": attention_factor,
        "beta_fast": beta_fast,
        "beta_slow": beta_slow,
    }
    rotary = Qwen3RotaryEmbedding(Qwen3Config(head_dim=head_dim, rope_parameters=parameters))
    return rotary(torch.empty(0), position_ids)
