# The code of transformers for lab 05, in the course's signatures.

# %% exercise 5.1: Qwen3MoeTopKRouter, fed with logits by a matrix that changes nothing
import transformers
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter


def route(router_logits, top_k, norm_topk_prob):
    experts = router_logits.size(-1)
    sizes = {"hidden_size": experts, "num_experts": experts, "num_experts_per_tok": top_k}
    config = transformers.Qwen3MoeConfig(norm_topk_prob=norm_topk_prob, **sizes)
    router = Qwen3MoeTopKRouter(config).to(router_logits.dtype)
    nn.init.eye_(router.weight)
    _, weights, chosen = router(router_logits)
    return weights, chosen


# %% exercise 5.2: Qwen3MoeSparseMoeBlock, over separate experts as in a checkpoint
import transformers
from transformers.models.qwen3_moe import modeling_qwen3_moe as theirs


class Stacked(nn.ModuleList):
    """Their layer holds one tensor for all experts: made here of the separate ones."""

    def forward(self, hidden_states, chosen, weights):
        gate_up = [torch.cat([x.gate_proj.weight, x.up_proj.weight]) for x in self]
        tensors = {
            "gate_up_proj": torch.stack(gate_up),
            "down_proj": torch.stack([x.down_proj.weight for x in self]),
        }
        experts = theirs.Qwen3MoeExperts(self[0].config)
        return torch.func.functional_call(experts, tensors, (hidden_states, chosen, weights))


class Qwen3MoeSparseMoeBlock(theirs.Qwen3MoeSparseMoeBlock):
    def __init__(self, config):
        same = ("hidden_size", "num_experts", "num_experts_per_tok", "norm_topk_prob")
        fields = {name: getattr(config, name) for name in (*same, "moe_intermediate_size")}
        theirs_config = transformers.Qwen3MoeConfig(**fields)
        theirs_config._experts_implementation = "eager"
        super().__init__(theirs_config)
        size = config.moe_intermediate_size
        experts = [theirs.Qwen3MoeMLP(theirs_config, size) for _ in range(config.num_experts)]
        self.experts = Stacked(experts)

    def forward(self, hidden_states):
        router_logits, _, _ = self.gate(hidden_states)
        return super().forward(hidden_states), router_logits


# %% exercise 5.3: load_balancing_loss_func
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func


def load_balancing_loss(router_logits, top_k, attention_mask=None, pooled=False):
    layers = (router_logits,) if isinstance(router_logits, Tensor) else tuple(router_logits)
    rest = (layers[0].size(-1), top_k, attention_mask)
    if pooled:
        return load_balancing_loss_func(layers, *rest)
    return sum(load_balancing_loss_func((layer,), *rest) for layer in layers) / len(layers)


# %% exercise 5.4: the choice of mlp in Qwen3MoeDecoderLayer
import transformers
from transformers.models.qwen3_moe import modeling_qwen3_moe as theirs


def uses_experts(config, layer_idx):
    names = ("num_experts", "num_experts_per_tok", "decoder_sparse_step", "mlp_only_layers")
    fields = {name: getattr(config, name) for name in names}
    fields |= {"hidden_size": 4, "moe_intermediate_size": 2, "intermediate_size": 2}
    fields |= {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2}
    fields["mlp_only_layers"] = list(fields["mlp_only_layers"])
    layer = theirs.Qwen3MoeDecoderLayer(transformers.Qwen3MoeConfig(**fields), layer_idx)
    return isinstance(layer.mlp, theirs.Qwen3MoeSparseMoeBlock)
