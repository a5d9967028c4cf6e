"""Document 003, section 7: the positions of "river bank" in six dimensions."""

from collections.abc import Sequence

import torch

from clearhead import config as c
from clearhead.api import Model
from clearhead_lab.walks.chain import ATTENTION, UNKNOWN, Chain, Json, Walk, encoder, printed, stop

TEXT, TURNED = "river bank", "bank river"
RIVER, BANK = range(2)
WIDTH = 6
POSITIONS = "encoder.embed.positions"


def model() -> Model:
    """Sinusoidal positions of width 6, with queries, keys and values that are the vectors themselves.

    The document gives no embeddings: each word has a single 1, in a dimension of its own.
    """
    one = torch.eye(WIDTH)
    table = {"river": one[2].tolist(), "bank": one[4].tolist()}
    weights = {name: one.double() for name in "qkv"}
    words = {"river": RIVER, "bank": BANK, UNKNOWN: 2}
    return encoder(words, table, d_head=WIDTH, weights=weights, positions=c.Sinusoidal())


def stops() -> Sequence[Json]:
    """The encodings of two positions, their frequencies, and what they change."""
    share = {"at": "{at}.weights[h={head},t={t},s={s}]"}
    length = {"at": f"{ATTENTION}.z[h=0,t={BANK}]", "take": "length", "digits": 4}
    return [
        stop(
            "tokens",
            "tokens",
            "Two words are two tokens, and so far their order is only the order in which they stand.",
        ),
        stop(
            "zero",
            "position",
            "The first position, 0, gets a vector of sines and cosines of 0: zeros and ones.",
            title="Position 0",
            query=RIVER,
            printed=[printed("s3-10", f"{POSITIONS}[t=0]")],
        ),
        stop(
            "one",
            "position",
            "At position 1 every pair has turned by an angle of its own.",
            title="Position 1",
            query=BANK,
            printed=[printed("s3-11", f"{POSITIONS}[t=1]")],
            question={
                "ask": "Which pair of numbers turns fastest from one position to the next?",
                "choices": ["the first", "the last", "all alike"],
                "right": 0,
                "because": "The first pair turns by a whole radian, the last by two thousandths.",
            },
        ),
        stop(
            "frequencies",
            "position",
            "The angles per step are 1, 1/10000^(1/3) and 1/10000^(2/3), as the document’s own formula says.",
            title="Frequencies",
            query=BANK,
            printed=[printed("s3-12a", rows=()), printed("s3-12b", rows=()), printed("s3-12c", rows=())],
        ),
        stop(
            "sum",
            "embedding",
            "The position is added to the word; the document gives no numbers for its words, so here each "
            "has a single 1.",
            query=BANK,
        ),
        stop(
            "order",
            "attention",
            "In “river bank”, “{query}” spends {share} of its attention on “{key}”.",
            step="softmax",
            title="In this order",
            numbers={"share": share},
            query=BANK,
            key=RIVER,
        ),
        stop(
            "turned",
            "attention",
            "Run B reads “bank river”: the same words at other positions, with other shares.",
            step="softmax",
            title="In the other order",
            other=TURNED,
            query=BANK,
            key=RIVER,
        ),
        stop(
            "without",
            "attention",
            "Without positions the output of “bank” has length {length} in either order: its "
            "neighbour still counts, only the order does not.",
            step="weighted",
            title="Without positions",
            numbers={"length": length},
            change={"positions": "none"},
            query=BANK,
            key=RIVER,
            printed=[printed("s3-28")],
        ),
    ]


CHAIN = Chain(
    "river",
    "document 003, section 7",
    TEXT,
    model,
    lambda: [Walk("river", "The positions of “river bank”", stops())],
)
