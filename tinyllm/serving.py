"""Lab 10: serving.

One model, many readers: attention in tiles, weights of one byte or half a byte, a cache in
blocks, a batch that never waits for its slowest text, and drafts that the model only judges.

Shapes: B batch, T new tokens, S cached + new tokens, H query heads, K KV heads,
G = H/K queries per KV head, D head_dim, V vocab_size.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


# %% exercise 10.1: tiled_attention
def tiled_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_size: int = 64,
    is_causal: bool = True,
    scale: float | None = None,
) -> Tensor:
    """Attention over block_size keys at a time: exact, without a table of T x S scores.

    Each query keeps three things from block to block: the largest score so far, the sum of
    exp(score - largest), and the sum of exp(score - largest) * value. A block that raises the
    largest score first shrinks both sums by exp(old largest - new largest). At the end the
    second sum is divided by the first.

    If is_causal, the queries are the last of the keys: query t is at position S - T + t and
    attends to keys up to its own position. Otherwise every query attends to every key. scale
    is D^-0.5 if it is None; 0.0 is a scale. Query head h reads KV head h // G. No tensor that
    is made on the way grows with S: no scores of all keys, not even of one query, no mask, no
    list of positions, no copy of all keys or values.

    Shapes: query (B, H, T, D), key (B, K, S, D), value (B, K, S, features)
            -> (B, H, T, features); block_size need not divide S
    dtype:  the result has that of query; scores and running sums are kept in float32
    Source: Dao et al. 2022, https://arxiv.org/abs/2205.14135 (FlashAttention); the running sum:
            Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867
    """
    # YOUR CODE HERE (about 23 lines)
    raise NotImplementedError("Exercise 10.1: tiled_attention")


# %% exercise 10.2: quantize, dequantize, QuantizedLinear
def quantize(
    weight: Tensor, bits: int = 8, group_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Round a matrix to whole numbers, with one scale per row or per group of a row.

        scale = largest magnitude in the group / limit,   limit = 2^(bits - 1) - 1
        quantized = round(weight / scale)                 from -limit to limit

    Groups are group_size neighboring columns of one row; None takes each row as one group. A
    group of zeros has scale 1. Symmetric: 0 stays 0, and no zero point is stored.

    Shapes: weight (rows, columns)
            -> quantized (rows, columns), scale (rows, columns / group_size)
    dtype:  any float, computed in float32 -> int8 for every number of bits, and float32
    Errors: bits outside 2 to 8, a group_size that does not divide the columns: ValueError
    Source: Jacob et al. 2017, https://arxiv.org/abs/1712.05877
    """
    columns = weight.size(-1)
    group_size = columns if group_size is None else group_size
    if not 2 <= bits <= 8:
        raise ValueError(f"bits is {bits}; int8 holds 2 to 8")
    if group_size < 1 or columns % group_size:
        raise ValueError(f"group_size is {group_size}; it must divide the {columns} columns")
    # YOUR CODE HERE (about 6 lines)
    raise NotImplementedError("Exercise 10.2: quantize, dequantize, QuantizedLinear")


def dequantize(quantized: Tensor, scale: Tensor) -> Tensor:
    """Multiply each group by its scale again: the matrix that the whole numbers represent.

    Shapes: quantized (rows, columns), scale (rows, groups) -> (rows, columns)
    dtype:  int8 and float32 -> float32
    """
    # YOUR CODE HERE (about 2 lines)
    raise NotImplementedError("Exercise 10.2: quantize, dequantize, QuantizedLinear")


class QuantizedLinear(nn.Module):
    """A Linear that stores its weight quantized, to replace an nn.Linear.

    The weight is rounded once, when the layer is made. Each forward dequantizes it anew and
    keeps no float copy of the matrix: whole numbers and scales that are loaded later count at
    once. The bias, if there is one, is not rounded.

    Buffers: quantized (out_features, in_features) int8, scale (out_features, groups) float32,
             bias (out_features) or None; no Parameters, and no buffer requires grad, so that
             the float weight can be freed: a quantized layer is not trained
    Shapes:  hidden_states (..., in_features) -> (..., out_features)
    dtype:   that of hidden_states
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        bits: int = 8,
        group_size: int | None = None,
    ):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        # YOUR CODE HERE (about 4 lines)
        raise NotImplementedError("Exercise 10.2: quantize, dequantize, QuantizedLinear")

    def forward(self, hidden_states: Tensor) -> Tensor:
        # YOUR CODE HERE (about 3 lines)
        raise NotImplementedError("Exercise 10.2: quantize, dequantize, QuantizedLinear")


# %% given: every matrix of a model
def replace_linears(
    model: nn.Module,
    make: Callable[[Tensor, Tensor | None], nn.Module],
    names: Sequence[str] = ("",),
    skip: Sequence[str] = ("mlp.gate",),
) -> nn.Module:
    """Put make(weight, bias) in place of each nn.Linear whose name contains one of `names`.

    The routers of a mixture stay as they are: a rounded score may send a token to another
    expert. The model is changed in place and returned.
    """
    for name, layer in list(model.named_modules()):
        wanted = any(part in name for part in names) and not name.endswith(tuple(skip))
        if type(layer) is nn.Linear and wanted:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, make(layer.weight, layer.bias))
    return model


# %% exercise 10.3: PagedCache
class PagedCache:
    """Keys and values of many texts in one pool of equal blocks, none reserved in advance.

    A block has room for block_size tokens of one text, in every layer. block_table[sequence]
    lists the blocks of a text in the order of its tokens; token number n is in the block
    block_table[sequence][n // block_size], at place n % block_size. A block is taken from
    free_blocks when the first token is about to be written into it. ref_count says how many
    texts have a block in their table.

    A fork shares all blocks of its parent. Before a text writes into a block that other texts
    also have, it gets a copy of that block (copy on write), in all layers.

    Errors: too few free blocks, an unknown sequence, or one that exists already: ValueError,
            and tables, counts, lengths and free blocks are as before
    Source: Kwon et al. 2023, https://arxiv.org/abs/2309.06180 (PagedAttention)
    """

    def __init__(self, num_hidden_layers: int, num_blocks: int, block_size: int = 16):
        self.num_hidden_layers = num_hidden_layers
        self.block_size = block_size
        self.free_blocks = list(range(num_blocks))
        self.ref_count = [0] * num_blocks
        self.block_table: dict[int, list[int]] = {}  # by sequence
        self.lengths: dict[int, list[int]] = {}  # by sequence: tokens held, by layer
        # By layer, from its first append on: (num_blocks, K, block_size, D)
        self.keys: list[Tensor | None] = [None] * num_hidden_layers
        self.values: list[Tensor | None] = [None] * num_hidden_layers

    def add(self, sequence: int) -> None:
        """Begin an empty text; it takes no block yet."""
        if sequence in self.block_table:
            raise ValueError(f"sequence {sequence} is in the cache already")
        self.block_table[sequence] = []
        self.lengths[sequence] = [0] * self.num_hidden_layers

    def length(self, sequence: int) -> int:
        """How many tokens of a text every layer holds."""
        return min(self.lengths[sequence])

    def blocks_for(self, tokens: int) -> int:
        """How many blocks a text of `tokens` tokens fills, the last perhaps in part."""
        return -(-tokens // self.block_size)

    def fork(self, parent: int, child: int) -> None:
        """Begin the text `child` with all tokens of `parent`; no key or value is copied."""
        self.known(parent)
        self.add(child)
        # YOUR CODE HERE (about 4 lines)
        raise NotImplementedError("Exercise 10.3: PagedCache")

    def free(self, sequence: int) -> None:
        """Forget a text, its table and lengths. Blocks that no other text has become free."""
        self.known(sequence)
        # YOUR CODE HERE (about 5 lines)
        raise NotImplementedError("Exercise 10.3: PagedCache")

    def append(self, sequence: int, layer_idx: int, key: Tensor, value: Tensor) -> None:
        """Store one layer's keys and values of a text's new tokens.

        Shapes: key (K, T, D), value (K, T, features)
        """
        self.known(sequence)
        if self.keys[layer_idx] is None:
            self.keys[layer_idx] = self.pool_for(key)
            self.values[layer_idx] = self.pool_for(value)
        start = self.lengths[sequence][layer_idx]
        end = start + key.size(1)
        # YOUR CODE HERE (about 7 lines)
        raise NotImplementedError("Exercise 10.3: PagedCache")

    def gather(self, sequence: int, layer_idx: int) -> tuple[Tensor, Tensor]:
        """All keys and values of a text in one layer, in the order of its tokens.

        Shapes: -> (K, S, D) and (K, S, features)
        """
        self.known(sequence)
        # YOUR CODE HERE (about 6 lines)
        raise NotImplementedError("Exercise 10.3: PagedCache")

    def _make_writable(self, sequence: int, start: int, end: int) -> None:
        """Give the text blocks that no other text has for its tokens from start to end."""
        # YOUR CODE HERE (about 12 lines)
        raise NotImplementedError("Exercise 10.3: PagedCache")

    def _take(self, copy_of: int | None = None) -> int:
        """Take a free block, filled with the contents of block copy_of; returns its number."""
        # YOUR CODE HERE (about 6 lines)
        raise NotImplementedError("Exercise 10.3: PagedCache")

    def pool_for(self, new: Tensor) -> Tensor:
        """An empty (num_blocks, K, block_size, D) for tensors like `new` (K, T, D)."""
        return new.new_zeros(len(self.ref_count), new.size(0), self.block_size, new.size(2))

    def known(self, sequence: int) -> None:
        """Raise ValueError unless this text is in the cache."""
        if sequence not in self.block_table:
            raise ValueError(f"sequence {sequence} is not in the cache")


# %% given: a batch of texts, as a decoder wants it
class PagedBatch:
    """Some texts of a PagedCache as the rows of one batch: the cache that a decoder is given.

    It has what lab 06 asks of a cache, `length` and `update`. Texts of different lengths are
    padded on the left, and attention_mask says where.
    """

    def __init__(self, cache: PagedCache, sequences: Sequence[int]):
        self.cache, self.sequences = cache, list(sequences)
        self.held = [cache.length(sequence) for sequence in self.sequences]

    @property
    def length(self) -> int:
        """How many columns come before the new tokens: the tokens of the longest text."""
        return max(self.held)

    def attention_mask(self, new: int) -> Tensor:
        """Ones where a text has tokens, the `new` ones included: (B, S)."""
        columns = torch.arange(self.length + new)
        padding = torch.tensor([self.length - held for held in self.held])
        return (columns >= padding[:, None]).long()  # (B, S)

    def update(self, layer_idx: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append every row's new keys and values to its text, return all of all texts.

        Shapes: key and value (B, K, T, D) -> (B, K, S, D) each
        """
        rows = []
        for row, sequence in enumerate(self.sequences):
            self.cache.append(sequence, layer_idx, key[row], value[row])
            padding = (0, 0, self.length - self.held[row], 0)
            found = self.cache.gather(sequence, layer_idx)
            rows.append([nn.functional.pad(each, padding) for each in found])
        keys, values = zip(*rows, strict=True)
        return torch.stack(keys), torch.stack(values)


# %% given: what a reader asks for
@dataclass
class Request:
    """A prompt, how many tokens may follow, and those that have been written so far."""

    number: int  # also its sequence in the cache
    prompt: list[int]
    max_new_tokens: int
    output: list[int] = field(default_factory=list)


# %% exercise 10.4: Scheduler
class Scheduler:
    """Continuous batching: texts join the running batch and leave it one by one.

    step() is one round:
    1. Admit: while the request that has waited longest has room (has_room), it leaves
       `waiting`, joins `running`, and forward runs its prompt, alone, which gives its first
       token. No request overtakes: if the first has no room, the others wait.
    2. Decode: if any are running, forward runs the newest token of all of them together, which
       gives each one more token.
    After each pass, requests that have ended leave `running` at once: their blocks become free,
    and `finished` has their output under their number. A request has ended when its output has
    max_new_tokens tokens, or its newest token is in eos_token_id (it stays in the output). The
    next token is always the best one.

    Source: Yu et al. 2022, https://www.usenix.org/conference/osdi22/presentation/yu (Orca)
    """

    def __init__(
        self,
        model: nn.Module,
        cache: PagedCache,
        max_batch_size: int,
        eos_token_id: Sequence[int] = (),
    ):
        self.model, self.cache = model, cache
        self.max_batch_size = max_batch_size
        self.eos_token_id = set(eos_token_id)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.finished: dict[int, list[int]] = {}  # outputs, by number
        self.passes: list[list[int]] = []  # rows and tokens per row, of each use of the model

    def submit(self, request: Request) -> None:
        """Put a request at the end of the queue; ValueError if it can never fit."""
        if self.most_blocks(request) > len(self.cache.ref_count):
            raise ValueError(f"request {request.number} needs more blocks than the cache has")
        self.waiting.append(request)

    def most_blocks(self, request: Request) -> int:
        """How many blocks a request can fill; its last token is never run and needs none."""
        return self.cache.blocks_for(len(request.prompt) + request.max_new_tokens - 1)

    @torch.no_grad()
    def forward(self, requests: Sequence[Request], rows: Sequence[Sequence[int]]) -> list[int]:
        """Run the model on new tokens of some texts, as one batch: the best next token of each.

        rows    the new tokens of each request, equally many
        """
        batch = PagedBatch(self.cache, [request.number for request in requests])
        device = next(self.model.parameters(), torch.empty(0)).device
        input_ids = torch.tensor(rows, device=device)  # (B, T)
        self.passes.append(list(input_ids.shape))
        attention_mask = batch.attention_mask(input_ids.size(1)).to(device)  # (B, S)
        logits = self.model(input_ids, attention_mask, batch)
        return logits[:, -1].argmax(dim=-1).tolist()  # B tokens

    def has_room(self, request: Request) -> bool:
        """Whether a request may join those that run now.

        Fewer than max_batch_size must be running. And all blocks that it can fill (most_blocks)
        must be free, beyond those that the running requests can still take. So no text ever
        stops halfway because no block is free.
        """
        # YOUR CODE HERE (about 6 lines)
        raise NotImplementedError("Exercise 10.4: Scheduler")

    def step(self) -> None:
        """One round, as described above."""
        # YOUR CODE HERE (about 8 lines)
        raise NotImplementedError("Exercise 10.4: Scheduler")

    def _write(self, requests: Sequence[Request], tokens: Sequence[int]) -> None:
        """Give each request its next token; those that have ended leave."""
        # YOUR CODE HERE (about 6 lines)
        raise NotImplementedError("Exercise 10.4: Scheduler")


# %% exercise 10.5: speculative_step
def speculative_step(
    draft_tokens: Tensor,
    draft_probs: Tensor,
    target_probs: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Accept the drafts that the target model lets pass, and add one token from the target.

    A small model has drafted k tokens, each drawn from its q. The large one, the target, has
    read all of them in one pass and gives its p at each place, and one place further. From left
    to right, a draft x is accepted with probability min(1, p(x) / q(x)), independently of the
    others. The first one that is rejected is replaced by a token drawn from max(p - q, 0),
    scaled to add up to 1, and the drafts after it are dropped. If all pass, one more token is
    drawn from the last p. The result has the distribution of tokens drawn from p alone. Each
    row is judged separately.

    Shapes: draft_tokens (B, k), draft_probs q (B, k, V), target_probs p (B, k + 1, V)
            -> (B, k + 1) token ids, -1 after the last one of a row
    dtype:  float32 probabilities that add up to 1 in every place
    Source: Leviathan et al. 2022, https://arxiv.org/abs/2211.17192, and Chen et al. 2023,
            https://arxiv.org/abs/2302.01318
    """
    # YOUR CODE HERE (about 15 lines)
    raise NotImplementedError("Exercise 10.5: speculative_step")


# %% exercise 10.6: pack_int4, unpack_int4
def pack_int4(quantized: Tensor) -> Tensor:
    """Store two 4-bit numbers in each byte.

    Each number from -8 to 7 is stored as number + 8, which fits into four bits. Column 2i is in
    the low four bits of byte i, column 2i + 1 in the high four: byte = low + 16 * high.

    Shapes: quantized (rows, columns) -> (rows, columns / 2)
    dtype:  int8 -> uint8
    Errors: an odd number of columns, or a number outside -8 to 7: ValueError
    """
    if quantized.size(-1) % 2:
        raise ValueError(f"{quantized.size(-1)} columns do not make pairs")
    if ((quantized < -8) | (quantized > 7)).any():
        raise ValueError("4 bits hold -8 to 7")
    # YOUR CODE HERE (about 2 lines)
    raise NotImplementedError("Exercise 10.6: pack_int4, unpack_int4")


def unpack_int4(packed: Tensor) -> Tensor:
    """Read the two numbers of each byte again: what pack_int4 was given.

    Shapes: packed (rows, bytes) -> (rows, 2 * bytes)
    dtype:  uint8 -> int8
    """
    # YOUR CODE HERE (about 2 lines)
    raise NotImplementedError("Exercise 10.6: pack_int4, unpack_int4")


# %% exercise 10.7: web_attention
def web_attention(scores: Tensor, values: Tensor, block: int = 2) -> Tensor:
    """Compute scores.softmax(0) @ values, a block of scores at a time.

    Shapes: scores (S,), values (S,) -> scalar
    """
    m, total, o = torch.tensor(-torch.inf), 0.0, 0.0
    for s, v in zip(scores.split(block), values.split(block), strict=True):
        new = torch.maximum(m, s.max())
        weights = (s - new).exp()
        total = total + weights.sum()
        o = o * (m - new).exp() + (weights * v).sum()
        m = new
    return o / total


# %% exercise 10.8: web_fake_quantize
def web_fake_quantize(weight: Tensor, bits: int = 4) -> Tensor:
    """Round every row to the numbers that `bits` bits can hold, and return them as floats.

    Finite weights stay finite.
    """
    limit = 2 ** (bits - 1) - 1
    scale = weight.abs().amax(dim=1, keepdim=True) / limit
    return (weight / scale).round() * scale


# %% exercise 10.9: web_outcome
def web_outcome(q: Tensor, p: Tensor) -> Tensor:
    """Compute how likely each token comes out of one draft: drawn from q, accepted or replaced.

    With the rule of speculative decoding that is p, whatever q is.
    """
    accepted = q * (q / p).clamp(max=1)
    left = (p - q).clamp(min=0)
    left = left / left.sum() if left.any() else p
    return accepted + (1 - accepted.sum()) * left
