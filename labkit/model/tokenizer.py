"""Text to token ids and back, and the layout of a chat, as a checkpoint folder defines them.

The work is done by the `tokenizers` library; this adds the chat, the stop tokens, and text
that can be printed while it is being generated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from labkit.model.weights import CheckpointError

STOPS = ("<|im_end|>", "<|endoftext|>")
CUT = "\uffff"  # no character: text that is exchanged never holds it
UNFINISHED = "\ufffd"  # what an incomplete UTF-8 character decodes to

Message = Mapping[str, str]


class Tokenizer:
    """The tokenizer of a checkpoint folder.

    Reads tokenizer.json, and where they are there chat_template.jinja, tokenizer_config.json
    and generation_config.json.

    Errors: no tokenizer.json, a damaged file: CheckpointError names it
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.library = _open(self.folder / "tokenizer.json")
        self.settings = _json(self.folder / "tokenizer_config.json")
        self.generation = _json(self.folder / "generation_config.json")
        template = self.folder / "chat_template.jinja"
        self.chat_template = (
            template.read_text("utf-8")
            if template.is_file()
            else self.settings.get("chat_template")
        )
        self.stop_ids = self._stop_ids()
        added = self.library.get_added_tokens_decoder().values()
        names = [re.escape(token.content) for token in added if token.special]
        self.special = re.compile("|".join(sorted(names, reverse=True)) or r"\b\B")

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens written out in it become their ids."""
        whole = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates to "?"
        return self.library.encode(whole, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return self.library.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def token_id(self, token: str) -> int | None:
        return self.library.token_to_id(token)

    def chat_text(self, messages: Sequence[Message], thinking: bool = True) -> str:
        """The conversation as the model was taught to read it, up to where it shall answer.

        messages are {"role": "system" | "user" | "assistant", "content": text}. thinking
        False asks the template for an empty <think> block before the answer.

        Errors: no template, or one that fails: CheckpointError
        """
        if not self.chat_template:
            raise CheckpointError(
                "{folder} has no chat template: this model continues text "
                "(`tinyllm generate`), it does not chat",
                folder=self.folder,
            )
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _refuse
        values = {name: _text(self.settings.get(name)) for name in ("bos_token", "eos_token")}
        try:
            return environment.from_string(self.chat_template).render(
                messages=list(messages),
                add_generation_prompt=True,
                enable_thinking=thinking,
                **values,
            )
        except Exception as error:  # a template is a program: it may fail in any way
            raise CheckpointError(
                "the chat template of {folder}: {error}", folder=self.folder, error=error
            ) from error

    def chat_prompt(self, messages: Sequence[Message], thinking: bool = True) -> list[int]:
        """The same as token ids.

        Only the template sets special tokens: one that a message spells out is cut in two
        before it is encoded, and stays letters.
        """
        letters = [
            {**message, "content": self.special.sub(_cut, message["content"])}
            for message in messages
        ]
        text = self.chat_text(letters, thinking)
        return [token for piece in text.split(CUT) for token in self.encode(piece)]

    def _stop_ids(self) -> frozenset[int]:
        stops = self.generation.get("eos_token_id")
        stops = {stops} if isinstance(stops, int) else set(stops or ())
        named = {*STOPS, _text(self.settings.get("eos_token"))}
        return frozenset(stops | {self.token_id(name) for name in named} - {None})


class TextPieces:
    """The text of tokens, piece by piece as they come, and never half a character.

    The pieces and the rest, joined, are what decoding all tokens at once gives.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.waiting = []  # tokens whose text is not all shown; the last one otherwise
        self.text, self.shown = "", 0  # theirs, and how many of its characters are shown

    def after(self, token_id: int) -> str:
        """What can be shown now that one more token has come; it may be nothing."""
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
        """What is left when no more tokens come: the halves of a character."""
        return self.text[self.shown :]


def _open(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise CheckpointError("{path} is missing: this checkpoint cannot read text", path=path)
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError("{path} is damaged: {error}", path=path, error=error) from error


def _json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, {} where there is no file."""
    try:
        return json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise CheckpointError(
            "{path} is not valid JSON: {error}", path=path, error=error
        ) from error


def _text(token: Any) -> str:
    """A token as tokenizer_config.json writes it: a string, or an object with its content."""
    token = token.get("content") if isinstance(token, Mapping) else token
    return token or ""


def _cut(token: re.Match) -> str:
    return token[0][0] + CUT + token[0][1:]


def _refuse(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)
