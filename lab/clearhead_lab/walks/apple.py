"""Document 002: "I love apple phones", one head of width 2."""

from collections.abc import Sequence

from clearhead.api import Model
from clearhead_lab.examples.records import records
from clearhead_lab.walks.chain import ATTENTION, UNKNOWN, Chain, Json, Walk, encoder, matrix, printed, put, stop

TEXT = "I love apple phones"
LOVE, APPLE, PHONES = 1, 2, 3
SCORES, WEIGHTS = f"{ATTENTION}.scores.product[h=0]", f"{ATTENTION}.weights[h=0]"


def model() -> Model:
    """The embeddings and the matrices of head 1. Nothing follows the head, because its output matrix is not given."""
    words = {word: i for i, word in enumerate([*TEXT.split(), UNKNOWN])}
    table: dict[str, list[float]] = dict(zip(TEXT.split(), matrix("s2-15", "X").tolist(), strict=True))
    return encoder(words, table, d_head=2, weights={name: matrix("s2-15", f"W_{name}") for name in "qkv"})


def right() -> Sequence[Json]:
    """The chain from the embeddings on."""
    attention = dict(query=APPLE, key=PHONES)
    return [
        stop("tokens", "tokens", "The document takes four words, each a token with a number of its own."),
        stop(
            "embedding",
            "embedding",
            "Each word starts as a row of {d_model} numbers that the document chose by hand, where a real "
            "model has hundreds that it learned.",
            query=APPLE,
        ),
        stop(
            "queries",
            "attention",
            "Its first matrix turns each row into a query of {d_head} numbers, as printed.",
            step="qkv",
            title="Queries",
            printed=[printed("s2-04", f"{ATTENTION}.q[h=0]")],
            **attention,
        ),
        stop(
            "keys",
            "attention",
            "The keys come from the second matrix in the same way, and no printed row is that product.",
            step="qkv",
            title="Keys",
            printed=[printed("s2-05", f"{ATTENTION}.k[h=0]")],
            **attention,
        ),
        stop(
            "values",
            "attention",
            "Nor is any printed value the product with the third matrix.",
            step="qkv",
            title="Values",
            printed=[printed("s2-06", f"{ATTENTION}.v[h=0]")],
            **attention,
        ),
        stop(
            "scores",
            "attention",
            "With the right keys, “{query}” and “{key}” have the score {score}.",
            step="scores",
            numbers={"score": {"at": "{at}.scores.product[h={head},t={t},s={s}]"}},
            printed=[printed("s2-08", SCORES)],
            **attention,
        ),
        stop(
            "scaled",
            "attention",
            "The head is {d_head} wide, so that every score is divided by √{d_head} = {root}.",
            step="scaled",
            printed=[printed("s2-09", rows=())],
            question={
                "ask": (
                    "The document says that “apple” attends strongly to one word. Which word gets its largest share?"
                ),
                "choices": "keys",
                "right": {"largest": "{at}.weights[h={head},t={t}]"},
                "because": "{right} has {most}, hardly more than a quarter.",
                "numbers": {"most": {"at": "{at}.weights[h={head},t={t}]", "take": "most", "as": "percent"}},
            },
            **attention,
        ),
        stop(
            "softmax",
            "attention",
            "“{query}” spends {share} of its attention on “{key}”, and its row is nearly even.",
            step="softmax",
            numbers={"share": {"at": "{at}.weights[h={head},t={t},s={s}]", "as": "percent"}},
            printed=[printed("s2-11", WEIGHTS), printed("s2-17")],
            **attention,
        ),
        stop(
            "weighted",
            "attention",
            "So the head’s answer for “{query}” is close to the mean of all four values.",
            step="weighted",
            printed=[printed("s2-15", f"{ATTENTION}.z[h=0]")],
            **attention,
        ),
        stop(
            "second",
            "attention",
            "The document sets a second head beside this one and prints its output without its matrices, so "
            "that the walk ends here.",
            step="weighted",
            title="Head 2",
            printed=[printed("s2-16")],
            **attention,
        ),
    ]


def as_printed() -> Sequence[Json]:
    """The same with the printed numbers put in where the document uses them."""
    known = records()
    values = put(f"{ATTENTION}.k[h=0]", known["s2-05"].printed, "s") + put(
        f"{ATTENTION}.v[h=0]", known["s2-06"].printed, "s"
    )
    scaled = [[x / 2**0.5 for x in row] for row in known["s2-07"].printed]
    scores = values + put(f"{ATTENTION}.scores[h=0]", scaled)
    attention = dict(query=APPLE, key=PHONES)
    return [
        stop(
            "queries",
            "attention",
            "This walk follows the page: the queries are right, and in run B the printed keys and values "
            "stand in the place of the products.",
            step="qkv",
            title="Queries",
            edits=values,
            printed=[printed("s2-05"), printed("s2-06")],
            **attention,
        ),
        stop(
            "scores",
            "attention",
            "From the printed keys follow the printed scores, all but two.",
            step="scores",
            edits=values,
            printed=[printed("s2-07", SCORES)],
            query=LOVE,
            key=PHONES,
        ),
        stop(
            "softmax",
            "attention",
            "From the printed scores, those two included, follow the printed weights.",
            step="softmax",
            edits=scores,
            printed=[printed("s2-10", WEIGHTS), printed("s2-12", rows=())],
            **attention,
        ),
        stop(
            "weighted",
            "attention",
            "And from those weights and the printed values follows the printed output, to the last digit or "
            "the one before.",
            step="weighted",
            edits=scores,
            printed=[printed("s2-13", f"{ATTENTION}.z[h=0]")],
            **attention,
        ),
    ]


CHAIN = Chain(
    "apple",
    "document 002, Steps 1 to 10",
    TEXT,
    model,
    lambda: [
        Walk("apple", "“I love apple phones”, computed", right()),
        Walk("apple-as-printed", "“I love apple phones”, as printed", as_printed()),
    ],
)
