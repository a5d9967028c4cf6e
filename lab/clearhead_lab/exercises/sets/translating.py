"""Cross-attention: a decoder that reads an encoder."""

from clearhead_lab.exercises.exercise import Allowed, Exercise, ExerciseSet, Input, Option, Wrong
from clearhead_lab.exercises.language import Term
from clearhead_lab.exercises.networks import translator
from clearhead_lab.exercises.writing import *

CROSS = "decoder.blocks.0.cross"
SHOWN = ("the red car", "la voiture rouge")
TEXTS = (
    ("the yellow house", "la maison jaune"),
    ("the white door", "la porte blanche"),
    ("the red house", "la maison rouge"),
)


def translating() -> ExerciseSet:
    """Exercises on cross-attention."""
    made = [_which_word(), _english_order(), _cut(), _cells(), _whose_keys()]
    return ExerciseSet("translating", "Reading the source: cross-attention", {"translator": translator()}, made)


def _inputs() -> dict[str, Input]:
    """Phrases, each with the same French beside another English."""
    found: dict[str, Input] = {"shown": SHOWN, "shown.other": ("the white door", SHOWN[1])}
    for i, (english, french) in enumerate(TEXTS):
        found |= {f"unseen{i}": (english, french), f"unseen{i}.other": ("the yellow car", french)}
    return found


def _named(t: int, *, as_it_was: bool = False) -> Term:
    at = f"head.logits[t={t}]"
    return word(plain(at) if as_it_was else value(at))


def _is(t: int, was: int) -> Term:
    """Position t names the word that position `was` named before the edits."""
    return ["=", _named(t), _named(was, as_it_was=True), 0.5]


def _row(s: int) -> list[float]:
    return [float(i == s) for i in range(4)]


def _which_word() -> Exercise:
    share = value("@")
    return Exercise(
        "alignment", "Who reads whom",
        "The model has written `la` and is about to write the noun (t = 1). Which word of \"the red car\" does cross-attention read?",
        "translator", _inputs(), every([">=", share, 0.9]),
        "The noun, s = 2: French puts it before the adjective. Cross-attention aligns by what is needed, not by the same place.",
        chosen(2),
        (
            Wrong("article", ["and", ["<=", share, 0.5], option_is(0)], "The article is read at t = 0.", chosen(0)),
            Wrong("same-place", ["and", ["<=", share, 0.5], option_is(1)], "The adjective stands at the same place, but is needed one step later.", chosen(1)),
            Wrong("end", ["and", ["<=", share, 0.5], option_is(3)], "The end is read at the end, where the model writes the end.", chosen(3)),
        ),
        options=tuple(Option(text, at=f"{CROSS}.weights[h=0,t=1,s={s}]") for s, text in enumerate(["the article", "the adjective", "the noun", "the end of the text"])),
    )  # fmt: skip


def _english_order() -> Exercise:
    weights = f"{CROSS}.weights[h=0,"
    both = [edit(f"{weights}t=1]", "set", _row(1)), edit(f"{weights}t=2]", "set", _row(2))]
    return Exercise(
        "english-order", "French words in English order",
        "Make the model write the adjective at t = 1 and the noun at t = 2, for every phrase.",
        "translator", _inputs(), every(["and", _is(1, 2), _is(2, 1)]),
        "Swap two rows of cross-attention. The order of a translation is in where the decoder reads; the words are in what it does with "
        "what it reads.",
        pick(lambda random: shuffled(random, list(both)),
             lambda random: shuffled(random, [edit(f"{CROSS}.scores[h=0,t=1,s=1]", "set", random.uniform(13, 30)),
                                              edit(f"{CROSS}.scores[h=0,t=2,s=2]", "set", random.uniform(13, 30))])),
        (
            Wrong("twice-the-adjective", ["and", _is(1, 2), _is(2, 2)], "The adjective is written twice: t = 2 must read the noun now.",
                  lambda _: edits(both[0])),
            Wrong("twice-the-noun", ["and", _is(1, 1), _is(2, 1)], "The noun is written twice: t = 1 must read the adjective now.", lambda _: edits(both[1])),
            Wrong("article", ["and", _is(1, 0), changed(f"{CROSS}.weights")], "You point at the article. Places count from 0: the adjective is s = 1.",
                  lambda random: shuffled(random, [edit(f"{weights}t=1]", "set", _row(0)), edit(f"{weights}t=2]", "set", _row(1))])),
            Wrong("self-attention", ["and", _is(1, 1), _is(2, 2), changed("decoder.blocks.0.attn.weights")],
                  "That is the decoder's attention to itself, which moves nothing here. Edit `cross`.",
                  lambda _: edits(edit("decoder.blocks.0.attn.weights[h=0,t=2]", "set", [0.0, 1.0, 0.0, 0.0]))),
        ),
        (Allowed(f"{CROSS}.weights", ("set",)), Allowed(f"{CROSS}.scores", ("set",)), Allowed("decoder.blocks.0.attn.weights", ("set",))),
    )  # fmt: skip


def _cut() -> Exercise:
    blind = same(value("head.logits"), value("head.logits", ".other"))
    return Exercise(
        "cut-the-source", "Cut the source off",
        "Make the French independent of the English: with another source the decoder must give the same logits.",
        "translator", _inputs(), every(blind),
        "Switch cross-attention off: it is the only way from the encoder to the decoder. What is left is a language model.",
        pick(lambda _: edits(edit(f"{CROSS}.out", "zero")), lambda _: edits(edit(f"{CROSS}.z", "zero")), lambda _: edits(edit(f"{CROSS}.weights", "zero")),
             lambda _: edits(edit(f"{CROSS}.v", "zero"))),
        (
            Wrong("averages", ["and", ["<=", ["abs", value(f"{CROSS}.scores")], 1e-6], ["not", blind]], "With equal scores the decoder reads the average of the source.",
                  lambda _: edits(edit(f"{CROSS}.scores", "zero"))),
            Wrong("one-place", ["and", changed(f"{CROSS}.out"), ["not", blind]], "One position is cut off, the others still read the source.",
                  lambda random: edits(edit(f"{CROSS}.out[t={random.randint(0, 3)}]", "zero"))),
            Wrong("self-attention", ["and", unchanged(f"{CROSS}.out"), ["not", blind]], "That attention reads only its own text. The source comes in by `cross`.",
                  pick(lambda _: edits(edit("decoder.blocks.0.attn.weights", "zero")), lambda _: edits(edit("encoder.blocks.0.attn.weights", "zero")))),
        ),
        (Allowed(f"{CROSS}.out", ("zero",)), Allowed(f"{CROSS}.z", ("zero",)), Allowed(f"{CROSS}.v", ("zero",)), Allowed(f"{CROSS}.scores", ("zero",)), Allowed(f"{CROSS}.weights", ("zero",)),
         Allowed("decoder.blocks.0.attn.weights", ("zero",)), Allowed("encoder.blocks.0.attn.weights", ("zero",))),
    )  # fmt: skip


def _cells() -> Exercise:
    queries, keys = ["count", ["ids", "decoder"]], ["count", ["ids", "encoder"]]
    return Exercise(
        "cross-shape", "The shape of cross-attention",
        "The source has 4 tokens (the end included), the decoder has read 3. How many scores has one head of cross-attention?",
        "translator", {"shown": ("the red car", "la voiture")}, answered(["count", value(f"{CROSS}.scores[h=0]")], by=0.01),
        "12 = 3 · 4: a row for each position of the decoder, a column for each of the encoder. In the document's problem the scores are "
        "(B, h, T_dec, T_enc) = (2, 8, 5, 7).",
        says(12.0),
        (
            Wrong("self", answered(["*", queries, queries], by=0.01), "That would be the decoder's attention to itself.", says(9.0)),
            Wrong("encoder", answered(["*", keys, keys], by=0.01), "That would be the encoder's attention to itself.", says(16.0)),
            Wrong("sum", answered(["+", queries, keys], by=0.01), "Each position of the decoder is compared with each of the encoder: multiply.", says(7.0)),
        ),
        source="document 001, practice problem 2",
    )  # fmt: skip


def _whose_keys() -> Exercise:
    moved = differs(value("@"), value("@", ".other"))
    return Exercise(
        "whose-keys", "Whose queries, whose keys",
        "The source is replaced, the French text stays. Which of these values changes?",
        "translator", _inputs(), every(moved),
        "The values of cross-attention: keys and values come from the encoder, queries from the decoder.",
        chosen(2),
        (
            Wrong("queries", ["and", ["not", moved], option_is(0)], "Queries come from the decoder's own text.", chosen(0)),
            Wrong("self-keys", ["and", ["not", moved], option_is(1)], "Those are the keys of the decoder's attention to itself.", chosen(1)),
            Wrong("embedding", ["and", ["not", moved], option_is(3)], "That is the French text before anything was read.", chosen(3)),
        ),
        options=(Option("the queries of cross-attention", at=f"{CROSS}.q"), Option("the keys of the decoder's self-attention", at="decoder.blocks.0.attn.k"),
                 Option("the values of cross-attention", at=f"{CROSS}.v"), Option("the embedding of the French text", at="decoder.embed.sum")),
    )  # fmt: skip
