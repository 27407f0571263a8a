"""The command `tinyllm serve`: client programs talk to the learner's engine."""

from __future__ import annotations

import socket
from typing import Annotated, Optional

import typer

from labkit.course.lang import tr
from labkit.course.terminal import Problem, console
from labkit.learner.talk.commands import Device, ModelName, problems_told, usable_device
from labkit.model.chat.screen import note

app = typer.Typer()
# ruff: noqa: UP045  typer on Python 3.10 needs Optional


@app.command()
def serve(
    model: ModelName = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8000,
    host: Annotated[str, typer.Option(
        help="where to listen; other than this machine needs --key")] = "127.0.0.1",
    key: Annotated[
        Optional[str], typer.Option(
            envvar="TINYLLM_KEY", show_envvar=False,
            help="the key that clients have to send; else TINYLLM_KEY",
        ),
    ] = None,
    blocks: Annotated[int, typer.Option(min=1, help="blocks of the cache")] = 512,
    block_size: Annotated[int, typer.Option(min=1, help="tokens per block")] = 16,
    budget: Annotated[int, typer.Option(min=1, help="the most tokens in one pass")] = 128,
    places: Annotated[int, typer.Option(min=1, help="texts that run together")] = 16,
    drafts: Annotated[int, typer.Option(min=0, help="guesses per text and pass")] = 0,
    queue: Annotated[int, typer.Option(min=1, help="requests under way at a time")] = 64,
    device: Device = "cpu",
) -> None:  # fmt: skip
    """Serve a model to client programs, on this machine alone."""
    if host not in ("127.0.0.1", "localhost", "::1") and not key:
        raise Problem(tr("--host {host} lets others in: give a --key as well", host=host))
    if budget < places:
        raise Problem(tr("--budget must be at least --places, one token for each text"))
    with problems_told():
        from labkit.learner.serve.local import load_service, make_server

        usable_device(device)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, port), family=family)
        except OSError as error:
            raise Problem(tr("cannot listen on {host}:{port}: {error}", host=host, port=port,
                             error=error)) from error  # fmt: skip
        service = load_service(
            model, device, note, key, queue, num_blocks=blocks, block_size=block_size,
            budget=budget, max_running=places, drafts=drafts,
        )  # fmt: skip
    address = f"http://{host}:{listening.getsockname()[1]}/v1"
    console.print(tr("Serving {name} at {address} until Ctrl-C.", name=service.name,
                     address=address), soft_wrap=True)  # fmt: skip
    try:
        make_server(service, host).run([listening])
    except KeyboardInterrupt:
        pass
    finally:
        service.worker.stop()
        listening.close()
