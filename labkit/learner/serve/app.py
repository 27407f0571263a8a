"""The HTTP application. It needs starlette, which comes with the extra `serve`."""

from __future__ import annotations

import asyncio
import secrets
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

from labkit.learner.serve.protocol import Answer, Refusal, Wish, event, read_wish
from labkit.learner.serve.worker import Worker
from labkit.model.tokenizer import TextPieces, Tokenizer
from labkit.model.values import CheckpointError

MOST_BYTES = 2**20  # of a request's body
LOCAL = ["127.0.0.1", "localhost", "[::1]"]
NEW_TOKENS = 256  # of an answer, if the client does not say
PATHS = "there is POST /v1/chat/completions and GET /v1/models"


class Service:
    """One model, and what the interface does with it."""

    def __init__(
        self, name: str, tokenizer: Tokenizer, worker: Worker, parts: SimpleNamespace,
        key: str | None = None,
    ):  # fmt: skip
        self.name, self.names = name, [name, "tinyllm"]
        self.tokenizer, self.worker, self.parts, self.key = tokenizer, worker, parts, key
        self.vocabulary, self._numbers = tokenizer.token_bytes(), count()
        self._template = asyncio.Lock()

    def application(self, hosts: list[str] = LOCAL) -> Starlette:
        """hosts    names by which a client may call this server, "*" for any"""

        def refused(request: Request, error: Any) -> JSONResponse:
            if not isinstance(error, Refusal):  # the router's
                error = Refusal(error.status_code, PATHS, code="unknown_url")
            return JSONResponse(error.body, error.status)

        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.complete, methods=["POST"]),
                Route("/v1/models", self.list_models),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
            exception_handlers={Refusal: refused, 404: refused, 405: refused},
        )

    def check_key(self, request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key and not secrets.compare_digest(given.encode(), self.key.encode()):
            raise Refusal(401, "the key is missing or wrong", code="invalid_api_key")

    async def list_models(self, request: Request) -> JSONResponse:
        self.check_key(request)
        about = {"object": "model", "created": 0, "owned_by": "tinyllm"}
        models = [{"id": name, **about} for name in self.names]
        return JSONResponse({"object": "list", "data": models})

    async def complete(self, request: Request) -> Any:
        self.check_key(request)
        wish = read_wish(await _body(request), self.names)
        try:  # a process renders the template: others' answers go on, one process at a time
            async with self._template:
                prompt = await asyncio.to_thread(self.tokenizer.chat_prompt, wish.messages)
        except CheckpointError as error:
            raise Refusal(400, str(error), "messages") from error
        engine = self.worker.engine
        room = len(engine.cache.ref_count) * engine.cache.block_size
        room = min(room, engine.config.max_position_embeddings) - len(prompt) + 1
        most = wish.max_tokens or max(1, min(NEW_TOKENS, room))
        choice = {"temperature": wish.temperature, "seed": wish.seed, "mask": self._mask(wish)}
        made = self.parts.Request(next(self._numbers), prompt, most, **choice)
        queue, answer = await self.worker.submit(made), Answer(self.name, len(prompt))
        pieces = self._pieces(made.number, queue, wish, answer, request)
        if wish.stream:
            sent = self._events(pieces, answer, wish.wants_usage)
            return StreamingResponse(sent, media_type="text/event-stream")
        texts, reasons = zip(*[piece async for piece in pieces], strict=True)
        return JSONResponse(answer.whole("".join(texts), reasons[-1]))

    def _mask(self, wish: Wish) -> Any:
        """What keeps the answer to the fields that are asked for; None: nothing does."""
        if wish.shape is None:
            return None
        try:
            machine = self.parts.json_machine(wish.shape)
        except (ValueError, TypeError) as error:
            raise Refusal(400, f"response_format: {error}", "response_format") from error
        stops = sorted(self.tokenizer.stop_ids)
        return self.parts.TokenMask(machine, self.vocabulary, stops)

    async def _pieces(
        self, number: int, queue: asyncio.Queue, wish: Wish, answer: Answer, request: Request
    ) -> AsyncIterator[tuple[str, str]]:
        """Pieces of text, the last one with the reason of the end. If the client leaves, its
        request ends: the blocks are given back."""
        text, stop = TextPieces(self.tokenizer), self.parts.StopText(wish.stops)
        reason = ""
        try:
            while not reason:
                try:
                    tokens, reason = await asyncio.wait_for(queue.get(), timeout=0.5)
                except asyncio.TimeoutError:
                    tokens = []
                if await request.is_disconnected():
                    reason = "cancelled"
                if isinstance(reason, Refusal):
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
                yield event(answer.usage_chunk())
            yield "data: [DONE]\n\n"
        except Refusal as refusal:  # the status has been sent
            yield event(refusal.body)
        finally:
            await pieces.aclose()


async def _body(request: Request) -> bytes:
    """The body of a request. A page elsewhere cannot send this type without asking first."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refusal(415, "the content type must be application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise Refusal(413, f"the body is larger than {MOST_BYTES:,} bytes")
    return body
