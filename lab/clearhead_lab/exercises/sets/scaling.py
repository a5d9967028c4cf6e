"""Why scores are divided by the square root of d_k."""

import math
from random import Random
from typing import Any

from clearhead_lab.exercises.exercise import Allowed, Exercise, ExerciseSet, Option, Way, Wrong
from clearhead_lab.exercises.networks import ANIMALS, wide_head
from clearhead_lab.exercises.writing import *

AT = "encoder.blocks.0.attn"
SHOWN = "the lion kills deer big old"
SCORES, WEIGHTS = f"{AT}.scores", f"{AT}.weights"
D_K = ["count", value(f"{AT}.q[h=0,t=0]")]
SHARP = ["mean", ["maxes", value(WEIGHTS)]]


def scaling() -> ExerciseSet:
    """Exercises on variance and saturation."""
    models = {"wide": wide_head(), "unscaled": wide_head(scaled=False)}
    return ExerciseSet(
        "scaling",
        "Why scores are scaled",
        models,
        [_four_times(), _saturate(), _repair(), _factor(), _variance(), _leaves(), _slope()],
    )


def _inputs(seed: int) -> dict[str, str]:
    return {"shown": SHOWN, **texts(ANIMALS, 4, 6, seed)}


def _four_times() -> Exercise:
    ratio = ["/", value(f"{WEIGHTS}[h=0,t=2,s=1]"), value(f"{WEIGHTS}[h=0,t=2,s=0]")]
    shares = ["=", ["sums", value(WEIGHTS)], 1, 1e-3]
    low, high = f"{SCORES}[h=0,t=2,s=0]", f"{SCORES}[h=0,t=2,s=1]"

    def apart(gap: float) -> Way:
        def way(random: Random) -> dict[str, Any]:
            x = random.uniform(-2, 2)
            return shuffled(random, [edit(low, "set", x), edit(high, "set", x + gap)])

        return way

    def times(random: Random) -> dict[str, Any]:
        x = random.uniform(1.5, 2.4)
        return shuffled(random, [edit(low, "set", x), edit(high, "set", 4 * x)])

    def cells(random: Random) -> dict[str, Any]:
        at = f"{WEIGHTS}[h=0,t=2"
        return shuffled(random, [edit(f"{at},s=0]", "set", 0.1), edit(f"{at},s=1]", "set", 0.4)])

    return Exercise(
        "four-times", "Four times the share",
        "In the row of the third word (t = 2), make the weight of s = 1 four times that of s = 0, in every sentence. Weights must still "
        "add up to 1.",
        "wide", _inputs(4), every(["and", ["=", ratio, 4, 0.1], shares]),
        "Two scores that differ by ln 4 = 1.386, whatever they are. Softmax takes exponentials and divides by their sum: differences of "
        "scores become ratios of weights, all positive, and the row adds up to 1.",
        pick(apart(math.log(4)), lambda _: edits(edit(f"{WEIGHTS}[h=0,t=2]", "set", [0.1, 0.4, 0.1, 0.1, 0.2, 0.1]))),
        (
            Wrong("difference", ["=", ratio, math.exp(4), 2], "The scores differ by 4, so the ratio is e⁴ = 54.6. Which difference has the exponential 4?", apart(4.0)),
            Wrong("reversed", ["=", ratio, 0.25, 0.02], "It is the other way round: s = 0 has four times the weight of s = 1.", apart(-math.log(4))),
            Wrong("not-shared", ["not", shares], "The ratio may be right, but the row no longer adds up to 1. Edit scores, and softmax sees to that.", cells),
            Wrong("times", same(value(high), ["*", 4, value(low)], 0.05), "One score is four times the other. Softmax does not see ratios of scores, only differences.", times),
        ),
        (Allowed(SCORES, ("set",)), Allowed(WEIGHTS, ("set",))),
        source="document 003, question 4 on self-attention", view="scale",
    )  # fmt: skip


def _saturate() -> Exercise:
    by_eight = same(value(SCORES), ["*", 8, plain(SCORES)], 0.01)
    return Exercise(
        "saturate", "Take the scale away",
        "A head 64 wide, with queries and keys of variance 1. Give its softmax the scores as they would be without 1/√d_k.",
        "wide", _inputs(1), every(by_eight),
        "Without the scale the scores are √64 = 8 times as large: their variance is 64. Softmax then picks one key and ignores the "
        "rest, and almost no gradient passes.",
        pick(changing(scale=False), lambda _: edits(edit(SCORES, "scale", 8.0)), lambda _: edits(edit(f"{AT}.q", "scale", 8.0))),
        (
            Wrong("flatter", ["<=", ["mean", ["*", value(SCORES), value(SCORES)]], ["*", 0.5, ["mean", ["*", plain(SCORES), plain(SCORES)]]]],
                  "The scores are smaller: you divided once more. Attention is almost even.",
                  pick(lambda _: edits(edit(SCORES, "scale", 0.125)), lambda _: edits(edit(SCORES, "zero")))),
            Wrong("too-much", [">=", ["mean", ["*", value(SCORES), value(SCORES)]], ["*", 100, ["mean", ["*", plain(SCORES), plain(SCORES)]]]],
                  "Too much: the scale is the square root of d_k, not d_k.", lambda _: edits(edit(SCORES, "scale", 64.0))),
            Wrong("not-enough", changed(SCORES), "The scores changed, but not by the factor of the scale. What is the square root of 64?",
                  lambda random: edits(edit(SCORES, "scale", random.uniform(1.5, 6)))),
        ),
        (Allowed(SCORES, ("scale", "zero")), Allowed(f"{AT}.q", ("scale",))), ("scale",),
        source="document 003, question 1 on scaling", view="scale",
    )  # fmt: skip


def _repair() -> Exercise:
    size = ["mean", ["*", value(SCORES), value(SCORES)]]
    alike = [">=", ["cosine", value(SCORES), plain(SCORES)], 0.99]
    return Exercise(
        "repair", "Repair a saturated head",
        "This head, 64 wide, was built without the scale: one key takes nearly everything. Make its scores what they should be.",
        "unscaled", _inputs(2), every(same(value(SCORES), ["/", plain(SCORES), 8], 0.02)),
        "Multiply by 1/√64 = 0.125. It brings the variance of the scores from 64 back to 1, where softmax listens to several keys.",
        pick(lambda _: edits(edit(SCORES, "scale", 0.125)), lambda _: edits(edit(f"{AT}.q", "scale", 0.125)), lambda _: edits(edit(f"{AT}.k", "scale", 0.125))),
        (
            Wrong("by-d_k", ["and", alike, ["<=", size, 0.2]], "Divided by d_k itself, the scores have variance 1/64, and attention is almost even.",
                  pick(lambda _: edits(edit(SCORES, "scale", 1 / 64)), lambda _: edits(edit(SCORES, "scale", 1 / 4096)))),
            Wrong("not-enough", ["and", alike, [">=", size, 3]], "Still too large: softmax is nearly one-hot.",
                  lambda random: edits(edit(SCORES, "scale", random.uniform(0.3, 0.7)))),
            Wrong("turned", ["<=", ["cosine", value(SCORES), plain(SCORES)], -0.99], "Negative: now the head likes what fits least.",
                  lambda _: edits(edit(SCORES, "scale", -0.125))),
            Wrong("even", ["<=", size, 1e-6], "Without any scores attention is even, and queries and keys do not matter.", lambda _: edits(edit(SCORES, "zero"))),
        ),
        (Allowed(SCORES, ("scale", "zero")), Allowed(f"{AT}.q", ("scale",)), Allowed(f"{AT}.k", ("scale",))), view="scale",
    )  # fmt: skip


def _factor() -> Exercise:
    return Exercise(
        "scale-factor", "The factor",
        "By which number does this head, 64 wide, multiply q · k?",
        "wide", {"shown": SHOWN}, answered(["/", 1, ["sqrt", D_K]], by=0.001),
        "0.125 = 1/√64. The variance of q · k grows with d_k, so its standard deviation grows with √d_k: dividing by that keeps scores "
        "of the same size in heads of any width.",
        says(0.125),
        (
            Wrong("by-d_k", answered(["/", 1, D_K], by=0.001), "That is 1/d_k. Scores would shrink as heads grow wider.", says(1 / 64)),
            Wrong("root", answered(["sqrt", D_K], by=0.001), "That is √d_k. Scores are divided by it.", says(8.0)),
            Wrong("half", answered(["/", 1, ["*", 2, ["sqrt", D_K]]], by=0.001), "That is half of it.", says(0.0625)),
        ),
        source="document 001, reflection question 4; document 003, question 4 on scaling", view="scale",
    )  # fmt: skip


def _variance() -> Exercise:
    return Exercise(
        "variance", "How q · k grows",
        "Components of q and k are independent, with mean 0 and variance 1. What is the variance of q · k in a head as wide as this "
        "one?",
        "wide", {"shown": SHOWN}, answered(D_K, by=0.01),
        "64: a sum of d_k products, each of variance 1.",
        says(64.0),
        (
            Wrong("deviation", answered(["sqrt", D_K], by=0.01), "That is the standard deviation.", says(8.0)),
            Wrong("scaled", answered(1, by=0.01), "That is the variance after the scale.", says(1.0)),
            Wrong("squared", answered(["*", D_K, D_K], by=0.01), "Variances of independent numbers add up; they do not multiply.", says(4096.0)),
        ),
        source="document 003, question 2 on scaling", view="scale",
    )  # fmt: skip


def _leaves() -> Exercise:
    shares = ["=", ["sums", value(WEIGHTS)], 1, 1e-3]
    return Exercise(
        "what-scaling-is-for", "What scaling is not for",
        "Which of these edits makes rows of weights that do not add up to 1?",
        "wide", _inputs(3), every(["not", shares]),
        "Only the edit after softmax. Softmax makes shares of any scores, scaled or not: the scale keeps them from saturating, and is not there "
        "to bring weights between 0 and 1. (So answer d of the quiz is right, and c is wrong.)",
        chosen(3),
        (
            Wrong("unscaled", ["and", shares, same(value(SCORES), ["*", 8, plain(SCORES)], 0.01)], "The weights are nearly one-hot, and still add up to 1.", chosen(0)),
            Wrong("huge", ["and", shares, same(value(SCORES), ["*", 100, plain(SCORES)], 0.1)], "One key takes everything: the row is 0, 0, 1, 0.", chosen(1)),
            Wrong("zero", ["and", shares, ["<=", ["abs", value(SCORES)], 1e-6]], "Equal scores give equal shares, which add up to 1.", chosen(2)),
        ),
        options=(Option("leave the scale out", change={"scale": False}), Option("multiply the scores by 100", (edit(SCORES, "scale", 100.0),)),
                 Option("make all scores zero", (edit(SCORES, "zero"),)), Option("double the weights", (edit(WEIGHTS, "scale", 2.0),))),
        source="document 004, quiz on attention, c and d", view="scale",
    )  # fmt: skip


def _slope() -> Exercise:
    p = reading(wide_head(), SHOWN, WEIGHTS)[0]
    weight = value(f"{WEIGHTS}[h=0,t=0,s=0]")
    return Exercise(
        "softmax-slope", "How a weight answers its score",
        f"The first word gives itself the weight {p:.3f}. How fast does this weight grow with its own score (the derivative), to 0.01?",
        "wide", {"shown": SHOWN}, answered(["*", weight, ["-", 1, weight]], by=0.01),
        "p (1 - p). It is largest at 1/2 and vanishes near 0 and 1: so a saturated softmax passes no gradient.",
        says(p * (1 - p), by=0.005),
        (
            Wrong("weight", answered(weight, by=0.01), "That is the weight itself.", says(p, by=0.005)),
            Wrong("rest", answered(["-", 1, weight], by=0.01), "That is what the other keys get.", says(1 - p, by=0.005)),
            Wrong("squared", answered(["*", weight, weight], by=0.005), "That is p². The other keys give it away: p (1 - p).", says(p * p, by=0.002)),
        ),
        source="document 003, question 3 on scaling", view="scale",
    )  # fmt: skip
