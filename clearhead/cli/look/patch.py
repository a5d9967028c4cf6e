"""`clearhead patch`."""

import json as json_lines
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from clearhead.cli.options import Device, Named, OneObject, Text, tell
from clearhead.cli.use.inputs import picture

if TYPE_CHECKING:
    from clearhead.analysis.sweep import Part, PatchingSweep, Row
    from clearhead.api import Model
    from clearhead.config import StackName
    from clearhead.explorer.recording.facts import Token
    from clearhead.explorer.recording.tokens import ReadInput

WIDE = 7
"""Columns of a cell."""


def patch(
    model: Named,
    /,
    *,
    clean: Text,
    corrupt: Text,
    answer: str,
    minus: str | None = None,
    target: Text | None = None,
    of: Literal["resid", "attn", "ffn", "heads", "all"] = "resid",
    position: int = -1,
    json: OneObject = False,
    device: Device = "cpu",
) -> None:
    """Patch the states of one text into another, one at a time, and say how much of its answer each restores.

    Prints a row for each block, the last one first, each as soon as it is known: 0 is the answer of the corrupt text,
    1 that of the clean one. Texts of different lengths are aligned by their common tokens; a position that has no
    partner stays empty.

    Args:
        clean: The text that gives the answer; a file, for a model that reads images.
        corrupt: The text that does not.
        answer: Token, or label, whose logit is measured. A token that begins a word has its space: " Paris".
        minus: Token or label whose logit is subtracted, usually the corrupt text's answer.
        target: What the decoder of an encoder-decoder has written so far (default: nothing).
        of: The states: residual streams, attention outputs or feed-forward outputs by position, heads, or all of these.
        position: Position in the clean text whose answer is measured; -1 is the last.
    """
    from clearhead.analysis.sweep import PARTS, PatchingSweep
    from clearhead.api import load
    from clearhead.api.circuits import answer_id

    opened = load(model, device=device)
    inputs = first, second = _read(opened, clean, target), _read(opened, corrupt, target)
    sweep = PatchingSweep(
        opened.network,
        first.inputs,
        second.inputs,
        answer_id(opened, answer, name="answer"),
        minus=None if minus is None else answer_id(opened, minus, name="minus"),
        position=position,
    )
    parts = PARTS if of == "all" else (cast("Part", of),)
    if json:
        print(json_lines.dumps(_document(sweep, parts, *inputs), ensure_ascii=False))
        return
    for line in _about(sweep, *inputs):
        tell(line)
    before = ""
    for row in sweep.rows(*parts):
        heading, line = _heading(row, second.tokens), _line(row)
        if heading != before:
            print(heading)
        print(line, flush=True)
        before = heading


def _read(model: "Model", text: str, target: str | None) -> "ReadInput":
    from clearhead.explorer.recording.tokens import read

    if model.reader.reads_images:
        return read(model, picture(text))
    writes = model.is_encoder_decoder and target is None
    return read(model, text, "" if writes else target, written=[] if writes else None)


def _about(sweep: "PatchingSweep", clean: "ReadInput", corrupt: "ReadInput") -> list[str]:
    clean_logit, corrupt_logit = float(sweep.clean), float(sweep.corrupt)
    lines = [f"clean {clean_logit:.4g}, corrupt {corrupt_logit:.4g} (the logit of the answer, or its difference)"]
    for stack, pairs in sweep.alignment.items():
        ours, theirs = (of.tokens[cast("StackName", stack)] for of in (clean, corrupt))
        if len(ours) == len(theirs):
            lines.append(f"{stack}: {len(ours)} positions, aligned one by one")
            continue
        known = {side: {pair[i] for pair in pairs} for i, side in enumerate(("clean", "corrupt"))}
        left = [
            f"{side} {_names([one for i, one in enumerate(row) if i not in known[side]])}"
            for side, row in (("clean", ours), ("corrupt", theirs))
            if len(known[side]) < len(row)
        ]
        lines.append(f"{stack}: {len(pairs)} positions are aligned; without a partner: {'; '.join(left)}")
    return lines


def _names(tokens: "Sequence[Token]") -> str:
    return " ".join(repr(token.text) for token in tokens)


def _heading(row: "Row", tokens: "dict[StackName, tuple[Token, ...]]") -> str:
    from clearhead.text.schemes import SPACE

    stack, value = cast("StackName", row.at.split(".")[0]), row.at.split(".", 3)[3]
    names = (
        [token.text.replace(SPACE, " ").strip() for token in tokens[stack]]
        if row.axis == "t"
        else [f"h={i}" for i in range(len(row.restored))]
    )
    return f"{stack} {value}\n{'block':>6}" + "".join(f"{name[: WIDE - 1]:>{WIDE}}" for name in names)


def _line(row: "Row") -> str:
    cells = ("" if math.isnan(x) else f"{x:.2f}" for x in row.restored.tolist())
    return f"{row.at.split('.')[2]:>6}" + "".join(f"{cell:>{WIDE}}" for cell in cells)


def _document(
    sweep: "PatchingSweep", parts: "Sequence[Part]", clean: "ReadInput", corrupt: "ReadInput"
) -> dict[str, object]:
    """The alignment, the differences of logits of both texts, and the rows by address; null where none is aligned."""
    rows = {row.at: [None if math.isnan(x) else x for x in row.restored.tolist()] for row in sweep.rows(*parts)}
    return {
        "clean": float(sweep.clean),
        "corrupt": float(sweep.corrupt),
        "tokens": {
            side: {stack: [token.text for token in row] for stack, row in of.tokens.items()}
            for side, of in (("clean", clean), ("corrupt", corrupt))
        },
        "alignment": sweep.alignment,
        "restored": rows,
    }
