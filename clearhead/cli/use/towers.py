"""`clearhead classify` and `embed` of a model of two towers, such as CLIP: labels of pictures, vectors of both."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from clearhead.api.predicting import Row, ZeroShot
from clearhead.api.towers import TwoTowerModel
from clearhead.data.image_sets import SUFFIXES
from clearhead.errors import UserError
from clearhead.tasks.task import NOTHING, Prediction


def said_by_towers(towers: TwoTowerModel, rows: Sequence[Row], asked: ZeroShot | None) -> Iterator[Prediction]:
    """The labels of each picture, or without labels the unit vector of each text or picture."""
    inputs = [row for row in rows if isinstance(row, str)]
    if len(inputs) < len(rows):
        raise UserError("input: expected one picture or text, got two; leave out --text-pair")
    if asked is not None:
        yield from towers.predictions(inputs, asked)
        return
    for one in inputs:
        if not one.strip():
            yield NOTHING
            continue
        vector: list[float] = towers.embed([Path(one) if is_picture(one) else one])[0].tolist()
        yield Prediction(" ".join(f"{number:.6g}" for number in vector), {"vector": [*vector]})


def is_picture(text: str) -> bool:
    """Whether a text is the path of a picture."""
    return Path(text).suffix.lower() in SUFFIXES and Path(text).is_file()
