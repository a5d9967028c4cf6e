"""Pictures in messages: read as `Model.chat` reads them, beside other texts, and only as data."""

import base64
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from PIL import Image
from starlette.testclient import TestClient

from clearhead.api import Model, load
from tests.serve.tiny import client_of, writer_model
from tests.small_pictures import pictured


@pytest.fixture(scope="module", params=["llava", "qwen2_5_vl"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp(request.param)
    pictured(folder, request.param)
    return load(folder)


@pytest.fixture(scope="module")
def client(model: Model) -> Iterator[TestClient]:
    with client_of(model) as client:
        yield client


def picture(bounds: tuple[float, float, float, float]) -> bytes:
    file = io.BytesIO()
    Image.effect_mandelbrot((31, 20), bounds, 50).convert("RGB").save(file, "png")
    return file.getvalue()


A, B = picture((-2, -1, 1, 1)), picture((-1, -1, 0, 0))


def part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def messages(*pictures: bytes, text: str = "what is this ?") -> list[dict[str, Any]]:
    parts = [part(f"data:image/png;base64,{base64.b64encode(one).decode()}") for one in pictures]
    return [{"role": "user", "content": [{"type": "text", "text": text}, *parts]}]


def test_a_picture_is_read_as_in_python_and_beside_other_texts(client: TestClient, model: Model):
    def ask(pictures: tuple[bytes, ...]) -> str:
        body = {"messages": messages(*pictures), "max_tokens": 6, "temperature": 0}
        response = client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]["message"]["content"]

    asked = [(A,), (B,), (A, B), (B, A), (), (A,), (B, A), ()]
    said: list[Any] = [{"type": "text", "text": "what is this ?"}]
    expected = [
        "".join(
            model.chat(
                [{"role": "user", "content": [*said, *[{"type": "image"}] * len(one)]}],
                image=list(one) or None,
                max_new_tokens=6,
                temperature=0.0,
            )
        )
        for one in asked
    ]
    assert len({*expected}) > 2
    with ThreadPoolExecutor(8) as at_once:
        assert [*at_once.map(ask, asked)] == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://example.com/a.png", "expected a picture as data:image/png;base64,…, as nothing is fetched"),
        ("file:///etc/passwd", "expected a picture as data:image/png;base64,…, as nothing is fetched"),
        ("data:image/png;base64,§", "expected a picture in base64, got other characters"),
        ("data:image/png;base64,aGVsbG8=", "images[0]: expected a PNG, JPEG or WebP image, got something else"),
    ],
)
def test_other_pictures_are_refused(client: TestClient, url: str, message: str):
    response = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": [part(url)]}]})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "messages")
    assert message in error["message"]
    assert "\n" not in error["message"]


def test_too_many_pictures_and_a_model_of_texts(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    many = client.post("/v1/chat/completions", json={"messages": messages(*[A] * 8)}).json()["error"]
    assert many["code"] == "context_length_exceeded"
    assert any(told in many["message"] for told in ("8 pictures of 9", "got 88"))
    words = writer_model()
    monkeypatch.setitem(words.tokenizer.__dict__, "chat_template", "one")
    with client_of(words) as other:
        told = other.post("/v1/chat/completions", json={"messages": messages(A)})
    assert told.status_code == 400
    assert "image: expected none, as this model reads text alone" in told.json()["error"]["message"]


def test_the_mark_of_a_video_is_refused(client: TestClient, model: Model):
    seen = model.config.pictures
    assert seen is not None
    if seen.video_id is None:
        return
    text = "what <|video_pad|> ?"
    told = [
        client.post("/v1/completions", json={"prompt": text}),
        client.post("/v1/completions", json={"prompt": [5, seen.video_id]}),
        client.post("/v1/chat/completions", json={"messages": messages(text=text)}),
        client.post("/v1/chat/completions", json={"messages": messages(A, text=text)}),
    ]
    for one in told:
        assert one.status_code == 400
        assert "text: expected no video, got its mark <|video_pad|>" in one.json()["error"]["message"]
