"""The routes by Starlette's client, and over real sockets where a client hangs up."""

import http.client
import json
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.generation.settings import searching
from clearhead.recipe.generation import GenerationConfig
from clearhead.serve import schemas
from clearhead.serve import server as module
from clearhead.serve.engine import Engine
from clearhead.serve.schemas import CompletionRequest
from clearhead.serve.server import BODY_LIMIT, application
from clearhead.serve.service import Service
from clearhead.serve.worker import Failed
from clearhead.text.detokenizer import UNFINISHED
from clearhead.text.tokenizers import Tokenizer
from clearhead.web import answering, listen
from tests.serve.tiny import NAME, client_of, endless_model, routes_of, writer_model
from tests.small_models import PAIRS, model_of

AS_JSON = {"Content-Type": "application/json"}
TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}one"


@pytest.fixture(scope="module")
def model() -> Model:
    return writer_model()


@pytest.fixture(scope="module")
def client(model: Model) -> Iterator[TestClient]:
    with client_of(model) as client:
        yield client


@pytest.fixture(scope="module")
def translator() -> Iterator[TestClient]:
    with client_of(model_of("demo")) as client:
        yield client


def ask(client: TestClient, path: str = "/v1/completions", **body: Any) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def events(text: str) -> list[dict[str, Any]]:
    """The objects of a stream that has ended well."""
    lines = [line for line in text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


# --- what is answered -----------------------------------------------------------------------------------------------


def test_models(client: TestClient):
    (card,) = client.get("/v1/models").json()["data"]
    assert (card["id"], card["object"]) == (NAME, "model")
    assert client.get(f"/v1/models/{NAME}").json() == card
    missing = client.get("/v1/models/other")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_a_completion(client: TestClient, model: Model):
    found = ask(client, model=NAME, prompt="one two", max_tokens=9, temperature=0)
    (choice,) = found["choices"]
    assert choice["text"] == model.generate("one two", GenerationConfig(max_new_tokens=9))
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "length", None)
    assert found["object"] == "text_completion"
    n = len(model.tokenizer.encode("one two"))
    counts = {"prompt_tokens": n, "completion_tokens": 9, "total_tokens": n + 9}
    assert found["usage"] == {**counts, "prompt_tokens_details": {"cached_tokens": 0}}


def test_prompts_of_every_form(client: TestClient, model: Model):
    ids = model.tokenizer.encode("one two")
    alone = ask(client, prompt="one two", return_token_ids=True)["choices"][0]
    for prompt in (ids, ["one two"], [ids]):
        assert ask(client, prompt=prompt, return_token_ids=True)["choices"] == [alone]
    several = ask(client, prompt=["three", "one two"], return_token_ids=True)["choices"]
    assert several[1] == {**alone, "index": 1}


def test_the_models_own_settings_unless_asked(model: Model):
    model = Model(model.network, model.reader.tokenizer, GenerationConfig(max_new_tokens=5, beams=3, n_best=2))
    with client_of(model) as client:
        (choice,) = ask(client, prompt="one", return_token_ids=True)["choices"]
        assert len(choice["token_ids"]) == 5
        assert len(ask(client, prompt="one", max_tokens=3, return_token_ids=True)["choices"][0]["token_ids"]) == 3


def test_a_seed_makes_the_same_texts(client: TestClient):
    asked: dict[str, Any] = {"prompt": "one", "temperature": 1.5, "n": 3}
    seeds: list[dict[str, Any]] = [{"seed": 1}, {"seed": 1}, {"seed": 2}, {}]
    first, again, other, drawn = (
        [choice["text"] for choice in ask(client, **asked, **seed)["choices"]] for seed in seeds
    )
    assert first == again
    assert len(set(first)) == 3
    assert first not in (other, drawn)


def test_echo_and_log_probabilities(client: TestClient, model: Model):
    plain = ask(client, prompt="one two", max_tokens=4)["choices"][0]
    echoed = ask(client, prompt="one two", max_tokens=4, echo=True, logprobs=2)["choices"][0]
    assert echoed["text"] == "one two" + plain["text"]
    scores = echoed["logprobs"]
    n = len(model.tokenizer.encode("one two")) + 4
    assert [len(scores[name]) for name in sorted(scores)] == [n] * 4
    assert scores["token_logprobs"][0] is None
    assert all(score < 0 for score in scores["token_logprobs"][1:])
    assert scores["text_offset"][n - 4] == len("one two")
    only = ask(client, prompt="one two", max_tokens=0, echo=True, logprobs=0)
    assert only["choices"][0]["text"] == "one two"
    assert only["choices"][0]["logprobs"]["token_logprobs"] == scores["token_logprobs"][: n - 4]
    assert only["usage"]["completion_tokens"] == 0


def test_a_stream(client: TestClient):
    asked = {"prompt": ["one two", "three"], "max_tokens": 10, "temperature": 1.0, "seed": 3, "n": 2, "echo": True}
    whole = ask(client, **asked)
    response = client.post("/v1/completions", json={**asked, "stream": True, "stream_options": {"include_usage": True}})
    assert response.headers["content-type"].startswith("text/event-stream")
    *parts, last = events(response.text)
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert len(parts) > 12
    for expected in whole["choices"]:
        own = [part["choices"][0] for part in parts if part["choices"][0]["index"] == expected["index"]]
        assert "".join(choice["text"] for choice in own) == expected["text"]
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + [expected["finish_reason"]]


def test_a_stop_string_is_not_sent(client: TestClient):
    whole = ask(client, prompt="one", max_tokens=30)["choices"][0]["text"]
    stop = whole[5:8]
    for several in (stop, ["not there", stop]):
        asked = {"prompt": "one", "max_tokens": 30, "stop": several}
        (choice,) = ask(client, **asked)["choices"]
        assert (choice["text"], choice["finish_reason"]) == (whole[: whole.index(stop)], "stop")
        parts = events(client.post("/v1/completions", json={**asked, "stream": True}).text)
        assert "".join(part["choices"][0]["text"] for part in parts) == choice["text"]


def test_chat(model: Model, monkeypatch):
    monkeypatch.setitem(model.tokenizer.__dict__, "chat_template", TEMPLATE)
    messages = [{"role": "user", "content": "two"}]
    with client_of(model) as client:
        found = ask(client, "/v1/chat/completions", messages=messages, max_completion_tokens=6, logprobs=True)
        (choice,) = found["choices"]
        expected = "".join(model.chat(messages, GenerationConfig(max_new_tokens=6)))
        assert choice["message"] == {"role": "assistant", "content": expected}
        assert found["object"] == "chat.completion"
        scores = choice["logprobs"]["content"]
        assert len(scores) == 6
        for score in scores:
            part_of_a_character = UNFINISHED in score["token"]
            assert score["bytes"] == (None if part_of_a_character else [*score["token"].encode()])
        in_parts = [{"role": "user", "content": [{"type": "text", "text": "t"}, {"type": "text", "text": "wo"}]}]
        asked = {"messages": in_parts, "max_tokens": 6, "stream": True}
        parts = events(client.post("/v1/chat/completions", json=asked).text)
        deltas = [part["choices"][0]["delta"] for part in parts]
        assert deltas[0]["role"] == "assistant"
        assert "".join(delta.get("content", "") for delta in deltas) == expected
        assert parts[-1]["choices"][0]["finish_reason"] == "length"
        refused = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": [{"type": "x"}]}]})
        assert refused.status_code == 400


def test_translations(translator: TestClient):
    model = model_of("demo")
    expected = model.translate(PAIRS.source[:5], searching(model.generation, {}))
    assert ask(translator, "/translate", text=PAIRS.source[:5], model=NAME)["translations"] == expected
    assert ask(translator, "/translate", text=PAIRS.source[1])["translations"] == expected[1:2]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: ask(translator, "/translate", text=text), PAIRS.source[:5] * 3))
    assert [one["translations"][0] for one in found] == expected * 3


def test_the_first_page_names_the_model_and_a_request_that_works(client: TestClient, translator: TestClient):
    for one, field in ((client, "choices"), (translator, "translations")):
        found = one.get("/").json()
        _, address, _, _, _, body = shlex.split(found["try"])
        assert found["model"] == NAME
        assert {"GET /health", "POST /v1/completions", f"POST {urlsplit(address).path}"} <= {*found["routes"]}
        assert len(one.post(urlsplit(address).path, json=json.loads(body)).json()[field]) == 1


def test_health(client: TestClient):
    assert client.get("/health").json() == {"status": "ok", "model": NAME, "running": 0, "waiting": 0}


# --- what is refused ------------------------------------------------------------------------------------------------

ONE = {"prompt": "one"}
WRONG: list[tuple[dict[str, Any], str | None]] = [
    *(({"prompt": prompt}, "prompt") for prompt in ("", [], ["one", ""], [[]], ["one", 1], 3, [True])),
    *(({"prompt": prompt}, "prompt") for prompt in ([10**6], [10**30], [-1], [5] * 65, [5] * 100_000, None)),
    *(({"prompt": prompt}, "prompt") for prompt in ("one " * 100_000, [1] * 100_000 + ["one"])),
    ({"prompt": "\ud800"}, None),
    ({"prompt": ["one"] * 100_000}, None),
    *((ONE | {"max_tokens": n}, "max_tokens") for n in (-1, 0)),
    *((ONE | {"temperature": n}, "temperature") for n in ("1", -0.1)),
    *((ONE | {"stop": stop}, "stop") for stop in ("x" * 1001, [1] * 100_000, ["a"] * 5, [""])),
    *((ONE | {"n": n, "temperature": t}, "n") for n, t in ((0, 1), (5, 1), (2, 0))),
    *((ONE | {"stream_options": {name: True}}, "stream_options") for name in ("usage", "include_usage")),
    *(
        (ONE | {name: value}, name)
        for name, value in {
            "top_p": 0,
            "top_k": 0,
            "seed": -1,
            "logprobs": 21,
            "presence_penalty": 0.5,
            "logit_bias": {"5": 1},
            "response_format": {"type": "json_object"},
            "tools": [{"type": "function"}],
            "prediction": {"type": "content"},
            "best_of": 3,
            "suffix": "x",
            "max_token": 3,
            "a\nb": 3,
            "x": [{}] * 99_000,
        }.items()
    ),
]


@pytest.mark.parametrize(("body", "field"), WRONG, ids=[f"{i}" for i in range(len(WRONG))])
def test_what_is_wrong_is_said_in_one_line(client: TestClient, body: dict[str, Any], field: str | None):
    response = client.post("/v1/completions", content=json.dumps(body), headers=AS_JSON)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert (error["type"], error["param"]) == ("invalid_request_error", field)
    assert "\n" not in error["message"]
    assert len(error["message"]) < 250
    assert ask(client, prompt="one", max_tokens=1)


def test_what_is_not_used_is_not_kept():
    large: dict[str, Any] = {"user": "x" * 1000, "metadata": {"a": ["b"] * 1000}, "store": True}
    asked = schemas.read(CompletionRequest, json.dumps({"prompt": "one", **large}).encode())
    assert not large.keys() & dict(asked).keys()


def test_a_list_has_one_mistake():
    """An error for each member of a large list takes gigabytes."""
    counts: list[int] = []
    wrong: list[tuple[type[schemas.Request], dict[str, Any]]] = [
        (CompletionRequest, {"prompt": [None] * 1000}),
        (CompletionRequest, {"prompt": [[None] * 1000] * 9}),
        (CompletionRequest, {"prompt": "one", "stop": [1] * 1000}),
        (CompletionRequest, {"prompt": "one", **dict.fromkeys(map(str, range(1000)))}),
        (CompletionRequest, {"prompt": "one", "stream_options": dict.fromkeys(map(str, range(1000)))}),
        (schemas.ChatRequest, {"messages": [1] * 1000}),
        (schemas.TranslationRequest, {"text": [1] * 1000}),
    ]
    for kind, body in wrong:
        with pytest.raises(ValidationError) as raised:
            kind.model_validate(body)
        counts.append(raised.value.error_count())
    assert max(counts) <= 4, counts


@pytest.fixture
def tokenized(model: Model, monkeypatch) -> list[list[str]]:
    """The texts of each call of the tokenizer."""
    calls: list[list[str]] = []
    encode = type(model.tokenizer).encode_batch

    def counted(tokenizer: Tokenizer, texts: Sequence[str], **marks: Any) -> list[list[int]]:
        calls.append([*texts])
        return encode(tokenizer, texts, **marks)

    monkeypatch.setattr(type(model.tokenizer), "encode_batch", counted)
    monkeypatch.setitem(model.tokenizer.__dict__, "chat_template", TEMPLATE)
    return calls


def test_a_text_that_is_too_long_is_not_tokenized(client: TestClient, tokenized: list[list[str]]):
    for text in ("one " * 900_000, "x" * 3_900_000, "\U0001f600" * 900_000, " " * 3_900_000, "one " * 200):
        for path, body in (
            ("/v1/completions", {"prompt": text}),
            ("/v1/completions", {"prompt": ["one", text]}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "", "x": [[text]]}]}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": ""}] * 1000}),
        ):
            response = client.post(path, content=json.dumps(body, ensure_ascii=False), headers=AS_JSON)
            assert response.status_code == 400 or len(text) == 800, (path, text[:9])
    assert sum(len(text) for call in tokenized for text in call) < 20_000


def test_between_two_prompts_others_have_a_turn(client: TestClient, tokenized: list[list[str]]):
    ask(client, prompt=["one", "two", "three"], max_tokens=1)
    assert tokenized == [["one"], ["two"], ["three"]]


def test_what_does_nothing_is_taken(client: TestClient):
    nothing: dict[str, Any] = {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "best_of": 1}
    nothing |= {
        "suffix": None,
        "response_format": {"type": "text"},
        "tools": [],
        "tool_choice": "none",
        "prediction": None,
    }
    nothing |= {"modalities": ["text"], "service_tier": "auto", "parallel_tool_calls": True, "safety_identifier": "me"}
    assert ask(client, prompt="one", user="me", stop=None, top_p=0.5, temperature=0, metadata={"a": 1}, **nothing)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'{"prompt": NaN}', b"\xff", b"[" * 10_000])
def test_what_is_no_json_object(client: TestClient, body: bytes):
    response = client.post("/v1/completions", content=body, headers=AS_JSON)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_bodies_that_are_not_read(client: TestClient, monkeypatch):
    assert client.post("/v1/completions", content=b" " * (BODY_LIMIT + 1), headers=AS_JSON).status_code == 413
    assert client.post("/v1/completions", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert client.get("/v1/completions").status_code == 405
    missing = client.get("/none")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "invalid_request_error")


def test_a_message_is_one_line_of_a_length_to_read(client: TestClient):
    asked: list[dict[str, Any]] = [{"prompt": "one", "a" * 9000: 1}, {"prompt": "one", "model": "a\n" * 9000}]
    refused = [client.post("/v1/completions", json=body) for body in asked] + [client.get("/a%0Ab")]
    assert [response.status_code for response in refused] == [400, 404, 404]
    for response in refused:
        message = response.json()["error"]["message"]
        assert 10 < len(message) <= 500
        assert message.isprintable()


def test_another_model(client: TestClient):
    response = client.post("/v1/completions", json={"model": "other", "prompt": "one"})
    assert (response.status_code, response.json()["error"]["param"]) == (404, "model")


def test_each_kind_of_model_has_its_routes(client: TestClient, translator: TestClient):
    assert client.post("/translate", json={"text": "one"}).status_code == 404
    assert translator.post("/v1/completions", json={"prompt": "one"}).status_code == 404
    chat = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "one"}]})
    assert "no chat template" in chat.json()["error"]["message"]


@pytest.mark.parametrize("text", [[], 3, ["one " * 100]])
def test_texts_that_are_not_translated(translator: TestClient, text: object):
    response = translator.post("/translate", json={"text": text})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "text")


def test_a_model_that_reads_no_text():
    with pytest.raises(UserError, match=r"^images: expected a model that reads text, got one that reads images"):
        Service(model_of("vit-tiny"), "images", slots=1, max_length=10)


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "127.0.0.1.evil"}, {"Origin": "http://evil.example"}, {"Origin": "null"}],
)
def test_other_hosts_and_sites(client: TestClient, headers: dict[str, str]):
    for path in ("/v1/models", "/health", "/none"):
        assert client.get(path, headers=headers).status_code == 403
    response = client.post("/v1/completions", json={"prompt": "one"}, headers=headers)
    assert response.status_code == 403
    assert not any(name.lower().startswith("access-control") for name in response.headers)


def test_with_a_key_only_who_has_it(model: Model):
    with client_of(model, key="right") as client:
        assert client.get("/v1/models").status_code == 401
        for wrong in (
            b"Bearer wrong",
            b"Basic right",
            b"right",
            b"Bearer",
            b"Bearer ",
            b"Bearer right x",
            b"Bearer \xe9",
        ):
            response = client.get("/v1/models", headers=[(b"Authorization", wrong)])
            assert (response.status_code, response.json()["error"]["type"]) == (401, "authentication_error")
        headers = {"Authorization": "Bearer right", "Host": "a.machine.of.ours"}
        assert client.get("/v1/models", headers=headers).status_code == 200


def test_too_many_at_once(model: Model, monkeypatch):
    with client_of(model, queue=2) as client:
        response = client.post("/v1/completions", json={"prompt": ["one"] * 3})
        assert (response.status_code, "at most 2 texts" in response.text) == (400, True), "waiting would not help"
        assert ask(client, prompt=["one"] * 2)

        def full(*_: object) -> None:
            raise Failed(503, "too many", code="queue_full")

        monkeypatch.setattr(Engine, "submit", full)
        response = client.post("/v1/completions", json={"prompt": "one"})
        assert (response.status_code, response.json()["error"]["code"]) == (503, "queue_full")
        assert int(response.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_mistake_of_ours_ends_one_answer(model: Model, monkeypatch, caplog, stream: bool):
    def bug(_: Engine) -> None:
        raise ZeroDivisionError

    with client_of(model) as client:
        with monkeypatch.context() as patch:
            patch.setattr(Engine, "step", bug)
            response = client.post("/v1/completions", json={"prompt": "one", "stream": stream})
        last = response.text.strip().split("\n\n")[-1].removeprefix("data: ")
        assert json.loads(last)["error"]["type"] == "server_error"
        assert (response.status_code, "ZeroDivisionError" in caplog.text) == (200 if stream else 500, True)
        assert ask(client, prompt="one")
        monkeypatch.setattr(module.ReplyFormat, "whole", lambda *_: 1 / 0)
        assert client.post("/v1/completions", json={"prompt": "one"}).status_code == 500


# --- over sockets ---------------------------------------------------------------------------------------------------


@contextmanager
def served(model: Model) -> Iterator[tuple[int, Any]]:
    """The port of a server of two slots, and its worker."""
    with routes_of(model, slots=2, max_length=10_000, queue=8) as routes:
        listener = listen()
        running = answering(application(routes), listener, name="test")
        try:
            yield listener.getsockname()[1], routes.worker
        finally:
            routes.worker.end()
            routes.worker.thread.join()
            running.stop()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def asking(port: int, **body: Any) -> Iterator[http.client.HTTPConnection]:
    """A connection that has asked for a completion."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "one", **body}), AS_JSON)
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_frees_the_slot(stream: bool):
    with served(endless_model()) as (port, worker):
        for _ in range(3):
            with asking(port, max_tokens=9000, stream=stream, temperature=1.0, n=2) as connection:
                response = connection.getresponse() if stream else None
                if response is not None:
                    assert response.readline().startswith(b"data: {")
                until(lambda: len(worker.under_way) == 2)
                if response is not None:
                    response.close()
            until(lambda: not worker.under_way)
        with asking(port, max_tokens=2) as connection, connection.getresponse() as response:
            assert response.status == 200


def test_half_a_request_harms_nobody(model: Model):
    with served(model) as (port, _):
        for sent in (b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n\r\n{", b"\x00" * 99):
            with socket.create_connection(("127.0.0.1", port)) as half:
                half.sendall(sent)
        with asking(port, max_tokens=1) as connection, connection.getresponse() as response:
            assert response.status == 200


def test_the_end_ends_open_streams():
    with ThreadPoolExecutor(1) as pool:
        with served(endless_model()) as (port, worker):

            def read() -> bytes:
                with asking(port, max_tokens=9000, stream=True, temperature=1.0) as connection:
                    return connection.getresponse().read()

            stream = pool.submit(read)
            until(lambda: len(worker.under_way) == 1)
        assert b"the server is stopping" in stream.result(30)
