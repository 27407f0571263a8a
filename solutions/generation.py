"""Lab 07: generation.

Turn scores into words: remember what was computed, choose the next token, repeat.

Shapes: B batch, T new tokens, S cached + new tokens, K KV heads, D head_dim, V vocab_size.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


# %% exercise 7.1: KVCache
class KVCache:
    """Keys and values of all tokens so far, so that each is computed once.

    A layer's first update sets room aside for max_length tokens, in its keys and its values,
    in the dtype and on the device of what it is given; the room stays where it is after that.
    One cache serves one batch of prompts: make a new one for the next.

    Errors: more than max_length tokens, or another batch size, raises ValueError
    """

    def __init__(self, num_hidden_layers: int, max_length: int):
        self.max_length = max_length
        self.lengths = [0] * num_hidden_layers  # tokens held, by layer
        self.keys: list[Tensor | None] = [None] * num_hidden_layers
        self.values: list[Tensor | None] = [None] * num_hidden_layers

    @property
    def length(self) -> int:
        """How many tokens every layer holds: the position of the next one.

        While some layers are ahead, whichever they are, this is the count of those behind.
        """
        ### BEGIN SOLUTION
        return min(self.lengths)
        ### END SOLUTION

    def update(self, layer_idx: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append one layer's new keys and values, return all of them.

        Shapes: key and value (B, K, T, D) -> (B, K, S, D) each; the D of values may
                differ from that of keys
        """
        start = self.lengths[layer_idx]
        end = start + key.size(2)
        if end > self.max_length:
            raise ValueError(f"the cache has room for {self.max_length} tokens, not for {end}")
        if start > 0 and self.keys[layer_idx].size(0) != key.size(0):
            held = self.keys[layer_idx].size(0)
            raise ValueError(f"key has batch size {key.size(0)}; this cache holds {held}")
        ### BEGIN SOLUTION
        if start == 0:
            self.keys[layer_idx] = self._room_for(key)
            self.values[layer_idx] = self._room_for(value)
        self.keys[layer_idx][:, :, start:end] = key
        self.values[layer_idx][:, :, start:end] = value
        self.lengths[layer_idx] = end
        return self.keys[layer_idx][:, :, :end], self.values[layer_idx][:, :, :end]
        ### END SOLUTION

    def _room_for(self, new: Tensor) -> Tensor:
        """An empty (B, K, max_length, D) for tensors like `new` (B, K, T, D)."""
        batch, heads, _, head_dim = new.shape
        return new.new_zeros(batch, heads, self.max_length, head_dim)


# %% exercise 7.2: sample_next_token
def sample_next_token(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Choose the next token of every row.

    temperature 0 takes the highest score. Otherwise divide by temperature (below 1: bolder,
    above 1: more even), keep the top_k best (all, if there are fewer), scale their
    probabilities to add up to 1, keep the fewest of the best that add up to top_p or more
    (the token that crosses or reaches top_p is the last), and draw one by its probability,
    with the generator or, where none is given, with torch's own.

    Each row is cut and drawn by itself. The logits stay as they are. Which of several equal
    scores stays at a cut is left open.

    Shapes: logits (B, V) -> (B,) token ids, also for B = 1
    dtype:  logits may be float16 or bfloat16; float32 from the division on
    Errors: temperature below 0, top_k below 1, top_p outside (0, 1]: ValueError
    Source: Holtzman et al. 2019, https://arxiv.org/abs/1904.09751 (top-p)
    """
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature is {temperature}; it must be 0 (greedy) or above")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k is {top_k}; it must be at least 1, or None for all tokens")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}; it must be above 0 and at most 1, or None")
    ### BEGIN SOLUTION
    if temperature == 0:
        return logits.argmax(dim=-1)  # (B,)
    scores, token_ids = (logits.float() / temperature).sort(dim=-1, descending=True)  # (B, V)
    if top_k is not None:
        scores[:, top_k:] = -torch.inf
    probs = scores.softmax(dim=-1)  # (B, V) best first
    if top_p is not None and top_p < 1:
        better = probs.cumsum(dim=-1) - probs  # (B, V) what all better tokens add up to
        probs = probs.masked_fill(better >= top_p, 0.0)
    rank = torch.multinomial(probs, num_samples=1, generator=generator)  # (B, 1)
    return token_ids.gather(-1, rank).squeeze(-1)  # (B,)
    ### END SOLUTION


# %% given: what generate refuses
def check_request(
    model: nn.Module, input_ids: Tensor, attention_mask: Tensor, max_new_tokens: int
) -> None:
    """Raise ValueError if there is nothing to continue, or no room to do so."""
    if input_ids.dim() != 2 or input_ids.numel() == 0:
        raise ValueError(
            f"input_ids has shape {tuple(input_ids.shape)}; expected (batch, tokens), at "
            "least one of each: an empty prompt has nothing to continue"
        )
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
    total, limit = input_ids.size(1) + max_new_tokens, model.config.max_position_embeddings
    if total > limit:
        raise ValueError(
            f"{input_ids.size(1)} prompt tokens and {max_new_tokens} new ones make {total}; "
            f"max_position_embeddings allows {limit}"
        )
    if attention_mask.shape != input_ids.shape:
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}, input_ids "
            f"{tuple(input_ids.shape)}; they must be equal"
        )
    if not attention_mask[:, -1].all():
        raise ValueError(
            "attention_mask ends in padding; pad on the left, so that every prompt ends in "
            "the last column"
        )


# %% exercise 7.3: generate
@torch.no_grad()
def generate(
    model: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    max_new_tokens: int = 100,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos_token_id: int | Sequence[int] = (),
    pad_token_id: int = 0,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
    on_token: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Continue every prompt until a stop token comes or max_new_tokens are written.

    Prompts of different lengths are padded on the left (attention_mask 0). Any id in
    eos_token_id ends the row that produces it; the row keeps it and is then filled with
    pad_token_id, and all stop when every row has ended. Stop tokens in a prompt end nothing.
    on_token, if given, is called with each new column (B,) at once, padding included.
    With use_cache the model is run on each token once; without it everything is computed
    anew for each token: slower, the same words. The generator goes on from token to token.

    Shapes: input_ids and attention_mask (B, T) -> (B, T + new), prompt included
    Errors: an empty prompt, no room for max_new_tokens, padding on the right, impossible
            sampling settings: ValueError
    """
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    check_request(model, input_ids, attention_mask, max_new_tokens)
    ### BEGIN SOLUTION
    stops = torch.as_tensor(eos_token_id, dtype=torch.long, device=input_ids.device)
    finished = torch.zeros_like(input_ids[:, 0], dtype=torch.bool)  # (B,)
    room = input_ids.size(1) + max_new_tokens
    cache = KVCache(model.config.num_hidden_layers, room) if use_cache else None
    output = new = input_ids  # new: what the model has not seen yet
    for _ in range(max_new_tokens):
        logits = model(new, attention_mask, cache)[:, -1]  # (B, V)
        token = sample_next_token(logits, temperature, top_k, top_p, generator)  # (B,)
        token = token.masked_fill(finished, pad_token_id)
        output = torch.cat((output, token[:, None]), dim=1)  # (B, T + 1)
        attention_mask = torch.cat((attention_mask, torch.ones_like(token[:, None])), dim=1)
        new = token[:, None] if use_cache else output
        if on_token is not None:
            on_token(token)
        finished = finished | torch.isin(token, stops)
        if finished.all():
            break
    return output
    ### END SOLUTION


# %% exercise 7.4: web_top_p
def web_top_p(logits: Tensor, top_p: float, generator: torch.Generator | None = None) -> Tensor:
    """Draw from the fewest likeliest tokens whose probabilities reach top_p together.

    Shapes: logits (B, V) -> (B,)
    """
    probs, token_ids = logits.softmax(-1).sort(-1, descending=True)
    ### BEGIN SOLUTION
    probs = probs.masked_fill(probs.cumsum(-1) - probs >= top_p, 0.0)  # (B, V)
    ### INSTEAD
    # probs = probs.masked_fill(probs.cumsum(-1) > top_p, 0.0)  # (B, V)
    ### END SOLUTION
    rank = torch.multinomial(probs, 1, generator=generator)  # (B, 1)
    return token_ids.gather(-1, rank).squeeze(-1)  # (B,)
