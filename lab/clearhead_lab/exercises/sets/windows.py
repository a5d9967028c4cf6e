"""Pairs and windows: cells that a head may not read."""

from clearhead_lab.exercises.exercise import Allowed, Exercise, Way, Wrong
from clearhead_lab.exercises.networks import COPIER
from clearhead_lab.exercises.writing import *

AT = "decoder.blocks.0.attn"
IN = "encoder.blocks.0.attn"
SIX = "one two three four five six"
LAST = "head.logits[t=-1]"


def close_pair() -> Exercise:
    """One word may not read another."""
    cell, row = f"{AT}.weights[h=0,t=4,s=2]", f"{AT}.weights[h=0,t=4]"
    rest = ["and", *(unchanged(f"{AT}.weights[h=0,t={t}]") for t in (0, 1, 2, 3, 5))]
    heads = ["and", *(unchanged(f"{AT}.weights[h={h}]") for h in (1, 2, 3))]
    return Exercise(
        "close-pair", "Forbid one word to read another",
        "In head 0, the fifth word (t = 4) must not read the third (s = 2). Its other keys share what becomes free, and "
        "nothing else changes.",
        "copier", {"shown": "the cat saw a red dog", **texts(COPIER, 4, 6, 4)},
        every(["and", ["<=", value(cell), 1e-4], ["=", ["sums", value(row)], 1, 1e-3], rest, heads]),
        "Close the score, as a mask does: softmax then divides the attention among the open keys. A weight that is set to "
        "zero afterwards leaves a row that adds up to less than 1.",
        pick(lambda _: edits(edit(f"{AT}.scores[h=0,t=4,s=2]", "close")),
             lambda random: edits(edit(f"{AT}.scores[h=0,t=4,s=2]", "set", -random.uniform(20, 1000))),
             lambda _: edits(edit(f"{AT}.weights[h=0,t=4]", "set", [0.25, 0.25, 0.0, 0.25, 0.25, 0.0]))),
        (
            Wrong("not-shared", ["and", ["<=", value(cell), 1e-4], ["not", ["=", ["sums", value(row)], 1, 1e-3]]],
                  "The weight is zero, but the row adds up to 0.8: nobody got what became free.",
                  lambda _: edits(edit(cell, "zero"))),
            Wrong("transposed", ["and", unchanged(f"{AT}.weights"), changed(f"{AT}.scores")],
                  "You closed t = 2, s = 4. The mask had closed it before: the third word cannot read the fifth.",
                  pick(lambda _: edits(edit(f"{AT}.scores[h=0,t=2,s=4]", "set", -50.0)),
                       lambda _: edits(edit(f"{AT}.scores[h=0,t=2,s=4]", "close")))),
            Wrong("every-head", ["and", ["<=", value(cell), 1e-4], ["not", heads]],
                  "The pair is closed in other heads too. The address needs h=0.",
                  lambda _: edits(edit(f"{AT}.scores[t=4,s=2]", "close"))),
            Wrong("whole-column", ["and", ["<=", value(cell), 1e-4], ["not", rest]],
                  "No word reads the third one now. Only the fifth was meant: the address needs t=4.",
                  lambda _: edits(edit(f"{AT}.scores[h=0,s=2]", "close"))),
        ),
        (Allowed(f"{AT}.scores", ("set", "close")), Allowed(f"{AT}.weights", ("set", "zero"))),
    )  # fmt: skip


def pairs(cells: list[tuple[int, int]], at: str, do: str, head: str = "") -> Way:
    """Closes the score, or zeroes the weight, of each (query, key)."""
    return lambda random: shuffled(random, [edit(f"{at}[{head}t={t},s={s}]", do) for t, s in cells])


def window() -> Exercise:
    """Only near words."""
    head = f"{AT}.weights[h=0]"
    itself, before = ["diagonal", value(head), 0], ["diagonal", value(head), -1]
    near = ["=", ["+", ["sum", itself], ["sum", before]], 6, 0.01]
    shares = ["=", ["sums", value(head)], 1, 1e-3]
    far = [(t, s) for t in range(6) for s in range(t - 1)]
    return Exercise(
        "window", "A local window",
        "Give head 0 a window of 2: each word shares its attention between itself and the word before it, nothing further "
        "back, and every row adds up to 1.",
        "copier", {"shown": "the cat saw a red dog", **texts(COPIER, 4, 6, 7)},
        every(["and", near, shares, [">=", before, 0.2], [">=", itself, 0.2]]),
        "A window closes the cells that lie too far back. Models with long texts do so in most layers: the work grows with the "
        "window, not with the square of the text.",
        pick(pairs(far, f"{AT}.scores", "close", "h=0,"),
             lambda random: shuffled(random, [edit(f"{AT}.weights[h=0,t={t}]", "set", [0.5 * (t - 2 < s <= t) for s in range(6)])
                                              for t in range(1, 6)])),
        (
            Wrong("not-shared", ["not", shares], "The rows no longer add up to 1. Close scores instead of zeroing weights.",
                  pairs(far, f"{AT}.weights", "zero", "h=0,")),
            Wrong("only-before", ["and", [">=", before, 0.9]], "Words read the word before, but no longer themselves.",
                  lambda random: shuffled(random, [edit(f"{AT}.weights[h=0,t={t}]", "set", [float(s == t - 1) for s in range(6)])
                                                   for t in range(1, 6)])),
            Wrong("only-itself", ["and", [">=", itself, 0.9]], "Words read only themselves: a window of 1.",
                  pairs([(t, s) for t in range(6) for s in range(t)], f"{AT}.scores", "close", "h=0,")),
            Wrong("too-wide", ["<=", value(f"{AT}.weights[h=0,t=5,s=0]"), 1e-4], "The window is too wide, or not closed for every word.",
                  pairs([(t, s) for t, s in far if s < t - 2], f"{AT}.scores", "close", "h=0,")),
        ),
        (Allowed(f"{AT}.scores", ("close",)), Allowed(f"{AT}.weights", ("set", "zero"))),
    )  # fmt: skip
