"""Induction: two heads that together continue a repeated text."""

from math import exp
from random import Random

from clearhead_lab.exercises.exercise import Allowed, Exercise, ExerciseSet, Option, Wrong
from clearhead_lab.exercises.networks import COLOURS, induction
from clearhead_lab.exercises.writing import *

LAST = "head.logits[t=5]"
IDS = ["ids", "decoder"]
NEXT = ["at", IDS, 2]
NAMED = word(value(LAST))
GOES_ON = ["=", NAMED, NEXT, 0.5]
FIRST, SECOND = "decoder.blocks.0.attn", "decoder.blocks.1.attn"
HEADS = (f"{FIRST}.weights[h=0,", f"{FIRST}.weights[h=1,", f"{SECOND}.weights[h=0,", f"{SECOND}.weights[h=1,")
SHOWN = "so red green blue gold red"


def repeating() -> ExerciseSet:
    """Exercises on induction heads: `so A B C D A` continues with B."""
    made = [_which_induces(), _which_copies(), _cut(), _last_only(), _other_word(), _probability()]
    return ExerciseSet("repeating", "Going on as before: induction", {"induction": induction()}, made)


def _inputs(seed: int) -> dict[str, str]:
    random, colours = Random(seed), COLOURS.split()[1:]
    found = {"shown": SHOWN}
    for i in range(5):
        a, b, c, d = random.sample(colours, 4)
        found[f"unseen{i}"] = f"so {a} {b} {c} {d} {a}"
    return found


def _options() -> tuple[Option, ...]:
    return tuple(Option(f"block {i // 2}, head {i % 2}", at=at) for i, at in enumerate(HEADS))


def _which_induces() -> Exercise:
    return Exercise(
        "which-induces", "Find the induction head",
        "The text says a word, three others, and the word again. Which head, at the last position, looks at the word that came "
        "after it the first time?",
        "induction", _inputs(1), every([">=", value("@t=5,s=2]"), 0.8]),
        "Block 1, head 0. It looks for a place whose note says \"the word before me was A\", and block 0, head 0 wrote those notes.",
        chosen(2),
        (
            Wrong("before", [">=", value("@t=5,s=4]"), 0.8], "That head looks one token back. It writes the notes that another head looks for.", chosen(0)),
            Wrong("itself", ["and", [">=", value("@t=5,s=5]"), 0.8], option_is(1)], "That head looks at the last word itself.", chosen(1)),
            Wrong("itself-above", [">=", value("@t=5,s=5]"), 0.8], "The right block, but that head looks at the last word itself.", chosen(3)),
        ),
        options=_options(), view="heads",
    )  # fmt: skip


def _which_copies() -> Exercise:
    return Exercise(
        "which-writes-notes", "Find the head that writes notes",
        "Induction needs a head that writes into every position which word came before. Which one?",
        "induction", _inputs(2), every([">=", value("@t=3,s=2]"), 0.9]),
        "Block 0, head 0. It must stand in an earlier block than the head that reads the notes: so induction needs two blocks.",
        chosen(0),
        (
            Wrong("reader", [">=", value("@t=5,s=2]"), 0.8], "That head reads the notes: it jumps to where the word came before.", chosen(2)),
            Wrong("itself", ["and", [">=", value("@t=3,s=3]"), 0.8], option_is(1)], "That head looks at the word itself.", chosen(1)),
            Wrong("itself-above", [">=", value("@t=3,s=3]"), 0.8], "That head looks at the word itself, and in block 1 it would be too late to write notes.", chosen(3)),
        ),
        options=_options(), view="heads",
    )  # fmt: skip


def _cut() -> Exercise:
    notes = f"{FIRST}.z[h=0"
    return Exercise(
        "cut-the-notes", "Break it from below",
        "Make the model fail to go on as before, at the last position, with edits of block 0 only.",
        "induction", _inputs(3), every(["not", GOES_ON]),
        "Silence the head that writes the notes, everywhere or at t = 2, where the note is that counts. The induction head in "
        "block 1 is whole, and finds nothing.",
        pick(lambda _: edits(edit(f"{notes}]", "zero")), lambda _: edits(edit(f"{notes},t=2]", "zero")),
             lambda _: edits(edit(f"{FIRST}.weights[h=0]", "zero")), lambda _: edits(edit(f"{FIRST}.out", "zero"))),
        (
            Wrong("other-head", ["and", unchanged(f"{notes}]"), changed(f"{FIRST}.weights[h=1]")], "Head 1 only looks at the word itself and adds nothing.",
                  lambda _: edits(edit(f"{FIRST}.weights[h=1]", "zero"))),
            Wrong("reader", ["and", unchanged(f"{notes},t=2]"), changed(f"{notes}]")],
                  "You removed a note at another position. The head in block 1 looks for the note at t = 2: \"the word before me was A\".",
                  lambda random: edits(edit(f"{notes},t={random.choice([1, 3, 4, 5])}]", "zero"))),
            Wrong("weaker", changed(f"{notes}]"), "The notes are weaker, but still the best match.",
                  lambda random: edits(edit(f"{notes}]", "scale", random.uniform(0.5, 0.9)))),
        ),
        (Allowed(f"{FIRST}.z", ("zero", "scale")), Allowed(f"{FIRST}.weights", ("zero",)), Allowed(f"{FIRST}.out", ("zero",))),
    )  # fmt: skip


def _last_only() -> Exercise:
    rest = same(["keep", value("head.logits"), 5], ["keep", plain("head.logits"), 5])
    return Exercise(
        "cut-one-place", "Break it at one place",
        "Make the model fail to go on at the last position (t = 5), without changing its logits anywhere else.",
        "induction", _inputs(4), ["and", every(["not", GOES_ON]), every(rest)],
        "Silence the induction head for the last query. A query's row belongs to its position alone; keys, values and notes are "
        "read by all later positions.",
        pick(lambda _: edits(edit(f"{SECOND}.z[h=0,t=5]", "zero")), lambda _: edits(edit(f"{SECOND}.weights[h=0,t=5]", "zero")),
             lambda _: edits(edit(f"{SECOND}.z[t=5]", "zero"))),
        (
            Wrong("everywhere", ["and", ["not", GOES_ON], ["not", rest]], "It fails at t = 5, but other positions changed too.",
                  pick(lambda _: edits(edit(f"{SECOND}.z[h=0]", "zero")), lambda _: edits(edit(f"{SECOND}.weights[h=0]", "zero")))),
            Wrong("other-head", ["and", unchanged("head.logits"), changed(f"{SECOND}.weights[h=1]")], "Head 1 adds nothing. Head 0 is the induction head.",
                  lambda _: edits(edit(f"{SECOND}.weights[h=1,t=5]", "zero"))),
            Wrong("other-place", ["and", GOES_ON, ["not", rest]], "Another position changed, and the last one goes on as before.",
                  lambda random: edits(edit(f"{SECOND}.z[h=0,t={random.randint(1, 4)}]", "zero"))),
        ),
        (Allowed(f"{SECOND}.z", ("zero",)), Allowed(f"{SECOND}.weights", ("zero",))), layer=1,
    )  # fmt: skip


def _other_word() -> Exercise:
    row = f"{SECOND}.weights[h=0,t=5"

    def look(s: int) -> list[float]:
        return [float(i == s) for i in range(6)]

    return Exercise(
        "other-continuation", "Make it skip a word",
        "The text is so A B C D A, and the model says B. Make it say C, in every such text.",
        "induction", _inputs(5), every(["=", NAMED, ["at", IDS, 3], 0.5]),
        "Let the induction head look at s = 3 instead of s = 2: it copies whatever it looks at.",
        pick(lambda random: edits(edit(f"{row}]", "set", [0.0, 0.0, 0.0, random.uniform(0.7, 1), 0.0, 0.0])),
             lambda random: edits(edit(f"{SECOND}.scores[h=0,t=5,s=3]", "set", random.uniform(10, 30)))),
        (
            Wrong("too-far", ["=", NAMED, ["at", IDS, 4], 0.5], "It says D: you point at s = 4. C stands at s = 3; positions count from 0.",
                  lambda _: edits(edit(f"{row}]", "set", look(4)))),
            Wrong("itself", ["=", NAMED, ["at", IDS, 5], 0.5], "It says A again: the head looks at the last word, or at the first time it stood there.",
                  pick(lambda _: edits(edit(f"{row}]", "set", look(5))), lambda _: edits(edit(f"{row}]", "set", look(1))))),
            Wrong("other-row", ["and", GOES_ON, changed(f"{SECOND}.weights")], "It still says B. The last word is the query t = 5 of head 0.",
                  pick(lambda random: edits(edit(f"{SECOND}.weights[h=0,t={random.randint(0, 4)}]", "set", look(3))),
                       lambda _: edits(edit(f"{SECOND}.weights[h=1,t=5]", "set", look(3))))),
        ),
        (Allowed(f"{SECOND}.weights", ("set",)), Allowed(f"{SECOND}.scores", ("set",))), layer=1,
    )  # fmt: skip


def _probability() -> Exercise:
    model = induction()
    logits = reading(model, SHOWN, "head.logits")[-model.tokenizer.vocab_size :]
    most = max(logits)
    shares = ["softmax", value(LAST)]
    return Exercise(
        "logit-to-probability", "From a logit to a probability",
        f"At the last position the likeliest word has the logit {most:.2f}. The page below shows its true probability, over the "
        "whole vocabulary. Which one is it, to 0.002?",
        "induction", {"shown": SHOWN}, answered(["max", shares], by=0.002),
        "Softmax over all words. A logit by itself says nothing: only its distance to the other logits counts.",
        lambda random: {"number": _softmax(logits) + random.uniform(-0.001, 0.001)},
        (
            Wrong("logit", answered(["max", value(LAST)], by=0.02), "That is the logit. Softmax makes a share of it.", says(most, by=0.005)),
            Wrong("even", answered(["/", 1, ["count", value(LAST)]], by=0.002), "So likely would each word be if all logits were equal.", says(1 / len(logits), by=0.001)),
            Wrong("percent", answered(["*", 100, ["max", shares]], by=0.5), "That is in percent. Write a share between 0 and 1.",
                  lambda random: {"number": 100 * _softmax(logits) + random.uniform(-0.2, 0.2)}),
        ),
        view="logits",
    )  # fmt: skip


def _softmax(logits: list[float]) -> float:
    """The largest share."""
    return 1 / sum(exp(x - max(logits)) for x in logits)
