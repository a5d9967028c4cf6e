"""`clearhead features` and `steer`."""

from pathlib import Path
from typing import Literal

from cyclopts import App

from clearhead.cli.options import Device, Flag, Text

features = App(name="features", help="Train sparse features of a model's values, and see them.")
steer = App(name="steer", help="Make directions that steer what a model writes.")


@features.command(name="train")
def features_train(
    model: str,
    /,
    *,
    at: str,
    out: Path,
    data: Path | None = None,
    kind: Literal["sae", "transcoder"] = "sae",
    width: str = "16x",
    active: int = 32,
    skip: Flag = False,
    lr: float = 1e-3,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    device: Device = "cpu",
) -> None:
    """Train a sparse autoencoder or a transcoder on a model's values, and report what it keeps of the model's work.

    Reads texts with the model while it trains, so no values have to be stored before. At the end a tenth of the texts,
    which was kept apart, gives the report: the loss with what the features reconstruct in place of the value, against
    the plain loss and against 0 or the mean in its place.

    Args:
        model: Folder of a model or run, or the name of a model on the Hugging Face hub.
        at: Address of the value, such as decoder.blocks.3.resid_post; for a transcoder the FFN's, decoder.blocks.3.ffn.
        out: New folder for the features.
        data: Text file; an encoder-decoder reads a source and a target a line, with a tab between them (default: the
            data of the run).
        kind: sae explains a value by itself; transcoder explains what an FFN writes by what it reads.
        width: Number of features, such as 4096, or 16x for sixteen times the width of the model.
        active: Features that are active at a position.
        skip: Give a transcoder a linear way beside its features, so that they need only explain the rest.
        lr: Learning rate.
        minutes: Time to train (default: 10, unless --steps is given).
        steps: Updates to make at most.
        seed: Seed of all random numbers.
        device: Where the model computes; the features train on the CPU.
    """
    from clearhead.cli.look.features import train_command

    train_command(
        model,
        data=data,
        at=at,
        kind=kind,
        width=width,
        k=active,
        skip=skip,
        lr=lr,
        minutes=10.0 if minutes is None and steps is None else minutes,
        steps=steps,
        seed=seed,
        out=out,
        device=device,
    )


@features.command(name="show")
def features_show(
    model: str,
    folder: Path,
    text: Text,
    /,
    *,
    target: Text | None = None,
    layer: int | None = None,
    top: int = 5,
) -> None:
    """Print the strongest features of each token of a text, with the words that they make likelier.

    Args:
        model: Folder of a model or run, or the name of a model on the Hugging Face hub.
        folder: Folder of features: of `clearhead features train`, of SAELens or of circuit-tracer.
        text: The text.
        target: Input of the decoder of an encoder-decoder.
        layer: Layer, for a folder of circuit-tracer.
        top: Features of each token.
    """
    from clearhead.cli.look.features import show_command

    show_command(model, folder, text, target=target, layer=layer, k=top)


@steer.command(name="make")
def steer_make(model: str, /, *, positive: Path, negative: Path, at: str, out: Path, device: Device = "cpu") -> None:
    """Make a direction: the mean of a value over some texts less its mean over others.

    `clearhead generate --edit` and `clearhead serve --edit` add it with a strength. A strength of 1 moves the value by
    as much as the two sets differ.

    Args:
        model: Folder of a model or run, or the name of a model on the Hugging Face hub.
        positive: Text file, a text a line, of what the model shall write more like.
        negative: Text file of what it shall write less like.
        at: Address of the value, such as decoder.blocks.3.resid_post.
        out: New file (.safetensors).
        device: Where to compute.
    """
    from clearhead.cli.look.steer import make_command

    make_command(model, positive=positive, negative=negative, at=at, out=out, device=device)
