"""Lab 03: wrong versions of the mask, of attention, of the KV heads and of latent attention."""

import torch
from torch import nn

from solutions import gqa as reference
from solutions.gqa import repeat_kv, scaled_dot_product_attention
from solutions.mistakes import mistake
from solutions.rmsnorm import RMSNorm
from solutions.rope import apply_rotary_pos_emb


@mistake(
    "causal_mask",
    "a token may not attend to itself: < stands where <= belongs, or the diagonal is one off",
)
def own_token_hidden(query_length, key_length):
    ones = torch.ones(query_length, key_length, dtype=torch.bool)
    return ones.tril(key_length - query_length - 1)


@mistake(
    "causal_mask",
    "True marks what is hidden, as in nn.MultiheadAttention; here True means: may attend",
)
def mask_inverted(query_length, key_length):
    return ~reference.causal_mask(query_length, key_length)


@mistake(
    "causal_mask",
    "the queries are taken for the first of the keys; they are the last, query t stands at "
    "S - T + t",
)
def not_shifted(query_length, key_length):
    return torch.ones(query_length, key_length, dtype=torch.bool).tril()


@mistake("causal_mask", "every query may attend to every key, also to those of its future")
def nothing_hidden(query_length, key_length):
    return torch.ones(query_length, key_length, dtype=torch.bool)


@mistake(
    "causal_mask",
    "nothing is hidden as soon as there is a cache; of several new tokens, the first must not "
    "see the others",
)
def open_with_a_cache(query_length, key_length):
    ones = torch.ones(query_length, key_length, dtype=torch.bool)
    return ones.tril() if query_length == key_length else ones


@mistake(
    "causal_mask",
    "the cached keys are hidden: every row lets only the new keys through, where the cached "
    "ones belong too",
)
def cached_keys_hidden(query_length, key_length):
    past = torch.zeros(query_length, key_length - query_length, dtype=torch.bool)
    new = torch.ones(query_length, query_length, dtype=torch.bool).tril()
    return torch.cat((past, new), dim=1)


@mistake("causal_mask", "the mask holds 0 and -inf, to be added; here it is bool")
def mask_to_add(query_length, key_length):
    allowed = reference.causal_mask(query_length, key_length)
    return torch.zeros(query_length, key_length).masked_fill(~allowed, -torch.inf)


@mistake(
    "causal_mask", "the mask holds numbers 1.0 and 0.0: torch.ones needs dtype=torch.bool here"
)
def mask_of_numbers(query_length, key_length):
    return reference.causal_mask(query_length, key_length).float()


@mistake("causal_mask", "the mask has a row for every key; it needs one for every new query")
def row_for_every_key(query_length, key_length):
    return torch.ones(key_length, key_length, dtype=torch.bool).tril()


@mistake(
    "causal_mask",
    "the comparison is the wrong way round: a query sees itself and what comes after it",
)
def future_instead_of_past(query_length, key_length):
    ones = torch.ones(query_length, key_length, dtype=torch.bool)
    return ones.triu(key_length - query_length)


@mistake(
    "causal_mask", "the diagonal is moved by T - S, to the wrong side: it has to move by S - T"
)
def shifted_to_the_wrong_side(query_length, key_length):
    ones = torch.ones(query_length, key_length, dtype=torch.bool)
    return ones.tril(query_length - key_length)


@mistake("causal_mask", "rows and columns are swapped: queries are rows, keys are columns")
def rows_and_columns_swapped(query_length, key_length):
    return reference.causal_mask(query_length, key_length).mT


def masked(scores, mask):
    """The scores with what is hidden at -inf, for either kind of mask."""
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, -torch.inf)
    return scores + mask


def seen(scores, mask):
    """(B, H, T, 1) True where a query may attend to some key."""
    lowest = torch.finfo(scores.dtype).min
    return (masked(torch.zeros_like(scores), mask) > lowest).any(dim=-1, keepdim=True)


def weighed(scores, mask, value):
    """Softmax and mix as they should be."""
    hidden = ~seen(scores, mask)
    weights = masked(scores, mask).masked_fill(hidden, 0.0).softmax(-1, dtype=torch.float32)
    return weights.masked_fill(hidden, 0.0).to(value.dtype) @ value


@mistake(
    "scaled_dot_product_attention",
    "the default scale is taken from the number of heads times D (the model's size); the "
    "vectors in the dot product have D entries",
)
def scaled_by_model_size(query, key, value, mask=None, scale=None):
    scale = (query.size(1) * query.size(-1)) ** -0.5 if scale is None else scale
    return reference.scaled_dot_product_attention(query, key, value, mask, scale)


@mistake("scaled_dot_product_attention", "no scale is applied where none is given: D^-0.5 is")
def no_default_scale(query, key, value, mask=None, scale=None):
    scale = 1.0 if scale is None else scale
    return reference.scaled_dot_product_attention(query, key, value, mask, scale)


@mistake("scaled_dot_product_attention", "the argument scale is not used: D^-0.5 always is")
def scale_ignored(query, key, value, mask=None, scale=None):
    return reference.scaled_dot_product_attention(query, key, value, mask, None)


@mistake("scaled_dot_product_attention", "the scores are divided by D, not by its square root")
def root_of_size_forgotten(query, key, value, mask=None, scale=None):
    scale = 1 / query.size(-1) if scale is None else scale
    return reference.scaled_dot_product_attention(query, key, value, mask, scale)


@mistake(
    "scaled_dot_product_attention",
    "the scores are divided by scale: it is a factor, and D^-0.5 is already one over the root",
)
def divided_by_scale(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    return reference.scaled_dot_product_attention(query, key, value, mask, 1 / scale)


@mistake("scaled_dot_product_attention", "the scale multiplies the weights, after the softmax")
def scaled_after_softmax(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    return scale * reference.scaled_dot_product_attention(query, key, value, mask, 1.0)


@mistake(
    "scaled_dot_product_attention",
    "the mask is added before the scale: it goes on top of the scaled scores",
)
def mask_before_scale(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    if mask is not None and mask.dtype != torch.bool:
        scores = query @ key.mT
        hidden = ~seen(scores, mask)
        scores = ((scores + mask) * scale).masked_fill(hidden, 0.0)
        weights = scores.softmax(dim=-1, dtype=torch.float32).masked_fill(hidden, 0.0)
        return weights.to(value.dtype) @ value
    return reference.scaled_dot_product_attention(query, key, value, mask, scale)


@mistake(
    "scaled_dot_product_attention",
    "the weights are masked after the softmax: hidden keys have had their share by then, and "
    "what is left does not add up to 1",
)
def masked_after_softmax(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    weights = (query @ key.mT * scale).softmax(dim=-1, dtype=torch.float32)
    if mask is not None and mask.dtype == torch.bool:
        weights = weights.masked_fill(~mask, 0.0)
    elif mask is not None:
        return reference.scaled_dot_product_attention(query, key, value, mask, scale)
    return weights.to(value.dtype) @ value


@mistake(
    "scaled_dot_product_attention",
    "a bool mask is read the other way round: True means may attend, so hide where it is False",
)
def bool_mask_inverted(query, key, value, mask=None, scale=None):
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask
    return reference.scaled_dot_product_attention(query, key, value, mask, scale)


@mistake("scaled_dot_product_attention", "the mask is not used")
def mask_ignored(query, key, value, mask=None, scale=None):
    return reference.scaled_dot_product_attention(query, key, value, None, scale)


@mistake(
    "scaled_dot_product_attention",
    "a bool mask is added to the scores: True counts as 1 and False as 0, which hides nothing",
)
def bool_mask_added(query, key, value, mask=None, scale=None):
    if mask is not None and mask.dtype == torch.bool:
        mask = mask.to(query.dtype)
    return reference.scaled_dot_product_attention(query, key, value, mask, scale)


@mistake(
    "scaled_dot_product_attention",
    "a float mask is read like a bool one, 0 = hidden; it has to be added, and 0 hides nothing",
)
def float_mask_as_bool(query, key, value, mask=None, scale=None):
    mask = mask if mask is None else mask != 0
    return reference.scaled_dot_product_attention(query, key, value, mask, scale)


@mistake(
    "scaled_dot_product_attention",
    "a float mask only hides where it is very low: its other numbers are not added",
)
def float_mask_only_hides(query, key, value, mask=None, scale=None):
    if mask is not None and mask.dtype != torch.bool:
        mask = mask > -1e4
    return reference.scaled_dot_product_attention(query, key, value, mask, scale)


@mistake(
    "scaled_dot_product_attention",
    "a float mask is turned upside down: (1 - mask) * -inf is for masks of 1 and 0, and "
    "0 * inf is nan",
)
def one_minus_mask_times_inf(query, key, value, mask=None, scale=None):
    if mask is not None:
        mask = (1 - mask.float()) * -torch.inf
    return reference.scaled_dot_product_attention(query, key, value, mask, scale)


@mistake(
    "scaled_dot_product_attention",
    "the softmax is written with exp alone: large scores overflow, so subtract the row's "
    "largest first, or call softmax",
)
def exp_overflows(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    scores = query @ key.mT * scale
    powers = masked(scores.float(), mask).exp()
    total = powers.sum(dim=-1, keepdim=True)
    weights = powers / total.masked_fill(~seen(scores, mask), 1.0)
    return weights.to(value.dtype) @ value


@mistake(
    "scaled_dot_product_attention",
    "a row without any key goes into the softmax as nothing but -inf, which gives nan",
)
def blind_query_gives_nan(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    scores = masked(query @ key.mT * scale, mask)
    if mask is not None and mask.dtype != torch.bool:
        return weighed(query @ key.mT * scale, mask, value)
    return scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype) @ value


@mistake(
    "scaled_dot_product_attention",
    "hidden keys get the dtype's lowest number: a query that sees nothing then averages all "
    "values instead of giving zeros",
)
def blind_query_averages(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    scores = query @ key.mT * scale
    if mask is not None:
        lowest = torch.finfo(scores.dtype).min
        scores = masked(scores, mask).clamp_min(lowest)
    return scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype) @ value


@mistake(
    "scaled_dot_product_attention",
    "hidden keys get -1e9: float16 ends at 65504 and refuses it; -inf fits every dtype",
)
def minus_1e9(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    scores = query @ key.mT * scale
    if mask is not None and mask.dtype == torch.bool:
        hidden = ~seen(scores, mask)
        scores = scores.masked_fill(~mask, -1e9)
        weights = scores.softmax(dim=-1, dtype=torch.float32).masked_fill(hidden, 0.0)
        return weights.to(value.dtype) @ value
    return weighed(scores, mask, value)


@mistake(
    "scaled_dot_product_attention",
    "the softmax runs over the queries: the weights of each query have to add up to 1 over the "
    "keys, the last axis",
)
def softmax_over_queries(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    scores = masked(query @ key.mT * scale, mask)
    return scores.softmax(dim=-2, dtype=torch.float32).to(value.dtype) @ value


@mistake(
    "scaled_dot_product_attention",
    "the weights stay in float32 while value is in half precision: cast them back first",
)
def weights_not_cast_back(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    scores = query @ key.mT * scale
    hidden = ~seen(scores, mask)
    scores = masked(scores, mask).masked_fill(hidden, 0.0)
    weights = scores.softmax(dim=-1, dtype=torch.float32)
    return weights.masked_fill(hidden, 0.0) @ value


@mistake(
    "scaled_dot_product_attention", "the result stays in float32: it has the dtype of query"
)
def result_in_float32(query, key, value, mask=None, scale=None):
    wide = query.float(), key.float(), value.float()
    return reference.scaled_dot_product_attention(*wide, mask, scale)


@mistake("scaled_dot_product_attention", "key is not transposed: the scores are query @ key.mT")
def key_not_transposed(query, key, value, mask=None, scale=None):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    return weighed(query @ key * scale, mask, value)


@mistake(
    "scaled_dot_product_attention",
    "a causal mask is applied where none was given: without a mask, every key is seen",
)
def always_causal(query, key, value, mask=None, scale=None):
    if mask is None:
        ones = torch.ones(query.size(2), key.size(2), dtype=torch.bool)
        mask = ones.tril(key.size(2) - query.size(2))
    return reference.scaled_dot_product_attention(query, key, value, mask, scale)


@mistake("scaled_dot_product_attention", "the weights are returned too: give the mix alone")
def weights_returned_too(query, key, value, mask=None, scale=None):
    eye = torch.eye(key.size(2), dtype=query.dtype).expand(*key.shape[:3], -1)
    weights = reference.scaled_dot_product_attention(query, key, eye, mask, scale)
    return weights @ value, weights


@mistake(
    "scaled_dot_product_attention",
    "query is changed in place: *= writes into the caller's tensor",
)
def scaled_in_place(query, key, value, mask=None, scale=None):
    query.data *= query.size(-1) ** -0.5 if scale is None else scale
    return reference.scaled_dot_product_attention(query, key, value, mask, 1.0)


@mistake(
    "repeat_kv",
    "the heads are tiled as a, b, a, b: torch.repeat does that; the copies of one head stand "
    "side by side, a, a, b, b",
)
def heads_tiled(hidden_states, n_rep):
    return hidden_states.repeat(1, n_rep, 1, 1)


@mistake("repeat_kv", "the tokens are repeated (axis 2), not the heads (axis 1)")
def tokens_repeated(hidden_states, n_rep):
    return hidden_states.repeat_interleave(n_rep, dim=2)


@mistake("repeat_kv", "the batch is repeated (axis 0), not the heads (axis 1)")
def batch_repeated(hidden_states, n_rep):
    return hidden_states.repeat_interleave(n_rep, dim=0)


@mistake("repeat_kv", "the copies are an axis of their own: merge it with the heads' axis")
def axis_not_merged(hidden_states, n_rep):
    return hidden_states[:, :, None].expand(-1, -1, n_rep, -1, -1)


@mistake("repeat_kv", "n_rep is not used and the heads come back as they were")
def n_rep_ignored(hidden_states, n_rep):
    return hidden_states.clone()


@mistake(
    "repeat_kv",
    "the copies were inserted behind the tokens: the merge then mixes tokens and heads",
)
def copies_behind_the_tokens(hidden_states, n_rep):
    batch, heads, length, size = hidden_states.shape
    copies = hidden_states[:, :, :, None].expand(batch, heads, length, n_rep, size)
    return copies.reshape(batch, heads * n_rep, length, size)


@mistake(
    "repeat_kv", "n_rep is taken for the number of query heads; it is how many share a KV head"
)
def n_rep_is_the_total(hidden_states, n_rep):
    return hidden_states.repeat_interleave(max(n_rep // hidden_states.size(1), 1), dim=1)


@mistake("repeat_kv", "the copies carry no gradient: they were detached or made in no_grad")
def copies_detached(hidden_states, n_rep):
    return hidden_states.detach().repeat_interleave(n_rep, dim=1)


class Attention(nn.Module):
    """Right in every step; each wrong version replaces one."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.config, self.layer_idx, self.head_dim = config, layer_idx, config.head_dim
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.n_rep = self.heads // self.kv_heads
        size, bias = config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(size, self.heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(size, self.kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(size, self.kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.head_dim, size, bias=bias)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        query = self.split(self.q_proj(hidden_states), self.heads)
        key = self.split(self.k_proj(hidden_states), self.kv_heads)
        value = self.split(self.v_proj(hidden_states), self.kv_heads)
        query, key = self.normed_and_turned(query, key, cos, sin)
        key, value = self.remembered(key, value, cache)
        mixed = self.attended(query, key, value, mask)
        return self.o_proj(self.merged(mixed))

    def split(self, x, heads):
        return x.unflatten(-1, (heads, self.head_dim)).transpose(1, 2)

    def normed_and_turned(self, query, key, cos, sin):
        return apply_rotary_pos_emb(self.q_norm(query), self.k_norm(key), cos, sin)

    def remembered(self, key, value, cache):
        return (key, value) if cache is None else cache.update(self.layer_idx, key, value)

    def attended(self, query, key, value, mask):
        key, value = repeat_kv(key, self.n_rep), repeat_kv(value, self.n_rep)
        return scaled_dot_product_attention(query, key, value, mask, self.head_dim**-0.5)

    def merged(self, mixed):
        return mixed.transpose(1, 2).flatten(2)


@mistake(
    "Qwen3Attention",
    "the heads are split with view(B, heads, T, D), which mixes tokens and heads: first (B, T, "
    "heads, D), then transpose",
)
class SplitWithoutTranspose(Attention):
    def split(self, x, heads):
        return x.reshape(x.size(0), heads, x.size(1), self.head_dim)


@mistake(
    "Qwen3Attention",
    "the features are split as (D, heads): feature number i belongs to head i // D, so (heads, "
    "D) it is",
)
class HeadsInsideFeatures(Attention):
    def split(self, x, heads):
        return x.unflatten(-1, (self.head_dim, heads)).permute(0, 3, 1, 2)


@mistake(
    "Qwen3Attention",
    "the heads are merged without moving them back: transpose to (B, T, H, D) before flattening",
)
class MergedWithoutTranspose(Attention):
    def merged(self, mixed):
        return mixed.reshape(mixed.size(0), mixed.size(2), -1)


@mistake(
    "Qwen3Attention",
    "the KV heads are tiled as a, b, a, b: query heads 0 and 1 have to share KV head 0",
)
class HeadsTiled(Attention):
    def attended(self, query, key, value, mask):
        key, value = (x.repeat(1, self.n_rep, 1, 1) for x in (key, value))
        return scaled_dot_product_attention(query, key, value, mask, self.head_dim**-0.5)


@mistake(
    "Qwen3Attention",
    "the KV heads are repeated K times instead of H / K times: two numbers that are easily "
    "confused, and equal for some models",
)
class RepeatedByTheWrongNumber(Attention):
    def attended(self, query, key, value, mask):
        key, value = repeat_kv(key, self.kv_heads), repeat_kv(value, self.kv_heads)
        return scaled_dot_product_attention(query, key, value, mask, self.head_dim**-0.5)


class WithSizes(Attention):
    """The projections rebuilt from other sizes."""

    def rebuild(self, config, heads, kv_heads, head_dim, bias):
        size = config.hidden_size
        self.head_dim = head_dim
        self.q_proj = nn.Linear(size, heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(size, kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(size, kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(heads * head_dim, size, bias=bias)
        self.q_norm = RMSNorm(head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(head_dim, config.rms_norm_eps)


@mistake(
    "Qwen3Attention",
    "head_dim is computed as hidden_size / heads: it is a field of its own, config.head_dim",
)
class HeadDimDerived(WithSizes):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        head_dim = config.hidden_size // self.heads
        self.rebuild(config, self.heads, self.kv_heads, head_dim, config.attention_bias)


@mistake(
    "Qwen3Attention",
    "o_proj reads hidden_size features: the merged heads have H * D, which need not be E",
)
class OutputReadsHiddenSize(Attention):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        size = config.hidden_size
        self.o_proj = nn.Linear(size, size, bias=config.attention_bias)


@mistake(
    "Qwen3Attention",
    "the merged heads are reshaped to hidden_size: they have H * D features, which need not be "
    "E",
)
class MergedToHiddenSize(Attention):
    def merged(self, mixed):
        batch, _, length, _ = mixed.shape
        return mixed.transpose(1, 2).reshape(batch, length, self.config.hidden_size)


@mistake(
    "Qwen3Attention",
    "keys and values have as many heads as queries: K heads of size D are enough, that is what "
    "grouped-query attention saves",
)
class AllHeadsForKeys(WithSizes):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.rebuild(config, self.heads, self.heads, self.head_dim, config.attention_bias)
        self.kv_heads, self.n_rep = self.heads, 1


@mistake(
    "Qwen3Attention",
    "query, key and value have a bias although attention_bias is False: Qwen2 has one, Qwen3 "
    "has none",
)
class BiasFromQwen2(Attention):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        for name in ("q_proj", "k_proj", "v_proj"):
            old = getattr(self, name)
            setattr(self, name, nn.Linear(old.in_features, old.out_features, bias=True))


@mistake(
    "Qwen3Attention",
    "all four projections have a bias: nn.Linear makes one unless told bias=False",
)
class BiasEverywhere(WithSizes):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.rebuild(config, self.heads, self.kv_heads, self.head_dim, True)


@mistake("Qwen3Attention", "config.attention_bias is not used: no projection ever has a bias")
class BiasNever(WithSizes):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.rebuild(config, self.heads, self.kv_heads, self.head_dim, False)


@mistake(
    "Qwen3Attention", "attention_bias gives a bias to q, k and v only: o_proj gets one too"
)
class NoBiasOnTheOutput(Attention):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.o_proj = nn.Linear(self.heads * self.head_dim, config.hidden_size, bias=False)


@mistake("Qwen3Attention", "there is no q_norm and no k_norm: Qwen3 normalises query and key")
class NoNormModules(Attention):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        del self.q_norm, self.k_norm

    def normed_and_turned(self, query, key, cos, sin):
        return apply_rotary_pos_emb(query, key, cos, sin)


@mistake("Qwen3Attention", "q_norm and k_norm exist but are never called")
class NormsNotCalled(Attention):
    def normed_and_turned(self, query, key, cos, sin):
        return apply_rotary_pos_emb(query, key, cos, sin)


@mistake(
    "Qwen3Attention",
    "the norms come after the rotation: first norm, then turn (with weight 1 the two agree, "
    "with a trained weight they do not)",
)
class NormAfterRotation(Attention):
    def normed_and_turned(self, query, key, cos, sin):
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        return self.q_norm(query), self.k_norm(key)


@mistake("Qwen3Attention", "q_norm normalises the keys and k_norm the queries")
class NormsSwapped(Attention):
    def normed_and_turned(self, query, key, cos, sin):
        return apply_rotary_pos_emb(self.k_norm(query), self.q_norm(key), cos, sin)


@mistake("Qwen3Attention", "q_norm is used for queries and keys: each has a norm of its own")
class OneNormForBoth(Attention):
    def normed_and_turned(self, query, key, cos, sin):
        return apply_rotary_pos_emb(self.q_norm(query), self.q_norm(key), cos, sin)


@mistake("Qwen3Attention", "only the query is normalised: the key needs k_norm as well")
class KeyNotNormed(Attention):
    def normed_and_turned(self, query, key, cos, sin):
        return apply_rotary_pos_emb(self.q_norm(query), key, cos, sin)


@mistake("Qwen3Attention", "the value is normalised too: only query and key are")
class ValueNormed(Attention):
    def remembered(self, key, value, cache):
        return super().remembered(key, self.k_norm(value), cache)


@mistake(
    "Qwen3Attention",
    "the norms span all heads at once, with H * D and K * D weights: each head is normalised "
    "by itself, with one weight of size D for all",
)
class NormOverAllHeads(Attention):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.q_norm = RMSNorm(self.heads * self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.kv_heads * self.head_dim, config.rms_norm_eps)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        query = self.split(self.q_norm(self.q_proj(hidden_states)), self.heads)
        key = self.split(self.k_norm(self.k_proj(hidden_states)), self.kv_heads)
        value = self.split(self.v_proj(hidden_states), self.kv_heads)
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        key, value = self.remembered(key, value, cache)
        return self.o_proj(self.merged(self.attended(query, key, value, mask)))


@mistake(
    "Qwen3Attention", "config.rms_norm_eps does not reach q_norm and k_norm: pass it to both"
)
class EpsNotPassedOn(Attention):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.q_norm, self.k_norm = RMSNorm(self.head_dim), RMSNorm(self.head_dim)


@mistake("Qwen3Attention", "queries and keys are not rotated: cos and sin are not used")
class NotRotated(Attention):
    def normed_and_turned(self, query, key, cos, sin):
        return self.q_norm(query), self.k_norm(key)


@mistake("Qwen3Attention", "only the query is rotated: the key has to turn as well")
class KeyNotRotated(Attention):
    def normed_and_turned(self, query, key, cos, sin):
        query, key = self.q_norm(query), self.k_norm(key)
        return apply_rotary_pos_emb(query, key, cos, sin)[0], key


@mistake("Qwen3Attention", "the value is rotated too: positions belong to query and key alone")
class ValueRotated(Attention):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        query = self.split(self.q_proj(hidden_states), self.heads)
        key = self.split(self.k_proj(hidden_states), self.kv_heads)
        value = self.split(self.v_proj(hidden_states), self.kv_heads)
        query, key = self.normed_and_turned(query, key, cos, sin)
        value = apply_rotary_pos_emb(value, value, cos, sin)[0]
        key, value = self.remembered(key, value, cache)
        return self.o_proj(self.merged(self.attended(query, key, value, mask)))


@mistake("Qwen3Attention", "cos and sin are swapped where they go into apply_rotary_pos_emb")
class CosAndSinSwapped(Attention):
    def normed_and_turned(self, query, key, cos, sin):
        return super().normed_and_turned(query, key, sin, cos)


class WithScale(Attention):
    """Attention with another scale."""

    def scale(self):
        return 1.0

    def attended(self, query, key, value, mask):
        key, value = repeat_kv(key, self.n_rep), repeat_kv(value, self.n_rep)
        return scaled_dot_product_attention(query, key, value, mask, self.scale())


@mistake(
    "Qwen3Attention",
    "the scale is left out, as if QK-Norm replaced it: normed vectors have length sqrt(D), so "
    "D^-0.5 is still needed",
)
class ScaleLeftOut(WithScale):
    def scale(self):
        return 1.0


@mistake(
    "Qwen3Attention",
    "the scale is hidden_size^-0.5: the vectors in the dot product have head_dim entries",
)
class ScaledByHiddenSize(WithScale):
    def scale(self):
        return self.config.hidden_size**-0.5


@mistake("Qwen3Attention", "the mask is not passed on to the attention")
class MaskNotPassedOn(Attention):
    def attended(self, query, key, value, mask):
        return super().attended(query, key, value, None)


@mistake(
    "Qwen3Attention",
    "the mask is dropped as soon as there is a cache: of several new tokens, the first then "
    "sees the others",
)
class MaskDroppedWithCache(Attention):
    def attended(self, query, key, value, mask):
        return super().attended(query, key, value, None if self.cached else mask)

    def remembered(self, key, value, cache):
        self.cached = cache is not None
        return super().remembered(key, value, cache)


@mistake(
    "Qwen3Attention",
    "a causal mask of its own is used, aligned to the first key: with a cache, one new token "
    "then sees key 0 alone",
)
class OwnCausalMask(Attention):
    def attended(self, query, key, value, mask):
        own = torch.ones(query.size(2), key.size(2), dtype=torch.bool).tril()
        return super().attended(query, key, value, own)


@mistake(
    "Qwen3Attention",
    "a causal mask of its own is used, the argument mask is not: who passes no mask wants none",
)
class OwnCausalMaskShifted(Attention):
    def attended(self, query, key, value, mask):
        new, total = query.size(2), key.size(2)
        own = torch.ones(new, total, dtype=torch.bool).tril(total - new)
        return super().attended(query, key, value, own)


@mistake("Qwen3Attention", "there is no output projection: the merged heads go through o_proj")
class NoOutputProjection(Attention):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        self.o_proj.forward = lambda mixed: mixed
        return super().forward(hidden_states, cos, sin, mask, cache)


@mistake("Qwen3Attention", "the heads are averaged: they are laid side by side, H * D features")
class HeadsAveraged(Attention):
    def merged(self, mixed):
        return mixed.mean(dim=1)


@mistake(
    "Qwen3Attention",
    "attention reads the new keys and values alone: cache.update stores them and returns all so "
    "far, and those it needs",
)
class CacheNotRead(Attention):
    def remembered(self, key, value, cache):
        if cache is not None:
            cache.update(self.layer_idx, key, value)
        return key, value


@mistake(
    "Qwen3Attention",
    "the cache holds repeated heads, H of them: store K heads, repeat after reading",
)
class RepeatedBeforeTheCache(Attention):
    def remembered(self, key, value, cache):
        key, value = repeat_kv(key, self.n_rep), repeat_kv(value, self.n_rep)
        return super().remembered(key, value, cache)

    def attended(self, query, key, value, mask):
        return scaled_dot_product_attention(query, key, value, mask, self.head_dim**-0.5)


@mistake("Qwen3Attention", "the cache is asked for layer 0: pass self.layer_idx")
class AlwaysLayerZero(Attention):
    def remembered(self, key, value, cache):
        return (key, value) if cache is None else cache.update(0, key, value)


@mistake("Qwen3Attention", "key and value are swapped in cache.update")
class SwappedInTheCache(Attention):
    def remembered(self, key, value, cache):
        if cache is None:
            return key, value
        return cache.update(self.layer_idx, value, key)


@mistake(
    "Qwen3Attention",
    "keys go into the cache without their rotation and are never turned: store them turned",
)
class CachedBeforeRotation(Attention):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        if cache is None:
            return super().forward(hidden_states, cos, sin, mask)
        query = self.split(self.q_proj(hidden_states), self.heads)
        key = self.k_norm(self.split(self.k_proj(hidden_states), self.kv_heads))
        value = self.split(self.v_proj(hidden_states), self.kv_heads)
        query = apply_rotary_pos_emb(self.q_norm(query), key, cos, sin)[0]
        key, value = cache.update(self.layer_idx, key, value)
        return self.o_proj(self.merged(self.attended(query, key, value, mask)))


@mistake(
    "Qwen3Attention",
    "the norm and the rotation come after the cache: old keys would be turned by the angles of "
    "the new ones",
)
class RotatedAfterTheCache(Attention):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        query = self.split(self.q_proj(hidden_states), self.heads)
        key = self.split(self.k_proj(hidden_states), self.kv_heads)
        value = self.split(self.v_proj(hidden_states), self.kv_heads)
        key, value = self.remembered(key, value, cache)
        query, key = self.normed_and_turned(query, key, cos, sin)
        return self.o_proj(self.merged(self.attended(query, key, value, mask)))


@mistake(
    "Qwen3Attention",
    "the heads stand in a Python list, whose parameters nobody finds: use one nn.Linear for all "
    "heads",
)
class HeadsInAList(Attention):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        size, bias = config.hidden_size, config.attention_bias
        heads = [nn.Linear(size, self.head_dim, bias=bias) for _ in range(self.heads)]
        del self.q_proj
        self.q_proj = lambda x: torch.cat([head(x) for head in heads], dim=-1)


class Latent(nn.Module):
    """Latent attention, right in every step; each wrong version replaces one."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.config, self.layer_idx, self.heads = config, layer_idx, config.num_attention_heads
        nope, rope, v = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
        size, latent = config.hidden_size, config.kv_lora_rank
        self.q_a_proj = nn.Linear(size, config.q_lora_rank, bias=False)
        self.q_a_layernorm = RMSNorm(config.q_lora_rank)
        self.q_b_proj = nn.Linear(config.q_lora_rank, self.heads * (nope + rope), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(size, latent + rope, bias=False)
        self.kv_a_layernorm = RMSNorm(latent)
        self.kv_b_proj = nn.Linear(latent, self.heads * (nope + v), bias=False)
        self.o_proj = nn.Linear(self.heads * v, size, bias=False)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        query_nope, query_rope = self.queries(hidden_states)
        latent, key_rope = self.compressed(hidden_states)
        query_rope, key_rope = self.turned(query_rope, key_rope, cos, sin)
        if cache is not None:
            latent, key_rope = self.remembered(latent, key_rope, cache)
        key_nope, value = self.expanded(latent)
        key_rope = key_rope.expand(-1, self.heads, -1, -1)
        query = torch.cat((query_nope, query_rope), dim=-1)
        key = torch.cat((key_nope, key_rope), dim=-1)
        mixed = scaled_dot_product_attention(query, key, value, mask, self.scale())
        return self.o_proj(mixed.transpose(1, 2).flatten(2))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def queries(self, hidden_states):
        query = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states)))
        sizes = (self.config.qk_nope_head_dim, self.config.qk_rope_head_dim)
        return self.split(query).split(sizes, dim=-1)

    def compressed(self, hidden_states):
        sizes = (self.config.kv_lora_rank, self.config.qk_rope_head_dim)
        latent, key_rope = self.kv_a_proj_with_mqa(hidden_states).split(sizes, dim=-1)
        return self.kv_a_layernorm(latent).unsqueeze(1), key_rope.unsqueeze(1)

    def turned(self, query_rope, key_rope, cos, sin):
        return apply_rotary_pos_emb(query_rope, key_rope, cos, sin)

    def remembered(self, latent, key_rope, cache):
        return cache.update(self.layer_idx, latent, key_rope)

    def expanded(self, latent):
        sizes = (self.config.qk_nope_head_dim, self.config.v_head_dim)
        return self.split(self.kv_b_proj(latent.squeeze(1))).split(sizes, dim=-1)

    def scale(self):
        return (self.config.qk_nope_head_dim + self.config.qk_rope_head_dim) ** -0.5


@mistake(
    "MultiHeadLatentAttention",
    "kv_a_proj_with_mqa makes room for qk_nope_head_dim beside the latent: what is split off "
    "there is the rotated key, of qk_rope_head_dim",
)
class RoomForTheWrongPart(Latent):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        size = config.kv_lora_rank + config.qk_nope_head_dim
        self.kv_a_proj_with_mqa = nn.Linear(config.hidden_size, size, bias=False)


@mistake(
    "MultiHeadLatentAttention",
    "there is a rotated key for every head: one is shared by all, which is why the name ends in "
    "mqa",
)
class RotatedKeyForEveryHead(Latent):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        size = config.kv_lora_rank + self.heads * config.qk_rope_head_dim
        self.kv_a_proj_with_mqa = nn.Linear(config.hidden_size, size, bias=False)


@mistake(
    "MultiHeadLatentAttention",
    "kv_b_proj makes keys with the rotated part in them: it makes qk_nope_head_dim + v_head_dim "
    "a head, the rotated part comes from elsewhere",
)
class ExpandsTheRotatedPart(Latent):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        head = config.qk_nope_head_dim + config.qk_rope_head_dim + config.v_head_dim
        self.kv_b_proj = nn.Linear(config.kv_lora_rank, self.heads * head, bias=False)


@mistake(
    "MultiHeadLatentAttention",
    "one norm covers latent and rotated key: split first, then normalise the latent alone",
)
class NormBeforeTheSplit(Latent):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        size = config.kv_lora_rank + config.qk_rope_head_dim
        self.kv_a_layernorm = RMSNorm(size)


@mistake(
    "MultiHeadLatentAttention",
    "the projections have a bias: nn.Linear makes one unless told bias=False",
)
class LatentWithBias(Latent):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        for name, old in list(self.named_children()):
            if isinstance(old, nn.Linear):
                setattr(self, name, nn.Linear(old.in_features, old.out_features))


@mistake("MultiHeadLatentAttention", "the latent of keys and values is not normalised")
class LatentNotNormed(Latent):
    def compressed(self, hidden_states):
        sizes = (self.config.kv_lora_rank, self.config.qk_rope_head_dim)
        latent, key_rope = self.kv_a_proj_with_mqa(hidden_states).split(sizes, dim=-1)
        return latent.unsqueeze(1), key_rope.unsqueeze(1)


@mistake("MultiHeadLatentAttention", "the latent of the queries is not normalised")
class QueryLatentNotNormed(Latent):
    def queries(self, hidden_states):
        sizes = (self.config.qk_nope_head_dim, self.config.qk_rope_head_dim)
        query = self.q_b_proj(self.q_a_proj(hidden_states))
        return self.split(query).split(sizes, dim=-1)


@mistake(
    "MultiHeadLatentAttention",
    "the scale is taken from qk_nope_head_dim alone: query and key have nope + rope entries",
)
class ScaledByNope(Latent):
    def scale(self):
        return self.config.qk_nope_head_dim**-0.5


@mistake(
    "MultiHeadLatentAttention",
    "the scale is taken from v_head_dim: it belongs to the size of query and key, nope + rope",
)
class ScaledByValue(Latent):
    def scale(self):
        return self.config.v_head_dim**-0.5


@mistake("MultiHeadLatentAttention", "the shared key is not rotated")
class SharedKeyNotRotated(Latent):
    def turned(self, query_rope, key_rope, cos, sin):
        return apply_rotary_pos_emb(query_rope, key_rope, cos, sin)[0], key_rope


@mistake("MultiHeadLatentAttention", "the queries' second part is not rotated")
class QueryNotRotated(Latent):
    def turned(self, query_rope, key_rope, cos, sin):
        return query_rope, apply_rotary_pos_emb(query_rope, key_rope, cos, sin)[1]


@mistake(
    "MultiHeadLatentAttention",
    "kv_a_proj_with_mqa is split the wrong way round: the latent comes first, the key last",
)
class KeyBeforeLatent(Latent):
    def compressed(self, hidden_states):
        sizes = (self.config.qk_rope_head_dim, self.config.kv_lora_rank)
        key_rope, latent = self.kv_a_proj_with_mqa(hidden_states).split(sizes, dim=-1)
        return self.kv_a_layernorm(latent).unsqueeze(1), key_rope.unsqueeze(1)


@mistake(
    "MultiHeadLatentAttention",
    "a query head is split the wrong way round: the part without position comes first",
)
class RotatedPartFirst(Latent):
    def queries(self, hidden_states):
        query = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states)))
        sizes = (self.config.qk_rope_head_dim, self.config.qk_nope_head_dim)
        rope, nope = self.split(query).split(sizes, dim=-1)
        return nope, rope


@mistake(
    "MultiHeadLatentAttention",
    "kv_b_proj's features are split with the value first: in every head the key comes first",
)
class ValueBeforeKey(Latent):
    def expanded(self, latent):
        sizes = (self.config.v_head_dim, self.config.qk_nope_head_dim)
        value, key = self.split(self.kv_b_proj(latent.squeeze(1))).split(sizes, dim=-1)
        return key, value


@mistake(
    "MultiHeadLatentAttention",
    "kv_b_proj's features are split as all keys, then all values: head by head it is, key and "
    "value of each",
)
class AllKeysThenAllValues(Latent):
    def expanded(self, latent):
        sizes = [self.heads * self.config.qk_nope_head_dim, self.heads * self.config.v_head_dim]
        key, value = self.kv_b_proj(latent.squeeze(1)).split(sizes, dim=-1)
        return self.split(key), self.split(value)


@mistake(
    "MultiHeadLatentAttention",
    "the cache is not used: update stores latent and rotated key and returns all of them",
)
class LatentCacheIgnored(Latent):
    def remembered(self, latent, key_rope, cache):
        return latent, key_rope


@mistake(
    "MultiHeadLatentAttention",
    "the cache holds the expanded keys and values of all heads: store latent and rotated key, "
    "expand after reading",
)
class ExpandedInTheCache(Latent):
    def remembered(self, latent, key_rope, cache):
        nope, value = self.expanded(latent)
        key = torch.cat((nope, key_rope.expand(-1, self.heads, -1, -1)), dim=-1)
        return cache.update(self.layer_idx, key, value)


@mistake(
    "MultiHeadLatentAttention",
    "the cache holds the latent twice and the rotated key not at all: it needs both, one of each",
)
class RotatedKeyNotCached(Latent):
    def remembered(self, latent, key_rope, cache):
        return cache.update(self.layer_idx, latent, latent)[0], key_rope


@mistake(
    "MultiHeadLatentAttention",
    "latent and rotated key go into the cache without an axis for heads: each counts as one head",
)
class CachedWithoutHeadAxis(Latent):
    def remembered(self, latent, key_rope, cache):
        return cache.update(self.layer_idx, latent.squeeze(1), key_rope.squeeze(1))


@mistake(
    "MultiHeadLatentAttention",
    "the rotated key is cached before it is turned: turn the new one, then store it",
)
class CachedUnturned(Latent):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        self.cached = cache is not None
        return super().forward(hidden_states, cos, sin, mask, cache)

    def turned(self, query_rope, key_rope, cos, sin):
        query_rope, turned = apply_rotary_pos_emb(query_rope, key_rope, cos, sin)
        return query_rope, key_rope if self.cached else turned


@mistake("MultiHeadLatentAttention", "mask does not reach the attention: pass it on")
class LatentMaskNotPassedOn(Latent):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        return super().forward(hidden_states, cos, sin, None, cache)
