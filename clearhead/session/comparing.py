"""Two models on the same examples: their scores, the difference, and the examples where one is better."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from clearhead.brief import amount, between, cut
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.tasks.evaluation import Example
from clearhead.tasks.scores import RESAMPLES, Score, difference
from clearhead.tasks.task import Evaluation

N_EXAMPLES = 3
"""Examples that are shown for each of the two models, where it is better than the other."""
LENGTH = 200
"""Characters of a text that are shown."""


@dataclass(frozen=True)
class Comparison:
    """Two models on the same examples. Printed, it says which is better, and whether that may be chance."""

    first: str
    second: str
    n: int
    """The number of examples."""
    scores: dict[str, JsonObject]
    """By score: `first`, `second` and `difference`; where examples have a share, also its `interval` and `p`."""
    examples: dict[str, list[tuple[Example, Example]]]
    """The examples where each model is most better, as both have them: `first_better` and `second_better`."""

    @classmethod
    def of(cls, first: str, second: str, one: Evaluation, other: Evaluation) -> Self:
        """Raises UserError unless both are measured on the same examples by one score."""
        check_same(first, second, one, other)
        scores = compared(one, other)
        if not scores:
            raise UserError(
                f"{first} and {second}: expected models of one task, got no score that both have; try others"
            )
        return cls(first, second, len(one.examples), scores, most_different(one.examples, other.examples))

    def __repr__(self) -> str:
        resampled = f"{amount(self.n, 'examples')}; 95% intervals; p from {RESAMPLES:,} paired bootstrap resamples"
        lines = [f"first:  {self.first}", f"second: {self.second}", resampled if self.n else "all data"]
        lines += [line(name, row) for name, row in self.scores.items()]
        return "\n".join([*lines, *(text for title, some in self.examples.items() for text in shown(title, some))])


def check_same(first: str, second: str, one: Evaluation, other: Evaluation) -> None:
    """Raises UserError unless both are measured on the same examples."""
    sizes = len(one.examples), len(other.examples)
    if [(e.source, e.reference) for e in one.examples] != [(e.source, e.reference) for e in other.examples]:
        got = f"{sizes[0]:,} and {sizes[1]:,} examples" if sizes[0] != sizes[1] else "other texts or labels"
        raise UserError(
            f"{first} and {second}: expected the same test data, got {got}; give the data for both with --data,"
            " --text, or --source and --target (language models also need the same tokenizer and length)"
        )


def compared(one: Evaluation, other: Evaluation) -> dict[str, dict[str, Any]]:
    """Each score that both have: the two values and their difference, with intervals where examples have a share."""
    both = {score.name: (score, second) for score in one.scores for second in other.scores if score.name == second.name}
    return {name: _row(*scores) for name, scores in both.items()}


def _row(first: Score, second: Score) -> dict[str, Any]:
    row = {"first": first.value, "second": second.value, "difference": second.value - first.value}
    one, other = first.rows, second.rows
    if one is None or other is None or len(one) != len(other):
        return row
    found = difference(one, other)
    intervals = {"first_interval": one, "second_interval": other, "interval": found}
    return row | {name: [*each.interval] for name, each in intervals.items()} | {"p": found.p}


def line(name: str, row: Mapping[str, Any]) -> str:
    """The comparison of one score, in a line."""
    values = [f"{which} {row[which]:.4f}{_bounds(row.get(f'{which}_interval'))}" for which in ("first", "second")]
    gap = f"difference {row['difference']:+.4f}{_bounds(row.get('interval'), '+.4f')}"
    return "  ".join([f"{name:<12}", *values, gap, *([f"p = {row['p']:.3f}"] if "p" in row else [])])


def _bounds(bounds: Sequence[float] | None, form: str = ".4f") -> str:
    return "" if bounds is None else f" ({between(bounds, form)})"


def most_different(one: Sequence[Example], other: Sequence[Example]) -> dict[str, list[tuple[Example, Example]]]:
    """The examples where each model is most better than the other, as the two models have them."""
    pairs = sorted(zip(one, other, strict=True), key=lambda pair: pair[0].error - pair[1].error)
    first = [pair for pair in pairs[:N_EXAMPLES] if pair[0].error < pair[1].error]
    second = [pair for pair in pairs[::-1][:N_EXAMPLES] if pair[0].error > pair[1].error]
    return {"first_better": first, "second_better": second}


def shown(title: str, pairs: Sequence[tuple[Example, Example]]) -> list[str]:
    """The examples for a person, each with both outputs."""
    lines = [f"{title.replace('_', ' is most clearly ')}:"] if pairs else []
    for a, b in pairs:
        texts = {"source": a.source, "reference": a.reference, "first": a.output, "second": b.output}
        place = f"{a.place}: " if a.place else ""
        for name, text in texts.items():
            words = " ".join((place * (name == "source") + text).split())
            if words or name == "source":
                lines.append(f"    {name:<9}  {cut(words, LENGTH)}")
    return lines
