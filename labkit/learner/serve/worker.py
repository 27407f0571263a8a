"""The thread that alone touches the engine: it takes requests in and passes tokens out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from labkit.learner.serve.protocol import Refusal


class Worker:
    """One engine; the event loop has its thread run one pass after another.

    make_engine    makes an engine; after an exception a fresh one goes on
    most           the requests that may be under way at a time
    """

    def __init__(self, make_engine: Callable[[], Any], most: int):
        self.make_engine, self.most, self.engine = make_engine, most, make_engine()
        self.queues: dict[int, asyncio.Queue] = {}  # by number of the request
        self._thread = ThreadPoolExecutor(1, "engine")
        self._passes: asyncio.Task | None = None
        self._stopping = False

    async def submit(self, request: Any) -> asyncio.Queue:
        """Hand a request to the engine. Its queue gets pairs: new tokens, and why it has ended:
        "" if it has not, a Refusal if the server is why.

        Errors: Refusal
        """
        if self._stopping or len(self.queues) >= self.most:
            raise Refusal(429, "too many requests are under way; try again later")
        queue = self.queues[request.number] = asyncio.Queue()
        try:
            await self._run(lambda: self.engine.submit(request))
        except ValueError as error:
            del self.queues[request.number]
            code = "context_length_exceeded"
            raise Refusal(400, str(error), "messages", code) from error
        finally:
            if not self._passes or self._passes.done():
                self._passes = asyncio.create_task(self._run_passes())
        return queue

    def cancel(self, number: int) -> None:
        """Let a request leave if it is still there; its blocks are given back."""
        self.queues.pop(number, None)
        if not self._stopping:
            self._thread.submit(lambda: self.engine.cancel(number))

    def stop(self) -> None:
        """End all requests, and the thread after its current pass."""
        self._stopping = True
        self._end_all(Refusal(503, "the server stops"))
        self._thread.shutdown()

    def _run(self, action: Callable[[], Any]) -> asyncio.Future:
        return asyncio.get_running_loop().run_in_executor(self._thread, action)

    async def _run_passes(self) -> None:
        while self.queues:
            try:
                for request, tokens in await self._run(lambda: self.engine.step()):
                    self._tell(request.number, tokens, request.reason)
            except Exception as error:  # the engine may be a learner's
                self._end_all(Refusal(500, f"{type(error).__name__}: {error}"))
                self.engine = self.make_engine()

    def _tell(self, number: int, tokens: list[int], reason: str | Refusal) -> None:
        if queue := self.queues.get(number):
            queue.put_nowait((tokens, reason))
            if reason:
                del self.queues[number]

    def _end_all(self, refusal: Refusal) -> None:
        for number in list(self.queues):
            self._tell(number, [], refusal)
