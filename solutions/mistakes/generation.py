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


@mistake(
    "KVCache", "new keys are joined along the heads, axis 1, instead of the tokens, axis 2"
)
class JoinedAlongHeads(Variant):
    def update(self, layer_idx, key, value):
        start, end = self.checked(layer_idx, key)
        if start > 0:
            key = torch.cat((self.keys[layer_idx], key), dim=1)
            value = torch.cat((self.values[layer_idx], value), dim=1)
        self.keys[layer_idx], self.values[layer_idx] = key, value
        self.lengths[layer_idx] = end
        return key, value


@mistake("KVCache", "new tokens are put in front of the old ones instead of after them")
class NewInFront(Variant):
    def update(self, layer_idx, key, value):
        keys, values = super().update(layer_idx, key, value)
        keys, values = (torch.roll(t, key.size(2), dims=2) for t in (keys, values))
        return keys, values


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


@mistake("KVCache", "all layers share one store: layer_idx is not used for keys and values")
class OneStoreForAll(Variant):
    def update(self, layer_idx, key, value):
        start, end = self.checked(layer_idx, key)
        if self.keys[0] is None:
            self.keys = [self._room_for(key)] * len(self.keys)
            self.values = [self._room_for(value)] * len(self.values)
        self.keys[0][:, :, start:end] = key
        self.values[0][:, :, start:end] = value
        self.lengths[layer_idx] = end
        result = self.keys[0][:, :, :end], self.values[0][:, :, :end]
        return result[0].clone() if layer_idx else result[0], result[1]


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
    "KVCache", "self.lengths gets the number of new tokens instead of that of all tokens so far"
)
class CountsTheNew(Variant):
    def update(self, layer_idx, key, value):
        result = super().update(layer_idx, key, value)
        self.lengths[layer_idx] = key.size(2)
        return result


@mistake("KVCache", "length adds up all layers: each of them holds the same tokens")
class LengthOfAllLayers(Variant):
    @property
    def length(self):
        return sum(self.lengths)


@mistake(
    "KVCache",
    "length is that of the layer that is ahead: within a step, only the shortest count holds "
    "for every layer",
)
class LengthOfTheFirst(Variant):
    @property
    def length(self):
        return max(self.lengths)


@mistake("KVCache", "length is the room, max_length, and not how much of it is in use")
class LengthOfTheRoom(Variant):
    @property
    def length(self):
        return self.max_length


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


@mistake("KVCache", "the oldest tokens are dropped in silence where the cache is full")
class DropsTheOldest(Variant):
    def update(self, layer_idx, key, value):
        surplus = self.lengths[layer_idx] + key.size(2) - self.max_length
        if surplus > 0:
            for store in (self.keys[layer_idx], self.values[layer_idx]):
                store.copy_(store.roll(-surplus, dims=2))
            self.lengths[layer_idx] -= surplus
        return super().update(layer_idx, key, value)


@mistake(
    "KVCache", "the last place is never used: the cache counts as full one token too early"
)
class FullTooEarly(Variant):
    def update(self, layer_idx, key, value):
        if self.lengths[layer_idx] + key.size(2) >= self.max_length:
            raise ValueError("full")
        return super().update(layer_idx, key, value)


@mistake("KVCache", "another batch size is accepted, and one row is spread over all")
class AnyBatch(Variant):
    def update(self, layer_idx, key, value):
        held = self.keys[layer_idx]
        if held is not None:
            key, value = (t.expand(held.size(0), -1, -1, -1) for t in (key, value))
        return super().update(layer_idx, key, value)


def drawn(probs, generator):
    return torch.multinomial(probs, num_samples=1, generator=generator).squeeze(-1)


def sampler(change):
    """A wrong sampler: settings are checked, then `change` takes the place of the rest."""

    def sample(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
        reference.sample_next_token(logits[:1], 1.0, 1, top_p)  # raises for an impossible top_p
        if temperature < 0 or (top_k is not None and top_k < 1):
            raise ValueError("impossible setting")
        return change(logits, temperature, top_k, top_p, generator)

    sample.__name__, sample.__module__ = change.__name__, change.__module__
    return sample


def ranked(scores, top_k):
    """Probabilities, best first, after top_k; and the tokens that have them."""
    scores, token_ids = scores.sort(dim=-1, descending=True)
    scores = scores.clone()
    if top_k is not None:
        scores[:, top_k:] = -torch.inf
    return scores.softmax(dim=-1), token_ids


def finish(probs, token_ids, generator):
    rank = torch.multinomial(probs, num_samples=1, generator=generator)
    return token_ids.gather(-1, rank).squeeze(-1)


def cut(probs, top_p):
    if top_p is None or top_p == 1:
        return probs
    return probs.masked_fill(probs.cumsum(dim=-1) - probs >= top_p, 0.0)


def wrong_sampler(sentence):
    return lambda change: mistake("sample_next_token", sentence)(sampler(change))


@wrong_sampler(
    "temperature 0 divides by zero: it needs a branch of its own, before the division"
)
def divided_by_zero(logits, temperature, top_k, top_p, generator):
    probs, token_ids = ranked(logits.float() / temperature, top_k)
    return finish(cut(probs, top_p), token_ids, generator)


@wrong_sampler("temperature 0 is treated like 1: it draws where it should take the best")
def zero_draws(logits, temperature, top_k, top_p, generator):
    temperature = temperature or 1.0
    return reference.sample_next_token(logits, temperature, top_k, top_p, generator)


@wrong_sampler("the best token is taken at every temperature: above 0 one is to be drawn")
def always_the_best(logits, temperature, top_k, top_p, generator):
    return logits.argmax(dim=-1)


@wrong_sampler("the scores are multiplied by the temperature instead of divided")
def multiplied(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    return reference.sample_next_token(logits, 1 / temperature, top_k, top_p, generator)


@wrong_sampler(
    "the temperature has no effect: it is not used, or it divides probabilities, which "
    "multinomial scales back"
)
def temperature_ignored(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    return reference.sample_next_token(logits, 1.0, top_k, top_p, generator)


@wrong_sampler("softmax is taken twice, the second time of probabilities")
def softmax_twice(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float().softmax(-1) / temperature, top_k)
    return finish(cut(probs, top_p), token_ids, generator)


@wrong_sampler("top_p cuts before the temperature: divide the scores first")
def top_p_before_temperature(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float(), top_k)
    kept = cut(probs, top_p) > 0
    scores = (probs.log() / temperature).masked_fill(~kept, -torch.inf)
    return finish(scores.softmax(-1), token_ids, generator)


@wrong_sampler("top_k is not used")
def top_k_ignored(logits, temperature, top_k, top_p, generator):
    return reference.sample_next_token(logits, temperature, None, top_p, generator)


@wrong_sampler("top_k leaves one token too many")
def one_too_many(logits, temperature, top_k, top_p, generator):
    top_k = None if top_k is None else top_k + 1
    return reference.sample_next_token(logits, temperature, top_k, top_p, generator)


@wrong_sampler("top_k leaves one token too few")
def one_too_few(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores = logits.float() / temperature
    if top_k is not None and top_k < scores.size(-1):
        bound = scores.topk(top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores <= bound, -torch.inf)
    probs, token_ids = ranked(scores, None)
    return finish(cut(probs, top_p), token_ids, generator)


@wrong_sampler("a top_k above the size of the vocabulary fails: it then keeps all tokens")
def top_k_beyond_the_vocabulary(logits, temperature, top_k, top_p, generator):
    if top_k is not None:
        logits.topk(top_k, dim=-1)
    return reference.sample_next_token(logits, temperature, top_k, top_p, generator)


@wrong_sampler(
    "the scores that top_k drops are set to 0, which is still a score: -inf drops them"
)
def dropped_to_zero(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores, token_ids = (logits.float() / temperature).sort(dim=-1, descending=True)
    if top_k is not None:
        scores[:, top_k:] = 0.0
    return finish(cut(scores.softmax(-1), top_p), token_ids, generator)


@wrong_sampler("top_p is not used")
def top_p_ignored(logits, temperature, top_k, top_p, generator):
    return reference.sample_next_token(logits, temperature, top_k, None, generator)


@wrong_sampler(
    "top_p drops the token that crosses it: with 0.5, 0.3, 0.2 and top_p 0.6 two tokens stay"
)
def crossing_dropped(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float() / temperature, top_k)
    if top_p is not None and top_p < 1:
        over = probs.cumsum(dim=-1) > top_p
        over[:, 0] = False  # else a row might keep nothing
        probs = probs.masked_fill(over, 0.0)
    return finish(probs, token_ids, generator)


@wrong_sampler(
    "top_p drops the token that crosses it, also where that is the best one, and nothing is left"
)
def nothing_left(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float() / temperature, top_k)
    if top_p is not None and top_p < 1:
        probs = probs.masked_fill(probs.cumsum(dim=-1) > top_p, 0.0)
    return finish(probs, token_ids, generator)


@wrong_sampler("top_p keeps one token more than it needs: the one after the crossing")
def one_after_the_crossing(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float() / temperature, top_k)
    if top_p is not None and top_p < 1:
        drop = probs.cumsum(dim=-1) - probs >= top_p
        drop[:, 1:] = drop[:, :-1].clone()
        drop[:, 0] = False
        probs = probs.masked_fill(drop, 0.0)
    return finish(probs, token_ids, generator)


@wrong_sampler("top_p adds the probabilities up from the worst token instead of from the best")
def from_the_worst(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float() / temperature, top_k)
    probs = cut(probs.flip(-1), top_p).flip(-1)
    return finish(probs, token_ids, generator)


@wrong_sampler("top_p keeps the tokens whose own probability reaches it: it bounds their sum")
def each_above_top_p(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float() / temperature, top_k)
    if top_p is not None and top_p < 1:
        low = probs < top_p
        low[:, 0] = False
        probs = probs.masked_fill(low, 0.0)
    return finish(probs, token_ids, generator)


@wrong_sampler("top_p counts all tokens, and not only those that top_k has left")
def top_p_first(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float() / temperature, None)
    probs = cut(probs, top_p).clone()
    if top_k is not None:
        probs[:, top_k:] = 0.0
    return finish(probs, token_ids, generator)


@wrong_sampler(
    "the cut of top_p is made in sorted order and laid over the unsorted scores: scatter it back"
)
def mask_not_scattered(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores = logits.float() / temperature
    probs, _ = ranked(scores, top_k)
    drop = (cut(probs, top_p) == 0) if top_p is not None else probs < 0
    if top_k is not None:
        bound = scores.topk(min(top_k, scores.size(-1)), dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < bound, -torch.inf)
    return drawn(scores.masked_fill(drop, -1e4).softmax(-1), generator)


@wrong_sampler(
    "the rank in the sorted row is given back instead of the token that has this rank"
)
def rank_for_token(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, _ = ranked(logits.float() / temperature, top_k)
    return drawn(cut(probs, top_p), generator)


@wrong_sampler("all tokens that are kept are drawn equally often, whatever their probability")
def all_alike(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    probs, token_ids = ranked(logits.float() / temperature, top_k)
    return finish((cut(probs, top_p) > 0).float(), token_ids, generator)


@wrong_sampler("the generator is not handed on, so that no draw can be repeated")
def generator_ignored(logits, temperature, top_k, top_p, generator):
    return reference.sample_next_token(logits, temperature, top_k, top_p)


@wrong_sampler(
    "every call starts from the same seed of its own, so that it always draws the same"
)
def own_seed(logits, temperature, top_k, top_p, generator):
    generator = torch.Generator().manual_seed(0)
    return reference.sample_next_token(logits, temperature, top_k, top_p, generator)


@wrong_sampler("one draw serves all rows: every row is to draw for itself")
def one_draw_for_all(logits, temperature, top_k, top_p, generator):
    first = reference.sample_next_token(logits[:1], temperature, top_k, top_p, generator)
    return first.expand(logits.size(0))


@wrong_sampler("the result keeps the axis of multinomial, (B, 1): squeeze it")
def axis_kept(logits, temperature, top_k, top_p, generator):
    return reference.sample_next_token(logits, temperature, top_k, top_p, generator)[:, None]


@wrong_sampler("the logits are divided in place: /= changes what the caller holds")
def divided_in_place(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    logits = logits.float()  # of float32 this is the very same tensor
    logits /= temperature
    return reference.sample_next_token(logits, 1.0, top_k, top_p, generator)


@wrong_sampler("the division is made in half precision, which overflows at a low temperature")
def half_precision(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1)
    return reference.sample_next_token(logits / temperature, 1.0, top_k, top_p, generator)


@mistake("sample_next_token", "the default temperature is not 1")
def another_default(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    return reference.sample_next_token(logits, temperature, top_k, top_p, generator)


@mistake("sample_next_token", "the checks that raise ValueError were deleted from the stub")
def nothing_refused(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if top_p is not None and not 0 < top_p <= 1:
        top_p = min(max(top_p, 1e-6), 1.0)
    return reference.sample_next_token(logits, max(temperature, 0), top_k, top_p, generator)


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
    *,
    wrong,
):
    """generate with one thing wrong; `wrong` says which."""
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    if wrong != "nothing refused":
        check_request(model, input_ids, attention_mask, max_new_tokens)
    stops = torch.as_tensor(eos_token_id, dtype=torch.long).reshape(-1)
    stops = {"one stop": stops[:1], "last stop": stops[-1:], "no stop": stops[:0]}.get(
        wrong, stops
    )
    finished = torch.zeros_like(input_ids[:, 0], dtype=torch.bool)
    room = max_new_tokens if wrong == "room" else input_ids.size(1) + max_new_tokens
    cached = (use_cache or wrong == "always") and wrong != "never"
    cache = KVCache(model.config.num_hidden_layers, room) if cached else None
    settings = handed_on(wrong, temperature, top_k, top_p, generator)
    output = new = input_ids
    columns = []
    for step in range(max_new_tokens - (wrong == "one too few")):
        logits = model(new, None if wrong == "mask not passed" else attention_mask, cache)
        logits = logits[:, 0] if wrong == "first column" else logits[:, -1]
        token = sample_next_token(logits, *settings)
        hits = torch.isin(token, stops)
        if wrong == "first row":
            hits = hits[:1].expand_as(hits)
        if wrong == "not the first" and step == 0:
            hits = hits & False
        if wrong == "stop dropped" and (finished | hits).all():
            break
        if wrong == "stop overwritten":
            finished = finished | hits
        filler = stops[0] if wrong == "filled with stops" and len(stops) else pad_token_id
        if wrong != "goes on":
            token = token.masked_fill(finished, filler)
        output = torch.cat((output, token[:, None]), dim=1)
        more = torch.zeros_like if wrong == "zeros" else torch.ones_like
        if wrong != "mask not extended":
            attention_mask = torch.cat((attention_mask, more(token[:, None])), dim=1)
        new = output if cache is None or wrong == "prompt again" else token[:, None]
        if wrong == "no context" and cache is None:
            new, attention_mask = token[:, None], torch.ones_like(token[:, None])
        columns.append(token[:, None] if wrong == "column shape" else token)
        if on_token is not None and not wrong.startswith("on_token"):
            on_token(token[~finished] if wrong == "only the unfinished" else columns[-1])
        finished = finished | hits
        if (finished.any() if wrong == "any" else finished.all()) and wrong != "runs on":
            break
    if on_token is not None and wrong == "on_token late":
        for column in columns:
            on_token(column)
    return output[:, input_ids.size(1) :] if wrong == "prompt dropped" else output


def handed_on(wrong, temperature, top_k, top_p, generator):
    """What reaches sample_next_token of the settings for the draw."""
    if wrong == "greedy":
        return 0.0, None, None, generator
    if wrong == "temperature":
        return (1.0 if temperature else 0.0), top_k, top_p, generator
    if wrong == "swapped":
        of_p, of_k = (v if v is None else cast(v) for v, cast in ((top_p, int), (top_k, float)))
        return temperature, of_p, of_k, generator
    kept = [None if wrong == n else v for n, v in (("top_k", top_k), ("top_p", top_p))]
    return temperature, *kept, None if wrong == "generator" else generator


def wrong_loop(name, wrong, sentence):
    """List `loop` with that fault as a mistake called `name`."""

    def generate(model, input_ids, *arguments, **settings):
        with torch.set_grad_enabled(wrong == "gradients" and torch.is_grad_enabled()):
            return loop(model, input_ids, *arguments, **settings, wrong=wrong)

    generate.__name__ = name
    generate.__module__ = __name__
    mistake("generate", sentence)(generate)


wrong_loop(
    "prompt_again", "prompt again",
    "the whole text is fed again although the cache holds it: after the first step only the "
    "newest token is new",
)  # fmt: skip
wrong_loop(
    "no_context", "no context",
    "without a cache only the newest token is fed: the model then knows nothing of the text",
)  # fmt: skip
wrong_loop("never_cached", "never", "the cache is never used, whatever use_cache says")
wrong_loop("always_cached", "always", "the cache is used even where use_cache is False")
wrong_loop(
    "room_for_the_new", "room",
    "the cache has room for the new tokens only: the prompt needs places, too",
)  # fmt: skip
wrong_loop(
    "first_column", "first column",
    "the scores of the first column are read: the last column, -1, scores the next token",
)  # fmt: skip
wrong_loop(
    "mask_not_passed", "mask not passed",
    "attention_mask is not given to the model, so that padding counts as text",
)  # fmt: skip
wrong_loop(
    "mask_not_extended", "mask not extended",
    "attention_mask stays as it was: it needs a column of ones for every new token",
)  # fmt: skip
wrong_loop(
    "mask_extended_by_zeros", "zeros",
    "attention_mask grows by zeros, so that new tokens count as padding",
)  # fmt: skip
wrong_loop(
    "greedy_always", "greedy", "the best token is always taken: the settings have no effect"
)
wrong_loop("temperature_not_passed", "temperature", "temperature is not handed on")
wrong_loop("top_k_not_passed", "top_k", "top_k is not handed on")
wrong_loop("top_p_not_passed", "top_p", "top_p is not handed on")
wrong_loop(
    "top_k_and_top_p_swapped", "swapped", "top_k and top_p are handed on in each other's place"
)
wrong_loop(
    "generator_not_passed", "generator",
    "generator is not handed on, so that no text can be repeated",
)  # fmt: skip
wrong_loop("never_stops", "no stop", "stop tokens are never looked for")
wrong_loop("first_stop_only", "one stop", "only the first of several stop tokens is looked for")
wrong_loop("last_stop_only", "last stop", "only the last of several stop tokens is looked for")
wrong_loop(
    "first_token_unchecked", "not the first",
    "the very first new token is not compared with the stop tokens",
)  # fmt: skip
wrong_loop(
    "first_row_decides", "first row", "the stop tokens are looked for in the first row only"
)
wrong_loop(
    "any_row_ends_all", "any",
    "all rows end as soon as one of them has ended: wait until every row has",
)  # fmt: skip
wrong_loop("rows_go_on", "goes on", "rows that have ended keep writing instead of being padded")
wrong_loop(
    "filled_with_stops", "filled with stops",
    "rows that have ended are filled with the stop token instead of pad_token_id",
)  # fmt: skip
wrong_loop(
    "stop_overwritten", "stop overwritten",
    "the stop token itself is overwritten by padding: a row is padded from the next token on",
)  # fmt: skip
wrong_loop(
    "stop_dropped", "stop dropped", "the loop ends before the stop token is added to the text"
)
wrong_loop(
    "runs_on", "runs on", "the loop runs on to max_new_tokens although every row has ended"
)
wrong_loop(
    "prompt_dropped", "prompt dropped", "only the new tokens are given back, without the prompt"
)
wrong_loop(
    "one_too_few", "one too few", "one token too few is written: max_new_tokens are asked for"
)
wrong_loop("on_token_never", "on_token never", "on_token is never called")
wrong_loop(
    "on_token_late", "on_token late",
    "on_token is called after the loop, when all is written, instead of at once",
)  # fmt: skip
wrong_loop(
    "on_token_column",
    "column shape",
    "on_token gets a column of shape (B, 1): (B,) was asked for",
)
wrong_loop(
    "on_token_unfinished", "only the unfinished",
    "on_token gets the rows that still write: it needs the whole column, padding included",
)  # fmt: skip
wrong_loop("gradients_recorded", "gradients", "torch.no_grad() is gone from above the function")
wrong_loop("request_unchecked", "nothing refused", "check_request is no longer called")


@mistake(
    "generate", "the default temperature is not 0: without settings the best token is taken"
)
def another_default_temperature(
    model, input_ids, attention_mask=None, new=100, temperature=1.0, *rest, **settings
):
    new = settings.pop("max_new_tokens", new)
    return reference.generate(
        model, input_ids, attention_mask, new, temperature, *rest, **settings
    )
