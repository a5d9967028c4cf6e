"""`clearhead difference`: what changed between two checkpoints."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.brief import between, cut
from clearhead.cli.judge.page import HEAD, STYLE, table_of
from clearhead.cli.look.capture import texts_of
from clearhead.cli.options import Device, Files, Length, aligned, check_positive, open_model, progress, tell
from clearhead.errors import UserError

if TYPE_CHECKING:
    from clearhead.analysis.difference import TensorChange
    from clearhead.api import Model
    from clearhead.capture import Difference
    from clearhead.capture.difference import Answers, ChangedAnswer, PartChange

NEAR = 0.99
"""Share of ‖B - A‖² in one singular value from which a change counts as nearly of rank 1."""
WIDE = 60
"""Characters of a cell that are shown on a terminal."""
EFFECT = ("effect in A", "in B", "95% interval of the difference")


@dataclass(frozen=True)
class Table:
    """A part of the difference, as people read it."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    """A row may end early."""


def difference(
    first: str,
    second: str,
    /,
    *,
    data: Files = (),
    text: str | None = None,
    text_pair: str | None = None,
    texts: int = 100,
    top: int = 20,
    seed: int = 0,
    length: Length = None,
    out: Path | None = None,
    page: Path | None = None,
    device: Device = "cpu",
) -> None:
    """Show what changed between two checkpoints: which tensors, heads, neurons and answers.

    Ranks the tensors by ‖B - A‖ / ‖A‖, with the rank of B - A, and the heads and neurons by how much more their own
    weights changed than those beside them. With --data, ranks the heads and neurons by how much what they write changes
    by their own weights, on the same inputs; says how much of the answer each carries in both models; and counts the
    answers that changed, with 95% intervals over texts.

    Args:
        first: Folder of a model or run, RUN@STEP for one checkpoint, or the name of a model on the Hugging Face hub.
        second: Another one of the same architecture and vocabulary.
        data: Files of texts, as for capture.
        text: Column of the texts.
        text_pair: Column of the targets or second texts.
        texts: Texts to measure on, drawn at random.
        top: Tensors, parts and texts to list.
        seed: Seed of the draw.
        out: JSON file to write.
        page: HTML file to write, with the same tables and whole texts.
    """
    from clearhead.capture import difference as compare
    from clearhead.capture import drawn
    from clearhead.explorer.answering.checkpoints import checkpoint_named
    from clearhead.storage.disk import replace_file

    check_positive(texts=texts, top=top)
    models = tuple(open_model(str(checkpoint_named(name)), device=device) for name in (first, second))
    source = texts_of(models[0], data, text, text_pair) if data else ()
    chosen = [one for _, one in drawn(source, texts, seed=seed)] if data else []
    tell(f"first:  {first}\nsecond: {second}")
    if not data:
        tell("weights alone; give --data FILE for what heads and neurons write, and for answers")
    elif not chosen:
        raise UserError("--data: expected texts, got none that are not blank; try other data")
    with progress():
        found = compare(models[0], models[1], chosen, length=length, top=top)
    scores = label_scores((first, second), models[0], data, device=device)
    shown = [*tables(found, scores, top)]
    print(*(line for table in shown for line in _lines(table)), sep="\n")
    if out is not None:
        document = {"first": first, "second": second, **asdict(found), "label_scores": scores}
        replace_file(out, json.dumps(document, ensure_ascii=False).encode())
        tell(f"{out}: {len(found.tensors):,} tensors, {len(found.heads):,} heads, {len(found.neurons):,} neurons")
    if page is not None:
        replace_file(page, html(first, second, shown).encode("utf-8", "backslashreplace"))
        tell(f"the page: {page}")


def label_scores(names: Sequence[str], model: "Model", data: Sequence[str], *, device: str) -> dict[str, Any]:
    """The scores of both models on labelled data, as `clearhead compare` has them; none if the data have no labels."""
    from clearhead.cli.judge.scores import measured
    from clearhead.config import ClassificationHead, SpanHead, TaggingHead
    from clearhead.session.comparing import compared

    if len(data) != 1 or not isinstance(model.config.head, ClassificationHead | TaggingHead | SpanHead):
        return {}
    try:
        both = [measured(name, files={"data": data[0]}, options={}, device=device)[1] for name in names]
    except UserError as error:
        tell(f"no scores: {error}")
        return {}
    return compared(*both)


def tables(found: "Difference", scores: Mapping[str, Mapping[str, Any]], top: int) -> Iterator[Table]:
    """The difference as tables of texts."""
    yield Table(
        f"{len(found.tensors):,} of {found.n_tensors:,} tensors differ",
        ("tensor", "‖B-A‖/‖A‖", "‖B-A‖", "effective rank", ""),
        [_tensor(one) for one in found.tensors[:top]],
    )
    if found.tensors:
        yield Table(
            "Heads and neurons whose weights changed most, in deviations from those beside them"
            if found.units
            else "No head's or neuron's weights changed much more than those beside it",
            ("", "deviations", "‖B-A‖/‖A‖", "of"),
            [(one.site, f"{one.score:.1f}", f"{one.relative:.2e}", one.tensor) for one in found.units],
        )
    for name, parts in (("heads", found.heads), ("neurons", found.neurons)):
        if parts:
            yield Table(
                f"What {name} write, as shares of the stream ({found.n_texts:,} texts); effects are KL in nats",
                ("", "own weights", "95% interval", "by inputs", "in all", "before", *EFFECT),
                [_part(one) for one in parts],
            )
    rows = [] if found.answers is None else [*_answers(found.answers)]
    rows += [_score(name, score) for name, score in scores.items()]
    if rows:
        yield Table("Answers", ("", "A", "B", "difference", "95% interval", "p"), rows)
    if found.answers is not None and found.answers.texts:
        yield Table(
            f"{found.answers.n_changed_texts:,} of {found.n_texts:,} texts have an answer that changed",
            ("KL", "A", "B", "position", "text"),
            [_text(one) for one in found.answers.texts],
        )


def _tensor(one: "TensorChange") -> tuple[str, ...]:
    """A changed tensor, with what is special about the rank of its update."""
    full = min(math.prod(one.shape[:-1]), one.shape[-1])
    rank = "" if one.effective_rank is None else f"{one.effective_rank:.1f} of {full}"
    note = f"nearly rank 1: {one.first_share:.1%} of it" if one.first_share >= NEAR else ""
    if one.rank is not None and one.rank < full:
        note = f"rank {one.rank}"
    return one.name, f"{one.relative:.2e}", f"{one.norm:.2e}", rank, note


def _part(one: "PartChange") -> tuple[str, ...]:
    cells = (one.site, f"{one.own:.2e}", between(one.interval, ".2e"))
    cells += tuple(f"{x:.2e}" for x in (one.moved, one.total, one.before))
    if one.effect is None:
        return cells
    return (*cells, f"{one.effect.first:.4f}", f"{one.effect.second:.4f}", between(one.effect.interval, "+.4f"))


def _answers(found: "Answers") -> Iterator[tuple[str, ...]]:
    yield "answers that changed", "", "", f"{found.changed.value:.1%}", between(found.changed.interval, ".1%")
    yield "KL(A || B), nats", "", "", f"{found.kl.value:.4f}", between(found.kl.interval, ".4f")
    for name, one in found.scores.items():
        yield _score(f"{name} of the next token", asdict(one))


def _score(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    cells = (name, f"{row['first']:.4f}", f"{row['second']:.4f}", f"{row['difference']:+.4f}")
    return (*cells, between(row["interval"], "+.4f"), f"{row['p']:.3f}") if "p" in row else cells


def _text(one: "ChangedAnswer") -> tuple[str, ...]:
    words = " ".join((one.text if isinstance(one.text, str) else " | ".join(one.text)).split())
    return f"{one.kl:.4f}", one.first, one.second, "" if one.position is None else str(one.position), words


def _lines(table: Table) -> Iterator[str]:
    """The table for a terminal, long cells cut."""
    rows = [tuple(cut(cell, WIDE) for cell in row) for row in (table.columns, *table.rows)]
    yield table.title
    if table.rows:
        yield from aligned(rows)
    yield ""


def html(first: str, second: str, some: Sequence[Table]) -> str:
    """The tables as one HTML file without scripts or anything from elsewhere."""
    title = f"{first} and {second}: the difference"
    names = f"<p>A is <code>{escape(first)}</code>, B is <code>{escape(second)}</code>."
    parts = [f"<h2>{escape(one.title)}</h2>\n{_html(one)}" for one in some]
    head = f"{HEAD}<title>{escape(title)}</title>\n<style>{STYLE}.wide {{ overflow-x: auto; }}</style>"
    return "\n".join((head, "<h1>The difference of two models</h1>", names, *parts))


def _html(one: Table) -> str:
    rows = ("".join(f"<td>{escape(cell)}" for cell in row) for row in one.rows)
    return f"<div class=wide tabindex=0>{table_of(one.columns, rows)}</div>"
