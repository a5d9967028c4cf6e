"""Positions: how a model knows which word stands where."""

import math
from random import Random
from typing import Any

from clearhead.config.positions import FIXED_BIAS
from clearhead_lab.exercises.exercise import Allowed, Exercise, ExerciseSet, Option, Way, Wrong
from clearhead_lab.exercises.language import Term
from clearhead_lab.exercises.networks import ANIMALS, drawn_encoder, waves
from clearhead_lab.exercises.sets.encodings import AT, PE, SHOWN, added, encodings, learned
from clearhead_lab.exercises.writing import *

LOGITS = "head.logits"


def positions() -> ExerciseSet:
    """Exercises on order and on position encodings."""
    models = {"blind": drawn_encoder(), "sighted": drawn_encoder(sinusoidal=True), "waves": waves()}
    made = [
        _break(),
        _blind_again(),
        _what_stays(),
        _sine(),
        _frequency(),
        _length(),
        _distance(),
        _sine_and_cosine(),
        _move(),
    ]
    return ExerciseSet(
        "positions", "Order, and how positions are told", models, [*made, learned(), added(), encodings()]
    )


def _inputs(seed: int) -> dict[str, str]:
    """Sentences of five words, each with two words swapped, reversed, and with another word."""
    own = {"shown": SHOWN, **texts(ANIMALS, 4, 5, seed)}
    both = beside(own, "swapped", swapped(1, 4)) | beside(own, "reversed", lambda row: row[::-1])
    return both | beside(own, "other", replaced(1, ANIMALS))


BLIND = same(value(LOGITS), value(LOGITS, ".swapped"), 1e-3)


def _break() -> Exercise:
    sees = differs(value(LOGITS), value(LOGITS, ".swapped"), 2e-3)
    mirror = same(value(LOGITS), value(LOGITS, ".reversed"), 1e-3)
    return Exercise(
        "break-order-blindness", "Break order blindness",
        "For this classifier \"the lion kills a deer\" and \"the deer kills a lion\" are the same: it reads both ways, has no "
        "positions and pools by the mean. Make it tell sentences from their swapped and from their reversed form.",
        "blind", _inputs(1), ["and", every(sees), every(["not", mirror])],
        "Sinusoidal or rotary positions. Attention without positions sees a set of words: if words change places, its outputs "
        "change places with them, and the mean stays.",
        pick(changing(positions="sinusoidal"), changing(positions="rotary")),
        (
            Wrong("mirror", ["and", sees, mirror],
                  f"Swapped words are told apart, but a sentence read backwards is not: {FIXED_BIAS.label} knows how far, not which way.",
                  changing(positions=FIXED_BIAS.kind)),
            Wrong("even", ["<=", ["abs", value(f"{AT}.scores")], 0], "All scores are equal now: the average of words has no order either.",
                  lambda _: edits(edit(f"{AT}.scores", "zero"))),
            Wrong("fewer-heads", ["and", BLIND, changed(f"{AT}.z")], "Fewer heads are still blind: no value depends on a place.",
                  lambda random: edits(edit(f"{AT}.z[h={random.randint(0, 1)}]", "zero"))),
            Wrong("louder", ["and", BLIND, changed("encoder.embed.sum")],
                  "Every word is louder, wherever it stands. Nothing depends on its place.",
                  lambda random: edits(edit("encoder.embed.sum", "scale", random.uniform(1.5, 5)))),
        ),
        (Allowed(f"{AT}.z", ("zero",)), Allowed("encoder.embed.sum", ("scale",)), Allowed(f"{AT}.scores", ("zero",))), ("positions",),
        source="document 000, 15.1; document 003, practice question 1 (positions)",
    )  # fmt: skip


def _blind_again() -> Exercise:
    reads = differs(value(LOGITS), value(LOGITS, ".other"), 2e-3)
    return Exercise(
        "blind-again", "Make it order-blind",
        "This classifier has sinusoidal positions. Make it blind to order, but not to the words themselves.",
        "sighted", _inputs(2), ["and", every(BLIND), every(reads)],
        "Without positions, or with the positions' vectors set to zero, it reads a set of words. The words must stay.",
        pick(changing(positions="none"), lambda _: edits(edit(PE, "zero")), lambda _: edits(edit(PE, "mean")),
             lambda _: edits(edit(PE, "scale", 0.0))),
        (
            Wrong("words", [">=", 1e-6, ["max", ["abs", value("encoder.embed.tokens")]]],
                  "The words are gone and the positions are left: the reverse of what is asked.",
                  lambda _: edits(edit("encoder.embed.tokens", "zero"))),
            Wrong("deaf", ["and", BLIND, ["not", reads]], "It is blind to the words as well: you took away too much.",
                  pick(lambda _: edits(edit("encoder.embed.sum", "zero")), lambda _: edits(edit("encoder.embed.sum", "scale", 0.0)))),
            Wrong("other-encoding", ["and", ["not", BLIND], ["or", changed(f"{AT}.q"), changed(f"{AT}.scores")], unchanged("encoder.embed.tokens"),
                                     ["<=", ["abs", ["-", value("encoder.embed.sum"), value("encoder.embed.tokens")]], 1e-6]],
                  "Nothing is added to the words now, but order comes in by the scores: that is another position encoding.",
                  pick(changing(positions="rotary"), changing(positions=FIXED_BIAS.kind))),
            Wrong("one-place", ["and", ["not", BLIND], changed(PE)],
                  "Positions are weaker, or gone at one place only; order still shows.",
                  pick(lambda random: edits(edit(f"{PE}[t={random.randint(0, 4)}]", "zero")),
                       lambda random: edits(edit(PE, "scale", random.uniform(0.3, 0.7))))),
        ),
        (Allowed(PE, ("zero", "mean", "scale")), Allowed("encoder.embed.sum", ("zero", "scale")), Allowed("encoder.embed.tokens", ("zero",))),
        ("positions",),
    )  # fmt: skip


def _what_stays() -> Exercise:
    moved = differs(value("@"), value("@", ".swapped"), 1e-3)
    return Exercise(
        "equivariant", "Equivariant, not invariant",
        "No positions. The words at t = 1 and t = 4 swap places. Which of these values changes?",
        "blind", _inputs(3), every(moved),
        "The state at t = 1: another word stands there now, and it takes its state along. Attention alone is equivariant: "
        "outputs are permuted as the inputs are. Only what pools over positions is invariant.",
        chosen(1),
        (
            Wrong("pooled", ["and", ["not", moved], option_is(0)], "The classifier pools by the mean, and the mean of the same states stays.", chosen(0)),
            Wrong("bystander", ["and", ["not", moved], option_is(2)],
                  "The word at t = 2 reads the same set of words as before, so its state stays.", chosen(2)),
            Wrong("embedding", ["and", ["not", moved], option_is(3)], "The word at t = 0 is the same word; its embedding reads nothing else.", chosen(3)),
        ),
        options=(Option("the logits of the sentence", at=LOGITS), Option("the state at t = 1", at="encoder.blocks.0.resid_post[t=1]"),
                 Option("the state at t = 2", at="encoder.blocks.0.resid_post[t=2]"), Option("the embedding at t = 0", at="encoder.embed.sum[t=0]")),
        source="document 000, 15.1; document 003, practice question 1 (positions)", view="residual",
    )  # fmt: skip


def _sine() -> Exercise:
    return Exercise(
        "sine", "The first wave",
        "Vectors here are 8 wide. Which number do sinusoidal positions put into component 0 at position 3? Give three digits.",
        "waves", {"shown": SHOWN}, answered(value(f"{PE}[t=3,d=0]"), by=0.003),
        "sin(3) = 0.141. Component 0 is a sine with frequency 1, in radians.",
        says(math.sin(3), by=0.002),
        (
            Wrong("cosine", answered(value(f"{PE}[t=3,d=1]"), by=0.003), "That is the cosine: component 1.", says(math.cos(3), by=0.002)),
            Wrong("degrees", answered(math.sin(math.radians(3)), by=0.003), "That is the sine of 3 degrees. The angle is in radians.",
                  says(math.sin(math.radians(3)), by=0.002)),
            Wrong("next-position", answered(value(f"{PE}[t=4,d=0]"), by=0.003), "That is position 4. Positions count from 0.",
                  says(math.sin(4), by=0.002)),
        ),
        view="position",
    )  # fmt: skip


def _frequency() -> Exercise:
    return Exercise(
        "frequency", "Slower waves",
        "And component 2 at position 3, in vectors 8 wide? Its frequency is 1 / 10000^(2/8). Give three digits.",
        "waves", {"shown": SHOWN}, answered(value(f"{PE}[t=3,d=2]"), by=0.003),
        "sin(3 / 10) = 0.296. The exponent is 2i/d, where i counts pairs: components 2 and 3 are pair 1. The denominator "
        "spreads the wavelengths, so that some components tell neighbours apart and others far places.",
        says(math.sin(0.3), by=0.002),
        (
            Wrong("dimension-as-pair", answered(math.sin(0.03), by=0.003),
                  "You took the component, 2, for the number of the pair: that is 10000^(4/8) = 100.", says(math.sin(0.03), by=0.002)),
            Wrong("first-wave", answered(value(f"{PE}[t=3,d=0]"), by=0.003), "That is component 0, whose frequency is 1.", says(math.sin(3), by=0.002)),
            Wrong("cosine", answered(value(f"{PE}[t=3,d=3]"), by=0.003), "That is component 3, the cosine of the same pair.",
                  says(math.cos(0.3), by=0.002)),
        ),
        source="document 003, practice question 4 (positions); document 004, position encodings", view="position",
    )  # fmt: skip


def _length() -> Exercise:
    return Exercise(
        "same-length", "As long everywhere",
        "How long is the position vector at position 4, when vectors are 8 wide?",
        "waves", {"shown": SHOWN}, answered(["at", ["lengths", value(PE)], 4], by=0.02),
        "2 = √(8/2), as at every position: each pair adds sin² + cos² = 1. So positions move all words by the same distance.",
        says(2.0),
        (
            Wrong("all-ones", answered(["sqrt", 8], by=0.02), "That is √8: so long it would be if all 8 numbers were 1. A sine and its cosine share a 1.",
                  says(math.sqrt(8), by=0.01)),
            Wrong("squared", answered(["sum", ["*", value(f"{PE}[t=4]"), value(f"{PE}[t=4]")]], by=0.02), "That is the square of the length.", says(4.0)),
            Wrong("unit", answered(1, by=0.02), "One pair is 1 long. There are four pairs.", says(1.0)),
        ),
        view="position",
    )  # fmt: skip


def _distance() -> Exercise:
    def product(p: int, q: int) -> Term:
        return ["sum", ["*", value(f"{PE}[t={p}]"), value(f"{PE}[t={q}]")]]

    def number(p: int, q: int) -> float:
        return sum(math.cos((q - p) / 10**i) for i in range(4))

    return Exercise(
        "distance", "Only the distance counts",
        "The position vectors of 0 and 2 have the dot product 2.564 (vectors 8 wide). What is the dot product of those of 1 and 3?",
        "waves", {"shown": SHOWN}, answered(product(1, 3), by=0.01),
        "2.564 again. sin p sin q + cos p cos q = cos(q - p): the product depends on the distance alone, so a head can learn "
        "\"two back\" once for all places.",
        says(number(1, 3), by=0.005),
        (
            Wrong("nearer", answered(product(0, 1), by=0.01), "That is the product at distance 1. From 1 to 3 it is 2.", says(number(0, 1), by=0.005)),
            Wrong("further", answered(product(0, 3), by=0.01), "That is the product at distance 3. From 1 to 3 it is 2.", says(number(0, 3), by=0.005)),
            Wrong("itself", answered(product(0, 0), by=0.01), "That is the product of a vector with itself.", says(4.0, by=0.005)),
        ),
        view="position",
    )  # fmt: skip


def _sine_and_cosine() -> Exercise:
    gap = ["abs", ["-", value(f"{PE}[t=1,@]"), value(f"{PE}[t=2,@]")]]
    return Exercise(
        "sine-and-cosine", "Why both sine and cosine",
        "Which component tells positions 1 and 2 apart best?",
        "waves", {"shown": SHOWN}, [">=", gap, 0.9],
        "Component 1, the cosine of the fastest pair: 0.540 against -0.416. The sine is almost the same at 1 and 2, on both "
        "sides of its top. Sine and cosine together are a hand of a clock: they show each angle once.",
        chosen(1),
        (
            Wrong("sine", ["and", [">=", gap, 0.05], ["<=", gap, 0.08]],
                  "The sine is 0.841 at 1 and 0.909 at 2: the top of the wave lies between them.", chosen(0)),
            Wrong("slow-sine", ["and", [">=", gap, 0.09], ["<=", gap, 0.11]], "That wave is ten times slower: neighbours differ by 0.1.", chosen(2)),
            Wrong("slowest", ["<=", gap, 1e-3], "That wave is a thousand times slower. It tells far places apart, not neighbours.", chosen(3)),
        ),
        options=tuple(Option(f"component {d}", at=f"d={d}") for d in (0, 1, 2, 7)),
        source="document 003, practice question 2 (positions)", view="position",
    )  # fmt: skip


def _move() -> Exercise:
    model = waves()
    table = [reading(model, SHOWN, PE)[8 * t : 8 * (t + 1)] for t in range(5)]
    here, there = value(f"{PE}[t=4]"), plain(f"{PE}[t=1]")

    def rounded(t: int, at: int, digits: int) -> Way:
        return lambda random: edits(
            edit(f"{PE}[t={at}]", "set", [round(x + random.uniform(-0.002, 0.002), digits) for x in table[t]])
        )

    def single(random: Random) -> dict[str, Any]:
        return shuffled(
            random, [edit(f"{PE}[t=4,d={d}]", "set", round(x, random.randint(3, 5))) for d, x in enumerate(table[1])]
        )

    return Exercise(
        "move-a-word", "Move a word without moving it",
        "Make the model believe that the last word (t = 4) stands at position 1: give it that position's vector, to 0.01.",
        "waves", {"shown": SHOWN, **texts(ANIMALS, 3, 5, 4)},
        every(["and", same(here, there, 0.01), unchanged(f"{PE}[t=1]"), unchanged("encoder.embed.tokens")]),
        "A position is only what is added to a word's vector. Its queries and keys are made from the sum, so scores now treat "
        "the word as the second one.",
        pick(rounded(1, 4, 3), single),
        (
            Wrong("other-way", ["and", same(value(f"{PE}[t=1]"), plain(f"{PE}[t=4]"), 0.02), unchanged(f"{PE}[t=4]")],
                  "You moved the second word to the end. Edit t = 4.", rounded(4, 1, 3)),
            Wrong("no-place", ["<=", ["abs", here], 1e-6], "The last word has no position at all now.", lambda _: edits(edit(f"{PE}[t=4]", "zero"))),
            Wrong("neighbour", same(here, plain(f"{PE}[t=2]"), 0.02), "That is the vector of position 2. Positions count from 0.", rounded(2, 4, 3)),
            Wrong("rough", same(here, there, 0.2), "Nearly: some components are off by more than 0.01.",
                  lambda random: edits(edit(f"{PE}[t=4]", "set", [x + random.choice([-1, 1]) * random.uniform(0.03, 0.15) for x in table[1]]))),
        ),
        (Allowed(PE, ("set", "zero")),),
        source="document 003, practice question 8 (positions)", view="position",
    )  # fmt: skip
