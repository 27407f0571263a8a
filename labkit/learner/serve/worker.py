"""The only thread that touches the engine: requests go in, tokens come out.

One thread instead of locks, so a learner's engine need not be thread-safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from labkit.learner.serve.protocol import ApiError

MOST = 64  # requests under way at a time


class Worker:
    """One engine; the event loop has its thread run one pass after another.

    make_engine    makes an engine; after an exception a fresh one replaces it
    """

    def __init__(self, make_engine: Callable[[], Any]):
        self.make_engine, self.engine = make_engine, make_engine()
        self.queues: dict[int, asyncio.Queue] = {}  # by the number of the request
        self._thread = ThreadPoolExecutor(1, "engine")
        self._passes: asyncio.Task | None = None
        self._stopping = False

    async def submit(self, request: Any) -> asyncio.Queue:
        """Submit a request to the engine and return the queue that gets its tokens.

        The queue gets pairs: new tokens, and the reason why the answer ended ("" if it goes
        on, an ApiError if the server failed).

        Errors: ApiError if there are too many requests, or the engine cannot take this one
        """
        if self._stopping or len(self.queues) >= MOST:
            raise ApiError(429, "too many requests are under way; try again later")
        queue = self.queues[request.number] = asyncio.Queue()
        try:
            await self._run(lambda: self.engine.submit(request))
        except ValueError as error:
            del self.queues[request.number]
            code = "context_length_exceeded"
            raise ApiError(400, str(error), "messages", code) from error
        finally:
            if not self._passes or self._passes.done():
                self._passes = asyncio.create_task(self._run_passes())
        return queue

    def cancel(self, number: int) -> None:
        """End a request if it still runs, and free its blocks of the cache."""
        self.queues.pop(number, None)
        if not self._stopping:
            self._thread.submit(lambda: self.engine.cancel(number))

    def stop(self) -> None:
        """End all requests, and the thread after its current pass."""
        self._stopping = True
        self._end_all(ApiError(503, "the server stops"))
        self._thread.shutdown()

    def _run(self, action: Callable[[], Any]) -> asyncio.Future:
        return asyncio.get_running_loop().run_in_executor(self._thread, action)

    async def _run_passes(self) -> None:
        while self.queues:
            try:
                for request, tokens in await self._run(lambda: self.engine.step()):
                    self._put(request.number, tokens, request.reason)
            except Exception as error:  # a learner's engine may raise anything
                self._end_all(ApiError(500, f"{type(error).__name__}: {error}"))
                self.engine = self.make_engine()

    def _put(self, number: int, tokens: list[int], reason: str | ApiError) -> None:
        if queue := self.queues.get(number):
            queue.put_nowait((tokens, reason))
            if reason:
                del self.queues[number]

    def _end_all(self, error: ApiError) -> None:
        for number in list(self.queues):
            self._put(number, [], error)
