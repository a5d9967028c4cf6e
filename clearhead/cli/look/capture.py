"""`clearhead capture`, `effects` and `examples`: a model over a data set."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from clearhead.analysis.ablation import unit
from clearhead.api import Model, load
from clearhead.capture import Captured, Examples, Texts, capture, drawn, effects
from clearhead.capture.effects import LAYERS, NAMED
from clearhead.capture.reading import ABOUT
from clearhead.cli.options import check_positive, tell
from clearhead.errors import UserError, sizes
from clearhead.machine.device import keep_freed_memory
from clearhead.progress import watching
from clearhead.storage.manifest import MANIFEST
from clearhead.training.lock import held

PATIENCE = 3
"""Seconds after which progress is shown."""


def capture_command(
    name: str,
    *,
    data: Sequence[str],
    at: Sequence[str],
    out: Path,
    columns: Mapping[str, str | None],
    settings: Mapping[str, Any],
    shard_mb: int,
    device: str,
) -> None:
    """Writes activations of a data set to a folder, or completes a capture that was stopped."""
    check_positive(shard_mb=shard_mb)
    keep_freed_memory()
    model = load(name, device=device)
    texts = texts_of(model, data, columns)
    begun = Captured(out).n_texts if (out / MANIFEST).is_file() else 0  # The last of its first files.
    if begun:
        tell(f"{out}: goes on after {begun:,} texts")
    began = time.monotonic()
    is_new = not out.exists()
    try:
        with held(out), progress():
            found = capture(model, texts, at, out, name=name, shard_bytes=shard_mb << 20, **settings)
    except UserError:
        if is_new:
            with suppress(OSError):  # There is something in it.
                out.rmdir()
        raise
    took, n_bytes = time.monotonic() - began, sum((out / shard).stat().st_size for shard in found.shards)
    tell(
        f"{out}: {found.n_texts:,} texts, {len(found.addresses)} addresses, {len(found.shards)} shards of"
        f" {sizes(n_bytes)[0]} in {took:.1f} s"
    )
    if n_cut := sum(found.facts(shard)["cut"] for shard in found.shards):
        tell(f"{n_cut:,} texts were longer than the model reads, or than --length, and were cut")


def effects_command(
    name: str,
    *,
    data: Sequence[str],
    sites: Sequence[str],
    columns: Mapping[str, str | None],
    texts: int,
    top: int,
    seed: int,
    length: int | None,
    device: str,
    as_json: bool,
) -> None:
    """Prints the effect of each part on the answer, over texts drawn from a data set."""
    check_positive(texts=texts, top=top)
    keep_freed_memory()
    model = load(name, device=device)
    chosen = [text for _, text in drawn(texts_of(model, data, columns), texts, seed=seed)]
    wanted = sites[0] if len(sites) == 1 and sites[0] in (*NAMED, LAYERS) else sites
    tell(f"{name}: measuring on {len(chosen):,} texts ...")
    with progress():
        found = effects(model, chosen, wanted, length=length)
    shown = found if wanted == LAYERS else found[:top]
    if as_json:
        print(json.dumps([asdict(one) for one in shown]))
        return
    width, measured = max(len(one.site) for one in shown), unit(model.network).replace("nats", "KL in nats")
    print(f"{'':{width}}  {measured}  95% interval")
    for one in shown:
        print(f"{one.site:{width}}  {one.mean:10.4f}  {one.interval[0]:.4f} to {one.interval[1]:.4f}")


def examples_command(
    name: str,
    *,
    data: Sequence[str],
    at: str,
    columns: Mapping[str, str | None],
    top: int,
    length: int | None,
    device: str,
    as_json: bool,
) -> None:
    """Prints the texts of a data set that excite a part most, each with its strongest token marked."""
    check_positive(top=top)
    keep_freed_memory()
    model = load(name, device=device)
    one = Path(data[0])
    folder = len(data) == 1 and (one / ABOUT).is_file()
    texts = Captured(one) if folder else texts_of(model, data, columns)
    found = Examples(model, texts, at, top=top, length=length)
    bar = tqdm(unit=" texts", disable=not sys.stderr.isatty(), delay=PATIENCE, leave=False, file=sys.stderr)
    with bar:
        for n in found.reading():
            bar.update(n - bar.n)
    tell(f"{at}: {found.measures}, the strongest of {found.n_read:,} texts")
    for example in found.best:
        if as_json:
            print(json.dumps(asdict(example), ensure_ascii=False))
        else:
            print(f"{example.value:10.4f}  {example.row + 1:>7}  {' '.join(example.marked().split())}")


def texts_of(model: Model, data: Sequence[str], columns: Mapping[str, str | None]) -> Texts:
    """The texts of the files. Columns that are not named are those of the model's own data, else the usual ones."""
    if not data:
        raise UserError("--data: expected a file of texts, got none; give --data FILE")
    own = model.recipe.get("data") if model.recipe else None
    return Texts(tuple(data), columns["text"], columns["text_pair"], dict(own) if isinstance(own, dict) else {})


@contextmanager
def progress() -> Iterator[None]:
    """Shows on a terminal how far a long loop is."""
    with tqdm(disable=not sys.stderr.isatty(), delay=PATIENCE, leave=False, file=sys.stderr) as bar:

        def watch(what: str, done: int, n: int) -> None:
            bar.set_description(what, refresh=False)
            bar.total = n
            bar.update(done - bar.n)

        with watching(watch):
            yield
