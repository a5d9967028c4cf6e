"""`clearhead steer`: directions from two sets of texts, and models that write with them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clearhead.analysis.steering import Direction
from clearhead.api import Model
from clearhead.api.steering import load_direction
from clearhead.errors import UserError
from clearhead.trace import edited


def named_directions(files: Sequence[str]) -> dict[str, Direction]:
    """The directions of `FILE` or `NAME=FILE`, by name. The default name is the file's, without its ending."""
    found: dict[str, Direction] = {}
    for given in files:
        name, equals, path = given.partition("=")
        name, path = (name, path) if equals else (Path(given).stem, given)
        if name in found:
            raise UserError(f"--edit {given}: expected another name than {name}, which is there; write NAME={path}")
        found[name] = load_direction(path)
    return found


@contextmanager
def steered(model: Model, file: Path | None, strength: float) -> Iterator[None]:
    """The model writes with a direction while the block runs; without a file as ever."""
    if file is None:
        yield
        return
    with edited(model.network, load_direction(file).edit(strength)):
        yield
