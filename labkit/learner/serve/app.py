"""The HTTP application. It needs starlette, which comes with the extra `serve`.

Starlette and not http.server: eight clients stream at once while one thread runs the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from types import SimpleNamespace
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from labkit.learner.serve.protocol import Answer, ApiError, ChatRequest, event, parse_request
from labkit.learner.serve.worker import Worker
from labkit.model.tokenizer import TextPieces, Tokenizer
from labkit.model.values import CheckpointError

LOCAL = ["127.0.0.1", "localhost"]  # otherwise a foreign page could send a browser here
NEW_TOKENS = 256  # tokens of an answer, if the client sets no limit
PATHS = "there is POST /v1/chat/completions and GET /v1/models"


class Service:
    """One model behind the interface."""

    def __init__(self, name: str, tokenizer: Tokenizer, worker: Worker, parts: SimpleNamespace):
        self.name, self.names = name, [name, "tinyllm"]
        self.tokenizer, self.worker, self.parts = tokenizer, worker, parts
        self.vocabulary, self._numbers = tokenizer.token_bytes(), count()
        self._template = asyncio.Lock()

    def application(self) -> Starlette:
        def refused(request: Request, error: Any) -> JSONResponse:
            if not isinstance(error, ApiError):  # the router's
                error = ApiError(error.status_code, PATHS, code="unknown_url")
            return JSONResponse(error.body, error.status)

        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.complete, methods=["POST"]),
                Route("/v1/models", self.list_models),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=LOCAL)],
            exception_handlers={ApiError: refused, 404: refused, 405: refused},
        )

    async def list_models(self, request: Request) -> JSONResponse:
        about = {"object": "model", "created": 0, "owned_by": "tinyllm"}
        models = [{"id": name, **about} for name in self.names]
        return JSONResponse({"object": "list", "data": models})

    async def complete(self, request: Request) -> Any:
        _check_type(request)
        asked = parse_request(await request.body(), self.names)
        try:  # rendering the template may need a process; other answers continue meanwhile
            async with self._template:
                prompt = await asyncio.to_thread(self.tokenizer.chat_prompt, asked.messages)
        except CheckpointError as error:
            raise ApiError(400, str(error), "messages") from error
        engine = self.worker.engine
        room = len(engine.cache.ref_count) * engine.cache.block_size
        room = min(room, engine.config.max_position_embeddings) - len(prompt) + 1
        most = asked.max_tokens or max(1, min(NEW_TOKENS, room))
        choice = {
            "temperature": asked.temperature,
            "seed": asked.seed,
            "mask": self._mask(asked),
        }
        made = self.parts.Request(next(self._numbers), prompt, most, **choice)
        queue, answer = await self.worker.submit(made), Answer(self.name, len(prompt))
        pieces = self._pieces(made.number, queue, asked, answer, request)
        if asked.stream:
            sent = self._events(pieces, answer, asked.wants_usage)
            return StreamingResponse(sent, media_type="text/event-stream")
        texts, reasons = zip(*[piece async for piece in pieces], strict=True)
        return JSONResponse(answer.whole("".join(texts), reasons[-1]))

    def _mask(self, asked: ChatRequest) -> Any:
        """Return the mask that keeps the answer to the JSON fields asked for, None for text."""
        if asked.fields is None:
            return None
        try:
            machine = self.parts.json_machine(asked.fields)
        except (ValueError, TypeError) as error:
            raise ApiError(400, f"response_format: {error}", "response_format") from error
        stops = sorted(self.tokenizer.stop_ids)
        return self.parts.TokenMask(machine, self.vocabulary, stops)

    async def _pieces(
        self,
        number: int,
        queue: asyncio.Queue,
        asked: ChatRequest,
        answer: Answer,
        request: Request,
    ) -> AsyncIterator[tuple[str, str]]:
        """Yield pieces of text, each with the reason why the answer ended, "" before the last.

        If the client leaves, its request ends and its blocks of the cache are freed.
        """
        text, stop = TextPieces(self.tokenizer), self.parts.StopText(asked.stops)
        reason = ""
        try:
            while not reason:
                try:
                    tokens, reason = await asyncio.wait_for(queue.get(), timeout=0.5)
                except asyncio.TimeoutError:
                    tokens = []
                if await request.is_disconnected():
                    reason = "cancelled"
                if isinstance(reason, ApiError):
                    raise reason
                answer.tokens += len(tokens)
                known = [token for token in tokens if token not in self.tokenizer.stop_ids]
                shown = stop.add("".join(map(text.after, known)))
                if reason and not stop.stopped:
                    shown += stop.add(text.rest()) + ("" if stop.stopped else stop.rest())
                reason = "stop" if stop.stopped else reason
                yield shown, reason
        finally:
            self.worker.cancel(number)

    async def _events(
        self, pieces: AsyncIterator, answer: Answer, wants_usage: bool
    ) -> AsyncIterator[str]:
        try:
            yield event(answer.chunk({"role": "assistant", "content": ""}))
            async for shown, reason in pieces:
                if shown:
                    yield event(answer.chunk({"content": shown}))
                if reason:
                    yield event(answer.chunk({}, reason))
            if wants_usage:
                yield event({**answer.chunk({}), "choices": [], **answer.usage()})
            yield "data: [DONE]\n\n"
        except ApiError as error:  # the status has been sent
            yield event(error.body)
        finally:
            await pieces.aclose()


def _check_type(request: Request) -> None:
    """Refuse other types than JSON, which a foreign page could send without a preflight."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise ApiError(415, "the content type must be application/json")
