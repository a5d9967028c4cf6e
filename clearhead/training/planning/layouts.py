"""The layouts that train a network on a number of GPUs, and what each costs by the figures of the GPUs' makers.

A step takes its computation and the communication that no computation hides. Forward and backward take 3 times the
products of the forward pass (Kaplan et al. 2020, 2.1: 6 FLOPs a parameter and token, and those of attention, counted
here one by one), 4 times those of blocks that are computed again. Communication: `ddp` sums the gradients of all ranks
once an update, while the backward pass of its last batch runs; `fsdp` gathers the weights twice a batch and scatters
the gradients once (Rajbhandari et al. 2020, 7.2), while the batch is computed; `tensor` sums activations twice a block
and pass (three times with cross-attention), and the next product must wait for them (Shoeybi et al. 2019, 3).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2

from clearhead.config import ModelConfig
from clearhead.config.adapter import AdapterConfig
from clearhead.errors import UserError
from clearhead.recipe.training import Muon, Training
from clearhead.training.planning.memory import (
    Network,
    Parallel,
    PeakMemory,
    Setting,
    Shape,
    divides,
    memory_of,
    network_of,
    reads_pictures,
)

LINK_SHARE = 0.8
"""Share of a link's bandwidth that a collective reaches."""
LATENCY = 20e-6
"""Seconds of one hop of a collective: its kernel's start and the wire."""


@dataclass(frozen=True)
class Hardware:
    """One GPU, the node it sits in, and the network between nodes; a second is the unit of all rates."""

    name: str
    flops: float
    """FLOPs of a dense matrix product in bfloat16."""
    memory: int
    """Bytes."""
    bandwidth: float
    """Bytes to and from that memory."""
    link: float
    """Bytes that one GPU sends to the others of its node."""
    network: float
    """Bytes that one GPU sends to other nodes."""
    per_node: int = 8
    is_gpu: bool = True

    def group_bandwidth(self, ranks: int, stride: int = 1) -> float:
        """Bytes a second that a ring over `ranks` GPUs, every `stride`-th one, moves.

        Inside a node this is the link. Between nodes it is all network cards of the group's members in one node, as a
        ring goes through each of them.
        """
        if ranks * stride <= self.per_node:
            return LINK_SHARE * self.link
        members = max(1, self.per_node // stride)
        return LINK_SHARE * min(self.link, members * self.network)

    def all_reduce(self, n_bytes: float, ranks: int, *, stride: int = 1, messages: int = 1) -> float:
        """Seconds: 2 (n - 1) / n of the bytes through each rank (Patarasuk and Yuan 2009), 2 log2 n hops a message."""
        return 2 * self.all_gather(n_bytes, ranks, stride=stride, messages=messages)

    def all_gather(self, n_bytes: float, ranks: int, *, stride: int = 1, messages: int = 1) -> float:
        """Seconds, of a reduce-scatter too: (n - 1) / n of the bytes through each rank, log2 n hops a message."""
        if ranks == 1:
            return 0.0
        hops = messages * log2(ranks)
        return (ranks - 1) / ranks * n_bytes / self.group_bandwidth(ranks, stride) + hops * LATENCY


GB = 1_000_000_000
GIB = 1 << 30
KNOWN = {
    # The makers' data sheets, SXM form: dense bfloat16, memory, NVLink one way, one network card a GPU.
    "a100": Hardware("a100", 312e12, 80 * GIB, 2.0e12, 300e9, 25e9),
    "h100": Hardware("h100", 989e12, 80 * GIB, 3.35e12, 450e9, 50e9),
    "h200": Hardware("h200", 989e12, 141 * GB, 4.8e12, 450e9, 50e9),
    # A rough guess at two cores with bfloat16 instructions, for trying out plans. Give your own figures.
    "cpu": Hardware("cpu", 800e9, 16 * GIB, 40e9, 5e9, 1e9, per_node=1, is_gpu=False),
}


UNITS = {"flops": 1e12, "memory": GB, "bandwidth": 1e9, "network": 1e9, "per_node": 1}


def hardware(name: str, figures: Mapping[str, float | None] | None = None) -> Hardware:
    """A known GPU with some of its figures changed: flops in TFLOP/s, memory in GB, bandwidth and network in GB/s.

    Raises UserError for a figure of 0 or less.
    """
    given = {field: value for field, value in (figures or {}).items() if value is not None}
    for field, value in given.items():
        if not value > 0:
            option = "gpus-per-node" if field == "per_node" else field
            raise UserError(f"--{option}: expected more than 0, got {value}; leave it out for that of {name}")
    base = KNOWN[name]
    # Each figure keeps its type: bytes and GPUs are whole numbers.
    changed = {field: type(vars(base)[field])(value * UNITS[field]) for field, value in given.items()}
    return replace(base, **changed)


USABLE = 0.9
"""Usable share of a GPU's memory. The rest goes to the driver, to kernels' workspaces and to gaps between tensors."""
ORTHOGONAL_STEPS = 5
BUCKET = 25 << 20
"""Bytes of gradients that DistributedDataParallel sends at once."""


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
    """Share of the GPU's FLOPs that computation reaches: of one GPU, before any communication."""
    mixed: bool = True
    adapter: AdapterConfig | None = None

    @property
    def row(self) -> int:
        """Tokens of one sequence, or pair of sequences."""
        return self.source + self.target


@dataclass(frozen=True)
class Times:
    """Seconds of one update."""

    compute: float
    optimizer: float
    data: float
    """Summing gradients, or gathering weights and scattering gradients."""
    tensor: float
    """Summing activations."""
    hidden: float
    """Communication that happens while something is computed."""

    @property
    def step(self) -> float:
        """The time if communication is hidden behind computation as far as possible."""
        return self.unhidden - self.hidden

    @property
    def unhidden(self) -> float:
        """The time if nothing is hidden."""
        return self.compute + self.optimizer + self.data + self.tensor


@dataclass(frozen=True)
class Alternative:
    """One layout, with the largest batch that fits, or the smallest if none does."""

    setting: Setting
    shape: Shape
    """The shape of one batch on one rank."""
    memory: PeakMemory
    fits: bool
    times: Times
    tokens_per_second: float
    hours: float

    @property
    def name(self) -> str:
        """A readable name: `fsdp x 16, tensor x 8`."""
        data = f"{self.setting.parallel} x {self.setting.data}" if self.setting.data > 1 else ""
        tensor = f"tensor x {self.setting.tensor}" if self.setting.tensor > 1 else ""
        return ", ".join(filter(None, (data, tensor))) or "one GPU"


@dataclass(frozen=True)
class Plan:
    """Every layout, the simplest first."""

    job: Job
    machine: Hardware
    gpus: int
    alternatives: tuple[Alternative, ...]

    @property
    def chosen(self) -> Alternative | None:
        """The simplest layout that fits; None if none does."""
        return next((one for one in self.alternatives if one.fits), None)


def plan(job: Job, machine: Hardware, gpus: int) -> Plan:
    """The cost of each layout on this number of GPUs.

    Raises UserError for no GPU, nodes that are not full, an update with fewer sequences than GPUs, and weights in
    bfloat16 on more than one.
    """
    if gpus > 1 and job.training.weights == "bf16":
        raise UserError(f"training.weights: expected fp32 with {gpus} GPUs, got bf16; leave it out, or try --gpus 1")
    if gpus < 1:
        raise UserError(f"--gpus: expected 1 or more, got {gpus}; try 1")
    if gpus > machine.per_node and gpus % machine.per_node:
        raise UserError(
            f"--gpus: expected whole nodes of {machine.per_node}, got {gpus};"
            f" try {gpus - gpus % machine.per_node}, or give --gpus-per-node"
        )
    rows = job.batch // job.row
    found = [best(job, machine, parallel, gpus // tensor, tensor) for parallel, tensor in layouts(job, machine, gpus)]
    alternatives = tuple(one for one in found if one is not None)
    if not alternatives:
        raise UserError(
            f"--batch: expected at least a sequence of {job.row} tokens for each of {gpus} GPUs, got {rows} sequences;"
            f" try --batch {gpus * job.row}, or fewer --gpus"
        )
    return Plan(job, machine, gpus, alternatives)


def layouts(job: Job, machine: Hardware, gpus: int) -> Iterator[tuple[Parallel, int]]:
    """The simplest first: copies of everything, then shards of everything, then blocks divided inside a node too."""
    yield "ddp", 1
    if gpus > 1:
        yield "fsdp", 1
    tensor = 2
    while tensor <= min(gpus, machine.per_node):
        if gpus % tensor == 0 and divides(job.config, tensor):
            yield "fsdp", tensor
        tensor *= 2


def best(job: Job, machine: Hardware, parallel: Parallel, data: int, tensor: int) -> Alternative | None:
    """The layout with the fewest batches for each update that fit, with checkpointing if even one row needs it.

    None if an update has fewer rows than ranks among which they are divided.
    """
    rows = job.batch // job.row // data
    if rows < 1:
        return None
    network = network_of(job.config, tensor)
    last: Alternative | None = None
    for checkpointed in (False, True):
        for accumulate in (n for n in range(1, rows + 1) if rows % n == 0):
            setting = Setting(
                parallel=parallel,
                data=data,
                tensor=tensor,
                accumulate=accumulate,
                checkpointed=checkpointed,
                mixed=job.mixed,
                weights=job.training.weights,
                explicit=False if machine.is_gpu else None,
                adapter=job.adapter,
            )
            shape = Shape(rows // accumulate, job.source, job.target)
            last = alternative(job, machine, network, setting, shape)
            if last.fits:
                return last
    return last


def alternative(job: Job, machine: Hardware, network: Network, setting: Setting, shape: Shape) -> Alternative:
    """What this layout costs with batches of this shape on each rank."""
    memory = memory_of(network, shape, setting, optimizer=job.training.optimizer, ema=job.training.ema is not None)
    times = times_of(job, machine, network, setting, shape)
    rate = shape.tokens * setting.accumulate * setting.data / times.step
    fits = memory.total <= USABLE * machine.memory
    return Alternative(setting, shape, memory, fits, times, rate, job.tokens / rate / 3600)


def times_of(job: Job, machine: Hardware, network: Network, setting: Setting, shape: Shape) -> Times:
    """Seconds of one update of one rank."""
    forward = blocks = 0
    for part in network.parts(shape, setting):
        flops = part.cost.of(shape.rows).flops
        forward += flops
        blocks += flops if ".blocks." in part.path else 0
    rate = machine.flops * job.mfu
    batch = (3 * forward + (blocks if setting.checkpointed else 0)) / rate
    compute = setting.accumulate * batch
    shards = setting.data if setting.parallel == "fsdp" else 1
    optimizer = optimizer_seconds(job, machine, network, shards)
    tensor = setting.accumulate * tensor_seconds(network.config, machine, setting, shape)
    if setting.parallel == "ddp":
        buckets = 1 + 4 * network.weights // BUCKET
        data = machine.all_reduce(4 * network.weights, setting.data, stride=setting.tensor, messages=buckets)
        hidden = min(data, 2 / 3 * batch)
    else:
        group = {"stride": setting.tensor, "messages": network.units}
        data = setting.accumulate * 3 * machine.all_gather(4 * network.weights, setting.data, **group)
        hidden = min(data, compute)
    return Times(compute, optimizer, data, tensor, hidden)


def optimizer_seconds(job: Job, machine: Hardware, network: Network, shards: int) -> float:
    """AdamW reads four float32 numbers a parameter and writes three; Muon also multiplies each matrix with itself.

    A step of Newton-Schulz on r x c costs 4 r^2 c + 2 r^3 FLOPs; it needs whole matrices, which every rank multiplies.
    """
    seconds = 7 * 4 * network.weights / shards / machine.bandwidth
    if isinstance(job.training.optimizer, Muon):
        flops = ORTHOGONAL_STEPS * sum(4 * r * r * c + 2 * r**3 for r, c in network.matrices)
        seconds += flops / (machine.flops * job.mfu)
    return seconds


def tensor_seconds(config: ModelConfig, machine: Hardware, setting: Setting, shape: Shape) -> float:
    """Seconds for one batch: summing each block's branches over the ranks that share it, forward and backward."""
    if setting.tensor == 1:
        return 0.0
    seconds = 0.0
    for stack, length, branches in (
        (config.encoder, shape.source, 2),
        (config.decoder, shape.target, 3 if config.encoder else 2),
    ):
        if stack is not None:
            n_bytes = (2 if setting.mixed else 4) * shape.rows * length * stack.d_model
            passes = 3 if setting.checkpointed else 2
            seconds += passes * stack.n_layers * branches * machine.all_reduce(n_bytes, setting.tensor)
    return seconds


def option_effects(job: Job, machine: Hardware, chosen: Alternative) -> Sequence[tuple[str, Alternative]]:
    """The same layout and batch with each lever reversed, to show its effect."""
    setting = chosen.setting
    network = network_of(job.config, setting.tensor)
    changed = [
        ("activation checkpointing", replace(setting, checkpointed=True)),
        ("whole logits", replace(setting, chunked=False)),
        ("explicit attention", replace(setting, explicit=True)),
    ]
    if setting.mixed and setting.data * setting.tensor == 1 and setting.weights == "fp32":
        changed.append(("weights in bfloat16", replace(setting, weights="bf16")))
    if setting.checkpointed:
        changed[0] = ("no activation checkpointing", replace(setting, checkpointed=False))
    return [(name, alternative(job, machine, network, one, chosen.shape)) for name, one in changed]


def command(plan: Plan, recipe: str) -> str:
    """The command that trains with this layout."""
    chosen = plan.chosen
    assert chosen is not None
    setting = chosen.setting
    # A batch of a run is divided among its ranks.
    if reads_pictures(plan.job.config):
        fields = [f"--batch_size {chosen.shape.rows * setting.data}"]
    else:
        fields = [f"--training.max_tokens {chosen.shape.tokens * setting.data}"]
    fields += [f"--training.accumulate {setting.accumulate}"] if setting.accumulate > 1 else []
    fields += [f"--training.parallel {setting.parallel}"] if plan.gpus > 1 else []
    fields += [f"--training.tensor_parallel {setting.tensor}"] if setting.tensor > 1 else []
    fields += ["--training.checkpoint_activations true"] if setting.checkpointed else []
    train = f"train {recipe} {' '.join(fields)}"
    if plan.gpus == 1:
        return f"clearhead {train}"
    nodes = -(-plan.gpus // plan.machine.per_node)
    each = plan.gpus // nodes
    if nodes == 1:
        return f"torchrun --standalone --nproc-per-node {each} -m clearhead {train}"
    meet = "--rdzv-backend c10d --rdzv-endpoint FIRST_NODE:29500"
    return f"torchrun --nnodes {nodes} --nproc-per-node {each} {meet} -m clearhead {train}"
