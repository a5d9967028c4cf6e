"""The chains of the documents, to be walked along in the explorer, and those that no network can show."""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

from clearhead.errors import UserError
from clearhead_lab.walks.chain import Chain

MODULES = ("money", "apple", "game", "river", "geometry")


@dataclass(frozen=True)
class Story:
    """A chain that is no network: what it is about, and what shows it."""

    name: str
    why: str
    experiment: str
    records: str


STORIES = (
    Story(
        "variance",
        "The variance of q·k is about random vectors of many widths, not about one network and one text.",
        "saturation",
        "s0-07 s0-08 s0-10 s0-11a s0-11b s0-11c s3-02 s3-03",
    ),
    Story(
        "batch-norm",
        "Batch norm is no part of a Transformer: it averages one feature over the examples of a batch, and a "
        "walk reads one text.",
        "norm-padding",
        "s0-43a s0-43b s0-44a s0-44b s0-45 s3-24 s3-25 s3-26 s3-27",
    ),
)


def chains() -> dict[str, Chain]:
    """Every chain that is a network, by name."""
    found: list[Chain] = [import_module(f"clearhead_lab.walks.{name}").CHAIN for name in MODULES]
    return {one.name: one for one in found}


def find(name: str) -> Chain | Story:
    """The chain or the story of this name. Raises UserError with the nearest name if there is none."""
    known: dict[str, Chain | Story] = {**chains(), **{story.name: story for story in STORIES}}
    if name not in known:
        nearest = get_close_matches(name, known, n=1, cutoff=0.4)
        remedy = f"try {nearest[0]}" if nearest else "`clearhead lab walk` lists all"
        raise UserError(f"lab walk: expected the name of a chain, got {name!r}; {remedy}")
    return known[name]
