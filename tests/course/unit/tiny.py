"""Models small enough to be trained in a second."""

import torch

from solutions.config import Qwen3Config
from solutions.decoder import Qwen3ForCausalLM

DENSE = {
    "model_type": "qwen3", "vocab_size": 300, "hidden_size": 24, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "rope_theta": 1e4, "max_position_embeddings": 1024, "tie_word_embeddings": True,
}  # fmt: skip
MOE = DENSE | {
    "model_type": "qwen3_moe", "num_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "norm_topk_prob": True, "router_aux_loss_coef": 0.1,
}  # fmt: skip


def random_model():
    """Return a dense model with all weights changed from their initial values."""
    torch.manual_seed(3)
    model = Qwen3ForCausalLM(Qwen3Config.from_dict(DENSE)).eval()
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn(weight.shape)
    return model
