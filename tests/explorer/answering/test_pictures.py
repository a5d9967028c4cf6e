"""Images come as examples or data URLs, with every check of a file."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from clearhead.errors import UserError
from clearhead.explorer.answering.passes import picture_of
from tests.explorer.asking import ask, session_of, start
from tests.explorer.traced import CONFIGS, inputs


def url(pixels: np.ndarray, kind: str = "PNG", **options: object) -> str:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(stream.getvalue()).decode()}"


def test_an_image_that_is_sent_is_the_image():
    session, picture = session_of("vision"), inputs(CONFIGS["vision"])[0]
    run = {**start(session), "image": url(picture)}
    reply, tensors = ask(session, "run", run=run)
    torch.testing.assert_close(tensors["output.logits"], session.model.trace(picture)[1])
    assert reply["grid"] == [2, 2]
    at = "encoder.embed.pixels"
    assert torch.equal(
        ask(session, "values", run=run, at=[at])[1][at], ask(session, "values", run=start(session), at=[at])[1][at]
    )
    other = ask(session, "run", run={**run, "image": url(255 - picture, "JPEG")})[1]
    assert not torch.equal(other["output.logits"], tensors["output.logits"])


HUGE = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (60_000).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0" + b"\0" * 4


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (None, "image: expected a PNG or JPEG, or example:0, got none"),
        ("example:1", "image: expected an example below 1, got 1"),
        ("/etc/passwd", "image: expected data:image/png;base64"),
        ("file:///etc/passwd", "image: expected data:image/png;base64"),
        ("data:image/png;base64,%%%", "image: expected base64"),
        ("data:image/png;base64,", "^image: expected a PNG, JPEG or WebP image, got something else"),
        ("data:image/jpeg;base64,QUJD", "^image: expected a PNG, JPEG or WebP image, got something else"),
        (url(np.zeros((9, 9, 3), np.uint8))[:-40], "^image: expected "),
        ("data:image/png;base64," + base64.b64encode(HUGE).decode(), "^image: expected "),
    ],
)
def test_what_is_no_image_is_refused(image: str | None, message: str):
    with pytest.raises(UserError, match=message):
        picture_of(image, [np.zeros((2, 2, 3), np.uint8)])


def test_a_model_that_reads_images_reads_no_file_that_a_text_names():
    session = session_of("vision")
    for what, more in (("run", {}), ("generate", {"settings": {"max_new_tokens": 1}})):
        with pytest.raises(UserError, match=r"got none|expected a model that writes"):
            ask(session, what, run={"text": "/etc/passwd", "target": None, "edits": []}, **more)
