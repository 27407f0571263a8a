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
    ### BEGIN SOLUTION
    texts, starts = [], []
    for flag in (think_flag, no_think_flag):
        for prompt, thought, answer in zip(prompts, thoughts, answers, strict=True):
            thought = thought if flag == think_flag else []
            asked = [*prompt, flag]
            written = [open_think, *thought, close_think, *answer, eos_token_id]
            texts.append(asked + written)
            starts.append(len(asked))
    shape = (len(texts), max(map(len, texts)))
    input_ids = torch.full(shape, pad_token_id)  # (2B, T)
    attention_mask = torch.zeros(shape, dtype=torch.long)
    labels = torch.full(shape, IGNORE)
    for row, (text, start) in enumerate(zip(texts, starts, strict=True)):
        input_ids[row, : len(text)] = torch.tensor(text)
        attention_mask[row, : len(text)] = 1
        labels[row, start : len(text)] = torch.tensor(text[start:])
    return input_ids, attention_mask, labels
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    stops = torch.as_tensor(eos_token_id, dtype=torch.long, device=input_ids.device)
    marks = torch.tensor(closing, device=input_ids.device)
    cache = KVCache(model.config.num_hidden_layers, input_ids.size(1) + max_new_tokens)
    thinking = input_ids[:, -1] == open_think  # (B,)
    has_thought, finished, forced = thinking, thinking & False, thinking & False  # (B,) each
    spent = torch.zeros_like(input_ids[:, 0])  # (B,) tokens of thought
    place = torch.zeros_like(spent)  # (B,) tokens of closing
    output = new = input_ids
    for _ in range(max_new_tokens):
        logits = model(new, attention_mask, cache)[:, -1]  # (B, V)
        token = sample_next_token(logits, temperature, generator=generator)  # (B,)
        if budget is not None:
            forced = forced | (thinking & (spent >= budget) & (token != close_think))
            token = torch.where(forced, marks[place.clamp(max=len(marks) - 1)], token)
            place = place + forced.long()
            forced = forced & (place < len(marks))
        token = token.masked_fill(finished, pad_token_id)
        closes = thinking & (token == close_think)
        spent = spent + thinking.long()
        begins = ~has_thought & (token == open_think)
        thinking, has_thought = (thinking & ~closes) | begins, has_thought | begins

        output = torch.cat((output, token[:, None]), dim=1)  # (B, T + 1)
        attention_mask = torch.cat((attention_mask, torch.ones_like(token[:, None])), dim=1)
        new = token[:, None]
        finished = finished | torch.isin(token, stops)
        if finished.all():
            break
    return output
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    votes: dict[Hashable, int] = {}
    for text in texts:
        answer = answer_of(text)
        if answer is not None:
            votes[answer] = votes.get(answer, 0) + 1
    if not votes:
        return None, 0, False
    winner = max(votes, key=votes.__getitem__)  # the first of equals
    return winner, votes[winner], list(votes.values()).count(votes[winner]) > 1
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    scores = [score(text) for text in texts]
    answers = [None] * len(texts) if answer_of is None else [answer_of(t) for t in texts]
    sums: dict[Hashable, float] = {}
    for found, value in zip(answers, scores, strict=True):
        if found is not None:
            sums[found] = sums.get(found, 0.0) + value
    if not sums:
        return texts[scores.index(max(scores))]
    return texts[answers.index(max(sums, key=sums.__getitem__))]
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    drawn = torch.arange(k, dtype=torch.float64, device=correct.device)  # (k,)
    wrong = (n - correct).double()[:, None]  # (Q, 1)
    factors = (wrong - drawn) / (n - drawn)  # (Q, k) is the next one wrong, too?
    return 1 - factors.prod(dim=1)  # (Q,)
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    keep = mask != 0
    student, teacher = student_logits[keep].float(), teacher_logits[keep].detach().float()
    if top_k is not None:
        teacher, index = teacher.topk(min(top_k, teacher.size(-1)), dim=-1)  # (N, k)
        student = student.gather(-1, index)
    log_q = (student / temperature).log_softmax(dim=-1)  # (N, V)
    log_p = (teacher / temperature).log_softmax(dim=-1)
    if direction == "forward":
        gap = log_p.exp() * (log_p - log_q)
    else:
        gap = log_q.exp() * (log_q - log_p)
    return temperature**2 * gap.sum() / keep.sum().clamp(min=1)
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    output = generate(
        student, input_ids, attention_mask, max_new_tokens, temperature,
        eos_token_id=eos_token_id, pad_token_id=pad_token_id, generator=generator,
    )  # (B, T + new)  # fmt: skip
    start = input_ids.size(1)
    answers = output[:, start:]  # (B, new)
    stops = torch.isin(answers, torch.as_tensor(eos_token_id, device=answers.device))
    mask = (stops.cumsum(dim=1) - stops.long() == 0).long()  # (B, new)
    whole = torch.cat((attention_mask, mask), dim=1)
    with torch.no_grad():
        opinion = teacher(output, whole)[:, start - 1 : -1]  # (B, new, V)
    logits = student(output, whole)[:, start - 1 : -1]
    loss = distill_loss(logits, opinion, mask, direction, top_k=top_k)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(student.parameters(), max_grad_norm)
    optimizer.step()
    length = mask.sum(dim=1).float().mean().item()
    return {"loss": loss.item(), "grad_norm": norm.item(), "length": length}
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    first, second = first.double(), second.double()
    gain, count = second - first, first.numel()
    draws = torch.randint(count, (resamples, count), generator=generator)
    means = gain[draws].mean(dim=1)  # (resamples,)
    low, high = means.quantile(torch.tensor([1 - level, 1 + level]).double() / 2).tolist()
    return {
        "difference": gain.mean().item(),
        "standard_error": gain.std().item() / math.sqrt(count),
        "unpaired": math.sqrt((first.var().item() + second.var().item()) / count),
        "low": low,
        "high": high,
    }
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    variance = disagreement - difference**2
    return max(1, math.ceil(variance * (z / difference) ** 2))
    ### END SOLUTION


# %% exercise 13.7: web_confidence
def web_confidence(log_probs: Tensor, mask: Tensor) -> Tensor:
    """How sure a model was of each of its texts: the mean log-probability of a token.

    Shapes: log_probs (B, T), the texts padded on the right; mask (B, T), 1 for a token and 0
            for padding, whose log_probs mean nothing -> (B,)
    """
    ### BEGIN SOLUTION
    return (log_probs * mask).sum(dim=1) / mask.sum(dim=1)
    ### INSTEAD
    # return (log_probs * mask).mean(dim=1)
    ### END SOLUTION
