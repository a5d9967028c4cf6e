"""`clearhead evaluate` and `summary`."""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from clearhead.api import load, named_config
from clearhead.commands import tell
from clearhead.commands.use import searching
from clearhead.errors import UserError
from clearhead.model.summary import summarize
from clearhead.recipe.data import ParallelFiles, Source, TextFiles
from clearhead.recipe.evaluation import Tokenize
from clearhead.runs import score
from clearhead.tasks.metrics import Score
from clearhead.training.machine import keep_freed_memory

UNITS = {"exact_match": "0 to 1", "loss": "nats a token"}


def evaluate_command(
    name: str,
    *,
    source: Path | None,
    target: Path | None,
    text: Path | None,
    search: Mapping[str, Any],
    tokenize: Tokenize | None,
    moses: str | None,
    int8: bool,
    device: str,
    as_json: bool,
) -> None:
    """Measure a model on files, or on its recipe's test (else validation) data."""
    if (source is None) != (target is None):
        raise UserError("evaluate: expected --source and --target together, got one of them")
    keep_freed_memory()
    model = load(name, int8=int8, device=device)
    given: Source | None = None
    if source is not None and target is not None:
        given = ParallelFiles(source=source, target=target)
    elif text is not None:
        given = TextFiles(paths=(text,))
    if model.is_encoder_decoder and text is not None:
        raise UserError(f"{name}: expected --source and --target for a translator, got --text")
    if not model.is_encoder_decoder and any(one is not None for one in (source, tokenize, moses)):
        raise UserError(f"{name}: expected --text for a language model, got what is for a translator")
    config = searching(model, search) if model.is_encoder_decoder else model.generation
    tell(f"{name}: measuring ...")
    scores, where = score(model, Path(name), given, config, tokenize=tokenize, moses=moses)
    given_files = " and ".join(str(path) for path in (source, target, text) if path is not None)
    tell(f"{name} on {given_files or f'its {where} data'}:")
    for one in scores:
        print(shown(one), file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps(json_of({one.name: one.value for one in scores})))


def summary_command(
    name: str, *, batch: int, source_length: int | None, target_length: int | None, as_json: bool
) -> None:
    """Print a summary by component."""
    summary = summarize(named_config(name), batch=batch, source_length=source_length, target_length=target_length)
    print("\n".join(summary.lines()), file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps(summary.to_json()))


def shown(one: Score) -> str:
    """A figure with its name, and its unit or how it was computed."""
    return f"{one.name:<18} {one.value:10.4f}  {one.signature or UNITS.get(one.name, '')}".rstrip()


def json_of(figures: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Figures by name; JSON has no infinity and no NaN, which are null."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in figures.items()}
