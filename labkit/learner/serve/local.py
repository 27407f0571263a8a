"""A server that runs as long as a block: in a notebook, in a test, under the command."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

from labkit.course.lang import tr
from labkit.model.chat.stream import ChatError

HOST = "127.0.0.1"  # the interface asks for no key, so no other machine may reach it
SECONDS = 5  # seconds that answers under way get when the server stops
ENGINE = {"num_blocks": 512, "block_size": 16, "budget": 128, "max_running": 16}


def load_service(
    name: str | None = None, device: str = "cpu", report: Any = print, **engine_options: Any
) -> Any:
    """Load a model, its engine and the interface to them.

    report            called with lines that say whose code runs
    engine_options    of Engine, over those of ENGINE

    Errors: ChatError if uvicorn or starlette is missing; CheckpointError
    """
    try:
        import uvicorn  # noqa: F401

        from labkit.learner.serve.app import Service
    except ModuleNotFoundError as error:
        if error.name not in ("uvicorn", "starlette"):
            raise
        raise ChatError(
            "this needs two more packages: pip install -c constraints.txt -e '.[serve]'"
        ) from error
    import torch

    from labkit.learner.models import DECODER_LABS, your_code
    from labkit.learner.serve.parts import engine_parts
    from labkit.learner.serve.worker import Worker
    from labkit.model import checkpoint
    from labkit.model.hub import resolve
    from labkit.model.tokenizer import Tokenizer

    folder = checkpoint.existing(resolve(name))
    tokenizer, code = Tokenizer(folder), your_code(DECODER_LABS, report=report)
    model = checkpoint.load(folder, code, torch.float32, torch.device(device))
    parts = engine_parts(model, report)

    def make_engine() -> Any:
        stops = sorted(tokenizer.stop_ids)
        return parts.Engine(model, eos_token_id=stops, **ENGINE | engine_options)

    return Service(name or folder.name, tokenizer, Worker(make_engine), parts)


def make_server(service: Any) -> Any:
    """Return a uvicorn server that ends answers under way when it stops."""
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: Any = None) -> None:
            service.worker.stop()
            await super().shutdown(sockets)

    return Server(uvicorn.Config(
        service.application(), log_level="warning", access_log=False, lifespan="off",
        ws="none", timeout_graceful_shutdown=SECONDS,
    ))  # fmt: skip


@contextmanager
def running_server(service: Any = None) -> Iterator[str]:
    """Yield the address of a server on this machine that ends with the block; "" if there is
    none, with a line that says why."""
    try:
        service = service or load_service()
    except ChatError as error:
        print(error)
        yield ""
        return
    server = make_server(service)
    with socket.create_server((HOST, 0)) as listening:
        thread = Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://{HOST}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(2 * SECONDS)


def ask_together(address: str, questions: Sequence[str], **options: Any) -> list[str]:
    """Return the answers to questions that are all sent at the same time."""

    def ask(question: str) -> str:
        messages = [{"role": "user", "content": question}]
        fields = {"model": "tinyllm", "messages": messages, "temperature": 0, **options}
        request = Request(f"{address}/v1/chat/completions", json.dumps(fields).encode(),
                          {"Content-Type": "application/json"})  # fmt: skip
        with urlopen(request, timeout=60) as response:
            return json.load(response)["choices"][0]["message"]["content"]

    if not address:
        return [tr("There is no server to ask.")]
    with ThreadPoolExecutor(len(questions)) as pool:
        return list(pool.map(ask, questions))
