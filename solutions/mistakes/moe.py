"""Lab 05: wrong versions of the router, of the block of experts and of the balance loss."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from solutions import moe as reference
from solutions.mistakes import mistake, remark
from solutions.moe import Qwen3MLP, route


@mistake(
    "route",
    "softmax runs over the chosen logits alone: it belongs over all experts, before the top k",
)
def softmax_after_topk(router_logits, top_k, norm_topk_prob):
    best, chosen = router_logits.float().topk(top_k, dim=-1)
    return best.softmax(dim=-1).to(router_logits.dtype), chosen


@mistake("route", "the chosen logits serve as weights: without norm_topk_prob, softmax is lost")
def logits_for_weights(router_logits, top_k, norm_topk_prob):
    best, chosen = router_logits.topk(top_k, dim=-1)
    if norm_topk_prob:
        best = best.softmax(dim=-1, dtype=torch.float32).to(router_logits.dtype)
    return best, chosen


@mistake("route", "there is no softmax: the logits themselves are taken for probabilities")
def no_softmax(router_logits, top_k, norm_topk_prob):
    weights, chosen = router_logits.float().topk(top_k, dim=-1)
    if norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights.to(router_logits.dtype), chosen


@mistake(
    "route", "the weights are never divided by their sum, though norm_topk_prob asks for it"
)
def never_renormalised(router_logits, top_k, norm_topk_prob):
    return reference.route(router_logits, top_k, False)


@mistake(
    "route", "the weights are always divided by their sum, also where norm_topk_prob is False"
)
def always_renormalised(router_logits, top_k, norm_topk_prob):
    weights, chosen = router_logits.softmax(dim=-1, dtype=torch.float32).topk(top_k, dim=-1)
    weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
    return weights.to(router_logits.dtype), chosen


@mistake("route", "norm_topk_prob is read the wrong way round")
def flag_inverted(router_logits, top_k, norm_topk_prob):
    return reference.route(router_logits, top_k, not norm_topk_prob)


@mistake("route", "the weights are divided by one sum over all tokens: every token has its own")
def one_sum_for_all(router_logits, top_k, norm_topk_prob):
    weights, chosen = router_logits.softmax(dim=-1, dtype=torch.float32).topk(top_k, dim=-1)
    if norm_topk_prob:
        weights = weights / weights.sum()
    return weights.to(router_logits.dtype), chosen


@mistake("route", "the sum runs over the tokens (dim 0) instead of over each token's k weights")
def sum_over_tokens(router_logits, top_k, norm_topk_prob):
    weights, chosen = router_logits.softmax(dim=-1, dtype=torch.float32).topk(top_k, dim=-1)
    if norm_topk_prob:
        weights = weights / weights.sum(dim=0, keepdim=True)
    return weights.to(router_logits.dtype), chosen


@mistake("route", "keepdim=True is missing in the sum, so that it lines up with the wrong axis")
def keepdim_forgotten(router_logits, top_k, norm_topk_prob):
    weights, chosen = router_logits.softmax(dim=-1, dtype=torch.float32).topk(top_k, dim=-1)
    if norm_topk_prob:
        weights = weights / weights.sum(dim=-1)
    return weights.to(router_logits.dtype), chosen


@mistake("route", "softmax runs over the tokens (dim 0) instead of over the experts")
def softmax_over_tokens(router_logits, top_k, norm_topk_prob):
    weights, chosen = router_logits.softmax(dim=0, dtype=torch.float32).topk(top_k, dim=-1)
    if norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights.to(router_logits.dtype), chosen


@mistake("route", "softmax is taken twice: once over all experts, once more over the chosen")
def softmax_twice(router_logits, top_k, norm_topk_prob):
    weights, chosen = router_logits.softmax(dim=-1, dtype=torch.float32).topk(top_k, dim=-1)
    if norm_topk_prob:
        weights = weights.softmax(dim=-1)
    return weights.to(router_logits.dtype), chosen


@mistake("route", "sigmoid stands in the place of softmax: DeepSeek-V3 does so, Qwen3 does not")
def sigmoid_for_softmax(router_logits, top_k, norm_topk_prob):
    weights, chosen = router_logits.float().sigmoid().topk(top_k, dim=-1)
    if norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights.to(router_logits.dtype), chosen


@mistake("route", "the least probable experts are chosen instead of the most probable")
def smallest_chosen(router_logits, top_k, norm_topk_prob):
    probs = router_logits.softmax(dim=-1, dtype=torch.float32)
    weights, chosen = probs.topk(top_k, dim=-1, largest=False)
    if norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights.to(router_logits.dtype), chosen


@mistake("route", "the right experts come in ascending order: the best one stands first")
def worst_first(router_logits, top_k, norm_topk_prob):
    weights, chosen = reference.route(router_logits, top_k, norm_topk_prob)
    return weights.flip(-1), chosen.flip(-1)


@mistake("route", "the experts come in the order of their index: the best one stands first")
def sorted_by_index(router_logits, top_k, norm_topk_prob):
    weights, chosen = reference.route(router_logits, top_k, norm_topk_prob)
    chosen, order = chosen.sort(dim=-1)
    return weights.gather(-1, order), chosen


@mistake("route", "the two results are swapped: weights come first, then the chosen experts")
def results_swapped(router_logits, top_k, norm_topk_prob):
    weights, chosen = reference.route(router_logits, top_k, norm_topk_prob)
    return chosen, weights


@mistake(
    "route", "the weights of all X experts come back: (N, k) was asked for, the chosen ones"
)
def all_weights(router_logits, top_k, norm_topk_prob):
    weights, chosen = reference.route(router_logits, top_k, norm_topk_prob)
    return torch.zeros_like(router_logits).scatter(-1, chosen, weights), chosen


@mistake(
    "route", "the weights stay in float32 instead of going back to the dtype of the logits"
)
def weights_not_cast_back(router_logits, top_k, norm_topk_prob):
    return reference.route(router_logits.float(), top_k, norm_topk_prob)


@mistake(
    "route",
    "softmax is rounded to the dtype of the logits: experts that are close become equal, and "
    "which of them is picked is chance",
)
def softmax_in_half(router_logits, top_k, norm_topk_prob):
    weights, chosen = router_logits.softmax(dim=-1).topk(top_k, dim=-1)
    if norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights, chosen


@mistake(
    "route", "exp is taken of the bare logits: large ones overflow; subtract the maximum first"
)
def bare_exp(router_logits, top_k, norm_topk_prob):
    raised = router_logits.float().exp()
    weights, chosen = (raised / raised.sum(dim=-1, keepdim=True)).topk(top_k, dim=-1)
    if norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights.to(router_logits.dtype), chosen


@mistake("route", "top_k is not used: a fixed number of experts, 2, is picked")
def always_two(router_logits, top_k, norm_topk_prob):
    return reference.route(router_logits, min(2, router_logits.size(-1)), norm_topk_prob)


@mistake(
    "route", "no gradient flows through the weights: a detach or no_grad stands in the way"
)
def weights_detached(router_logits, top_k, norm_topk_prob):
    return reference.route(router_logits.detach(), top_k, norm_topk_prob)


@mistake("route", "the logits are changed in place: -= writes into the caller's tensor")
def logits_changed(router_logits, top_k, norm_topk_prob):
    with torch.no_grad():
        router_logits -= router_logits.max(dim=-1, keepdim=True).values
    return reference.route(router_logits, top_k, norm_topk_prob)


@mistake(
    "route", "the arguments stand in another order than router_logits, top_k, norm_topk_prob"
)
def arguments_in_another_order(router_logits, norm_topk_prob, top_k):
    return reference.route(router_logits, top_k, norm_topk_prob)


@remark("route", "you divide in the dtype of the logits; Qwen3 divides in float32 and casts last. "
        "In half precision that is a unit in the last place, and costs nothing here")  # fmt: skip
def cast_before_the_division(router_logits, top_k, norm_topk_prob):
    probs = router_logits.softmax(dim=-1, dtype=torch.float32)
    weights, chosen = probs.topk(top_k, dim=-1)
    weights = weights.to(router_logits.dtype)
    if norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights, chosen


class Variant(reference.Qwen3MoeSparseMoeBlock):
    """The constructor and the outer steps that most wrong versions get right."""

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        tokens = hidden_states.flatten(0, 1)
        router_logits = self.gate(tokens)
        weights, chosen = route(router_logits, self.top_k, self.norm_topk_prob)
        mixed = self.mix(tokens, weights, chosen)
        return mixed.view_as(hidden_states), router_logits

    def mix(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        mixed = torch.zeros_like(tokens)
        for expert in chosen.unique().tolist():
            token, slot = torch.where(chosen == expert)
            said = self.experts[expert](tokens[token])
            mixed.index_add_(0, token, said * weights[token, slot, None])
        return mixed


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "every expert runs on every token and weights of 0 hide it: X / k times the work",
)
class EveryExpertOnEveryToken(Variant):
    def mix(self, tokens, weights, chosen):
        spread = torch.zeros(len(tokens), len(self.experts), dtype=tokens.dtype)
        spread = spread.scatter(1, chosen, weights)
        every = torch.stack([expert(tokens) for expert in self.experts], dim=1)
        return (spread[..., None] * every).sum(dim=1)


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "an expert that somebody picked runs on all tokens, not on those that picked it",
)
class ChosenExpertsOnEveryToken(Variant):
    def mix(self, tokens, weights, chosen):
        mixed = torch.zeros_like(tokens)
        for expert in chosen.unique().tolist():
            weight = (weights * (chosen == expert)).sum(dim=-1, keepdim=True)
            mixed = mixed + weight * self.experts[expert](tokens)
        return mixed


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "every expert runs on every token and what nobody asked for is masked away: the work is "
    "done all the same, and NaN comes back through the gradient",
)
class MaskedAfterwards(Variant):
    def mix(self, tokens, weights, chosen):
        mixed = torch.zeros_like(tokens)
        for expert in range(len(self.experts)):
            picked = chosen == expert
            weight = (weights * picked).sum(dim=-1, keepdim=True)
            said = self.experts[expert](tokens) * weight
            mixed = mixed + torch.where(picked.any(dim=-1, keepdim=True), said, 0.0)
        return mixed


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "the sum starts from torch.empty_like and adds to whatever the memory held: start from zeros",
)
class BufferNotInitialised(Variant):
    def mix(self, tokens, weights, chosen):
        mixed = torch.empty_like(tokens)
        for expert in chosen.unique().tolist():
            token, slot = torch.where(chosen == expert)
            said = self.experts[expert](tokens[token])
            mixed.index_add_(0, token, said * weights[token, slot, None])
        return mixed


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "the sum is a float32 buffer whatever the input: it takes no bfloat16 or changes the dtype",
)
class BufferInFloat32(Variant):
    def mix(self, tokens, weights, chosen):
        mixed = torch.zeros(tokens.shape)
        for expert in chosen.unique().tolist():
            token, slot = torch.where(chosen == expert)
            said = self.experts[expert](tokens[token])
            mixed.index_add_(0, token, said * weights[token, slot, None])
        return mixed


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "`mixed[token] += ...` meets a token more than once in one index and keeps one of its "
    "experts: index_add_ adds them all",
)
class RepeatedIndex(Variant):
    def mix(self, tokens, weights, chosen):
        mixed = torch.zeros_like(tokens)
        token = torch.arange(len(tokens)).repeat_interleave(self.top_k)
        pairs = zip(token.tolist(), chosen.flatten().tolist(), strict=True)
        said = torch.stack([self.experts[expert](tokens[t]) for t, expert in pairs])
        mixed[token] += said * weights.flatten()[:, None]
        return mixed


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "what an expert says replaces what another said before: add it, do not assign it",
)
class OverwrittenInsteadOfAdded(Variant):
    def mix(self, tokens, weights, chosen):
        mixed = torch.zeros_like(tokens)
        for expert in chosen.unique().tolist():
            token, slot = torch.where(chosen == expert)
            said = self.experts[expert](tokens[token])
            mixed[token] = said * weights[token, slot, None]
        return mixed


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "tokens are sorted by expert and the results never sorted back to their tokens",
)
class OrderNotUndone(Variant):
    def mix(self, tokens, weights, chosen):
        said = torch.zeros_like(tokens).repeat_interleave(self.top_k, dim=0)
        start = 0
        for expert in chosen.unique().tolist():
            token, slot = torch.where(chosen == expert)
            part = self.experts[expert](tokens[token]) * weights[token, slot, None]
            said[start : start + len(token)] = part
            start += len(token)
        return said.view(len(tokens), self.top_k, -1).sum(dim=1)


@mistake("Qwen3MoeSparseMoeBlock", "the experts' results are added up without their weights")
class WeightsIgnored(Variant):
    def mix(self, tokens, weights, chosen):
        return super().mix(tokens, torch.ones_like(weights), chosen)


@mistake(
    "Qwen3MoeSparseMoeBlock", "the plain mean of the chosen experts is taken: weights count"
)
class PlainMean(Variant):
    def mix(self, tokens, weights, chosen):
        return super().mix(tokens, torch.full_like(weights, 1 / self.top_k), chosen)


@mistake("Qwen3MoeSparseMoeBlock", "the weighted sum is divided by k once more")
class DividedByTopK(Variant):
    def mix(self, tokens, weights, chosen):
        return super().mix(tokens, weights, chosen) / self.top_k


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "the weight multiplies what goes into the expert, not what comes out of it",
)
class WeightOnTheInput(Variant):
    def mix(self, tokens, weights, chosen):
        mixed = torch.zeros_like(tokens)
        for expert in chosen.unique().tolist():
            token, slot = torch.where(chosen == expert)
            said = self.experts[expert](tokens[token] * weights[token, slot, None])
            mixed.index_add_(0, token, said)
        return mixed


@mistake("Qwen3MoeSparseMoeBlock", "only the best expert of each token is heard, not all k")
class OnlyTheBest(Variant):
    def mix(self, tokens, weights, chosen):
        return super().mix(tokens, weights[:, :1], chosen[:, :1])


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "every expert of a token gets the weight of its best one: mind the slot, `weights[token, slot]`",
)
class FirstWeightForAll(Variant):
    def mix(self, tokens, weights, chosen):
        return super().mix(tokens, weights[:, :1].expand_as(weights), chosen)


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "the loop runs over range(top_k), so that only the first k experts ever speak",
)
class LoopOverTopK(Variant):
    def mix(self, tokens, weights, chosen):
        mixed = torch.zeros_like(tokens)
        for expert in range(self.top_k):
            token, slot = torch.where(chosen == expert)
            said = self.experts[expert](tokens[token])
            mixed.index_add_(0, token, said * weights[token, slot, None])
        return mixed


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "an expert takes N * k / X tokens at most and drops the rest: Qwen3 has no such capacity",
)
class CapacityDrops(Variant):
    def mix(self, tokens, weights, chosen):
        mixed = torch.zeros_like(tokens)
        capacity = -(-chosen.numel() // len(self.experts))
        for expert in chosen.unique().tolist():
            token, slot = torch.where(chosen == expert)
            token, slot = token[:capacity], slot[:capacity]
            said = self.experts[expert](tokens[token])
            mixed.index_add_(0, token, said * weights[token, slot, None])
        return mixed


@mistake(
    "Qwen3MoeSparseMoeBlock", "the input is added to the result: the decoder layer does that"
)
class ResidualInside(Variant):
    def mix(self, tokens, weights, chosen):
        return tokens + super().mix(tokens, weights, chosen)


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "the sum is written into the input itself, in place: make a tensor of zeros for it",
)
class InPlace(Variant):
    def mix(self, tokens, weights, chosen):
        mixed = super().mix(tokens, weights, chosen)
        with torch.no_grad():
            tokens.copy_(mixed)
        return mixed


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "the tokens are lined up with B and T exchanged and then read back in the other order",
)
class BatchAndTokensExchanged(reference.Qwen3MoeSparseMoeBlock):
    def forward(self, hidden_states):
        mixed, router_logits = super().forward(hidden_states.transpose(0, 1))
        return mixed.reshape(hidden_states.shape), router_logits


@mistake(
    "Qwen3MoeSparseMoeBlock", "the result stays flat, (N, E): give it the shape that came in"
)
class ResultStaysFlat(reference.Qwen3MoeSparseMoeBlock):
    def forward(self, hidden_states):
        mixed, router_logits = super().forward(hidden_states)
        return mixed.flatten(0, 1), router_logits


@mistake("Qwen3MoeSparseMoeBlock", "the router's logits keep the axes B and T: they are (N, X)")
class LogitsNotFlat(reference.Qwen3MoeSparseMoeBlock):
    def forward(self, hidden_states):
        mixed, router_logits = super().forward(hidden_states)
        return mixed, router_logits.view(*hidden_states.shape[:2], -1)


@mistake("Qwen3MoeSparseMoeBlock", "the two results are swapped: what was mixed comes first")
class ResultsSwapped(reference.Qwen3MoeSparseMoeBlock):
    def forward(self, hidden_states):
        mixed, router_logits = super().forward(hidden_states)
        return router_logits, mixed


@mistake("Qwen3MoeSparseMoeBlock", "the router's logits are not returned: two results are due")
class LogitsNotReturned(reference.Qwen3MoeSparseMoeBlock):
    def forward(self, hidden_states):
        return super().forward(hidden_states)[0]


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "probabilities are returned in the place of logits: the balance loss takes softmax itself",
)
class ProbabilitiesReturned(reference.Qwen3MoeSparseMoeBlock):
    def forward(self, hidden_states):
        mixed, router_logits = super().forward(hidden_states)
        return mixed, router_logits.softmax(dim=-1)


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "softmax is taken before route, which takes it once more: route wants logits",
)
class SoftmaxBeforeRoute(Variant):
    def forward(self, hidden_states):
        tokens = hidden_states.flatten(0, 1)
        router_logits = self.gate(tokens).softmax(dim=-1)
        weights, chosen = route(router_logits, self.top_k, self.norm_topk_prob)
        return self.mix(tokens, weights, chosen).view_as(hidden_states), router_logits


@mistake(
    "Qwen3MoeSparseMoeBlock", "route is always told to renormalise: norm_topk_prob decides"
)
class AlwaysRenormalised(Variant):
    def __init__(self, config):
        super().__init__(config)
        self.norm_topk_prob = True


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "the weights are not renormalised: norm_topk_prob does not get through, or route forgets it",
)
class NeverRenormalised(Variant):
    def __init__(self, config):
        super().__init__(config)
        self.norm_topk_prob = False


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "the router learns nothing from the experts: a detach or no_grad cuts the weights off",
)
class WeightsCutOff(Variant):
    def mix(self, tokens, weights, chosen):
        return super().mix(tokens, weights.detach(), chosen)


@mistake("Qwen3MoeSparseMoeBlock", "the router has a bias: Qwen3's has none")
class RouterWithBias(Variant):
    def __init__(self, config):
        super().__init__(config)
        self.gate = nn.Linear(config.hidden_size, config.num_experts)


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "the experts have the size intermediate_size: theirs is moe_intermediate_size",
)
class ExpertsOfDenseSize(Variant):
    def __init__(self, config):
        super().__init__(config)
        self.experts = nn.ModuleList(Qwen3MLP(config) for _ in range(config.num_experts))


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "there is a shared expert for every token: Qwen2-MoE and DeepSeek have one, Qwen3 has none",
)
class SharedExpert(Variant):
    def __init__(self, config):
        super().__init__(config)
        self.shared_expert = Qwen3MLP(config, config.moe_intermediate_size)

    def mix(self, tokens, weights, chosen):
        return super().mix(tokens, weights, chosen) + self.shared_expert(tokens)


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "the experts lie in a Python list: only an nn.ModuleList shows their parameters to PyTorch",
)
class ExpertsInAList(Variant):
    def __init__(self, config):
        super().__init__(config)
        del self.experts
        size, count = config.moe_intermediate_size, config.num_experts
        self.experts = [Qwen3MLP(config, size) for _ in range(count)]


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "one and the same expert is repeated: [Qwen3MLP(...)] * X makes no copies",
)
class OneExpertRepeated(Variant):
    def __init__(self, config):
        super().__init__(config)
        expert = Qwen3MLP(config, config.moe_intermediate_size)
        self.experts = nn.ModuleList([expert] * config.num_experts)


@mistake(
    "Qwen3MoeSparseMoeBlock",
    "the router is not called gate: a checkpoint finds its tensors by name",
)
class RouterCalledRouter(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.top_k, self.norm_topk_prob = config.num_experts_per_tok, config.norm_topk_prob
        size = config.moe_intermediate_size
        self.router = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = nn.ModuleList(Qwen3MLP(config, size) for _ in range(config.num_experts))

    def forward(self, hidden_states):
        tokens = hidden_states.flatten(0, 1)
        router_logits = self.router(tokens)
        weights, chosen = route(router_logits, self.top_k, self.norm_topk_prob)
        mixed = torch.zeros_like(tokens)
        for expert in chosen.unique().tolist():
            token, slot = torch.where(chosen == expert)
            said = self.experts[expert](tokens[token])
            mixed.index_add_(0, token, said * weights[token, slot, None])
        return mixed.view_as(hidden_states), router_logits


def parts(router_logits, top_k, attention_mask=None):
    """Probabilities, picks and what counts, over all layers: right."""
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    probs = torch.cat(layers).softmax(dim=-1, dtype=torch.float32)
    picks = F.one_hot(probs.topk(top_k, dim=-1).indices, probs.size(-1)).sum(dim=1).float()
    counts = torch.ones_like(probs[:, 0])
    if attention_mask is not None:
        counts = attention_mask.flatten().repeat(len(layers)).float()
    return probs, picks, counts


def combined(load, mean_prob):
    return load.size(-1) * (load * mean_prob).sum()


@mistake(
    "load_balancing_loss",
    "load is divided by N * k: divide the picks by N alone, so that even routing scores k",
)
def divided_by_top_k(router_logits, top_k, attention_mask=None):
    return reference.load_balancing_loss(router_logits, top_k, attention_mask) / top_k


@mistake("load_balancing_loss", "the factor X, the number of experts, is missing")
def number_of_experts_forgotten(router_logits, top_k, attention_mask=None):
    probs, picks, counts = parts(router_logits, top_k, attention_mask)
    return ((counts @ picks / counts.sum()) * (counts @ probs / counts.sum())).sum()


@mistake("load_balancing_loss", "the picks are counted and not divided by the number of tokens")
def load_is_a_count(router_logits, top_k, attention_mask=None):
    probs, picks, counts = parts(router_logits, top_k, attention_mask)
    return combined(counts @ picks, counts @ probs / counts.sum())


@mistake("load_balancing_loss", "only each token's first choice is counted, not all k of them")
def first_choice_only(router_logits, top_k, attention_mask=None):
    _, picks, counts = parts(router_logits, 1, attention_mask)
    probs, _, _ = parts(router_logits, top_k, attention_mask)
    return combined(counts @ picks / counts.sum(), counts @ probs / counts.sum())


@mistake(
    "load_balancing_loss",
    "every layer gets a loss of its own and the mean is taken: Qwen3 pools the tokens first",
)
def mean_over_layers(router_logits, top_k, attention_mask=None):
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    losses = [reference.load_balancing_loss(one, top_k, attention_mask) for one in layers]
    return torch.stack(losses).mean()


@mistake(
    "load_balancing_loss",
    "every layer gets a loss of its own and they are added up: Qwen3 pools the tokens first",
)
def sum_over_layers(router_logits, top_k, attention_mask=None):
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    losses = [reference.load_balancing_loss(one, top_k, attention_mask) for one in layers]
    return torch.stack(losses).sum()


@mistake("load_balancing_loss", "only the first layer is looked at")
def first_layer_only(router_logits, top_k, attention_mask=None):
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    return reference.load_balancing_loss(layers[0], top_k, attention_mask)


@mistake("load_balancing_loss", "only the last layer is looked at")
def last_layer_only(router_logits, top_k, attention_mask=None):
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    return reference.load_balancing_loss(layers[-1], top_k, attention_mask)


@mistake("load_balancing_loss", "padding counts as well: attention_mask is not used")
def padding_counted(router_logits, top_k, attention_mask=None):
    return reference.load_balancing_loss(router_logits, top_k)


@mistake(
    "load_balancing_loss", "attention_mask is read the wrong way round: 1 means that it counts"
)
def mask_inverted(router_logits, top_k, attention_mask=None):
    if attention_mask is not None:
        attention_mask = 1 - attention_mask
    return reference.load_balancing_loss(router_logits, top_k, attention_mask)


@mistake(
    "load_balancing_loss", "padding is left out of the mean probabilities but not of the load"
)
def mask_forgotten_in_load(router_logits, top_k, attention_mask=None):
    probs, picks, counts = parts(router_logits, top_k, attention_mask)
    return combined(picks.mean(dim=0), counts @ probs / counts.sum())


@mistake(
    "load_balancing_loss", "padding is left out of the load but not of the mean probabilities"
)
def mask_forgotten_in_probs(router_logits, top_k, attention_mask=None):
    probs, picks, counts = parts(router_logits, top_k, attention_mask)
    return combined(counts @ picks / counts.sum(), probs.mean(dim=0))


@mistake(
    "load_balancing_loss",
    "padding is set to zero, but the sums are still divided by all tokens: divide by those "
    "that count",
)
def divided_by_all_tokens(router_logits, top_k, attention_mask=None):
    probs, picks, counts = parts(router_logits, top_k, attention_mask)
    return combined(counts @ picks / len(counts), counts @ probs / len(counts))


@mistake(
    "load_balancing_loss",
    "the mask of 0 and 1 is used as an index: it picks rows 0 and 1; make it boolean first",
)
def mask_as_an_index(router_logits, top_k, attention_mask=None):
    probs, picks, _ = parts(router_logits, top_k)
    if attention_mask is not None:
        rows = attention_mask.flatten().repeat(len(probs) // attention_mask.numel())
        probs, picks = probs[rows.long()], picks[rows.long()]
    return combined(picks.mean(dim=0), probs.mean(dim=0))


@mistake(
    "load_balancing_loss",
    "the mask is used once for all layers: every layer has the same tokens, so repeat it",
)
def mask_not_repeated(router_logits, top_k, attention_mask=None):
    probs, picks, _ = parts(router_logits, top_k)
    if attention_mask is not None:
        kept = attention_mask.flatten().bool()
        probs, picks = probs[kept], picks[kept]
    return combined(picks.mean(dim=0), probs.mean(dim=0))


@mistake(
    "load_balancing_loss",
    "the mask is stretched with repeat_interleave: the layers stand one after the other, so "
    "the whole mask repeats",
)
def mask_interleaved(router_logits, top_k, attention_mask=None):
    probs, picks, counts = parts(router_logits, top_k)
    if attention_mask is not None:
        flat = attention_mask.flatten()
        counts = flat.repeat_interleave(len(probs) // len(flat)).float()
    return combined(counts @ picks / counts.sum(), counts @ probs / counts.sum())


@mistake("load_balancing_loss", "there is no softmax: the mean of the bare logits is taken")
def mean_of_logits(router_logits, top_k, attention_mask=None):
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    _, picks, counts = parts(router_logits, top_k, attention_mask)
    return combined(
        counts @ picks / counts.sum(), counts @ torch.cat(layers).float() / counts.sum()
    )


@mistake(
    "load_balancing_loss", "softmax runs over the tokens (dim 0) instead of over the experts"
)
def loss_softmax_over_tokens(router_logits, top_k, attention_mask=None):
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    probs = torch.cat(layers).float().softmax(dim=0)
    picks = F.one_hot(probs.topk(top_k, dim=-1).indices, probs.size(-1)).sum(dim=1).float()
    _, _, counts = parts(router_logits, top_k, attention_mask)
    return combined(counts @ picks / counts.sum(), counts @ probs / counts.sum())


@mistake(
    "load_balancing_loss",
    "the means run over the experts instead of over the tokens: a mean probability is then "
    "always 1 / X",
)
def means_over_experts(router_logits, top_k, attention_mask=None):
    probs, picks, _ = parts(router_logits, top_k, attention_mask)
    return probs.size(-1) * (picks.mean(dim=-1) * probs.mean(dim=-1)).sum()


@mistake(
    "load_balancing_loss",
    "the probabilities of experts that were not picked are left out of mean_prob: all count",
)
def chosen_probabilities_only(router_logits, top_k, attention_mask=None):
    probs, picks, counts = parts(router_logits, top_k, attention_mask)
    return combined(counts @ picks / counts.sum(), counts @ (probs * picks) / counts.sum())


@mistake(
    "load_balancing_loss", "load is multiplied by itself: that has no gradient, mean_prob has"
)
def load_squared(router_logits, top_k, attention_mask=None):
    _, picks, counts = parts(router_logits, top_k, attention_mask)
    load = counts @ picks / counts.sum()
    return combined(load, load)


@mistake(
    "load_balancing_loss", "mean_prob is multiplied by itself: what was picked never counts"
)
def mean_prob_squared(router_logits, top_k, attention_mask=None):
    probs, _, counts = parts(router_logits, top_k, attention_mask)
    mean_prob = counts @ probs / counts.sum()
    return combined(mean_prob, mean_prob)


@mistake(
    "load_balancing_loss", "no gradient reaches the logits: a detach or no_grad cuts them off"
)
def logits_cut_off(router_logits, top_k, attention_mask=None):
    with torch.no_grad():
        return reference.load_balancing_loss(router_logits, top_k, attention_mask)


@mistake("load_balancing_loss", "softmax and means are taken in the dtype of the logits")
def loss_in_half(router_logits, top_k, attention_mask=None):
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    probs = torch.cat(layers).softmax(dim=-1)
    _, picks, counts = parts(router_logits, top_k, attention_mask)
    load = counts @ picks / counts.sum()
    mean_prob = counts.to(probs.dtype) @ probs / counts.sum().to(probs.dtype)
    return combined(load, mean_prob.float())


@mistake(
    "load_balancing_loss", "the loss is rounded to the dtype of the logits: it stays float32"
)
def loss_cast_back(router_logits, top_k, attention_mask=None):
    layers = [router_logits] if isinstance(router_logits, Tensor) else list(router_logits)
    loss = reference.load_balancing_loss(router_logits, top_k, attention_mask)
    return loss.to(layers[0].dtype)
