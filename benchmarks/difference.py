"""`python -m benchmarks.difference`: changes planted in random networks, and whether the difference ranks them first.

A trial draws a small network, changes all of its weights a little, as further training would, and one place much more:
a head, a neuron, or one matrix by an update of rank 1. A busy neuron is one of the half that write most on the texts of
the trial; a change of one that hardly fires there has no effect there, and only its weights show it. docs/difference.md
has the figures.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from cyclopts import App
from torch import Tensor, nn

from benchmarks.entry import run_command
from benchmarks.figures import Figure, show
from benchmarks.racing.machine import Machine
from clearhead import config as c
from clearhead.analysis.difference import PartChanges, tensor_changes, unit_changes
from clearhead.capture.difference import STANDS_OUT
from clearhead.model import Tokens, Transformer
from clearhead.trace import Address

app = App(name="python -m benchmarks.difference", help="Planted changes, and whether they are ranked first.")
VOCAB, D, HEADS, UNITS, LAYERS = 50, 32, 4, 64, 2
STACK = {
    "input": c.TokenInput(vocab_size=VOCAB), "d_model": D, "n_layers": LAYERS, "n_heads": HEADS, "d_ff": UNITS
}  # fmt: skip
MODERN = {"norm": "rms", "bias": False, "positions": c.Rotary(), "gated": True, "activation": "silu", "n_kv_heads": 2}
PRE = {"norm_place": "pre"}
POST = {"norm_place": "post", "activation": "gelu"}
TEXTS = (4, 5, 7, 7, 9, 9, 12, 12)
"""The lengths of the texts of a trial."""


@dataclass(frozen=True)
class Planted:
    """A pair of networks, and where the second is changed most."""

    first: Transformer
    second: Transformer
    inputs: list[Tokens]
    kind: str
    """head, busy neuron, neuron or rank 1."""
    place: str
    """The address of the part, or the name of the tensor."""


def configs() -> list[c.ModelConfig]:
    """A decoder with pre-norm and one of today's, an encoder with post-norm and a head of labels, and a translator."""
    plain, modern, post = (c.StackConfig.model_validate(STACK | more) for more in (PRE, MODERN, POST))
    return [
        c.ModelConfig(decoder=plain),
        c.ModelConfig(decoder=modern),
        c.ModelConfig(encoder=post, head=c.ClassificationHead(n_labels=3)),
        c.ModelConfig(encoder=plain, decoder=plain),
    ]


def planted(kind: str, seed: int, *, drift: float = 0.01, size: float = 1.0) -> Planted:
    """A trial. `drift` and `size` are the changes as shares of each tensor's norm, and of the planted weights'."""
    torch.manual_seed(seed)
    config = configs()[seed % 4]
    first = _drawn(Transformer(config))
    inputs = [Tokens.pad([torch.randint(VOCAB, (n,)).tolist() for n in TEXTS]) for _ in config.stacks]
    second = copy.deepcopy(first)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter += drift * _noise(parameter)
        match kind:
            case "head":
                place = _head(second, size)
            case "busy neuron":
                place = _neuron(second, size, _busy_neurons(first, inputs))
            case "neuron":
                place = _neuron(second, size, [site for site in PartChanges(first, first).sites if is_neuron(site)])
            case _:
                place = _rank_one(second, size)
    return Planted(first, second, inputs, kind, place)


def ranked_first(trial: Planted) -> bool:
    """Whether the weights show the planted change first: a head or neuron among both, an update of rank 1 as such."""
    if trial.kind != "rank 1":
        best = unit_changes(trial.first, trial.second)[0]
        return best.site == trial.place and best.score >= STANDS_OUT
    best = tensor_changes(trial.first, trial.second)[0]
    return best.name == trial.place and best.first_share > 0.99


def largest_effect(trial: Planted) -> bool:
    """Whether the planted head or neuron is first among the heads, or neurons, by what it writes on the texts."""
    changes = PartChanges(trial.first, trial.second)
    own = dict(zip(changes.sites, changes.read(trial.inputs).written.own.mean(0).tolist(), strict=True))
    alike = [site for site in own if is_neuron(site) == (trial.kind != "head")]
    return max(alike, key=own.__getitem__) == trial.place


def is_neuron(site: str) -> bool:
    """Whether an address is that of a neuron; else it is a head's."""
    return ".ffn." in site


def _drawn(network: Transformer) -> Transformer:
    for name, parameter in network.named_parameters():
        mean = 1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0
        nn.init.normal_(parameter, mean, 0.3)
    return network.eval()


def _noise(like: Tensor) -> Tensor:
    """Random numbers of the same norm."""
    noise = torch.randn_like(like)
    return noise * (like.norm() / noise.norm())


def _any(n: int) -> int:
    return int(torch.randint(n, ()))


def _part(network: Transformer, names: tuple[str, ...]) -> str:
    """The address of a random attention or feed-forward."""
    known = [path for path, module in network.named_modules() if path.rpartition(".")[2] in names and module]
    return known[_any(len(known))]


def _head(second: Transformer, size: float) -> str:
    """Changes the queries and the output of one head."""
    at, h, width = _part(second, ("attn", "cross")), _any(HEADS), D // HEADS
    rows = slice(h * width, (h + 1) * width)
    attention: Any = second.get_submodule(at)
    for part in (attention.q.weight[rows], attention.out.weight[:, rows]):
        part += size * _noise(part)
    return f"{at}.z[h={h}]"


def _busy_neurons(network: Transformer, inputs: list[Tokens]) -> list[str]:
    """The half of the neurons that write most."""
    parts = PartChanges(network, network)
    before = dict(zip(parts.sites, parts.read(inputs).written.before.mean(0).tolist(), strict=True))
    found = sorted((site for site in before if is_neuron(site)), key=lambda site: -before[site])
    return found[: len(found) // 2]


def _neuron(second: Transformer, size: float, known: list[str]) -> str:
    """Changes the row of a neuron's inputs and the column of its outputs."""
    site = Address.parse(known[_any(len(known))])
    module: Any = second.get_submodule(site.path.removesuffix(".post"))
    f = site.index[0][1]
    for part in (module.first.weight[f], module.down.weight[:, f]):
        part += size * _noise(part)
    return str(site)


def _rank_one(second: Transformer, size: float) -> str:
    """Adds an outer product to one matrix."""
    known = [name for name, parameter in second.named_parameters() if parameter.ndim == 2]
    name = known[_any(len(known))]
    matrix = second.get_parameter(name)
    update = torch.outer(*(torch.randn(n) for n in matrix.shape))
    matrix += size * update * (matrix.norm() / update.norm())
    return name


KINDS = ("head", "busy neuron", "neuron", "rank 1")


def counts(trials: int, **settings: float) -> tuple[dict[str, int], dict[str, int]]:
    """How many trials of each kind are first by their weights, and of heads and neurons by what they write."""
    weights, effects = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS[:3], 0)
    for kind in KINDS:
        for seed in range(trials):
            trial = planted(kind, seed, **settings)
            weights[kind] += ranked_first(trial)
            if kind in effects:
                effects[kind] += largest_effect(trial)
    return weights, effects


@app.default
def main(*, trials: int = 100, drift: float = 0.01, size: float = 1.0) -> None:
    """Plant changes in random networks and count those that are ranked first.

    Parameters
    ----------
    trials: Networks for each kind of change.
    drift: Change of all tensors, as a share of each one's norm.
    size: Planted change, as a share of the norm of the weights that it changes.
    """
    torch.set_num_threads(1)
    print(Machine.now(1))
    weights, effects = counts(trials, drift=drift, size=size)
    rows = [Figure(f"{kind}: first by weights", n, trials) for kind, n in weights.items()]
    rows += [Figure(f"{kind}: first by what it writes", effects[kind], trials) for kind in KINDS[:2]]
    show(f"planted changes, {trials} networks each", rows)
    print(f"\nany neuron: first by what it writes on these texts {effects['neuron']} of {trials}")


if __name__ == "__main__":
    run_command(app)
