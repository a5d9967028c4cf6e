"""Document 003, section 5: "money bank" in two dimensions."""

from collections.abc import Sequence

from clearhead.api import Model
from clearhead_lab.walks.chain import ATTENTION, UNKNOWN, Chain, Json, Walk, encoder, matrix, printed, stop

TEXT = "money bank"
MONEY, BANK = range(2)
BANK_Y = (-22 + 1100**0.5) / 14
"""The root of 7 y² + 22 y = 22: with the vector (1, y), "bank" has the score 32 with itself."""
MONEY_Y = 10 / (5 * (2 + BANK_Y) + 1 + 2 * BANK_Y)
"""The vector (0, y) for which "money" has the score 10 with "bank"."""


def model() -> Model:
    """The printed matrices, and embeddings in the printed directions that give the printed scores."""
    table = {"money": (0.0, MONEY_Y), "bank": (1.0, BANK_Y)}
    weights = {name: matrix("s3-04", f"W_{name}") for name in "qkv"}
    return encoder({"money": MONEY, "bank": BANK, UNKNOWN: 2}, table, d_head=2, weights=weights)


def stops() -> Sequence[Json]:
    """The chain, and the parallelogram of the printed weights."""
    bank = dict(query=BANK, key=MONEY)
    share = {"at": "{at}.weights[h={head},t={t},s={s}]", "digits": 7}
    claimed = {"at": f"{ATTENTION}.weights[h=0,t={BANK}]", "do": "set", "value": [0.2, 0.8]}
    return [
        stop(
            "embedding",
            "embedding",
            "Each word is an arrow in the plane; the figure with their ends is lost, and these two ends give "
            "exactly the scores that the document prints.",
            query=BANK,
            printed=[printed("s3-04", rows=())],
        ),
        stop(
            "qkv",
            "attention",
            "Three matrices of two rows and two columns turn each arrow into a query, a key and a value.",
            step="qkv",
            **bank,
        ),
        stop(
            "scores",
            "attention",
            "The query of “bank” and the key of “money” have the score {score}, and with its own key “bank” has {own}.",
            step="scores",
            numbers={
                "score": {"at": "{at}.scores.product[h={head},t={t},s=0]"},
                "own": {"at": "{at}.scores.product[h={head},t={t},s=1]"},
            },
            **bank,
        ),
        stop(
            "scaled",
            "attention",
            "Divided by √{d_head} they are {score} and {own}.",
            step="scaled",
            numbers={
                "score": {"at": "{at}.scores[h={head},t={t},s=0]"},
                "own": {"at": "{at}.scores[h={head},t={t},s=1]"},
            },
            printed=[printed("s3-05", f"{ATTENTION}.scores[h=0,t={BANK}]")],
            question={
                "ask": (
                    "The two scores of “bank” differ by 15.6. How much of its attention does “bank” give to “money”?"
                ),
                "choices": ["a fifth", "a hundredth", "less than a millionth"],
                "right": 2,
                "because": "Softmax makes e^15.6, some six million, of a difference of 15.6: the share is {share}.",
                "numbers": {"share": share},
            },
            **bank,
        ),
        stop(
            "softmax",
            "attention",
            "Softmax gives “money” {share} of the attention of “bank”, where the document gives it a fifth.",
            step="softmax",
            numbers={"share": share},
            printed=[printed("s3-06", f"{ATTENTION}.weights[h=0,t={BANK}]")],
            **bank,
        ),
        stop(
            "sum",
            "attention",
            "So the output of “bank” is its own value to seven digits, and nothing pulls it toward “money”.",
            step="weighted",
            printed=[printed("s3-07", f"{ATTENTION}.weights[h=0,t={BANK}]")],
            **bank,
        ),
        stop(
            "printed",
            "attention",
            "With the printed weights put in, the output is the diagonal of the parallelogram that the document draws.",
            step="weighted",
            title="As printed",
            edits=[claimed],
            **bank,
        ),
    ]


CHAIN = Chain(
    "geometry",
    "document 003, section 5",
    TEXT,
    model,
    lambda: [Walk("geometry", "“money bank” in the plane", stops())],
)
