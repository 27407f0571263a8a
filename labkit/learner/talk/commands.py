"""The commands `tinyllm generate` and `tinyllm chat`: a model writes, token by token."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.console import Console

from labkit.course.lang import tr
from labkit.course.sealed import NotReady
from labkit.course.terminal import Problem
from labkit.model.chat.screen import note
from labkit.model.chat.session import ChatModel, ChatSession
from labkit.model.chat.stream import ChatError, Sampling

if TYPE_CHECKING:
    import torch
    from torch import nn

app = typer.Typer()

LEARNERS_PACKAGE = "tinyllm"  # unfinished parts come from the reference
PACKAGE = "solutions"  # the default of `train` and `measure`

# ruff: noqa: UP045  typer on Python 3.10 needs Optional
ModelName = Annotated[
    Optional[str],
    typer.Argument(
        metavar="MODEL",
        help="stories-dense (the default), stories-moe, mine (lab 08's), a folder, a name on "
        "the hub",
    ),
]
Prompt = Annotated[
    Optional[str], typer.Option("--prompt", "-p", help="the text to continue; else from stdin")
]
NewTokens = Annotated[
    Optional[int], typer.Option(min=1, help="the most tokens to write; 256 if they fit")
]
Temperature = Annotated[
    Optional[float],
    typer.Option(help="0 takes the best token, 1 draws by the model's own probabilities"),
]
TopK = Annotated[Optional[int], typer.Option(help="draw from this many best tokens")]
TopP = Annotated[
    Optional[float], typer.Option(help="draw from the best tokens that sum to this probability")
]
Seed = Annotated[
    Optional[int], typer.Option(min=0, max=2**32 - 1, help="the same seed draws the same text")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps")]
PackageName = Annotated[
    str,
    typer.Option(help="whose code: tinyllm (yours) or solutions (the course's)"),
]
AsItIs = Annotated[
    bool,
    typer.Option(
        "--as-it-is", help="run your code even where it is wrong, to hear what it does"
    ),
]
Int8 = Annotated[
    bool, typer.Option("--int8", help="round matrices to 8 bits: a quarter of float32's memory")
]
Think = Annotated[
    bool, typer.Option("--think/--no-think", help="let a model that can think do so first")
]
Budget = Annotated[
    Optional[int],
    typer.Option(
        min=0, help="the most tokens of thought, then the answer begins; else half of all"
    ),
]
Thoughts = Annotated[
    bool, typer.Option("--thoughts", help="show a thought instead of its length")
]
System = Annotated[Optional[str], typer.Option(help="instructions that the model reads first")]


@dataclass
class ModelOptions:
    """The options of `generate` and `chat`: the model, the code, the sampling."""

    model: ModelName = None
    max_new_tokens: NewTokens = None
    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    seed: Seed = None
    device: Device = "cpu"
    package: PackageName = LEARNERS_PACKAGE
    as_it_is: AsItIs = False
    int8: Int8 = False

    def chat_model(self) -> ChatModel:
        """Find the model, check every setting, then load it.

        Lines on stderr say whose code runs and which weights were loaded.
        """
        with Console(stderr=True).status(tr("starting torch")):
            import torch

        from labkit.learner.models import your_code
        from labkit.model import checkpoint
        from labkit.model.hub import resolve
        from labkit.model.int8 import in_int8
        from labkit.model.tokenizer import Tokenizer

        if self.package == LEARNERS_PACKAGE:
            code = your_code(report=note, as_it_is=self.as_it_is)
        else:
            code = named_package(self.package)
        place = usable_device(self.device)
        # None: the dtype of the file
        kind = torch.float32 if self.int8 or is_slow_in_half(place) else None
        self._sampling({})
        folder = checkpoint.existing(resolve(self.model))
        tokenizer = Tokenizer(folder)
        sampling = self._sampling(tokenizer.generation)
        with Console(stderr=True).status(tr("loading {name}", name=folder.name)):
            model = checkpoint.load(folder, code, kind, place)
        written_by, size = checkpoint.part(code, "generate"), _size(model)
        if self.int8:
            in_int8(model)
            size = tr("{size}, matrices rounded to int8", size=size)
        how = tr(", sped up by labkit/model/fast.py") if _sped_up(model) else ""
        name = self.model or folder.name
        note(tr("{name}: {size}{how}.", name=name, size=size, how=how))
        generator = torch.Generator(place)
        generator.seed() if self.seed is None else generator.manual_seed(self.seed)
        how = (sampling, self.max_new_tokens, generator, self.has_little_world())
        return ChatModel(model, tokenizer, written_by, *how)

    def has_little_world(self) -> bool:
        """Whether the model is one of the course's, which know only little stories"""
        from labkit.model.hub import SHIPPED

        return self.model is None or self.model in (*SHIPPED, "mine")

    def _sampling(self, advised: Mapping[str, Any]) -> Sampling:
        asked = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
        return Sampling.chosen(advised, **asked)


def with_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the command's first parameter by an option for each field of ModelOptions."""
    _, *parameters = inspect.signature(command, eval_str=True).parameters.values()
    shared = inspect.signature(ModelOptions, eval_str=True).parameters

    @wraps(command)
    def run(**given) -> None:
        options = ModelOptions(**{name: given.pop(name) for name in shared})
        with problems_reported():
            command(options, **given)

    run.__signature__ = inspect.Signature([*parameters, *shared.values()])
    return run


@app.command()
@with_model_options
def generate(options: ModelOptions, prompt: Prompt = None) -> None:
    """Let a model continue a text."""
    text = _read_prompt() if prompt is None else prompt
    options.chat_model().continue_text(text)


@app.command()
@with_model_options
def chat(
    options: ModelOptions,
    system: System = None,
    think: Think = True,
    budget: Budget = None,
    thoughts: Thoughts = False,
) -> None:
    """Talk with a model.

    Lines come from the keyboard or a pipe.
    """
    hint = about = ""
    if options.has_little_world():
        hint = tr("try: {request}", request="Tell me a story about a rabbit.")
        about = tr(
            "This model tells short stories in English and answers questions about them, such "
            "as {question} It knows few words, and does not always notice one that it does "
            "not know; {card} lists them.",
            question="Who has the kite?",
            card="checkpoints/stories-dense/README.md",
        )
    ChatSession(options.chat_model(), system, think, budget, thoughts, hint, about).run()


@contextmanager
def problems_reported() -> Iterator[None]:
    """End the command with status 2 and one sentence on errors that a person can fix."""
    from labkit.learner.workspace import exercise_named
    from labkit.model.values import CheckpointError

    try:
        yield
    except (CheckpointError, ChatError, NotReady) as error:
        raise Problem(error) from error
    except NotImplementedError as error:
        if not str(error).startswith("Exercise"):
            raise
        raise Problem(
            tr(
                "{error} is not written yet; `--package {PACKAGE}` is finished",
                error=exercise_named(error),
                PACKAGE=PACKAGE,
            )
        ) from error


def _read_prompt() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.read().removesuffix("\n")
    try:
        return input(tr("prompt> "))
    except EOFError:
        return ""


def named_package(name: str) -> ModuleType:
    """Import a package, and print a note that its code runs."""
    note(tr("All code is that of the package {package}.", package=name))
    return load_package(name)


def load_package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ChatError(
            "there is no package {name!r}; yours is called tinyllm", name=name
        ) from error


def _sped_up(model: nn.Module) -> bool:
    """Put the fast path into the reference's modules; return False if the model uses none of
    them, or in a learners' edition."""
    from labkit.model.fast import accelerate

    accelerate(model, last_logits_only=True)
    return any("forward" in vars(module) for module in model.modules())


def _size(model: nn.Module) -> str:
    weight, count = next(model.parameters()), sum(p.numel() for p in model.parameters())
    return tr(
        "{count:,} parameters in {torch}",
        count=count,
        torch=str(weight.dtype).removeprefix("torch."),
    )


def is_slow_in_half(device: torch.device) -> bool:
    """Whether the device emulates bfloat16, which takes up to 100 times as long as float32"""
    import torch

    return device.type == "cpu" and not torch.cpu._is_avx512_bf16_supported()


def usable_device(name: str) -> torch.device:
    import torch

    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # unknown, or not on this machine
        first = str(error).partition("\n")[0]
        raise ChatError(
            "device {name!r} cannot be used: {first}", name=name, first=first
        ) from error
