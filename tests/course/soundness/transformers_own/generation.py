# The code of transformers for lab 07, in the course's signatures.

# %% exercise 7.1: the layers of a StaticCache
from transformers.cache_utils import StaticLayer


class KVCache:
    def __init__(self, num_hidden_layers, max_length):
        self.max_length = max_length
        self.layers = [StaticLayer(max_length) for _ in range(num_hidden_layers)]

    keys = property(lambda self: [getattr(layer, "keys", None) for layer in self.layers])
    values = property(lambda self: [getattr(layer, "values", None) for layer in self.layers])
    length = property(lambda self: min(int(layer.get_seq_length()) for layer in self.layers))

    def update(self, layer_idx, key, value):
        layer = self.layers[layer_idx]
        if int(layer.get_seq_length()) + key.size(2) > self.max_length:
            raise ValueError("full")  # transformers leaves that to index_copy_
        if layer.is_initialized and len(layer.keys) != len(key):
            raise ValueError("another batch")
        rooms = layer.update(key, value)
        return tuple(room[:, :, : int(layer.get_seq_length())] for room in rooms)


# %% exercise 7.2: the warpers in the order of generate
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper


def sample_next_token(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(dim=-1)
    scores = TemperatureLogitsWarper(float(temperature))(None, logits.float())
    if top_k is not None:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p is not None:
        if top_p == 0:
            raise ValueError("top_p 0 is meant for nothing")  # transformers allows it
        scores = TopPLogitsWarper(top_p)(None, scores)
    return torch.multinomial(scores.softmax(-1), 1, generator=generator).squeeze(1)


# %% exercise 7.2: a list of processors over float32
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


def sample_next_token(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    scores = logits.to(copy=True, dtype=torch.float32)
    if not temperature:
        return torch.argmax(scores, dim=-1)
    if top_p is not None and not top_p > 0:
        raise ValueError("top_p")
    warpers = LogitsProcessorList()
    if temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(temperature))
    if top_k is not None:
        warpers.append(TopKLogitsWarper(top_k=top_k, min_tokens_to_keep=1))
    if top_p is not None and top_p < 1.0:
        warpers.append(TopPLogitsWarper(top_p=top_p, min_tokens_to_keep=1))
    probs = nn.functional.softmax(warpers(None, scores), dim=-1)
    return torch.multinomial(probs, num_samples=1, generator=generator).squeeze(1)


# %% exercise 7.3: its stopping criteria, and unfinished sequences counted as in sample
from transformers.generation.stopping_criteria import (
    EosTokenCriteria,
    MaxLengthCriteria,
    StoppingCriteriaList,
)


@torch.no_grad()
def generate(model, input_ids, attention_mask=None, max_new_tokens=100, temperature=0.0,
             top_k=None, top_p=None, eos_token_id=(), pad_token_id=0, generator=None,
             use_cache=True, on_token=None):  # fmt: skip
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    check_request(model, input_ids, attention_mask, max_new_tokens)
    total = input_ids.size(1) + max_new_tokens
    criteria = StoppingCriteriaList([MaxLengthCriteria(total)])
    stops = [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id)
    if stops:
        criteria.append(EosTokenCriteria(stops))
    cache = KVCache(model.config.num_hidden_layers, total) if use_cache else None
    unfinished_sequences = torch.ones(len(input_ids), dtype=torch.long)
    unseen = input_ids
    while unfinished_sequences.max() != 0:
        scores = model(unseen, attention_mask=attention_mask, cache=cache)[:, -1, :]
        token = sample_next_token(scores, temperature, top_k, top_p, generator)
        token = token * unfinished_sequences + pad_token_id * (1 - unfinished_sequences)
        input_ids = torch.cat([input_ids, token[:, None]], dim=-1)
        attention_mask = torch.cat(
            [attention_mask, attention_mask.new_ones((attention_mask.shape[0], 1))], dim=-1
        )
        unseen = token[:, None] if use_cache else input_ids
        if on_token is not None:
            on_token(token)
        unfinished_sequences = unfinished_sequences & ~criteria(input_ids, None)
    return input_ids
