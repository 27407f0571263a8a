# Right answers of lab 04, written otherwise. Every one has to earn full points.

# %% exercise 4.1: one line, no float32
def silu(x):
    return x * torch.sigmoid(x)


# %% exercise 4.1: nn.Sigmoid
def silu(x):
    gate = nn.Sigmoid()(x.float())
    return torch.mul(gate, x).to(dtype=x.dtype)


# %% exercise 4.1: float64 inside, expit
def silu(x):
    wide = x.double()
    return (torch.special.expit(wide) * wide).to(x.dtype)


# %% exercise 4.1: by the absolute value, safe both ways
def stable_sigmoid(x):
    power = torch.exp(-x.abs())
    return torch.where(x >= 0, torch.ones_like(x), power) / (1 + power)


def silu(x):
    return (x.float() * stable_sigmoid(x.float())).to(x.dtype)


# %% exercise 4.1: logsigmoid
def silu(x):
    return (x.float() * torch.nn.functional.logsigmoid(x.float()).exp()).to(x.dtype)


# %% exercise 4.1: a softmax of x and 0
def silu(x):
    wide = x.float()
    both = torch.stack([wide, torch.zeros_like(wide)])
    return (wide * both.softmax(dim=0)[0]).to(x.dtype)


# %% exercise 4.2: a loop over the matrices
class Qwen3MLP(nn.Module):
    def __init__(self, config, intermediate_size=None):
        super().__init__()
        inner = intermediate_size or config.intermediate_size
        for name in ("gate_proj", "up_proj"):
            setattr(self, name, nn.Linear(config.hidden_size, inner, bias=False))
        self.add_module("down_proj", nn.Linear(inner, config.hidden_size, bias=False))

    def forward(self, x):
        return self.down_proj(torch.mul(self.up_proj(x), silu(self.gate_proj(x))))


# %% exercise 4.2: einsum on the weights
class Qwen3MLP(nn.Module):
    def __init__(self, config: Qwen3Config, intermediate_size: int | None = None):
        super().__init__()
        size = config.intermediate_size if intermediate_size is None else intermediate_size
        self.down_proj = nn.Linear(size, config.hidden_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, size, bias=False)
        self.gate_proj = nn.Linear(config.hidden_size, size, bias=False)

    def forward(self, x):
        gate = torch.einsum("...e,ie->...i", x, self.gate_proj.weight)
        up = torch.einsum("...e,ie->...i", x, self.up_proj.weight)
        return torch.einsum("...i,...i,ei->...e", silu(gate), up, self.down_proj.weight)


# %% exercise 4.2: one product for both, sigmoid written out
class Qwen3MLP(nn.Module):
    def __init__(self, config, intermediate_size=None):
        super().__init__()
        if intermediate_size is None:
            intermediate_size = config.intermediate_size
        self.gate_proj = nn.Linear(config.hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        both = torch.cat([self.gate_proj.weight, self.up_proj.weight])
        gate, up = (x @ both.T).chunk(2, dim=-1)
        return (gate * torch.sigmoid(gate) * up) @ self.down_proj.weight.T


# %% exercise 4.2: a linear layer and an activation of one's own
class Matrix(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns) / columns**0.5)

    def forward(self, x):
        return torch.matmul(x, self.weight.transpose(0, 1))


class Silu(nn.Module):
    def forward(self, x):
        return silu(x)


class Qwen3MLP(nn.Module):
    def __init__(self, config, intermediate_size=None):
        super().__init__()
        self.config = config
        self.hidden_size = config.hidden_size
        self.intermediate_size = intermediate_size or config.intermediate_size
        self.gate_proj = Matrix(self.intermediate_size, self.hidden_size)
        self.up_proj = Matrix(self.intermediate_size, self.hidden_size)
        self.down_proj = Matrix(self.hidden_size, self.intermediate_size)
        self.act_fn = Silu()

    def forward(self, x):
        down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return down_proj


# %% exercise 4.2: flattened and put back
class Qwen3MLP(nn.Module):
    def __init__(self, config, intermediate_size=None):
        nn.Module.__init__(self)
        E, inner = config.hidden_size, intermediate_size or config.intermediate_size
        self.gate_proj, self.up_proj = nn.Linear(E, inner, False), nn.Linear(E, inner, False)
        self.down_proj = nn.Linear(inner, E, False)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        gated = silu(self.gate_proj(flat)) * self.up_proj(flat)
        return self.down_proj(gated).reshape(x.shape)


# %% exercise 4.2: the gate in float32
class Qwen3MLP(nn.Module):
    def __init__(self, config, intermediate_size=None):
        super().__init__()
        size = config.intermediate_size if intermediate_size is None else intermediate_size
        self.gate_proj = nn.Linear(config.hidden_size, size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, size, bias=False)
        self.down_proj = nn.Linear(size, config.hidden_size, bias=False)

    def forward(self, x):
        gate = self.gate_proj(x).float()
        gated = gate * torch.sigmoid(gate) * self.up_proj(x).float()
        return self.down_proj(gated.to(x.dtype))


# %% exercise 4.3: a table of activations
class FeedForward(nn.Module):
    def __init__(self, hidden_size, intermediate_size, kind):
        super().__init__()
        table = {
            "relu": (torch.relu, False),
            "gelu": (self.gelu, False),
            "swish": (silu, False),
            "geglu": (self.gelu, True),
            "swiglu": (silu, True),
        }
        if kind not in table:
            raise ValueError(f"unknown kind {kind}")
        self.act, gated = table[kind]
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)
        self.gate_proj = None
        if gated:
            self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)

    @staticmethod
    def gelu(x):
        return 0.5 * x * (1.0 + torch.erf(x * math.sqrt(0.5)))

    def forward(self, x):
        if self.gate_proj is None:
            return self.down_proj(self.act(self.up_proj(x)))
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


# %% exercise 4.3: match, with erfc
class FeedForward(nn.Module):
    KINDS = ("relu", "gelu", "swish", "geglu", "swiglu")

    def __init__(self, hidden_size: int, intermediate_size: int, kind: str):
        super().__init__()
        if kind not in self.KINDS:
            raise ValueError(f"kind {kind!r} is none of {', '.join(self.KINDS)}")
        self.kind = kind
        if kind.endswith("glu"):
            self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x):
        match self.kind:
            case "relu":
                inner = torch.maximum(self.up_proj(x), torch.tensor(0.0, dtype=x.dtype))
            case "gelu":
                inner = self._gelu(self.up_proj(x))
            case "swish":
                inner = silu(self.up_proj(x))
            case "geglu":
                inner = torch.mul(self.up_proj(x), self._gelu(self.gate_proj(x)))
            case "swiglu":
                inner = torch.mul(self.up_proj(x), silu(self.gate_proj(x)))
        return self.down_proj(inner)

    def _gelu(self, x):
        wide = x.float()
        return (wide * torch.erfc(-wide / 2**0.5) / 2).to(x.dtype)


# %% exercise 4.3: the normal distribution of torch
def gelu(x):
    return x * torch.special.ndtr(x.float()).to(x.dtype)


def relu(x):
    return x * (x > 0)


class FeedForward(nn.Module):
    def __init__(self, hidden_size, intermediate_size, kind):
        super().__init__()
        if kind not in ("relu", "gelu", "swish", "geglu", "swiglu"):
            raise ValueError(f"{kind}: no such layer")
        self.gated = "glu" in kind
        self.bend = {"r": relu, "s": silu, "g": gelu}[kind[0]]
        if self.gated:
            self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x):
        up = self.up_proj(x)
        inner = self.bend(self.gate_proj(x)) * up if self.gated else self.bend(up)
        return self.down_proj(inner)


# %% exercise 4.3: F.relu, gelu step by step
class FeedForward(nn.Module):
    def __init__(self, hidden_size, intermediate_size, kind):
        super().__init__()
        self.kind = kind
        names = {"relu": 2, "gelu": 2, "swish": 2, "geglu": 3, "swiglu": 3}
        try:
            matrices = names[kind]
        except KeyError as error:
            raise ValueError(f"kind {kind!r}?") from error
        if matrices == 3:
            self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x):
        if self.kind == "relu":
            return self.down_proj(torch.nn.functional.relu(self.up_proj(x)))
        if self.kind == "gelu":
            return self.down_proj(self._gelu(self.up_proj(x)))
        if self.kind == "swish":
            return self.down_proj(silu(self.up_proj(x)))
        act = self._gelu if self.kind == "geglu" else silu
        return self.down_proj(act(self.gate_proj(x)) * self.up_proj(x))

    def _gelu(self, x):
        return x / 2 * (1 + torch.erf(x / math.sqrt(2)))


# %% exercise 4.4: your own silu
class WebMLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        gate = self.w1(x)
        return self.w2(gate * gate.sigmoid() * self.w3(x))


# %% exercise 4.5: slices
def fused(x, gate_up, down):
    both = x @ gate_up.T
    half = both.size(-1) // 2
    return (both[..., half:] * silu(both[..., :half])) @ down.T
