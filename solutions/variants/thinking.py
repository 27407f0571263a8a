# Right answers of lab 13, written otherwise. Every one has to earn full points.

# %% exercise 13.1: pad_sequence
def fuse_modes(prompts, thoughts, answers, think_flag, no_think_flag, open_think, close_think,
               eos_token_id, pad_token_id=0):  # fmt: skip
    if len(set(map(len, (prompts, thoughts, answers)))) > 1:
        raise ValueError("counts")
    from torch.nn.utils.rnn import pad_sequence

    texts, labels = [], []
    for slow in (True, False):
        for p, t, a in zip(prompts, thoughts, answers, strict=True):
            asked = list(p) + [think_flag if slow else no_think_flag]
            written = [open_think] + (list(t) if slow else []) + [close_think] + list(a)
            written.append(eos_token_id)
            texts.append(torch.tensor(asked + written))
            labels.append(torch.tensor([-100] * len(asked) + written))
    ids = pad_sequence(texts, batch_first=True, padding_value=pad_token_id)
    labels = pad_sequence(labels, batch_first=True, padding_value=-100)
    mask = pad_sequence([torch.ones_like(t) for t in texts], batch_first=True)
    return ids, mask, labels


# %% exercise 13.1: lists, filled up by hand
def fuse_modes(prompts, thoughts, answers, think_flag, no_think_flag, open_think, close_think,
               eos_token_id, pad_token_id=0):  # fmt: skip
    if len(prompts) != len(thoughts) or len(prompts) != len(answers):
        raise ValueError("counts")

    def both(i, flag, thought):
        asked = [*prompts[i], flag]
        written = [open_think, *thought, close_think, *answers[i], eos_token_id]
        return asked, written

    count = len(prompts)
    rows = [both(i, think_flag, thoughts[i]) for i in range(count)]
    rows += [both(i, no_think_flag, []) for i in range(count)]
    longest = max(len(a) + len(b) for a, b in rows)
    fill = [longest - len(a) - len(b) for a, b in rows]
    ids = [a + b + [pad_token_id] * n for (a, b), n in zip(rows, fill)]
    mask = [[1] * (len(a) + len(b)) + [0] * n for (a, b), n in zip(rows, fill)]
    labels = [[IGNORE] * len(a) + b + [IGNORE] * n for (a, b), n in zip(rows, fill)]
    return torch.tensor(ids), torch.tensor(mask), torch.tensor(labels)


# %% exercise 13.1: masks from lengths
def fuse_modes(prompts, thoughts, answers, think_flag, no_think_flag, open_think, close_think,
               eos_token_id, pad_token_id=0):  # fmt: skip
    if not len(prompts) == len(thoughts) == len(answers):
        raise ValueError("counts")
    n = len(prompts)
    asked = torch.tensor([len(p) + 1 for p in prompts] * 2)
    texts = [
        [*p, think_flag, open_think, *t, close_think, *a, eos_token_id]
        for p, t, a in zip(prompts, thoughts, answers)
    ] + [
        [*p, no_think_flag, open_think, close_think, *a, eos_token_id]
        for p, a in zip(prompts, answers)
    ]
    lengths = torch.tensor([len(t) for t in texts])
    place = torch.arange(int(lengths.max()))
    real = place < lengths[:, None]
    ids = torch.full((2 * n, len(place)), pad_token_id)
    ids[real] = torch.tensor([token for t in texts for token in t])
    labels = torch.where(real & (place >= asked[:, None]), ids, IGNORE)
    return ids, real.long(), labels


# %% exercise 13.2: row by row, with lists of what is still to be written
@torch.no_grad()
def generate_with_budget(model, input_ids, attention_mask=None, budget=None, max_new_tokens=100,
                         open_think=151667, close_think=151668, closing=None, temperature=0.0,
                         eos_token_id=(), pad_token_id=0, generator=None):  # fmt: skip
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    check_request(model, input_ids, attention_mask, max_new_tokens)
    closing = [close_think] if closing is None else list(closing)
    if close_think not in closing or (budget is not None and budget < 0):
        raise ValueError("budget or closing")
    cache = KVCache(model.config.num_hidden_layers, input_ids.size(1) + max_new_tokens)
    rows = [
        {"state": "in" if ids[-1] == open_think else "before", "spent": 0, "todo": []}
        for ids in input_ids.tolist()
    ]
    output, new = input_ids, input_ids
    for _ in range(max_new_tokens):
        drawn = sample_next_token(
            model(new, attention_mask, cache)[:, -1], temperature, generator=generator
        ).tolist()
        column = []
        for row, token in zip(rows, drawn):
            if row["state"] == "ended":
                column.append(pad_token_id)
                continue
            is_over = budget is not None and row["spent"] >= budget
            if row["state"] == "in" and is_over and token != close_think and not row["todo"]:
                row["todo"] = list(closing)
            if row["todo"]:
                token = row["todo"].pop(0)
            if row["state"] == "in":
                row["spent"] += 1
                if token == close_think:
                    row["state"] = "behind"
            elif row["state"] == "before" and token == open_think:
                row["state"] = "in"
            if token in list(eos_token_id):
                row["state"] = "ended"
            column.append(token)
        new = torch.tensor(column)[:, None]
        output = torch.cat((output, new), dim=1)
        attention_mask = torch.cat((attention_mask, torch.ones_like(new)), dim=1)
        if all(row["state"] == "ended" for row in rows):
            break
    return output


# %% exercise 13.2: the account is read off the text at each step
@torch.no_grad()
def generate_with_budget(model, input_ids, attention_mask=None, budget=None, max_new_tokens=100,
                         open_think=151667, close_think=151668, closing=None, temperature=0.0,
                         eos_token_id=(), pad_token_id=0, generator=None):  # fmt: skip
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    check_request(model, input_ids, mask, max_new_tokens)
    closing = (close_think,) if closing is None else tuple(closing)
    if (budget or 0) < 0 or close_think not in closing:
        raise ValueError("budget or closing")
    cache = KVCache(model.config.num_hidden_layers, input_ids.size(1) + max_new_tokens)
    texts = [[] for _ in input_ids]
    began = [0 if ids[-1] == open_think else None for ids in input_ids.tolist()]
    forced_from = [None] * len(texts)
    stops, output, new = set(eos_token_id), input_ids, input_ids

    def next_token(row, token):
        text = texts[row]
        if stops & set(text):
            return pad_token_id
        if forced_from[row] is not None:
            place = len(text) - forced_from[row]
            return closing[place] if place < len(closing) else token
        if began[row] is None and open_think in text:
            began[row] = text.index(open_think) + 1
        if began[row] is None or budget is None or close_think in text[began[row] :]:
            return token
        if len(text) - began[row] >= budget and token != close_think:
            forced_from[row] = len(text)
            return closing[0]
        return token

    for _ in range(max_new_tokens):
        logits = model(new, mask, cache)[:, -1]
        drawn = sample_next_token(logits, temperature, generator=generator).tolist()
        column = [next_token(row, token) for row, token in enumerate(drawn)]
        for text, token in zip(texts, column):
            text.append(token)
        new = torch.tensor(column).unsqueeze(1)
        output = torch.cat([output, new], 1)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        if all(stops & set(text) for text in texts):
            break
    return output


# %% exercise 13.2: a counter that runs down, one tensor for everything that is written
@torch.no_grad()
def generate_with_budget(model, input_ids, attention_mask=None, budget=None, max_new_tokens=100,
                         open_think=151667, close_think=151668, closing=None, temperature=0.0,
                         eos_token_id=(), pad_token_id=0, generator=None):  # fmt: skip
    if attention_mask is None:
        attention_mask = torch.ones(input_ids.shape, dtype=torch.long)
    check_request(model, input_ids, attention_mask, max_new_tokens)
    closing = closing or [close_think]
    if close_think not in closing or (budget is not None and budget < 0):
        raise ValueError("budget or closing")
    batch, start = input_ids.shape
    left = torch.full((batch,), 10**9 if budget is None else budget)
    whole = torch.full((batch, start + max_new_tokens), pad_token_id)
    whole[:, :start] = input_ids
    mask = torch.cat((attention_mask, attention_mask.new_ones(batch, max_new_tokens)), dim=1)
    cache = KVCache(model.config.num_hidden_layers, start + max_new_tokens)
    BEFORE, INSIDE, BEHIND, ENDED = range(4)
    state = torch.where(input_ids[:, -1] == open_think, INSIDE, BEFORE)
    place = torch.full((batch,), len(closing))
    stops = torch.tensor(list(eos_token_id), dtype=torch.long)
    end, seen = start, 0
    while end < start + max_new_tokens:
        logits = model(whole[:, seen:end], mask[:, :end], cache)
        token = sample_next_token(logits[:, -1], temperature, generator=generator)
        begins = (state == INSIDE) & (left <= 0) & (token != close_think)
        place[begins & (place == len(closing))] = 0
        for row in range(batch):
            if state[row] != ENDED and place[row] < len(closing):
                token[row] = closing[int(place[row])]
                place[row] += 1
        token[state == ENDED] = pad_token_id
        left -= (state == INSIDE).long()
        opened = (state == BEFORE) & (token == open_think)
        state[(state == INSIDE) & (token == close_think)] = BEHIND
        state[opened] = INSIDE
        state[torch.isin(token, stops)] = ENDED
        whole[:, end], seen, end = token, end, end + 1
        if (state == ENDED).all():
            break
    return whole[:, :end]


# %% exercise 13.3: Counter, and a product of quotients in lists
def majority_vote(texts, answer_of):
    from collections import Counter

    votes = Counter(a for a in map(answer_of, texts) if a is not None)
    if not votes:
        return None, 0, False
    (winner, count), *rest = votes.most_common()
    return winner, count, bool(rest) and rest[0][1] == count


def best_of_n(texts, score, answer_of=None):
    if len(texts) == 0:
        raise ValueError("no texts")
    pairs = [(score(text), text) for text in texts]
    if answer_of is not None:
        found = [(answer_of(text), value, text) for value, text in pairs]
        found = [item for item in found if item[0] is not None]
        if found:
            total = {a: sum(v for b, v, _ in found if b == a) for a, _, _ in found}
            best = max(total.values())
            return next(text for a, _, text in found if total[a] == best)
    best = max(value for value, _ in pairs)
    return next(text for value, text in pairs if value == best)


def pass_at_k(correct, n, k):
    if k < 1 or k > n or bool(((correct < 0) | (correct > n)).any()):
        raise ValueError("k")

    def estimate(c):
        if n - c < k:
            return 1.0
        product = 1.0
        for i in range(n - c + 1, n + 1):
            product *= 1.0 - k / i
        return 1.0 - product

    return torch.tensor([estimate(int(c)) for c in correct], dtype=torch.float64)


# %% exercise 13.3: logarithms of factorials
def majority_vote(texts, answer_of):
    answers = [answer_of(text) for text in texts]
    answers = [answer for answer in answers if answer is not None]
    counts = [answers.count(answer) for answer in answers]
    if not counts:
        return None, 0, False
    most = max(counts)
    return answers[counts.index(most)], most, counts.count(most) > most


def best_of_n(texts, score, answer_of=None):
    if not texts:
        raise ValueError("no texts")
    scores = [score(text) for text in texts]
    groups = {}
    for number, text in enumerate(texts):
        answer = None if answer_of is None else answer_of(text)
        if answer is not None:
            groups.setdefault(answer, []).append(number)
    if groups:
        best = max(groups.values(), key=lambda numbers: sum(scores[n] for n in numbers))
        return texts[best[0]]
    return texts[max(range(len(texts)), key=lambda n: scores[n])]


def pass_at_k(correct, n, k):
    if not (0 < k <= n) or not all(0 <= int(c) <= n for c in correct):
        raise ValueError("k")

    def log(x):
        return torch.lgamma(torch.as_tensor(x, dtype=torch.float64) + 1)

    wrong = (n - correct).double()
    enough = wrong >= k
    safe = torch.where(enough, wrong, float(n))
    missed = (log(safe) - log(safe - k) - log(float(n)) + log(float(n - k))).exp()
    return torch.where(enough, 1 - missed, 1.0)


# %% exercise 13.3: fractions of whole numbers
def majority_vote(texts, answer_of):
    winner, best, tie, votes = None, 0, False, {}
    for text in texts:
        answer = answer_of(text)
        if answer is not None:
            votes[answer] = votes.setdefault(answer, 0) + 1
    for answer, count in votes.items():
        if count > best:
            winner, best, tie = answer, count, False
        elif count == best:
            tie = True
    return winner, best, tie


def best_of_n(texts, score, answer_of=None):
    if not len(texts):
        raise ValueError("no texts")
    scores = list(map(score, texts))
    answers = list(map(answer_of, texts)) if answer_of else []
    known = [a for a in dict.fromkeys(answers) if a is not None]
    if not known:
        return texts[scores.index(max(scores))]
    sums = [sum(s for s, b in zip(scores, answers) if b == a) for a in known]
    return texts[answers.index(known[sums.index(max(sums))])]


def pass_at_k(correct, n, k):
    from fractions import Fraction

    if not 1 <= k <= n or min(correct.tolist(), default=0) < 0 or max(correct.tolist()) > n:
        raise ValueError("k")
    ways = math.comb(n, k)
    return torch.tensor(
        [float(1 - Fraction(math.comb(n - c, k), ways)) for c in correct.tolist()],
        dtype=torch.float64,
    )


# %% exercise 13.4: the mask by where, before anything is computed
def distill_loss(student_logits, teacher_logits, mask, direction="forward", temperature=1.0,
                 top_k=None):  # fmt: skip
    if direction not in {"forward", "reverse"}:
        raise ValueError(direction)
    real = mask.bool()[..., None]
    zero = torch.zeros(())
    s = torch.where(real, student_logits.float(), zero) / temperature
    t = torch.where(real, teacher_logits.detach().float(), zero) / temperature
    if top_k is not None:
        best = torch.argsort(t, dim=-1, descending=True)[..., :top_k]
        s, t = s.gather(-1, best), t.gather(-1, best)
    p, q = t.softmax(-1), s.softmax(-1)
    log_p, log_q = t.log_softmax(-1), s.log_softmax(-1)
    each = (p if direction == "forward" else -q) * (log_p - log_q)
    each = each.sum(-1).masked_fill(~mask.bool(), 0.0)
    return each.sum() * temperature * temperature / mask.bool().sum().clamp(min=1)


# %% exercise 13.4: logsumexp, everything outside the top at -inf
def distill_loss(student_logits, teacher_logits, mask, direction="forward", temperature=1.0,
                 top_k=None):  # fmt: skip
    if direction != "forward" and direction != "reverse":
        raise ValueError(direction)
    rows = mask.nonzero(as_tuple=True)
    s = student_logits[rows].to(torch.float32) / temperature
    t = teacher_logits[rows].detach().to(torch.float32) / temperature
    if top_k is not None and top_k < t.size(-1):
        index = t.topk(top_k).indices
        s, t = torch.take_along_dim(s, index, -1), torch.take_along_dim(t, index, -1)
    log_q = s - s.logsumexp(-1, keepdim=True)
    log_p = t - t.logsumexp(-1, keepdim=True)
    weight, lead = (log_p, log_p - log_q) if direction == "forward" else (log_q, log_q - log_p)
    total = (torch.exp(weight) * lead).sum(-1)
    return total.sum() * temperature**2 / max(1, len(rows[0]))


# %% exercise 13.4: a loop over texts, cross-entropy minus entropy
def distill_loss(student_logits, teacher_logits, mask, direction="forward", temperature=1.0,
                 top_k=None):  # fmt: skip
    if direction not in ("forward", "reverse"):
        raise ValueError(direction)
    total, count = student_logits.new_zeros((), dtype=torch.float32), 0
    for student, teacher, keep in zip(student_logits, teacher_logits, mask != 0):
        s, t = student[keep].float(), teacher[keep].detach().float()
        if top_k is not None:
            t, index = torch.topk(t, min(top_k, t.shape[-1]), dim=-1)
            s = s.gather(1, index)
        a, b = (t, s) if direction == "forward" else (s, t)
        a, b = (x.div(temperature).log_softmax(dim=1) for x in (a, b))
        total = total + (a.exp() * a).sum() - (a.exp() * b).sum()
        count += int(keep.sum())
    return total * temperature**2 / max(count, 1)


# %% exercise 13.5: lengths instead of a cumulative sum
def on_policy_step(student, teacher, optimizer, input_ids, attention_mask, max_new_tokens,
                   eos_token_id, pad_token_id=0, temperature=1.0, generator=None,
                   direction="reverse", top_k=None, max_grad_norm=1.0):  # fmt: skip
    start, stops = input_ids.shape[1], set(eos_token_id)
    text = generate(
        student, input_ids, attention_mask, max_new_tokens=max_new_tokens,
        temperature=temperature, eos_token_id=list(stops), pad_token_id=pad_token_id,
        generator=generator,
    )  # fmt: skip
    lengths = []
    for row in text[:, start:].tolist():
        lengths.append(next((i + 1 for i, t in enumerate(row) if t in stops), len(row)))
    lengths = torch.tensor(lengths)
    mask = (torch.arange(text.size(1) - start) < lengths[:, None]).long()
    whole = torch.cat([attention_mask, mask], dim=1)
    with torch.no_grad():
        t = teacher(text, attention_mask=whole)
    s = student(text, attention_mask=whole)
    loss = distill_loss(
        s[:, start - 1 : -1], t[:, start - 1 : -1], mask, direction=direction, top_k=top_k
    )
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(list(student.parameters()), max_grad_norm)
    optimizer.step()
    return {
        "loss": float(loss), "grad_norm": float(norm), "length": lengths.float().mean().item()
    }  # fmt: skip


# %% exercise 13.5: a mask over all places, clipped by hand
def on_policy_step(student, teacher, optimizer, input_ids, attention_mask, max_new_tokens,
                   eos_token_id, pad_token_id=0, temperature=1.0, generator=None,
                   direction="reverse", top_k=None, max_grad_norm=1.0):  # fmt: skip
    output = generate(student, input_ids, attention_mask, max_new_tokens, temperature,
                      None, None, eos_token_id, pad_token_id, generator)  # fmt: skip
    prompt = input_ids.size(1)
    real = torch.zeros_like(output)
    for row, ids in enumerate(output.tolist()):
        for place in range(prompt, len(ids)):
            real[row, place] = 1
            if ids[place] in list(eos_token_id):
                break
    seen = real.clone()
    seen[:, :prompt] = attention_mask
    with torch.inference_mode():
        opinion = teacher(output, seen)[:, :-1].clone()
    logits = student(output, seen)[:, :-1]
    loss = distill_loss(logits, opinion, real[:, 1:], direction, 1.0, top_k)
    weights = [weight for weight in student.parameters() if weight.requires_grad]
    grads = torch.autograd.grad(loss, weights, allow_unused=True)
    grads = [torch.zeros_like(w) if g is None else g for w, g in zip(weights, grads)]
    norm = torch.stack([g.norm() for g in grads]).norm()
    factor = min(1.0, max_grad_norm / (norm.item() + 1e-6))
    for weight, grad in zip(weights, grads):
        weight.grad = grad * factor
    optimizer.step()
    length = real.sum(dim=1).double().mean().item()
    return {"length": length, "loss": loss.item(), "grad_norm": norm.item()}


# %% exercise 13.5: cumprod
def on_policy_step(student, teacher, optimizer, input_ids, attention_mask, max_new_tokens,
                   eos_token_id, pad_token_id=0, temperature=1.0, generator=None,
                   direction="reverse", top_k=None, max_grad_norm=1.0):  # fmt: skip
    with torch.no_grad():
        output = generate(
            student, input_ids, attention_mask, max_new_tokens, temperature=temperature,
            eos_token_id=eos_token_id, pad_token_id=pad_token_id, generator=generator,
        )  # fmt: skip
        answer = output[:, input_ids.size(1) :]
        goes_on = (~torch.isin(answer, torch.tensor(list(eos_token_id)))).long().cumprod(1)
        mask = torch.cat((torch.ones_like(goes_on[:, :1]), goes_on[:, :-1]), 1)
        whole = torch.cat((attention_mask, mask), 1)
        theirs = teacher(output, whole)
    new = answer.size(1)
    mine = student(output, whole)[:, -new - 1 : -1]
    loss = distill_loss(mine, theirs[:, -new - 1 : -1], mask, direction, top_k=top_k)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(student.parameters(), max_grad_norm)
    optimizer.step()
    return {
        "loss": loss.item(),
        "grad_norm": norm.item(),
        "length": (mask.sum() / len(mask)).item(),
    }


# %% exercise 13.6: sums by hand, bincount of draws
def paired_test(first, second, resamples=2000, level=0.95, generator=None):
    if first.dim() != 1 or second.dim() != 1 or len(first) != len(second) or len(first) < 2:
        raise ValueError("not paired")
    a, b = first.to(torch.float64), second.to(torch.float64)
    d, n = b - a, len(a)
    rows = torch.randint(n, (resamples, n), generator=generator)
    means = torch.stack([d[row].sum() / n for row in rows])

    def spread(x):
        return ((x - x.mean()) ** 2).sum() / (n - 1)

    edge = (1 - level) / 2
    return {
        "difference": float(d.mean()),
        "standard_error": float((spread(d) / n).sqrt()),
        "unpaired": float((spread(a) / n + spread(b) / n).sqrt()),
        "low": float(torch.quantile(means, edge)),
        "high": float(torch.quantile(means, 1 - edge)),
    }


def questions_needed(difference, disagreement, z=1.96):
    if difference == 0 or abs(difference) > disagreement or disagreement > 1:
        raise ValueError("difference")
    per_question = disagreement - difference * difference
    return max(math.ceil(z * z * per_question / (difference * difference)), 1)


# %% exercise 13.6: statistics of Python
def paired_test(first, second, resamples=2000, level=0.95, generator=None):
    import statistics

    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise ValueError("not paired")
    a, b = (list(map(float, x)) for x in (first, second))
    d = [y - x for x, y in zip(a, b)]
    n = len(d)
    chosen = torch.randint(n, size=(resamples, n), generator=generator)
    means = torch.tensor(d, dtype=torch.float64)[chosen].mean(-1).sort().values

    def quantile(share):
        return torch.quantile(means, share).item()

    return {
        "difference": sum(d) / n,
        "standard_error": statistics.stdev(d) / n**0.5,
        "unpaired": (statistics.variance(a) / n + statistics.variance(b) / n) ** 0.5,
        "low": quantile(0.5 - level / 2),
        "high": quantile(0.5 + level / 2),
    }


def questions_needed(difference, disagreement, z=1.96):
    if not 0 < abs(difference) <= disagreement <= 1:
        raise ValueError("difference")
    error_of_one = math.sqrt(disagreement - difference**2)
    return max(1, math.ceil((z * error_of_one / abs(difference)) ** 2))


# %% exercise 13.6: std_mean, and gather
def paired_test(first, second, resamples=2000, level=0.95, generator=None):
    if first.ndim != 1 or first.shape != second.shape or first.shape[0] < 2:
        raise ValueError("not paired")
    scores = torch.stack((first, second)).double()
    gain = scores[1] - scores[0]
    std, mean = torch.std_mean(gain)
    count = gain.size(0)
    draws = torch.randint(0, count, (resamples, count), generator=generator)
    means = gain.expand(resamples, -1).gather(1, draws).mean(1)
    low, high = (torch.quantile(means, q).item() for q in ((1 - level) / 2, (1 + level) / 2))
    error, unpaired = std / count**0.5, (scores.var(dim=1).sum() / count).sqrt()
    return {
        "low": low, "high": high, "difference": mean.item(), "standard_error": error.item(),
        "unpaired": unpaired.item(),
    }  # fmt: skip


def questions_needed(difference, disagreement, z=1.96):
    if difference == 0 or not abs(difference) <= disagreement <= 1:
        raise ValueError("difference")
    ratio = disagreement / difference**2 - 1
    return max(1, math.ceil(ratio * z**2))


# %% exercise 13.7: a text at a time
def web_confidence(log_probs, mask):
    return torch.stack([row[keep.bool()].mean() for row, keep in zip(log_probs, mask)])
