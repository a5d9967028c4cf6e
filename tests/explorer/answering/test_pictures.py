"""Images come as examples or data URLs, with every check of a file."""

import base64
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import AddedToken

from clearhead import config as c
from clearhead.api import Model
from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize
from clearhead.errors import UserError
from clearhead.explorer.answering.passes import picture_of
from clearhead.explorer.session import Session
from clearhead.model import Transformer
from clearhead.recipe.tokenizers import Words
from clearhead.text.special_tokens import with_special
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.asking import GENERATE, ask, session_of, start
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


def test_a_picture_within_a_text_is_read_and_each_of_its_vectors_can_be_switched_off():
    """The numbers are those of `model.trace`; a patch that is switched off changes the answer, as there."""
    torch.manual_seed(0)
    tower = c.StackConfig(
        input=c.PatchInput(image_size=8, patch_size=4, class_token=False),
        d_model=16, n_layers=1, n_heads=2, d_ff=16, positions=c.RotaryGrid(),
    )  # fmt: skip
    text = c.StackConfig(
        input=c.TokenInput(vocab_size=12), d_model=16, n_layers=2, n_heads=2, d_ff=16, positions=c.Rotary()
    )
    for sees in ("past", "picture", "prompt"):
        config = c.ModelConfig(decoder=text, pictures=c.PictureInput(tower=tower, mark_id=5, sees=sees))
        words = with_special(Tokenizer.train(["\n a b c"], Words()), [AddedToken("<image>", normalized=False)])
        mark = words.library.token_to_id("<image>")
        assert config.pictures is not None
        config = config.model_copy(update={"pictures": config.pictures.model_copy(update={"mark_id": mark})})
        size = PixelSize(height=8, width=8)
        model = Model(Transformer(config).eval(), words, images=ImageProcessor(ImageConfig(size=size)))
        picture = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
        session = Session(model, name="seen", text="a b", image=picture)
        run = start(session)
        reply, tensors = ask(session, "run", run=run)
        seen, logits = model.trace("a b", image=picture)
        n = reply["grid"][0] * reply["grid"][1]
        ids = [token["id"] for token in reply["tokens"]["decoder"]]
        first = ids.index(mark)
        assert ids[first : first + n] == [mark] * n
        assert reply["grid"] == [2, 2]
        assert any("attend to later ones" in note for note in reply["notes"]) == (sees != "past")
        torch.testing.assert_close(tensors["output.values"], logits.topk(12, -1).values)
        at = "decoder.blocks.1.attn.weights[h=1]"
        values = ask(session, "values", run=run, at=[at, "decoder.embed.pixels"])[1]
        torch.testing.assert_close(values[at], seen["decoder.blocks.1.attn.weights"][0, 1])
        assert values["decoder.embed.pixels"].shape == (3, 8, 8)
        where = f"decoder.embed.tokens[t={first + 2}]"
        off = ask(session, "run", run={**run, "edits": [{"at": where, "do": "zero"}]})[1]["output.values"]
        expected = model.trace("a b", image=picture, edit={where: 0.0})[1]
        torch.testing.assert_close(off, expected.topk(12, -1).values)
        assert not torch.allclose(off, tensors["output.values"])
        other = ask(session, "run", run={**run, "image": url(255 - picture)})[1]["output.values"]
        torch.testing.assert_close(other, model.trace("a b", image=255 - picture)[1].topk(12, -1).values)
        assert ask(session, "run", run={**run, "text": "a b c", "image": None})[0].get("grid") is None
        # The likeliest tokens of each step are read again in one pass, which sees the picture, too.
        written = ask(session, "generate", run=run, settings=GENERATE)[0]
        nodes = [written["nodes"][i] for i in written["best"]]
        shares = [dict(step["top"])[node["id"]] for step, node in zip(written["steps"], nodes, strict=True)]
        assert [round(math.log(share), 4) for share in shares] == [round(node["log_prob"], 4) for node in nodes]
