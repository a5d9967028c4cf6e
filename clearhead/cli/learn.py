"""`clearhead demo`, and `clearhead lab` until the package that adds it is installed."""

import time
from pathlib import Path
from typing import Annotated, NoReturn

from cyclopts import Parameter

from clearhead.cli.options import Flag, Repeated
from clearhead.errors import UserError


def demo(
    *,
    to: str = "fr",
    say: Repeated = (),
    out: Path | None = None,
    browser: bool | None = None,
    json: Flag = False,
    seed: int = 0,
) -> None:
    """Train a translator in about two minutes and see what it attends to.

    It composes 20,000 everyday English sentences with their translations, in which a word often depends on others,
    trains an encoder-decoder on them from nothing, tests it on 500 others, and opens the explorer on it: type your own
    sentences, see every number on the way to a translation, change any of them. Needs no network.

    Args:
        to: Language to translate into: fr, de or es.
        say: Your own sentences to translate at the end; without them, the command asks for some.
        out: Folder for the model, its figures and the page (default: clearhead-demo-LANGUAGE).
        browser: Open the explorer in a browser when done (default: unless --json).
        json: Print the figures on standard output, as one JSON object: seconds, exact_match, ambiguous and it (0 to 1),
            bleu (0 to 100), alignment (0 to 1: content words whose attention is on the right word), and more.
        seed: Seed of the network and of the choice of sentences.
    """
    began = time.perf_counter()
    from clearhead.demo import run_demo

    opens = not json if browser is None else browser
    run_demo(to, out=out, browser=opens, as_json=json, seed=seed, sentences=say, began=began)


def lab(*_words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> NoReturn:
    """Run the worked examples and the claims about the Transformer, and judge them (pip install ../clearhead/lab)."""
    raise UserError("lab: expected the package clearhead-lab, got none; pip install ../clearhead/lab")
