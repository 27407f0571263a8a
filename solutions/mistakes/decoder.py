"""Lab 06: wrong versions of the layer, of the stack, of the language model and of the count."""

import torch
from torch import nn

from solutions import decoder as reference
from solutions.decoder import (
    Qwen3Attention,
    Qwen3DecoderLayer,
    Qwen3MLP,
    Qwen3MoeSparseMoeBlock,
    RMSNorm,
    causal_mask,
    check_inputs,
    init_weights,
    rope_cos_sin,
)
from solutions.mistakes import mistake


class Layer(reference.Qwen3DecoderLayer):
    """A right constructor, and a feed-forward step that knows both kinds of mlp."""

    def fed(self, normed):
        """What the mlp says, and its router logits."""
        return self.mlp(normed) if self.uses_experts else (self.mlp(normed), None)


@mistake(
    "Qwen3DecoderLayer",
    "attention and feed-forward share one norm module: each needs an RMSNorm of its own",
)
class OneNormForBoth(reference.Qwen3DecoderLayer):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.post_attention_layernorm = self.input_layernorm


@mistake(
    "Qwen3DecoderLayer",
    "input_layernorm stands before the feed-forward too: post_attention_layernorm belongs there",
)
class FirstNormTwice(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        normed = self.input_layernorm(hidden_states)
        hidden_states = hidden_states + self.self_attn(normed, cos, sin, mask, cache)
        mixed, router_logits = self.fed(self.input_layernorm(hidden_states))
        return hidden_states + mixed, router_logits


@mistake(
    "Qwen3DecoderLayer",
    "the two norms are swapped: input_layernorm comes before attention, "
    "post_attention_layernorm before the feed-forward",
)
class NormsSwapped(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        normed = self.post_attention_layernorm(hidden_states)
        hidden_states = hidden_states + self.self_attn(normed, cos, sin, mask, cache)
        mixed, router_logits = self.fed(self.input_layernorm(hidden_states))
        return hidden_states + mixed, router_logits


@mistake(
    "Qwen3DecoderLayer",
    "the norms stand behind the sums, as in the first Transformer: Qwen3 normalises what a "
    "sublayer reads and leaves the stream alone",
)
class PostNorm(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        said = self.self_attn(hidden_states, cos, sin, mask, cache)
        hidden_states = self.input_layernorm(hidden_states + said)
        mixed, router_logits = self.fed(hidden_states)
        return self.post_attention_layernorm(hidden_states + mixed), router_logits


@mistake(
    "Qwen3DecoderLayer",
    "the sublayers' outputs are normalised instead of their inputs",
)
class OutputsNormalised(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        said = self.self_attn(hidden_states, cos, sin, mask, cache)
        hidden_states = hidden_states + self.input_layernorm(said)
        mixed, router_logits = self.fed(hidden_states)
        return hidden_states + self.post_attention_layernorm(mixed), router_logits


@mistake(
    "Qwen3DecoderLayer",
    "the residual is taken after the norm: add to hidden_states as they came, not to the "
    "normed ones",
)
class ResidualAfterTheNorm(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        hidden_states = self.input_layernorm(hidden_states)
        hidden_states = hidden_states + self.self_attn(hidden_states, cos, sin, mask, cache)
        hidden_states = self.post_attention_layernorm(hidden_states)
        mixed, router_logits = self.fed(hidden_states)
        return hidden_states + mixed, router_logits


@mistake(
    "Qwen3DecoderLayer",
    "attention is added to the normed copy it read: add it to hidden_states as they came",
)
class FirstSumOnTheNormedCopy(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        normed = self.input_layernorm(hidden_states)
        hidden_states = normed + self.self_attn(normed, cos, sin, mask, cache)
        mixed, router_logits = self.fed(self.post_attention_layernorm(hidden_states))
        return hidden_states + mixed, router_logits


@mistake(
    "Qwen3DecoderLayer",
    "attention reads the stream itself: input_layernorm was left out",
)
class AttentionWithoutNorm(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        hidden_states = hidden_states + self.self_attn(hidden_states, cos, sin, mask, cache)
        mixed, router_logits = self.fed(self.post_attention_layernorm(hidden_states))
        return hidden_states + mixed, router_logits


@mistake(
    "Qwen3DecoderLayer",
    "the feed-forward reads the stream itself: post_attention_layernorm was left out",
)
class FeedForwardWithoutNorm(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        normed = self.input_layernorm(hidden_states)
        hidden_states = hidden_states + self.self_attn(normed, cos, sin, mask, cache)
        mixed, router_logits = self.fed(hidden_states)
        return hidden_states + mixed, router_logits


@mistake(
    "Qwen3DecoderLayer",
    "the feed-forward reads the layer's input beside attention, as in PaLM: it comes after it "
    "and reads what attention added",
)
class SideBySide(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        said = self.self_attn(self.input_layernorm(hidden_states), cos, sin, mask, cache)
        mixed, router_logits = self.fed(self.post_attention_layernorm(hidden_states))
        return hidden_states + said + mixed, router_logits


@mistake(
    "Qwen3DecoderLayer",
    "the second residual adds the layer's input: what attention added to the stream is lost",
)
class SecondResidualFromTheInput(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        normed = self.input_layernorm(hidden_states)
        after = hidden_states + self.self_attn(normed, cos, sin, mask, cache)
        mixed, router_logits = self.fed(self.post_attention_layernorm(after))
        return hidden_states + mixed, router_logits


@mistake("Qwen3DecoderLayer", "attention's output replaces the stream: add it to hidden_states")
class NoFirstResidual(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        normed = self.input_layernorm(hidden_states)
        hidden_states = self.self_attn(normed, cos, sin, mask, cache)
        mixed, router_logits = self.fed(self.post_attention_layernorm(hidden_states))
        return hidden_states + mixed, router_logits


@mistake(
    "Qwen3DecoderLayer",
    "the feed-forward's output replaces the stream: add it to hidden_states",
)
class NoSecondResidual(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        normed = self.input_layernorm(hidden_states)
        hidden_states = hidden_states + self.self_attn(normed, cos, sin, mask, cache)
        return self.fed(self.post_attention_layernorm(hidden_states))


@mistake(
    "Qwen3DecoderLayer",
    "every layer holds experts as soon as the config has any: ask config.uses_experts(layer_idx)",
)
class ExpertsInEveryLayer(reference.Qwen3DecoderLayer):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.uses_experts = config.num_experts > 0
        self.mlp = Qwen3MoeSparseMoeBlock(config) if self.uses_experts else Qwen3MLP(config)


@mistake(
    "Qwen3DecoderLayer",
    "what a mixture returns is added as it is: it is a pair, the output and the router logits",
)
class PairNotUnpacked(reference.Qwen3DecoderLayer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        normed = self.input_layernorm(hidden_states)
        hidden_states = hidden_states + self.self_attn(normed, cos, sin, mask, cache)
        normed = self.post_attention_layernorm(hidden_states)
        return hidden_states + self.mlp(normed), None


@mistake(
    "Qwen3DecoderLayer", "the router logits are dropped: a layer with experts returns them"
)
class RouterLogitsDropped(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        normed = self.input_layernorm(hidden_states)
        hidden_states = hidden_states + self.self_attn(normed, cos, sin, mask, cache)
        mixed, _ = self.fed(self.post_attention_layernorm(hidden_states))
        return hidden_states + mixed, None


@mistake(
    "Qwen3DecoderLayer",
    "hidden_states come back alone: return the pair, with None where there are no router logits",
)
class NoPair(reference.Qwen3DecoderLayer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        return super().forward(hidden_states, cos, sin, mask, cache)[0]


@mistake("Qwen3DecoderLayer", "the cache is not handed on to attention")
class CacheNotHandedOn(reference.Qwen3DecoderLayer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        return super().forward(hidden_states, cos, sin, mask)


@mistake(
    "Qwen3DecoderLayer",
    "the mask is not handed on to attention: every token sees every other",
)
class MaskNotHandedOn(reference.Qwen3DecoderLayer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        return super().forward(hidden_states, cos, sin, None, cache)


@mistake(
    "Qwen3DecoderLayer",
    "attention is built as layer 0 whatever layer_idx says, so all layers write into one cache",
)
class AlwaysLayerZero(reference.Qwen3DecoderLayer):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.self_attn = Qwen3Attention(config, 0)


@mistake(
    "Qwen3DecoderLayer",
    "the norms keep their default eps: hand them config.rms_norm_eps",
)
class DefaultEps(reference.Qwen3DecoderLayer):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.input_layernorm = RMSNorm(config.hidden_size)
        self.post_attention_layernorm = RMSNorm(config.hidden_size)


@mistake(
    "Qwen3DecoderLayer",
    "`hidden_states += ...` writes into the caller's tensor: make a new one with `a = a + b`",
)
class InPlaceSum(Layer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        normed = self.input_layernorm(hidden_states)
        hidden_states += self.self_attn(normed, cos, sin, mask, cache)
        mixed, router_logits = self.fed(self.post_attention_layernorm(hidden_states))
        return hidden_states + mixed, router_logits


class Stack(reference.Qwen3Model):
    """The right stack, cut into steps, so that a wrong version replaces one of them."""

    def forward(self, input_ids, attention_mask=None, cache=None):
        cached = 0 if cache is None else cache.length
        check_inputs(self.config, input_ids, attention_mask, cached)
        mask = self.mask(input_ids, attention_mask, cached)
        position_ids = self.positions(input_ids, attention_mask, cached)
        cos, sin = self.angles(position_ids)
        return self.through(self.embedded(input_ids), cos, sin, mask, cache)

    def mask(self, input_ids, attention_mask, cached):
        mask = causal_mask(input_ids.size(1), cached + input_ids.size(1))
        if attention_mask is not None:
            mask = mask & attention_mask[:, None, None, :].bool()
        return mask

    def positions(self, input_ids, attention_mask, cached):
        if attention_mask is None:
            return torch.arange(cached, cached + input_ids.size(1))[None]
        return (attention_mask.long().cumsum(dim=-1) - 1).clamp(min=0)[:, cached:]

    def angles(self, position_ids):
        return rope_cos_sin(position_ids, self.config.head_dim, self.config.rope_theta)

    def embedded(self, input_ids):
        return self.embed_tokens(input_ids)

    def through(self, hidden_states, cos, sin, mask, cache):
        router_logits = []
        for layer in self.layers:
            hidden_states, logits = layer(hidden_states, cos, sin, mask, cache)
            if logits is not None:
                router_logits.append(logits)
        return self.norm(hidden_states), router_logits


@mistake("Qwen3Model", "the final norm is missing: the last layer's stream goes out as it is")
class NoFinalNorm(Stack):
    def through(self, hidden_states, cos, sin, mask, cache):
        self.norm, norm = nn.Identity(), self.norm
        result = super().through(hidden_states, cos, sin, mask, cache)
        self.norm = norm
        return result


@mistake("Qwen3Model", "the final norm is applied after every layer: it comes once, at the end")
class FinalNormInTheLoop(Stack):
    def through(self, hidden_states, cos, sin, mask, cache):
        router_logits = []
        for layer in self.layers:
            hidden_states, logits = layer(hidden_states, cos, sin, mask, cache)
            hidden_states = self.norm(hidden_states)
            if logits is not None:
                router_logits.append(logits)
        return hidden_states, router_logits


@mistake(
    "Qwen3Model",
    "one layer object stands in the list many times: every layer has weights of its own",
)
class OneLayerManyTimes(reference.Qwen3Model):
    def __init__(self, config):
        super().__init__(config)
        layer = Qwen3DecoderLayer(config, config.num_hidden_layers - 1)
        self.layers = nn.ModuleList([layer] * config.num_hidden_layers)


@mistake("Qwen3Model", "every layer is built with layer_idx 0: hand each its own number")
class AllLayersNumberedZero(reference.Qwen3Model):
    def __init__(self, config):
        super().__init__(config)
        count = range(config.num_hidden_layers)
        self.layers = nn.ModuleList(Qwen3DecoderLayer(config, 0) for _ in count)


@mistake(
    "Qwen3Model", "the embeddings are multiplied by sqrt(E): Gemma does so, Qwen3 does not"
)
class ScaledEmbeddings(Stack):
    def embedded(self, input_ids):
        return self.embed_tokens(input_ids) * self.config.hidden_size**0.5


@mistake(
    "Qwen3Model",
    "the angles are made for a size other than head_dim: E / H is not head_dim here",
)
class AnglesForAnotherSize(Stack):
    def angles(self, position_ids):
        size = self.config.hidden_size // self.config.num_attention_heads // 2 * 2 or 2
        return rope_cos_sin(position_ids, size, self.config.rope_theta)


@mistake("Qwen3Model", "rope_theta is fixed to 10000 instead of taken from the config")
class FixedTheta(Stack):
    def angles(self, position_ids):
        return rope_cos_sin(position_ids, self.config.head_dim, 10000.0)


@mistake("Qwen3Model", "there is no causal mask: every token sees those after it")
class NoMask(Stack):
    def mask(self, input_ids, attention_mask, cached):
        if attention_mask is None:
            return None
        return attention_mask[:, None, None, :].bool()


@mistake(
    "Qwen3Model",
    "the causal mask is lost where an attention_mask is given: both must hold at once",
)
class PaddingInsteadOfCausal(Stack):
    def mask(self, input_ids, attention_mask, cached):
        if attention_mask is not None:
            return attention_mask[:, None, None, :].bool()
        return super().mask(input_ids, attention_mask, cached)


@mistake(
    "Qwen3Model",
    "padding can be seen: attention_mask counts for the positions, but not in the mask",
)
class PaddingSeen(Stack):
    def mask(self, input_ids, attention_mask, cached):
        return super().mask(input_ids, None, cached)


@mistake(
    "Qwen3Model",
    "attention_mask hides queries instead of keys: it belongs on the last axis, (B, 1, 1, S)",
)
class QueriesHidden(Stack):
    def mask(self, input_ids, attention_mask, cached):
        mask = super().mask(input_ids, None, cached)
        if attention_mask is not None:
            mask = mask & attention_mask[:, None, cached:, None].bool()
        return mask


@mistake(
    "Qwen3Model",
    "with a cache the mask's triangle starts at the first key: the new tokens are the last of "
    "the S keys",
)
class MaskNotShifted(Stack):
    def mask(self, input_ids, attention_mask, cached):
        new = input_ids.size(1)
        mask = torch.ones(new, cached + new, dtype=torch.bool).tril()
        if attention_mask is not None:
            mask = mask & attention_mask[:, None, None, :].bool()
        return mask


@mistake(
    "Qwen3Model",
    "the mask is (T, T) also with a cache: it needs a column for each of the S keys",
)
class MaskOfTheNewTokens(Stack):
    def mask(self, input_ids, attention_mask, cached):
        mask = causal_mask(input_ids.size(1), input_ids.size(1))
        if attention_mask is not None:
            mask = mask & attention_mask[:, None, None, :].bool()
        return mask


@mistake(
    "Qwen3Model",
    "the mask is left out as soon as there is a cache: pieces of several tokens see the future",
)
class NoMaskWithACache(Stack):
    def forward(self, input_ids, attention_mask=None, cache=None):
        self.has_cache = cache is not None
        return super().forward(input_ids, attention_mask, cache)

    def mask(self, input_ids, attention_mask, cached):
        if not self.has_cache:
            return super().mask(input_ids, attention_mask, cached)
        return None if attention_mask is None else attention_mask[:, None, None, :].bool()


@mistake(
    "Qwen3Model",
    "positions start at 0 again in every step: new tokens continue after the cached ones",
)
class PositionsRestart(Stack):
    def positions(self, input_ids, attention_mask, cached):
        if attention_mask is not None:
            attention_mask = attention_mask[:, cached:]
        return super().positions(input_ids, attention_mask, 0)


@mistake(
    "Qwen3Model",
    "positions count columns, padding included: count the real tokens, with a cumsum of "
    "attention_mask",
)
class PositionsCountColumns(Stack):
    def positions(self, input_ids, attention_mask, cached):
        return super().positions(input_ids, None, cached)


@mistake(
    "Qwen3Model",
    "angles are made for all S positions: the new tokens need those of the last T",
)
class PositionsNotCut(Stack):
    def positions(self, input_ids, attention_mask, cached):
        if attention_mask is None:
            return super().positions(input_ids, None, cached)
        return super().positions(input_ids, attention_mask, 0)


@mistake("Qwen3Model", "the cache is not handed on to the layers")
class CacheKeptBack(Stack):
    def through(self, hidden_states, cos, sin, mask, cache):
        return super().through(hidden_states, cos, sin, mask, None)


@mistake(
    "Qwen3Model",
    "layers without experts leave a None in the list of router logits: leave them out",
)
class NonesKept(Stack):
    def through(self, hidden_states, cos, sin, mask, cache):
        router_logits = []
        for layer in self.layers:
            hidden_states, logits = layer(hidden_states, cos, sin, mask, cache)
            router_logits.append(logits)
        return self.norm(hidden_states), router_logits


class Language(reference.Qwen3ForCausalLM):
    """The right model with room for a change of what comes out."""

    def forward(self, input_ids, attention_mask=None, cache=None, output_router_logits=False):
        hidden_states, router_logits = self.model(input_ids, attention_mask, cache)
        logits = self.scored(hidden_states)
        return (logits, router_logits) if output_router_logits else logits

    def scored(self, hidden_states):
        return self.lm_head(hidden_states)


@mistake("Qwen3ForCausalLM", "lm_head has a bias: a checkpoint of Qwen3 holds none")
class HeadWithBias(reference.Qwen3ForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.tie_weights()
        init_weights(self, config.initializer_range)


@mistake(
    "Qwen3ForCausalLM",
    "lm_head has a Parameter of its own, perhaps a copy of the embedding's: tied means one and "
    "the same Parameter, which `lm_head.weight = embed_tokens.weight` does",
)
class NotTied(reference.Qwen3ForCausalLM):
    def tie_weights(self):
        pass


@mistake(
    "Qwen3ForCausalLM",
    "the weights are tied once, in __init__: tie_weights runs again after loading, when new "
    "Parameters may have come, so the tie belongs there",
)
class TiedOnlyOnce(reference.Qwen3ForCausalLM):
    def __init__(self, config):
        self.fresh = True
        super().__init__(config)
        self.fresh = False

    def tie_weights(self):
        if self.fresh:
            super().tie_weights()


@mistake("Qwen3ForCausalLM", "the condition is inverted: tied where the config says untied")
class TieInverted(reference.Qwen3ForCausalLM):
    def tie_weights(self):
        if not self.config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight


@mistake("Qwen3ForCausalLM", "the head is tied always: config.tie_word_embeddings decides")
class TiedAlways(reference.Qwen3ForCausalLM):
    def tie_weights(self):
        self.lm_head.weight = self.model.embed_tokens.weight


@mistake("Qwen3ForCausalLM", "probabilities come out: leave softmax to those who need it")
class Probabilities(Language):
    def scored(self, hidden_states):
        return self.lm_head(hidden_states).softmax(dim=-1)


@mistake("Qwen3ForCausalLM", "only the last token is scored: training needs logits for all T")
class LastTokenOnly(Language):
    def scored(self, hidden_states):
        return self.lm_head(hidden_states[:, -1:])


@mistake(
    "Qwen3ForCausalLM", "the logits are cast to float32: they keep the dtype of the weights"
)
class LogitsInFloat32(Language):
    def scored(self, hidden_states):
        return self.lm_head(hidden_states).float()


@mistake("Qwen3ForCausalLM", "attention_mask is not handed on to the model")
class MaskKeptBack(reference.Qwen3ForCausalLM):
    def forward(self, input_ids, attention_mask=None, cache=None, output_router_logits=False):
        return super().forward(input_ids, None, cache, output_router_logits)


@mistake("Qwen3ForCausalLM", "the cache is not handed on to the model")
class CacheForgotten(reference.Qwen3ForCausalLM):
    def forward(self, input_ids, attention_mask=None, cache=None, output_router_logits=False):
        return super().forward(input_ids, attention_mask, None, output_router_logits)


@mistake(
    "Qwen3ForCausalLM",
    "the router logits always come along: only where output_router_logits asks for them",
)
class AlwaysAPair(reference.Qwen3ForCausalLM):
    def forward(self, input_ids, attention_mask=None, cache=None, output_router_logits=False):
        return super().forward(input_ids, attention_mask, cache, True)


def count(config, **changes):
    """(total, active) as it should be, but for the parts that `changes` names."""
    sizes = {
        "head_dim": config.head_dim,
        "kv_heads": config.num_key_value_heads,
        "outputs": 1,  # o_proj
        "bias": config.attention_bias,
        "layer_norms": 2,
        "qk_norms": 2 * config.head_dim,
        "final_norm": config.hidden_size,
        "matrices": 3,
        "router": config.hidden_size * config.num_experts,
        "expert": config.moe_intermediate_size,
        "heads_of_words": 0 if config.tie_word_embeddings else 1,
        "sparse": [config.uses_experts(i) for i in range(config.num_hidden_layers)],
        "active_experts": config.num_experts_per_tok,
        "active_router": config.hidden_size * config.num_experts,
    } | changes
    size, query = config.hidden_size, config.num_attention_heads * sizes["head_dim"]
    kv = sizes["kv_heads"] * sizes["head_dim"]
    layer = size * (query + 2 * kv) + sizes["outputs"] * query * size
    layer += (query + 2 * kv + size) * sizes["bias"]
    layer += sizes["layer_norms"] * size + sizes["qk_norms"]
    dense = sizes["matrices"] * size * config.intermediate_size
    expert = sizes["matrices"] * size * sizes["expert"]
    words = config.vocab_size * size * (1 + sizes["heads_of_words"])
    total = active = words + sizes["final_norm"]
    for sparse in sizes["sparse"]:
        total += layer + (sizes["router"] + config.num_experts * expert if sparse else dense)
        idle = sizes["active_router"] + sizes["active_experts"] * expert
        active += layer + (idle if sparse else dense)
    return total, active


@mistake("count_parameters", "a tied head is counted although it is the embedding once more")
def tied_head_counted(config):
    return count(config, heads_of_words=1)


@mistake("count_parameters", "an untied head is forgotten: it is V * E numbers of its own")
def untied_head_forgotten(config):
    return count(config, heads_of_words=0)


@mistake("count_parameters", "head_dim is taken for E / H: it is a field of its own")
def head_dim_divided(config):
    return count(config, head_dim=config.hidden_size // config.num_attention_heads)


@mistake("count_parameters", "q_proj and o_proj are counted as E * E: they are E * (H * D)")
def queries_of_hidden_size(config):
    total, active = count(config)
    size = config.hidden_size
    extra = (2 * size + config.attention_bias) * config.num_hidden_layers
    extra *= size - config.num_attention_heads * config.head_dim
    return total + extra, active + extra


@mistake(
    "count_parameters",
    "k_proj and v_proj are counted as large as q_proj: they have num_key_value_heads heads",
)
def every_head_has_its_keys(config):
    return count(config, kv_heads=config.num_attention_heads)


@mistake("count_parameters", "o_proj is forgotten")
def no_output_projection(config):
    return count(config, outputs=0)


@mistake("count_parameters", "q_norm and k_norm are forgotten: head_dim numbers each, a layer")
def no_qk_norms(config):
    return count(config, qk_norms=0)


@mistake(
    "count_parameters",
    "q_norm and k_norm are counted for every head: all heads of a layer share one weight",
)
def qk_norms_for_every_head(config):
    heads = config.num_attention_heads + config.num_key_value_heads
    return count(config, qk_norms=heads * config.head_dim)


@mistake("count_parameters", "the two norms of size E in each layer are forgotten")
def no_layer_norms(config):
    return count(config, layer_norms=0)


@mistake("count_parameters", "the final norm is forgotten")
def no_final_norm(config):
    return count(config, final_norm=0)


@mistake(
    "count_parameters", "the biases are forgotten: attention_bias gives one to q, k, v and o"
)
def no_bias(config):
    return count(config, bias=False)


@mistake("count_parameters", "a feed-forward layer has three matrices here, not two")
def two_matrices(config):
    return count(config, matrices=2)


@mistake("count_parameters", "an expert has moe_intermediate_size, not intermediate_size")
def experts_of_dense_size(config):
    return count(config, expert=config.intermediate_size)


@mistake(
    "count_parameters", "the router is forgotten: E * X numbers in each layer with experts"
)
def no_router(config):
    return count(config, router=0, active_router=0)


@mistake(
    "count_parameters", "of the router only k rows are called active: all X scores are made"
)
def router_of_the_chosen(config):
    return count(config, active_router=config.hidden_size * config.num_experts_per_tok)


@mistake("count_parameters", "all experts are called active: a token uses k of them")
def all_active(config):
    total, _ = count(config)
    return total, total


@mistake(
    "count_parameters", "decoder_sparse_step is ignored: ask config.uses_experts(layer_idx)"
)
def step_ignored(config):
    layers = range(config.num_hidden_layers)
    listed = config.mlp_only_layers
    return count(config, sparse=[config.num_experts > 0 and i not in listed for i in layers])


@mistake("count_parameters", "mlp_only_layers is ignored: ask config.uses_experts(layer_idx)")
def listed_layers_ignored(config):
    step = config.decoder_sparse_step
    layers = range(1, config.num_hidden_layers + 1)
    return count(config, sparse=[config.num_experts > 0 and i % step == 0 for i in layers])
