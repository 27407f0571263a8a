"""A model that writes in a terminal or a pipe: one text continued, or a chat, turn by turn."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from labkit.course.lang import said, tr
from labkit.model.chat.manners import Message as Asked
from labkit.model.chat.manners import unknown_words
from labkit.model.chat.screen import WordWrapper, fold, note, printable, show, show_thought
from labkit.model.chat.stream import (
    NEW_TOKENS,
    ChatError,
    Repeating,
    Sampling,
    Speed,
    fit_history,
    repeats,
    stream,
    surprise,
)
from labkit.model.chat.thoughts import Thought

if TYPE_CHECKING:
    import torch
    from torch import nn

    from labkit.model.tokenizer import Message, Tokenizer

HELP = said(
    "/reset forgets the conversation, exit or Ctrl-D ends it, Ctrl-C ends an answer, "
    "/help says what to ask"
)
LEAVE = ("exit", "quit", "/exit", "/quit")
UNLIKE = 3.0  # nats per token; beginnings of stories have under 2 (test_manners.py)
NO_STORY = said(
    "there is no story to ask about: ask for one first, or write one before the question, "
    "in the same line"
)
FAULTS = {
    "left out": said("asked for, and not in this story: {words}"),
    "contradicted": said("as the story reads, the answer is: {words}"),
    "unclear": said(
        "not checked: the course's reader of stories does not understand “{words}”"
    ),
    "unsettled": said("the story does not settle this: the answer may be made up"),
    "no answer": said("as far as the course can tell, this is no answer to that; try /help"),
}


@dataclass
class ChatModel:
    """A model that is ready to write, with its settings."""

    model: nn.Module
    tokenizer: Tokenizer
    generate: Callable  # the package's own `generate`
    sampling: Sampling
    max_new_tokens: int | None
    generator: torch.Generator
    has_little_world: bool = False  # whether it knows only the course's little stories

    @property
    def limit(self) -> int:
        return self.model.config.max_position_embeddings

    def continue_text(self, text: str) -> None:
        """Print what follows the text; in a terminal, with the text before it."""
        before = text if sys.stdout.isatty() else ""
        written: list[str] = []
        ids = self.tokenizer.encode(text)
        if self.has_little_world:
            self.warn(text, ids)
        self.say(ids, self.max_new_tokens, written, before)
        if not written:
            note(
                tr(
                    "the model ended at once: to it, nothing follows this text; a model that "
                    "answers requests does so in `tinyllm chat`"
                )
            )

    def warn(self, text: str, ids: list[int]) -> None:
        """Print a note if a text is unlike the stories that the model was trained on."""
        if unknown := unknown_words(text):
            note(
                tr(
                    "the model knows only little stories, and not these words: {words}",
                    words=tr(", ").join(unknown),
                )
            )
        elif (nats := surprise(self.model, ids)) > UNLIKE:
            note(
                tr(
                    "no story that the model was trained on begins like this ({nats:.1f} nats "
                    "per token): what follows may be nonsense; “Once upon a time” is a "
                    "beginning that it knows",
                    nats=nats,
                )
            )

    def say(
        self,
        ids: list[int],
        max_new_tokens: int | None,
        written: list[str],
        before: str = "",
        thought: Thought | None = None,
    ) -> Speed:
        """Print what follows the prompt, as it comes; `written` collects the pieces."""
        speed, how = Speed(), (self.sampling, max_new_tokens, self.generator)
        wrapper = WordWrapper(get_terminal_size().columns - 1)

        def show_piece(piece: str) -> None:
            if thought and thought.written and not written:
                fold(thought)
                piece = piece.lstrip("\n")
            text = printable(piece if written else before + piece)
            is_screen = sys.stdout.isatty()
            show(wrapper.wrap(text.replace("\t", "    ")) if is_screen else text)
            written.append(piece)
            if repeats(written):
                raise Repeating

        with suppress(Repeating):
            stream(
                self.model, self.tokenizer, ids, self.generate, show_piece, *how, speed, thought
            )
        if thought and thought.written and not written:
            fold(thought)
        show("\n")
        if repeats(written):
            note(tr("stopped: the model repeats itself"))
        note(str(speed), only_terminal=True)
        return speed


@dataclass
class ChatSession:
    """Questions and answers so far, and the loop that adds to them."""

    chat_model: ChatModel
    system: str | None = None
    think: bool = True
    budget: int | None = None  # tokens of thought; None: half of the tokens of an answer
    shows_thoughts: bool = False
    hint: str = ""  # the greeting
    about: str = ""  # a note on the model's abilities
    messages: list[Message] = field(default_factory=list)

    def run(self) -> None:
        """Answer until there are no more questions."""
        self.reset()
        if sys.stdin.isatty():
            note(tr(HELP))
            if self.hint:
                note(self.hint)
        for line in typed_lines():
            words = line.strip()
            if words.lower() in LEAVE:
                break
            if words == "/reset":
                self.reset()
                note(tr("forgotten"))
            elif words == "/help":
                for text in filter(None, (tr(HELP), self.about, self.hint)):
                    note(text)
            elif re.fullmatch(r"/\w+", words):
                note(tr("there is no {words}: {help}", words=words, help=tr(HELP)))
            elif words:
                self.answer(line)

    def reset(self) -> None:
        self.messages = [{"role": "system", "content": self.system}] if self.system else []

    def answer(self, question: str) -> None:
        """Print and remember the answer; Ctrl-C keeps the part written so far."""
        written, asked = [], Asked(question, [each["content"] for each in self.messages])
        if self.chat_model.has_little_world and not self._can_be_asked(asked):
            return
        try:
            history, prompt_ids, new = self._fitting({"role": "user", "content": question})
            budget = new // 2 if self.budget is None else self.budget
            shown = (show_thought,) if self.shows_thoughts else ()
            thought = Thought(self.chat_model.tokenizer, prompt_ids, budget, *shown)
            if self.chat_model.say(prompt_ids, new, written, thought=thought).cut:
                note(
                    tr(
                        "cut here, after {count} tokens: a longer answer needs a larger "
                        "--max-new-tokens or, where the chat is long, /reset",
                        count=new,
                    )
                )
            elif self.chat_model.has_little_world:
                fault, words = asked.fault("".join(written))
                if fault:
                    note(tr(FAULTS[fault], words=tr(", ").join(words)))
        except ChatError as error:
            note(str(error))
            return
        except KeyboardInterrupt:
            show("\n")
            note(tr("interrupted"))
            if not written:
                return
        self.messages = [*history, {"role": "assistant", "content": "".join(written)}]

    def _can_be_asked(self, asked: Asked) -> bool:
        """Print words that the model does not know; return False if a story is missing."""
        if asked.lacks_story:
            note(tr(NO_STORY))
        elif asked.unknown:
            note(
                tr(
                    "the model does not understand: {words}; it goes on without, or refuses",
                    words=tr(", ").join(asked.unknown),
                )
            )
        return not asked.lacks_story

    def _fitting(self, question: Message) -> tuple[list[Message], list[int], int]:
        """Return messages, their prompt, room for an answer; print what was dropped."""
        asked, limit = [*self.messages, question], self.chat_model.limit
        new = self.chat_model.max_new_tokens or NEW_TOKENS
        room = limit - min(new, max(1, limit // 4))  # an answer may also take more
        history, prompt_ids = fit_history(self.chat_model.tokenizer, asked, room, self.think)
        if len(prompt_ids) >= limit:
            raise ChatError(
                "this message makes {count} tokens, the model has room for {limit} "
                "with its answer (max_position_embeddings); say it shorter",
                count=len(prompt_ids),
                limit=limit,
            )
        if len(history) < len(asked):
            dropped = len(asked) - len(history)
            note(
                tr(
                    "the conversation and an answer outgrow {limit} tokens: the model forgets "
                    "the oldest {dropped} messages, with any story in them",
                    limit=limit,
                    dropped=dropped,
                )
            )
        return history, prompt_ids, min(new, limit - len(prompt_ids))


def typed_lines() -> Iterator[str]:
    """Yield lines from the keyboard, with a prompt and editing, or from a pipe."""
    if not sys.stdin.isatty():
        while line := sys.stdin.readline():
            yield line.rstrip("\n")
        return
    with suppress(ImportError):
        import readline  # noqa: F401  gives input() its editing keys
    while True:
        try:
            yield input(tr("you> "))
        except EOFError:
            show("\n")
            return
        except KeyboardInterrupt:
            show("\n")
            note(tr(HELP))
