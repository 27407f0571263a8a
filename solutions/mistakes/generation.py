"""Wrong versions of lab 07, the cache and the choice of a token."""

import torch

from solutions import generation as reference
from solutions.generation import KVCache, check_request, sample_next_token
from solutions.mistakes import mistake


class Variant(reference.KVCache):
    """A cache that differs from the reference in one method."""

    def checked(self, layer_idx, key):
        """The errors of the given code; where the new tokens start and end."""
        start, end = self.lengths[layer_idx], self.lengths[layer_idx] + key.size(2)
        if end > self.max_length:
            raise ValueError("full")
        if start > 0 and self.keys[layer_idx].size(0) != key.size(0):
            raise ValueError("batch size")
        return start, end


@mistake(
    "KVCache", "each update answers with its own keys and values alone, without those before"
)
class OnlyTheNew(Variant):
    def update(self, layer_idx, key, value):
        super().update(layer_idx, key, value)
        return key, value


@mistake(
    "KVCache", "the whole room is given back, with zeros where no token has been written yet"
)
class WholeRoom(Variant):
    def update(self, layer_idx, key, value):
        super().update(layer_idx, key, value)
        return self.keys[layer_idx], self.values[layer_idx]


@mistake("KVCache", "every update writes from place 0 on and covers the tokens before it")
class AlwaysFromZero(Variant):
    def update(self, layer_idx, key, value):
        start, end = self.checked(layer_idx, key)
        if start == 0:
            self.keys[layer_idx], self.values[layer_idx] = map(self._room_for, (key, value))
        self.keys[layer_idx][:, :, : key.size(2)] = key
        self.values[layer_idx][:, :, : key.size(2)] = value
        self.lengths[layer_idx] = end
        return self.keys[layer_idx][:, :, :end], self.values[layer_idx][:, :, :end]


@mistake("KVCache", "fresh room is made at every update, so that the tokens before are lost")
class FreshRoom(Variant):
    def update(self, layer_idx, key, value):
        start, end = self.checked(layer_idx, key)
        self.keys[layer_idx], self.values[layer_idx] = map(self._room_for, (key, value))
        self.keys[layer_idx][:, :, start:end] = key
        self.values[layer_idx][:, :, start:end] = value
        self.lengths[layer_idx] = end
        return self.keys[layer_idx][:, :, :end], self.values[layer_idx][:, :, :end]


@mistake(
    "KVCache",
    "the cache grows by torch.cat, a copy of everything for each token: set max_length places "
    "aside once and write into them",
)
class GrownByCat(Variant):
    def update(self, layer_idx, key, value):
        start, end = self.checked(layer_idx, key)
        if start > 0:
            key = torch.cat((self.keys[layer_idx], key), dim=2)
            value = torch.cat((self.values[layer_idx], value), dim=2)
        self.keys[layer_idx], self.values[layer_idx] = key, value
        self.lengths[layer_idx] = end
        return key, value


@mistake("KVCache", "keys and values are given back in the wrong order")
class Swapped(Variant):
    def update(self, layer_idx, key, value):
        keys, values = super().update(layer_idx, key, value)
        return values, keys


@mistake("KVCache", "the value is stored where the keys belong, or the key twice")
class KeysTwice(Variant):
    def update(self, layer_idx, key, value):
        super().update(layer_idx, key, value)
        keys = self.keys[layer_idx][:, :, : self.lengths[layer_idx]]
        return keys, keys


@mistake(
    "KVCache", "one count serves all layers, so that every layer begins where the last ended"
)
class OneCount(Variant):
    def update(self, layer_idx, key, value):
        start = self.lengths[0]
        end = start + key.size(2)
        if end > self.max_length:
            raise ValueError("full")
        if self.keys[layer_idx] is None:
            self.keys[layer_idx], self.values[layer_idx] = map(self._room_for, (key, value))
        if self.keys[layer_idx].size(0) != key.size(0):
            raise ValueError("batch size")
        self.keys[layer_idx][:, :, start:end] = key
        self.values[layer_idx][:, :, start:end] = value
        self.lengths = [end] * len(self.lengths)
        return self.keys[layer_idx][:, :, :end], self.values[layer_idx][:, :, :end]


@mistake("KVCache", "the number of held tokens is never written back to self.lengths")
class NeverCounted(Variant):
    def update(self, layer_idx, key, value):
        result = super().update(layer_idx, key, value)
        self.lengths[layer_idx] = 0
        return result


@mistake("KVCache", "every update counts as one token, however many it brings")
class CountsUpdates(Variant):
    def update(self, layer_idx, key, value):
        start, _ = self.checked(layer_idx, key)
        result = super().update(layer_idx, key, value)
        self.lengths[layer_idx] = start + 1
        return result


@mistake(
    "KVCache",
    "length is that of the layer that is ahead: within a step, only the shortest count holds "
    "for every layer",
)
class LengthOfTheFirst(Variant):
    @property
    def length(self):
        return max(self.lengths)


@mistake(
    "KVCache", "the room is float32 whatever the dtype of the keys: torch.zeros without one"
)
class AlwaysFloat32(Variant):
    def _room_for(self, new):
        batch, heads, _, head_dim = new.shape
        return torch.zeros(batch, heads, self.max_length, head_dim)


@mistake("KVCache", "the room for the values is made in the shape of the keys")
class ValuesLikeKeys(Variant):
    def update(self, layer_idx, key, value):
        start, end = self.checked(layer_idx, key)
        if start == 0:
            self.keys[layer_idx], self.values[layer_idx] = map(self._room_for, (key, key))
        self.keys[layer_idx][:, :, start:end] = key
        self.values[layer_idx][:, :, start:end] = value
        self.lengths[layer_idx] = end
        return self.keys[layer_idx][:, :, :end], self.values[layer_idx][:, :, :end]


def refuse(temperature, top_k, top_p):
    """The errors of the given code."""
    if not 0 <= temperature < float("inf") or (top_k is not None and top_k < 1):
        raise ValueError("impossible")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError("impossible")


def ranked(scores, top_k):
    """Probabilities, best first, after top_k; and the tokens that have them."""
    scores, token_ids = scores.sort(dim=-1, descending=True)
    if top_k is not None:
        scores[:, top_k:] = -torch.inf
    return scores.softmax(dim=-1), token_ids


def cut(probs, top_p):
    if top_p is None or top_p == 1:
        return probs
    return probs.masked_fill(probs.cumsum(dim=-1) - probs >= top_p, 0.0)


def finish(probs, token_ids, generator):
    rank = torch.multinomial(probs, num_samples=1, generator=generator)
    return token_ids.gather(-1, rank).squeeze(-1)


@mistake(
    "sample_next_token",
    "temperature 0 divides by zero: it needs a branch of its own, before the division",
)
def divided_by_zero(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    probs, token_ids = ranked(logits.float() / temperature, top_k)
    return finish(cut(probs, top_p), token_ids, generator)


@mistake("sample_next_token", "the scores are multiplied by the temperature instead of divided")
def multiplied(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    inverse = 1 / temperature if temperature else 0.0
    return reference.sample_next_token(logits, inverse, top_k, top_p, generator)


@mistake(
    "sample_next_token",
    "the temperature has no effect: it is not used, or it divides probabilities, which "
    "multinomial scales back",
)
def temperature_ignored(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    temperature = min(temperature, 1.0) and 1.0  # 0 stays 0
    return reference.sample_next_token(logits, temperature, top_k, top_p, generator)


@mistake("sample_next_token", "top_p cuts before the temperature: divide the scores first")
def top_p_before_temperature(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float(), top_k)
    scores = cut(probs, top_p).log() / temperature
    return finish(scores.softmax(-1), token_ids, generator)


@mistake("sample_next_token", "top_k is not used")
def top_k_ignored(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    return reference.sample_next_token(logits, temperature, None, top_p, generator)


@mistake("sample_next_token", "top_k leaves one token too few")
def one_too_few(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores = logits.float() / temperature
    if top_k is not None and top_k < scores.size(-1):
        bound = scores.topk(top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores <= bound, -torch.inf)
    probs, token_ids = ranked(scores, None)
    return finish(cut(probs, top_p), token_ids, generator)


@mistake(
    "sample_next_token",
    "a top_k above the size of the vocabulary fails: it then keeps all tokens",
)
def top_k_beyond_the_vocabulary(
    logits, temperature=1.0, top_k=None, top_p=None, generator=None
):
    if top_k is not None:
        logits.topk(top_k, dim=-1)
    return reference.sample_next_token(logits, temperature, top_k, top_p, generator)


@mistake(
    "sample_next_token",
    "the scores that top_k drops are set to 0, which is still a score: -inf drops them",
)
def dropped_to_zero(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores, token_ids = (logits.float() / temperature).sort(dim=-1, descending=True)
    if top_k is not None:
        scores[:, top_k:] = 0.0
    return finish(cut(scores.softmax(-1), top_p), token_ids, generator)


@mistake("sample_next_token", "top_p is not used")
def top_p_ignored(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    return reference.sample_next_token(logits, temperature, top_k, None, generator)


@mistake(
    "sample_next_token",
    "top_p drops the token that crosses it: with 0.5, 0.3, 0.2 and top_p 0.6 two tokens stay",
)
def crossing_dropped(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float() / temperature, top_k)
    if top_p is not None and top_p < 1:
        over = probs.cumsum(dim=-1) > top_p
        over[:, 0] = False  # else a row might keep nothing
        probs = probs.masked_fill(over, 0.0)
    return finish(probs, token_ids, generator)


@mistake(
    "sample_next_token",
    "top_p drops the token that crosses it, also where that is the best one, and nothing is "
    "left",
)
def nothing_left(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float() / temperature, top_k)
    if top_p is not None and top_p < 1:
        probs = probs.masked_fill(probs.cumsum(dim=-1) > top_p, 0.0)
    return finish(probs, token_ids, generator)


@mistake(
    "sample_next_token", "top_p keeps one token more than it needs: the one after the crossing"
)
def one_after_the_crossing(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float() / temperature, top_k)
    if top_p is not None and top_p < 1:
        drop = probs.cumsum(dim=-1) - probs >= top_p
        drop[:, 1:] = drop[:, :-1].clone()
        drop[:, 0] = False
        probs = probs.masked_fill(drop, 0.0)
    return finish(probs, token_ids, generator)


@mistake(
    "sample_next_token", "the scores are sorted from worst to best: both cuts keep the worst"
)
def sorted_ascending(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores, token_ids = (logits.float() / temperature).sort(dim=-1)
    if top_k is not None:
        scores[:, top_k:] = -torch.inf
    return finish(cut(scores.softmax(dim=-1), top_p), token_ids, generator)


@mistake("sample_next_token", "top_p counts all tokens, and not only those that top_k has left")
def top_p_first(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float() / temperature, None)
    probs = cut(probs, top_p)
    if top_k is not None:
        probs[:, top_k:] = 0.0
    return finish(probs, token_ids, generator)


@mistake(
    "sample_next_token",
    "the cut of top_p is made in sorted order and laid over the unsorted scores: scatter it "
    "back",
)
def mask_not_scattered(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores = logits.float() / temperature
    if top_k is not None:
        bound = scores.topk(min(top_k, scores.size(-1)), dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < bound, -torch.inf)
    if top_p is not None:
        drop = cut(ranked(scores, None)[0], top_p) == 0
        scores = scores.masked_fill(drop, -1e4)  # -inf for all would leave nothing
    return torch.multinomial(scores.softmax(-1), 1, generator=generator).squeeze(-1)


@mistake(
    "sample_next_token",
    "the rank in the sorted row is given back instead of the token that has this rank",
)
def rank_for_token(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, _ = ranked(logits.float() / temperature, top_k)
    return torch.multinomial(cut(probs, top_p), 1, generator=generator).squeeze(-1)


@mistake("sample_next_token", "the generator is not handed on, so that no draw can be repeated")
def generator_ignored(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    return reference.sample_next_token(logits, temperature, top_k, top_p)


@mistake("sample_next_token", "the result keeps the axis of multinomial, (B, 1): squeeze it")
def axis_kept(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    token = reference.sample_next_token(logits, temperature, top_k, top_p, generator)
    return token if temperature == 0 else token[:, None]


@mistake(
    "sample_next_token",
    "the logits are divided in place: /= changes what the caller holds",
)
def divided_in_place(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    logits = logits.float()  # of float32 this is the very same tensor
    logits /= temperature
    return reference.sample_next_token(logits, 1.0, top_k, top_p, generator)


@mistake(
    "sample_next_token",
    "the division is made in half precision, which overflows at a low temperature",
)
def half_precision(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    return reference.sample_next_token(logits / temperature, 1.0, top_k, top_p, generator)


def loop(
    model,
    input_ids,
    attention_mask=None,
    max_new_tokens=100,
    temperature=0.0,
    top_k=None,
    top_p=None,
    eos_token_id=(),
    pad_token_id=0,
    generator=None,
    use_cache=True,
    on_token=None,
    wrong="",
):
    """generate with one thing wrong; `wrong` says which."""
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    check_request(model, input_ids, attention_mask, max_new_tokens)
    stops = torch.as_tensor(eos_token_id, dtype=torch.long).reshape(-1)
    stops = stops[: {"no stop": 0, "one stop": 1}.get(wrong)]
    finished = torch.zeros_like(input_ids[:, 0], dtype=torch.bool)
    room = max_new_tokens if wrong == "room" else input_ids.size(1) + max_new_tokens
    cached = use_cache and wrong != "no cache"
    cache = KVCache(model.config.num_hidden_layers, room) if cached else None
    if cached and wrong == "old cache":
        cache = vars(model).setdefault("cache", cache)
    if wrong == "swapped":
        top_k, top_p = top_p, top_k
    if wrong == "no generator":
        generator = None
    output = new = input_ids
    heard = []
    for step in range(max_new_tokens):
        logits = model(new, None if wrong == "mask not passed" else attention_mask, cache)
        token = sample_next_token(logits[:, -1], temperature, top_k, top_p, generator)
        hits = torch.isin(token, stops) & (step > 0 or wrong != "not the first")
        if wrong == "first row":
            hits = hits[:1].expand_as(hits)
        if wrong == "stop dropped" and (finished | hits).all():
            break
        if wrong == "stop overwritten":
            finished = finished | hits
        if wrong != "rows go on":
            token = token.masked_fill(finished, pad_token_id)
        output = torch.cat((output, token[:, None]), dim=1)
        if wrong != "mask not extended":
            attention_mask = torch.cat((attention_mask, torch.ones_like(token[:, None])), 1)
        new = output if cache is None or wrong == "prompt again" else token[:, None]
        heard.append(token)
        if on_token is not None and wrong != "late":
            on_token(token)
        finished = finished | hits
        if finished.any() if wrong == "any row" else finished.all():
            break
    if on_token is not None and wrong == "late":
        for token in heard:
            on_token(token)
    return output[:, input_ids.size(1) :] if wrong == "no prompt" else output


@mistake(
    "generate",
    "the whole text is fed again although the cache holds it: after the first step only the"
    " newest token is new",
)
def prompt_again(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="prompt again")


@mistake(
    "generate",
    "the cache is never used, whatever use_cache says",
)
def never_cached(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="no cache")


@mistake(
    "generate",
    "the cache has room for the new tokens only: the prompt needs places, too",
)
def room_for_the_new(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="room")


@mistake(
    "generate",
    "the cache of the prompt before is used again: every call needs a new one",
)
def cache_kept(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="old cache")


@mistake(
    "generate",
    "attention_mask is not given to the model, so that padding counts as text",
)
def mask_not_passed(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="mask not passed")


@mistake(
    "generate",
    "attention_mask stays as it was: it needs a column of ones for every new token",
)
def mask_not_extended(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="mask not extended")


@mistake(
    "generate",
    "top_k and top_p are handed on in each other's place",
)
def top_k_and_top_p_swapped(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="swapped")


@mistake(
    "generate",
    "generator is not handed on, so that no text can be repeated",
)
def generator_not_passed(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="no generator")


@mistake(
    "generate",
    "stop tokens are never looked for",
)
def never_stops(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="no stop")


@mistake(
    "generate",
    "only the first of several stop tokens is looked for",
)
def first_stop_only(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="one stop")


@mistake(
    "generate",
    "the very first new token is not compared with the stop tokens",
)
def first_token_unchecked(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="not the first")


@mistake(
    "generate",
    "the stop tokens are looked for in the first row only",
)
def first_row_decides(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="first row")


@mistake(
    "generate",
    "all rows end as soon as one of them has ended: wait until every row has",
)
def any_row_ends_all(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="any row")


@mistake(
    "generate",
    "rows that have ended keep writing instead of being padded",
)
def rows_go_on(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="rows go on")


@mistake(
    "generate",
    "the stop token itself is overwritten by padding: a row is padded from the next token on",
)
def stop_overwritten(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="stop overwritten")


@mistake(
    "generate",
    "the loop ends before the stop token is added to the text",
)
def stop_dropped(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="stop dropped")


@mistake(
    "generate",
    "only the new tokens are given back, without the prompt",
)
def prompt_dropped(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="no prompt")


@mistake(
    "generate",
    "on_token is called after the loop, when all is written, instead of at once",
)
def on_token_late(*arguments, **settings):
    with torch.no_grad():
        return loop(*arguments, **settings, wrong="late")


@mistake("generate", "torch.no_grad() is gone from above the function")
def gradients_recorded(*arguments, **settings):
    return loop(*arguments, **settings)
