# Right answers of lab 01, written otherwise. Every one has to earn full points.

# %% exercise 1.1: var_mean
def layer_norm(x, weight, bias, eps=1e-5):
    variance, mean = torch.var_mean(x.float(), dim=-1, keepdim=True, correction=0)
    return ((x.float() - mean) / (variance + eps).sqrt() * weight + bias).to(x.dtype)


# %% exercise 1.1: einsum
def layer_norm(x, weight, bias, eps=1e-5):
    size = x.shape[-1]
    ones = torch.ones(size)
    mean = torch.einsum("...e,e->...", x.float(), ones) / size
    centred = x.float() - mean.unsqueeze(-1)
    variance = torch.einsum("...e,...e->...", centred, centred) / size
    normed = centred / torch.sqrt(variance + eps).unsqueeze(-1)
    return (weight.float() * normed + bias.float()).to(x.dtype)


# %% exercise 1.1: a helper in the same cell, float64 inside
def moments(x):
    mean = x.mean(-1, keepdim=True)
    return mean, (x * x).mean(-1, keepdim=True) - mean**2


def layer_norm(x, weight, bias, eps=1e-5):
    wide = x.to(torch.float64)
    mean, variance = moments(wide)
    y = (wide - mean) * (variance.clamp_min(0) + eps) ** -0.5
    return (y * weight + bias).type_as(x)


# %% exercise 1.1: cast back before the weight
def layer_norm(x, weight, bias, eps=1e-5):
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    normed = centred * torch.rsqrt((centred**2).mean(-1, keepdim=True) + eps)
    return normed.to(x.dtype) * weight + bias


# %% exercise 1.2: einsum
class RMSNorm(nn.Module):
    def __init__(self, hidden_size: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        x = hidden_states.to(torch.float32)
        mean_square = torch.einsum("...e,...e->...", x, x).div(x.shape[-1])
        x = x / torch.sqrt(mean_square + self.variance_epsilon)[..., None]
        return self.weight * x.to(hidden_states.dtype)


# %% exercise 1.2: x.norm
class RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.size = hidden_size
        self.weight = nn.Parameter(torch.ones(hidden_size))

    def forward(self, hidden_states):
        wide = hidden_states.float()
        length = wide.norm(dim=-1, keepdim=True)
        root = torch.sqrt(length**2 / self.size + self.eps)
        return (wide / root).to(hidden_states.dtype) * self.weight


# %% exercise 1.2: torch.mean of x * x
class RMSNorm(torch.nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        torch.nn.Module.__init__(self)
        self.register_parameter("weight", torch.nn.Parameter(torch.ones(hidden_size)))
        self.eps = eps

    def forward(self, hidden_states):
        x = hidden_states.type(torch.float)
        scale = torch.pow(torch.mean(x * x, -1, keepdim=True) + self.eps, -0.5)
        return self.weight.mul((x * scale).type_as(hidden_states))


# %% exercise 1.2: a helper function in the same cell
def root_mean_square(x, eps):
    return x.pow(2).mean(dim=-1, keepdim=True).add(eps).sqrt()


class RMSNorm(nn.Module):
    """With a helper."""

    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones((hidden_size,))), eps

    def forward(self, hidden_states):
        normed = hidden_states.float() / root_mean_square(hidden_states.float(), self.eps)
        return self.weight * normed.to(dtype=hidden_states.dtype)


# %% exercise 1.2: the weight before the cast
class RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden_states):
        x = hidden_states.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight.float()
        return x.to(hidden_states.dtype)


# %% exercise 1.2: float64 inside
class RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden_states):
        x = hidden_states.double()
        x = x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()
        return x.to(hidden_states.dtype) * self.weight


# %% exercise 1.2: the root rounded first
class RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden_states):
        mean_square = hidden_states.float().pow(2).mean(-1, keepdim=True)
        root = torch.rsqrt(mean_square + self.eps)
        return self.weight * (hidden_states * root.to(hidden_states.dtype))


# %% exercise 1.1: compiled to TorchScript
@torch.jit.script
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    wide = x.float()
    mean = wide.mean(dim=-1, keepdim=True)
    variance = (wide - mean).pow(2).mean(dim=-1, keepdim=True)
    return ((wide - mean) * torch.rsqrt(variance + eps) * weight + bias).to(x.dtype)


# %% exercise 1.3: a table of functions
def residual(x, sublayer, norm, placement="pre", alpha=1.0):
    table = {
        "pre": lambda: x + sublayer(norm(x)),
        "post": lambda: norm(x + sublayer(x)),
        "sandwich": lambda: norm(sublayer(norm(x))) + x,
        "deepnorm": lambda: norm(sublayer(x) + alpha * x),
    }
    if placement not in table:
        raise ValueError(f"unknown placement: {placement}")
    return table[placement]()


# %% exercise 1.3: match
def residual(x, sublayer, norm, placement="pre", alpha=1.0):
    match placement:
        case "pre":
            return torch.add(sublayer(norm(x)), x)
        case "post":
            return norm(sublayer(x) + x)
        case "sandwich":
            return x + norm(sublayer(norm(x)))
        case "deepnorm":
            return norm(torch.add(sublayer(x), x, alpha=alpha))
        case _:
            raise ValueError(f"no placement {placement!r}")


# %% exercise 1.3: step by step
def residual(x, sublayer, norm, placement="pre", alpha=1.0):
    if placement not in ("pre", "post", "sandwich", "deepnorm"):
        raise ValueError(f"placement {placement}?")
    before = norm(x) if placement in ("pre", "sandwich") else x
    update = sublayer(before)
    if placement == "sandwich":
        update = norm(update)
    kept = alpha * x if placement == "deepnorm" else x
    out = kept + update
    return norm(out) if placement in ("post", "deepnorm") else out


# %% exercise 1.4: rsqrt
class WebRMSNorm(RMSNorm):
    def __init__(self, dim, eps=1e-6):
        super().__init__(dim, eps)

    def forward(self, x):
        return super().forward(x)


# %% exercise 1.4: a root of two sizes
class WebRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        wide = x.float()
        rms = torch.hypot(
            wide.norm(dim=-1, keepdim=True) / wide.shape[-1] ** 0.5,
            torch.tensor(self.eps) ** 0.5,
        )
        return self.weight * (wide / rms).to(x.dtype)
