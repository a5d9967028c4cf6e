"""`clearhead features` and `steer`."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Literal, cast

from cyclopts import App

from clearhead.cli.look.prompts import ONE_PAIR, SHOWN, Pairs, print_effects
from clearhead.cli.options import Device, Flag, Text, given, open_model, tell
from clearhead.errors import UserError, pasted

features = App(name="features", help="Train sparse features of a model's values, and see them.")
steer = App(name="steer", help="Make directions that steer what a model writes.")


@features.command
def train(
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
    """Train a sparse autoencoder or a transcoder on a model's values, and report how well it replaces them.

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
    from clearhead.analysis.features import Settings, Site, report
    from clearhead.api.features import save_features
    from clearhead.cli.look.sparse import batches, figures, number, split, trained
    from clearhead.cli.share.formats import check_free
    from clearhead.json_text import JsonObject

    check_free(out)
    opened = open_model(model, dtype="float32", device=device).merge()
    site = Site.of(opened.network, at, kind)
    learnt, held = split(batches(opened, model, data))
    settings = Settings(
        n=number(width, opened, site),
        k=active,
        skip=skip,
        lr=lr,
        minutes=10.0 if minutes is None and steps is None else minutes,
        steps=steps,
        seed=seed,
    )
    tell(f"{settings.n:,} features read {site.reads} and write to {site.writes}, {active} active at a position")
    sparse = trained(opened, learnt, site, settings)
    labels = [labels for _, labels in held if labels is not None]
    measured = report(opened.network, [inputs for inputs, _ in held], sparse, labels or None)
    about = given(**asdict(settings))
    save_features(sparse, out, trained=cast("JsonObject", about), report=figures(measured))
    print(f"{out}: {measured}", flush=True)
    tell(f"see them: clearhead features show {pasted(model)} {pasted(out)} TEXT")


@features.command
def show(
    model: str,
    folder: Path,
    text: Text,
    /,
    *,
    target: Text | None = None,
    top: int = 5,
) -> None:
    """Print the strongest features of each token of a text, with the words that they make likelier.

    Args:
        model: Folder of a model or run, or the name of a model on the Hugging Face hub.
        folder: Folder of features: of `clearhead features train`, or of SAELens.
        text: The text.
        target: Input of the decoder of an encoder-decoder.
        top: Features of each token.
    """
    from clearhead.analysis.features import strongest
    from clearhead.api import load
    from clearhead.api.features import attach, load_features
    from clearhead.cli.look.sparse import words

    opened = load(model)
    dictionary = load_features(folder, opened.network)
    attach(opened.network, dictionary)
    seen, _ = opened.trace(text, target)
    stack = list(opened.network.stacks()).index(dictionary.reads.split(".")[0])
    tokens = opened.reader.inputs(text, target, opened.generation)[stack]
    for position, token in enumerate(tokens.ids[0].tolist()):
        found = strongest(seen[dictionary.address][0, position], k=top)
        said = "  ".join(f"{i} {value:.2f}{words(opened, dictionary, i)}" for i, value in found)
        print(f"{opened.tokenizer.decode([token])!r}\t{said}")
    sys.stdout.flush()


@steer.command
def make(
    model: str,
    /,
    *,
    at: str,
    out: Path,
    positive: Path | None = None,
    negative: Path | None = None,
    pairs: Pairs = ONE_PAIR,
    device: Device = "cpu",
) -> None:
    """Make a direction: the mean of a value over some texts less its mean over others.

    `clearhead generate --edit` and `clearhead serve --edit` add it with a strength. A strength of 1 moves the value by
    as much as the two sets differ. With --pairs the sets are the clean and the corrupt texts; by how much a direction
    from some of the pairs moves the answers of the others is printed with its 95% bootstrap interval.

    Args:
        model: Folder of a model or run, or the name of a model on the Hugging Face hub.
        positive: Text file, a text a line, of what the model shall write more like.
        negative: Text file of what it shall write less like.
        at: Address of the value, such as decoder.blocks.3.resid_post.
        out: New file (.safetensors).
        device: Where to compute.
    """
    from clearhead.api import load
    from clearhead.api.steering import direction, save_direction
    from clearhead.cli.use.inputs import texts_in

    if out.exists():
        raise UserError(f"{out}: expected no file there, got one; try another name")
    opened = load(model, device=device)
    if pairs.pairs is not None:
        print_effects(pairs.measure(opened, "steer", at, name=model), json=False, top=SHOWN)
        sets = [[*texts] for texts in zip(*(one.texts for one in pairs.read()), strict=True)]
    elif positive is None or negative is None:
        raise UserError("steer: expected --positive FILE and --negative FILE, or --pairs SET; give them")
    else:
        sets = [texts_in(file, pairs=opened.is_encoder_decoder) for file in (positive, negative)]
    found = direction(opened, *sets, at=at)
    save_direction(found, out)
    print(f"{out}: a direction of length {found.vector.norm():.4g} at {found.at}", flush=True)
    tell(f"from {len(sets[0])} and {len(sets[1])} texts")
    tell(f"use it: clearhead generate {pasted(model)} TEXT --edit {pasted(out)} --strength 4")
