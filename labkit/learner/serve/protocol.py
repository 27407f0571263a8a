"""The chat-completions interface in JSON: parsing requests, building answers.

The few fields are checked by hand: a schema library would be one more package, and would
ignore unsupported options instead of refusing them.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

ROLES = ("assistant", "developer", "system", "user")
# Unsupported options that would change the answer, with the values that change nothing
NEUTRAL = {
    "n": (1,), "top_p": (1, 1.0), "frequency_penalty": (0, 0.0), "presence_penalty": (0, 0.0),
    "logit_bias": ({},), "logprobs": (False,), "top_logprobs": (0,), "tools": ([],),
}  # fmt: skip
MOST_STOPS, LONGEST_STOP, LARGEST_SCHEMA = 4, 200, 10_000
SUPPORTED_KEYWORDS = {"type", "enum", "title", "description"}  # keys of a field in a schema
SCHEMA = (
    "response_format must be text, or a json_schema of an object with properties that have a "
    "type or an enum, and no more"
)


class ApiError(Exception):
    """A request that is refused, in the form of the interface."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str = ""):
        super().__init__(message)
        kind = "server_error" if status >= 500 else "invalid_request_error"
        kind = "rate_limit_error" if status == 429 else kind
        error = {"message": message, "type": kind, "param": param, "code": code or None}
        self.status, self.body = status, {"error": error}


@dataclass
class ChatRequest:
    """The options of a request; max_tokens None leaves it to the server."""

    messages: list[dict[str, str]]
    max_tokens: int | None
    temperature: float
    seed: int
    stops: list[str]
    fields: dict[str, Any] | None  # fields of the requested JSON object; None: plain text
    stream: bool
    wants_usage: bool


def parse_request(body: bytes, models: Sequence[str]) -> ChatRequest:
    """Parse the body of a request for one of these models. Errors: ApiError, with the field and
    its possible values
    """
    try:
        options = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(options, dict):
        raise ApiError(400, "the body must be a JSON object")
    options = {name: value for name, value in options.items() if value is not None}
    for name, neutral in NEUTRAL.items():
        if name in options and options[name] not in neutral:
            raise ApiError(400, f"{name} is not supported here", name, "unsupported_parameter")
    if options.get("model") not in models:
        known = f"there is no such model; there is {', '.join(models)}"
        raise ApiError(404, known, "model", "model_not_found")
    limit = "max_completion_tokens" if "max_completion_tokens" in options else "max_tokens"
    streaming = options.get("stream_options")
    return ChatRequest(
        messages=list(_messages(options.get("messages"))),
        max_tokens=_number(options, limit, None, 1, 10**9, int),
        temperature=_number(options, "temperature", 1.0, 0, 2, int, float),
        seed=_number(options, "seed", secrets.randbits(31), -(2**63), 2**63 - 1, int),
        stops=_stops(options.get("stop", [])),
        fields=_fields(options.get("response_format", {"type": "text"})),
        stream=options.get("stream") is True,
        wants_usage=isinstance(streaming, dict) and streaming.get("include_usage") is True,
    )


def _number(options: dict, name: str, default: Any, low: int, high: int, *kinds: type) -> Any:
    value = options.get(name, default)
    # NaN fails this test
    if value is default or (type(value) in kinds and low <= value <= high):
        return value
    number = "a number" if float in kinds else "a whole number"
    raise ApiError(400, f"{name} must be {number} from {low} to {high}", name)


def _stops(stops: Any) -> list[str]:
    stops = [stops] if isinstance(stops, str) else stops
    if isinstance(stops, list) and len(stops) <= MOST_STOPS and all(
        isinstance(stop, str) and 0 < len(stop) <= LONGEST_STOP for stop in stops
    ):  # fmt: skip
        return stops
    raise ApiError(400, f"stop must be up to {MOST_STOPS} strings, none of them empty", "stop")


def _messages(messages: Any) -> Iterator[dict[str, str]]:
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages must be a list of at least one message", "messages")
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise ApiError(400, f"{place} must have a role: {', '.join(ROLES)}", place)
        content = message.get("content")
        if isinstance(content, list):
            texts = [part.get("text") if isinstance(part, dict) else None for part in content]
            content = "".join(texts) if all(isinstance(t, str) for t in texts) else None
        if not isinstance(content, str):
            raise ApiError(400, f"{place}.content must be text", f"{place}.content")
        role = "system" if message["role"] == "developer" else message["role"]
        yield {"role": role, "content": content}


def _fields(wanted: Any) -> dict[str, Any] | None:
    """{field: its type, or the values it may have} of the JSON object that response_format
    asks for; None for plain text."""
    if wanted == {"type": "text"}:
        return None
    try:
        properties = wanted["json_schema"]["schema"]["properties"]
        fields = {name: p.get("enum") or str(p["type"]) for name, p in properties.items()}
        is_known = all(set(p) <= SUPPORTED_KEYWORDS for p in properties.values())
    except (TypeError, KeyError, AttributeError):
        is_known = False
    if not is_known or len(json.dumps(fields)) > LARGEST_SCHEMA:
        raise ApiError(400, SCHEMA, "response_format", "unsupported_parameter")
    return fields


class Answer:
    """Builds the JSON of one answer, whole or in chunks; `tokens` counts those written."""

    def __init__(self, model: str, prompt_tokens: int):
        self.prompt_tokens, self.tokens = prompt_tokens, 0
        made = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time())}
        self.about = {**made, "model": model}

    def usage(self) -> dict[str, Any]:
        counts = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.tokens}
        return {"usage": {**counts, "total_tokens": self.prompt_tokens + self.tokens}}

    def whole(self, text: str, reason: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return {**self.about, "object": "chat.completion", "choices": [choice], **self.usage()}

    def chunk(self, delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self.about, "object": "chat.completion.chunk", "choices": [choice]}


def event(content: Any) -> str:
    return f"data: {json.dumps(content)}\n\n"
