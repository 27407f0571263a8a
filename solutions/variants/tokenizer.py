# Right answers of lab 09, written otherwise. Every one has to earn full points.


# %% exercise 9.1: recursion, and a dict of counts
def merge_pair(tokens, pair):
    out, joined = [], False
    for token in tokens:
        if out and not joined and (out[-1], token) == tuple(pair):
            out[-1] += token
            joined = True
        else:
            out.append(token)
            joined = False
    return out


def train_bpe(texts, vocab_size, pattern=PATTERN):
    words = {}
    for text in texts:
        for piece in pre_tokenize(text, pattern):
            key = tuple(byte_tokens(piece))
            words[key] = words.get(key, 0) + 1
    order = sorted(BYTE_OF)
    merges = []
    while len(order) < vocab_size:
        counts = {}
        for word, n in words.items():
            for i in range(len(word) - 1):
                pair = word[i], word[i + 1]
                counts[pair] = counts.get(pair, 0) + n
        if len(counts) == 0:
            return merges
        most = max(counts.values())
        tied = [pair for pair, n in counts.items() if n == most]
        best = sorted(tied, key=lambda p: (order.index(p[0]), order.index(p[1])))[0]
        merges.append(best)
        if "".join(best) not in order:
            order.append("".join(best))
        merged = {}
        for word, n in words.items():
            new = tuple(merge_pair(word, best))
            merged[new] = merged.get(new, 0) + n
        words = merged
    return merges


# %% exercise 9.1: numbers instead of texts, all words in one list
def merge_pair(tokens, pair):
    tokens, i = list(tokens), 0
    left, right = pair
    while i < len(tokens) - 1:
        if tokens[i] == left and tokens[i + 1] == right:
            tokens[i : i + 2] = [left + right]
        i += 1
    return tokens


def train_bpe(texts, vocab_size, pattern=PATTERN):
    names = sorted(BYTE_OF)
    number = {name: i for i, name in enumerate(names)}
    words = [byte_tokens(word) for text in texts for word in pre_tokenize(text, pattern)]
    words = [[number[character] for character in word] for word in words]
    merges = []
    for new in range(256, vocab_size):
        counts = Counter()
        for word in words:
            counts.update((word[j], word[j + 1]) for j in range(len(word) - 1))
        if not counts:
            break
        pair, _ = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[0]
        names.append(names[pair[0]] + names[pair[1]])
        merges.append([names[pair[0]], names[pair[1]]])
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == pair:
                    word[i] = new
                    del word[i + 1]
                i += 1
    return merges


# %% exercise 9.1: a generator
def merge_pair(tokens, pair):
    def walk():
        rest = list(tokens)[::-1]
        while rest:
            token = rest.pop()
            if token == pair[0] and rest and rest[-1] == pair[1]:
                token += rest.pop()
            yield token

    return [*walk()]


def train_bpe(texts, vocab_size, pattern=PATTERN):
    pieces = Counter()
    for text in texts:
        pieces.update(pre_tokenize(text, pattern))
    split = {piece: byte_tokens(piece) for piece in pieces}
    rank = dict(zip(sorted(BYTE_OF), range(256)))
    found = []
    while len(rank) < vocab_size:
        pairs = Counter()
        for piece, tokens in split.items():
            for left, right in pairwise(tokens):
                pairs[left, right] += pieces[piece]
        try:
            best = max(pairs, key=lambda p: (pairs[p], -rank[p[0]], -rank[p[1]]))
        except ValueError:
            break
        found += [best]
        rank.setdefault("".join(best), len(rank))
        split = {piece: merge_pair(tokens, best) for piece, tokens in split.items()}
    return found


# %% exercise 9.2: one pass of a pattern, a byte array
class BPETokenizer:
    def __init__(self, vocab, merges, special_tokens=(), pattern=PATTERN, normal_form=None):
        self.vocab, self.special_tokens = dict(vocab), list(special_tokens)
        self.tokens = {number: token for token, number in vocab.items()}
        self.ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self.pattern, self.normal_form = pattern, normal_form

    def pieces(self, text):
        if self.normal_form:
            text = unicodedata.normalize(self.normal_form, text)
        return pre_tokenize(text, self.pattern)

    def bpe(self, piece):
        word = byte_tokens(piece)
        while len(word) > 1:
            best = min(pairwise(word), key=lambda p: self.ranks.get(p, float("inf")))
            if best not in self.ranks:
                break
            word = merge_pair(word, best)
        return word

    def encode(self, text, parse_special=True):
        ids, begin = [], 0
        names = sorted(self.special_tokens, key=lambda name: -len(name))
        if parse_special and names:
            for found in re.finditer("|".join(re.escape(name) for name in names), text):
                ids += self.encode(text[begin : found.start()], parse_special=False)
                ids.append(self.vocab[found.group()])
                begin = found.end()
        for piece in self.pieces(text[begin:]):
            ids.extend(self.vocab[token] for token in self.bpe(piece))
        return ids

    def decode(self, ids, skip_special_tokens=True):
        out = bytearray()
        for i in ids:
            if i not in self.tokens:
                continue
            token = self.tokens[i]
            if token in self.special_tokens:
                if not skip_special_tokens:
                    out.extend(token.encode())
            else:
                out.extend(BYTE_OF[c] for c in token)
        return bytes(out).decode(errors="replace")


# %% exercise 9.2: the leftmost of the best, one pair at a time
class BPETokenizer:
    def __init__(self, vocab, merges, special_tokens=(), pattern=PATTERN, normal_form=None):
        self.vocab, self.special_tokens = dict(vocab), list(special_tokens)
        self.tokens = {number: token for token, number in vocab.items()}
        self.ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self.pattern, self.normal_form = pattern, normal_form

    def pieces(self, text):
        if self.normal_form:
            text = unicodedata.normalize(self.normal_form, text)
        return pre_tokenize(text, self.pattern)

    def bpe(self, piece):
        parts = byte_tokens(piece)
        while True:
            best, at = None, None
            for i in range(len(parts) - 1):
                rank = self.ranks.get((parts[i], parts[i + 1]))
                if rank is not None and (best is None or rank < best):
                    best, at = rank, i
            if at is None:
                return parts
            parts = parts[:at] + [parts[at] + parts[at + 1]] + parts[at + 2 :]

    def encode(self, text, parse_special=True):
        ids, plain, i = [], "", 0
        while i <= len(text):
            fits = [s for s in self.special_tokens if text.startswith(s, i) and parse_special]
            if fits or i == len(text):
                ids += [self.vocab[t] for piece in self.pieces(plain) for t in self.bpe(piece)]
                plain = ""
            if fits:
                name = max(fits, key=len)
                ids.append(self.vocab[name])
                i += len(name)
            else:
                plain += text[i : i + 1]
                i += 1
        return ids

    def decode(self, ids, skip_special_tokens=True):
        text = ""
        for number in ids:
            token = self.tokens.get(number)
            if token is None or (skip_special_tokens and token in self.special_tokens):
                continue
            if token in self.special_tokens:
                token = "".join(byte_tokens(token))
            text += token
        return bytearray(BYTE_OF[c] for c in text).decode("utf-8", "replace")


# %% exercise 9.2: a cache, and recursion over the special tokens
class BPETokenizer:
    def __init__(self, vocab, merges, special_tokens=(), pattern=PATTERN, normal_form=None):
        self.vocab, self.special_tokens = dict(vocab), list(special_tokens)
        self.tokens = {number: token for token, number in vocab.items()}
        self.ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self.pattern, self.normal_form = pattern, normal_form

    def pieces(self, text):
        if self.normal_form:
            text = unicodedata.normalize(self.normal_form, text)
        return pre_tokenize(text, self.pattern)

    def bpe(self, piece):
        if not hasattr(self, "cache"):
            self.cache = {}
        if piece not in self.cache:
            self.cache[piece] = self.merge(byte_tokens(piece))
        return list(self.cache[piece])

    def merge(self, tokens):
        pairs = set(pairwise(tokens)) & set(self.ranks)
        if not pairs:
            return tokens
        return self.merge(merge_pair(tokens, sorted(pairs, key=lambda p: self.ranks[p])[0]))

    def encode(self, text, parse_special=True):
        if parse_special:
            places = [(text.find(s), -len(s), s) for s in self.special_tokens if s in text]
            if places:
                at, _, name = min(places)
                rest = text[at + len(name) :]
                head = self.encode(text[:at], False)
                return [*head, self.vocab[name], *self.encode(rest)]
        return [self.vocab[token] for piece in self.pieces(text) for token in self.bpe(piece)]

    def decode(self, ids, skip_special_tokens=True):
        known = [self.tokens[i] for i in ids if i in self.tokens]
        if skip_special_tokens:
            known = [token for token in known if token not in self.special_tokens]
        raw = [
            token.encode() if token in self.special_tokens
            else bytes([BYTE_OF[c] for c in token])
            for token in known
        ]  # fmt: skip
        return b"".join(raw).decode("utf-8", errors="replace")


# %% exercise 9.3: parts in a list
def render_chat(messages, add_generation_prompt=True, enable_thinking=True):
    users = (i for i, m in enumerate(messages) if m["role"] == "user")
    last = max(users, default=len(messages))
    parts = []
    for i, m in enumerate(messages):
        role, content = m["role"], m["content"]
        if role == "assistant":
            reasoning = ""
            if "</think>" in content:
                before, after = content.split("</think>", 1)
                reasoning = before.split("<think>")[-1].strip("\n")
                content = after.lstrip("\n")
            if i > last and (i + 1 == len(messages) or reasoning):
                content = "<think>\n" + reasoning + "\n</think>\n\n" + content.lstrip("\n")
        parts.append("<|im_start|>" + role + "\n" + content + "<|im_end|>" + "\n")
    if add_generation_prompt:
        parts.append("<|im_start|>assistant\n")
        if enable_thinking is False:
            parts.append("<think>\n\n</think>\n\n")
    return "".join(parts)


# %% exercise 9.3: from the end to the beginning
def render_chat(messages, add_generation_prompt=True, enable_thinking=True):
    text = ""
    if add_generation_prompt:
        text = "<|im_start|>assistant\n"
        text += "" if enable_thinking else "<think>\n\n</think>\n\n"
    recent = any(m["role"] == "user" for m in messages)
    for back, message in enumerate(reversed(messages)):
        body = message["content"]
        if message["role"] == "user":
            recent = False
        if message["role"] == "assistant":
            match = re.fullmatch(r"(?s)(.*?)</think>\n*(.*)", body)
            thought = match[1].split("<think>")[-1].strip("\n") if match else ""
            body = match[2] if match else body
            if recent and (thought or back == 0):
                body = f"<think>\n{thought}\n</think>\n\n" + body.lstrip("\n")
        text = f"<|im_start|>{message['role']}\n{body}<|im_end|>\n" + text
    return text


# %% exercise 9.3: helpers inside
def render_chat(messages, add_generation_prompt=True, enable_thinking=True):
    def turn(role, body):
        return "<|im_start|>" + role + "\n" + body + "<|im_end|>\n"

    def cut(body):
        if "</think>" not in body:
            return "", body
        end = body.index("</think>")
        start = body.find("<think>")
        thought = body[start + 7 : end] if start >= 0 else body[:end]
        return thought.strip("\n"), body[end + 8 :].lstrip("\n")

    roles = [message["role"] for message in messages]
    after = len(roles) - roles[::-1].index("user") if "user" in roles else len(roles) + 1
    out = ""
    for i, message in enumerate(messages):
        if roles[i] != "assistant":
            out += turn(roles[i], message["content"])
            continue
        thought, answer = cut(message["content"])
        block = i >= after and (bool(thought) or message is messages[-1])
        head = "\n".join(["<think>", thought, "</think>", "", ""]) if block else ""
        out += turn("assistant", head + (answer.lstrip("\n") if block else answer))
    if not add_generation_prompt:
        return out
    closed = ["<think>\n\n</think>\n\n", ""][bool(enable_thinking)]
    return out + "<|im_start|>assistant\n" + closed


# %% exercise 9.4: the whole text again for each token
def web_stream(tokens):
    pieces, data, shown = [], b"", ""
    for token in tokens:
        data += bytes(BYTE_OF[character] for character in token)
        text = data.decode("utf-8", errors="replace").rstrip("\ufffd")
        pieces.append(text[len(shown) :])
        shown = text
    return pieces
