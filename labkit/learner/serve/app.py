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
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from labkit.learner.serve.protocol import Answer, Refusal, Wish, event, read_wish
from labkit.learner.serve.worker import BROKEN, STOPPING, Busy, Worker
from labkit.model.tokenizer import TextPieces, Tokenizer
from labkit.model.values import CheckpointError

MOST_BYTES = 2**20  # of a request's body
LOCAL = ["127.0.0.1", "localhost", "[::1]"]
NEW_TOKENS = 256  # of an answer, if the client does not say


class Service:
    """One model, and what the interface does with it."""

    def __init__(
        self, name: str, tokenizer: Tokenizer, worker: Worker, parts: SimpleNamespace,
        key: str | None = None,
    ):  # fmt: skip
        self.name, self.names = name, [name, "tinyllm"]
        self.tokenizer, self.worker, self.parts, self.key = tokenizer, worker, parts, key
        self._numbers = count()

    def application(self, hosts: list[str] = LOCAL) -> Starlette:
        """hosts    names by which a client may call this server, "*" for any"""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.complete, methods=["POST"]),
                Route("/v1/models", self.list_models),
                Route("/health", self.health),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
            exception_handlers={Refusal: refused, 404: unknown_path, 405: unknown_path},
        )

    def check_key(self, request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key and not secrets.compare_digest(given.encode(), self.key.encode()):
            raise Refusal(401, "the key is missing or wrong", code="invalid_api_key")

    async def health(self, request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def list_models(self, request: Request) -> JSONResponse:
        self.check_key(request)
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "tinyllm"}
                  for name in self.names]  # fmt: skip
        return JSONResponse({"object": "list", "data": models})

    async def complete(self, request: Request) -> Any:
        self.check_key(request)
        wish = read_wish(await _body(request), self.names)
        prompt, most = self._prompt(wish)
        number, events = next(self._numbers), asyncio.Queue()
        loop = asyncio.get_running_loop()

        def listener(news: tuple) -> None:
            try:
                loop.call_soon_threadsafe(events.put_nowait, news)
            except RuntimeError:  # the loop has ended
                return

        made = self.parts.Request(number, prompt, most, wish.temperature, wish.seed)
        try:
            await asyncio.wrap_future(self.worker.submit(made, listener))
        except Busy:
            raise Refusal(429, "too many requests are under way; try again later") from None
        except ValueError as error:
            raise Refusal(400, str(error), "messages", "context_length_exceeded") from error
        answer = Answer(self.name, len(prompt))
        pieces = self._pieces(number, events, wish, answer, request)
        if wish.stream:
            sent = self._events(pieces, answer, wish.wants_usage)
            return StreamingResponse(sent, media_type="text/event-stream")
        found = [piece async for piece in pieces]
        return JSONResponse(answer.whole("".join(text for text, _ in found), found[-1][1]))

    def _prompt(self, wish: Wish) -> tuple[list[int], int]:
        """The prompt's tokens, and the most that may follow."""
        try:
            prompt = self.tokenizer.chat_prompt(wish.messages)
        except CheckpointError as error:
            raise Refusal(400, str(error), "messages") from error
        engine = self.worker.engine
        room = len(engine.cache.ref_count) * engine.cache.block_size
        room = min(room, engine.config.max_position_embeddings) - len(prompt) + 1
        return prompt, wish.max_tokens or max(1, min(NEW_TOKENS, room))

    async def _pieces(
        self, number: int, events: asyncio.Queue, wish: Wish, answer: Answer, request: Request
    ) -> AsyncIterator[tuple[str, str]]:
        """Pieces of text, the last one with the reason of the end. Whoever stops listening
        ends the request: its blocks are given back."""
        text, stop = TextPieces(self.tokenizer), self.parts.StopText(wish.stops)
        reason = ""
        try:
            while not reason:
                try:
                    tokens, reason = await asyncio.wait_for(events.get(), timeout=0.5)
                except asyncio.TimeoutError:
                    if await request.is_disconnected():
                        raise ClientDisconnect from None
                    continue
                if reason in (BROKEN, STOPPING):
                    why = self.worker.failure if reason == BROKEN else "the server stops"
                    raise Refusal(500 if reason == BROKEN else 503, why)
                answer.tokens += len(tokens)
                known = [token for token in tokens if token not in self.tokenizer.stop_ids]
                shown = stop.add("".join(text.after(token) for token in known))
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
            yield event("[DONE]")
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


async def refused(request: Request, refusal: Exception) -> JSONResponse:
    return JSONResponse(refusal.body, refusal.status)


async def unknown_path(request: Request, error: Exception) -> JSONResponse:
    known = "there is POST /v1/chat/completions, GET /v1/models and GET /health"
    refusal = Refusal(error.status_code, known, code="unknown_url")
    return JSONResponse(refusal.body, refusal.status)
