"""The experiments: each is measured by a module, and its claim and its checks stand in experiments.toml beside it."""

import tomllib
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path

from clearhead.errors import UserError
from clearhead_lab.experiment import Check, Experiment, Plot, figure

TOPICS = ("positions", "attention", "norms", "feed_forward", "cost", "words", "language")
"""The folders, in the order in which they are listed."""


def topics() -> dict[str, list[Experiment]]:
    """Every experiment by topic."""
    return dict(_read(name) for name in TOPICS)


def experiments() -> dict[str, Experiment]:
    """Every experiment by name."""
    return {experiment.name: experiment for listed in topics().values() for experiment in listed}


def experiment(name: str) -> Experiment:
    """The experiment of this name. Raises UserError with the nearest name if there is none."""
    known = experiments()
    if name not in known:
        nearest = get_close_matches(name.lower().replace("_", "-"), [*known, "all"], n=1, cutoff=0.4)
        remedy = f"try {nearest[0]}" if nearest else "`clearhead lab` lists all"
        raise UserError(f"lab run: expected the name of an experiment, got {name!r}; {remedy}")
    return known[name]


@cache
def _read(topic: str) -> tuple[str, list[Experiment]]:
    """The title of a topic, and its experiments."""
    document = tomllib.loads((Path(__file__).parent / topic / "experiments.toml").read_text(encoding="utf-8"))
    listed: list[Experiment] = []
    for row in document["experiment"]:
        module = import_module(f"{__name__}.{topic}.{row['name'].replace('-', '_')}")
        checks = [Check(**check | {"figure": figure(check["figure"], module)}) for check in row.pop("check")]
        fields = row | {name: tuple(row.get(name, ())) for name in ("needs", "data")}
        listed.append(Experiment(**fields | {"measure": module.measure, "checks": checks, "plot": Plot(**row["plot"])}))
    return document["topic"], listed
