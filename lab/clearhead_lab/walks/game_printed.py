"""Document 004: "When you play game of thrones" as printed, each error put in where the document makes it."""

from collections.abc import Sequence

from clearhead_lab.examples.records import records
from clearhead_lab.walks.chain import ATTENTION, BLOCK, Json, printed, put, stop
from clearhead_lab.walks.game_network import POSITIONS, SUM, TEXT, WORD, table, theirs


def as_printed() -> Sequence[Json]:
    """The chain with each printed error put in where the document makes it: all that follows is as printed."""
    positions = put(POSITIONS, table()["printed"])
    read = put(SUM, theirs("s4-09"))
    mixed = [
        *read,
        *put(f"{ATTENTION}.q[h=0]", theirs("s4-10")),
        *put(f"{ATTENTION}.k[h=0]", theirs("s4-11"), "s"),
        *put(f"{ATTENTION}.v[h=0]", theirs("s4-12"), "s"),
    ]
    scaled = mixed + put(f"{ATTENTION}.scores[h=0]", records()["s4-15"].inputs["scaled"])
    weights = mixed + put(f"{ATTENTION}.weights[h=0]", theirs("s4-15"))
    added = read + put(f"{ATTENTION}.out", theirs("s4-17"))
    moments = records()["s4-20a"].inputs
    first = added + _norm("attn", moments)
    summed = added + put(f"{BLOCK}.attn_norm.out", theirs("s4-20a")) + put(f"{BLOCK}.ffn.pre", theirs("s4-22a"))
    last = summed + _norm("ffn", records()["s4-26a"].inputs)
    return [
        stop(
            "positions",
            "position",
            "This walk follows the page: in run B the printed positions stand in the place of the right ones.",
            title="Six positions",
            edits=positions,
            printed=[printed("s4-06", rows=())],
            query=1,
        ),
        stop(
            "sum",
            "embedding",
            "With them the sums are the printed ones.",
            title="Their sum",
            edits=positions,
            printed=[printed("s4-09", SUM) | {"verdict": "reproduces", "cause": ""}],
            query=1,
        ),
        stop(
            "qkv",
            "attention",
            "From the printed sums follow the queries and the keys; what is printed as values are the queries again.",
            step="qkv",
            edits=read,
            printed=[
                printed("s4-10", f"{ATTENTION}.q[h=0]"),
                printed("s4-11", f"{ATTENTION}.k[h=0]"),
                printed("s4-12", f"{ATTENTION}.v[h=0]"),
            ],
            **WORD,
        ),
        stop(
            "scores",
            "attention",
            "The products of the printed queries and keys are right.",
            step="scores",
            edits=mixed,
            printed=[printed("s4-13", f"{ATTENTION}.scores.product[h=0]")],
            **WORD,
        ),
        stop(
            "scaled",
            "attention",
            "They are divided by √6; run B has the quotients as printed.",
            step="scaled",
            edits=scaled,
            printed=[printed("s4-14a", rows=()) | {"rows": TEXT.split()}],
            **WORD,
        ),
        stop(
            "softmax",
            "attention",
            "Their softmax is right.",
            step="softmax",
            edits=scaled,
            printed=[printed("s4-15", f"{ATTENTION}.weights[h=0]")],
            **WORD,
        ),
        stop(
            "weighted",
            "attention",
            "So is the weighted sum of what is printed as values.",
            step="weighted",
            edits=weights,
            printed=[printed("s4-16a", f"{ATTENTION}.z[h=0]")],
            **WORD,
        ),
        stop(
            "added",
            "norm",
            "The printed output of all heads is added to the printed input.",
            title="Add",
            edits=added,
            printed=[printed("s4-18", f"{BLOCK}.attn_sum")],
        ),
        stop(
            "norm",
            "norm",
            "With the printed means and deviations, the rows come out as printed.",
            title="Norm",
            edits=first,
            printed=[printed("s4-20a", f"{BLOCK}.attn_norm.out")],
        ),
        stop(
            "ffn",
            "ffn",
            "The printed products, without their signs, pass the bias and ReLU.",
            edits=summed,
            printed=[printed("s4-22a"), printed("s4-23a", f"{BLOCK}.ffn.post")],
        ),
        stop(
            "second",
            "norm",
            "The second sum and its means are right for these numbers, and the deviations are not.",
            title="Add again",
            edits=summed,
            printed=[
                printed("s4-24", f"{BLOCK}.ffn_sum"),
                printed("s4-25a", f"{BLOCK}.ffn_norm.mean"),
                printed("s4-25b"),
            ],
        ),
        stop(
            "end",
            "norm",
            "With the printed deviations put in, the block ends as printed.",
            title="The end of the block",
            edits=last,
            printed=[printed("s4-26a", f"{BLOCK}.ffn_norm.out")],
        ),
    ]


def _norm(part: str, inputs: Json) -> list[Json]:
    """Edits that put a record's means and deviations in the place of a norm's own."""
    at = f"{BLOCK}.{part}_norm"
    rstd = [[1 / (deviation + inputs["err"])] for deviation in inputs["std"]]
    return put(f"{at}.mean", [[mean] for mean in inputs["mean"]]) + put(f"{at}.rstd", rstd)
