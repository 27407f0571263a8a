# The code of transformers for lab 01, in the course's signatures.

# %% exercise 1.1: DebertaLayerNorm
from transformers.models.deberta.modeling_deberta import DebertaLayerNorm


def layer_norm(x, weight, bias, eps=1e-5):
    norm = DebertaLayerNorm(x.shape[-1], eps)
    return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (x,))


# %% exercise 1.2: Qwen3RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm as RMSNorm


# %% exercise 1.2: LlamaRMSNorm, with its other default
from transformers.models.llama.modeling_llama import LlamaRMSNorm


class RMSNorm(LlamaRMSNorm):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__(hidden_size, eps)
