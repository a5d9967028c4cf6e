"""What a network of stories answers if the story told it, and if it did not."""

from collections.abc import Iterator

import torch

from clearhead_lab.experiment import Row
from clearhead_lab.language import estimate, next_words, storyteller

COLORS = "red blue green yellow pink white black brown".split()
THINGS = "ball hat car box dress cup kite".split()
STORIES = {
    "told": "Lily had a {color} {thing}.",
    "told with another": "Lily had a {other} {second} and a {color} {thing}.",
    "told of another": "Lily had a {other} {second} and a {thing}.",
    "not told": "Lily had a {thing}.",
}
QUESTION = ' Tom asked, "What color is the {thing}?" Lily said, "The {thing} is'


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Which color is the likeliest, and the probability of any color; an interval over the things."""
    model, n = storyteller(), 4 if quick else len(THINGS)
    for name, story in STORIES.items():
        right: list[float] = []
        named: list[float] = []
        for i, thing in enumerate(THINGS[:n]):
            texts = [
                (story + QUESTION).format(color=color, thing=thing, other=COLORS[k - 3], second=THINGS[i - 1])
                for k, color in enumerate(COLORS)
            ]
            said = next_words(model, texts, COLORS)
            right.append((said.argmax(1) == torch.arange(len(COLORS))).double().mean().item())
            named.append(said.exp().sum(1).mean().item())
        yield Row({"story": name}, estimate(right) | {f"any color, {k}": v for k, v in estimate(named).items()})
