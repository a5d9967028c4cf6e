"""What training costs on one GPU or CPU, by the figures of its maker.

Forward and backward take 3 times the products of the forward pass (Kaplan et al. 2020, 2.1: 6 FLOPs a parameter and
token, and those of attention, counted here one by one), 4 times those of blocks that are computed again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from clearhead.config import ModelConfig
from clearhead.config.adapter import AdapterConfig
from clearhead.errors import UserError
from clearhead.recipe.training import Muon, Training
from clearhead.training.planning.memory import (
    Network,
    PeakMemory,
    Setting,
    Shape,
    memory_of,
    network_of,
    reads_pictures,
)


@dataclass(frozen=True)
class Hardware:
    """One GPU, or a CPU; a second is the unit of all rates."""

    name: str
    flops: float
    """FLOPs of a dense matrix product in bfloat16."""
    memory: int
    """Bytes."""
    bandwidth: float
    """Bytes to and from that memory."""
    watts: float
    """Its power limit."""
    is_gpu: bool = True


GB, GIB = 1_000_000_000, 1 << 30
KNOWN = {
    # The makers' data sheets, SXM form: dense bfloat16, memory, power.
    "a100": Hardware("a100", 312e12, 80 * GIB, 2.0e12, 400),
    "h100": Hardware("h100", 989e12, 80 * GIB, 3.35e12, 700),
    "h200": Hardware("h200", 989e12, 141 * GB, 4.8e12, 700),
    # A rough guess at two cores with bfloat16 instructions, for trying out plans. Give your own figures.
    "cpu": Hardware("cpu", 800e9, 16 * GIB, 40e9, 30, is_gpu=False),
}
UNITS = {"flops": 1e12, "memory": GB, "bandwidth": 1e9, "watts": 1}
USABLE = 0.9
"""Usable share of a GPU's memory. The rest goes to the driver, to kernels' workspaces and to gaps between tensors."""
ORTHOGONAL_STEPS = 5


def hardware(name: str, figures: Mapping[str, float | None]) -> Hardware:
    """A known GPU with some of its figures changed: flops in TFLOP/s, memory in GB, bandwidth in GB/s.

    Raises UserError for a figure of 0 or less.
    """
    given = {field: value for field, value in figures.items() if value is not None}
    for field, value in given.items():
        if not value > 0:
            raise UserError(f"--{field}: expected more than 0, got {value}; leave it out for that of {name}")
    # Bytes stay whole numbers.
    base = KNOWN[name]
    return replace(base, **{field: type(vars(base)[field])(value * UNITS[field]) for field, value in given.items()})


@dataclass(frozen=True)
class Job:
    """The network to train, and the settings of its training."""

    config: ModelConfig
    training: Training
    source: int
    target: int
    batch: int
    """Tokens of an update, source and target together."""
    tokens: int
    """Tokens of the whole training."""
    mfu: float = 0.4
    """Share of the GPU's FLOPs that computation reaches."""
    mixed: bool = True
    adapter: AdapterConfig | None = None

    @property
    def row(self) -> int:
        """Tokens of one sequence, or pair of sequences."""
        return self.source + self.target


@dataclass(frozen=True)
class Cost:
    """What a job costs in one setting, with batches of one shape."""

    setting: Setting
    shape: Shape
    memory: PeakMemory
    fits: bool
    compute: float
    """Seconds that an update computes."""
    optimizer: float
    """Seconds of the optimizer's step."""
    tokens_per_second: float
    hours: float
    kwh: float
    """Kilowatt-hours at the power limit."""

    @property
    def step(self) -> float:
        """Seconds of one update."""
        return self.compute + self.optimizer


def plan(job: Job, machine: Hardware) -> Cost:
    """The cost with the fewest batches an update that fit, with checkpointing if even one row needs it.

    If nothing fits, the cost of the least memory. Raises UserError for an update of less than a sequence.
    """
    rows = job.batch // job.row
    if rows < 1:
        raise UserError(f"--batch: expected at least a sequence of {job.row} tokens, got {job.batch}; try {job.row}")
    sizes = [n for n in range(1, rows + 1) if rows % n == 0]
    explicit = False if machine.is_gpu else None
    plain = Setting(mixed=job.mixed, weights=job.training.weights, explicit=explicit, adapter=job.adapter)
    for checkpointed, accumulate in product((False, True), sizes):
        setting = replace(plain, accumulate=accumulate, checkpointed=checkpointed)
        found = cost(job, machine, setting, Shape(rows // accumulate, job.source, job.target))
        if found.fits or (checkpointed and accumulate == rows):
            return found
    raise AssertionError


def cost(job: Job, machine: Hardware, setting: Setting, shape: Shape) -> Cost:
    """What this setting costs with batches of this shape."""
    network = network_of(job.config)
    memory = memory_of(network, shape, setting, optimizer=job.training.optimizer, ema=job.training.keeps_mean)
    forward = blocks = 0
    for part in network.parts(shape, setting):
        flops = part.cost.of(shape.rows).flops
        forward += flops
        blocks += flops if ".blocks." in part.path else 0
    rate = machine.flops * job.mfu
    compute = setting.accumulate * (3 * forward + (blocks if setting.checkpointed else 0)) / rate
    optimizer = optimizer_seconds(job, machine, network)
    tokens_per_second = shape.tokens * setting.accumulate / (compute + optimizer)
    hours = job.tokens / tokens_per_second / 3600
    fits = memory.total <= USABLE * machine.memory
    kwh = hours * machine.watts / 1000
    return Cost(setting, shape, memory, fits, compute, optimizer, tokens_per_second, hours, kwh)


def optimizer_seconds(job: Job, machine: Hardware, network: Network) -> float:
    """AdamW reads four float32 numbers a parameter and writes three; Muon also multiplies each matrix with itself.

    A step of Newton-Schulz on r x c costs 4 r^2 c + 2 r^3 FLOPs.
    """
    seconds = 7 * 4 * network.weights / machine.bandwidth
    if isinstance(job.training.optimizer, Muon):
        flops = ORTHOGONAL_STEPS * sum(4 * r * r * c + 2 * r**3 for r, c in network.matrices)
        seconds += flops / (machine.flops * job.mfu)
    return seconds


def option_effects(job: Job, machine: Hardware, chosen: Cost) -> Sequence[tuple[str, Cost]]:
    """The same batch with each option reversed, to show its effect."""
    setting = chosen.setting
    name = "no activation checkpointing" if setting.checkpointed else "activation checkpointing"
    changed = [
        (name, replace(setting, checkpointed=not setting.checkpointed)),
        ("whole logits", replace(setting, chunked=False)),
        ("explicit attention", replace(setting, explicit=True)),
    ]
    if setting.mixed and setting.weights == "fp32":
        changed.append(("weights in bfloat16", replace(setting, weights="bf16")))
    return [(name, cost(job, machine, one, chosen.shape)) for name, one in changed]


def command(job: Job, chosen: Cost, recipe: str) -> str:
    """The command that trains so."""
    setting, shape = chosen.setting, chosen.shape
    size = f"batch_size {shape.rows}" if reads_pictures(job.config) else f"training.max_tokens {shape.tokens}"
    fields = [f"--{size}"]
    fields += [f"--training.accumulate {setting.accumulate}"] if setting.accumulate > 1 else []
    fields += ["--training.checkpoint_activations true"] if setting.checkpointed else []
    return " ".join(["clearhead train", recipe, *fields])
