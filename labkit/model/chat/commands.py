"""The commands `tinyllm generate` and `tinyllm chat`: a model writes, token by token."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from labkit.core.paths import SOLUTIONS
from labkit.core.terminal import Problem
from labkit.model.chat.session import ChatModel, ChatSession, note, read_anything
from labkit.model.chat.stream import ChatError, Sampling

if TYPE_CHECKING:
    import torch
    from torch import nn

app = typer.Typer()

# whose model talks, if not said: the reference's, or yours where there is no reference
REFERENCE = SOLUTIONS / "decoder.py"
PACKAGE = "solutions" if REFERENCE.exists() else "tinyllm"
DTYPES = ("float32", "bfloat16", "float16")

# ruff: noqa: UP045  typer on Python 3.10 needs Optional
ModelName = Annotated[
    Optional[str],
    typer.Argument(metavar="MODEL", help="a folder, a shipped name, or a name on the hub"),
]
Prompt = Annotated[
    Optional[str], typer.Option("--prompt", "-p", help="the text to continue; else from stdin")
]
NewTokens = Annotated[Optional[int], typer.Option(help="at most so many; 256 if they fit")]
Temperature = Annotated[Optional[float], typer.Option(help="0 greedy, 1 as it was trained")]
TopK = Annotated[Optional[int], typer.Option(help="draw from the so many best tokens")]
TopP = Annotated[Optional[float], typer.Option(help="draw from the best that sum to this")]
Seed = Annotated[Optional[int], typer.Option(min=0, help="the same draw every time")]
Greedy = Annotated[bool, typer.Option("--greedy", help="always the best token")]
Dtype = Annotated[
    Optional[str], typer.Option(help="float32, bfloat16, float16; else as stored")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps")]
PackageName = Annotated[
    str, typer.Option(help="whose code runs: solutions (the reference), tinyllm (yours)")
]
Plain = Annotated[bool, typer.Option("--plain", help="the code as written, no fast path")]
Think = Annotated[bool, typer.Option("--think/--no-think", help="let the model think first")]
System = Annotated[Optional[str], typer.Option(help="what the model is told beforehand")]


@app.command()
def generate(
    model: ModelName = None,
    prompt: Prompt = None,
    max_new_tokens: NewTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    greedy: Greedy = False,
    dtype: Dtype = None,
    device: Device = "cpu",
    package: PackageName = PACKAGE,
    plain: Plain = False,
) -> None:
    """Continue one text."""
    with problems_told():
        asked = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "greedy": greedy}
        text = _read_prompt() if prompt is None else prompt
        chosen = chat_model(model, package, asked, max_new_tokens, seed, dtype, device, plain)
        chosen.continue_text(text)


@app.command()
def chat(
    model: ModelName = None,
    system: System = None,
    think: Think = True,
    max_new_tokens: NewTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    greedy: Greedy = False,
    dtype: Dtype = None,
    device: Device = "cpu",
    package: PackageName = PACKAGE,
    plain: Plain = False,
) -> None:
    """Talk with a model; lines come from the keyboard or a pipe."""
    with problems_told():
        asked = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "greedy": greedy}
        chosen = chat_model(model, package, asked, max_new_tokens, seed, dtype, device, plain)
        ChatSession(chosen, system, think).run()


def chat_model(
    name: str | None,
    package: str,
    asked: dict[str, Any],
    max_new_tokens: int | None,
    seed: int | None,
    dtype: str | None,
    device: str,
    plain: bool = False,
) -> ChatModel:
    """Find the model, check every setting, then load it: what is wrong is said at once."""
    import torch

    from labkit.model import checkpoint
    from labkit.model.fast import accelerate
    from labkit.model.program import FILE as PROGRAM
    from labkit.model.program import Program
    from labkit.model.tokenizer import Tokenizer

    code = load_package(package)
    if max_new_tokens is not None and max_new_tokens < 1:
        raise ChatError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
    kind, place = _dtype(dtype), usable_device(device)
    Sampling.chosen({}, **asked)
    folder = checkpoint.resolve(name)
    tokenizer = Tokenizer(folder)
    sampling = Sampling.chosen(tokenizer.generation, **asked)
    with checkpoint.bar(f"loading {folder.name}") as progress:
        try:
            model = checkpoint.load(folder, code, kind, place, progress)
            written_by = checkpoint.part(code, "generate")
            if (folder / PROGRAM).exists():  # then something else can talk if this cannot
                written_by(model, torch.zeros(1, 2, dtype=torch.long), max_new_tokens=1)
        except NotImplementedError as error:
            model, written_by = _program(folder, error)
    if not (plain or isinstance(model, Program)):
        accelerate(model, last_logits_only=True)
    generator = _generator(seed, place)
    return ChatModel(model, tokenizer, written_by, sampling, max_new_tokens, generator)


def _program(folder: Path, error: NotImplementedError) -> tuple[nn.Module, Callable]:
    """The course's program and its loop, in the place of an unfinished decoder."""
    from labkit.model.program import generate, load_program

    model = load_program(folder)
    if model is None:
        raise error
    note(f"{error} is not written yet: the course's own program talks, by temperature alone")
    return model, generate


@contextmanager
def problems_told() -> Iterator[None]:
    """Ends the command with status 2 and one sentence, for what a person can put right."""
    from labkit.model.weights import CheckpointError

    read_anything()
    try:
        yield
    except (CheckpointError, ChatError) as error:
        raise Problem(error) from error
    except NotImplementedError as error:
        if not str(error).startswith("Exercise"):
            raise
        raise Problem(
            f"{error} is not written yet; `--package {PACKAGE}` is finished"
        ) from error


def _read_prompt() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.read().removesuffix("\n")
    try:
        return input("prompt> ")
    except EOFError:
        return ""


def load_package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ChatError(f"there is no package {name!r}; yours is called tinyllm") from error


def _dtype(name: str | None) -> torch.dtype | None:
    import torch

    if name is not None and name not in DTYPES:
        raise ChatError(f"dtype is {name!r}; it may be {', '.join(DTYPES)}")
    return None if name is None else getattr(torch, name)


def usable_device(name: str) -> torch.device:
    import torch

    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # unknown, or not on this machine
        first = str(error).partition("\n")[0]
        raise ChatError(f"device {name!r} cannot be used: {first}") from error


def _generator(seed: int | None, device: torch.device) -> torch.Generator:
    import torch

    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(seed)
    return generator
