"""One experiment a file, and the list of all."""

from difflib import get_close_matches
from importlib import import_module

from clearhead.errors import UserError
from clearhead.lab.experiment import Experiment

MODULES = (
    "order_blindness",
    "saturation",
    "position_shift",
    "extrapolation",
    "counting",
    "addition",
    "add_or_join",
    "norm_padding",
    "norm_training",
    "residual_ablation",
    "depth_and_norm",
    "heads",
    "ffn_sparsity",
    "ffn_memory",
    "mixture_of_experts",
    "causal_mask",
    "quadratic_cost",
    "linear_attention",
    "scaling",
    "lora",
    "compression",
    "weight_tying",
    "contextual_words",
    "distance",
    "attention_importance",
    "few_labels",
    "induction",
    "modalities",
)


def experiments() -> dict[str, Experiment]:
    """Every experiment by name."""
    found: list[Experiment] = [import_module(f"clearhead.lab.experiments.{name}").EXPERIMENT for name in MODULES]
    return {one.name: one for one in found}


def experiment(name: str) -> Experiment:
    """The experiment of this name. Raises UserError with the nearest name if there is none."""
    known = experiments()
    if name not in known:
        nearest = get_close_matches(name.replace("_", "-"), known, n=1, cutoff=0.4)
        remedy = f"try {nearest[0]}" if nearest else "`clearhead lab` lists all"
        raise UserError(f"lab run: expected the name of an experiment, got {name!r}; {remedy}")
    return known[name]
