"""Lab 15: a server.

The parts of an engine that many clients use at once: attention that reads the blocks of a cache
where they are, blocks that several requests share, one budget of tokens per pass, drafts that
leave no trace, and text that stops in the right place. engine.py joins them with your decoder.

Shapes: B texts, T new tokens of each, H query heads, K KV heads, G = H/K queries per KV head,
D head_dim, V vocab_size.
"""

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

import torch
from torch import Tensor


# %% exercise 15.1: paged_attention
def paged_attention(
    query: Tensor,
    key_blocks: Tensor,
    value_blocks: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    scale: float | None = None,
) -> Tensor:
    """Causal attention that reads keys and values through a block table, block by block.

    Token number n of text b is in block block_table[b, n // block_size], at place
    n % block_size. The T queries of a text are its last tokens: query t is at position
    lengths[b] - T + t and attends to the tokens up to its own position. As in lab 10, each
    query keeps the largest score, the sum of exp(score - largest) and the sum of
    exp(score - largest) * value from block to block; the texts of a batch go through their
    tables side by side.

    A table is as wide as the longest text needs, or wider. Entries behind the last block of a
    text are -1. Places behind the last token of a text hold what was there before, even NaN or
    infinity, and have no influence. scale is D^-0.5 if it is None; 0.0 is a scale. Query head h
    reads KV head h // G. No tensor that is made on the way grows with the length of the texts:
    no copy of all keys or values, no scores of all keys.

    Shapes: query (B, H, T, D), key_blocks (num_blocks, K, block_size, D),
            value_blocks (num_blocks, K, block_size, features), block_table (B, blocks) and
            lengths (B,) integers, of which lengths include the T new tokens
            -> (B, H, T, features)
    dtype:  the result has that of query; scores and running sums are kept in float32
    Source: Kwon et al. 2023, https://arxiv.org/abs/2309.06180 (PagedAttention)
    """
    # YOUR CODE HERE (about 25 lines)
    raise NotImplementedError("Exercise 15.1: paged_attention")


# %% given: the name of a block
def block_hash(parent: bytes, tokens: Sequence[int]) -> bytes:
    """The hash of a full block: of its tokens, and of parent, the hash of the block before it.

    So it depends on every token from the first one on. The first block's parent is b"".
    """
    return sha256(parent + b"".join(token.to_bytes(4, "big") for token in tokens)).digest()


# %% exercise 15.2: PrefixCache
class PrefixCache:
    """Which blocks hold which tokens: blocks that begin alike are shared, and outlive a text.

    A full block whose keys and values are written becomes known under its hash (commit). A
    later text that begins with the same tokens shares it (begin), as long as it is not evicted.
    It may be shared while its writer runs, and after the writer has left.

    free_blocks lists the blocks that no text has, in the order in which they are taken; a known
    block stays known there until it is taken. A text that leaves gives its blocks back, the
    last one first: a known block goes to the end of free_blocks, so that the one not used for
    longest is taken first and the end of a text before its beginning. A block that is not known
    goes to the front.

    A hash is a name, not a proof: a block counts as found only if its own tokens and its
    parent's hash are those that are looked for. A block whose hash another content has already
    stays unknown, and so do all blocks of its text after it.

    Source: https://docs.vllm.ai/en/latest/design/prefix_caching/
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        hash_fn: Callable[[bytes, Sequence[int]], bytes] = block_hash,
    ):
        self.block_size, self.hash_fn = block_size, hash_fn
        self.ref_count = [0] * num_blocks  # by block: how many texts have it
        self.free_blocks = OrderedDict.fromkeys(range(num_blocks))  # the first is taken first
        self.block_table: dict[int, list[int]] = {}  # by sequence
        self.block_of: dict[bytes, int] = {}  # by hash: the known block
        self.content: dict[int, tuple] = {}  # by known block: hash, parent's hash, tokens
        self.asked = self.found = 0  # tokens that texts began with, and those that were known

    def blocks_for(self, tokens: int) -> int:
        """How many blocks a text of `tokens` tokens fills, the last perhaps in part."""
        return -(-tokens // self.block_size)

    def begin(self, sequence: int, tokens: Sequence[int]) -> int:
        """Begin a text: give it blocks for all its tokens, and return how many are known.

        The known blocks at its beginning are shared, up to the first that is not known. At
        least one token stays to be run, since its logits are needed: a block is not shared if
        it holds the last token. `asked` grows by the number of tokens, `found` by what is
        returned, a multiple of block_size.

        Errors: a sequence that exists, or too few free blocks: ValueError, and nothing changes
        """
        if sequence in self.block_table:
            raise ValueError(f"sequence {sequence} is in the cache already")
        # YOUR CODE HERE (about 19 lines)
        raise NotImplementedError("Exercise 15.2: PrefixCache")

    def reserve(self, sequence: int, length: int) -> None:
        """Give the text further blocks until it has places for `length` tokens.

        Errors: too few free blocks: ValueError, and nothing changes
        """
        # YOUR CODE HERE (about 5 lines)
        raise NotImplementedError("Exercise 15.2: PrefixCache")

    def commit(self, sequence: int, tokens: Sequence[int]) -> None:
        """Make the full blocks of a text known: all these tokens, its first ones, are written.

        Where a known block has the same content already, the text takes it into its table in
        the place of its own block, which it gives back.
        """
        # YOUR CODE HERE (about 16 lines)
        raise NotImplementedError("Exercise 15.2: PrefixCache")

    def free(self, sequence: int) -> None:
        """End a text: it gives back its blocks, the last one first."""
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 15.2: PrefixCache")

    def _take(self) -> int:
        """Take the first free block, for new content: it is known no longer."""
        # YOUR CODE HERE (about 5 lines)
        raise NotImplementedError("Exercise 15.2: PrefixCache")

    def _share(self, block: int) -> None:
        """Give a known block to one more text."""
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 15.2: PrefixCache")

    def _drop(self, block: int) -> None:
        """Take a block away from one text; if it was the last one, the block is free."""
        # YOUR CODE HERE (about 4 lines)
        raise NotImplementedError("Exercise 15.2: PrefixCache")


# %% given: what a client asks for
@dataclass(eq=False)
class Request:
    """A prompt, how its answer is chosen, and how far it is."""

    number: int  # also its sequence in the cache
    prompt: list[int]
    max_new_tokens: int = 16
    temperature: float = 0.0
    seed: int = 0
    output: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)  # guesses of the tokens that come next
    computed: int = 0  # how many of its tokens are in the cache
    mask: "TokenMask | None" = None  # the grammar that the answer follows
    reason: str = ""  # why it has ended: "stop", "length", "cancelled"

    @property
    def tokens(self) -> list[int]:
        """Everything that can be run: the prompt, the answer so far, and drafts."""
        return self.prompt + self.output + self.drafts


class Queues:
    """Who waits and who runs, and the books of both."""

    def __init__(self, cache, budget: int, max_running: int):
        if budget < max_running:
            raise ValueError(f"budget {budget} is less than max_running {max_running}")
        self.cache, self.budget, self.max_running = cache, budget, max_running
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def submit(self, request: Request) -> None:
        """Put a request at the end of the queue."""
        self.waiting.append(request)

    def record(self, number: int, count: int, new: Sequence[int] = ()) -> None:
        """Note what a pass did: `count` tokens of a text were run, and `new` ones follow it."""
        request = self.find(number)
        request.computed += count
        request.output += new
        written = len(request.prompt) + len(request.output)
        request.computed = min(request.computed, written - 1) if new else request.computed
        request.drafts = [] if new else request.drafts
        self.cache.commit(number, request.tokens[: request.computed])

    def find(self, number: int) -> Request:
        """The running request of this number; ValueError if there is none."""
        for request in self.running:
            if request.number == number:
                return request
        raise ValueError(f"request {number} is in the plan and does not run")

    def finish(self, number: int, reason: str) -> Request:
        """Let a request leave, from wherever it is: its blocks are given back."""
        for line in (self.running, self.waiting):
            for request in list(line):
                if request.number == number:
                    line.remove(request)
                    request.reason = reason
                    if line is self.running:
                        self.cache.free(number)
                    return request
        raise ValueError(f"there is no request {number}")

    def dry_run(self, passes: int = 1, drafts: int = 0) -> list[dict]:
        """Passes without a model: every text whose tokens have all run gets one token, 0.

        drafts    how many tokens are guessed for each text and pass, all of them wrong
        """
        log = []
        for _ in range(passes):
            planned = self.plan()
            log.append({"planned": planned, **self.lines()})
            for number, count in planned.items():
                request = self.find(number)
                known = len(request.prompt) + len(request.output)
                self.record(number, count, [0] if request.computed + count >= known else [])
                left = request.max_new_tokens - len(request.output)
                if request.output:
                    request.drafts = [0] * min(drafts, left - 1)
                if left == 0:
                    self.finish(number, "length")
        return log

    def lines(self) -> dict[str, list[int]]:
        """The numbers of those that run, and of those that wait, in their order."""
        lines = {"running": self.running, "waiting": self.waiting}
        return {name: [r.number for r in line] for name, line in lines.items()}


# %% exercise 15.3: Planner
class Planner(Queues):
    """Who gets how many tokens in the next pass: one budget for prompts and answers alike.

    A request is pending by len(request.tokens) - request.computed tokens: a text that is being
    written by one, and by its drafts; a prompt by all that is not in the cache yet. plan() goes
    through three rules:

    1. Running texts, in the order of `running`. Each gets its pending tokens, but no more than
       the budget that is left after setting aside one token for each running text behind it.
       So a long prompt takes what the others leave, and everybody moves in every pass.
    2. Blocks. A text that gets n tokens needs places for computed + n tokens (cache.reserve).
       While that raises ValueError, the last of `running` is preempted: it leaves `running`,
       its blocks are freed, computed becomes 0, its drafts are dropped, and it goes to the
       front of `waiting`. If that is the text itself, it gets nothing.
    3. Waiting requests, in the order of `waiting`, while budget is left and fewer than
       max_running run, and if nobody was preempted in this plan. cache.begin gives blocks for
       all its tokens and returns how many are known: these are computed already. It leaves
       `waiting`, joins `running` at the end and gets its pending tokens, at most the budget
       that is left. If cache.begin raises ValueError, nobody else is admitted either: no
       request overtakes.

    budget is at least max_running. The sum of the plan is at most budget, and no number in it
    is 0.

    Source: Agrawal et al. 2024, https://arxiv.org/abs/2403.02310 (Sarathi-Serve)
    """

    def plan(self) -> dict[int, int]:
        """The next pass: {number of a request: how many of its tokens are run}.

        It changes running, waiting, the requests and the cache as described above; computed
        grows only after the pass (record).
        """
        # YOUR CODE HERE (about 24 lines)
        raise NotImplementedError("Exercise 15.3: Planner")

    def _preempt(self) -> None:
        """Send the last running text back to the front of the queue."""
        # YOUR CODE HERE (about 4 lines)
        raise NotImplementedError("Exercise 15.3: Planner")


# %% given: one token, the same in every batch
def choose_token(logits: Tensor, temperature: float, seed: int, place: int) -> int:
    """The next token of one text: the best one at temperature 0, else drawn.

    The draw depends on the logits, the seed and the token's place in its text alone: not on
    who else is in the batch, nor on how the text came to be computed.

    Shapes: logits (V,)
    """
    if temperature == 0:
        return int(logits.argmax())
    draw = torch.Generator().manual_seed((seed * 1_000_003 + place) % 2**63)
    probs = (logits.cpu().float() / temperature).softmax(dim=-1)
    return int(torch.multinomial(probs, num_samples=1, generator=draw))


# %% exercise 15.4: ngram_draft, accept_drafts, rewind
def ngram_draft(tokens: Sequence[int], count: int, longest: int = 3) -> list[int]:
    """Guess the next tokens from the text itself: what came after the same words before.

    The last n tokens are looked for earlier in the text, first with n = longest, then with n
    smaller by one, down to 1. The first n that occurs earlier decides, and of its earlier
    places the latest. The draft is what follows there: `count` tokens, or fewer where the text
    ends. An earlier place may overlap the last n tokens, but is not the end itself. Nothing
    found, or count 0: an empty list.

    Source: Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding
    """
    # YOUR CODE HERE (about 7 lines)
    raise NotImplementedError("Exercise 15.4: ngram_draft, accept_drafts, rewind")


def accept_drafts(drafts: Sequence[int], choices: Sequence[int]) -> list[int]:
    """The tokens that a pass over drafts has written: as many as it could have, one by one.

    choices[i] is the token that the model chooses after the text and the first i drafts, one
    more than there are drafts. The text takes choices up to and including the first that
    differs from the draft in its place; if none differs, all of them.
    """
    # YOUR CODE HERE (about 4 lines)
    raise NotImplementedError("Exercise 15.4: ngram_draft, accept_drafts, rewind")


def rewind(cache: PrefixCache, sequence: int, length: int) -> None:
    """Take back places behind the first `length` tokens of a text: rejected drafts leave it.

    Blocks that hold none of the first `length` tokens leave the table and are given back as
    free gives them back, the last one first. A length beyond the table changes nothing.
    """
    # YOUR CODE HERE (about 7 lines)
    raise NotImplementedError("Exercise 15.4: ngram_draft, accept_drafts, rewind")


# %% exercise 15.5: StopText
class StopText:
    """Text that comes in pieces and ends before the first of some stop strings.

    add(piece) returns what may be shown now: everything that has come and was not shown, but
    not the end of it that may be the beginning of a stop string. That end is held back, and no
    letter more. Once a stop string is complete, `stopped` is True, the text before it has been
    returned, and nothing ever comes after it. If several are complete, the one that begins
    first counts. rest() returns what is still held back at the end of the answer.

    Errors: an empty stop string: ValueError
    """

    def __init__(self, stops: Sequence[str] = ()):
        if "" in stops:
            raise ValueError("an empty stop string would stop at once")
        self.stops, self.held, self.stopped = list(stops), "", False

    def add(self, piece: str) -> str:
        """Take the next piece of the answer; return the text that may be shown."""
        # YOUR CODE HERE (about 15 lines)
        raise NotImplementedError("Exercise 15.5: StopText")

    def rest(self) -> str:
        """What is held back when the answer ends; afterwards there is nothing more."""
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 15.5: StopText")


# %% given: a grammar as a machine
@dataclass
class Machine:
    """Which texts are allowed, byte by byte.

    steps[state] leads from each byte that may come in this state to the state after it. A text
    begins in state 0, and may end in the states of `ends`.
    """

    steps: list[dict[int, int]]
    ends: set[int]


# UTF-8: first and last byte that begin a letter, the range of the second, how many follow
LETTERS = (
    (0xC2, 0xDF, 0x80, 0xBF, 1), (0xE0, 0xE0, 0xA0, 0xBF, 2), (0xE1, 0xEC, 0x80, 0xBF, 2),
    (0xED, 0xED, 0x80, 0x9F, 2), (0xEE, 0xEF, 0x80, 0xBF, 2), (0xF0, 0xF0, 0x90, 0xBF, 3),
    (0xF1, 0xF3, 0x80, 0xBF, 3), (0xF4, 0xF4, 0x80, 0x8F, 3),
)  # fmt: skip


def json_machine(fields: Mapping[str, str | Sequence[str]]) -> Machine:
    """The JSON objects with these fields, in this order, written as json.dumps writes them.

    fields    by name: "string", "integer", "boolean", or a list of all that it may be

    Errors: another kind, or no fields: ValueError
    """
    steps: list[dict[int, int]] = [{}]

    def lead(states: list[int], first: int, last: int, target: int) -> None:
        for state in states:
            steps[state].update(dict.fromkeys(range(first, last + 1), target))

    def new_state() -> int:
        steps.append({})
        return len(steps) - 1

    def write(states: list[int], text: str) -> list[int]:
        for byte in text.encode():
            known = [steps[state][byte] for state in states if byte in steps[state]]
            target = known[0] if known else new_state()
            lead(states, byte, byte, target)
            states = [target]
        return states

    def write_string(states: list[int]) -> list[int]:
        inside = write(states, '"')
        lead(inside, 0x20, 0x7F, inside[0])
        del steps[inside[0]][ord('"')], steps[inside[0]][ord("\\")]
        for letter in '"\\/bfnrt':
            steps[write(inside, "\\")[0]][ord(letter)] = inside[0]
        rest = [inside[0], new_state(), new_state()]  # how many bytes of a letter are to come
        for left in (1, 2):
            lead([rest[left]], 0x80, 0xBF, rest[left - 1])
        for first, last, low, high, count in LETTERS:
            begun = new_state()
            lead(inside, first, last, begun)
            lead([begun], low, high, rest[count - 1])
        return write(inside, '"')

    def write_integer(states: list[int]) -> list[int]:
        begun = states + write(states, "-")
        zero, digits = write(begun, "0"), [new_state()]
        lead(begun, ord("1"), ord("9"), digits[0])
        lead(digits, ord("0"), ord("9"), digits[0])
        return zero + digits

    dumps = partial(json.dumps, ensure_ascii=False)
    states, before = [0], "{"
    for name, kind in fields.items():
        states = write(states, before + dumps(name) + ": ")
        before = ", "
        if kind in ("string", "integer"):
            states = (write_string if kind == "string" else write_integer)(states)
        elif kind == "boolean" or (kind and not isinstance(kind, str)):
            words = map(dumps, [True, False] if kind == "boolean" else kind)
            states = [end for word in words for end in write(states, word)]
        else:
            raise ValueError(f"{name} cannot be {kind}: string, integer, boolean, or a list")
    if before == "{":
        raise ValueError("an object needs at least one field")
    return Machine(steps, set(write(states, "}")))


# %% exercise 15.6: TokenMask
class TokenMask:
    """Which tokens may come next in an answer that follows a grammar.

    The grammar is a machine of bytes, and an answer comes in tokens: vocabulary[token] holds
    the bytes of a token, many of them, one, or a part of a letter. `state` is the state of the
    machine after all tokens that were accepted. A token is allowed if all its bytes may come
    from there, one after the other. A token without bytes is not: it would change nothing,
    forever. The tokens of eos_token_id end the answer: whatever their bytes, they are allowed
    where the machine may end, and nowhere else, and leave the state as it is.
    """

    def __init__(
        self, machine: Machine, vocabulary: Sequence[bytes], eos_token_id: Sequence[int] = ()
    ):
        self.machine, self.vocabulary = machine, vocabulary
        self.eos_token_id, self.state = set(eos_token_id), 0

    def allowed(self) -> list[int]:
        """The tokens that may come next, in rising order."""
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 15.6: TokenMask")

    def mask(self, logits: Tensor) -> Tensor:
        """The logits with -inf for every token that is not allowed.

        The others stay as they are, so that after softmax, at any temperature, any two allowed
        tokens are as likely beside each other as the model says. Logits may have more entries
        than the vocabulary: there are no tokens behind its end, and none is allowed.

        Shapes: (V,) -> (V,), a new tensor of the same dtype
        Errors: no token is allowed: ValueError
        """
        # YOUR CODE HERE (about 6 lines)
        raise NotImplementedError("Exercise 15.6: TokenMask")

    def accept(self, token: int) -> None:
        """Take the next token of the answer.

        Errors: a token that is not allowed: ValueError, and nothing changes
        """
        # YOUR CODE HERE (about 4 lines)
        raise NotImplementedError("Exercise 15.6: TokenMask")

    def _next_state(self, token: int) -> int | None:
        """The state after one more token; None if it is not allowed."""
        # YOUR CODE HERE (about 8 lines)
        raise NotImplementedError("Exercise 15.6: TokenMask")


# %% exercise 15.7: web_positions
def web_positions(lengths: Sequence[int]) -> list[list[int]]:
    """Number the tokens of each text of a batch that is padded on the left to one width."""
    width = max(lengths)
    return [list(range(width))[width - length :] for length in lengths]


# %% exercise 15.8: web_draws
def web_draws(readers: int, seed: int, new: int = 8) -> list[int]:
    """Draw the tokens of the first of several readers, who asked with this seed.

    They are those that the first reader gets alone.
    """
    draw, tokens = torch.Generator().manual_seed(seed), []
    probs = torch.full((readers, 50), 1 / 50)
    for _ in range(new):
        rows = torch.multinomial(probs, 1, generator=draw)
        tokens.append(int(rows[0]))
    return tokens
