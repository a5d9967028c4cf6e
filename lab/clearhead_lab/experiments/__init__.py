"""One experiment a file, and the list of all."""

from difflib import get_close_matches
from importlib import import_module

from clearhead.errors import UserError
from clearhead_lab.experiment import Experiment

TOPICS = {
    "Positions": ("order_blindness", "position_shift", "extrapolation", "counting", "addition", "add_or_join"),
    "Attention": ("saturation", "heads", "causal_mask", "attention_importance"),
    "Norms, residual connections and depth": ("norm_padding", "norm_training", "residual_ablation", "depth_and_norm"),
    "Feed-forward": ("ffn_sparsity", "ffn_memory", "mixture_of_experts"),
    "Cost and size": ("quadratic_cost", "linear_attention", "scaling", "weight_tying", "lora", "compression"),
    "Words, sequences and tasks": ("contextual_words", "distance", "few_labels", "induction", "modalities"),
}
"""The modules of the experiments."""


def topics() -> dict[str, list[Experiment]]:
    """Every experiment by topic."""
    return {topic: [_read(module) for module in modules] for topic, modules in TOPICS.items()}


def experiments() -> dict[str, Experiment]:
    """Every experiment by name."""
    return {one.name: one for some in topics().values() for one in some}


def experiment(name: str) -> Experiment:
    """The experiment of this name. Raises UserError with the nearest name if there is none."""
    known = experiments()
    if name not in known:
        nearest = get_close_matches(name.lower().replace("_", "-"), [*known, "all"], n=1, cutoff=0.4)
        remedy = f"try {nearest[0]}" if nearest else "`clearhead lab` lists all"
        raise UserError(f"lab run: expected the name of an experiment, got {name!r}; {remedy}")
    return known[name]


def _read(module: str) -> Experiment:
    return import_module(f"clearhead_lab.experiments.{module}").EXPERIMENT
