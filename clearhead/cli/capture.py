"""`clearhead capture`, `effects` and `examples`: what happens inside a model over a data set."""

from pathlib import Path
from typing import Literal

from clearhead.cli.options import Device, Files, Flag, Length, Named, Repeated, Text


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
    format: Literal["safetensors", "parquet"] = "safetensors",  # noqa: A002
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
        format: Files of safetensors, or of Parquet (pip install 'clearhead[data]').
        sample: Share of the rows that are kept, chosen by a hash of seed, text and position.
        seed: Seed of the sample.
        length: Tokens of a text at most (default: the model's longest length, or else 2048).
        shard_mb: Megabytes of a shard.
    """
    from clearhead.cli.look.capture import capture_command

    settings = {
        "positions": positions,
        "dtype": dtype,
        "format": format,
        "sample": sample,
        "seed": seed,
        "length": length,
    }
    columns = {"text": text, "text_pair": text_pair}
    capture_command(
        model, data=data, at=at, out=out, columns=columns, settings=settings, shard_mb=shard_mb, device=device
    )


def effects(
    model: Named,
    /,
    *,
    data: Files,
    sites: Repeated = ("heads",),
    text: str | None = None,
    text_pair: str | None = None,
    texts: int = 100,
    top: int = 20,
    seed: int = 0,
    length: Length = None,
    device: Device = "cpu",
    json: Flag = False,
) -> None:
    """Measure how much the answer changes without each head or neuron, over a data set.

    Prints KL(whole || without that part) in nats, the mean over texts, with its 95% bootstrap interval. With --sites
    layers it is KL(whole || answer after each block), as the logit lens reads it.

    Args:
        data: Files of texts, as for capture.
        sites: heads, neurons, layers, or addresses such as decoder.blocks.3.ffn.post, whose parts are measured.
        text: Column of the texts.
        text_pair: Column of the targets or second texts.
        texts: Texts to measure on, drawn at random.
        top: Parts to print, those with the largest effects.
        seed: Seed of the draw.
        json: Print one JSON array on standard output, and nothing else there.
    """
    from clearhead.cli.look.capture import effects_command

    columns = {"text": text, "text_pair": text_pair}
    effects_command(
        model,
        data=data,
        sites=sites,
        columns=columns,
        texts=texts,
        top=top,
        seed=seed,
        length=length,
        device=device,
        as_json=json,
    )


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
    from clearhead.cli.look.capture import examples_command

    columns = {"text": text, "text_pair": text_pair}
    examples_command(model, data=data, at=at, columns=columns, top=top, length=length, device=device, as_json=json)
