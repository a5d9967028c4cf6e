"""Meaning from context: one word, several senses."""

from clearhead_lab.exercises.exercise import Allowed, Exercise, ExerciseSet, Option, Wrong
from clearhead_lab.exercises.networks import D_HEAD, SHARP, bank, drawn_encoder
from clearhead_lab.exercises.writing import *

AT = "encoder.blocks.0.attn"
STATE = "encoder.blocks.0.resid_post[t=2]"
LOGITS = "head.logits[t=2]"
SENSE = ["-", value("head.logits[t=2,v=0]"), value("head.logits[t=2,v=1]")]
BOTH = {
    "shown": "the river bank near money", "unseen0": "the water bank near cash", "unseen1": "near water bank by money",
    "unseen2": "by river bank flows cash", "unseen3": "the river bank grows cash",
}  # fmt: skip
PAIRS = {
    "shown": "the money bank grows near", "shown.other": "the river bank grows near", "unseen0": "by cash bank near the",
    "unseen0.other": "by water bank near the", "unseen1": "near money bank flows by", "unseen1.other": "near water bank flows by",
}  # fmt: skip


def meaning() -> ExerciseSet:
    """Exercises on static and contextual vectors."""
    made = [
        _finance(),
        _static(),
        _which_word(),
        _values(),
        _before(),
        _after(),
        _without_matrices(),
        _query_and_keys(),
    ]
    return ExerciseSet("meaning", "Meaning from context", {"bank": bank(), "drawn": drawn_encoder()}, made)


def _finance() -> Exercise:
    logits, row = f"{AT}.weights[h=0,t=2]", [0.0, 0.0, 0.0, 0.0, 1.0]
    return Exercise(
        "choose-a-sense", "Choose a sense",
        "`bank` reads a word of nature (s = 1) and a word of finance (s = 4), and cannot decide. Make it finance, in every "
        "such sentence: its logit of finance at least 1 above that of nature.",
        "bank", BOTH, every([">=", SENSE, 1]),
        "What a word means here is what it reads: move the attention of head 0 at t = 2 to the word of finance, or take the "
        "value of the other word away.",
        pick(lambda random: edits(edit(f"{AT}.scores[h=0,t=2,s=4]", "set", random.uniform(9, 30))),
             lambda _: edits(edit(f"{AT}.scores[h=0,t=2,s=1]", "close")), lambda _: edits(edit(logits, "set", row)),
             lambda _: edits(edit(f"{AT}.v[h=0,s=1]", "zero"))),
        (
            Wrong("nature", ["<=", SENSE, -1], "Now it is a river bank. The word of finance is s = 4.",
                  pick(lambda random: edits(edit(f"{AT}.scores[h=0,t=2,s=1]", "set", random.uniform(9, 30))),
                       lambda _: edits(edit(f"{AT}.scores[h=0,t=2,s=4]", "close")))),
            Wrong("other-head", ["and", unchanged(f"{AT}.weights[h=0]"), changed(f"{AT}.weights[h=1]")],
                  "Head 1 looks elsewhere now, but it adds nothing. Head 0 carries the sense.",
                  lambda random: edits(edit(f"{AT}.scores[h=1,t=2,s=4]", "set", random.uniform(12, 30)))),
            Wrong("other-word", ["and", unchanged(f"{AT}.weights[h=0,t=2]"), changed(f"{AT}.weights[h=0]")],
                  "Another word reads finance. `bank` stands at t = 2: that is the row.",
                  lambda random: edits(edit(f"{AT}.scores[h=0,t={random.choice([1, 3])},s=4]", "set", random.uniform(9, 30)))),
            Wrong("no-sense", ["<=", ["abs", value(LOGITS)], 0.5], "`bank` reads neither word now, so it has no sense.",
                  pick(lambda _: edits(edit(logits, "set", [0.0, 0.0, 1.0, 0.0, 0.0])), lambda _: edits(edit(logits, "zero")))),
        ),
        (Allowed(f"{AT}.scores", ("set", "close")), Allowed(f"{AT}.weights", ("set", "zero")), Allowed(f"{AT}.v", ("zero",))),
    )  # fmt: skip


def _static() -> Exercise:
    alike = same(value(STATE), value(STATE, ".other"))
    return Exercise(
        "static-again", "Make the vector static",
        "After attention `bank` (t = 2) has another vector beside `money` than beside `river`. Make its vector the same in both, "
        "as in a static table.",
        "bank", PAIRS, ["and", every(alike), every([">=", ["sum", ["*", value(STATE), value(STATE)]], 0.5])],
        "A static vector is what is left if attention adds nothing, or nothing but the word itself. The context comes in only "
        "through head 0.",
        pick(lambda _: edits(edit(f"{AT}.out[t=2]", "zero")), lambda _: edits(edit(f"{AT}.z[h=0,t=2]", "zero")),
             lambda _: edits(edit(f"{AT}.out", "zero")), lambda _: edits(edit(f"{AT}.weights[h=0,t=2]", "zero")), lambda _: edits(edit(f"{AT}.weights[h=0,t=2]", "set", [0.0, 0.0, 1.0, 0.0, 0.0]))),
        (
            Wrong("averages", ["<=", ["abs", value(f"{AT}.scores[h=0,t=2]")], 1e-6],
                  "With equal scores `bank` averages all words, the context among them.",
                  pick(lambda _: edits(edit(f"{AT}.scores[h=0,t=2]", "zero")), lambda _: edits(edit(f"{AT}.scores", "zero")))),
            Wrong("other-head", ["and", unchanged(f"{AT}.z[h=0]"), changed(f"{AT}.weights[h=1]")],
                  "Head 1 is off, but it never added anything. Head 0 brings the context.",
                  lambda _: edits(edit(f"{AT}.weights[h=1]", "zero"))),
            Wrong("other-word", ["and", unchanged(f"{AT}.z[h=0,t=2]"), changed(f"{AT}.out")],
                  "Another position is static now. `bank` stands at t = 2.",
                  lambda random: edits(edit(f"{AT}.out[t={random.choice([0, 1, 3, 4])}]", "zero"))),
            Wrong("weaker", changed(f"{AT}.z[h=0,t=2]"), "The context is weaker, but still there.",
                  lambda random: edits(edit(f"{AT}.z[h=0,t=2]", "scale", random.uniform(0.2, 0.8)))),
        ),
        (Allowed(f"{AT}.out", ("zero",)), Allowed(f"{AT}.z", ("zero", "scale")), Allowed(f"{AT}.scores", ("zero",)),
         Allowed(f"{AT}.weights", ("set", "zero"))), view="residual",
        source="document 003, question 1 on self-attention",
    )  # fmt: skip


def _which_word() -> Exercise:
    share = value("@")
    return Exercise(
        "which-word", "The word that decides",
        "Which word tells `bank` what it means, in head 0?",
        "bank", {name: text for name, text in PAIRS.items() if "." not in name}, every([">=", share, 0.9]),
        "The word of finance: its key answers what `bank` asks for. `the` is never asked by head 0, and `bank` does not look "
        "at itself.",
        chosen(1),
        (
            Wrong("first", ["and", ["<=", share, 0.5], option_is(0)], "Head 0 gives it almost nothing. Head 1 looks at `the`, and adds nothing.", chosen(0)),
            Wrong("itself", ["and", ["<=", share, 0.5], option_is(2)],
                  "A word need not look at itself: its own vector is in the stream already.", chosen(2)),
            Wrong("neighbour", ["and", ["<=", share, 0.5], option_is(3)], "It stands next to `bank`, but distance does not count here: there are no positions.", chosen(3)),
        ),
        options=tuple(Option(f"{text} (s = {s})", at=f"{AT}.weights[h=0,t=2,s={s}]") for s, text in enumerate(["the", "money", "bank", "grows"])),
    )  # fmt: skip


def _values() -> Exercise:
    routing = unchanged(f"{AT}.weights[h=0]")
    silent = ["<=", ["abs", value(LOGITS)], 0.1]
    others = ["and", *(unchanged(f"{AT}.v[h=0,s={s}]") for s in (0, 2, 3, 4))]
    return Exercise(
        "value-not-key", "Read it and learn nothing",
        "`bank` gives nearly all of head 0's attention to `money`. Keep every weight as it is, but let `money` tell it nothing: "
        "both logits of `bank` near 0. Only `money` may change.",
        "bank", {"shown": "the money bank grows near", "unseen0": "by cash bank near the", "unseen1": "near money bank flows by"},
        every(["and", routing, silent, others, ["<=", ["abs", value(f"{AT}.v[h=0,s=1]")], 0.05]]),
        "Take its value away, not its key. The query and the keys decide how much is read; the value is what is read.",
        pick(lambda _: edits(edit(f"{AT}.v[h=0,s=1]", "zero")), lambda _: edits(edit(f"{AT}.v[s=1]", "zero")),
             lambda random: edits(edit(f"{AT}.v[h=0,s=1]", "scale", random.uniform(0, 0.01)))),
        (
            Wrong("routing", ["not", routing], "The weights changed: `bank` looks elsewhere. Scores, queries and keys are about where it looks.",
                  pick(lambda _: edits(edit(f"{AT}.scores[h=0,t=2,s=1]", "close")), lambda _: edits(edit(f"{AT}.k[h=0,s=1]", "zero")),
                       lambda _: edits(edit(f"{AT}.q[h=0,t=2]", "zero")))),
            Wrong("deaf", ["and", silent, unchanged(f"{AT}.v")],
                  "`bank` hears nothing at all now: you silenced the whole head for it. Only the value of `money`, s = 1, was meant.",
                  pick(lambda _: edits(edit(f"{AT}.z[h=0,t=2]", "zero")), lambda _: edits(edit(f"{AT}.z[t=2]", "zero")))),
            Wrong("other-value", ["and", unchanged(f"{AT}.v[h=0,s=1]"), changed(f"{AT}.v")], "You changed the value of another word. `money` stands at s = 1.",
                  lambda random: edits(edit(f"{AT}.v[h=0,s={random.choice([0, 3, 4])}]", "set", random.choice([-1, 1]) * random.uniform(0.5, 2)))),
            Wrong("weaker", changed(f"{AT}.v[h=0,s=1]"), "`money` tells less, but still enough. Make its value zero.",
                  lambda random: edits(edit(f"{AT}.v[h=0,s=1]", "scale", random.uniform(0.3, 0.8)))),
        ),
        (Allowed(f"{AT}.v", ("zero", "scale", "set")), Allowed(f"{AT}.k", ("zero",)), Allowed(f"{AT}.q", ("zero",)), Allowed(f"{AT}.scores", ("close",)), Allowed(f"{AT}.z", ("zero",))),
        source="document 003, question 2 on self-attention",
    )  # fmt: skip


def _cosine(at: str) -> list[object]:
    return ["cosine", value(at), value(at, ".other")]


def _before() -> Exercise:
    return Exercise(
        "static-cosine", "Before attention",
        "What is the cosine between the embeddings of `bank` in \"the money bank grows near\" and in \"the river bank grows near\"?",
        "bank", PAIRS, answered(_cosine("encoder.embed.sum[t=2]"), by=0.01),
        "1: it is the same row of the table. That is the trouble with static vectors: one vector for all senses.",
        says(1.0),
        (
            Wrong("contextual", answered(_cosine(STATE), by=0.02), "That is the cosine after attention.", says(0.5)),
            Wrong("unlike", answered(0, by=0.01), "0 would be two unrelated words. The table has one row for `bank`.", says(0.0)),
            Wrong("opposite", answered(-1, by=0.01), "-1 would be opposite vectors. It is the same row.", says(-1.0)),
        ),
        view="embedding",
    )  # fmt: skip


def _after() -> Exercise:
    return Exercise(
        "contextual-cosine", "After attention",
        "`bank` is a vector of length 1. Attention adds a vector of length nearly 1 at a right angle to it: finance beside `money`, "
        "nature beside `river`, themselves at a right angle. What is the cosine of the two results, to 0.02?",
        "bank", PAIRS, answered(_cosine(STATE), by=0.02),
        "1/2: they share the part that is `bank`, and each has length √2. So a contextual vector keeps the word and adds its sense.",
        says(0.5, by=0.01),
        (
            Wrong("static", answered(_cosine("encoder.embed.sum[t=2]"), by=0.01), "That is the cosine before attention.", says(1.0)),
            Wrong("senses-only", answered(_cosine(f"{AT}.out[t=2]"), by=0.02), "That is the cosine of what attention adds. The word itself stays in the stream.", says(0.0)),
            Wrong("not-squared", answered(["/", 1, ["sqrt", 2]], by=0.02), "Both vectors are √2 long: 1 is divided by √2 twice.", says(0.7071, by=0.01)),
        ),
        view="residual",
    )  # fmt: skip


def _without_matrices() -> Exercise:
    def product(s: int) -> list[object]:
        return ["sum", ["*", value("encoder.embed.sum[t=2]"), value(f"encoder.embed.sum[t={s}]")]]

    score = value(f"{AT}.scores[h=0,t=2,s=1]")
    return Exercise(
        "without-matrices", "Why the matrices are learned",
        f"`bank` gives `money` the score {SHARP / D_HEAD**0.5:.2f}. Which score would it be without W_Q, W_K and the scale: the plain product of "
        "their two embeddings?",
        "bank", {"shown": "the money bank grows near"}, answered(product(1), by=0.01),
        "0: rows of different words stand at right angles here, so each word would find only itself, in every text and for every task. W_Q and "
        "W_K are trained, and let `bank` look for `money`.",
        says(0.0),
        (
            Wrong("itself", answered(product(2), by=0.01), "That is the product of `bank` with itself. Without matrices each word fits itself best.", says(1.0)),
            Wrong("learned", answered(score, by=0.01), "That is the score with the matrices.", says(SHARP / D_HEAD**0.5, by=0.005)),
            Wrong("unscaled", answered(["*", score, ["sqrt", ["count", value(f"{AT}.q[h=0,t=2]")]]], by=0.05),
                  "That is the score with the matrices, before it is scaled.", says(SHARP)),
        ),
        source="document 003, question 3 on self-attention", view="embedding",
    )  # fmt: skip


def _query_and_keys() -> Exercise:
    weights = f"{AT}.weights[h=0"
    one_row = ["and", changed(f"{weights},t=2]"), *(unchanged(f"{weights},t={t}]") for t in (0, 1, 3))]
    return Exercise(
        "query-and-keys", "One query, all keys",
        "Which edit changes the weights of word 2 and of no other word?",
        "drawn", {"shown": "the lion sees deer", "unseen0": "a deer kills old", "unseen1": "big lion the sees"},
        every(one_row),
        "Its query. The weights of word 2 come from its one query and all keys; a key of word 2 takes part in everybody's "
        "weights. (So answer b of the quiz is right: \"you would use query q2, and all keys\".)",
        chosen(0),
        (
            Wrong("key", ["and", changed(f"{weights},t=0]"), unchanged(f"{AT}.q")],
                  "A key is compared with every query: it changes a column of scores, so every row of weights.", chosen(1)),
            Wrong("value", unchanged(f"{AT}.weights"), "Values take no part in the weights.", chosen(2)),
            Wrong("embedding", changed(f"{AT}.q"), "The embedding makes its query, its key and its value, so all rows change.", chosen(3)),
        ),
        options=(Option("zero the query q of word 2", (edit(f"{AT}.q[t=2]", "zero"),)), Option("zero the key k of word 2", (edit(f"{AT}.k[s=2]", "zero"),)),
                 Option("zero the value v of word 2", (edit(f"{AT}.v[s=2]", "zero"),)),
                 Option("change a component of the embedding of word 2", (edit("encoder.embed.sum[t=2,d=0]", "set", 3.0),))),
        source="document 004, quiz on attention, a and b",
    )  # fmt: skip
