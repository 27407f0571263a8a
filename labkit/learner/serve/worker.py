"""The thread that alone touches the engine: it takes requests in and passes tokens out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Condition, Thread
from typing import Any

Event = tuple[list[int], str]  # new tokens, and why the request has ended, "" if it has not
BROKEN, STOPPING = "error", "stopping"  # reasons that are the server's


class Busy(Exception):
    """More requests wait than may."""


class Worker:
    """One engine, and a thread that steps it while there is something to do.

    make_engine    makes an engine; after an exception a fresh one goes on
    most           the requests that may be under way at a time
    """

    def __init__(self, make_engine: Callable[[], Any], most: int):
        self.make_engine, self.most = make_engine, most
        self.engine = make_engine()
        self.listeners: dict[int, Callable[[Event], None]] = {}  # by number of the request
        self._calls: deque[Callable[[], None]] = deque()
        self._wake, self._stopping, self._accepted = Condition(), False, 0
        self.failure = ""  # of the last engine that raised
        self._thread = Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: Any, listener: Callable[[Event], None]) -> Future:
        """Hand a request to the engine; the listener is called in the engine's thread.

        The future is done once the engine has it; its exception is what the engine refuses,
        a ValueError.

        Errors: Busy, at once
        """
        done: Future = Future()

        def begin() -> None:
            try:
                self.engine.submit(request)
            except ValueError as error:
                self._accepted -= 1
                done.set_exception(error)
                return
            self.listeners[request.number] = listener
            done.set_result(None)

        with self._wake:
            if self._stopping or self._accepted >= self.most:
                raise Busy
            self._accepted += 1
            self._calls.append(begin)
            self._wake.notify()
        return done

    def cancel(self, number: int) -> None:
        """Let a request leave if it is still there; its blocks are given back."""

        def leave() -> None:
            if self.listeners.pop(number, None):
                self._accepted -= 1
                self.engine.cancel(number)

        with self._wake:
            self._calls.append(leave)
            self._wake.notify()

    def stop(self, seconds: float = 10.0) -> None:
        """End all requests with the reason STOPPING, and the thread after its current pass."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(
                    lambda: self._calls or self._stopping or self.engine.is_busy
                )
                calls, self._calls = self._calls, deque()
            try:
                for call in calls:
                    call()
                if self._stopping:
                    return self._end_all(STOPPING)
                for request, tokens in self.engine.step():
                    self._tell(request.number, tokens, request.reason)
            except Exception as error:  # the engine may be a learner's
                self.failure = f"{type(error).__name__}: {error}"
                self._end_all(BROKEN)
                self.engine = self.make_engine()

    def _tell(self, number: int, tokens: list[int], reason: str) -> None:
        listener = self.listeners[number]
        if reason:
            del self.listeners[number]
            self._accepted -= 1
        listener((tokens, reason))

    def _end_all(self, reason: str) -> None:
        for number in list(self.listeners):
            self._tell(number, [], reason)
