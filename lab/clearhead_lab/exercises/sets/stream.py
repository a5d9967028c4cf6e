"""The residual stream, and what becomes of it: words, and their probabilities."""

import math

from clearhead_lab.exercises.exercise import Allowed, Exercise, ExerciseSet, Option, Wrong
from clearhead_lab.exercises.networks import ANIMALS, drawn_decoder, mixer
from clearhead_lab.exercises.writing import *

SHOWN = "the lion kills a deer"
BLOCK = "encoder.blocks.0"
LAST = "head.logits[t=-1]"


def stream() -> ExerciseSet:
    """Exercises on residual connections and on logits."""
    models = {"mixer": mixer(), "decoder": drawn_decoder()}
    return ExerciseSet(
        "stream",
        "The residual stream and the answer",
        models,
        [_identity(), _collapse(), _reaches(), _sharpen(), _ratio(), _loss()],
    )


def _identity() -> Exercise:
    attn, ffn, out = f"{BLOCK}.attn.out", f"{BLOCK}.ffn.out", value(f"{BLOCK}.resid_post")
    return Exercise(
        "do-nothing", "A block that does nothing",
        "Make the block hand on every word's vector exactly as it came in, and keep the words apart.",
        "mixer", {"shown": SHOWN, **texts(ANIMALS, 3, 5, 1)},
        every(same(out, plain(f"{BLOCK}.resid_pre"), 1e-4)),
        "Switch off both branches. In a residual block doing nothing is easy: add zero. A block without the residual path would have "
        "to learn to copy.",
        pick(lambda random: shuffled(random, [edit(attn, "zero"), edit(ffn, "zero")]),
             lambda random: shuffled(random, [edit(f"{BLOCK}.attn.z", "zero"), edit(ffn, "zero")])),
        (
            Wrong("lost", ["<=", ["abs", out], 1e-4], "The vectors are gone: you cut the stream itself, not the branches.",
                  lambda _: edits(edit(f"{BLOCK}.resid_post", "zero"))),
            Wrong("attention-left", ["<=", ["abs", value(ffn)], 1e-6], "Attention still adds something.", lambda _: edits(edit(ffn, "zero"))),
            Wrong("ffn-left", ["<=", ["abs", value(attn)], 1e-6], "The feed-forward still adds something.",
                  pick(lambda _: edits(edit(attn, "zero")), lambda _: edits(edit(f"{BLOCK}.attn.z", "zero")))),
        ),
        (Allowed(attn, ("zero",)), Allowed(ffn, ("zero",)), Allowed(f"{BLOCK}.attn.z", ("zero",)), Allowed(f"{BLOCK}.resid_post", ("zero",))), view="residual",
    )  # fmt: skip


def _collapse() -> Exercise:
    matrix = value("@")
    alike = same(["drop", matrix, 1], ["keep", matrix, -1], 1e-3)
    return Exercise(
        "without-residual", "Without the residual",
        "Attention here averages all words. Without residual connections the next layer would read one of these values, in which all words "
        "have become the same vector. Which one?",
        "mixer", {"shown": SHOWN, **texts(ANIMALS, 3, 5, 2)}, every(alike),
        "What attention adds: the same average for all words. The residual path keeps them apart, and gives gradients a way back through no "
        "matrix.",
        chosen(1),
        (
            Wrong("embedding", ["and", ["not", alike], option_is(0)], "Each word has its own embedding.", chosen(0)),
            Wrong("with-residual", ["and", ["not", alike], option_is(2)], "That is the sum with the residual: the words are still different.", chosen(2)),
            Wrong("ffn", ["and", ["not", alike], option_is(3)], "The feed-forward reads that sum, word by word, so its output differs too.", chosen(3)),
        ),
        options=(Option("the embedding", at="encoder.embed.sum"), Option("what attention adds", at=f"{BLOCK}.attn.out"),
                 Option("the stream after attention", at=f"{BLOCK}.resid_attn"), Option("what the feed-forward adds", at=f"{BLOCK}.ffn.out")),
        source="document 001, reflection question 6", view="residual",
    )  # fmt: skip


def _reaches() -> Exercise:
    cut = (edit("decoder.blocks.0.ffn.out[t=1]", "zero"),)
    return Exercise(
        "what-it-reaches", "What an edit reaches",
        "In a causal decoder the feed-forward of block 0 is silenced at t = 1. Which of these values changes?",
        "decoder", {"shown": SHOWN, **texts(ANIMALS, 3, 5, 3)}, every(changed("@")),
        "Attention of block 1 at t = 2: it reads position 1 of the stream. The stream carries a change up at its own position, and only "
        "attention carries it to later ones.",
        chosen(2),
        (
            Wrong("earlier", ["and", unchanged("@"), option_is(0)], "Position 0 cannot read position 1.", chosen(0)),
            Wrong("same-block", ["and", unchanged("@"), option_is(1)], "Attention of block 0 comes before its feed-forward.", chosen(1)),
            Wrong("other-place", ["and", unchanged("@"), option_is(3)], "The feed-forward works on each position alone.", chosen(3)),
        ),
        options=(Option("attention of block 1 at t = 0", cut, at="decoder.blocks.1.attn.out[t=0]"), Option("attention of block 0 at t = 2", cut, at="decoder.blocks.0.attn.out[t=2]"),
                 Option("attention of block 1 at t = 2", cut, at="decoder.blocks.1.attn.out[t=2]"), Option("the feed-forward of block 0 at t = 2", cut, at="decoder.blocks.0.ffn.out[t=2]")),
        view="residual",
    )  # fmt: skip


def _sharpen() -> Exercise:
    named = same(word(value(LAST)), word(plain(LAST)), 0.5)
    more = [">=", ["max", ["softmax", value(LAST)]], ["+", ["max", ["softmax", plain(LAST)]], 0.05]]
    return Exercise(
        "temperature", "A surer model",
        "Make the model surer at every position and for every text, and let it name the same words: each best word at least 0.05 more "
        "likely than before.",
        "decoder", {"shown": SHOWN, **texts(ANIMALS, 3, 5, 4)}, every(["and", named, more]),
        "Multiply the logits by more than 1: a temperature below 1. The order of the words stays, and only the distances grow. It does not "
        "make a model right.",
        lambda random: edits(edit("head.logits", "scale", random.uniform(3, 8))),
        (
            Wrong("turned", ["not", named], "Another word wins. A negative factor turns the order round; a single logit moves one word.",
                  lambda random: edits(edit("head.logits", "scale", -random.uniform(1, 8)))),
            Wrong("flatter", ["<=", ["max", ["softmax", value(LAST)]], ["-", ["max", ["softmax", plain(LAST)]], 0.005]], "The model is less sure: a factor below 1 is a temperature above 1.",
                  lambda random: edits(edit("head.logits", "scale", random.uniform(0.1, 0.7)))),
            Wrong("too-little", [">=", ["max", ["softmax", value(LAST)]], ["+", ["max", ["softmax", plain(LAST)]], 1e-3]], "A little surer, not everywhere by 0.05.",
                  lambda random: edits(edit("head.logits", "scale", random.uniform(1.03, 1.06)))),
        ),
        (Allowed("head.logits", ("scale",)),), view="logits",
    )  # fmt: skip


def _ratio() -> Exercise:
    vocabulary = drawn_decoder().tokenizer.vocab_size
    logits = reading(drawn_decoder(), SHOWN, "head.logits")[-vocabulary:]
    first, second = (logits.index(x) for x in sorted(logits, reverse=True)[:2])
    a, b = value(f"head.logits[t=-1,v={first}]"), value(f"head.logits[t=-1,v={second}]")
    x, y = logits[first], logits[second]
    return Exercise(
        "ratio", "How much likelier",
        f"At the last position the best word has the logit {x:.3f}, the second best {y:.3f}. How many times as likely is the best one?",
        "decoder", {"shown": SHOWN}, answered(["exp", ["-", a, b]], by=0.01),
        "e to the difference of the logits. Adding the same number to all logits changes nothing.",
        says(math.exp(x - y), by=0.004),
        (
            Wrong("difference", answered(["-", a, b], by=0.005), "That is the difference. Softmax takes its exponential.", says(x - y, by=0.003)),
            Wrong("quotient", answered(["/", a, b], by=0.005), "That is the quotient of the logits. Logits are logarithms: subtract them.", says(x / y, by=0.003)),
            Wrong("inverse", answered(["exp", ["-", b, a]], by=0.005), "That is how likely the second best is, measured by the best.", says(math.exp(y - x), by=0.003)),
        ),
        view="logits",
    )  # fmt: skip


def _loss() -> Exercise:
    model = drawn_decoder()
    vocabulary, target = model.tokenizer.vocab_size, model.tokenizer.encode("lion")[0]
    logits = reading(model, SHOWN, "head.logits")[:vocabulary]
    share = math.exp(logits[target]) / sum(map(math.exp, logits))
    p = ["at", ["softmax", value("head.logits[t=0]")], ["at", ["ids", "decoder"], 1]]
    return Exercise(
        "loss", "The loss at one position",
        f"After the first word the model gives the right next word the probability {share:.3f}. What is the loss there, in nats? Two digits.",
        "decoder", {"shown": SHOWN}, answered(["-", 0, ["log", p]], by=0.01),
        "-ln p. It is 0 if the model is sure and right, and ln V if all V words are equally likely to it. Training lowers its mean over "
        "all positions.",
        says(-math.log(share), by=0.006),
        (
            Wrong("probability", answered(p, by=0.005), "That is the probability. The loss is its negative logarithm.", says(share, by=0.003)),
            Wrong("rest", answered(["-", 1, p], by=0.005), "That is the probability of all other words.", says(1 - share, by=0.003)),
            Wrong("sign", answered(["log", p], by=0.01), "The logarithm of a probability is negative. The loss is minus that.", says(math.log(share), by=0.006)),
        ),
        view="logits",
    )  # fmt: skip
