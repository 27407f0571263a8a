"""Lab 01: wrong versions of the normalisations and of the residual connection."""

import torch
from torch import nn

from solutions import rmsnorm as reference
from solutions.mistakes import mistake, remark


@mistake(
    "layer_norm", "the variance divides by E - 1 instead of E: torch.var needs correction=0"
)
def unbiased_variance(x, weight, bias, eps=1e-5):
    wide = x.float()
    centred = wide - wide.mean(dim=-1, keepdim=True)
    variance = wide.var(dim=-1, keepdim=True)
    return (centred * torch.rsqrt(variance + eps) * weight + bias).to(x.dtype)


@mistake("layer_norm", "eps is added to the root instead of under it")
def layer_norm_eps_outside(x, weight, bias, eps=1e-5):
    wide = x.float()
    centred = wide - wide.mean(dim=-1, keepdim=True)
    deviation = centred.square().mean(dim=-1, keepdim=True).sqrt()
    return (centred / (deviation + eps) * weight + bias).to(x.dtype)


@mistake(
    "layer_norm", "the mean is not subtracted before the division: that is RMSNorm plus a bias"
)
def mean_kept(x, weight, bias, eps=1e-5):
    wide = x.float()
    mean_square = wide.square().mean(dim=-1, keepdim=True)
    return (wide * torch.rsqrt(mean_square + eps) * weight + bias).to(x.dtype)


@mistake(
    "layer_norm", "mean and variance run over the batch or the tokens instead of the last axis"
)
def layer_norm_wrong_axis(x, weight, bias, eps=1e-5):
    wide = x.float()
    mean = wide.mean(dim=0, keepdim=True)
    variance = wide.var(dim=0, keepdim=True, correction=0)
    return ((wide - mean) * torch.rsqrt(variance + eps) * weight + bias).to(x.dtype)


@mistake("layer_norm", "the statistics are computed in the dtype of x instead of float32")
def layer_norm_in_input_dtype(x, weight, bias, eps=1e-5):
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = (centred * centred).mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt(variance + eps) * weight + bias


@mistake("layer_norm", "the bias is left out")
def bias_ignored(x, weight, bias, eps=1e-5):
    return reference.layer_norm(x, weight, torch.zeros_like(bias), eps)


@mistake("layer_norm", "the weight is left out")
def layer_norm_weight_ignored(x, weight, bias, eps=1e-5):
    return reference.layer_norm(x, torch.ones_like(weight), bias, eps)


@mistake("layer_norm", "the argument eps is not used")
def layer_norm_eps_ignored(x, weight, bias, eps=1e-5):
    return reference.layer_norm(x, weight, bias, 0.0)


@mistake("layer_norm", "the result stays in float32 instead of going back to the dtype of x")
def layer_norm_not_cast_back(x, weight, bias, eps=1e-5):
    return reference.layer_norm(x.float(), weight.float(), bias.float(), eps)


@mistake("layer_norm", "x is changed in place: -= and /= write into the caller's tensor")
def layer_norm_in_place(x, weight, bias, eps=1e-5):
    wide = x.float()
    wide -= wide.mean(dim=-1, keepdim=True)
    wide *= torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * weight + bias).to(x.dtype)


@mistake("layer_norm", "the centred vector is divided by the variance instead of its root")
def root_forgotten(x, weight, bias, eps=1e-5):
    wide = x.float()
    centred = wide - wide.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return (centred / (variance + eps) * weight + bias).to(x.dtype)


@mistake("layer_norm", "the squares are summed instead of averaged")
def layer_norm_sum_for_mean(x, weight, bias, eps=1e-5):
    wide = x.float()
    centred = wide - wide.mean(dim=-1, keepdim=True)
    total = centred.square().sum(dim=-1, keepdim=True)
    return (centred * torch.rsqrt(total + eps) * weight + bias).to(x.dtype)


@mistake("layer_norm", "weight and bias are swapped")
def weight_and_bias_swapped(x, weight, bias, eps=1e-5):
    return reference.layer_norm(x, bias, weight, eps)


@mistake("layer_norm", "the arguments stand in another order than x, weight, bias, eps")
def arguments_in_another_order(x, bias, weight, eps=1e-5):
    return reference.layer_norm(x, weight, bias, eps)


@mistake("layer_norm", "only the variance is taken in float32: the mean was rounded before")
def mean_in_input_dtype(x, weight, bias, eps=1e-5):
    centred = (x - x.mean(dim=-1, keepdim=True)).float()
    variance = centred.square().mean(dim=-1, keepdim=True)
    return (centred * torch.rsqrt(variance + eps) * weight + bias).to(x.dtype)


@mistake("layer_norm", "the default of eps is not 1e-5")
def layer_norm_other_default(x, weight, bias, eps=1e-6):
    return reference.layer_norm(x, weight, bias, eps)


class Variant(nn.Module):
    """The constructor that most wrong versions of RMSNorm get right."""

    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps


@mistake(
    "RMSNorm",
    "eps is added to the root instead of under it: sqrt(mean + eps), not sqrt(mean) + eps",
)
class EpsOutsideRoot(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        root = wide.square().mean(dim=-1, keepdim=True).sqrt()
        return self.weight * (wide / (root + self.eps)).to(hidden_states.dtype)


@mistake(
    "RMSNorm",
    "eps is added to x before squaring, or to the result, instead of to the mean of squares",
)
class EpsOnTheInput(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = (wide + self.eps).square().mean(dim=-1, keepdim=True)
        return self.weight * (wide * torch.rsqrt(mean_square)).to(hidden_states.dtype)


@mistake("RMSNorm", "eps is left out")
class NoEps(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        return self.weight * (wide * torch.rsqrt(mean_square)).to(hidden_states.dtype)


@mistake("RMSNorm", "the argument eps is not kept and 1e-6 is used whatever is asked for")
class EpsNotForwarded(reference.RMSNorm):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__(hidden_size)


@mistake("RMSNorm", "the default of eps is 1e-5; Qwen3's is 1e-6")
class DefaultEpsFromLlama(reference.RMSNorm):
    def __init__(self, hidden_size, eps=1e-5):
        super().__init__(hidden_size, eps)


@mistake(
    "RMSNorm", "the mean is subtracted: that is LayerNorm; RMSNorm leaves the mean where it is"
)
class MeanSubtracted(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        wide = wide - wide.mean(dim=-1, keepdim=True)
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        normed = wide * torch.rsqrt(mean_square + self.eps)
        return self.weight * normed.to(hidden_states.dtype)


@mistake("RMSNorm", "x is divided by its standard deviation, which subtracts the mean inside")
class StandardDeviation(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        variance = wide.var(dim=-1, keepdim=True, correction=0)
        normed = wide * torch.rsqrt(variance + self.eps)
        return self.weight * normed.to(hidden_states.dtype)


@mistake(
    "RMSNorm",
    "the squares are summed instead of averaged, so that the norm becomes 1 and not sqrt(E)",
)
class SumForMean(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        total = wide.square().sum(dim=-1, keepdim=True)
        return self.weight * (wide * torch.rsqrt(total + self.eps)).to(hidden_states.dtype)


@mistake(
    "RMSNorm", "x is multiplied by the root instead of divided by it: sqrt where rsqrt belongs"
)
class SqrtForRsqrt(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        normed = wide * torch.sqrt(mean_square + self.eps)
        return self.weight * normed.to(hidden_states.dtype)


@mistake("RMSNorm", "the root is forgotten: x is divided by the mean of squares itself")
class RootForgotten(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        return self.weight * (wide / (mean_square + self.eps)).to(hidden_states.dtype)


@mistake(
    "RMSNorm", "eps is squared before it is added: it is added as it is, to a mean of squares"
)
class EpsSquared(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        normed = wide * torch.rsqrt(mean_square + self.eps**2)
        return self.weight * normed.to(hidden_states.dtype)


@mistake("RMSNorm", "the mean runs over axis 1, the tokens, instead of the last axis")
class SecondAxis(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=1, keepdim=True)
        normed = wide * torch.rsqrt(mean_square + self.eps)
        return self.weight * normed.to(hidden_states.dtype)


@mistake("RMSNorm", "keepdim=True is missing, so that the means line up with the wrong axis")
class KeepdimForgotten(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        normed = wide * torch.rsqrt(wide.square().mean(dim=-1) + self.eps)
        return self.weight * normed.to(hidden_states.dtype)


@mistake("RMSNorm", "the result is divided by the weight instead of multiplied")
class DividedByWeight(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        normed = wide * torch.rsqrt(mean_square + self.eps)
        return normed.to(hidden_states.dtype) / self.weight


@mistake("RMSNorm", "no gradient flows through the root: a detach or no_grad stands round it")
class RootDetached(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True).detach()
        normed = wide * torch.rsqrt(mean_square + self.eps)
        return self.weight * normed.to(hidden_states.dtype)


@mistake("RMSNorm", "the weight is a buffer: it is loaded, but no gradient trains it")
class WeightIsABuffer(reference.RMSNorm):
    def __init__(self, hidden_size, eps=1e-6):
        nn.Module.__init__(self)
        self.register_buffer("weight", torch.ones(hidden_size))
        self.eps = eps


@mistake(
    "RMSNorm", "the parameter is not called weight: a checkpoint finds its tensors by name"
)
class ParameterCalledScale(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        normed = wide * torch.rsqrt(mean_square + self.eps)
        return self.scale * normed.to(hidden_states.dtype)


@mistake("RMSNorm", "the mean runs over the first axis instead of the last one")
class FirstAxis(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=0, keepdim=True)
        normed = wide * torch.rsqrt(mean_square + self.eps)
        return self.weight * normed.to(hidden_states.dtype)


@mistake("RMSNorm", "one mean is taken over the whole tensor instead of one for each vector")
class WholeTensor(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        normed = wide * torch.rsqrt(wide.square().mean() + self.eps)
        return self.weight * normed.to(hidden_states.dtype)


@mistake("RMSNorm", "nothing is cast to float32: squares of large numbers overflow in float16")
class NoFloat32(Variant):
    def forward(self, hidden_states):
        mean_square = hidden_states.pow(2).mean(dim=-1, keepdim=True)
        return self.weight * (hidden_states * torch.rsqrt(mean_square + self.eps))


@mistake(
    "RMSNorm",
    "the squares are taken before the cast to float32, where float16 overflows already",
)
class HalfOfItInFloat32(Variant):
    def forward(self, hidden_states):
        mean_square = hidden_states.pow(2).float().mean(dim=-1, keepdim=True)
        normed = hidden_states.float() * torch.rsqrt(mean_square + self.eps)
        return self.weight * normed.to(hidden_states.dtype)


@mistake("RMSNorm", "the weight is never multiplied in")
class WeightIgnored(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        return (wide * torch.rsqrt(mean_square + self.eps)).to(hidden_states.dtype)


@mistake("RMSNorm", "the weight starts at 0: it multiplies, so it has to start at 1")
class WeightStartsAtZero(reference.RMSNorm):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__(hidden_size, eps)
        self.weight = nn.Parameter(torch.zeros(hidden_size))


@mistake("RMSNorm", "the result is multiplied by 1 + weight: Gemma does so, Qwen3 does not")
class OnePlusWeight(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        normed = wide * torch.rsqrt(mean_square + self.eps)
        return (1 + self.weight) * normed.to(hidden_states.dtype)


@mistake(
    "RMSNorm", "the weight is allocated with torch.empty and holds whatever the memory held"
)
class WeightNotInitialised(reference.RMSNorm):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__(hidden_size, eps)
        self.weight = nn.Parameter(torch.empty(hidden_size))


@mistake(
    "RMSNorm",
    "the weight is a plain tensor: without nn.Parameter it is neither trained nor loaded",
)
class WeightIsNoParameter(reference.RMSNorm):
    def __init__(self, hidden_size, eps=1e-6):
        nn.Module.__init__(self)
        self.weight = torch.ones(hidden_size)
        self.eps = eps


@mistake("RMSNorm", "there is a bias as well: RMSNorm has only a weight")
class BiasToo(Variant):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__(hidden_size, eps)
        self.bias = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        normed = wide * torch.rsqrt(mean_square + self.eps)
        return self.weight * normed.to(hidden_states.dtype) + self.bias


@mistake("RMSNorm", "the result stays in float32 instead of going back to the input's dtype")
class NotCastBack(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        return self.weight.float() * wide * torch.rsqrt(mean_square + self.eps)


@mistake("RMSNorm", "the input is changed in place: *= writes into the caller's tensor")
class InPlace(Variant):
    def forward(self, hidden_states):
        dtype = hidden_states.dtype
        hidden_states = hidden_states.float()
        mean_square = hidden_states.square().mean(dim=-1, keepdim=True)
        hidden_states *= torch.rsqrt(mean_square + self.eps)
        return self.weight * hidden_states.to(dtype)


@remark("RMSNorm", "you multiply by the weight in float32 and cast last; Qwen3 casts first, then "
        "multiplies. In half precision that is one unit in the last place, and costs nothing here")  # fmt: skip
class WeightBeforeTheCast(Variant):
    def forward(self, hidden_states):
        wide = hidden_states.float()
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        normed = wide * torch.rsqrt(mean_square + self.eps)
        return (self.weight.float() * normed).to(hidden_states.dtype)


@mistake(
    "residual", "pre-norm is written as x + norm(sublayer(x)): the norm belongs on the way in"
)
def norm_on_the_way_out(x, sublayer, norm, placement="pre", alpha=1.0):
    if placement == "pre":
        return x + norm(sublayer(x))
    return reference.residual(x, sublayer, norm, placement, alpha)


@mistake(
    "residual",
    "the residual is taken after the norm: norm(x) + sublayer(norm(x)) loses x itself",
)
def residual_after_norm(x, sublayer, norm, placement="pre", alpha=1.0):
    if placement == "pre":
        normed = norm(x)
        return normed + sublayer(normed)
    return reference.residual(x, sublayer, norm, placement, alpha)


@mistake("residual", "x is not added: what the sublayer leaves out is lost")
def no_residual(x, sublayer, norm, placement="pre", alpha=1.0):
    if placement == "pre":
        return sublayer(norm(x))
    if placement == "post":
        return norm(sublayer(x))
    return reference.residual(x, sublayer, norm, placement, alpha)


@mistake("residual", "pre and post are swapped")
def pre_and_post_swapped(x, sublayer, norm, placement="pre", alpha=1.0):
    swapped = {"pre": "post", "post": "pre"}.get(placement, placement)
    return reference.residual(x, sublayer, norm, swapped, alpha)


@mistake(
    "residual", "post-norm normalises the sublayer's output before x is added, not the sum"
)
def post_norm_before_the_sum(x, sublayer, norm, placement="pre", alpha=1.0):
    if placement == "post":
        return x + norm(sublayer(x))
    return reference.residual(x, sublayer, norm, placement, alpha)


@mistake(
    "residual", "the second norm of the sandwich stands after the addition instead of before it"
)
def sandwich_around_the_sum(x, sublayer, norm, placement="pre", alpha=1.0):
    if placement == "sandwich":
        return norm(x + sublayer(norm(x)))
    return reference.residual(x, sublayer, norm, placement, alpha)


@mistake("residual", "DeepNorm's alpha is not used")
def alpha_ignored(x, sublayer, norm, placement="pre", alpha=1.0):
    return reference.residual(x, sublayer, norm, placement, 1.0)


@mistake(
    "residual", "DeepNorm's alpha multiplies the sublayer: it belongs to x, the residual branch"
)
def alpha_on_the_sublayer(x, sublayer, norm, placement="pre", alpha=1.0):
    if placement == "deepnorm":
        return norm(x + alpha * sublayer(x))
    return reference.residual(x, sublayer, norm, placement, alpha)


@mistake("residual", "alpha is applied in every placement: only DeepNorm has it")
def alpha_everywhere(x, sublayer, norm, placement="pre", alpha=1.0):
    if placement == "deepnorm":
        return reference.residual(x, sublayer, norm, placement, alpha)
    if placement == "pre":
        return alpha * x + sublayer(norm(x))
    if placement == "post":
        return norm(alpha * x + sublayer(x))
    return alpha * x + norm(sublayer(norm(x)))


@mistake("residual", "an unknown placement is taken for pre-norm in silence")
def unknown_placement_accepted(x, sublayer, norm, placement="pre", alpha=1.0):
    known = placement in ("pre", "post", "sandwich", "deepnorm")
    return reference.residual(x, sublayer, norm, placement if known else "pre", alpha)


@mistake("residual", "an unknown placement raises another error than ValueError")
def unknown_placement_raises_key_error(x, sublayer, norm, placement="pre", alpha=1.0):
    if placement not in ("pre", "post", "sandwich", "deepnorm"):
        raise KeyError(placement)
    return reference.residual(x, sublayer, norm, placement, alpha)


@mistake("residual", "the norm is left out before the sublayer")
def pre_norm_without_norm(x, sublayer, norm, placement="pre", alpha=1.0):
    if placement == "pre":
        return x + sublayer(x)
    return reference.residual(x, sublayer, norm, placement, alpha)


@mistake("residual", "the default placement is not pre")
def another_default_placement(x, sublayer, norm, placement="post", alpha=1.0):
    return reference.residual(x, sublayer, norm, placement, alpha)


@mistake("residual", "x is changed in place: += writes into the caller's tensor")
def added_in_place(x, sublayer, norm, placement="pre", alpha=1.0):
    if placement == "pre":
        x += sublayer(norm(x))
        return x
    return reference.residual(x, sublayer, norm, placement, alpha)
