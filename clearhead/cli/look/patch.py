"""`clearhead patch`: which states carry the difference between two texts."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from clearhead.analysis.sweep import PARTS, Part, PatchingSweep, Row
from clearhead.api import Model, load
from clearhead.api.circuits import answer_id
from clearhead.cli.options import tell
from clearhead.config import StackName
from clearhead.errors import UserError
from clearhead.explorer.recording.manifest import Token
from clearhead.explorer.recording.tokens import ReadInput, read
from clearhead.text.schemes import SPACE

WIDE = 7
"""Columns of a cell."""


def patch_command(
    name: str,
    texts: tuple[str, str],
    answers: tuple[str, str | None],
    *,
    target: str | None,
    of: str,
    position: int,
    as_json: bool,
    device: str,
) -> None:
    """Prints the row of each block, or one JSON object of all."""
    model = load(name, device=device)
    clean, corrupt = (_read(model, text, target) for text in texts)
    answer = answer_id(model, answers[0], name="answer")
    minus = None if answers[1] is None else answer_id(model, answers[1], name="minus")
    sweep = PatchingSweep(model.network, clean.inputs, corrupt.inputs, answer, minus=minus, position=position)
    parts = PARTS if of == "all" else (cast("Part", of),)
    tokens = corrupt.tokens
    if as_json:
        print(json.dumps(_document(sweep, parts, clean, corrupt), ensure_ascii=False))
        return
    for line in _about(sweep, clean, corrupt):
        tell(line)
    before = ""
    for row in sweep.rows(*parts):
        heading, line = _heading(row, tokens), _line(row)
        if heading != before:
            print(heading)
        print(line, flush=True)
        before = heading


def _read(model: Model, text: str, target: str | None) -> ReadInput:
    if model.reader.reads_images:
        if not Path(text).is_file():
            raise UserError(f"{text}: expected an image file, as this model reads images, found none; try another path")
        return read(model, Path(text))
    writes = model.is_encoder_decoder and target is None
    return read(model, text, "" if writes else target, written=[] if writes else None)


def _about(sweep: PatchingSweep, clean: ReadInput, corrupt: ReadInput) -> list[str]:
    lines = [f"clean {sweep.clean:.4g}, corrupt {sweep.corrupt:.4g} (the logit of the answer, or its difference)"]
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


def _names(tokens: Sequence[Token]) -> str:
    return " ".join(repr(token.text) for token in tokens)


def _heading(row: Row, tokens: dict[StackName, tuple[Token, ...]]) -> str:
    stack, value = cast("StackName", row.at.split(".")[0]), row.at.split(".", 3)[3]
    names = (
        [token.text.replace(SPACE, " ").strip() for token in tokens[stack]]
        if row.axis == "t"
        else [f"h={i}" for i in range(len(row.restored))]
    )
    return f"{stack} {value}\n{'block':>6}" + "".join(f"{name[: WIDE - 1]:>{WIDE}}" for name in names)


def _line(row: Row) -> str:
    cells = ("" if math.isnan(x) else f"{x:.2f}" for x in row.restored.tolist())
    return f"{row.at.split('.')[2]:>6}" + "".join(f"{cell:>{WIDE}}" for cell in cells)


def _document(sweep: PatchingSweep, parts: Sequence[Part], clean: ReadInput, corrupt: ReadInput) -> dict[str, object]:
    """The alignment, the differences of logits of both texts, and the rows by address; null where none is aligned."""
    rows = {row.at: [None if math.isnan(x) else x for x in row.restored.tolist()] for row in sweep.rows(*parts)}
    return {
        "clean": sweep.clean,
        "corrupt": sweep.corrupt,
        "tokens": {
            side: {stack: [token.text for token in row] for stack, row in of.tokens.items()}
            for side, of in (("clean", clean), ("corrupt", corrupt))
        },
        "alignment": sweep.alignment,
        "restored": rows,
    }
