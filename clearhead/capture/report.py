"""A report of effects over a set of prompts: one HTML file with figure, table, Python and everything that it needs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from clearhead.api.base import ModelBase
from clearhead.capture.effects import Effect
from clearhead.capture.writing import fingerprint
from clearhead.data.prompts import Prompt
from clearhead.tasks.scores import RESAMPLES, SEED
from clearhead.version import __version__

CODE = """import clearhead
from clearhead.capture import over_prompts, prompts_in

model = clearhead.load({model!r})
for effect in over_prompts(model, prompts_in({file!r}), {how!r}, {sites!r}, position={position}, exact={exact}):
    print(effect.site, effect.mean, *effect.interval)
"""


def report(
    name: str, model: ModelBase, prompts: Sequence[Prompt], found: Sequence[Effect], about: dict[str, object]
) -> str:
    """The file `name`: the effects, with the prompts, what `about` says of them, the model's hash and the seed of
    the intervals.

    `about` has model, how, sites, position and exact. The Python in the page gives the same numbers from the file.
    """
    data = {
        **about,
        "sha256": fingerprint(model),
        "seed": SEED,
        "resamples": RESAMPLES,
        "clearhead": __version__,
        "torch": torch.__version__,
        "config": model.config.model_dump(mode="json"),
        "python": CODE.format(file=name, **about),
        "prompts": [asdict(one) for one in prompts],
        "effects": [asdict(one) for one in found],
    }
    page = Path(__file__).with_name("report.html").read_text(encoding="utf-8")
    return page.replace("{{DATA}}", json.dumps(data).replace("</", r"<\/"))
