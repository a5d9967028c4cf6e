"""The feed-forward: facts, units, and where the parameters are."""

from clearhead_lab.exercises.exercise import Allowed, Exercise, ExerciseSet, Option, Wrong
from clearhead_lab.exercises.language import Term
from clearhead_lab.exercises.networks import drawn_decoder, facts
from clearhead_lab.exercises.writing import *

FFN = "decoder.blocks.0.ffn"
CITY = "head.logits[t=2]"
NAMED, KNEW = word(value(CITY)), word(plain(CITY))
KNOWS, FORGETS = ["=", NAMED, KNEW, 0.5], ["not", ["=", NAMED, KNEW, 0.5]]
LION = "the lion sees a deer"
ROME = {"shown": "the old rome is", "rome0": "is the rome old", "rome1": "the city rome is"}
OTHERS = {"unseen0": "the old paris is", "unseen1": "the city berlin is", "unseen2": "is old madrid the"}
COUNTS = 124_439_808, 163_037_184, 123_653_376, 124_337_664
"""Parameters of the model of `count-a-model`, untied, without positions, and without biases; a test builds all four."""
UNITS = {0: "unit 0", 1: "unit 1", 4: "unit 4", 5: "unit 5"}


def knowing() -> ExerciseSet:
    """Exercises on the feed-forward as a memory, and on counting parameters."""
    made = [_which_unit(), _forget(), _change(), _where(), _active(), _relu(), _expansion(), _share(), _whole_model()]
    return ExerciseSet("knowing", "What the feed-forward knows", {"facts": facts(), "drawn": drawn_decoder()}, made)


def _of_rome(condition: Term) -> Term:
    return ["and", condition, ["every", "rome", condition]]


def _which_unit() -> Exercise:
    others = ["every", "unseen", unchanged(CITY)]
    return Exercise(
        "which-unit", "Find the unit that knows Rome",
        "After `rome` the model says `italy`. Which unit of the feed-forward holds this fact, and no other?",
        "facts", {**ROME, **OTHERS}, ["and", _of_rome(FORGETS), others],
        "Unit 1. It fires at `rome` (its key, a column of W_1 in x W_1) and writes `italy` (its value, a row of W_2). Remove it, and only "
        "this fact is gone.",
        chosen(1),
        (
            Wrong("other-fact", ["some", "unseen", FORGETS], "That unit knows another city: the country of Paris is gone, Rome's is not.", chosen(0)),
            Wrong("fires-always", ["and", unchanged(CITY), changed(f"{FFN}.post[t=2]")],
                  "That unit fires at every word, but writes nothing that the answer reads.", chosen(2)),
            Wrong("silent", unchanged(f"{FFN}.post[t=2]"), "That unit does not fire at `rome` at all.", chosen(3)),
        ),
        options=tuple(Option(f"{name}: remove it", (edit(f"{FFN}.post[f={f}]", "zero"),)) for f, name in UNITS.items()), view="ffn",
    )  # fmt: skip


def _forget() -> Exercise:
    kept = ["every", "unseen", KNOWS]
    moved = {"moved0": "rome is the old"}
    return Exercise(
        "forget-a-fact", "Forget one fact",
        "Make the model forget the country of Rome, wherever `rome` stands in a sentence, and nothing else.",
        "facts", {**ROME, **OTHERS, **moved},
        ["and", _of_rome(FORGETS), ["not", ["=", word(value("head.logits[t=0]", "moved0")), word(plain("head.logits[t=0]", "moved0")), 0.5]], kept],
        "Zero unit 1 at all positions. A fact sits in a unit, not in a position: an edit at t = 2 leaves it where `rome` stands "
        "elsewhere.",
        pick(lambda _: edits(edit(f"{FFN}.post[f=1]", "zero")), lambda _: edits(edit(f"{FFN}.pre[f=1]", "zero")),
             lambda random: edits(edit(f"{FFN}.post[f=1]", "scale", -random.uniform(0.5, 2))),
             lambda random: edits(edit(f"{FFN}.post[f=1]", "set", -random.uniform(0, 5))),
             lambda random: edits(edit(f"{FFN}.pre[f=1]", "set", -random.uniform(0, 5)))),
        (
            Wrong("everything", ["not", kept], "Other cities are forgotten as well. One unit is enough.",
                  pick(lambda _: edits(edit(f"{FFN}.out", "zero")), lambda _: edits(edit(f"{FFN}.post", "zero")))),
            Wrong("one-place", ["and", FORGETS, kept], "Forgotten where `rome` stands at t = 2, but not elsewhere. Leave t out of the address.",
                  lambda _: edits(edit(f"{FFN}.post[t=2,f=1]", "zero"))),
            Wrong("attention", ["and", KNOWS, ["<=", ["abs", value("decoder.blocks.0.attn.out")], 1e-6]], "Attention is off, and the fact is still there: it is not kept in attention.",
                  lambda _: edits(edit("decoder.blocks.0.attn.out", "zero"))),
            Wrong("other-unit", ["and", KNOWS, changed(f"{FFN}.post")], "You changed a unit that this answer does not need.",
                  lambda random: edits(edit(f"{FFN}.post[f={random.choice([4, 5])}]", "zero"))),
        ),
        (Allowed(f"{FFN}.post", ("zero", "set", "scale")), Allowed(f"{FFN}.pre", ("zero", "set")), Allowed(f"{FFN}.out", ("zero",)),
         Allowed("decoder.blocks.0.attn.out", ("zero",))), view="ffn",
    )  # fmt: skip


def _change() -> Exercise:
    germany = facts().tokenizer.encode("germany")[0]
    italy = facts().tokenizer.encode("italy")[0]
    said = ["at", value(CITY), germany], ["at", value(CITY), italy]
    off, on = edit(f"{FFN}.post[t=2,f=1]", "zero"), f"{FFN}.post[t=2,f=2]"
    return Exercise(
        "change-a-fact", "Move Rome to Germany",
        "Make the model say `germany` after `rome` at t = 2, by a logit at least 2 above that of `italy`. Unit 2 writes `germany`.",
        "facts", ROME, _of_rome(["and", ["=", NAMED, germany, 0.5], [">=", ["-", *said], 2]]),
        "Switch unit 1 off and unit 2 on. Editing facts in large models works like this: find the place that fires at the "
        "subject, and change what it writes.",
        pick(lambda random: shuffled(random, [off, edit(on, "set", random.uniform(2, 8))]),
             lambda random: edits(edit(on, "set", random.uniform(10, 20))),
             lambda random: shuffled(random, [edit(f"{FFN}.post[t=2,f=1]", "scale", -random.uniform(0, 3)), edit(on, "set", random.uniform(2, 8))])),
        (
            Wrong("forgotten", ["<=", ["max", value(CITY)], 3], "The old fact is gone, but there is no new one yet.",
                  lambda _: edits(off)),
            Wrong("other-country", ["and", FORGETS, ["not", ["=", NAMED, germany, 0.5]]], "It says another country. Unit 2 is the one that writes `germany`.",
                  lambda random: shuffled(random, [off, edit(f"{FFN}.post[t=2,f={random.choice([0, 3])}]", "set", random.uniform(3, 8))])),
            Wrong("old-wins", ["and", KNOWS, changed(CITY)], "Both facts are there, and the old one still counts. Switch unit 1 off, or unit 2 up.",
                  lambda random: edits(edit(on, "set", random.uniform(0.5, 2)))),
            Wrong("other-place", ["and", KNOWS, changed(f"{FFN}.post")], "You changed units at another position. `rome` stands at t = 2.",
                  lambda random: edits(edit(f"{FFN}.post[t={random.choice([1, 3])},f=2]", "set", random.uniform(3, 8)))),
        ),
        (Allowed(f"{FFN}.post", ("zero", "set", "scale")),), view="ffn",
    )  # fmt: skip


def _where() -> Exercise:
    inputs = {**ROME, **OTHERS}
    lost = ["and", _of_rome(FORGETS), ["every", "unseen", FORGETS]]
    return Exercise(
        "where-knowledge-is", "Attention or feed-forward?",
        "Which edit makes the model lose the countries of all four cities?",
        "facts", inputs, lost,
        "Switching off the feed-forward. In this model the units of the feed-forward hold the facts, and attention adds none. Where "
        "a trained model keeps a fact has to be tested fact by fact.",
        chosen(1),
        (
            Wrong("attention", ["and", KNOWS, changed("decoder.blocks.0.attn.out")], "Without attention the model repeats less, and knows every country.", chosen(0)),
            Wrong("one-fact", ["or", FORGETS, ["some", "unseen", FORGETS]], "That takes one fact away. The others are in other units.", chosen(2)),
            Wrong("spare-unit", KNOWS, "That unit fires at every word and holds no fact.", chosen(3)),
        ),
        options=(Option("switch attention off", (edit("decoder.blocks.0.attn.out", "zero"),)), Option("switch the feed-forward off", (edit(f"{FFN}.out", "zero"),)),
                 Option("remove unit 3", (edit(f"{FFN}.post[f=3]", "zero"),)), Option("remove unit 4", (edit(f"{FFN}.post[f=4]", "zero"),))),
        source="document 001, reflection question 3", view="ffn",
    )  # fmt: skip


def _active() -> Exercise:
    post = value(f"{FFN}.post[t=2]")
    active = ["share", ">=", post, 1e-3]
    return Exercise(
        "active-units", "How many units fire",
        "Which share of the six units fires at `rome` (is above 0 after the ReLU)?",
        "facts", {"shown": ROME["shown"]}, answered(active, by=0.01),
        "2 of 6, or 0.333: the unit of Rome and the one that fires at every word. ReLU leaves most units of a trained model silent "
        "at most words.",
        says(1 / 3, by=0.005),
        (
            Wrong("silent", answered(["-", 1, active], by=0.01), "That is the share of the silent ones.", says(2 / 3, by=0.005)),
            Wrong("one", answered(1 / 6, by=0.01), "Two units fire: one of them at every word.", says(1 / 6, by=0.005)),
            Wrong("count", answered(["*", active, ["count", post]], by=0.01), "That is their number. Divide it by 6.", says(2.0)),
        ),
        view="ffn",
    )  # fmt: skip


def _relu() -> Exercise:
    pre = reading(drawn_decoder(), LION, f"{FFN}.pre")[64:128]
    unit, x = next((f, x) for f, x in enumerate(pre) if x < -0.5)
    at = value(f"{FFN}.pre[t=1,f={unit}]")
    return Exercise(
        "relu", "What ReLU does",
        f"Before the activation unit {unit} has {x:.3f} at the second word. What has it after the ReLU?",
        "drawn", {"shown": LION}, answered(value(f"{FFN}.post[t=1,f={unit}]"), by=0.001),
        "0. ReLU keeps what is above zero and cuts the rest. Without such a bend, two linear layers would be one.",
        says(0.0),
        (
            Wrong("kept", answered(at, by=0.01), "That is the number before. ReLU cuts it, because it is below zero.", says(x, by=0.004)),
            Wrong("absolute", answered(["abs", at], by=0.01), "That is its absolute value. ReLU does not turn numbers round.", says(-x, by=0.004)),
            Wrong("squared", answered(["*", at, at], by=0.01), "That is its square.", says(x * x, by=0.002)),
        ),
        view="ffn",
    )  # fmt: skip


def _expansion() -> Exercise:
    wide, d = ["count", value(f"{FFN}.post[t=0]")], ["count", value("decoder.blocks.0.resid_pre[t=0]")]
    return Exercise(
        "expansion", "Wider in between",
        "How many times as wide as the stream is the feed-forward in between, in this model?",
        "drawn", {"shown": LION}, answered(["/", wide, d], by=0.01),
        "4, as in most Transformers: 64 units for 16 components. More units hold more patterns, each looking at the whole vector; "
        "4 is a habit that balances their cost with attention's, not a law.",
        says(4.0),
        (
            Wrong("inverse", answered(["/", d, wide], by=0.01), "That is the other way round. It is an expansion, not a bottleneck.", says(0.25)),
            Wrong("units", answered(wide, by=0.01), "That is the number of units. Divide it by the width of the stream.", says(64.0)),
            Wrong("two", answered(["/", wide, ["*", 2, d]], by=0.01), "64 units for 16 components is more than twice as wide.", says(2.0)),
        ),
        source="document 001, reflection question 2", view="ffn",
    )  # fmt: skip


def _share() -> Exercise:
    wide, d = ["count", value(f"{FFN}.post[t=0]")], ["count", value("decoder.blocks.0.resid_pre[t=0]")]
    ffn, attn = ["*", 2, ["*", wide, d]], ["*", 4, ["*", d, d]]
    return Exercise(
        "parameters-of-a-block", "Where a block's parameters are",
        "Which share of a block's matrices belongs to the feed-forward (here four times as wide as the stream)? Count W_Q, W_K, "
        "W_V, W_O, W_1 and W_2.",
        "drawn", {"shown": LION}, answered(["/", ffn, ["+", ffn, attn]], by=0.01),
        "2/3: 8 d² of 12 d². Attention has four matrices of d x d.",
        says(2 / 3, by=0.004),
        (
            Wrong("attention", answered(["/", attn, ["+", ffn, attn]], by=0.005), "That is attention's share.", says(1 / 3, by=0.004)),
            Wrong("four-fifths", answered(0.8, by=0.005), "You took one matrix for attention and one for the feed-forward.", says(0.8, by=0.004)),
            Wrong("half", answered(0.5, by=0.005), "Attention's four matrices are d x d, the feed-forward's two are d x 4d.", says(0.5, by=0.004)),
        ),
        view="ffn",
    )  # fmt: skip


def _whole_model() -> Exercise:
    right, untied, placeless, unbiased = COUNTS
    return Exercise(
        "count-a-model", "Count a whole model",
        "How many parameters has a decoder with d_model = 768, 12 blocks of 12 heads, d_ff = 3072, a vocabulary of 50,257, 1,024 learned "
        "positions, biases everywhere, a final LayerNorm, and an output matrix that is the token table?",
        "drawn", {"shown": LION}, answered(right, by=0.5),
        f"{right:,}. The token table has 50,257 · 768, positions 1,024 · 768, each block 12 · 768² and 13 · 768 for biases and norms, and "
        "the last norm 2 · 768. The number of heads does not matter.",
        says(float(right)),
        (
            Wrong("untied", answered(untied, by=0.5), "You counted the token table twice. The output matrix is the same tensor.", says(float(untied))),
            Wrong("no-positions", answered(placeless, by=0.5), "The 1,024 learned positions are missing.", says(float(placeless))),
            Wrong("no-biases", answered(unbiased, by=0.5), "Biases of the matrices and norms are missing.", says(float(unbiased))),
        ),
        source="document 001, practice problem 1", view="tokens",
    )  # fmt: skip
