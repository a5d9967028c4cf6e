"""Was or were after "the dogs near the tree": a network of real text, and the noun between subject and verb."""

from collections.abc import Iterator

from torch import Tensor

from clearhead.api import Model
from clearhead_lab.experiment import Row
from clearhead_lab.language import estimate, next_words, storyteller

SUBJECTS = "dog cat girl boy bird bear rabbit duck flower toy car key".split()
BETWEEN = "near the tree, behind the house, next to the box, with the ball, that saw the cow, that liked the cloud"
KEYS = {one: f"The {one}" for one in ("key to the cabinets", "keys to the cabinet")}


def share_of_were(model: Model, texts: list[str]) -> Tensor:
    """n: the probability of "were" over that of "was" and "were" after each text."""
    return next_words(model, texts, ["was", "were"]).softmax(1)[:, 1]


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The share of beginnings after which the verb of the subject's number is the likelier; an interval over subjects.

    Each subject is singular and plural, so a constant answer has one half.
    """
    model, nouns = storyteller(), [f" {one}" for one in BETWEEN.split(", ")]
    kinds = {"nothing": ("", ""), "a noun of its number": ("", "s"), "a noun of the other number": ("s", "")}
    for kind, ends in kinds.items():
        right: list[float] = []
        for subject in SUBJECTS[: 6 if quick else None]:
            middles = [""] if kind == "nothing" else nouns
            texts = [f"Once upon a time, the {subject}{noun}{noun and end}" for end in ends for noun in middles]
            n = len(middles)
            one, several = (
                share_of_were(model, texts[:n]),
                share_of_were(model, [t.replace(subject, f"{subject}s", 1) for t in texts[n:]]),
            )
            right.append(((one < 0.5).double().mean() + (several > 0.5).double().mean()).item() / 2)
        yield Row({"between": kind}, estimate(right))
    for name, text in KEYS.items():
        yield Row({"between": name}, {"share of were": share_of_were(model, [text])[0].item()})
