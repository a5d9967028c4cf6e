"""LayerNorm and what it does to a vector; BatchNorm for comparison."""

import math

from clearhead_lab.exercises.exercise import Allowed, Exercise, ExerciseSet, Option, Wrong
from clearhead_lab.exercises.language import Term
from clearhead_lab.exercises.networks import ANIMALS, normed
from clearhead_lab.exercises.writing import *

SHOWN = "the lion kills a deer"
SUM, NORM = "encoder.embed.sum", "encoder.blocks.0.attn_norm"


def norms() -> ExerciseSet:
    """Exercises on normalisation."""
    made = [_mean(), _deviation(), _normalised(), _batch_norm(), _padding(), _unnoticed(), _alone(), _bounded()]
    return ExerciseSet("norms", "What a norm does", {"normed": normed()}, made)


def _row() -> list[float]:
    """The vector of the second word."""
    return reading(normed(), SHOWN, SUM)[6:12]


def _column(d: int) -> list[float]:
    """One component of all words."""
    return reading(normed(), SHOWN, SUM)[d::6]


def _listed(numbers: list[float]) -> str:
    return ", ".join(f"{x:g}" for x in numbers)


def _deviation_of(x: Term, n: Term) -> Term:
    """The standard deviation of numbers, their squares divided by n."""
    centred = ["-", x, ["mean", x]]
    return ["sqrt", ["/", ["sum", ["*", centred, centred]], n]]


def _spread(numbers: list[float], less: int = 0) -> float:
    mean = sum(numbers) / len(numbers)
    return math.sqrt(sum((x - mean) ** 2 for x in numbers) / (len(numbers) - less))


def _mean() -> Exercise:
    row, column = _row(), _column(0)
    return Exercise(
        "norm-mean", "The mean of what?",
        f"The second word has the vector ({_listed(row)}). Which mean does LayerNorm take off it?",
        "normed", {"shown": SHOWN}, answered(value(f"{NORM}.mean[t=1,d=0]"), by=0.01),
        "The mean of the word's own six components. No other word and no other sentence takes part.",
        says(sum(row) / 6, by=0.005),
        (
            Wrong("column", answered(["mean", value(f"{SUM}[d=0]")], by=0.01),
                  "That is the mean of component 0 over the words: BatchNorm goes down the column, LayerNorm along the row.", says(sum(column) / 5, by=0.005)),
            Wrong("sum", answered(["sum", value(f"{SUM}[t=1]")], by=0.01), "That is the sum. Divide it by 6.", says(sum(row))),
            Wrong("middle", answered(["/", ["+", ["max", value(f"{SUM}[t=1]")], ["min", value(f"{SUM}[t=1]")]], 2], by=0.01),
                  "That is the middle between the largest and the smallest.", says((max(row) + min(row)) / 2)),
        ),
        source="document 003, practice question 6 (norms)", view="norm",
    )  # fmt: skip


def _deviation() -> Exercise:
    row, x = _row(), value(f"{SUM}[t=1]")
    return Exercise(
        "norm-deviation", "Divided by 6 or by 5",
        f"And which standard deviation does it divide ({_listed(row)}) by? Three digits.",
        "normed", {"shown": SHOWN}, answered(["/", 1, value(f"{NORM}.rstd[t=1,d=0]")], by=0.004),
        "The squares are divided by 6, the number of components: this is no sample of something larger. (Beware of `.std()` in "
        "PyTorch, which divides by one less.)",
        says(_spread(row), by=0.003),
        (
            Wrong("sample", answered(_deviation_of(x, 5), by=0.01), "You divided the squares by 5, as for a sample.", says(_spread(row, 1), by=0.005)),
            Wrong("variance", answered(["*", _deviation_of(x, 6), _deviation_of(x, 6)], by=0.01), "That is the variance. Take its root.",
                  says(_spread(row) ** 2, by=0.005)),
            Wrong("column", answered(_deviation_of(value(f"{SUM}[d=0]"), 5), by=0.01), "That is the deviation of component 0 over the words.",
                  says(_spread(_column(0)), by=0.005)),
        ),
        view="norm",
    )  # fmt: skip


def _normalised() -> Exercise:
    row, column = _row(), _column(2)
    x, mean = row[2], sum(row) / 6
    return Exercise(
        "layer-norm", "One number after LayerNorm",
        f"What becomes of component 2 (it is {x:g}) of ({_listed(row)})? Gain 1, bias 0; three digits.",
        "normed", {"shown": SHOWN}, answered(value(f"{NORM}.out[t=1,d=2]"), by=0.006),
        "(x - mean) / deviation, both of the word itself. It would be the same beside any other words.",
        says((x - mean) / _spread(row), by=0.004),
        (
            Wrong("batch-norm", answered(["/", ["-", value(f"{SUM}[t=1,d=2]"), ["mean", value(f"{SUM}[d=2]")]], _deviation_of(value(f"{SUM}[d=2]"), 5)], by=0.006),
                  "That is BatchNorm: the mean and deviation of component 2 over the words.", says((x - sum(column) / 5) / _spread(column), by=0.004)),
            Wrong("not-divided", answered(["-", value(f"{SUM}[t=1,d=2]"), value(f"{NORM}.mean[t=1,d=0]")], by=0.006),
                  "You took the mean off. Divide by the deviation too.", says(x - mean, by=0.004)),
            Wrong("sample", answered(["/", ["-", value(f"{SUM}[t=1,d=2]"), value(f"{NORM}.mean[t=1,d=0]")], _deviation_of(value(f"{SUM}[t=1]"), 5)], by=0.006),
                  "You divided by the deviation of a sample, with 5 instead of 6.", says((x - mean) / _spread(row, 1), by=0.004)),
        ),
        source="document 003, practice question 5 (norms)", view="norm",
    )  # fmt: skip


def _batch_norm() -> Exercise:
    row = _row()
    d = max(range(6), key=lambda d: abs(row[d] - sum(_column(d)) / 5))
    column = _column(d)
    x, mean = column[1], sum(column) / 5
    cells, cell = value(f"{SUM}[d={d}]"), value(f"{SUM}[t=1,d={d}]")
    return Exercise(
        "batch-norm", "The same number after BatchNorm",
        f"Take the five words as a batch. Component {d} of them is {_listed(column)}. What would BatchNorm make of the second, {x:g}? "
        "Gain 1, bias 0; three digits.",
        "normed", {"shown": SHOWN}, answered(["/", ["-", cell, ["mean", cells]], _deviation_of(cells, 5)], by=0.006),
        "BatchNorm takes mean and deviation of one component over the batch. So a word's numbers would depend on the words beside it.",
        says((x - mean) / _spread(column), by=0.004),
        (
            Wrong("layer-norm", answered(value(f"{NORM}.out[t=1,d={d}]"), by=0.006), "That is LayerNorm: along the word's own vector.",
                  says((x - sum(row) / 6) / _spread(row), by=0.004)),
            Wrong("not-divided", answered(["-", cell, ["mean", cells]], by=0.006), "You took the mean off. Divide by the deviation too.", says(x - mean, by=0.004)),
            Wrong("sample", answered(["/", ["-", cell, ["mean", cells]], _deviation_of(cells, 4)], by=0.006), "You divided by the deviation of a sample, with 4 instead of 5.",
                  says((x - mean) / _spread(column, 1), by=0.004)),
        ),
        source="document 003, practice question 3 (norms)", view="norm",
    )  # fmt: skip


def _padding() -> Exercise:
    column = _column(0)[:3]
    cells = ["keep", value(f"{SUM}[d=0]"), 3]
    return Exercise(
        "padded-mean", "What padding does to a batch",
        f"Component 0 of three words is {_listed(column)}. The batch is padded with two zeros. Which mean would BatchNorm compute?",
        "normed", {"shown": SHOWN}, answered(["/", ["sum", cells], 5], by=0.005),
        "The sum divided by 5: not the mean of the data. Padding pulls the mean towards zero and distorts the deviation, more or less "
        "with each batch. LayerNorm never sees another position.",
        says(sum(column) / 5, by=0.003),
        (
            Wrong("true-mean", answered(["mean", cells], by=0.005), "That is the mean of the data. BatchNorm counts the zeros too.", says(sum(column) / 3, by=0.003)),
            Wrong("sum", answered(["sum", cells], by=0.005), "That is the sum.", says(sum(column))),
            Wrong("zeros-only", answered(0, by=0.005), "The words are in the batch as well.", says(0.0)),
        ),
        source="document 003, practice question 4 (norms) and practice question 7 (norms)", view="norm",
    )  # fmt: skip


def _unnoticed() -> Exercise:
    at = f"{SUM}[t=2]"
    quiet = same(value(f"{NORM}.out"), plain(f"{NORM}.out"), 0.01)
    return Exercise(
        "unnoticed", "A change that the norm hides",
        "Change the vector of the third word (t = 2) by at least 0.5 somewhere, so that no output of the norm before attention changes.",
        "normed", {"shown": SHOWN, **texts(ANIMALS, 4, 5, 1)}, every(["and", changed(at, 0.5), quiet]),
        "Make it longer: LayerNorm divides by the deviation, so a positive factor disappears. So a layer behind a norm reads "
        "the same from a vector that has grown.",
        lambda random: edits(edit(at, "scale", random.uniform(1.6, 6))),
        (
            Wrong("turned", ["<=", ["cosine", value(f"{NORM}.out[t=2]"), plain(f"{NORM}.out[t=2]")], -0.99],
                  "A negative factor turns the vector round, and the norm keeps its direction.", lambda random: edits(edit(at, "scale", -random.uniform(0.5, 4)))),
            Wrong("zero", ["<=", ["abs", value(f"{NORM}.out[t=2]")], 1e-3], "A vector of equal numbers becomes zeros: the norm has nothing left to scale.",
                  pick(lambda _: edits(edit(at, "zero")), lambda random: edits(edit(at, "set", random.uniform(11, 20))))),
            Wrong("one-component", ["and", changed(at), ["not", quiet]], "You changed the direction. The norm hides length, not direction.",
                  lambda random: edits(edit(f"{SUM}[t=2,d={random.randint(0, 5)}]", "set", random.uniform(14, 30)))),
            Wrong("other-word", ["and", unchanged(at), changed(SUM)], "You changed another word.",
                  lambda random: edits(edit(f"{SUM}[t={random.choice([0, 1, 3, 4])}]", "scale", random.uniform(1.6, 5)))),
        ),
        (Allowed(SUM, ("scale", "set", "zero")),), view="norm",
    )  # fmt: skip


def _alone() -> Exercise:
    moved = differs(value("@"), value("@", ".other"))
    inputs = beside({"shown": SHOWN, **texts(ANIMALS, 4, 5, 2)}, "other", replaced(0, ANIMALS))
    return Exercise(
        "on-its-own", "Each word on its own",
        "The first word is replaced. Which of these values of the LayerNorm changes?",
        "normed", inputs, every(moved),
        "Only those of the first word. Statistics of a LayerNorm belong to one vector, so it does not matter what else is in the text or "
        "in the batch, nor how long they are. A BatchNorm in training lets later words change earlier ones.",
        chosen(0),
        (
            Wrong("second", ["and", ["not", moved], option_is(1)], "The second word has its own mean and deviation.", chosen(1)),
            Wrong("mean", ["and", ["not", moved], option_is(2)], "That is the mean of the third word's own components.", chosen(2)),
            Wrong("last", ["and", ["not", moved], option_is(3)], "Before attention no word has read another one.", chosen(3)),
        ),
        options=(Option("the output for the first word", at=f"{NORM}.out[t=0]"), Option("the output for the second word", at=f"{NORM}.out[t=1]"),
                 Option("the mean of the third word", at=f"{NORM}.mean[t=2]"), Option("the deviation of the last word", at=f"{NORM}.rstd[t=4]")),
        source="document 003, practice question 5 (norms)", view="norm",
    )  # fmt: skip


def _bounded() -> Exercise:
    louder = (edit(SUM, "scale", 100.0),)
    return Exercise(
        "kept-in-range", "What a norm is good for",
        "All embeddings are multiplied by 100. Which of these values grows 100 times as well?",
        "normed", {"shown": SHOWN, **texts(ANIMALS, 3, 5, 3)}, every(["and", same(value("@"), ["*", 100, plain("@")], 0.5), changed("@", 5)]),
        "Only the stream itself. The norm brings every vector back to the same size, so the scores stay as they were.",
        chosen(1),
        (
            Wrong("output", ["and", same(value("@"), plain("@"), 0.05), option_is(0)], "The norm takes the factor away: its output has variance 1 as before.", chosen(0)),
            Wrong("scores", ["and", same(value("@"), plain("@"), 0.05), option_is(2)], "Scores come from the norm's output, which stays.", chosen(2)),
            Wrong("inverse", same(["*", 100, value("@")], plain("@"), 0.05), "That is 1 / deviation: it becomes a hundredth.", chosen(3)),
        ),
        options=(Option("what the norm puts out", louder, at=f"{NORM}.out"), Option("the stream that the block reads", louder, at="encoder.blocks.0.resid_pre"),
                 Option("the scores of attention", louder, at="encoder.blocks.0.attn.scores"), Option("the norm's factor 1 / deviation", louder, at=f"{NORM}.rstd")),
        source="document 003, practice question 2 (norms)", view="norm",
    )  # fmt: skip
