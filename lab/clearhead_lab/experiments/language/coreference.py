"""Who was too tired, and what too wide: what a network of stories and the heads of an encoder make of "it"."""

from collections.abc import Iterator

import torch

from clearhead.api import load
from clearhead_lab.datasets import datasets
from clearhead_lab.experiment import Row
from clearhead_lab.language import estimate, looks, next_words, storyteller

TWINS = """
The animal did not cross the street because it was too tired wide
The cat sat on the mat because it was tired soft
The dog could not climb the tree because it was too small tall
The bird sat in the nest because it was tired warm
The bear could not go through the door because it was too fat small
The frog could not jump over the wall because it was too weak high
The fish could not live in the pond because it was too big dirty
The truck could not go on the road because it was too heavy narrow
The dog ate the cake because it was hungry yummy
The cat drank the milk because it was thirsty cold
The mouse ran from the cat because it was scared mean
The rabbit hid in the hole because it was scared dark
The bunny ate the carrot because it was hungry crunchy
The bird flew to the tree because it was tired tall
The cat slept on the bed because it was sleepy soft
The monkey climbed the tree because it was playful tall
The turtle could not climb the hill because it was too slow steep
The puppy chewed the shoe because it was bored old
The horse drank the water because it was thirsty clean
The lion fell in the river because it was clumsy deep
""".strip().splitlines()
"""Each sentence ends by one of two words: the first says it of the subject, the second of the other noun."""


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The share of sentences in which "it" is resolved, by three ways, with an interval over pairs of sentences.

    A noun stands in the place of "it", and the last word is likelier after the right one   (Trinh and Le 2018); the
    same without the sentence before; and the encoder's head that looks from "it" to the right noun, or more to it than
    in the other sentence, in most other pairs.
    """
    ways: dict[str, list[float]] = {"sentence": [], "half of it": []}
    story, encoder = storyteller(), load(datasets()["sentence-encoder"].path(), dtype=torch.float32)
    heads: list[torch.Tensor] = []
    for line in TWINS[: 6 if quick else None]:
        *words, first, second = line.split()
        it = words.index("it")
        nouns = (1, words.index("because") - 1)
        for way, start in (("sentence", " ".join(words[:it]) + " the"), ("half of it", "The")):
            asked = [f"{start} {words[at]} {' '.join(words[it + 1 :])}" for at in nouns]
            said = next_words(story, asked, [first, second])
            ways[way].append(((said[0, 0] > said[1, 0]).item() + (said[1, 1] > said[0, 1]).item()) / 2)
        weights = [looks(encoder, [*words, last, "."]) for last in (first, second)]
        shares = [one(it, nouns[0]) / (one(it, nouns[0]) + one(it, nouns[1])) for one in weights]
        both = ((shares[0] > 0.5).float() + (shares[1] < 0.5).float()) / 2
        heads.append(torch.stack([both, (shares[0] > shares[1]).float()]))
    for way, right in ways.items():
        yield Row({"reads": way}, estimate(right))
    yield Row({"reads": "sentence less half of it"}, estimate([a - b for a, b in zip(*ways.values(), strict=True)]))
    found = torch.stack(heads)
    for k, name in enumerate(("a head of the encoder", "a head of the encoder, turned")):
        others = [torch.cat([found[:i, k], found[i + 1 :, k]]).mean(0).argmax() for i in range(len(found))]
        yield Row({"reads": name}, estimate([found[i, k, one].item() for i, one in enumerate(others)]))
