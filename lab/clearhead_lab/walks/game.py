"""Document 004: "When you play game of thrones", a whole encoder block of width 6."""

from collections.abc import Sequence

from clearhead_lab.walks.chain import ATTENTION, BLOCK, Chain, Json, Walk, printed, put, stop
from clearhead_lab.walks.game_network import POSITIONS, SUM, TEXT, WORD, model, table, theirs
from clearhead_lab.walks.game_printed import as_printed


def right() -> Sequence[Json]:
    """The chain with every step corrected. It begins anew at the first residual sum, for which a matrix is lost."""
    given = put(SUM, theirs("s4-09")) + put(f"{ATTENTION}.out", theirs("s4-17"))
    after = dict(edits=given, query=0)
    return [
        stop(
            "tokens",
            "tokens",
            "A vocabulary of 23 words numbers the six words of the sentence.",
            printed=[printed("s4-03", rows=()), printed("s4-04", rows=())],
        ),
        stop(
            "embedding",
            "embedding",
            "Each number picks a row of {d_model} numbers, which the document chose by hand.",
        ),
        stop(
            "zero",
            "position",
            "The first word stands at position 0, whose sines are 0 and whose cosines are 1.",
            title="Position 0",
            printed=[printed("s4-05", f"{POSITIONS}[t=0]"), printed("s4-06", rows=())],
        ),
        stop(
            "positions",
            "position",
            "From dimension 1 on the printed table is wrong, for two reasons at once.",
            title="Six positions",
            query=3,
            printed=[table()],
            question={
                "ask": "How far do sine and cosine of the slowest pair go in five steps?",
                "choices": ["hardly at all", "once round", "many times round"],
                "right": 0,
                "because": (
                    "The slowest pair turns by two thousandths of a radian a step: the printed zeros are nearly "
                    "right, its cosine stays near 1."
                ),
            },
        ),
        stop(
            "sum",
            "embedding",
            "Words and positions are added, so that every row but the first inherits the wrong positions.",
            title="Their sum",
            query=1,
            printed=[printed("s4-09", SUM)],
        ),
        stop(
            "qkv",
            "attention",
            "Three printed matrices make queries, keys and values of {d_head} numbers of the corrected sums.",
            step="qkv",
            **WORD,
        ),
        stop(
            "scores",
            "attention",
            "“{query}” and “{key}” have the score {score}: the numbers of queries and keys are all positive, so "
            "that no product takes anything away.",
            step="scores",
            numbers={"score": {"at": "{at}.scores.product[h={head},t={t},s={s}]"}},
            **WORD,
        ),
        stop(
            "scaled",
            "attention",
            "The head is {d_head} wide, so that the divisor is {root}; the document divides by √6, for the "
            "width of the model.",
            step="scaled",
            printed=[printed("s4-14b")],
            **WORD,
        ),
        stop(
            "softmax",
            "attention",
            "Scores that far apart leave softmax little choice: “{query}” gives itself {share}.",
            step="softmax",
            numbers={"share": {"at": "{at}.weights[h={head},t={t},s={t}]", "as": "percent"}},
            **WORD,
        ),
        stop(
            "weighted",
            "attention",
            "Every row gives most of its attention to the first word, so that all outputs are close to its value.",
            step="weighted",
            printed=[printed("s4-16c", f"{ATTENTION}.z[h=0]")],
            **WORD,
        ),
        stop(
            "output",
            "output",
            "The output matrix was in a figure that is lost; from here on, run B takes the document’s own sums.",
            printed=[printed("s4-17")],
            query=0,
        ),
        stop(
            "added",
            "norm",
            "Its output is added to what the block read.",
            title="Add",
            printed=[printed("s4-18", f"{BLOCK}.attn_sum")],
            **after,
        ),
        stop(
            "norm",
            "norm",
            "A norm subtracts the mean of each row, and the printed means are not arithmetic means.",
            title="Norm",
            printed=[
                printed("s4-19a", f"{BLOCK}.attn_norm.mean"),
                printed("s4-19b"),
                printed("s4-20b", f"{BLOCK}.attn_norm.out"),
            ],
            **after,
        ),
        stop(
            "ffn",
            "ffn",
            "The feed-forward multiplies every row by a matrix and adds a bias; 20 printed signs are lost.",
            printed=[printed("s4-31"), printed("s4-22b", f"{BLOCK}.ffn.pre")],
            **after,
        ),
        stop(
            "relu",
            "ffn",
            "ReLU sets what is negative to 0: for “{query}”, {active} of the units stay on.",
            title="ReLU",
            numbers={"active": {"at": "{block}.ffn.post[t={t}]", "take": "active", "as": "percent"}},
            printed=[printed("s4-23b")],
            **after,
        ),
        stop(
            "end",
            "norm",
            "Added and normalised once more, this is what the block hands on.",
            title="The end of the block",
            printed=[printed("s4-27", f"{BLOCK}.ffn_norm.out")],
            **after,
        ),
    ]


CHAIN = Chain(
    "game",
    "document 004, Steps 1 to 10",
    TEXT,
    model,
    lambda: [
        Walk("game", "“When you play game of thrones”, corrected", right()),
        Walk("game-as-printed", "“When you play game of thrones”, as printed", as_printed()),
    ],
)
