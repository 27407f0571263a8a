# The code of transformers for lab 04, in the course's signatures.

# %% exercise 4.1: the activation called silu
from transformers.activations import ACT2FN


def silu(x):
    return ACT2FN["silu"](x)


# %% exercise 4.2: Qwen3MLP
import transformers
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP as TheirMLP


class Qwen3MLP(TheirMLP):
    def __init__(self, config, intermediate_size=None):
        size = intermediate_size or config.intermediate_size
        super().__init__(
            transformers.Qwen3Config(hidden_size=config.hidden_size, intermediate_size=size)
        )


# %% exercise 4.2: Qwen3MoeMLP, with the size of an expert
import transformers
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeMLP


class Qwen3MLP(Qwen3MoeMLP):
    def __init__(self, config, intermediate_size=None):
        theirs = transformers.Qwen3MoeConfig(
            hidden_size=config.hidden_size, intermediate_size=config.intermediate_size
        )
        super().__init__(theirs, intermediate_size)


# %% exercise 4.3: their activations, and Qwen3MLP for the gated kinds
import transformers
from transformers.activations import ACT2FN
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP as TheirMLP

GATES = {"geglu": "gelu", "swiglu": "silu"}


class FeedForward(nn.Module):
    def __new__(cls, hidden_size, intermediate_size, kind):
        if kind not in GATES:
            return super().__new__(cls)
        sizes = {"hidden_size": hidden_size, "intermediate_size": intermediate_size}
        return TheirMLP(transformers.Qwen3Config(hidden_act=GATES[kind], **sizes))

    def __init__(self, hidden_size, intermediate_size, kind):
        super().__init__()
        if kind not in ("relu", "gelu", "swish"):
            raise ValueError(f"no kind {kind!r}")
        self.act_fn = ACT2FN[kind]
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(self.act_fn(self.up_proj(x)))
