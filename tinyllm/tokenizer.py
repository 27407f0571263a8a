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
    # YOUR CODE HERE (about 9 lines)
    raise NotImplementedError("Exercise 9.1: merge_pair, train_bpe")


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
    # YOUR CODE HERE (about 16 lines)
    raise NotImplementedError("Exercise 9.1: merge_pair, train_bpe")


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
        # YOUR CODE HERE (about 6 lines)
        raise NotImplementedError("Exercise 9.2: BPETokenizer")

    def encode(self, text: str, parse_special: bool = True) -> list[int]:
        """The token ids of a text: of each of its self.pieces, the ids of the tokens of bpe.

        A special token that occurs in the text becomes its one id, and the text before and
        after it is cut into pieces separately. Where one name begins with another, the longer
        one counts. With parse_special=False such a name is text like any other: what a user
        types can then never end a turn.
        """
        # YOUR CODE HERE (about 10 lines)
        raise NotImplementedError("Exercise 9.2: BPETokenizer")

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids.

        The bytes of all tokens are put together before they are decoded: a character may lie
        in several tokens. Bytes that are no UTF-8 become "\\ufffd", as errors="replace" does.
        Special tokens are left out, or written as their names. An id without a token gives
        nothing: a model may have more rows than its tokenizer has tokens.
        """
        # YOUR CODE HERE (about 8 lines)
        raise NotImplementedError("Exercise 9.2: BPETokenizer")


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
    # YOUR CODE HERE (about 18 lines)
    raise NotImplementedError("Exercise 9.3: render_chat")


# %% exercise 9.4: web_stream
def web_stream(tokens: Sequence[str]) -> list[str]:
    """Show an answer while it is written: per token, the text that it adds.

    tokens are written as in a vocabulary, a character per byte. The pieces, joined, are the
    text of all tokens, and what has been shown is never taken back.
    """
    pieces = []
    for token in tokens:
        data = bytes(BYTE_OF[character] for character in token)
        pieces.append(data.decode("utf-8", errors="replace"))
    return pieces
