"""The tokenizer and the chat template of a checkpoint folder.

The `tokenizers` library encodes and decodes. This adds the chat, the stop tokens, and text that
can be printed while it is generated. `transformers` has all of it, but takes seconds to import.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers

from labkit.course.lang import said, tr
from labkit.model import values
from labkit.model.values import CheckpointError

TEMPLATE = "chat_template.jinja"
STOPS = ("<|im_end|>", "<|endoftext|>")
CUT = "\uffff"  # not a character: no text contains it
UNFINISHED = "\ufffd"  # what an incomplete UTF-8 character decodes to

Message = Mapping[str, str]

SETTINGS = {"chat_template": values.TEXT, "bos_token": values.TOKEN, "eos_token": values.TOKEN}
GENERATION = {
    "eos_token_id": values.TOKEN_IDS,
    "do_sample": values.FLAG,
    "temperature": values.NUMBER,
    "top_k": values.WHOLE,
    "top_p": values.SHARE,
}

# The steps of a byte-level tokenizer such as Qwen3's. Other steps may replace any text, again
# and again.
PARTS = {
    "model": ("BPE",),
    "normalizer": ("Sequence", "NFC", "NFD", "NFKC", "NFKD"),
    "pre_tokenizer": ("Sequence", "Split", "Digits", "ByteLevel"),
    "post_processor": ("Sequence", "ByteLevel", "TemplateProcessing"),
    "decoder": ("Sequence", "ByteLevel"),
}
STEPS = ("normalizers", "pretokenizers", "processors", "decoders")  # keys of a Sequence
# An unknown pattern may take forever to match, and a call of the library cannot be interrupted
PATTERNS = {  # Qwen3's, and that of this course's models
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s",
}
MOST_SPECIAL = 10_000  # each is searched for in every message
MOST_TOKENS = 2**20
NOTHING = values.Kind(said("nothing"), lambda value: value == "")
BPE = {"continuing_subword_prefix": NOTHING, "end_of_word_suffix": NOTHING}


class Tokenizer:
    """The tokenizer of a checkpoint folder.

    Reads tokenizer.json and, if they exist, chat_template.jinja, tokenizer_config.json and
    generation_config.json.

    Errors: CheckpointError if tokenizer.json is missing, or a file is damaged
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.path = self.folder / "tokenizer.json"
        self.library = _open(self.path)
        self.settings = values.read_object(self.folder / "tokenizer_config.json", SETTINGS)
        self.generation = values.read_object(self.folder / "generation_config.json", GENERATION)
        template = values.read_text(self.folder / TEMPLATE)
        self.template_file = "tokenizer_config.json" if template is None else TEMPLATE
        self.chat_template = (
            self.settings.get("chat_template") if template is None else template
        )
        self.stop_ids = self._stop_ids()
        added = self.library.get_added_tokens_decoder().values()
        names = [re.escape(token.content) for token in added if token.special]
        if len(names) > MOST_SPECIAL:
            raise CheckpointError(
                "{path} has {count:,} special tokens; expected at most {most:,}",
                path=self.path,
                count=len(names),
                most=MOST_SPECIAL,
            )
        self.special = re.compile("|".join(sorted(names, reverse=True)) or r"\b\B")

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text; spelled out special tokens become their ids."""
        whole = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates to "?"
        with library_errors(self.path):
            return self.library.encode(whole, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return self.library.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def token_bytes(self) -> list[bytes]:
        """Return the bytes of each token id; none for special tokens and unused ids."""
        printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(0x100) if byte not in printed]
        of_letter = {chr(byte): byte for byte in printed}
        of_letter |= {chr(0x100 + number): byte for number, byte in enumerate(others)}
        vocabulary = self.library.get_vocab(with_added_tokens=False)
        texts = [b""] * (max(vocabulary.values(), default=-1) + 1)
        for token, number in vocabulary.items():
            if all(letter in of_letter for letter in token) and not self.special.search(token):
                texts[number] = bytes(map(of_letter.get, token))
        return texts

    def token_id(self, token: str) -> int | None:
        return self.library.token_to_id(token)

    def chat_text(self, messages: Sequence[Message], thinking: bool = True) -> str:
        """Render a conversation with the template, up to the beginning of the model's answer.

        messages    {"role": "system" | "user" | "assistant", "content": text}
        thinking    False asks the template for an empty <think> block before the answer

        Errors: CheckpointError if there is no template, or it fails
        """
        if not self.chat_template:
            raise CheckpointError(
                "{folder} has no chat template: this model continues text "
                "(`tinyllm generate`), it does not chat",
                folder=self.folder,
            )
        from labkit.model.chat.template import TemplateFailed, render

        try:
            return render(
                self.chat_template,
                messages=list(messages),
                add_generation_prompt=True,
                enable_thinking=thinking,
                bos_token=_text(self.settings.get("bos_token")),
                eos_token=_text(self.settings.get("eos_token")),
            )
        except TemplateFailed as error:
            raise CheckpointError(
                "the chat template in {path}: {error}; `tinyllm generate` needs none, and "
                "Qwen3's in {file} would do for a model of its kind",
                path=self.folder / self.template_file,
                error=str(error),
                file=self.folder / TEMPLATE,
            ) from error

    def chat_prompt(self, messages: Sequence[Message], thinking: bool = True) -> list[int]:
        """Render a conversation as token ids.

        Only the template can set special tokens: one that a message spells out is cut in two
        before it is encoded, so that it stays plain text.
        """
        letters = [
            {**message, "content": self.special.sub(_cut, message["content"])}
            for message in messages
        ]
        text = self.chat_text(letters, thinking)
        return [token for piece in text.split(CUT) for token in self.encode(piece)]

    def _stop_ids(self) -> frozenset[int]:
        stops = self.generation.get("eos_token_id", [])
        stops = {stops} if isinstance(stops, int) else set(stops)
        named = {*STOPS, _text(self.settings.get("eos_token"))}
        return frozenset(stops | {self.token_id(name) for name in named} - {None})


class TextPieces:
    """Decodes tokens one by one into pieces of text, never into half a character.

    The pieces and the rest, joined, are the text of all tokens decoded at once.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.waiting = []  # tokens whose text is not complete yet, at least the last token
        self.text, self.shown = "", 0  # their text, and the number of characters returned

    def after(self, token_id: int) -> str:
        """Return the text that one more token completes, perhaps none."""
        self.waiting.append(token_id)
        self.text = self.tokenizer.decode(self.waiting)
        whole = self.text.removesuffix(UNFINISHED)
        piece = whole[self.shown :]
        self.shown = max(self.shown, len(whole))
        if whole == self.text:
            self.waiting = [token_id]
            self.text = self.tokenizer.decode(self.waiting)
            self.shown = len(self.text)
        return piece

    def rest(self) -> str:
        """Return the text left at the end: an incomplete character."""
        return self.text[self.shown :]


def _open(path: Path) -> tokenizers.Tokenizer:
    text = values.read_text(path)
    if text is None:
        raise CheckpointError("{path} is missing: this checkpoint cannot read text", path=path)
    _check_tokenizer(path, text)
    with library_errors(path):
        library = tokenizers.Tokenizer.from_str(text)
    library.no_padding()
    library.no_truncation()
    if (last := max(library.get_vocab().values(), default=0)) > MOST_TOKENS:
        raise CheckpointError(
            "{path}: token ids go up to {last}; expected at most {most}",
            path=path,
            last=last,
            most=MOST_TOKENS,
        )
    return library


def _check_tokenizer(path: Path, text: str) -> None:
    """Check that the file describes a byte-level tokenizer. Errors: CheckpointError"""
    found = values.parse_object(path, text, {"model": values.OBJECT})
    for part, kinds in PARTS.items():
        for step in _steps(found.get(part)):
            kind = step.get("type") if isinstance(step, dict) else step
            if kind not in kinds:
                raise CheckpointError(
                    "{path}: {part} has a step {kind}; a byte-level tokenizer such as Qwen3's "
                    "has only {names}",
                    path=path,
                    part=part,
                    kind=reprlib.repr(kind),
                    names=tr(", ").join(kinds),
                )
            pattern = step.get("pattern", {}) if kind == "Split" else {}
            expression = pattern.get("Regex") if isinstance(pattern, dict) else pattern
            if expression not in (None, *PATTERNS):
                raise CheckpointError(
                    "{path}: the pattern {pattern} is not Qwen3's; an unknown one may take "
                    "forever to match. If you trust it, add it to PATTERNS in {module}",
                    path=path,
                    pattern=reprlib.repr(expression),
                    module=__file__,
                )
    values.check_kinds(path, found.get("model", {}), BPE, "model.")


def _steps(part: Any) -> Iterator[Any]:
    """Yield a part of the tokenizer and, if it is a sequence, all steps in it."""
    waiting = [] if part is None else [part]
    while waiting:
        step = waiting.pop()
        yield step
        for key in STEPS:
            more = step.get(key) or []
            waiting += more if isinstance(more, list) else [more]


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Turn any error of the library in the block into a CheckpointError about its file."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of its Rust code is not an Exception
        raise CheckpointError("{path} is damaged: {error}", path=path, error=error) from error


def _text(token: Any) -> str:
    """Return the text of a token, which tokenizer_config.json has as a string or an object."""
    token = token.get("content") if isinstance(token, Mapping) else token
    return token or ""


def _cut(token: re.Match) -> str:
    return token[0][0] + CUT + token[0][1:]
