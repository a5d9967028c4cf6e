"""Masks: what a query may read, and what happens where it reads more."""

from itertools import combinations, product
from typing import Any

from clearhead_lab.exercises.exercise import Allowed, Exercise, ExerciseSet, Option, Way, Wrong
from clearhead_lab.exercises.language import Term
from clearhead_lab.exercises.networks import ANIMALS, PEEKER, copier, drawn_decoder, drawn_encoder, peeker
from clearhead_lab.exercises.sets.windows import close_pair, pairs, window
from clearhead_lab.exercises.writing import *

AT = "decoder.blocks.0.attn"
IN = "encoder.blocks.0.attn"
SIX = "one two three four five six"
LAST = "head.logits[t=-1]"


def masks() -> ExerciseSet:
    """Exercises on causal masks, padding and windows."""
    made = [
        _open_cells(),
        _cheat(),
        _which_cheats(),
        _what_changes(),
        close_pair(),
        _causal(),
        _padding(),
        window(),
        _order(),
    ]
    models = {"peeker": peeker(), "copier": copier(), "encoder": drawn_encoder(), "decoder": drawn_decoder()}
    return ExerciseSet("masks", "Masks, and how to cheat without one", models, made)


def _open_cells() -> Exercise:
    cells = value(f"{AT}.masked[h=0]")
    return Exercise(
        "open-cells", "How many cells are open",
        "A sentence of six words, a causal mask: how many cells of the 6 x 6 scores of a head are open?",
        "peeker", {"shown": SIX},
        answered(["*", ["count", cells], ["share", ">=", cells, -1e6]], by=0.01),
        "21 = 6 · 7 / 2: the diagonal and everything left of it. The first word has one open key, the last one six.",
        says(21.0),
        (
            Wrong("all", answered(["count", cells], by=0.01), "That is every cell. The mask closes those right of the diagonal.", says(36.0)),
            Wrong("strict", answered(15, by=0.01), "That leaves out the diagonal. A word may read itself.", says(15.0)),
            Wrong("rows", answered(6, by=0.01), "That is one cell a row. The second word may read two, the third three.", says(6.0)),
        ),
    )  # fmt: skip


def _cheat() -> Exercise:
    masked, logits = f"{AT}.masked", "head.logits[t=2]"
    ids = ["ids", "decoder"]
    reads = value(f"{AT}.weights[h=1,t=2,s=3]")
    return Exercise(
        "cheat", "Make the model cheat",
        "Head 1 would like to look at the next word, but the mask closes it. Make the third word (t = 2) read the next one, "
        "so that the model predicts it in every sentence.",
        "peeker", {"shown": SIX, **texts(PEEKER, 5, 6, 1)},
        every(["=", word(value(logits)), ["at", ids, 3], 0.5]),
        "The mask sets closed scores to minus infinity just before softmax. Open one cell there, or set the weights, and "
        "position 2 copies the answer. Training would be perfect, and the model could not write: there is no next word yet.",
        pick(lambda random: edits(edit(f"{masked}[h=1,t=2,s=3]", "set", random.uniform(8, 40))),
             lambda random: edits(edit(f"{AT}.weights[h=1,t=2]", "set", [0, 0, 0, random.uniform(0.7, 1), 0, 0])),
             lambda random: edits(edit(f"{AT}.weights[h=1,t=2,s=3]", "set", random.uniform(0.7, 1)))),
        (
            Wrong("masked-again", ["and", changed(f"{AT}.scores[h=1,t=2,s=3]"), unchanged(f"{AT}.weights[h=1]")],
                  "You raised the score, and the mask closed it again: it comes after the scores.",
                  lambda random: edits(edit(f"{AT}.scores[h=1,t=2,s=3]", "set", random.uniform(8, 40)))),
            Wrong("other-query", ["and", unchanged(f"{AT}.weights[h=1,t=2]"), changed(f"{AT}.weights[h=1]")],
                  "Another query reads something else. The third word is the row t = 2, the next word the column s = 3.",
                  lambda random: edits(edit(f"{masked}[h=1,t=3,s=2]", "set", random.uniform(8, 40)))),
            Wrong("other-head", [">=", value(f"{AT}.weights[h=0,t=2,s=3]"), 0.5],
                  "Head 0 reads the next word now, but what it adds is small. Head 1 is the loud one.",
                  lambda random: edits(edit(f"{masked}[h=0,t=2,s=3]", "set", random.uniform(8, 40)))),
            Wrong("itself", ["=", word(value(logits)), ["at", ids, 2], 0.5],
                  "The third word reads itself. The next word is the key s = 3.",
                  lambda random: edits(edit(f"{masked}[h=1,t=2,s=2]", "set", random.uniform(8, 40)))),
            Wrong("too-little", [">=", reads, 0.01], "The cell is open, but other keys weigh more. Set it higher.",
                  lambda random: edits(edit(f"{masked}[h=1,t=2,s=3]", "set", random.uniform(-3, -1.5)))),
        ),
        (Allowed(masked, ("set",)), Allowed(f"{AT}.scores", ("set",)), Allowed(f"{AT}.weights", ("set",))), head=1,
    )  # fmt: skip


def _which_cheats() -> Exercise:
    logits = "head.logits[t=2]"
    inputs = beside({"shown": SIX, **texts(PEEKER, 4, 6, 2)}, "later", replaced(3, PEEKER, to=4))
    leaks = differs(value(logits), value(logits, ".later"))
    row = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    return Exercise(
        "which-cheats", "Which edit makes the model cheat?",
        "One of these edits lets the answer at t = 2 depend on words that come later. Which one?",
        "peeker", inputs, every(leaks),
        "The edit after the mask. Every other one leaves position 2 with the words up to itself: change the later words and "
        "its logits stay the same, to the last bit.",
        chosen(1),
        (
            Wrong("before-mask", ["and", unchanged("head.logits"), changed(f"{AT}.scores")],
                  "That score is masked after you set it, so nothing changes.", chosen(0)),
            Wrong("past", [">=", value(f"{AT}.weights[h=1,t=2,s=1]"), 0.9],
                  "Position 2 now reads the second word only, which comes before it.", chosen(2)),
            Wrong("louder", ["and", unchanged(f"{AT}.weights"), changed("head.logits")],
                  "The head is louder, but reads the same words as before.", chosen(3)),
        ),
        options=(
            Option("set the score of s = 3 to 30, before the mask", (edit(f"{AT}.scores[h=1,t=2,s=3]", "set", 30.0),)),
            Option("set the masked score of s = 3 to 30", (edit(f"{AT}.masked[h=1,t=2,s=3]", "set", 30.0),)),
            Option("set the weight of s = 1 to 1, the others to 0", (edit(f"{AT}.weights[h=1,t=2]", "set", row),)),
            Option("double what head 1 reads at t = 2", (edit(f"{AT}.z[h=1,t=2]", "scale", 2.0),)),
        ), head=1,
    )  # fmt: skip


def _what_changes() -> Exercise:
    inputs = beside({"shown": "one two three four five six", **texts(PEEKER, 4, 6, 3)}, "later", replaced(4, PEEKER))
    moved = differs(value("@"), value("@", ".later"))
    return Exercise(
        "what-leaks", "What a later word reaches",
        "You replace the fifth word (t = 4). Which of these values changes, in a causal model?",
        "peeker", inputs, every(moved),
        "Only what stands at t = 4 or after it. The change of every value before is exactly 0, not merely small.",
        chosen(2),
        (
            Wrong("third", ["and", ["not", moved], option_is(0)], "Position 2 reads words 0 to 2. It cannot know the fifth word.", chosen(0)),
            Wrong("fourth", ["and", ["not", moved], option_is(1)],
                  "Position 3 predicts the fifth word, so it must not read it: that is what the mask is for.", chosen(1)),
            Wrong("embedding", ["and", ["not", moved], option_is(3)], "That is the embedding of another word; it reads no neighbours.", chosen(3)),
        ),
        options=(Option("the logits at t = 2", at="head.logits[t=2]"), Option("the logits at t = 3", at="head.logits[t=3]"),
                 Option("the logits at t = 4", at="head.logits[t=4]"), Option("the embedding at t = 5", at="decoder.embed.sum[t=5]")),
        view="logits",
    )  # fmt: skip


def _causal() -> Exercise:
    later = list(combinations(range(4), 2))
    leaks: list[Term] = [["max", ["triangle", value(f"{IN}.weights[h={h}]"), 1]] for h in (0, 1)]
    closed = ["and", *(["<=", leak, 1e-6] for leak in leaks)]
    shares = ["=", ["sums", value(f"{IN}.weights")], 1, 1e-3]
    past = same(value(f"{IN}.weights[t=3]"), plain(f"{IN}.weights[t=3]"))
    return Exercise(
        "causal-mask", "Build the causal mask",
        "This encoder reads both ways. Turn its attention into masked self-attention for the four words: no word reads a word "
        "after it, in both heads, and every row still adds up to 1.",
        "encoder", {"shown": "the lion sees deer", **texts(ANIMALS, 4, 4, 5)},
        every(["and", closed, shares, past]),
        "Close the six scores above the diagonal (s > t) before softmax. That is all that masked self-attention is.",
        pick(pairs(later, f"{IN}.scores", "close"),
             lambda random: edits(*(edit(f"{IN}.scores[t={t},s={s}]", "set", -random.uniform(50, 5000)) for t, s in later))),
        (
            Wrong("not-shared", ["and", closed, ["not", shares]],
                  "No word reads ahead, but the rows no longer add up to 1: you zeroed weights after softmax. Close scores.",
                  pairs(later, f"{IN}.weights", "zero")),
            Wrong("other-half", ["<=", value(f"{IN}.weights[h=0,t=3,s=0]"), 1e-6],
                  "You closed the past: the last word cannot read the first one. Close s > t.",
                  pairs([(s, t) for t, s in later], f"{IN}.scores", "close")),
            Wrong("one-head", ["or", *(["<=", leak, 1e-6] for leak in leaks)], "One head still reads ahead. Leave h out of the address.",
                  pick(*(pairs(later, f"{IN}.scores", "close", f"h={h},") for h in (0, 1)))),
            Wrong("some-pairs", ["<=", value(f"{IN}.weights[h=0,t=0,s=3]"), 1e-6], "Some pairs are still open: there are six with s > t.",
                  lambda random: pairs([(0, 3), *random.sample([p for p in later if p != (0, 3)], 3)], f"{IN}.scores", "close")(random)),
        ),
        (Allowed(f"{IN}.scores", ("close", "set")), Allowed(f"{IN}.weights", ("zero",))),
        source="document 001, practice problem 3",
    )  # fmt: skip


def _padding() -> Exercise:
    inputs = beside({"shown": "the lion sees a a", **_padded(6)}, "other", lambda row: [*row[:3], "old", "big"])
    read = ["max", ["keep", value(f"{IN}.weights[h=0,s=3]"), 3]], ["max", ["keep", value(f"{IN}.weights[h=1,s=4]"), 3]]
    real = ["keep", value(f"{IN}.out"), 3]
    blind = same(real, ["keep", value(f"{IN}.out", ".other"), 3])
    shares = ["=", ["sums", value(f"{IN}.weights[h=0]")], 1, 1e-3]
    padding = [3, 4]
    return Exercise(
        "padding-mask", "Hide the padding",
        "The last two words, `a a`, stand for padding. Make the three real words ignore them: whatever stands there, they must "
        "get the same attention output, and give no share away.",
        "encoder", inputs,
        every(["and", blind, ["<=", read[0], 1e-6], ["<=", read[1], 1e-6], shares]),
        "Close the columns of the padding, as keys, for every query. The rows of the padding, as queries, do not matter: "
        "nobody reads them any more.",
        pick(lambda random: shuffled(random, [edit(f"{IN}.scores[s={s}]", "close") for s in padding]),
             pairs(list(product(range(3), padding)), f"{IN}.scores", "close")),
        (
            Wrong("not-shared", ["and", ["<=", read[0], 1e-6], ["<=", read[1], 1e-6], ["not", shares]],
                  "No share goes to padding, but the rows add up to less than 1, by what padding would have got. Close scores.",
                  lambda random: shuffled(random, [edit(f"{IN}.weights[s={s}]", "zero") for s in padding])),
            Wrong("still-attended", ["and", blind, [">=", read[0], 1e-4]],
                  "Padding is always the same vector now, so it cannot be told apart; but words still give it a share.",
                  lambda random: shuffled(random, [edit(f"encoder.embed.tokens[t={s}]", "zero") for s in padding])),
            Wrong("queries", ["and", ["not", blind], unchanged(f"{IN}.weights[t=0]"), changed(f"{IN}.weights[t=3]")],
                  "You edited the rows of the padding: what padding reads. Real words still read padding: that is the columns, s.",
                  lambda random: shuffled(random, [edit(f"{IN}.scores[t={t}]", "zero") for t in padding])),
            Wrong("one-head", ["or", ["<=", read[0], 1e-6], ["<=", read[1], 1e-6]], "One head, or one of the two words, is left.",
                  lambda random: shuffled(random, [edit(f"{IN}.scores[h={head},s={s}]", "close") for head in [random.randint(0, 1)] for s in padding])),
        ),
        (Allowed(f"{IN}.scores", ("close", "zero")), Allowed(f"{IN}.weights", ("zero",)), Allowed("encoder.embed.tokens", ("zero",))),
    )  # fmt: skip


def _padded(seed: int) -> dict[str, str]:
    """Unseen sentences of three words and two of padding."""
    return {name: f"{text} a a" for name, text in texts("the lion kills deer sees", 4, 3, seed).items()}


def _order() -> Exercise:
    inputs = {"shown": "the lion sees a deer", **texts(ANIMALS, 4, 5, 8)}
    whole = beside(inputs, "swapped", swapped(0, 2)) | beside(inputs, "other", replaced(1, ANIMALS))
    blind = same(value(LAST), value(LAST, ".swapped"))
    reads = differs(value(LAST), value(LAST, ".other"))
    blocks = ["decoder.blocks.0", "decoder.blocks.1"]

    def off(*sites: str) -> dict[str, Any]:
        return edits(*(edit(site, "zero") for site in sites))

    def one(name: str) -> Way:
        return lambda random: off(f"{random.choice(blocks)}.{name}")

    return Exercise(
        "order-through-the-mask", "How a causal mask tells order",
        "This decoder has no positions, and still the answer at the last word changes when two earlier words swap places. Make "
        "it blind to their order, but not to which words they are.",
        "decoder", whole, ["and", every(blind), every(reads)],
        "Switch off the attention of one block, either one. A single causal attention sees the words before the last one as a "
        "set. With two, words in the middle have read different pasts, and the last word reads that.",
        pick(one("attn.out"), one("attn.z")),
        (
            Wrong("deaf", ["and", blind, ["not", reads]],
                  "Now the last word reads no other word at all: both attentions are off.",
                  lambda random: off(*(f"{block}.attn.{random.choice(['out', 'z'])}" for block in blocks))),
            Wrong("feed-forward", ["or", *(["<=", ["abs", value(f"{block}.ffn.out")], 0] for block in blocks)],
                  "The feed-forward works on each position alone; it never sees order.",
                  lambda random: off(*(f"{block}.ffn.out" for block in random.sample(blocks, random.randint(1, 2))))),
            Wrong("one-head", ["or", *(changed(f"{block}.attn.z") for block in blocks)],
                  "A head is left in each block, and two in a row are enough to see order.",
                  lambda random: off(f"{random.choice(blocks)}.attn.z[h={random.randint(0, 1)}]")),
        ),
        tuple(Allowed(f"{block}.{name}", ("zero",)) for block in blocks for name in ("attn.out", "attn.z", "ffn.out")),
    )  # fmt: skip
