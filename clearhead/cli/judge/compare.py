"""`clearhead compare`."""

import json as json_lines
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clearhead.cli.options import Device, Files, OneObject, between, cut
from clearhead.errors import UserError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from clearhead.tasks.evaluation import Example
    from clearhead.tasks.scores import Score
    from clearhead.tasks.task import Evaluation

N_EXAMPLES = 3
"""Examples that are shown for each of the two models, where it is better than the other."""
LENGTH = 200
"""Characters of a text that are shown."""


def compare(
    first: str,
    second: str,
    /,
    *,
    source: Files = (),
    target: Files = (),
    text: str | None = None,
    data: str | None = None,
    device: Device = "cpu",
    json: OneObject = False,
) -> None:
    """Compare two models on the same examples: is one better, or is it chance?

    Each score has a 95% interval. The difference has one too, and a p-value, by paired bootstrap resampling of the
    examples. Then follow the examples where each model is most clearly better than the other.
    Without files, both are measured on the test data of their recipes (else on the validation data), which must be
    the same.

    Args:
        first: Folder of a model or run, RUN@STEP for one checkpoint, or the name of a model on the Hugging Face hub.
        second: Another one, of the same task.
        source: Text files of sentences, for translators; with --data, their column.
        target: Text files of their translations, file by file and line by line.
        text: Text file, for language models with one tokenizer.
        data: Table with the columns of the training data, or with those that the other options name.
    """
    from clearhead.cli.judge.scores import json_of, measured
    from clearhead.machine.device import keep_freed_memory
    from clearhead.tasks.scores import RESAMPLES

    files = {"source": source, "target": target, "text": text, "data": data}
    keep_freed_memory()
    evaluations: list[Evaluation] = []
    for name in (first, second):
        _, evaluation, _ = measured(name, files=files, options={}, device=device)
        evaluations.append(evaluation)
    check_same(first, second, *evaluations)
    rows = compared(*evaluations)
    if not rows:
        raise UserError(f"{first} and {second}: expected models of one task, got no score that both have; try others")
    stream = sys.stderr if json else sys.stdout
    n = len(evaluations[0].examples)
    about = f"{n:,} examples; 95% intervals and p from {RESAMPLES:,} paired bootstrap resamples" if n else "all data"
    pairs = most_different(evaluations[0].examples, evaluations[1].examples)
    print(f"first:  {first}", f"second: {second}", about, sep="\n", file=stream)
    print(*(line(name, row) for name, row in rows.items()), sep="\n", file=stream)
    for title, some in pairs.items():
        print(*shown(title, some), sep="\n", file=stream)
    if json:
        examples = {title: [vars(a) | {"other": vars(b)} for a, b in some] for title, some in pairs.items()}
        models: dict[str, JsonValue] = {"first": first, "second": second, "examples": n}
        print(json_lines.dumps(models | {"scores": {name: json_of(row) for name, row in rows.items()}} | examples))


def check_same(first: str, second: str, one: "Evaluation", other: "Evaluation") -> None:
    """Raises UserError unless both are measured on the same examples."""
    sizes = len(one.examples), len(other.examples)
    same = [(e.source, e.reference) for e in one.examples] == [(e.source, e.reference) for e in other.examples]
    if not same:
        got = f"{sizes[0]:,} and {sizes[1]:,} examples" if sizes[0] != sizes[1] else "other texts or labels"
        raise UserError(
            f"{first} and {second}: expected the same test data, got {got}; give the data for both with --data,"
            " --text, or --source and --target (language models also need the same tokenizer and length)"
        )


def compared(one: "Evaluation", other: "Evaluation") -> "dict[str, dict[str, JsonValue]]":
    """Each score that both have: the two values and their difference, with intervals where examples have a share."""
    both = {score.name: (score, second) for score in one.scores for second in other.scores if score.name == second.name}
    return {name: _row(*scores) for name, scores in both.items()}


def _row(first: "Score", second: "Score") -> "dict[str, JsonValue]":
    from clearhead.tasks.scores import difference

    row: dict[str, JsonValue] = {"first": first.value, "second": second.value}
    if first.rows is None or second.rows is None or len(first.rows) != len(second.rows):
        return row | {"difference": second.value - first.value}
    found = difference(first.rows, second.rows)
    row |= {
        "first_interval": [*first.rows.interval],
        "second_interval": [*second.rows.interval],
    }
    return row | {"difference": found.value, "interval": [*found.interval], "p": found.p}


def line(name: str, row: Mapping[str, Any]) -> str:
    """The comparison of one score, in a line."""
    values = [f"{which} {row[which]:.4f}{_bounds(row.get(f'{which}_interval'))}" for which in ("first", "second")]
    gap = f"difference {row['difference']:+.4f}{_bounds(row.get('interval'), '+.4f')}"
    return "  ".join([f"{name:<12}", *values, gap, *([f"p = {row['p']:.3f}"] if "p" in row else [])])


def _bounds(bounds: Sequence[float] | None, form: str = ".4f") -> str:
    return "" if bounds is None else f" ({between(bounds, form)})"


def most_different(one: "Sequence[Example]", other: "Sequence[Example]") -> "dict[str, list[tuple[Example, Example]]]":
    """The examples where each model is most better than the other, as the two models have them."""
    pairs = sorted(zip(one, other, strict=True), key=lambda pair: pair[0].error - pair[1].error)
    first = [pair for pair in pairs[:N_EXAMPLES] if pair[0].error < pair[1].error]
    second = [pair for pair in pairs[::-1][:N_EXAMPLES] if pair[0].error > pair[1].error]
    return {"first_better": first, "second_better": second}


def shown(title: str, pairs: "Sequence[tuple[Example, Example]]") -> list[str]:
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
