"""Document 000: "money bank grows", one head of width 64."""

from collections.abc import Sequence

import torch

from clearhead.api import Model
from clearhead_lab.examples.records import records
from clearhead_lab.walks.chain import ATTENTION, UNKNOWN, Chain, Json, Walk, encoder, printed, put, stop

TEXT = "money bank grows"
MONEY, BANK, GROWS = range(3)
D_HEAD = 64


def model() -> Model:
    """The three numbers that the document shows of each embedding, and matrices that give its scores.

    It prints no matrix. With X the embeddings and S the printed scores, W_Q = X⁻¹ S and W_K = X⁻¹ give queries and keys
    with the products S. W_V = 1 takes the embeddings as values.
    """
    inputs = records()["s0-20"].inputs
    table = {word: inputs[f"e_{word}"] for word in TEXT.split()}
    x = torch.tensor(list(table.values()), dtype=torch.float64)
    scores = torch.tensor(records()["s0-12"].inputs["Scores"], dtype=torch.float64)
    narrow = {"q": torch.linalg.solve(x, scores), "k": torch.linalg.inv(x), "v": torch.eye(3, dtype=torch.float64)}
    wide = {name: torch.nn.functional.pad(matrix, (0, D_HEAD - 3)) for name, matrix in narrow.items()}
    words = {word: i for i, word in enumerate([*TEXT.split(), UNKNOWN])}
    return encoder(words, table, d_head=D_HEAD, weights=wide)


def stops() -> Sequence[Json]:
    """The chain from the scores on, which the document prints."""
    own = dict(query=MONEY, key=BANK)
    weights = f"{ATTENTION}.weights[h=0]"
    claimed = put(weights, records()["s0-16"].printed)
    return [
        stop(
            "tokens",
            "tokens",
            "Three words get three numbers: any would do, as long as each word has its own.",
            printed=[printed("s0-01", rows=())],
        ),
        stop(
            "embedding",
            "embedding",
            "The document shows three of the 512 numbers of each word, and here these three are the whole vector.",
            **own,
        ),
        stop(
            "qkv",
            "attention",
            "It prints no matrix, so these queries and keys of {d_head} numbers are made to have the "
            "products that it does print.",
            step="qkv",
            printed=[printed("s0-04")],
            **own,
        ),
        stop(
            "scores",
            "attention",
            "The query of “{query}” and the key of “{key}” have the product {score}, as the document supposes.",
            step="scores",
            numbers={"score": {"at": "{at}.scores.product[h={head},t={t},s={s}]"}},
            **own,
        ),
        stop(
            "scaled",
            "attention",
            "Divided by √{d_head} = {root} it becomes {score}.",
            step="scaled",
            numbers={"score": {"at": "{at}.scores[h={head},t={t},s={s}]"}},
            printed=[printed("s0-12", f"{ATTENTION}.scores[h=0]"), printed("s0-15", f"{ATTENTION}.scores[h=0,t=0]")],
            question={
                "ask": "The next step of the document is a softmax of 2.0, 1.0 and 0.1. Is that the row of “money”?",
                "choices": ["Yes", "No"],
                "right": 1,
                "because": "Its row is 1.90, 1.60 and 1.04: the two steps of the document do not fit together.",
            },
            **own,
        ),
        stop(
            "softmax",
            "attention",
            "Softmax of the scaled scores gives “{query}” {share} for “{key}”, and no printed row is the "
            "softmax of its scores.",
            step="softmax",
            numbers={"share": {"at": "{at}.weights[h={head},t={t},s={s}]"}},
            printed=[printed("s0-16", weights)],
            **own,
        ),
        stop(
            "example",
            "attention",
            "The softmax that the document works through is right for the scores it begins with.",
            step="softmax",
            title="The worked softmax",
            printed=[printed("s0-14", rows=()), printed("s0-13", rows=())],
            **own,
        ),
        stop(
            "rows",
            "attention",
            "In run B the printed weights are put in: each row adds up to 1, and a row belongs to the word that asks.",
            step="softmax",
            title="As printed",
            edits=claimed,
            printed=[printed("s0-17", rows=()), printed("s0-18")],
            query=BANK,
            key=BANK,
        ),
        stop(
            "weighted",
            "attention",
            "With the printed weights, the sum of the embeddings themselves is not the printed output "
            "either, and the matrix of the values is not given.",
            step="weighted",
            edits=claimed,
            printed=[printed("s0-20", rows=())],
            query=MONEY,
            key=BANK,
        ),
    ]


CHAIN = Chain(
    "money",
    "document 000, sections 5 to 10",
    TEXT,
    model,
    lambda: [Walk("money", "“money bank grows”", stops())],
)
