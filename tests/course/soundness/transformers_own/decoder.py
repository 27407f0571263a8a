# The code of transformers for lab 06, in the course's signatures. It keeps the experts of a
# layer in one tensor, unlike our checkpoints: a layer with experts has our mlp.

# %% exercise 6.1: Qwen3DecoderLayer
import transformers
from transformers.models.qwen3 import modeling_qwen3 as qwen3


class InOurOrder:
    """update(layer_idx, key, value) for a caller who says update(key, value, layer_idx)."""

    def __init__(self, cache):
        self.cache = cache

    def update(self, key, value, layer_idx):
        return self.cache.update(layer_idx, key, value)


class Qwen3DecoderLayer(qwen3.Qwen3DecoderLayer):
    def __init__(self, config, layer_idx):
        theirs = transformers.Qwen3Config(**config.to_dict(), attn_implementation="eager")
        super().__init__(theirs, layer_idx)
        self.router_logits = None
        if uses_experts(config, layer_idx):
            self.mlp = Qwen3MoeSparseMoeBlock(config)
            self.mlp.register_forward_hook(self.keep_router_logits)

    def keep_router_logits(self, mlp, inputs, pair):
        mixed, self.router_logits = pair
        return mixed

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        if mask is not None:
            lowest = torch.finfo(hidden_states.dtype).min
            added = torch.zeros(mask.shape, dtype=hidden_states.dtype)
            mask = added.masked_fill(~mask, lowest)
        hidden_states = super().forward(
            hidden_states,
            attention_mask=mask,
            past_key_values=None if cache is None else InOurOrder(cache),
            position_embeddings=tuple(table.to(hidden_states.dtype) for table in (cos, sin)),
        )
        return hidden_states, self.router_logits


# %% exercise 6.2: Qwen3Model
import transformers
from transformers.models.qwen3 import modeling_qwen3 as qwen3


class InOurOrder:
    """Our cache for transformers' model, which uses more of its methods than ours does."""

    is_compileable = False

    def __init__(self, cache):
        self.cache, self.cached = cache, cache.length

    def update(self, key, value, layer_idx):
        return self.cache.update(layer_idx, key, value)

    def get_seq_length(self, layer_idx=0):
        return self.cached

    def get_query_offset(self, layer_idx=0):
        return self.cached

    def get_mask_sizes(self, query_length, layer_idx):
        return self.cached + query_length, 0


class Qwen3Model(qwen3.Qwen3Model):
    def __init__(self, config):
        super().__init__(transformers.Qwen3Config(**config.to_dict()))
        self.ours, self.router_logits = config, []
        for layer_idx, layer in enumerate(self.layers):
            if uses_experts(config, layer_idx):
                layer.mlp = Qwen3MoeSparseMoeBlock(config)
                layer.mlp.register_forward_hook(self.keep_router_logits)

    def keep_router_logits(self, mlp, inputs, pair):
        self.router_logits.append(pair[1])
        return pair[0]

    def forward(self, input_ids, attention_mask=None, cache=None):
        cached = 0 if cache is None else cache.length
        check_inputs(self.ours, input_ids, attention_mask, cached)
        position_ids = None
        if attention_mask is not None:  # as `generate` counts them
            position_ids = attention_mask.long().cumsum(-1) - 1
            position_ids.masked_fill_(attention_mask == 0, 1)
            position_ids = position_ids[:, -input_ids.shape[1] :]
        self.router_logits = []
        found = super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=None if cache is None else InOurOrder(cache),
            use_cache=False,
        )
        return found.last_hidden_state, self.router_logits


# %% exercise 6.3: Qwen3ForCausalLM
import transformers
from transformers.models.qwen3 import modeling_qwen3 as qwen3


class Stack(Qwen3Model):
    """Our stack, returning what transformers' head expects."""

    def forward(self, input_ids, attention_mask=None, past_key_values=None, **others):
        hidden_states, self.router_logits = super().forward(
            input_ids, attention_mask, past_key_values
        )
        return qwen3.BaseModelOutputWithPast(last_hidden_state=hidden_states)


class Qwen3ForCausalLM(qwen3.Qwen3ForCausalLM):
    def __init__(self, config):
        super().__init__(transformers.Qwen3Config(**config.to_dict()))
        self.model = Stack(config)
        self.tie_weights()

    def forward(self, input_ids, attention_mask=None, cache=None, output_router_logits=False):
        logits = (
            super()
            .forward(input_ids, attention_mask, past_key_values=cache, return_dict=True)
            .logits
        )
        return (logits, self.model.router_logits) if output_router_logits else logits

    def load_state_dict(self, state_dict, strict=True, assign=False):
        embedding = state_dict.get("model.embed_tokens.weight")
        if self.config.tie_word_embeddings and embedding is not None:
            state_dict = {"lm_head.weight": embedding, **state_dict}
        result = super().load_state_dict(state_dict, strict, assign)
        self.tie_weights()
        return result


# %% exercise 6.4: num_parameters of its models, without memory
import transformers


def count_parameters(config):
    kinds = {
        "qwen3": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config),
        "qwen3_moe": (transformers.Qwen3MoeForCausalLM, transformers.Qwen3MoeConfig),
    }
    kind, theirs = kinds[config.model_type]
    with torch.device("meta"):
        model = kind(theirs(**config.to_dict()))
    total = model.num_parameters()
    experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    idle = config.num_experts - config.num_experts_per_tok
    return total, total - (experts // config.num_experts * idle if experts else 0)
