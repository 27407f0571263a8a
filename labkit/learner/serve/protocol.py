"""The chat-completions interface in JSON: what a request may say, and how answers look."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

ROLES = ("assistant", "developer", "system", "user")
# What would change the answer and is not supported, with the values that change nothing
NEUTRAL = {
    "n": (1,), "top_p": (1, 1.0), "frequency_penalty": (0, 0.0), "presence_penalty": (0, 0.0),
    "logit_bias": ({},), "logprobs": (False,), "top_logprobs": (0,), "tools": ([],),
}  # fmt: skip
MOST_STOPS, LONGEST_STOP, LARGEST_SHAPE = 4, 200, 10_000
SAID_OF_A_FIELD = {"type", "enum", "title", "description"}


class Refusal(Exception):
    """A request that is not answered, in the interface's form."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str = ""):
        super().__init__(message)
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
        error = {"message": message, "type": kind, "param": param, "code": code or None}
        self.status, self.body = status, {"error": error}


@dataclass
class Wish:
    """What a client asks for; max_tokens None leaves it to the server."""

    messages: list[dict[str, str]]
    max_tokens: int | None
    temperature: float
    seed: int
    stops: list[str]
    shape: dict[str, Any] | None  # of a JSON object: its fields, each with its kind
    stream: bool
    wants_usage: bool


def read_wish(body: bytes, names: Sequence[str]) -> Wish:
    """A request's body.

    Errors: Refusal names the field, and says what it may be
    """
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(fields, dict):
        raise Refusal(400, "the body must be a JSON object")
    fields = {name: value for name, value in fields.items() if value is not None}
    for name, neutral in NEUTRAL.items():
        if name in fields and fields[name] not in neutral:
            raise Refusal(400, f"{name} is not supported here", name, "unsupported_parameter")
    if fields.get("model") not in names:
        known = f"there is no such model; there is {', '.join(names)}"
        raise Refusal(404, known, "model", "model_not_found")
    stops = fields.get("stop", [])
    stops = [stops] if isinstance(stops, str) else stops
    good = isinstance(stops, list) and len(stops) <= MOST_STOPS
    if not good or not all(isinstance(s, str) and 0 < len(s) <= LONGEST_STOP for s in stops):
        wanted = f"stop must be up to {MOST_STOPS} strings that are not empty"
        raise Refusal(400, wanted, "stop")
    limit = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    options = fields.get("stream_options")
    return Wish(
        messages=list(_messages(fields.get("messages"))),
        max_tokens=_number(fields, limit, None, 1, 10**9, int),
        temperature=_number(fields, "temperature", 1.0, 0, 2, int, float),
        seed=_number(fields, "seed", secrets.randbits(31), -(2**63), 2**63 - 1, int),
        stops=stops,
        shape=_shape(fields.get("response_format", {"type": "text"})),
        stream=fields.get("stream") is True,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _number(fields: dict, name: str, default: Any, low: int, high: int, *kinds: type) -> Any:
    value = fields.get(name, default)
    if value is default or (type(value) in kinds and low <= value <= high):  # not so for NaN
        return value
    number = "a number" if float in kinds else "a whole number"
    raise Refusal(400, f"{name} must be {number} from {low} to {high}", name)


def _messages(messages: Any) -> Iterator[dict[str, str]]:
    if not isinstance(messages, list) or not messages:
        raise Refusal(400, "messages must be a list of at least one message", "messages")
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise Refusal(400, f"{place} must have a role: {', '.join(ROLES)}", place)
        content = message.get("content")
        if isinstance(content, list):  # parts, of which text can be read
            texts = [part.get("text") for part in content if isinstance(part, dict)]
            whole = len(texts) == len(content) and all(isinstance(t, str) for t in texts)
            content = "".join(texts) if whole else None
        if not isinstance(content, str):
            raise Refusal(400, f"{place}.content must be text", f"{place}.content")
        role = "system" if message["role"] == "developer" else message["role"]
        yield {"role": role, "content": content}


def _shape(wanted: Any) -> dict[str, Any] | None:
    """The fields of the JSON object that response_format asks for; None: plain text."""
    if wanted == {"type": "text"}:
        return None
    try:
        properties = wanted["json_schema"]["schema"]["properties"]
        fields = {
            name: kind.get("enum") or str(kind["type"]) for name, kind in properties.items()
        }
        known = all(set(kind) <= SAID_OF_A_FIELD for kind in properties.values())
    except (TypeError, KeyError, AttributeError):
        known = False
    if not known or len(json.dumps(fields)) > LARGEST_SHAPE:
        wanted = ("response_format must be text, or a json_schema of an object with properties "
                  "that have a type or an enum, and no more")  # fmt: skip
        raise Refusal(400, wanted, "response_format", "unsupported_parameter")
    return fields


class Answer:
    """One answer's pieces of JSON."""

    def __init__(self, model: str, prompt_tokens: int):
        self.prompt_tokens, self.tokens = prompt_tokens, 0
        made = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time())}
        self.about = {**made, "model": model}

    def usage(self) -> dict[str, Any]:
        counts = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.tokens}
        return {"usage": {**counts, "total_tokens": self.prompt_tokens + self.tokens}}

    def whole(self, text: str, reason: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        choices = _choices(reason, message=message)
        return {**self.about, "object": "chat.completion", "choices": choices, **self.usage()}

    def chunk(self, delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
        choices = _choices(reason, delta=delta)
        return {**self.about, "object": "chat.completion.chunk", "choices": choices}

    def usage_chunk(self) -> dict[str, Any]:
        return {**self.chunk({}), "choices": [], **self.usage()}


def _choices(reason: str | None, **text: Any) -> list[dict[str, Any]]:
    return [{"index": 0, **text, "logprobs": None, "finish_reason": reason}]


def event(content: Any) -> str:
    """A server-sent event."""
    return f"data: {json.dumps(content)}\n\n"
