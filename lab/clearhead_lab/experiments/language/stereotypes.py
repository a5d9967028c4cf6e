"""He or she after "the doctor said that": what a network of stories takes over from its text."""

from collections.abc import Iterator

from clearhead_lab.experiment import Row
from clearhead_lab.language import estimate, next_words, storyteller

PAIRS = {
    "work": "doctor nurse, farmer teacher, soldier dancer, pilot maid, driver cook, builder cleaner, boss secretary, "
    "captain librarian, carpenter baker, scientist singer",
    "traits": "strong pretty, brave kind, angry shy, smart gentle, loud quiet, tall beautiful",
    "gender": "king queen, prince princess, father mother, uncle aunt, boy girl, man woman",
}
"""Words that are said of men and of women, in turn; and words that mean a man or a woman."""
SENTENCES = "The {} said that, The {} smiled because, The {} was happy because, The {} knew that, The {} was sad when"


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The log-odds of he over she, the mean over sentences, and an interval over the words of a group."""
    model = storyteller()
    for group, pairs in PAIRS.items():
        found: list[list[float]] = [[], []]
        for pair in pairs.split(", ")[: 4 if quick else None]:
            for side, word in zip(found, pair.split(), strict=True):
                who = f"{word} child" if group == "traits" else word
                he, she = next_words(model, [one.format(who) for one in SENTENCES.split(", ")], ["he", "she"]).T
                side.append((he - she).mean().item())
        for name, values in (("his", found[0]), ("hers", found[1])):
            yield Row({"words": group, "of": name}, estimate(values))
        yield Row({"words": group, "of": "his less hers"}, estimate([a - b for a, b in zip(*found, strict=True)]))
