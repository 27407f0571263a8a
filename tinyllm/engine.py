"""The engine: given code that joins lab 15's parts with a decoder, read it once.

One pass runs the tokens that the plan says, of all texts in one row: no padding anywhere. Only
attention knows which token belongs to which text; it reads the blocks where they are.

Shapes: N tokens of a pass, R texts with T tokens each, E hidden_size, H query heads, K KV
heads, D head_dim, V vocab_size.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from . import server  # its parts are looked up at each use: the newest answers run
from .rope import apply_rotary_pos_emb, rope_cos_sin
from .server import Request, choose_token


class Engine:
    """Many requests on one Qwen3ForCausalLM: submit them, call step() until all have ended.

    budget       the most tokens in one pass; a large one runs every prompt in one piece
    drafts       the most tokens that are guessed per text and pass; 0: none
    draft        what guesses them: (tokens of a text, count) -> tokens; None: ngram_draft
    passes       the number of tokens of each pass so far: the clock of the lab
    """

    def __init__(
        self,
        model: nn.Module,
        num_blocks: int = 256,
        block_size: int = 16,
        budget: int = 64,
        max_running: int = 8,
        eos_token_id: Sequence[int] = (),
        drafts: int = 0,
        draft: Callable[[list[int], int], list[int]] | None = None,
    ):
        self.model, self.config = model, model.config
        self.cache = server.PrefixCache(num_blocks, block_size)
        self.planner = server.Planner(self.cache, budget, max_running)
        self.eos_token_id = set(eos_token_id)
        self.drafts, self.draft = drafts, draft
        self.passes: list[int] = []
        weight = next(model.parameters())
        size = (num_blocks, self.config.num_key_value_heads, block_size, self.config.head_dim)
        layers = range(self.config.num_hidden_layers)
        self.keys = [weight.new_zeros(size) for _ in layers]  # (num_blocks, K, block_size, D)
        self.values = [weight.new_zeros(size) for _ in layers]

    @property
    def is_busy(self) -> bool:
        return bool(self.planner.running or self.planner.waiting)

    def submit(self, request: Request) -> None:
        """Put a request at the end of the queue; ValueError if it can never be answered."""
        length = len(request.prompt) + request.max_new_tokens - 1  # the last one is never run
        room = len(self.cache.ref_count) * self.cache.block_size
        if not request.prompt or request.max_new_tokens < 1:
            raise ValueError("a request needs a prompt and at least one new token")
        if length > min(room, self.config.max_position_embeddings):
            raise ValueError(
                f"the prompt has {len(request.prompt)} tokens and {request.max_new_tokens} "
                f"shall follow; the cache has room for {room}, the model for "
                f"{self.config.max_position_embeddings}"
            )
        self.planner.submit(request)

    def cancel(self, number: int) -> None:
        """Let a request leave before its end; its blocks are given back."""
        self.planner.finish(number, "cancelled")

    def step(self) -> list[tuple[Request, list[int]]]:
        """One pass: the requests that got new tokens, each with those tokens.

        A request that has ended has its `reason` set, and has left.
        """
        planned = self.planner.plan()
        if not planned:
            return []
        requests = [self.planner.find(number) for number in planned]
        self.passes.append(sum(planned.values()))
        logits = self.forward(requests, list(planned.values()))
        written = []
        for request, scores in zip(requests, logits, strict=True):
            new = self._choose(request, scores)
            self.planner.record(request.number, planned[request.number], new)
            if new:
                if len(scores) > 1:  # drafts were run: what was rejected leaves the cache
                    server.rewind(self.cache, request.number, request.computed)
                self._go_on(request)
                written.append((request, new))
        return written

    def _choose(self, request: Request, logits: Tensor) -> list[int]:
        """The tokens that a pass has written: none as long as the prompt has not run whole.

        Shapes: logits (1 + drafts, V), or (0, V) in the middle of a prompt
        """
        place = len(request.prompt) + len(request.output)
        if request.mask and len(logits):
            logits = request.mask.mask(logits[0])[None]
        choices = [
            choose_token(row, request.temperature, request.seed, place + offset)
            for offset, row in enumerate(logits)
        ]
        new = choices
        if len(choices) > 1:
            new = server.accept_drafts(request.drafts[: len(choices) - 1], choices)
        new = new[: request.max_new_tokens - len(request.output)]
        ends = [at for at, token in enumerate(new) if token in self.eos_token_id]
        new = new[: ends[0] + 1] if ends else new
        for token in new if request.mask else ():
            request.mask.accept(token)
        return new

    def _go_on(self, request: Request) -> None:
        """After new tokens: let a request leave, or guess what comes next."""
        left = request.max_new_tokens - len(request.output)
        if request.output[-1] in self.eos_token_id:
            self.planner.finish(request.number, "stop")
        elif left == 0:
            self.planner.finish(request.number, "length")
        elif self.drafts and not request.mask:  # no guess knows the grammar
            draft = self.draft or server.ngram_draft
            request.drafts = draft(request.tokens, min(self.drafts, left - 1))

    @torch.no_grad()
    def forward(self, requests: Sequence[Request], counts: Sequence[int]) -> list[Tensor]:
        """Run the next `count` tokens of each request; the logits that choose its new tokens.

        Shapes: -> for each request (1 + drafts, V), or (0, V) in the middle of a prompt
        """
        device = self.keys[0].device
        ids, positions, wanted, groups = [], [], [], defaultdict(list)
        for request, count in zip(requests, counts, strict=True):
            end, known = request.computed + count, len(request.prompt) + len(request.output)
            groups[count].append((request, len(ids)))
            wanted.append(range(len(ids) + min(count, known - 1 - request.computed),
                                len(ids) + count))  # fmt: skip
            ids += request.tokens[request.computed : end]
            positions += range(request.computed, end)
        position_ids = torch.tensor([positions], device=device)  # (1, N)
        cos, sin = rope_cos_sin(position_ids, self.config.head_dim, self.config.rope_theta)
        batches = [Batch(self, group, count) for count, group in groups.items()]
        hidden_states = self.model.model.embed_tokens(torch.tensor([ids], device=device))
        for index, layer in enumerate(self.model.model.layers):
            normed = layer.input_layernorm(hidden_states)  # (1, N, E)
            mixed = self._attend(layer.self_attn, index, normed, cos, sin, batches)
            hidden_states = hidden_states + mixed
            mixed = layer.mlp(layer.post_attention_layernorm(hidden_states))
            hidden_states = hidden_states + (mixed[0] if isinstance(mixed, tuple) else mixed)
        rows = torch.tensor([row for each in wanted for row in each], device=device).long()
        logits = self.model.lm_head(self.model.model.norm(hidden_states[0, rows]))
        return list(logits.split([len(each) for each in wanted]))

    def _attend(self, attention, layer_idx, normed, cos, sin, batches) -> Tensor:
        """Attention of one layer: store the new keys and values, then read through the tables.

        Shapes: normed (1, N, E) -> (1, N, E)
        """

        def heads(x: Tensor) -> Tensor:
            return x.unflatten(-1, (-1, self.config.head_dim)).transpose(
                1, 2
            )  # (1, heads, N, D)

        query = attention.q_norm(heads(attention.q_proj(normed)))
        key = attention.k_norm(heads(attention.k_proj(normed)))
        value = heads(attention.v_proj(normed))
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        mixed = torch.zeros_like(query[0].transpose(0, 1))  # (N, H, D)
        for batch in batches:
            rows = batch.rows.flatten()  # (R * T,)
            keys[batch.blocks, :, batch.offsets] = key[0, :, rows].transpose(0, 1)
            values[batch.blocks, :, batch.offsets] = value[0, :, rows].transpose(0, 1)
        for batch in batches:
            part = query[0][:, batch.rows].transpose(0, 1)  # (R, H, T, D)
            part = server.paged_attention(part, keys, values, batch.table, batch.lengths)
            mixed[batch.rows] = part.transpose(1, 2)  # (R, T, H, D)
        return attention.o_proj(mixed.flatten(1))[None]


class Batch:
    """The texts of a pass that run equally many tokens, and where these are.

    Shapes: rows (R, T) places in the pass, table (R, blocks), lengths (R,), blocks and offsets
            (R * T,) places in the cache of the new tokens
    """

    def __init__(self, engine: Engine, group: Sequence[tuple[Request, int]], count: int):
        device, size = engine.keys[0].device, engine.cache.block_size
        tables = [engine.cache.block_table[request.number] for request, _ in group]
        width = max(map(len, tables))
        start = torch.tensor([request.computed for request, _ in group], device=device)
        first = torch.tensor([row for _, row in group], device=device)
        step = torch.arange(count, device=device)
        self.rows = first[:, None] + step  # (R, T)
        self.table = torch.tensor([t + [-1] * (width - len(t)) for t in tables], device=device)
        self.lengths = start + count
        place = start[:, None] + step  # (R, T)
        self.blocks = self.table.gather(1, place // size).flatten()
        self.offsets = (place % size).flatten()
