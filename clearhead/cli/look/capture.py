"""`clearhead capture`, `effects` and `examples`: what happens inside a model over a data set."""

import json as json_lines
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clearhead.brief import amount
from clearhead.cli.look.prompts import ONE_PAIR, SHOWN, Pairs, print_effects
from clearhead.cli.options import (
    Device,
    Files,
    Flag,
    Length,
    Named,
    Repeated,
    Text,
    check_positive,
    open_model,
    progress,
    progress_bar,
    tell,
)
from clearhead.errors import UserError, sizes

if TYPE_CHECKING:
    from clearhead.api import Model
    from clearhead.capture import Texts
    from clearhead.capture.prompts import How


def capture(
    model: Named,
    /,
    *,
    data: Files,
    at: Repeated,
    out: Path,
    text: str | None = None,
    text_pair: str | None = None,
    positions: Literal["all", "first", "last", "mean", "max"] = "all",
    dtype: Literal["float32", "float16", "bfloat16"] = "float32",
    sample: float = 1.0,
    seed: int = 0,
    length: int | None = None,
    shard_mb: int = 512,
    device: Device = "cpu",
) -> None:
    """Write the activations of a model at some addresses for every text of a data set.

    Writes shards with a row for each position: the vector at each address, the number of the text, the position and
    the token. A capture that was stopped or killed goes on where it was when the same command is given again, and ends
    with the same bytes. docs/capture.md says how to read the folder.

    Args:
        data: Files of texts: lines, or a column of CSV, TSV, JSON lines or parquet; .gz and .zst are fine, and * in a
            name stands for any characters.
        at: Addresses, such as decoder.blocks.*.resid_post or decoder.blocks.3.attn.z[h=2]; * is any part between dots.
        out: Folder to write: new, or that of a capture that stopped.
        text: Column of the texts (default: guessed, as by predict).
        text_pair: Column of the targets of an encoder-decoder, or of the second texts of an encoder. In lines a tab is
            between a source and its target.
        positions: Which positions of each text: all, the first or the last, or their mean or maximum.
        dtype: Type of the numbers that are written.
        sample: Share of the rows that are kept, chosen by a hash of seed, text and position.
        seed: Seed of the sample.
        length: Tokens of a text at most (default: the model's longest length, or else 2048).
        shard_mb: Megabytes of a shard.
    """
    from clearhead.capture import Captured
    from clearhead.capture import capture as write
    from clearhead.storage.manifest import MANIFEST
    from clearhead.training.run_folder import lock_folder

    check_positive(shard_mb=shard_mb)
    opened = open_model(model, device=device)
    texts = texts_of(opened, data, text, text_pair)
    begun = Captured(out).n_texts if (out / MANIFEST).is_file() else 0  # The last of its first files.
    if begun:
        tell(f"{out}: goes on after {amount(begun, 'texts')}")
    began = time.monotonic()
    is_new = not out.exists()
    try:
        with lock_folder(out), progress():
            captured = write(
                opened,
                texts,
                at,
                out,
                name=model,
                shard_bytes=shard_mb << 20,
                positions=positions,
                dtype=dtype,
                sample=sample,
                seed=seed,
                length=length,
            )
    except UserError:
        if is_new:
            with suppress(OSError):  # There is something in it.
                out.rmdir()
        raise
    took, n_bytes = time.monotonic() - began, sum((out / shard).stat().st_size for shard in captured.shards)
    tell(
        f"{out}: {amount(captured.n_texts, 'texts')}, {len(captured.addresses)} addresses,"
        f" {amount(len(captured.shards), 'shards')} of {sizes(n_bytes)[0]} in {took:.1f} s"
    )
    if n_cut := sum(captured.facts(shard)["cut"] for shard in captured.shards):
        tell(f"{n_cut:,} texts were longer than the model reads, or than --length, and were cut")


def effects(
    model: Named,
    /,
    *,
    data: Files = (),
    pairs: Pairs = ONE_PAIR,
    sites: Repeated = ("heads",),
    text: str | None = None,
    text_pair: str | None = None,
    texts: int = 100,
    top: int = SHOWN,
    length: Length = None,
    device: Device = "cpu",
    json: Flag = False,
) -> None:
    """Measure how much the answer changes without each head or neuron, over a data set.

    Prints KL(whole || without that part) in nats, the mean over texts, with its 95% bootstrap interval. With --sites
    layers it is KL(whole || answer after each block), as the logit lens reads it.

    With --pairs, or --clean and --corrupt, it is by how much logit[ANSWER] - logit[MINUS] of the clean texts falls;
    with --sites layers that difference as read after each block, with --sites direct what each part adds to it.

    Args:
        data: Files of texts, as for capture.
        sites: heads, neurons, layers, or addresses such as decoder.blocks.3.ffn.post, whose parts are measured.
        text: Column of the texts.
        text_pair: Column of the targets or second texts.
        texts: Texts to measure on, drawn at random.
        top: Parts to print, those with the largest effects.
        json: Print one JSON array on standard output, and nothing else there.
    """
    from clearhead.analysis.ablation import unit
    from clearhead.capture import drawn
    from clearhead.capture import effects as measure
    from clearhead.capture.effects import LAYERS, NAMED

    check_positive(texts=texts, top=top)
    opened = open_model(model, device=device)
    if not data and (pairs.pairs or pairs.clean):
        how: How = "lens" if sites[0] == LAYERS else "direct" if sites[0] == "direct" else "ablate"
        print_effects(pairs.measure(opened, how, sites[0], name=model), json=json, top=None if how == "lens" else top)
        return
    chosen = [one for _, one in drawn(texts_of(opened, data, text, text_pair), texts, seed=pairs.seed)]
    wanted = sites[0] if len(sites) == 1 and sites[0] in (*NAMED, LAYERS) else sites
    tell(f"{model}: measuring on {amount(len(chosen), 'texts')} ...")
    with progress():
        measured = measure(opened, chosen, wanted, length=length)
    shown = measured if wanted == LAYERS else measured[:top]
    print_effects(shown, json=json, unit=unit(opened.network).replace("nats", "KL in nats"))


def examples(
    model: Named,
    /,
    *,
    data: Files,
    at: Text,
    text: str | None = None,
    text_pair: str | None = None,
    top: int = 20,
    length: Length = None,
    device: Device = "cpu",
    json: Flag = False,
) -> None:
    """List the texts of a data set that excite a head or a neuron most, each with its strongest token in brackets.

    The strength is the number at the address; of a vector its norm; of a head's weights the largest weight on a token
    other than the first and the special ones.

    Args:
        data: Files of texts, as for capture, or the folder of a capture.
        at: Address of a part, such as decoder.blocks.3.ffn.post[f=7] or decoder.blocks.2.attn.weights[h=1].
        text: Column of the texts.
        text_pair: Column of the targets or second texts.
        top: Texts to list.
        json: Print a JSON object a text, with the strength of each token.
    """
    from clearhead.capture import Captured, Examples
    from clearhead.capture.reading import ABOUT

    check_positive(top=top)
    opened = open_model(model, device=device)
    folder = Path(data[0])
    is_captured = len(data) == 1 and (folder / ABOUT).is_file()
    texts = Captured(folder) if is_captured else texts_of(opened, data, text, text_pair)
    search = Examples(opened, texts, at, top=top, length=length)
    with progress_bar(unit=" texts") as bar:
        for n in search.reading():
            bar.update(n - bar.n)
    tell(f"{at}: {search.measures}, the strongest of {search.n_read:,} texts")
    for example in search.best:
        if json:
            print(json_lines.dumps(asdict(example), ensure_ascii=False))
        else:
            print(f"{example.value:10.4f}  {example.row + 1:>7}  {' '.join(example.marked().split())}")


def texts_of(model: "Model", data: Sequence[str], text: str | None, text_pair: str | None) -> "Texts":
    """The texts of the files. Columns that are not named are those of the model's own data, else the usual ones."""
    from clearhead.capture import Texts

    if not data:
        raise UserError("--data: expected a file of texts, got none; give --data FILE")
    own = model.recipe.get("data") if model.recipe else None
    return Texts(tuple(data), text, text_pair, dict(own) if isinstance(own, dict) else {})
