"""Lab 11: post-training.

A trained model continues texts. Teach it to answer, with few weights, and with a reward.

Shapes: B texts in a batch, T tokens, V vocab_size, R rank, G answers per question.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .generation import generate
from .training import causal_lm_loss  # noqa: F401  the notebook trains with it

IGNORE = -100  # a label that does not count, in the loss of lab 08


# %% exercise 11.1: answer_labels
def answer_labels(
    input_ids: Tensor,
    header: Sequence[int],
    end_of_turn: int,
    attention_mask: Tensor | None = None,
) -> Tensor:
    """Labels for a chat, so that the loss falls on the answers alone.

    An answer begins after the header (the tokens of "<|im_start|>assistant" and the line
    break) and goes to the next end_of_turn, which is a part of it: the model has to learn to
    stop. A text may hold several answers, or none; one that is cut off in the middle of an
    answer counts to its end. Everything else is -100: the header, the user's turns, the
    template between two turns, and padding, where attention_mask is 0. The padding token may
    be end_of_turn itself.

    The labels are not shifted: the loss of lab 08 compares position t with label t + 1.

    Shapes: input_ids and attention_mask (B, T) -> (B, T), whole numbers, a new tensor
    """
    # YOUR CODE HERE (about 11 lines)
    raise NotImplementedError("Exercise 11.1: answer_labels")


# %% exercise 11.2: LoRALinear, add_lora, merge
class LoRALinear(nn.Module):
    """A linear layer whose weight stays as it is, beside two small matrices that learn.

        y = base_layer(x) + (lora_alpha / r) * x A^T B^T

    base_layer is the layer, frozen: none of its parameters asks for a gradient.
    lora_A (r, in) and lora_B (out, r) are linear layers without bias, of the dtype and on the
    device of the base layer's weight. A begins as small random numbers, no two rows alike, as
    nn.Linear draws them, and B as zeros: at first the layer is the one that it was put on.

    Shapes: (..., in) -> (..., out)
    Source: Hu et al. 2021, https://arxiv.org/abs/2106.09685; the names are those of PEFT
    """

    def __init__(self, base_layer: nn.Linear, r: int = 8, lora_alpha: float = 16.0):
        super().__init__()
        # YOUR CODE HERE (about 7 lines)
        raise NotImplementedError("Exercise 11.2: LoRALinear, add_lora, merge")

    def forward(self, x: Tensor) -> Tensor:
        # YOUR CODE HERE (about 1 line)
        raise NotImplementedError("Exercise 11.2: LoRALinear, add_lora, merge")

    def merged(self) -> nn.Linear:
        """A plain linear layer that computes the same: its weight is W + scaling * B A.

        The weights of this layer stay as they are. The new one has the base layer's dtype and
        its bias, if there is one; its parameters ask for gradients, as those of nn.Linear do.
        """
        # YOUR CODE HERE (about 8 lines)
        raise NotImplementedError("Exercise 11.2: LoRALinear, add_lora, merge")


def add_lora(
    model: nn.Module,
    r: int = 8,
    lora_alpha: float = 16.0,
    target_modules: Sequence[str] = ("q_proj", "v_proj"),
) -> list[str]:
    """Freeze a model and put LoRA on every linear layer that has one of these names.

    The name is the last part of the layer's path: "q_proj" means every layer's. The model is
    changed in place: its own parameters no longer ask for gradients, those of the new
    matrices do. Returns the paths of the layers, in the model's order.

    Errors: no layer has such a name: ValueError, before anything is changed
    """
    found = [
        path
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and path.rpartition(".")[2] in target_modules
    ]
    if not found:
        raise ValueError(f"no linear layer of the model is called {list(target_modules)}")
    # YOUR CODE HERE (about 6 lines)
    raise NotImplementedError("Exercise 11.2: LoRALinear, add_lora, merge")


def merge(model: nn.Module) -> list[str]:
    """Replace every LoRALinear of a model by the plain layer that computes the same.

    The model is changed in place and has its old layout again: a checkpoint of it needs no
    code for LoRA. Returns the paths of these layers, in the model's order.
    """
    # YOUR CODE HERE (about 5 lines)
    raise NotImplementedError("Exercise 11.2: LoRALinear, add_lora, merge")


# %% given: what an adapter's file holds
def lora_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """The new matrices alone, under the names of PEFT's adapter_model.safetensors."""
    state = model.state_dict()
    return {f"base_model.model.{key}": state[key] for key in state if ".lora_" in key}


# %% exercise 11.3: token_log_probs, group_advantages, policy_loss
def token_log_probs(logits: Tensor, input_ids: Tensor, temperature: float = 1.0) -> Tensor:
    """The log-probability of every token but the first, given those before it.

    The temperature is the one with which the tokens were drawn: the logits are divided by it.

    Shapes: logits (B, T, V), input_ids (B, T) -> (B, T - 1); entry t is that of token t + 1
    dtype:  float32; logits in half precision are widened first
    """
    # YOUR CODE HERE (about 2 lines)
    raise NotImplementedError("Exercise 11.3: token_log_probs, group_advantages, policy_loss")


def group_advantages(
    rewards: Tensor, group_size: int, scale_rewards: bool = True, eps: float = 1e-4
) -> Tensor:
    """How much better each answer is than the others to the same question.

    Neighbors form a group: the first group_size rewards are those of the first question. Of
    each reward the mean of its group is subtracted; with scale_rewards the difference is
    divided by the group's standard deviation + eps (torch's own std, which divides by
    G - 1). A group of equal rewards gives zeros.

    Shapes: rewards (N,), N a multiple of group_size -> (N,)
    Errors: group_size below 2, or N no multiple of it: ValueError
    Source: Shao et al. 2024, https://arxiv.org/abs/2402.03300
    """
    if group_size < 2 or rewards.numel() % group_size:
        raise ValueError(f"{rewards.numel()} rewards are no groups of {group_size} (2 or more)")
    # YOUR CODE HERE (about 5 lines)
    raise NotImplementedError("Exercise 11.3: token_log_probs, group_advantages, policy_loss")


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    loss_type: str = "grpo",
    max_length: int | None = None,
    ref_log_probs: Tensor | None = None,
    beta: float = 0.0,
) -> Tensor:
    """GRPO's loss: make the tokens of good answers likelier, but not by much at a time.

    With ratio = exp(log_probs - old_log_probs) a token's loss is

        - min(ratio * advantage, clip(ratio, 1 - clip_low, 1 + clip_high) * advantage)

    and, where ref_log_probs are given, beta * (exp(d) - d - 1) more, d = ref_log_probs -
    log_probs: an estimate of the KL divergence from the reference model. All tokens of an
    answer share its advantage. loss_type says how they add up to one number:

        "grpo"     the mean over each answer's tokens, then the mean over the B answers
        "dapo"     the mean over all tokens of the batch: a long answer counts more
        "dr_grpo"  the sum of all tokens, divided by B * max_length (T, where it is None)
        "gspo"     as "grpo", but all tokens of an answer share one ratio: exp of the mean of
                   log_probs - old_log_probs over its tokens (Zheng et al. 2025)

    Tokens with mask 0 are no part of an answer: whatever their numbers are, inf and NaN
    included, they change neither the loss nor a gradient. An answer without a token counts 0.

    Shapes: log_probs, old_log_probs, ref_log_probs and mask (B, T), advantages (B,)
            -> scalar; gradients flow to log_probs alone
    Errors: another loss_type: ValueError
    Source: DeepSeekMath (Shao et al. 2024), https://arxiv.org/abs/2402.03300
    """
    if loss_type not in ("grpo", "dapo", "dr_grpo", "gspo"):
        raise ValueError(f"loss_type is {loss_type!r}; expected grpo, dapo, dr_grpo or gspo")
    # YOUR CODE HERE (about 20 lines)
    raise NotImplementedError("Exercise 11.3: token_log_probs, group_advantages, policy_loss")


# %% exercise 11.4: grpo_step
def grpo_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    input_ids: Tensor,
    attention_mask: Tensor,
    reward: Callable[[list[int]], float],
    group_size: int,
    max_new_tokens: int,
    eos_token_id: Sequence[int],
    pad_token_id: int = 0,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    updates: int = 1,
    scale_rewards: bool = True,
    loss_type: str = "dapo",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    max_grad_norm: float = 1.0,
) -> dict[str, float]:
    """Let the model answer, ask for the rewards, learn from them.

    1. Every question is repeated group_size times, its copies side by side, and `generate`
       of lab 07 answers all of them in one call, with this temperature and generator.
    2. reward is called once per answer, in their order, with the list of its token ids up to
       and with the first of eos_token_id, without prompt and padding.
    3. The advantages are those of group_advantages.
    4. `updates` times: the log-probabilities of the answers at that temperature, the loss
       of policy_loss, its gradients alone, clipped to max_grad_norm, one step of the
       optimizer. old_log_probs are those before the first of these steps. max_length of the
       loss is max_new_tokens. The stop token is a part of the answer.

    Shapes: input_ids and attention_mask (Q, T), padded on the left
            -> {"reward": their mean, "groups": the share of groups whose rewards differ,
            "length": the mean number of tokens per answer, "loss" and "grad_norm" of the
            first update, the norm before clipping}, plain numbers
    """
    # YOUR CODE HERE (about 35 lines)
    raise NotImplementedError("Exercise 11.4: grpo_step")


# %% exercise 11.5: dpo_loss
def dpo_loss(
    log_probs: Tensor, ref_log_probs: Tensor, mask: Tensor, beta: float = 0.1
) -> tuple[Tensor, Tensor]:
    """Learn from pairs of answers, of which somebody preferred the first: no reward at all.

    The first B rows are the preferred answers, the last B rows the rejected ones to the same
    questions, in the same order. With logp the sum over an answer's tokens (mask 1) and

        margin = beta * ((logp - ref_logp of preferred) - (logp - ref_logp of rejected))

    the loss is the mean of -log sigmoid(margin), which stays exact for margins far below 0.
    Tokens with mask 0 do not count, whatever their numbers are, inf and NaN included.

    Shapes: log_probs, ref_log_probs and mask (2B, T) -> loss, a scalar, and margin (B,);
            the loss's gradients flow to log_probs alone; the margin may have none
    Source: Rafailov et al. 2023, https://arxiv.org/abs/2305.18290
    """
    # YOUR CODE HERE (about 4 lines)
    raise NotImplementedError("Exercise 11.5: dpo_loss")


# %% exercise 11.6: WebLoRA
class WebLoRA(nn.Module):
    """Begin as base_layer, whose weights stay; with every step both matrices can learn more."""

    def __init__(self, base_layer: nn.Linear, r: int = 4):
        super().__init__()
        self.base_layer = base_layer.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.zeros(r, base_layer.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base_layer.out_features, r))
        nn.init.zeros_(self.lora_A)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + x @ self.lora_A.T @ self.lora_B.T


# %% exercise 11.7: ratios
@torch.enable_grad()
def ratios(scores: Tensor, ids: Tensor, updates: int = 4) -> list[float]:
    """Take steps on one answer, and return the share of clipped tokens of each.

    All ratios compare with the log-probabilities before the first step.

    Shapes: scores (1, T, V), ids (1, T)
    """
    old, cut = None, []
    for _ in range(updates):
        scores = scores.detach().requires_grad_()
        log_probs = token_log_probs(scores, ids)  # (1, T - 1)
        old = log_probs.detach()
        ratio = (log_probs - old).exp()
        cut.append(((ratio - 1).abs() > 0.2).float().mean().item())
        mask = torch.ones_like(log_probs)
        loss = policy_loss(log_probs, old, torch.ones(1), mask)
        (grad,) = torch.autograd.grad(loss, scores)
        scores = scores - 3 * grad
    return cut


# %% exercise 11.8: web_loss
def web_loss(
    logits: Tensor,
    old: Tensor,
    ids: Tensor,
    start: int,
    advantages: Tensor,
    temperature: float,
) -> Tensor:
    """Compute minus the mean of ratio times advantage over the tokens of the answers.

    The answers begin at place `start` of ids and were drawn at this temperature; old holds
    their log-probabilities then.

    Shapes: logits (B, T, V), old (B, T - 1), ids (B, T), advantages (B,) -> scalar
    """
    places = torch.arange(ids.size(1) - 1)
    counts = (places >= start).float()
    scores = logits[:, :-1].log_softmax(-1)
    new = scores.gather(-1, ids[:, 1:, None])[..., 0]  # (B, T - 1)
    ratio = (old - new).exp()
    loss = -(ratio * advantages[:, None] * counts).sum()
    return loss / (counts.sum() * len(ids))
