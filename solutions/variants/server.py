# Right answers of lab 15, written otherwise. Every one has to earn full points.

# %% exercise 15.1: text by text, the log of the sum
def paged_attention(query, key_blocks, value_blocks, block_table, lengths, scale=None):
    new = query.size(2)
    kv_heads, size = key_blocks.shape[1:3]
    factor = query.size(-1) ** -0.5 if scale is None else scale
    out = []
    for row in range(len(lengths)):
        total = int(lengths[row])
        q = query[row].float().unflatten(0, (kv_heads, -1))  # (K, G, T, D)
        place = torch.arange(total - new, total)[:, None]
        mixed = log_sum = None
        for start in range(0, total, size):
            block, count = int(block_table[row, start // size]), min(size, total - start)
            key = key_blocks[block][:, None, :count].float()
            value = value_blocks[block][:, None, :count].float()
            scores = q @ key.transpose(-1, -2) * factor
            hidden = torch.arange(start, start + count) > place
            scores = scores.masked_fill(hidden, -1e30)
            here = scores.logsumexp(-1, keepdim=True)
            part = scores.softmax(-1) @ value
            if mixed is None:
                mixed, log_sum = part, here
                continue
            both = torch.logaddexp(log_sum, here)
            mixed = mixed * (log_sum - both).exp() + part * (here - both).exp()
            log_sum = both
        out.append(mixed.flatten(0, 1))
    return torch.stack(out).to(query.dtype)


# %% exercise 15.1: only texts that still have blocks take part
def paged_attention(query, key_blocks, value_blocks, block_table, lengths, scale=None):
    B, H, T, D = query.shape
    K, size = key_blocks.shape[1], key_blocks.shape[2]
    scale = 1 / D**0.5 if scale is None else scale
    q = query.float().view(B, K, H // K, T, D) if query.is_contiguous() else (
        query.float().reshape(B, K, H // K, T, D))  # fmt: skip
    best = q.new_full((B, K, H // K, T), -torch.inf)
    down, up = torch.zeros_like(best), q.new_zeros(B, K, H // K, T, value_blocks.size(3))
    for column in range(block_table.size(1)):
        rows = (lengths > column * size).nonzero()[:, 0]
        if rows.numel() == 0:
            break
        blocks = block_table[rows, column]
        at = torch.arange(column * size, (column + 1) * size)
        real = at < lengths[rows, None]
        value = value_blocks[blocks].float()
        value = torch.where(real[:, None, :, None], value, torch.zeros(()))
        s = torch.einsum("bkgtd,bksd->bkgts", q[rows], key_blocks[blocks].float()) * scale
        where = (lengths[rows, None] - T + torch.arange(T))[:, None, None, :, None]
        s = s.where(at <= where, -torch.inf)
        peak = torch.maximum(best[rows], s.amax(-1))
        e, fade = (s - peak[..., None]).exp(), (best[rows] - peak).exp()
        down[rows] = down[rows] * fade + e.sum(-1)
        up[rows] = up[rows] * fade[..., None] + torch.einsum("bkgts,bksf->bkgtf", e, value)
        best[rows] = peak
    return (up / down[..., None]).flatten(1, 2).to(query.dtype)


# %% exercise 15.1: query head by query head
def paged_attention(query, key_blocks, value_blocks, block_table, lengths, scale=None):
    B, H, T, D = query.shape
    group, size = H // key_blocks.size(1), key_blocks.size(2)
    scale = D**-0.5 if scale is None else scale
    result = query.new_zeros(B, H, T, value_blocks.size(-1), dtype=torch.float32)
    for b in range(B):
        total = int(lengths[b])
        place = torch.arange(total - T, total)
        for h in range(H):
            m = torch.full((T,), -torch.inf)
            norm, acc = torch.zeros(T), torch.zeros(T, value_blocks.size(-1))
            for number in range((total + size - 1) // size):
                block = block_table[b, number]
                filled = min(size, total - number * size)
                k = key_blocks[block, h // group, :filled].float()
                v = value_blocks[block, h // group, :filled].float()
                s = query[b, h].float() @ k.T * scale
                later = number * size + torch.arange(filled)[None] > place[:, None]
                s[later] = -torch.inf
                new = torch.maximum(m, s.max(dim=1).values)
                p = torch.exp(s - new[:, None])
                norm = norm * torch.exp(m - new) + p.sum(1)
                acc = acc * torch.exp(m - new)[:, None] + p @ v
                m = new
            result[b, h] = acc / norm[:, None]
    return result.to(query.dtype)


# %% exercise 15.2: loops, one place that counts
class PrefixCache:
    def __init__(self, num_blocks, block_size=16, hash_fn=block_hash):
        self.block_size, self.hash_fn = block_size, hash_fn
        self.ref_count = [0] * num_blocks
        self.free_blocks = OrderedDict((block, None) for block in range(num_blocks))
        self.block_table, self.block_of, self.content = {}, {}, {}
        self.asked, self.found = 0, 0

    def blocks_for(self, tokens):
        return (tokens + self.block_size - 1) // self.block_size

    def _names(self, tokens, count):
        parent = b""
        for i in range(count):
            part = tuple(tokens[i * self.block_size : (i + 1) * self.block_size])
            name = self.hash_fn(parent, part)
            yield name, parent, part
            parent = name

    def begin(self, sequence, tokens):
        if sequence in self.block_table:
            raise ValueError("it exists")
        shared = []
        for entry in self._names(tokens, (len(tokens) - 1) // self.block_size):
            block = self.block_of.get(entry[0], -1)
            if self.content.get(block) != entry:
                break
            shared.append(block)
        need = self.blocks_for(len(tokens)) - len(shared)
        usable = [block for block in self.free_blocks if block not in shared]
        if need > len(usable):
            raise ValueError("no room")
        for block in shared:
            self.ref_count[block] += 1
            if block in self.free_blocks:
                del self.free_blocks[block]
        self.block_table[sequence] = list(shared)
        self._grow(sequence, need)
        self.asked, self.found = (
            self.asked + len(tokens), self.found + len(shared) * self.block_size
        )  # fmt: skip
        return (self.blocks_for(len(tokens)) - need) * self.block_size

    def _grow(self, sequence, count):
        if count > len(self.free_blocks):
            raise ValueError("no room")
        for _ in range(count):
            block = next(iter(self.free_blocks))
            del self.free_blocks[block]
            entry = self.content.pop(block, None)
            if entry:
                self.block_of.pop(entry[0])
            self.ref_count[block] = 1
            self.block_table[sequence].append(block)

    def reserve(self, sequence, length):
        self._grow(sequence, self.blocks_for(length) - len(self.block_table[sequence]))

    def commit(self, sequence, tokens):
        table = self.block_table[sequence]
        for i, entry in enumerate(self._names(tokens, len(tokens) // self.block_size)):
            mine, other = table[i], self.block_of.get(entry[0])
            if other is None:
                self.block_of[entry[0]], self.content[mine] = mine, entry
            elif self.content[other] != entry:
                break
            elif other != mine:
                self.ref_count[other] += 1
                self.free_blocks.pop(other, None)
                table[i] = other
                self._back(mine)

    def free(self, sequence):
        table = self.block_table[sequence]
        del self.block_table[sequence]
        while table:
            self._back(table.pop())

    def _back(self, block):
        self.ref_count[block] -= 1
        if self.ref_count[block]:
            return
        if block in self.content:
            self.free_blocks[block] = None
        else:
            self.free_blocks = OrderedDict([(block, None), *self.free_blocks.items()])


# %% exercise 15.2: a plain dict for the free blocks
class PrefixCache:
    def __init__(self, num_blocks, block_size=16, hash_fn=block_hash):
        self.block_size, self.hash_fn = block_size, hash_fn
        self.ref_count = [0 for _ in range(num_blocks)]
        self.free_blocks = list(range(num_blocks))
        self.block_table, self.block_of, self.content = {}, {}, {}
        self.asked = self.found = 0

    def blocks_for(self, tokens):
        return -(-tokens // self.block_size)

    def begin(self, sequence, tokens):
        if self.block_table.get(sequence) is not None:
            raise ValueError(sequence)
        size, found, parent = self.block_size, [], b""
        while (len(found) + 1) * size < len(tokens):
            part = tuple(tokens[len(found) * size : (len(found) + 1) * size])
            name = self.hash_fn(parent, part)
            if name not in self.block_of:
                break
            if self.content[self.block_of[name]][1:] != (parent, part):
                break
            found.append(self.block_of[name])
            parent = name
        new = self.blocks_for(len(tokens)) - len(found)
        if new > sum(block not in found for block in self.free_blocks):
            raise ValueError("full")
        self.free_blocks = [block for block in self.free_blocks if block not in found]
        for block in found:
            self.ref_count[block] += 1
        self.block_table[sequence] = found
        self.reserve(sequence, len(tokens))
        known = size * (len(self.block_table[sequence]) - new)
        self.asked += len(tokens)
        self.found += known
        return known

    def reserve(self, sequence, length):
        table = self.block_table[sequence]
        count = self.blocks_for(length) - len(table)
        if count > len(self.free_blocks):
            raise ValueError("full")
        for block in self.free_blocks[: max(count, 0)]:
            if block in self.content:
                name, _, _ = self.content.pop(block)
                self.block_of.pop(name)
            self.ref_count[block] = 1
            table.append(block)
        self.free_blocks = self.free_blocks[max(count, 0) :]

    def commit(self, sequence, tokens):
        parent, table = b"", self.block_table[sequence]
        for place in range(len(tokens) // self.block_size):
            part = tuple(tokens[place * self.block_size :][: self.block_size])
            name = self.hash_fn(parent, part)
            if name in self.block_of:
                block = self.block_of[name]
                if self.content[block] != (name, parent, part):
                    return
                if block != table[place]:
                    old, table[place] = table[place], block
                    if not self.ref_count[block]:
                        self.free_blocks.remove(block)
                    self.ref_count[block] += 1
                    self._leave(old)
            else:
                self.block_of[name] = table[place]
                self.content[table[place]] = (name, parent, part)
            parent = name

    def free(self, sequence):
        for block in self.block_table.pop(sequence)[::-1]:
            self._leave(block)

    def _leave(self, block):
        self.ref_count[block] = self.ref_count[block] - 1
        if self.ref_count[block] < 1:
            at = len(self.free_blocks) if block in self.content else 0
            self.free_blocks.insert(at, block)


# %% exercise 15.2: blocks found by recursion
class PrefixCache:
    def __init__(self, num_blocks, block_size=16, hash_fn=block_hash):
        self.block_size = block_size
        self.hash_fn = hash_fn
        self.ref_count = [0] * num_blocks
        self.free_blocks = OrderedDict.fromkeys(range(num_blocks))
        self.block_table, self.block_of, self.content = {}, {}, {}
        self.asked = self.found = 0

    def blocks_for(self, tokens):
        return -(-tokens // self.block_size)

    def _walk(self, tokens, parent=b""):
        if len(tokens) <= self.block_size:
            return []
        part = tuple(tokens[: self.block_size])
        name = self.hash_fn(parent, part)
        block = self.block_of.get(name)
        if block is None or self.content[block] != (name, parent, part):
            return []
        return [block, *self._walk(tokens[self.block_size :], name)]

    def begin(self, sequence, tokens):
        if sequence in self.block_table:
            raise ValueError("there already")
        known = self._walk(list(tokens))
        rest = self.blocks_for(len(tokens)) - len(known)
        if rest > len(set(self.free_blocks) - set(known)):
            raise ValueError("too few")
        for block in known:
            self.ref_count[block] += 1
            self.free_blocks.pop(block, None)
        self.block_table[sequence] = [*known]
        for _ in range(rest):
            self.block_table[sequence].append(self._new())
        self.asked, self.found = (
            self.asked + len(tokens), self.found + self.block_size * len(known))  # fmt: skip
        return self.block_size * len(known)

    def reserve(self, sequence, length):
        more = range(len(self.block_table[sequence]), self.blocks_for(length))
        if len(more) > len(self.free_blocks):
            raise ValueError("too few")
        self.block_table[sequence].extend(self._new() for _ in more)

    def _new(self):
        block = self.free_blocks.popitem(last=False)[0]
        if block in self.content:
            self.block_of.pop(self.content.pop(block)[0])
        self.ref_count[block] += 1
        return block

    def commit(self, sequence, tokens):
        table, names = self.block_table[sequence], [b""]
        for index in range(len(tokens) // self.block_size):
            part = tuple(tokens[index * self.block_size : (index + 1) * self.block_size])
            entry = (self.hash_fn(names[-1], part), names[-1], part)
            names.append(entry[0])
            first = self.block_of.get(entry[0])
            if first is None:
                self.block_of[entry[0]] = table[index]
                self.content[table[index]] = entry
                continue
            if self.content[first] != entry:
                return
            if first != table[index]:
                self.ref_count[first] += 1
                self.free_blocks.pop(first, None)
                self._return(table[index])
                table[index] = first

    def free(self, sequence):
        table = self.block_table.pop(sequence)
        for place in range(len(table) - 1, -1, -1):
            self._return(table[place])

    def _return(self, block):
        self.ref_count[block] -= 1
        if not self.ref_count[block]:
            self.free_blocks[block] = None
            if block not in self.content:
                self.free_blocks.move_to_end(block, last=False)


# %% exercise 15.3: a while loop over places, helpers within
class Planner(Queues):
    def plan(self):
        result, place, out = {}, 0, False
        while place < len(self.running):
            request = self.running[place]
            after = len(self.running) - place - 1
            free = self.budget - sum(result.values()) - after
            count = min(free, len(request.tokens) - request.computed)
            try:
                self.cache.reserve(request.number, request.computed + count)
            except ValueError:
                self._preempt()
                out = True
                continue
            result[request.number] = count
            place += 1
        while not out and self.waiting and len(self.running) < self.max_running:
            free = self.budget - sum(result.values())
            if free <= 0:
                break
            request = self.waiting[0]
            try:
                known = self.cache.begin(request.number, request.tokens)
            except ValueError:
                break
            self.waiting.popleft()
            request.computed = known
            self.running.append(request)
            result[request.number] = min(free, len(request.tokens) - known)
        return result

    def _preempt(self):
        last = self.running[-1]
        del self.running[-1]
        self.cache.free(last.number)
        last.computed = 0
        last.drafts = []
        self.waiting.insert(0, last)


# %% exercise 15.3: one token for each first, then the rest
class Planner(Queues):
    def plan(self):
        plan, spare, full = {}, self.budget - len(self.running), False
        queue = list(self.running)
        while queue:
            request = queue.pop(0)
            pending = len(request.tokens) - request.computed
            count = 1 + min(pending - 1, spare)
            while True:
                try:
                    self.cache.reserve(request.number, request.computed + count)
                    plan[request.number] = count
                    spare -= count - 1
                    break
                except ValueError:
                    full = True
                    gone = self.running.pop()
                    self.cache.free(gone.number)
                    gone.computed, gone.drafts = 0, []
                    self.waiting.appendleft(gone)
                    spare += 1
                    if gone is request:
                        break
                    queue.remove(gone)
                    count = 1 + min(pending - 1, spare)
        spare = self.budget - sum(plan.values())
        while not full and spare > 0 and self.waiting and len(self.running) != self.max_running:
            first = self.waiting[0]
            try:
                first.computed = self.cache.begin(first.number, first.tokens)
            except ValueError:
                full = True
                continue
            self.running += [self.waiting.popleft()]
            plan[first.number] = min(spare, len(first.tokens) - first.computed)
            spare -= plan[first.number]
        return plan


# %% exercise 15.3: numbers first, effects later
class Planner(Queues):
    def plan(self):
        counts, evicted = [], 0
        for request in list(self.running):
            if request not in self.running:
                break
            while request in self.running:
                behind = self.running[self.running.index(request) + 1 :]
                left = self.budget - sum(counts) - len(behind)
                count = min(left, len(request.tokens) - request.computed)
                if self._reserved(request, request.computed + count):
                    counts.append(count)
                    break
                evicted += 1
        numbers = [request.number for request in self.running]
        planned = dict(zip(numbers, counts, strict=True))
        left = self.budget - sum(counts)
        while evicted == 0 and left > 0 and len(self.running) < self.max_running:
            request = self.waiting[0] if self.waiting else None
            if request is None or not self._admitted(request):
                return planned
            count = min(left, len(request.tokens) - request.computed)
            planned[request.number], left = count, left - count
        return planned

    def _reserved(self, request, length):
        try:
            self.cache.reserve(request.number, length)
            return True
        except ValueError:
            self._preempt()
            return False

    def _admitted(self, request):
        try:
            request.computed = self.cache.begin(request.number, request.tokens)
        except ValueError:
            return False
        self.waiting.popleft()
        self.running.append(request)
        return True

    def _preempt(self):
        request = self.running.pop()
        request.computed = 0
        request.drafts.clear()
        self.cache.free(request.number)
        self.waiting.extendleft([request])


# %% exercise 15.4: strings of slices, zip, the cache's own books
def ngram_draft(tokens, count, longest=3):
    tokens = list(tokens)
    for size in range(longest, 0, -1):
        if size >= len(tokens):
            continue
        ends = [
            at + size for at in range(len(tokens) - size)
            if tokens[at : at + size] == tokens[len(tokens) - size :]
        ]  # fmt: skip
        if ends:
            return tokens[max(ends) :][:count]
    return []


def accept_drafts(drafts, choices):
    taken = []
    for draft, choice in zip(drafts, choices):
        taken.append(choice)
        if draft != choice:
            return taken
    return taken + [choices[len(drafts)]]


def rewind(cache, sequence, length):
    table, stay = cache.block_table[sequence], -(-length // cache.block_size)
    for block in reversed(table[stay:]):
        cache.ref_count[block] -= 1
        if not cache.ref_count[block]:
            cache.free_blocks[block] = None
            if block not in cache.content:
                cache.free_blocks.move_to_end(block, last=False)
    del table[stay:]


# %% exercise 15.4: a table of all runs of tokens
def ngram_draft(tokens, count, longest=3):
    where = {}
    for size in range(1, longest + 1):
        for at in range(len(tokens) - size):
            where[tuple(tokens[at : at + size])] = at + size
    for size in range(min(longest, len(tokens)), 0, -1):
        end = where.get(tuple(tokens[-size:]))
        if end is not None:
            return list(tokens[end : end + count])
    return []


def accept_drafts(drafts, choices):
    right = [draft == choice for draft, choice in zip(drafts, choices)] + [False]
    return list(choices[: right.index(False) + 1])


def rewind(cache, sequence, length):
    size = cache.blocks_for(length)
    table = cache.block_table[sequence]
    gone, table[size:] = table[size:], []
    for block in gone[::-1]:
        cache.ref_count[block] -= 1
        if cache.ref_count[block] < 1:
            cache.free_blocks.update({block: None})
            cache.free_blocks.move_to_end(block, block in cache.content)


# %% exercise 15.4: recursion
def ngram_draft(tokens, count, longest=3):
    if longest == 0 or len(tokens) < 2:
        return []
    tail, at = list(tokens[-longest:]), len(tokens) - longest - 1
    while at >= 0:
        if list(tokens[at : at + longest]) == tail:
            return list(tokens[at + longest :][:count])
        at -= 1
    return ngram_draft(tokens, count, longest - 1)


def accept_drafts(drafts, choices):
    if drafts and drafts[0] == choices[0]:
        return [choices[0], *accept_drafts(drafts[1:], choices[1:])]
    return [choices[0]]


def rewind(cache, sequence, length):
    if len(cache.block_table[sequence]) <= cache.blocks_for(length):
        return
    block = cache.block_table[sequence].pop()
    cache.ref_count[block] -= 1
    if cache.ref_count[block] == 0:
        cache.free_blocks[block] = None
        cache.free_blocks.move_to_end(block, last=block in cache.content)
    rewind(cache, sequence, length)


# %% exercise 15.5: letter by letter
class StopText:
    def __init__(self, stops=()):
        if any(stop == "" for stop in stops):
            raise ValueError("empty")
        self.stops, self.held, self.stopped = stops, "", False

    def add(self, piece):
        if self.stopped:
            return ""
        text, self.held = self.held + piece, ""
        for at in range(len(text)):
            if any(text.startswith(stop, at) for stop in self.stops):
                self.stopped, self.held = True, ""
                return text[:at]
        at = len(text)
        while at > 0 and not self.held:
            tails = [text[k:] for k in range(len(text)) if self._open(text[k:])]
            self.held, at = (tails[0] if tails else ""), 0
        return text[: len(text) - len(self.held)]

    def _open(self, tail):
        return any(stop[: len(tail)] == tail for stop in self.stops)

    def rest(self):
        text = self.held
        self.held = ""
        return text


# %% exercise 15.5: the longest beginning of each stop string
class StopText:
    def __init__(self, stops=()):
        for stop in stops:
            if not stop:
                raise ValueError("an empty stop string")
        self.stops, self.held, self.stopped = tuple(stops), "", False

    def add(self, piece):
        self.held = "" if self.stopped else self.held + piece
        first = min((self.held.index(s) for s in self.stops if s in self.held), default=None)
        if first is not None:
            self.stopped, shown, self.held = True, self.held[:first], ""
            return shown
        keep = 0
        for stop in self.stops:
            for size in range(1, len(stop)):
                if self.held.endswith(stop[:size]):
                    keep = max(keep, size)
        cut = len(self.held) - keep
        shown, self.held = self.held[:cut], self.held[cut:]
        return shown

    def rest(self):
        shown, self.held = self.held, ""
        return shown


# %% exercise 15.5: what was shown is counted
class StopText:
    def __init__(self, stops=()):
        if "" in list(stops):
            raise ValueError("empty stop string")
        self.stops, self.text, self.shown, self.stopped = list(stops), "", 0, False

    def add(self, piece):
        if self.stopped:
            return ""
        self.text += piece
        end = len(self.text)
        places = sorted(self.text.find(stop) for stop in self.stops if stop in self.text)
        if places:
            end, self.stopped = places[0], True
            self.text = self.text[:end]
        else:
            for at in range(len(self.text) - 1, self.shown - 1, -1):
                if any(stop.startswith(self.text[at:]) for stop in self.stops):
                    end = at
        before, self.shown = self.shown, end
        return self.text[before:end]

    def rest(self):
        before, self.shown = self.shown, len(self.text)
        return self.text[before:]


# %% exercise 15.6: a table of what is allowed, made once for each state
class TokenMask:
    def __init__(self, machine, vocabulary, eos_token_id=()):
        self.machine, self.vocabulary = machine, vocabulary
        self.eos_token_id, self.state = set(eos_token_id), 0
        self.known = {}

    def _table(self):
        if self.state not in self.known:
            found = {}
            for token, text in enumerate(self.vocabulary):
                if token in self.eos_token_id:
                    if self.state in self.machine.ends:
                        found[token] = self.state
                    continue
                at = self.state if text else None
                for byte in text:
                    if at is None or byte not in self.machine.steps[at]:
                        at = None
                        break
                    at = self.machine.steps[at][byte]
                if at is not None:
                    found[token] = at
            self.known[self.state] = found
        return self.known[self.state]

    def allowed(self):
        return list(self._table())

    def mask(self, logits):
        table = self._table()
        if not table:
            raise ValueError("a dead end")
        keep = torch.zeros(len(logits), dtype=torch.bool)
        keep[list(table)] = True
        return logits.masked_fill(~keep, float("-inf"))

    def accept(self, token):
        if token not in self._table():
            raise ValueError(f"{token} may not come")
        self.state = self._table()[token]


# %% exercise 15.6: a tree of the vocabulary is walked beside the machine
class TokenMask:
    def __init__(self, machine, vocabulary, eos_token_id=()):
        self.machine, self.vocabulary = machine, vocabulary
        self.eos_token_id, self.state = set(eos_token_id), 0
        self.tree = {}
        for token, text in enumerate(vocabulary):
            if text and token not in self.eos_token_id:
                node = self.tree
                for byte in text:
                    node = node.setdefault(byte, {})
                node.setdefault(None, []).append(token)

    def _walk(self, node, state):
        for token in node.get(None, ()):
            yield token, state
        for byte, after in self.machine.steps[state].items():
            if byte in node:
                yield from self._walk(node[byte], after)

    def _next(self):
        found = dict(self._walk(self.tree, self.state))
        if self.state in self.machine.ends:
            found.update((token, self.state) for token in self.eos_token_id)
        return found

    def allowed(self):
        return sorted(self._next())

    def mask(self, logits):
        allowed = self.allowed()
        if allowed:
            bias = torch.full(logits.shape, -torch.inf, dtype=logits.dtype)
            bias[allowed] = 0
            return logits + bias
        raise ValueError("nothing is allowed")

    def accept(self, token):
        try:
            self.state = self._next()[token]
        except KeyError:
            raise ValueError(f"not allowed: {token}") from None


# %% exercise 15.6: functools.reduce, where
class TokenMask:
    def __init__(self, machine, vocabulary, eos_token_id=()):
        self.machine, self.vocabulary = machine, vocabulary
        self.eos_token_id, self.state = set(eos_token_id), 0

    def _after(self, text):
        from functools import reduce

        steps = self.machine.steps
        return reduce(
            lambda state, byte: None if state is None else steps[state].get(byte),
            text, self.state if text else None)  # fmt: skip

    def _may(self, token):
        if token in self.eos_token_id:
            return self.state in self.machine.ends
        return self._after(self.vocabulary[token]) is not None

    def allowed(self):
        return [token for token in range(len(self.vocabulary)) if self._may(token)]

    def mask(self, logits):
        may = [n < len(self.vocabulary) and self._may(n) for n in range(logits.size(0))]
        if not any(may):
            raise ValueError("no token may come here")
        return torch.where(torch.tensor(may), logits, -torch.inf)

    def accept(self, token):
        if not self._may(token):
            raise ValueError("this token may not come here")
        if token not in self.eos_token_id:
            self.state = self._after(self.vocabulary[token])


# %% exercise 15.7: the columns less the padding
def web_positions(lengths):
    width = max(lengths)
    return [[column - (width - n) for column in range(width - n, width)] for n in lengths]


# %% exercise 15.8: a generator per reader
def web_draws(readers, seed, new=8):
    draws, mine = [torch.Generator().manual_seed(seed + i) for i in range(readers)], []
    for _ in range(new):
        rows = [torch.multinomial(torch.full((50,), 1 / 50), 1, generator=d) for d in draws]
        mine.append(int(rows[0]))
    return mine
