"""Lab 13: thinking and measuring.

Let a model write down its steps, stop it in time, choose among its answers, teach a smaller
one, and find out which of two is better.

Shapes: B texts in a batch, T tokens, V vocab_size, Q questions.
"""

import math
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor, nn

from .generation import (
    KVCache,
    check_request,
    generate,
    sample_next_token,
)

IGNORE = -100  # a label that does not count, in the loss of lab 08


# %% exercise 13.1: fuse_modes
def fuse_modes(
    prompts: Sequence[Sequence[int]],
    thoughts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    think_flag: int,
    no_think_flag: int,
    open_think: int,
    close_think: int,
    eos_token_id: int,
    pad_token_id: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Training texts of both modes: every question once with its thought, once without.

        with      prompt  think_flag     open_think  thought  close_think  answer  eos
        without   prompt  no_think_flag  open_think           close_think  answer  eos

    B questions make 2B texts: the first B with thoughts, the last B without, both in the order
    of the questions. Labels are on what the model writes, from open_think to eos, so that it
    learns to write the empty thought as well; prompt, flag and padding have -100. Texts are
    padded on the right to the longest, with pad_token_id, which may occur in a text, too.
    A prompt, a thought or an answer may be empty.

    The labels are not shifted: the loss of lab 08 compares position t with label t + 1.

    Shapes: -> input_ids, attention_mask (1 for a token, 0 for padding) and labels, (2B, T) each
    dtype:  int64
    Errors: prompts, thoughts and answers of different counts: ValueError
    Source: Qwen3 (2025), section 4.3, https://arxiv.org/abs/2505.09388
    """
    if not len(prompts) == len(thoughts) == len(answers):
        counts = f"{len(prompts)} prompts, {len(thoughts)} thoughts, {len(answers)} answers"
        raise ValueError(f"{counts}: each question needs one of each")
    # YOUR CODE HERE (about 17 lines)
    raise NotImplementedError("Exercise 13.1: fuse_modes")


# %% exercise 13.2: generate_with_budget
@torch.no_grad()
def generate_with_budget(
    model: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    budget: int | None = None,
    max_new_tokens: int = 100,
    open_think: int = 151667,
    close_think: int = 151668,
    closing: Sequence[int] | None = None,
    temperature: float = 0.0,
    eos_token_id: Sequence[int] = (),
    pad_token_id: int = 0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Continue every prompt; close a thought that is still open after `budget` tokens.

    A row's thought begins after open_think: the last token of its prompt, or else the first
    open_think that the model writes, however late. It ends with close_think, and a row has one
    thought at most: either mark is a token like any other after that. Only what is between the
    marks counts.
    Where `budget` tokens are written and the model's next one is not close_think, the tokens
    of closing are written in that step and the following ones, instead of what the model
    draws (None: close_think alone); close_think is one of them, others may stand before and
    behind it. Then the row goes on by itself. Each row counts for itself, and rows that have
    closed their thought, have ended, or never think are left alone. budget None closes none.

    The rest is that of `generate` in lab 07. Any id in eos_token_id ends the row, wherever it
    is written; the row keeps it and is filled with pad_token_id, and all stop when every row
    has ended. The model is run on each token once. Each step calls sample_next_token once, for
    all rows, with the generator; what is forced replaces what was drawn.

    Shapes: input_ids and attention_mask (B, T), padded on the left
            -> (B, T + new), prompt included
    Errors: those of `generate`; a negative budget, or closing without close_think: ValueError
    Source: Qwen3, section 4.3; Muennighoff et al. 2025, https://arxiv.org/abs/2501.19393
    """
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    check_request(model, input_ids, attention_mask, max_new_tokens)
    closing = [close_think] if closing is None else list(closing)
    if (budget is not None and budget < 0) or close_think not in closing:
        raise ValueError(f"budget {budget} or closing {closing}: at least 0, with the mark")
    # YOUR CODE HERE (about 28 lines)
    raise NotImplementedError("Exercise 13.2: generate_with_budget")


# %% given: what a text of this lab's models says
def answer_of(
    text: Sequence[int], close_think: int, eos_token_id: int
) -> tuple[int, ...] | None:
    """The tokens between close_think and eos; None where either is missing."""
    text = list(text)
    if close_think not in text:
        return None
    rest = text[text.index(close_think) + 1 :]
    return tuple(rest[: rest.index(eos_token_id)]) if eos_token_id in rest else None


# %% exercise 13.3: majority_vote, best_of_n, pass_at_k
def majority_vote(
    texts: Sequence[Sequence[int]], answer_of: Callable[[Sequence[int]], Hashable | None]
) -> tuple[Hashable | None, int, bool]:
    """The answer that most texts give, how many give it, and whether others give as many.

    answer_of is called once per text and returns its answer, or None for a text without one,
    which has no vote. Texts with the same answer vote alike, however they came to it. Among
    equals the answer that came first in the list wins, and the third result is True. Without
    any answer: (None, 0, False).

    Source: Wang et al. 2022, self-consistency, https://arxiv.org/abs/2203.11171
    """
    # YOUR CODE HERE (about 9 lines)
    raise NotImplementedError("Exercise 13.3: majority_vote, best_of_n, pass_at_k")


def best_of_n(
    texts: Sequence[Sequence[int]],
    score: Callable[[Sequence[int]], float],
    answer_of: Callable[[Sequence[int]], Hashable | None] | None = None,
) -> Sequence[int]:
    """The text that a verifier likes best; with answer_of, one with the best answer.

    score is called once per text, in their order. Without answer_of the text with the highest
    score is returned, the first of equals. With answer_of the scores of texts with the same
    answer are added up, and the first text with the answer of the highest sum is returned; a
    text whose answer is None takes no part, unless there is no other.

    Errors: no texts: ValueError
    Source: Cobbe et al. 2021, https://arxiv.org/abs/2110.14168 (verifiers);
            Li et al. 2022, https://arxiv.org/abs/2206.02336 (votes with weights)
    """
    if not texts:
        raise ValueError("there is no text to choose from")
    # YOUR CODE HERE (about 9 lines)
    raise NotImplementedError("Exercise 13.3: majority_vote, best_of_n, pass_at_k")


def pass_at_k(correct: Tensor, n: int, k: int) -> Tensor:
    """How likely one of k texts is right, estimated from n >= k texts per question.

    Of n texts to a question c are right. Averaged over all ways to pick k of them,

        pass@k = 1 - C(n - c, k) / C(n, k)

    which is 1 where fewer than k are wrong. On average this is exactly the probability that
    one of k new texts is right; 1 - (1 - c / n)^k is too low. The two binomials do not fit in
    a float for large n: write their quotient as a product of k factors (or of c).

    Shapes: correct (Q,), the count of right texts of each question -> (Q,)
    dtype:  float64, from whole numbers
    Errors: k not in 1 ... n, or a count not in 0 ... n: ValueError
    Source: Chen et al. 2021, https://arxiv.org/abs/2107.03374
    """
    if not 1 <= k <= n or (correct < 0).any() or (correct > n).any():
        raise ValueError(f"k is {k}, n is {n}: 1 <= k <= n and 0 <= correct <= n are needed")
    # YOUR CODE HERE (about 4 lines)
    raise NotImplementedError("Exercise 13.3: majority_vote, best_of_n, pass_at_k")


# %% exercise 13.4: distill_loss
def distill_loss(
    student_logits: Tensor,
    teacher_logits: Tensor,
    mask: Tensor,
    direction: str = "forward",
    temperature: float = 1.0,
    top_k: int | None = None,
) -> Tensor:
    """How far the student's next tokens are from the teacher's, token by token.

    With p the teacher's and q the student's probabilities, both of logits / temperature,

        "forward"  KL(p | q) = sum p (log p - log q)   the student must cover what p does
        "reverse"  KL(q | p) = sum q (log q - log p)   the student must not do what p does not

    times temperature^2, so that gradients keep their size; then the mean over the tokens of
    the batch whose mask is not 0. Nothing is shifted: entry t of both is about the same token.

    top_k: only the teacher's top_k likeliest tokens of each place count. p and q are then
    those of these tokens alone, each scaled to add up to 1; all, if there are fewer.

    Tokens with mask 0 change neither the loss nor a gradient, whatever their logits are, inf
    and NaN included. Without any token the loss is 0. Gradients flow to student_logits alone.

    Shapes: student_logits and teacher_logits (B, T, V), mask (B, T) -> scalar
    dtype:  float32; logits in half precision are widened before anything is computed
    Errors: another direction: ValueError
    Source: Hinton et al. 2015, https://arxiv.org/abs/1503.02531 (temperature);
            Gu et al. 2023, https://arxiv.org/abs/2306.08543 (reverse)
    """
    if direction not in ("forward", "reverse"):
        raise ValueError(f'direction is {direction!r}; expected "forward" or "reverse"')
    # YOUR CODE HERE (about 12 lines)
    raise NotImplementedError("Exercise 13.4: distill_loss")


# %% exercise 13.5: on_policy_step
def on_policy_step(
    student: nn.Module,
    teacher: nn.Module,
    optimizer: torch.optim.Optimizer,
    input_ids: Tensor,
    attention_mask: Tensor,
    max_new_tokens: int,
    eos_token_id: Sequence[int],
    pad_token_id: int = 0,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    direction: str = "reverse",
    top_k: int | None = None,
    max_grad_norm: float = 1.0,
) -> dict[str, float]:
    """The student answers, the teacher says what it would have written at each place, the
    student learns.

    1. The student continues every prompt with `generate` of lab 07, with this temperature and
       generator.
    2. Teacher and student are run on these texts, the teacher without gradients. At each
       place of the answer, the first stop token included, distill_loss compares them, with
       direction and top_k, at temperature 1.
    3. The gradients of this loss alone, clipped to max_grad_norm, one step of the optimizer.

    Shapes: input_ids and attention_mask (B, T), padded on the left
            -> {"loss", "grad_norm" before clipping, "length": the mean number of tokens per
            answer, the stop included}, plain numbers
    Source: Agarwal et al. 2023, https://arxiv.org/abs/2306.13649
    """
    # YOUR CODE HERE (about 19 lines)
    raise NotImplementedError("Exercise 13.5: on_policy_step")


# %% exercise 13.6: paired_test, questions_needed
def paired_test(
    first: Tensor,
    second: Tensor,
    resamples: int = 2000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
) -> dict[str, float]:
    """Is the second model better than the first? Both answered the same questions.

    first and second hold a score per question, in the same order: 1 for right and 0 for
    wrong, or any number. With d = second - first, question by question, return

        "difference"      the mean of d
        "standard_error"  of it: the standard deviation of d (divided by Q - 1) / sqrt(Q)
        "unpaired"        the standard error if each model had questions of its own:
                          sqrt(var(first) / Q + var(second) / Q), variances with Q - 1
        "low", "high"     a bootstrap interval: questions are drawn with replacement,
                          resamples times Q of them, by a single call of
                          torch.randint(Q, (resamples, Q), generator=generator); of the means
                          of d in the rows, the quantiles (1 - level) / 2 and (1 + level) / 2
                          as torch.quantile computes them

    Shapes: first and second (Q,) -> plain numbers
    dtype:  scores may be bool or whole numbers; float64 from the beginning
    Errors: different shapes, or fewer than 2 questions: ValueError
    Source: Efron 1979; Miller 2024, https://arxiv.org/abs/2411.00640
    """
    if first.shape != second.shape or first.dim() != 1 or first.numel() < 2:
        raise ValueError(f"scores {tuple(first.shape)} and {tuple(second.shape)}: not paired")
    # YOUR CODE HERE (about 12 lines)
    raise NotImplementedError("Exercise 13.6: paired_test, questions_needed")


def questions_needed(difference: float, disagreement: float, z: float = 1.96) -> int:
    """How many questions it takes until a difference is z standard errors large.

    Two models differ by `difference` in their share of right answers, and are not alike (one
    right, one wrong) on a share `disagreement` of the questions. For one question d is -1, 0
    or 1, so its variance is disagreement - difference^2. Return the smallest whole Q with
    |difference| >= z * sqrt(variance / Q), at least 1.

    Errors: difference 0, or |difference| above disagreement: ValueError
    """
    if not 0 < abs(difference) <= disagreement <= 1:
        raise ValueError(f"a difference of {difference} with {disagreement} disagreement")
    # YOUR CODE HERE (about 2 lines)
    raise NotImplementedError("Exercise 13.6: paired_test, questions_needed")


# %% exercise 13.7: web_confidence
def web_confidence(log_probs: Tensor, mask: Tensor) -> Tensor:
    """How sure a model was of each of its texts: the mean log-probability of a token.

    Shapes: log_probs (B, T), the texts padded on the right; mask (B, T), 1 for a token and 0
            for padding, whose log_probs mean nothing -> (B,)
    """
    return (log_probs * mask).mean(dim=1)
