"""Images that a page asks for: one of the examples by its number, or one that it sends as a data URL."""

import base64
import binascii
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.errors import UserError

if TYPE_CHECKING:
    from clearhead.data.images import Picture

URL = re.compile(r"data:image/(?:png|jpeg);base64,", re.ASCII)


def of(image: str | None, examples: "Sequence[Picture]") -> "Picture":
    """The picture that `image` names. Raises UserError if it names none."""
    if image is None:
        raise UserError("image: expected a PNG or JPEG, or example:0, got none; this model reads images")
    if (number := re.fullmatch(r"example:([0-9]{1,9})", image)) is not None:
        if int(number[1]) >= len(examples):
            raise UserError(f"image: expected an example below {len(examples)}, got {number[1]}; send an image")
        return examples[int(number[1])]
    if (start := URL.match(image)) is None:
        raise UserError("image: expected data:image/png;base64,… or data:image/jpeg;base64,…, got another; try a PNG")
    return _decoded(image[start.end() :])


def _decoded(text: str) -> "Picture":
    from PIL import Image

    from clearhead.data.images import load

    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UserError("image: expected base64, got something else; send it again") from None
    with tempfile.TemporaryDirectory() as folder:
        # `load` checks a file and turns it upright.
        path = Path(folder) / "image"
        path.write_bytes(content)
        try:
            found = load(path, n_channels=3, on_white=False, where="image")
        except UserError as error:
            raise UserError(str(error).replace(str(path), "image")) from None
    assert isinstance(found, Image.Image)
    return found
