"""Where heads look, and what they add."""

from clearhead_lab.exercises.exercise import Allowed, Exercise, ExerciseSet, Option, Wrong
from clearhead_lab.exercises.language import Term
from clearhead_lab.exercises.networks import COPIER, copier, drawn_decoder
from clearhead_lab.exercises.sets.rows import (
    AT,
    BACK,
    FIRST,
    ITSELF,
    LENGTH,
    LOOKS,
    NO_SHARES,
    OTHER_HEAD,
    SHOWN,
    cells,
    closing,
    row,
    rows,
    scores,
    some,
)
from clearhead_lab.exercises.sets.widths import head_width, output_matrix
from clearhead_lab.exercises.writing import *


def looking() -> ExerciseSet:
    """Exercises on weights and on what a head adds."""
    made = [
        _back(),
        _first(),
        _average(),
        _name_itself(),
        _silence(),
        _which_looks_back(),
        _which_adds_nothing(),
        _share(),
    ]
    models = {"copier": copier(), "drawn": drawn_decoder()}
    return ExerciseSet("looking", "Where heads look, and what they add", models, [*made, head_width(), output_matrix()])


# --- terms -----------------------------------------------------------------------------------------------------------


def _weights(head: int) -> Term:
    return value(f"{AT}.weights[h={head}]")


def _are_shares(head: int) -> Term:
    return ["=", ["sums", _weights(head)], 1, 0.02]


def _others_stay(head: int) -> Term:
    return ["and", *(unchanged(f"{AT}.weights[h={h}]") for h in range(4) if h != head)]


def _other_head(head: int) -> Term:
    return ["and", unchanged(f"{AT}.weights[h={head}]"), ["not", _others_stay(head)]]


def _diagonal(head: int, by: int) -> Term:
    """The weights of the keys `by` places after the query, from the second query on."""
    found = ["diagonal", _weights(head), by]
    return ["drop", found, 1] if by >= 0 else found


# --- exercises -------------------------------------------------------------------------------------------------------


def _back() -> Exercise:
    return Exercise(
        "look-back", "Look one token back",
        "Head 0 averages all words so far. Make it look one token back: each word but the first gives at least 0.9 of "
        "its attention to the word before it, in any sentence of six words.",
        "copier", {"shown": SHOWN, **texts(COPIER, 4, LENGTH, 1)},
        ["and", every(["and", [">=", _diagonal(0, -1), 0.9], _are_shares(0)]), _others_stay(0)],
        "A head that looks one token back has its weights on the diagonal below the main one. Softmax turns scores into "
        "weights, so one score that is 12 above the others is enough.",
        pick(rows(BACK, 0), scores(BACK, 0), closing(BACK, 0)),
        (
            Wrong("other-head", _other_head(0), OTHER_HEAD.format(0), pick(rows(BACK, 2), scores(BACK, 2), rows(BACK, 3))),
            Wrong("no-shares", ["not", _are_shares(0)], NO_SHARES, cells(BACK, 0)),
            Wrong("itself", [">=", _diagonal(0, 0), 0.9],
                  "Each word looks at itself: that is the main diagonal. One back is the key s = t - 1.",
                  pick(rows(ITSELF, 0), scores(ITSELF, 0), closing(ITSELF, 0))),
            Wrong("ahead", [">=", ["diagonal", _weights(0), 1], 0.9],
                  "Each word looks one token ahead, past the causal mask: a weight that is set by hand is not masked again.",
                  rows({t: t + 1 for t in range(LENGTH - 1)}, 0)),
            Wrong("some-rows", [">=", ["max", ["drop", _diagonal(0, -1), 1]], 0.9],
                  "Some words look one back, but not all. Every query from t = 1 on needs an edit.", some(BACK)),
        ),
        LOOKS,
    )  # fmt: skip


def _first() -> Exercise:
    column = ["drop", value(f"{AT}.weights[h=0,s=0]"), 1]
    return Exercise(
        "look-first", "Rest on the first word",
        "Make head 0 look at the first word from everywhere: at least 0.9 of each word's attention.",
        "copier", {"shown": SHOWN, **texts(COPIER, 4, LENGTH, 2)},
        ["and", every(["and", [">=", column, 0.9], _are_shares(0)]), _others_stay(0)],
        "Such a column is common in trained models. Head 2 of this model has one, and without that head no answer changes.",
        pick(rows(FIRST, 0), scores(FIRST, 0), closing(FIRST, 0)),
        (
            Wrong("other-head", _other_head(0), OTHER_HEAD.format(0), pick(rows(FIRST, 1), scores(FIRST, 3))),
            Wrong("transposed", ["and", changed(f"{AT}.weights[h=0,t=0]"), unchanged(f"{AT}.weights[h=0,t=3]")],
                  "You edited the first query, which is a row. From everywhere to the first word is a column: s = 0 for every t.",
                  lambda random: edits(edit(f"{AT}.weights[h=0,t=0]", "set", [random.uniform(0.1, 0.2)] * LENGTH))),
            Wrong("no-shares", ["not", _are_shares(0)], NO_SHARES, cells(FIRST, 0)),
            Wrong("back", [">=", _diagonal(0, -1), 0.9],
                  "Each word looks at the word before it. The first word is key s = 0 for every query.",
                  pick(rows(BACK, 0), scores(BACK, 0))),
            Wrong("some-rows", [">=", ["max", ["drop", column, 1]], 0.9], "Some words look at the first one, but not all.",
                  some(FIRST)),
        ),
        LOOKS,
    )  # fmt: skip


def _average() -> Exercise:
    head = f"{AT}.weights[h=1]"
    even = ["and", *(same(head_row(1, t, t + 1), 1 / (t + 1), 0.02) for t in range(LENGTH))]
    scores = f"{AT}.scores[h=1]"
    return Exercise(
        "average", "What a score of zero means",
        "Head 1 looks at the word before. Make it average: every word gives the same share to each word so far, itself "
        "included.",
        "copier", {"shown": SHOWN, **texts(COPIER, 4, LENGTH, 3)},
        every(["and", even, ["<=", ["triangle", value(head), 1], 0.01]]),
        "Softmax of equal scores is the average. A score of zero does not mean no attention; a closed score, minus infinity, "
        "does.",
        pick(lambda _: edits(edit(scores, "zero")), lambda random: edits(edit(scores, "set", random.uniform(-5, 5))),
             lambda random: edits(edit(scores, "scale", random.uniform(0, 0.004))),
             lambda random: shuffled(random, [edit(f"{head[:-1]},t={t}]", "set", [(s <= t) / (t + 1) for s in range(LENGTH)])
                                              for t in range(LENGTH)])),
        (
            Wrong("nothing-left", ["<=", value(head), 1e-6], "The weights are zero: the head adds nothing. It should average.",
                  lambda _: edits(edit(head, "zero"))),
            Wrong("future", [">=", ["max", ["triangle", value(head), 1]], 0.05],
                  "Words now read words after them. Weights that you set are not masked; scores are.",
                  lambda random: edits(edit(head, "set", random.uniform(0.1, 0.2)))),
            Wrong("softer", ["and", [">=", _diagonal(1, -1), 0.3], changed(head)],
                  "The head still prefers the word before. Its scores are nearer to each other, but not equal.",
                  lambda random: edits(edit(scores, "scale", random.uniform(0.3, 0.8)))),
            Wrong("other-head", _other_head(1), OTHER_HEAD.format(1),
                  lambda random: edits(edit(f"{AT}.scores[h={random.choice([2, 3])}]", "zero"))),
        ),
        LOOKS, head=1,
    )  # fmt: skip


def head_row(head: int, t: int, n: int) -> Term:
    """The weights of a query for the first n keys."""
    return ["keep", value(f"{AT}.weights[h={head},t={t}]"), n]


def _name_itself() -> Exercise:
    named = word(value("head.logits"))
    ids = ["ids", "decoder"]
    return Exercise(
        "name-itself", "Make the model repeat",
        "The model names the word before. Make it name each word itself, in sentences that you do not see. Head 3 looks at "
        "the word itself, but what it adds is small.",
        "copier", {"shown": SHOWN, **texts(COPIER, 5, LENGTH, 4)},
        every(["=", named, ids, 0.5]),
        "A head's answer is what it reads (weights times values) times what W_O makes of it. You can change where the loud "
        "head looks, or silence it and make the quiet head louder.",
        pick(rows({t: t for t in range(LENGTH)}, 1),
             lambda random: shuffled(random, [edit(f"{AT}.z[h=1]", "zero"), edit(f"{AT}.z[h=3]", "scale", random.uniform(3, 8))]),
             lambda random: edits(edit(f"{AT}.z[h=3]", "scale", random.uniform(12, 30)))),
        (
            Wrong("silent", ["<=", ["abs", value("head.logits")], 1e-4], "No head adds anything, so no word is named.",
                  lambda random: shuffled(random, [edit(f"{AT}.z[h={h}]", "zero") for h in range(4)])),
            Wrong("first", ["=", ["drop", named, 2], ["at", ids, 0], 0.5],
                  "The model names the first word everywhere: its head looks at key 0, not at the query's own place.",
                  rows(dict.fromkeys(range(LENGTH), 0), 1)),
            Wrong("before", ["=", ["drop", named, 1], ["keep", ids, -1], 0.5], "The model still names the word before: head 1 is louder.",
                  lambda random: edits(edit(f"{AT}.z[h=3]", "scale", random.uniform(0.5, 1.8)))),
            Wrong("mixed", changed("head.logits"), "The model names itself at some places only, or a word that heads agree on by chance.",
                  lambda random: edits(edit(f"{AT}.weights[h=1,t={random.randint(3, 4)}]", "set", row(1, 1.0)))),
        ),
        (*LOOKS, Allowed(f"{AT}.z", ("zero", "scale"))), view="logits", head=1,
    )  # fmt: skip


def _silence() -> Exercise:
    adds = f"{AT}.heads[h=1]"
    others = ["and", *(unchanged(f"{AT}.heads[h={h}]") for h in (0, 2, 3))]
    mine = f"{AT}.z[h=1]"
    return Exercise(
        "silence-head", "Silence one head",
        "Make head 1 add nothing to the stream, at any position and for any sentence. The other heads must add what they did.",
        "copier", {"shown": SHOWN, **texts(COPIER, 4, LENGTH, 5)},
        ["and", every(["<=", ["abs", value(adds)], 1e-5]), every(others)],
        "Attention always adds an average of values; only zero weights or zero values make it add nothing. Zero scores do "
        "not.",
        pick(lambda _: edits(edit(mine, "zero")), lambda _: edits(edit(f"{AT}.weights[h=1]", "zero")),
             lambda _: edits(edit(f"{AT}.v[h=1]", "zero")), lambda _: edits(edit(mine, "scale", 0.0))),
        (
            Wrong("all-heads", ["and", ["<=", ["abs", value(adds)], 1e-5], ["not", others]],
                  "Head 1 adds nothing, but another head does not add what it did either. The address needs h=1.",
                  pick(lambda _: edits(edit(f"{AT}.z", "zero")), lambda _: edits(edit(f"{AT}.v", "zero")))),
            Wrong("averages", ["=", ["max", ["abs", value(f"{AT}.scores[h=1]")]], 0],
                  "Its scores are zero, so the head averages all words. It still adds that average.",
                  lambda _: edits(edit(f"{AT}.scores[h=1]", "zero"))),
            Wrong("constant", ["and", same(["drop", value(mine), 1], ["keep", value(mine), -1]), changed(mine)],
                  "The head adds its mean everywhere: the same vector at each position, but not nothing.",
                  lambda _: edits(edit(mine, "mean"))),
            Wrong("one-place", ["and", changed(mine), [">=", ["max", ["abs", value(mine)]], 0.1]],
                  "The head is silent at one position only. Leave t out of the address.",
                  lambda random: edits(edit(f"{AT}.z[h=1,t={random.randint(0, 5)}]", "zero"))),
            Wrong("other-head", ["and", unchanged(adds), ["not", others]], OTHER_HEAD.format(1),
                  lambda random: edits(edit(f"{AT}.z[h={random.choice([0, 3])}]", "zero"))),
        ),
        (Allowed(f"{AT}.scores", ("zero",)), Allowed(f"{AT}.weights", ("zero",)), Allowed(f"{AT}.v", ("zero", "scale")),
         Allowed(f"{AT}.z", ("zero", "mean", "scale"))), head=1,
    )  # fmt: skip


def _which_looks_back() -> Exercise:
    matrix = value("@")
    return Exercise(
        "which-looks-back", "Find the head that looks back",
        "Which head looks one token back, in every sentence?",
        "copier", {"shown": SHOWN, **texts(COPIER, 4, LENGTH, 6)},
        every([">=", ["diagonal", matrix, -1], 0.9]),
        "Head 1: its weights lie on the diagonal below the main one. Its queries carry the position before, its keys their "
        "own position.",
        chosen(1),
        (
            Wrong("average", same(["at", matrix, 5], 1 / 6, 0.01), "That head gives every word so far the same share.", chosen(0)),
            Wrong("first", [">=", ["at", matrix, 5, 0], 0.9], "That head looks at the first word from everywhere.", chosen(2)),
            Wrong("itself", [">=", ["diagonal", matrix, 0], 0.9], "That head looks at the word itself: the main diagonal.", chosen(3)),
        ),
        options=tuple(Option(f"head {h}", at=f"{AT}.weights[h={h}]") for h in range(4)), view="heads",
    )  # fmt: skip


def _which_adds_nothing() -> Exercise:
    off = unchanged("head.logits")
    return Exercise(
        "attention-is-not-effect", "Attention is not importance",
        "Every head but head 0 gives some word nearly all of its attention. Which head can you remove without changing any "
        "logit?",
        "copier", {"shown": SHOWN, **texts(COPIER, 4, LENGTH, 7)},
        every(["and", off, [">=", ["max", value("@")], 0.9]]),
        "Head 2 stares at the first word, but W_O makes nothing of what it reads. A sharp attention map says where a head "
        "reads, not that the answer needs it: remove the head and look.",
        chosen(2),
        (
            Wrong("names", ["not", ["=", word(value("head.logits")), word(plain("head.logits")), 0.5]],
                  "Without this head the model names other words: the answer needs what it adds.", chosen(1)),
            Wrong("average", ["and", changed("head.logits"), same(["at", value("@"), 5], 1 / 6, 0.01)],
                  "Without this head the logits change. It averages, so no single weight is large, and still it matters.", chosen(0)),
            Wrong("quiet", changed("head.logits"), "Without this head the same words win, but every logit of the word itself changes.",
                  chosen(3)),
        ),
        options=tuple(
            Option(f"remove head {h}", edits=(edit(f"{AT}.z[h={h}]", "zero"),), at=f"{AT}.weights[h={h}]") for h in range(4)
        ), view="heads",
    )  # fmt: skip


def _share() -> Exercise:
    weight = value(f"{AT}.weights[h=0,t=2,s=0]")
    return Exercise(
        "share", "One share of an average",
        "All scores of head 0 are zero. Which weight does the third word give to the first one, under the causal mask?",
        "copier", {"shown": SHOWN},
        answered(weight, by=0.005),
        "1/3. Softmax gives e^0 = 1 for each open key, divided by their sum. The mask leaves three keys to the third word: two "
        "before it and itself.",
        says(1 / 3, by=0.004),
        (
            Wrong("all-words", answered(["/", 1, ["count", ["ids", "decoder"]]], by=0.01),
                  "That is 1 divided by all words of the sentence. The mask closes those after the third word.", says(1 / 6, by=0.005)),
            Wrong("without-itself", answered(["/", 1, 2], by=0.01), "A word reads itself too: three keys are open, not two.",
                  says(0.5, by=0.005)),
            Wrong("not-divided", answered(["exp", value(f"{AT}.scores[h=0,t=2,s=0]")], by=0.01),
                  "That is e^0. Softmax divides it by the sum over the open keys.", says(1.0)),
        ),
    )  # fmt: skip
