"""/v1/predict and /v1/embeddings: what `Model.predict` and `Model.embed` say, over HTTP."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from clearhead import config as c
from clearhead.api import Model
from clearhead.cli.use.serve import example
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe.contract import Contract
from clearhead.serve.batches import Answer, Asked, Predictor
from clearhead.serve.service import Service
from clearhead.serve.worker import Failed, Ticket
from tests.explorer.traced import TOKENIZER, stack
from tests.serve.tiny import NAME, client_of, run
from tests.shell import classifier

TEXTS = ["one two", "three", "two two two"]


@pytest.fixture(scope="module")
def model() -> Model:
    return classifier()


@pytest.fixture(scope="module")
def client(model: Model) -> Iterator[TestClient]:
    with client_of(model) as client:
        yield client


@pytest.fixture(scope="module")
def encoder() -> Model:
    torch.manual_seed(0)
    return Model(Transformer(c.ModelConfig(encoder=stack(), head=c.NoHead())).eval(), TOKENIZER)


def test_predictions_are_those_of_the_model_whoever_else_asks(client: TestClient, model: Model):
    def asked(text: str) -> Any:
        return client.post("/v1/predict", json={"inputs": [text, "", *TEXTS]}).json()

    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(asked, TEXTS * 2)]
    for text, one in zip(TEXTS * 2, found, strict=True):
        assert one["model"] == NAME
        expected = model.predict([text, "", *TEXTS])
        assert [said.get("label") for said in one["predictions"]] == [said.get("label") for said in expected]
        for said, own in zip(one["predictions"], expected, strict=True):
            assert said.get("probabilities", {}) == pytest.approx(own.get("probabilities", {}), abs=1e-6)


def test_pairs(client: TestClient):
    model = classifier(pairs=True)
    model.put_under(Contract(task="classification", pairs=True))
    with client_of(model) as pairs:
        body = {"inputs": [["one", "two"], {"text": "one", "text_pair": "two"}, "one\ttwo"]}
        first, *others = pairs.post("/v1/predict", json=body).json()["predictions"]
        assert others == [first, first]
        assert first == model.predict([("one", "two")])[0]
        refused = pairs.post("/v1/predict", json={"inputs": ["one"]})
        assert refused.status_code == 400
        assert "inputs: input 1: expected text and text_pair with a tab between" in refused.json()["error"]["message"]
    asked = '{"inputs": [{"text": "Who?", "text_pair": "A text."}]}'
    assert asked in example(Service(model, NAME, slots=1, max_length=9), "u", keyed=False)


RELATIONS = ("contradiction", "neutral", "entailment")
OWN: dict[str, Any] = {"labels": ["a", "two"], "template": "this is {}"}


@pytest.fixture(scope="module")
def inference() -> Iterator[tuple[Model, TestClient]]:
    """A model of natural language inference, which reads pairs."""
    model = classifier(labels=RELATIONS, pairs=True)
    model.recipe = {"task": "classification", "data": {"text_pair": "b"}}
    with client_of(model) as client:
        yield model, client


@pytest.mark.parametrize("several", [False, True])
def test_labels_of_the_client(inference: tuple[Model, TestClient], several: bool):
    """Of requests with other labels at the same time, each gets its own."""
    model, client = inference
    bodies = [{"inputs": [*TEXTS, ""], **OWN, "several": several}, {"inputs": TEXTS, "labels": ["b", "one", "three"]}]
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda body: client.post("/v1/predict", json=body).json()["predictions"], bodies * 3)]
    expected = model.classify(TEXTS, **OWN, several=several)
    assert found[0][-1] == {}
    for said, own in zip(found[0], expected, strict=False):
        assert said["probabilities"] == pytest.approx(dict(own), abs=1e-6)
        best = {"labels": [name for name, share in own if share > 0.5]} if several else {"label": own[0][0]}
        assert said.items() >= best.items()
    for said, own in zip(found[1], model.classify(TEXTS, labels=["b", "one", "three"]), strict=True):
        assert said["probabilities"] == pytest.approx(dict(own), abs=1e-6)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"labels": ["a", "a"]}, "labels: expected a list of different labels, got ['a', 'a']"),
        ({"labels": []}, "labels: expected a list of different labels, got []"),
        ({"labels": "a"}, "labels: expected"),
        ({"labels": ["a"], "template": "x"}, "template: expected {} in place of the label, got 'x'"),
        ({"template": "a {}"}, "template: expected labels beside it, got none"),
        ({"several": True}, "several: expected labels beside it, got none"),
        ({"labels": ["one " * 200]}, "labels: expected at most 64 tokens, by --max-length, got"),
        ({"labels": [f"{i}" for i in range(40)]}, "expected at most 32 texts in one request, got 40"),
        ({"labels": ["a"], "inputs": [["one", "two"]]}, "inputs: input 1: expected one text beside labels, got"),
    ],
)
def test_wrong_labels_of_the_client_are_told(inference: tuple[Model, TestClient], body: dict[str, Any], told: str):
    response = inference[1].post("/v1/predict", json={"inputs": ["one"], **body})
    assert response.status_code == 400
    assert told in response.json()["error"]["message"]


def test_labels_need_a_model_of_inference(client: TestClient):
    response = client.post("/v1/predict", json={"inputs": ["one"], **OWN})
    assert response.status_code == 400
    assert "labels: expected a model with a label entailment, got one with x, y" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ([], "expected at least one, got an empty list"),
        ("one", "expected a list of texts, or of pairs of texts, got 'one'"),
        ([["one", "two", "three"]], "input 1: expected a text or a pair of texts"),
        ([{"a": "one"}], "input 1: expected the fields text and text_pair, got a"),
        (["one " * 200], "expected at most 64 tokens, by --max-length, got"),
        (["one"] * 40, "expected at most 32 texts in one request, got 40"),
    ],
)
def test_wrong_inputs_are_told(client: TestClient, inputs: object, told: str):
    response = client.post("/v1/predict", json={"inputs": inputs})
    assert response.status_code == 400
    assert told in response.json()["error"]["message"]


def test_each_model_has_its_routes(client: TestClient):
    for path, body in (
        ("/v1/completions", {"prompt": "a"}),
        ("/translate", {"text": "a"}),
        ("/v1/embeddings", {"input": "a"}),
    ):
        response = client.post(path, json=body)
        assert response.status_code == 404
        assert response.json()["error"]["message"] == "this model predicts; use /v1/predict"


def test_embeddings_in_the_format_of_that_api(encoder: Model):
    texts = ["one two", "three four five"]
    expected = encoder.embed(texts)
    with client_of(encoder) as client:
        found = client.post("/v1/embeddings", json={"input": texts, "model": NAME}).json()
        assert (found["object"], found["model"]) == ("list", NAME)
        assert [(one["object"], one["index"]) for one in found["data"]] == [("embedding", 0), ("embedding", 1)]
        torch.testing.assert_close(torch.tensor([one["embedding"] for one in found["data"]]), expected)
        n = sum(map(len, encoder.reader.ids(texts)))
        assert found["usage"] == {"prompt_tokens": n, "total_tokens": n}
        own = {"input": texts[0], "dimensions": len(expected[0])}
        assert client.post("/v1/embeddings", json=own).status_code == 200
        (one,) = client.post("/v1/embeddings", json={"input": texts[0], "encoding_format": "base64"}).json()["data"]
        vector = np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
        np.testing.assert_allclose(vector, expected[0], atol=1e-6)
        for wrong in ({"input": ""}, {"input": []}, {"input": 3}, {"input": "a", "dimensions": 2}):
            assert client.post("/v1/embeddings", json=wrong).status_code == 400
        assert client.post("/v1/predict", json={"inputs": ["a"]}).status_code == 404


def test_a_wrong_input_fails_its_own_request_alone(model: Model, monkeypatch):
    service = Service(model, NAME, slots=1, max_length=9)
    assert service.task is not None
    predicted = service.task.predict

    def refusing(model: Model, texts: list[str]) -> Any:
        if "bad" in texts:
            raise UserError("text: expected a mask, got none")
        return predicted(model, texts)

    monkeypatch.setattr(service.task, "predict", refusing)

    async def play() -> None:
        worker, good, bad = Predictor(model, service.task, most_waiting=9), Ticket[Answer](), Ticket[Answer]()
        worker.submit(good, [Asked(0, "one"), Asked(1, "two")])
        worker.submit(bad, [Asked(0, "bad")])
        worker.turn()
        assert [ticket for ticket, _ in worker.news] == [good, good, bad]
        failure = worker.news[-1][1]
        assert isinstance(failure, Failed)
        assert (failure.status, str(failure)) == (400, "text: expected a mask, got none")
        assert not worker.under_way

    run(play())
