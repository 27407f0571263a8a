"""A server on this machine with the published client, and with clients that behave badly."""

import json
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("uvicorn", reason="not checked: the extra serve is not installed")
openai = pytest.importorskip("openai", reason="not checked: the client is not installed")

from labkit.learner.serve import local, worker  # noqa: E402

ASKED = [{"role": "user", "content": "Tell me a story about a rabbit."}]
BLOCKS = 96


@pytest.fixture(scope="module")
def service():
    options = {"num_blocks": BLOCKS, "budget": 64, "max_running": 4, "drafts": 2}
    return local.load_service(report=str, **options)


@pytest.fixture(scope="module")
def address(service):
    with local.running_server(service) as address:
        yield address


@pytest.fixture
def client(address):
    with openai.OpenAI(
        base_url=f"{address}/v1", api_key="none", timeout=60, max_retries=0
    ) as made:
        yield made


@pytest.fixture(autouse=True)
def all_blocks_come_back(service):
    yield
    end = time.monotonic() + 20
    while time.monotonic() < end and (
        service.worker.queues or len(service.worker.engine.cache.free_blocks) < BLOCKS
    ):
        time.sleep(0.02)
    assert not service.worker.queues
    assert len(service.worker.engine.cache.free_blocks) == BLOCKS


def shaped(properties):
    """Return the option that asks for a JSON object of these fields."""
    schema = {"name": "tale", "schema": {"type": "object", "properties": properties}}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def ask(client, question=None, **options):
    messages = ASKED if question is None else [{"role": "user", "content": question}]
    options = {"temperature": 0, "max_tokens": 24, **options}
    return client.chat.completions.create(model="tinyllm", messages=messages, **options)


def test_an_answer_has_what_the_client_expects(client):
    answer = ask(client)
    choice = answer.choices[0]
    assert choice.message.content and choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 24 and answer.usage.prompt_tokens > 5
    assert answer.usage.total_tokens == 24 + answer.usage.prompt_tokens
    assert {model.id for model in client.models.list()} == {"tinyllm", "stories-dense"}
    parts = [{"type": "text", "text": ASKED[0]["content"]}]
    again = client.chat.completions.create(
        model="stories-dense", messages=[{"role": "user", "content": parts}], temperature=0,
        max_completion_tokens=24,
    )  # fmt: skip
    assert again.choices[0].message.content == choice.message.content


def test_a_stream_is_the_same_answer_in_pieces(client):
    whole = ask(client, max_tokens=120)
    chunks = list(
        ask(client, max_tokens=120, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    ends = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert ends[-1] == whole.choices[0].finish_reason == "stop" and set(ends[:-1]) == {None}
    assert chunks[-1].usage == whole.usage and len(chunks) > 10


def test_a_stop_string_ends_the_answer_before_it(client):
    whole = ask(client).choices[0].message.content
    stop = whole[11:19]
    for stream in (False, True):
        answer = ask(client, stop=[stop, "never"], stream=stream)
        if stream:
            chunks = [chunk.choices[0] for chunk in answer]
            text = "".join(choice.delta.content or "" for choice in chunks)
            reason = chunks[-1].finish_reason
        else:
            text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
        assert text == whole[: whole.find(stop)] and reason == "stop"


def test_a_seed_gives_the_same_answer_again_and_another_seed_another(client):
    def drawn(seed):
        return ask(client, temperature=1.0, seed=seed).choices[0].message.content

    alone = [drawn(seed) for seed in (1, 2, -3)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(drawn, (1, 2, -3))) == alone
    assert len(set(alone)) == 3
    assert drawn(None) != drawn(None)


def test_an_answer_is_an_object_of_the_fields_that_are_asked_for(client):
    shape = {"story": {"type": "string"}, "hero": {"enum": ["fox", "cat", 12]},
             "age": {"type": "integer"}, "happy": {"type": "boolean"}}  # fmt: skip
    for temperature in (0, 1):
        answer = ask(client, **shaped(shape), max_tokens=400, temperature=temperature)
        text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
        found = json.loads(text) if reason == "stop" else {"hero": "fox"}
        assert text.startswith('{"story": "') and found["hero"] in ("fox", "cat", 12)


def test_eight_at_once_get_what_each_gets_alone(client):
    questions = [f"Tell me a story about a {word}." for word in (
        "fox", "cat", "kite", "duck", "boat", "bird", "dog", "ball")]  # fmt: skip
    alone = [ask(client, question).choices[0].message.content for question in questions]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda question: ask(client, question), questions))
    assert [answer.choices[0].message.content for answer in together] == alone


def test_a_client_that_hangs_up_gives_its_blocks_back(client, service, address):
    stream = ask(client, max_tokens=300, stream=True)
    for _ in range(3):
        next(stream)
    stream.close()
    host, port = address.removeprefix("http://").split(":")
    body = json.dumps({"model": "tinyllm", "messages": ASKED, "max_tokens": 300}).encode()
    head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: "
            f"application/json\r\nContent-Length: {len(body)}\r\n\r\n")  # fmt: skip
    with socket.create_connection((host, int(port))) as line:  # then hangs up
        line.sendall(head.encode() + body)
        deadline = time.monotonic() + 10
        while not service.worker.queues and time.monotonic() < deadline:
            time.sleep(0.005)
        assert service.worker.queues


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"max_tokens": 100_000}, "messages"), ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"), ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["", "a"]}, "stop"), ({"stop": list("abcde")}, "stop"), ({"n": 2}, "n"),
        ({"top_p": 0.5}, "top_p"), ({"seed": 1.5}, "seed"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        (shaped({"a": {"type": "string", "maxLength": 3}}), "response_format"),
        (shaped({"a": {"type": "number"}}), "response_format"),
        (shaped({"a": {"type": ["string"]}}), "response_format"),
        (shaped({}), "response_format"),
        (shaped({"a" * 10_000: {"type": "string"}}), "response_format"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_in_the_interfaces_form(client, options, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **options)
    assert caught.value.param == param and caught.value.type == "invalid_request_error"


def test_a_request_larger_than_the_cache_is_refused(client):
    with pytest.raises(openai.BadRequestError, match="room") as caught:
        ask(client, "rabbit " * 600)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError, match="no such model"):
        client.chat.completions.create(model="other", messages=ASKED)


def post(address, body, kind="application/json", path="/v1/chat/completions", **headers):
    request = Request(address + path, body, {"Content-Type": kind, **headers})
    try:
        with urlopen(request, timeout=20) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text[:1] == b"{" else {}


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"", b"[]", b"\xff\xfe", b'{"model": "tinyllm"}', b"[" * 100_000,
        b'{"model": "tinyllm", "messages": [{"role": "cat", "content": "x"}]}',
        b'{"model": "tinyllm", "messages": [{"role": "user", "content": 5}]}',
        b'{"model": ["tinyllm"], "messages": []}',
        b'{"model": "tinyllm", "messages": [{"role": ["user"], "content": "x"}]}',
        b'{"model": "tinyllm", "messages": [{"role": "user", "content": [{"text": 3}]}]}',
        b'{"model": "tinyllm", "messages": [{"role": "user", "content": "x"}], "n": NaN}',
    ],
)  # fmt: skip
def test_a_malformed_body_gets_a_sentence(address, body):
    status, told = post(address, body)
    assert status in (400, 404) and told["error"]["message"]


def test_pages_elsewhere_are_refused(address):
    body = json.dumps({"model": "tinyllm", "messages": ASKED}).encode()
    assert post(address, body, kind="text/plain")[0] == 415
    assert post(address, body, Host="elsewhere.example")[0] == 400
    assert post(address, body, path="/v1/completions")[0] == 404
    with pytest.raises(HTTPError, match="405"):
        urlopen(f"{address}/v1/chat/completions", timeout=20)


def test_more_than_may_wait_are_sent_away(client, monkeypatch):
    monkeypatch.setattr(worker, "MOST", 1)
    stream = ask(client, max_tokens=300, stream=True)
    next(stream)
    with pytest.raises(openai.RateLimitError):
        ask(client)
    stream.close()


def test_an_engine_that_breaks_is_replaced(client, service, monkeypatch):
    broken = service.worker.engine
    monkeypatch.setattr(broken, "forward", lambda *a: 1 / 0)
    with pytest.raises(openai.InternalServerError, match="ZeroDivisionError"):
        ask(client)
    assert ask(client, max_tokens=2).choices and service.worker.engine is not broken


def load(client):
    """Send 24 requests, six at a time, some of which hang up; count how they end."""

    def visit(number):
        question = f"Tell me a story about {number}."
        try:
            stream = ask(client, question, stream=True, max_tokens=30)
        except openai.APIError as error:
            return repr(error)
        try:
            if number % 3 == 0:
                next(stream)
                return "left"
            return [chunk.choices[0].finish_reason for chunk in stream][-1]
        finally:
            stream.close()

    with ThreadPoolExecutor(6) as pool:
        return Counter(pool.map(visit, range(24)))


def test_load_loses_no_request_and_no_block(client):
    ends = load(client)
    assert ends["left"] == 8 and ends["stop"] + ends["length"] == 16
