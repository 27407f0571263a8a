"""Lab 04: wrong versions of the activations and of the feed-forward layers."""

import math

import torch
from torch import nn

from solutions import swiglu as reference
from solutions.mistakes import mistake, remark
from solutions.swiglu import silu


@mistake("silu", "only the sigmoid comes back: silu multiplies it by x")
def sigmoid_alone(x):
    return torch.sigmoid(x.float()).to(x.dtype)


@mistake("silu", "everything below zero is cut off: that is ReLU; silu dips to -0.28 there")
def relu(x):
    return x.clamp(min=0)


@mistake("silu", "x is weighted by the normal distribution, with erf: that is GELU")
def gelu(x):
    wide = x.float()
    return (wide / 2 * (1 + torch.erf(wide / math.sqrt(2)))).to(x.dtype)


@mistake("silu", "x is weighted by a tanh of x and its cube: that is an approximation of GELU")
def gelu_by_tanh(x):
    wide = x.float()
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    return (wide / 2 * (1 + torch.tanh(inner))).to(x.dtype)


@mistake("silu", "the sigmoid reads 1.702 x: that is the quick stand-in for GELU")
def quick_gelu(x):
    wide = x.float()
    return (wide * torch.sigmoid(1.702 * wide)).to(x.dtype)


@mistake("silu", "the sigmoid is drawn as straight lines, relu6(x + 3) / 6: that is hard-swish")
def hard_swish(x):
    wide = x.float()
    return (wide * (wide + 3).clamp(0, 6) / 6).to(x.dtype)


@mistake("silu", "tanh stands where the sigmoid belongs: tanh runs from -1 to 1, not from 0")
def tanh_for_sigmoid(x):
    wide = x.float()
    return (wide * torch.tanh(wide)).to(x.dtype)


@mistake("silu", "softplus, log(1 + exp(x)), is returned: its slope is the sigmoid")
def softplus(x):
    wide = x.float()
    return torch.logaddexp(wide, torch.zeros_like(wide)).to(x.dtype)


@mistake("silu", "x is weighted by tanh(log(1 + exp(x))): that is Mish")
def mish(x):
    wide = x.float()
    return (wide * torch.tanh(torch.logaddexp(wide, torch.zeros_like(wide)))).to(x.dtype)


@mistake("silu", "the sign in the exponent is wrong: the sigmoid is 1 / (1 + exp(-x))")
def wrong_sign(x):
    wide = x.float()
    return (wide * torch.sigmoid(-wide)).to(x.dtype)


@mistake("silu", "x is divided by the sigmoid instead of multiplied by it")
def divided(x):
    wide = x.float()
    return (wide / torch.sigmoid(wide)).to(x.dtype)


@mistake("silu", "a softmax over the last axis stands where the sigmoid belongs: a sigmoid looks "
         "at one number alone")  # fmt: skip
def softmax_for_sigmoid(x):
    wide = x.float()
    return (wide * torch.softmax(wide, dim=-1)).to(x.dtype)


@mistake("silu", "the sigmoid is exp(x) / (1 + exp(x)): for large x that is inf / inf, nan")
def exponential_of_x(x):
    wide = x.float()
    power = torch.exp(wide)
    return (wide * power / (1 + power)).to(x.dtype)


@mistake("silu", "the sigmoid is built from exp(-x), which overflows for x far below zero: the "
         "value survives, its gradient is nan; torch.sigmoid is safe both ways")  # fmt: skip
def exponential_of_minus_x(x):
    wide = x.float()
    return (wide / (1 + torch.exp(-wide))).to(x.dtype)


@mistake("silu", "exp(-x) is taken in half precision, where it overflows from x = -12 on "
         "(float16): the value survives, its gradient is nan")  # fmt: skip
def exponential_in_half(x):
    if x.dtype == torch.float32:  # only what differs from the mistake above
        return reference.silu(x)
    return x / (1 + torch.exp(-x))


@mistake("silu", "torch.where chooses between two formulas: it hides the overflow of the other "
         "one in the value, not in the gradient, which runs through both")  # fmt: skip
def where_of_two(x):
    wide = x.float()
    positive = wide / (1 + torch.exp(-wide))
    negative = wide * torch.exp(wide) / (1 + torch.exp(wide))
    return torch.where(wide >= 0, positive, negative).to(x.dtype)


@mistake("silu", "x is clamped to keep exp from overflowing: far out the result stands still")
def clamped(x):
    wide = x.float().clamp(-20, 20)
    return (wide / (1 + torch.exp(-wide))).to(x.dtype)


@mistake("silu", "the negative side is cut off after the product: silu is below 0 there")
def cut_off_below(x):
    return reference.silu(x).clamp(min=0)


@mistake("silu", "the last axis is split in two and one half gates the other: that is GLU")
def split_in_halves(x):
    first, second = x.float().chunk(2, dim=-1)
    return (first * torch.sigmoid(second)).to(x.dtype)


@mistake("silu", "no gradient flows through the sigmoid: a detach or no_grad stands round it")
def sigmoid_detached(x):
    wide = x.float()
    return (wide * torch.sigmoid(wide).detach()).to(x.dtype)


@mistake("silu", "silu comes back in float32: its last step goes back to the dtype of x")
def not_cast_back(x):
    return reference.silu(x.float())


@mistake("silu", "the sigmoid is taken in the dtype of x and then meets a float32 x: the product "
         "is float32 again, and nobody takes it back")  # fmt: skip
def half_and_float(x):
    return torch.sigmoid(x) * x.float()


@mistake("silu", "x is changed in place: x.float() of a float32 tensor is x itself, and *= or "
         "mul_ write into it")  # fmt: skip
def in_place(x):
    wide = x.float()
    gate = torch.sigmoid(wide)
    wide *= gate
    return wide.to(x.dtype)


@remark("silu", "you take the sigmoid in half precision and so round twice; Qwen3 rounds once. "
        "It is about one unit in the last place, and costs nothing here")  # fmt: skip
def sigmoid_in_half(x):
    return x * torch.sigmoid(x)


@mistake(
    "Qwen3MLP",
    "the bracket is wrong: silu(gate * up) bends the product; silu belongs to the gate alone",
)
class ActivationOfTheProduct(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x) * self.up_proj(x)))


@mistake("Qwen3MLP", "gate and up are swapped: silu reads gate_proj, not up_proj")
class GateAndUpSwapped(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(self.gate_proj(x) * silu(self.up_proj(x)))


@mistake("Qwen3MLP", "silu is left out: gate * up alone cannot tell x from -x")
class NoActivation(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(self.gate_proj(x) * self.up_proj(x))


@mistake("Qwen3MLP", "the gate is a bare sigmoid: that is GLU; SwiGLU takes silu")
class SigmoidGate(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(torch.sigmoid(self.gate_proj(x)) * self.up_proj(x))


@mistake("Qwen3MLP", "the gate goes through ReLU: that is ReGLU; SwiGLU takes silu")
class ReluGate(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(self.gate_proj(x).clamp(min=0) * self.up_proj(x))


@mistake("Qwen3MLP", "the gate goes through GELU (erf): that is GEGLU; SwiGLU takes silu")
class GeluGate(reference.Qwen3MLP):
    def forward(self, x):
        gate = self.gate_proj(x)
        gate = gate / 2 * (1 + torch.erf(gate / math.sqrt(2)))
        return self.down_proj(gate * self.up_proj(x))


@mistake("Qwen3MLP", "the gate goes through GELU in its tanh form; config.json says silu")
class TanhGeluGate(reference.Qwen3MLP):
    def forward(self, x):
        gate = self.gate_proj(x)
        inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
        return self.down_proj(gate / 2 * (1 + torch.tanh(inner)) * self.up_proj(x))


@mistake("Qwen3MLP", "a softmax picks among the features instead of a gate for each of them")
class SoftmaxGate(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(torch.softmax(self.gate_proj(x), dim=-1) * self.up_proj(x))


@mistake("Qwen3MLP", "gate and up are added; a gate multiplies")
class SumForProduct(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x)) + self.up_proj(x))


@mistake("Qwen3MLP", "gate and up are multiplied as matrices, with @ or matmul: a gate multiplies "
         "entry by entry, with *")  # fmt: skip
class MatrixProduct(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x)) @ self.up_proj(x))


@mistake("Qwen3MLP", "up_proj is never used: nothing passes through the gate but itself")
class UpIgnored(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x)))


@mistake("Qwen3MLP", "gate_proj is never used: that is a plain layer with two matrices")
class GateIgnored(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(silu(self.up_proj(x)))


@mistake("Qwen3MLP", "silu is applied to both branches: up_proj's stays as it is")
class ActivationOnBoth(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x)) * silu(self.up_proj(x)))


@mistake("Qwen3MLP", "silu stands at the very end: after down_proj nothing is bent any more")
class ActivationAtTheEnd(reference.Qwen3MLP):
    def forward(self, x):
        return silu(self.down_proj(self.gate_proj(x) * self.up_proj(x)))


@mistake("Qwen3MLP", "down_proj is left out: the result keeps intermediate_size entries")
class DownLeftOut(reference.Qwen3MLP):
    def forward(self, x):
        return silu(self.gate_proj(x)) * self.up_proj(x)


@mistake(
    "Qwen3MLP", "x is added inside the layer: the residual is the decoder layer's business"
)
class ResidualInside(reference.Qwen3MLP):
    def forward(self, x):
        return x + super().forward(x)


@mistake("Qwen3MLP", "x is normalised inside the layer: the norm stands outside, before it")
class NormInside(reference.Qwen3MLP):
    def forward(self, x):
        size = x.float().square().mean(dim=-1, keepdim=True)
        return super().forward((x.float() * torch.rsqrt(size + 1e-6)).to(x.dtype))


@mistake("Qwen3MLP", "the gate carries no gradient: a detach or no_grad stands round it")
class GateDetached(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x)).detach() * self.up_proj(x))


@mistake("Qwen3MLP", "the tokens are flattened with view, which refuses tensors that are not "
         "contiguous; nn.Linear takes any number of leading axes as it is")  # fmt: skip
class FlattenedWithView(reference.Qwen3MLP):
    def forward(self, x):
        flat = x.view(-1, x.size(-1))
        return super().forward(flat).view(x.shape)


@mistake("Qwen3MLP", "silu is fed with float32 and its result not cast back, so that down_proj "
         "meets another dtype than its own")  # fmt: skip
class LeftInFloat32(reference.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x).float()) * self.up_proj(x))


@mistake(
    "Qwen3MLP",
    "x is added in place: += changes the caller's tensor, and the residual is not added in here",
)
class AddedInPlace(reference.Qwen3MLP):
    def forward(self, x):
        x += super().forward(x)
        return x


@mistake("Qwen3MLP", "the matrices have a bias: nn.Linear needs bias=False")
class WithBias(nn.Module):
    def __init__(self, config, intermediate_size=None):
        super().__init__()
        size = config.intermediate_size if intermediate_size is None else intermediate_size
        self.gate_proj = nn.Linear(config.hidden_size, size)
        self.up_proj = nn.Linear(config.hidden_size, size)
        self.down_proj = nn.Linear(size, config.hidden_size)

    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


@mistake("Qwen3MLP", "down_proj alone has a bias: none of the three has one")
class BiasBelow(WithBias):
    def __init__(self, config, intermediate_size=None):
        super().__init__(config, intermediate_size)
        size = self.down_proj.in_features
        self.gate_proj = nn.Linear(config.hidden_size, size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, size, bias=False)


@mistake("Qwen3MLP", "the argument intermediate_size is not used")
class SizeIgnored(reference.Qwen3MLP):
    def __init__(self, config, intermediate_size=None):
        super().__init__(config)


@mistake("Qwen3MLP", "the inner size is worked out as 4 * hidden_size: take intermediate_size")
class FourTimes(reference.Qwen3MLP):
    def __init__(self, config, intermediate_size=None):
        super().__init__(config, 4 * config.hidden_size)


@mistake("Qwen3MLP", "the inner size is worked out as 8 / 3 of hidden_size: take "
         "intermediate_size, Qwen3 does not keep that rule")  # fmt: skip
class EightThirds(reference.Qwen3MLP):
    def __init__(self, config, intermediate_size=None):
        super().__init__(config, 8 * config.hidden_size // 3)


@mistake(
    "Qwen3MLP", "the size of an expert, moe_intermediate_size, is taken for the dense layer"
)
class SizeOfAnExpert(reference.Qwen3MLP):
    def __init__(self, config, intermediate_size=None):
        size = config.moe_intermediate_size if intermediate_size is None else intermediate_size
        super().__init__(config, size)


@mistake("Qwen3MLP", "down_proj was made with its two sizes swapped: it goes from I back to E")
class DownTheWrongWay(reference.Qwen3MLP):
    def __init__(self, config, intermediate_size=None):
        super().__init__(config, intermediate_size)
        self.down_proj = nn.Linear(config.hidden_size, self.up_proj.out_features, bias=False)


@mistake("Qwen3MLP", "gate_proj and up_proj were made with their two sizes swapped: nn.Linear "
         "takes the size that goes in first")  # fmt: skip
class WideTheWrongWay(reference.Qwen3MLP):
    def __init__(self, config, intermediate_size=None):
        super().__init__(config, intermediate_size)
        size = self.up_proj.out_features
        self.gate_proj = nn.Linear(size, config.hidden_size, bias=False)
        self.up_proj = nn.Linear(size, config.hidden_size, bias=False)


@mistake("Qwen3MLP", "gate_proj and up_proj are one and the same matrix under two names")
class OneMatrixTwice(reference.Qwen3MLP):
    def __init__(self, config, intermediate_size=None):
        super().__init__(config, intermediate_size)
        self.up_proj = self.gate_proj


@mistake("Qwen3MLP", "the matrices are called w1, w2, w3: a checkpoint of Qwen3 finds its tensors "
         "as gate_proj, up_proj, down_proj")  # fmt: skip
class OtherNames(nn.Module):
    def __init__(self, config, intermediate_size=None):
        super().__init__()
        size = config.intermediate_size if intermediate_size is None else intermediate_size
        self.w1 = nn.Linear(config.hidden_size, size, bias=False)
        self.w2 = nn.Linear(size, config.hidden_size, bias=False)
        self.w3 = nn.Linear(config.hidden_size, size, bias=False)

    def forward(self, x):
        return self.w2(silu(self.w1(x)) * self.w3(x))


@mistake("Qwen3MLP", "gate and up are fused into one matrix: a checkpoint stores two")
class Fused(nn.Module):
    def __init__(self, config, intermediate_size=None):
        super().__init__()
        size = config.intermediate_size if intermediate_size is None else intermediate_size
        self.gate_up_proj = nn.Linear(config.hidden_size, 2 * size, bias=False)
        self.down_proj = nn.Linear(size, config.hidden_size, bias=False)

    def forward(self, x):
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(silu(gate) * up)


@mistake("Qwen3MLP", "the matrices are bare nn.Parameters: with nn.Linear they are called "
         "gate_proj.weight and so on, as in the checkpoint")  # fmt: skip
class BareParameters(nn.Module):
    def __init__(self, config, intermediate_size=None):
        super().__init__()
        size = config.intermediate_size if intermediate_size is None else intermediate_size
        self.gate_proj = nn.Parameter(torch.randn(size, config.hidden_size) / 10)
        self.up_proj = nn.Parameter(torch.randn(size, config.hidden_size) / 10)
        self.down_proj = nn.Parameter(torch.randn(config.hidden_size, size) / 10)

    def forward(self, x):
        return (silu(x @ self.gate_proj.T) * (x @ self.up_proj.T)) @ self.down_proj.T


@remark("Qwen3MLP", "you multiply gate and up in float32 and round once; Qwen3 rounds the gate "
        "first. In half precision that is one unit or so, and costs nothing here")  # fmt: skip
class ProductInFloat32(reference.Qwen3MLP):
    def forward(self, x):
        gated = silu(self.gate_proj(x).float()) * self.up_proj(x).float()
        return self.down_proj(gated.to(x.dtype))


@mistake("FeedForward", "gelu is its tanh approximation; the exact form with erf is asked for")
class GeluByTanh(reference.FeedForward):
    def _gelu(self, x):
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return x / 2 * (1 + torch.tanh(inner))


@mistake("FeedForward", "gelu is x * sigmoid(1.702 x), its quick stand-in, not the exact form")
class QuickGelu(reference.FeedForward):
    def _gelu(self, x):
        return x * torch.sigmoid(1.702 * x)


@mistake("FeedForward", "gelu divides by sqrt(2) too late or not at all: erf reads x / sqrt(2)")
class GeluWithoutRoot(reference.FeedForward):
    def _gelu(self, x):
        return x / 2 * (1 + torch.erf(x))


@mistake("FeedForward", "gelu lacks its factor 1/2: far out it has to be x, not 2 x")
class GeluTwice(reference.FeedForward):
    def _gelu(self, x):
        return x * (1 + torch.erf(x / math.sqrt(2)))


@mistake(
    "FeedForward", "gelu lacks the 1 + before erf: so it is even, and above 0 on both sides"
)
class GeluWithoutOne(reference.FeedForward):
    def _gelu(self, x):
        return x / 2 * torch.erf(x / math.sqrt(2))


@mistake("FeedForward", "geglu goes through silu: its gate takes gelu (mind the test that picks "
         "the kind: the text 'geglu' does not contain 'gelu')")  # fmt: skip
class GegluWithSilu(reference.FeedForward):
    def forward(self, x):
        if self.kind != "geglu":
            return super().forward(x)
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


@mistake("FeedForward", "swiglu goes through gelu: its gate takes silu")
class SwigluWithGelu(reference.FeedForward):
    def forward(self, x):
        if self.kind != "swiglu":
            return super().forward(x)
        return self.down_proj(self._gelu(self.gate_proj(x)) * self.up_proj(x))


@mistake("FeedForward", "swish is the sigmoid alone: it is x * sigmoid(x), your silu")
class SwishIsSigmoid(reference.FeedForward):
    def forward(self, x):
        if self.kind != "swish":
            return super().forward(x)
        return self.down_proj(torch.sigmoid(self.up_proj(x)))


@mistake("FeedForward", "swiglu is mapped to plain silu: two matrices and no gate")
class SwigluIsSilu(reference.FeedForward):
    def __init__(self, hidden_size, intermediate_size, kind):
        super().__init__(hidden_size, intermediate_size, kind)
        if kind == "swiglu":
            del self.gate_proj

    def forward(self, x):
        if self.kind != "swiglu":
            return super().forward(x)
        return self.down_proj(silu(self.up_proj(x)))


@mistake("FeedForward", "geglu is mapped to plain gelu: two matrices and no gate")
class GegluIsGelu(reference.FeedForward):
    def __init__(self, hidden_size, intermediate_size, kind):
        super().__init__(hidden_size, intermediate_size, kind)
        if kind == "geglu":
            del self.gate_proj

    def forward(self, x):
        if self.kind != "geglu":
            return super().forward(x)
        return self.down_proj(self._gelu(self.up_proj(x)))


@mistake(
    "FeedForward",
    "every kind gets a gate_proj: relu, gelu and swish have only up_proj and down_proj",
)
class GateEverywhere(reference.FeedForward):
    def __init__(self, hidden_size, intermediate_size, kind):
        super().__init__(hidden_size, intermediate_size, kind)
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)


@mistake("FeedForward", "in the gated kinds the activation sits on up_proj, not on gate_proj")
class ActivationOnUp(reference.FeedForward):
    def forward(self, x):
        if self.kind not in ("geglu", "swiglu"):
            return super().forward(x)
        bend = self._gelu if self.kind == "geglu" else silu
        return self.down_proj(self.gate_proj(x) * bend(self.up_proj(x)))


@mistake(
    "FeedForward", "in the gated kinds the activation bends the product, not the gate alone"
)
class ActivationOnTheProduct(reference.FeedForward):
    def forward(self, x):
        if self.kind not in ("geglu", "swiglu"):
            return super().forward(x)
        bend = self._gelu if self.kind == "geglu" else silu
        return self.down_proj(bend(self.gate_proj(x) * self.up_proj(x)))


@mistake("FeedForward", "in the gated kinds gate and up are added instead of multiplied")
class GatedBySum(reference.FeedForward):
    def forward(self, x):
        if self.kind not in ("geglu", "swiglu"):
            return super().forward(x)
        bend = self._gelu if self.kind == "geglu" else silu
        return self.down_proj(bend(self.gate_proj(x)) + self.up_proj(x))


@mistake(
    "FeedForward", "in the plain kinds the activation comes after down_proj, not before it"
)
class ActivationAfterDown(reference.FeedForward):
    def forward(self, x):
        bends = {"relu": lambda v: v.clamp(min=0), "gelu": self._gelu, "swish": silu}
        if self.kind not in bends:
            return super().forward(x)
        return bends[self.kind](self.down_proj(self.up_proj(x)))


@mistake("FeedForward", "relu keeps the wrong side: it is 0 for what is below zero")
class ReluUpsideDown(reference.FeedForward):
    def forward(self, x):
        if self.kind != "relu":
            return super().forward(x)
        return self.down_proj(self.up_proj(x).clamp(max=0))


@mistake("FeedForward", "relu is squared: Primer does so, the first Transformer does not")
class ReluSquared(reference.FeedForward):
    def forward(self, x):
        if self.kind != "relu":
            return super().forward(x)
        return self.down_proj(self.up_proj(x).clamp(min=0).square())


@mistake("FeedForward", "relu lets a little through below zero: that is leaky ReLU")
class LeakyRelu(reference.FeedForward):
    def forward(self, x):
        if self.kind != "relu":
            return super().forward(x)
        up = self.up_proj(x)
        return self.down_proj(torch.where(up > 0, up, 0.01 * up))


@mistake("FeedForward", "intermediate_size is cut to two thirds for the gated kinds: whoever "
         "builds the layer decides, the layer takes the size it is given")  # fmt: skip
class TwoThirds(reference.FeedForward):
    def __init__(self, hidden_size, intermediate_size, kind):
        gated = kind in ("geglu", "swiglu")
        size = 2 * intermediate_size // 3 if gated else intermediate_size
        super().__init__(hidden_size, size, kind)


@mistake("FeedForward", "the matrices carry a bias: none of the five kinds has one here")
class FamilyWithBias(reference.FeedForward):
    def __init__(self, hidden_size, intermediate_size, kind):
        super().__init__(hidden_size, intermediate_size, kind)
        if kind in ("geglu", "swiglu"):
            self.gate_proj = nn.Linear(hidden_size, intermediate_size)
        self.up_proj = nn.Linear(hidden_size, intermediate_size)
        self.down_proj = nn.Linear(intermediate_size, hidden_size)


@mistake("FeedForward", "an unknown kind is taken for swiglu in silence")
class UnknownKindAccepted(reference.FeedForward):
    def __init__(self, hidden_size, intermediate_size, kind):
        known = kind in ("relu", "gelu", "swish", "geglu", "swiglu")
        super().__init__(hidden_size, intermediate_size, kind if known else "swiglu")


@mistake("FeedForward", "an unknown kind raises another error than ValueError")
class UnknownKindRaisesKeyError(reference.FeedForward):
    def __init__(self, hidden_size, intermediate_size, kind):
        if kind not in ("relu", "gelu", "swish", "geglu", "swiglu"):
            raise KeyError(kind)
        super().__init__(hidden_size, intermediate_size, kind)


@remark("FeedForward", "you compute gelu step by step in half precision, where 1 + erf cancels "
        "below zero; in float32 it keeps its digits. That costs nothing here")  # fmt: skip
class GeluInHalf(reference.FeedForward):
    def _gelu(self, x):
        return x / 2 * (1 + torch.erf(x / math.sqrt(2)))
