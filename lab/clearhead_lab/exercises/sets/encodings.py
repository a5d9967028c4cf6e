"""Position encodings: what they cost, where they act."""

import math

from clearhead import config as c
from clearhead.config.positions import FIXED_BIAS
from clearhead_lab.exercises.exercise import Exercise, Option, Wrong
from clearhead_lab.exercises.networks import ANIMALS, waves
from clearhead_lab.exercises.writing import *

AT = "encoder.blocks.0.attn"
PE = "encoder.embed.positions"
SHOWN = "the lion kills a deer"


def learned() -> Exercise:
    """What learned positions cost."""
    width = ["count", value(f"{PE}[t=0]")]
    return Exercise(
        "learned-cost", "What learned positions cost",
        "Sinusoidal positions have no parameters. How many would learned positions have in this model (8 wide), for texts of up "
        "to 512 tokens?",
        "waves", {"shown": SHOWN}, answered(["*", 512, width], by=0.5),
        "4096 = 512 · 8: one vector for each position. And there is none for position 512: learned positions end. Sinusoidal ones "
        "can be computed for any position, though a model that never saw them need not understand them.",
        says(4096.0),
        (
            Wrong("one-each", answered(512, by=0.5), "A position has a whole vector, not one number.", says(512.0)),
            Wrong("one-vector", answered(width, by=0.5), "That is one vector. Each of the 512 positions has its own.", says(8.0)),
            Wrong("pairs", answered(512 * 512, by=0.5), "That is a number for each pair of positions. They are added to words, not to scores.",
                  says(512.0 * 512)),
        ),
        source="document 003, practice question 7 (positions)", view="position",
    )  # fmt: skip


def added() -> Exercise:
    """Positions are added."""
    word, place = "encoder.embed.tokens[t=2,d=1]", f"{PE}[t=2,d=1]"
    x, p = reading(waves(), SHOWN, "encoder.embed.tokens")[17], math.cos(2)
    return Exercise(
        "added", "Added, not joined",
        f"Component 1 of the third word is {x:.3f}, of its position {p:.3f}. What does the first block read there?",
        "waves", {"shown": SHOWN}, answered(value("encoder.embed.sum[t=2,d=1]"), by=0.002),
        "Their sum. The vector stays 8 wide and holds both: the word and its place.",
        says(x + p, by=0.001),
        (
            Wrong("product", answered(["*", value(word), value(place)], by=0.002), "That is the product. Positions are added.", says(x * p, by=0.001)),
            Wrong("mean", answered(["/", value("encoder.embed.sum[t=2,d=1]"), 2], by=0.002), "That is the mean. The sum is not divided.",
                  says((x + p) / 2, by=0.001)),
            Wrong("word-only", answered(value(word), by=0.002), "That is the word without its position.", says(x, by=0.0005)),
        ),
        source="document 003, practice question 5 (positions)", view="position",
    )  # fmt: skip


def encodings() -> Exercise:
    """Where an encoding acts."""
    return Exercise(
        "where-encodings-act", "Three places for a position",
        "Which encoding leaves the embedding, the queries and the keys as they are, and changes only the scores?",
        "blind", {"shown": SHOWN, **texts(ANIMALS, 3, 5, 5)},
        every(["and", unchanged("encoder.embed.sum"), unchanged(f"{AT}.q"), unchanged(f"{AT}.k"), changed(f"{AT}.scores")]),
        f"{FIXED_BIAS.label}: it takes slope times distance off each score. Sinusoidal and learned positions are added to the embedding, "
        f"rotary ones turn queries and keys; a learned relative bias is added to scores, as {FIXED_BIAS.label} is.",
        chosen(2),
        (
            Wrong("embedding", changed("encoder.embed.sum"), "That one is added to the embedding, so queries, keys and values all change.", chosen(0)),
            Wrong("rotation", changed(f"{AT}.q"), "That one turns queries and keys by an angle for each position.", chosen(1)),
            Wrong("values", unchanged(f"{AT}.scores"), "That is no position encoding: scores and weights stay as they are.", chosen(3)),
        ),
        options=(*(Option(one.label, change={"positions": one.kind}) for one in (c.Sinusoidal(), c.Rotary(), FIXED_BIAS)),
                 Option("double the values", edits=(edit(f"{AT}.v", "scale", 2.0),))),
        source="document 003, practice question 6 (positions)",
    )  # fmt: skip
