"""Lab 09: the tokenizer.

Text into numbers and back: bytes, merges learned from a text, special tokens, and the layout
of a chat.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from .byte_level import (
    BYTE_OF,
    PATTERN,
    byte_tokens,
    pre_tokenize,
)


# %% exercise 9.1: merge_pair, train_bpe
def merge_pair(tokens: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Join a pair of neighboring tokens wherever it occurs, from left to right.

    A token is joined once: ("a", "a") makes "aa", "a" of "a", "a", "a". `tokens` itself stays
    as it is.
    """
    ### BEGIN SOLUTION
    merged, place = [], 0
    while place < len(tokens):
        if tuple(tokens[place : place + 2]) == tuple(pair):
            merged.append(pair[0] + pair[1])
            place += 2
        else:
            merged.append(tokens[place])
            place += 1
    return merged
    ### END SOLUTION


def train_bpe(
    texts: Sequence[str], vocab_size: int, pattern: str = PATTERN
) -> list[tuple[str, str]]:
    """Learn from texts which pairs of tokens to merge, in their order.

    Cut each text with pre_tokenize and take each piece as byte_tokens; a pair is two
    neighbors in one piece, never across two. Begin with the 256 bytes as vocabulary. Again and
    again take the pair that is most frequent in all texts, merge it in all pieces, and add the
    new token to the vocabulary, until there are vocab_size tokens or no pair is left.

    Of equally frequent pairs take the one whose left token has the smaller id, then whose
    right token has the smaller id. Ids are places in the vocabulary: first sorted(BYTE_OF),
    the characters of the 256 bytes in sorted order, then the new tokens as they came.

    Overlapping pairs count, too: "aaa" has the pair ("a", "a") twice. A vocab_size of 256 or
    less gives no merge.

    Source: Sennrich et al. 2016, https://arxiv.org/abs/1508.07909
    """
    ### BEGIN SOLUTION
    counted = Counter(piece for text in texts for piece in pre_tokenize(text, pattern))
    pieces = [(byte_tokens(piece), times) for piece, times in counted.items()]
    ids = {character: number for number, character in enumerate(sorted(BYTE_OF))}
    merges = []
    while len(ids) < vocab_size:
        pairs = Counter()
        for tokens, times in pieces:
            for pair in pairwise(tokens):
                pairs[pair] += times
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        merges.append(best)
        ids.setdefault(best[0] + best[1], len(ids))
        pieces = [(merge_pair(tokens, best), times) for tokens, times in pieces]
    return merges
    ### END SOLUTION


# %% exercise 9.2: BPETokenizer
class BPETokenizer:
    """Text to token ids and back, with a vocabulary and merges that were learned before.

    vocab            the id of each token; in a token each byte is one character, see BYTES
    merges           pairs of tokens, the first learned first
    special_tokens   tokens in vocab that are whole names, like "<|im_end|>": nothing is merged
                     in them or across them
    pattern          where pre_tokenize cuts
    normal_form      "NFC": write e and its accent as one character first, as Qwen does
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        special_tokens: Sequence[str] = (),
        pattern: str = PATTERN,
        normal_form: str | None = None,
    ):
        self.vocab = dict(vocab)
        self.tokens = {number: token for token, number in vocab.items()}
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
        self.special_tokens = tuple(special_tokens)
        self.pattern, self.normal_form = pattern, normal_form

    @classmethod
    def from_folder(cls, folder: str | Path) -> "BPETokenizer":
        """The tokenizer of a checkpoint: what its tokenizer.json says."""
        file = json.loads((Path(folder) / "tokenizer.json").read_text("utf-8"))
        vocab, merges = dict(file["model"]["vocab"]), file["model"]["merges"]
        vocab |= {token["content"]: token["id"] for token in file["added_tokens"]}
        merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
        names = [token["content"] for token in file["added_tokens"]]
        steps = file["pre_tokenizer"].get("pretokenizers", [])
        pattern = next(step["pattern"]["Regex"] for step in steps if step["type"] == "Split")
        normal_form = (file["normalizer"] or {}).get("type")
        return cls(vocab, merges, names, pattern, normal_form)

    def pieces(self, text: str) -> list[str]:
        """A text without special tokens, cut where nothing is merged across."""
        if self.normal_form:
            text = unicodedata.normalize(self.normal_form, text)
        return pre_tokenize(text, self.pattern)

    def bpe(self, piece: str) -> list[str]:
        """The tokens of one piece.

        Begin with byte_tokens. While some pair of neighbors is among the merges, join the pair
        that was learned first (self.ranks), wherever it occurs.
        """
        ### BEGIN SOLUTION
        tokens = byte_tokens(piece)
        while True:
            known = [pair for pair in pairwise(tokens) if pair in self.ranks]
            if not known:
                return tokens
            tokens = merge_pair(tokens, min(known, key=self.ranks.get))
        ### END SOLUTION

    def encode(self, text: str, parse_special: bool = True) -> list[int]:
        """The token ids of a text: of each of its self.pieces, the ids of the tokens of bpe.

        A special token that occurs in the text becomes its one id, and the text before and
        after it is cut into pieces separately. Where one name begins with another, the longer
        one counts. With parse_special=False such a name is text like any other: what a user
        types can then never end a turn.
        """
        ### BEGIN SOLUTION
        names = sorted(self.special_tokens, key=len, reverse=True) if parse_special else []
        parts = re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
        ids = []
        for part in parts:
            if part in names:
                ids.append(self.vocab[part])
                continue
            for piece in self.pieces(part):
                ids += [self.vocab[token] for token in self.bpe(piece)]
        return ids
        ### END SOLUTION

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids.

        The bytes of all tokens are put together before they are decoded: a character may lie
        in several tokens. Bytes that are no UTF-8 become "\\ufffd", as errors="replace" does.
        Special tokens are left out, or written as their names. An id without a token gives
        nothing: a model may have more rows than its tokenizer has tokens.
        """
        ### BEGIN SOLUTION
        data = b""
        for number in ids:
            token = self.tokens.get(number, "")
            if token not in self.special_tokens:
                data += bytes(BYTE_OF[character] for character in token)
            elif not skip_special_tokens:
                data += token.encode("utf-8")
        return data.decode("utf-8", errors="replace")
        ### END SOLUTION


# %% exercise 9.3: render_chat
def render_chat(
    messages: Sequence[Mapping[str, str]],
    add_generation_prompt: bool = True,
    enable_thinking: bool = True,
) -> str:
    """A conversation as the text that Qwen3 was taught to read; tools are left out.

    A message is {"role": "system", "user" or "assistant", "content": a text} and becomes

        <|im_start|>role, a line break, content<|im_end|>, a line break

    The content of an assistant may hold a thought, <think>...</think>, before its answer.
    Line breaks around the thought and before the answer do not count.

    - Before the last user message only the answer is written, without its thought.
    - After the last user message it is "<think>\\n" thought "\\n</think>\\n\\n" answer. Without
      a thought the block is written only if the message is the last of all; it is empty then.
      (Where there is no user message at all, no block is written.)
    - Content without "</think>" has no thought: all of it is the answer, written as it is,
      except that behind a block line breaks before it do not count.

    add_generation_prompt opens the assistant's next turn: "<|im_start|>assistant\\n". With
    enable_thinking=False an empty thought follows it, "<think>\\n\\n</think>\\n\\n", so that
    the model finds its thinking done; without a generation prompt that has no effect.

    Source: the chat_template in the tokenizer_config.json of Qwen/Qwen3-0.6B
    """
    ### BEGIN SOLUTION
    users = [place for place, message in enumerate(messages) if message["role"] == "user"]
    last_user = users[-1] if users else len(messages)
    text = ""
    for place, message in enumerate(messages):
        content = message["content"]
        if message["role"] == "assistant":
            thought, closed, answer = content.rpartition("</think>")
            thought = thought.split("<think>")[-1].strip("\n")
            answer = answer.lstrip("\n") if closed else answer
            is_last = place == len(messages) - 1
            content = answer
            if place > last_user and (thought or is_last):
                content = f"<think>\n{thought}\n</think>\n\n" + answer.lstrip("\n")
        text += f"<|im_start|>{message['role']}\n{content}<|im_end|>\n"
    if add_generation_prompt:
        text += "<|im_start|>assistant\n"
        text += "" if enable_thinking else "<think>\n\n</think>\n\n"
    return text
    ### END SOLUTION


# %% exercise 9.4: web_stream
def web_stream(tokens: Sequence[str]) -> list[str]:
    """Show an answer while it is written: per token, the text that it adds.

    tokens are written as in a vocabulary, a character per byte. The pieces, joined, are the
    text of all tokens, and what has been shown is never taken back.
    """
    ### BEGIN SOLUTION
    pieces, waiting = [], b""
    for token in tokens:
        waiting += bytes(BYTE_OF[character] for character in token)
        pieces.append(waiting.decode("utf-8", errors="ignore"))
        waiting = waiting[len(pieces[-1].encode()) :]
    ### INSTEAD
    # pieces = []
    # for token in tokens:
    #     data = bytes(BYTE_OF[character] for character in token)
    #     pieces.append(data.decode("utf-8", errors="replace"))
    ### END SOLUTION
    return pieces
