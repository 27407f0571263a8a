"""The command `tinyllm serve`: client programs talk to the learner's engine."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from labkit.course.lang import tr
from labkit.course.terminal import Problem, console
from labkit.learner.talk.commands import Device, ModelName, problems_reported, usable_device
from labkit.model.chat.screen import note

app = typer.Typer()


@app.command()
def serve(
    model: ModelName = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8000,
    device: Device = "cpu",
) -> None:
    """Serve a model to client programs, on this machine alone."""
    with problems_reported():
        from labkit.learner.serve.local import HOST, load_service, make_server

        usable_device(device)
        try:
            listening = socket.create_server((HOST, port))
        except OSError as error:
            raise Problem(tr("cannot listen on {host}:{port}: {error}", host=HOST, port=port,
                             error=error)) from error  # fmt: skip
        service = load_service(model, device, note)
    address = f"http://{HOST}:{listening.getsockname()[1]}/v1"
    console.print(tr("Serving {name} at {address} until Ctrl-C.", name=service.name,
                     address=address), soft_wrap=True)  # fmt: skip
    try:
        make_server(service).run([listening])
    except KeyboardInterrupt:
        pass
    finally:
        service.worker.stop()
        listening.close()
