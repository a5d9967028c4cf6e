"""Bytes that one rank of a training run holds: weights, gradients, optimizer, activations, logits.

Weights, gradients and optimizer state are float32 numbers, or most of them bfloat16 (Rajbhandari et al. 2020, ZeRO, 3,
counts the same parts): `fully_shard` divides all of them by its ranks, its stage 3. Activations are what this network
keeps for its backward pass (`model/cost.py`; Korthikanti et al. 2022, 4, is the same sum for another network); tests
hold them to what autograd saves. A rank of tensor parallelism is counted as a network of fewer heads and a narrower
feed-forward (Shoeybi et al. 2019, Megatron-LM, 3), with embeddings and head whole.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Literal

from torch import nn

from clearhead.config import Continuous, LanguageHead, ModelConfig, TokenInput
from clearhead.config.adapter import AdapterConfig
from clearhead.model.adapter import adapt
from clearhead.model.cost import Component, largest_kept, parts
from clearhead.model.fast.activation_checkpointing import WORTH_IT
from clearhead.model.fast.tensor_parallel import share
from clearhead.model.loss import CHUNK, FEW
from clearhead.model.meta import unallocated
from clearhead.recipe.training import Muon, Optimizer


@dataclass(frozen=True)
class Shape:
    """The grid of one batch: the number of rows, and of positions in each stack."""

    rows: int
    source: int = 0
    target: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of both stacks."""
        return self.rows * (self.source + self.target)

    @property
    def positions(self) -> int:
        """Positions of the last stack, which the head reads."""
        return self.rows * (self.target or self.source)


def vocabulary(config: ModelConfig) -> int:
    """Logits of a position; 0 without a language head."""
    reads = config.output.input
    return reads.vocab_size if config.predicts_tokens and isinstance(reads, TokenInput) else 0


Parallel = Literal["ddp", "fsdp"]
TEACHER_LOGIT = 16
"""Bytes for each logit of a teacher: itself, the logarithms of both networks' probabilities, and their divergence."""
LOSS_BYTES = 8
"""Bytes for each logit while its loss is computed and differentiated, beside the 4 kept: a gradient in and one out."""
MUON_BATCH, MUON_BYTES = 1 << 22, 10
"""Numbers that Muon takes at once (or one larger matrix), and the temporary bytes of each, with bfloat16."""


@dataclass(frozen=True)
class Setting:
    """How a rank computes."""

    parallel: Parallel = "ddp"
    data: int = 1
    """Ranks among which the batch is divided."""
    tensor: int = 1
    """Ranks among which each block is divided."""
    accumulate: int = 1
    """Number of batches in one update."""
    checkpointed: bool = False
    """Blocks keep only their input, and compute the rest again (Chen et al. 2016)."""
    chunked: bool = True
    """The loss is computed over a part of the positions at a time if there are many logits (`model/loss.py`)."""
    mixed: bool = True
    """bfloat16 autocast over float32 weights."""
    weights: Literal["fp32", "bf16"] = "fp32"
    """bf16: matrices of linear layers and their gradients are kept in 16 bits, and so is the optimizer's state."""
    explicit: bool | None = None
    """Whether attention is step by step, with its matrices; None: up to the length at which a CPU does so."""
    adapter: AdapterConfig | None = None
    """Adapters, which alone are trained."""
    teacher: ModelConfig | None = None
    """A network that answers each batch too, in float32 and without a backward pass."""


class Network:
    """The counts of a network that a plan needs, from the network itself, built without memory."""

    def __init__(self, config: ModelConfig, tensor: int = 1) -> None:
        self.config = config if tensor == 1 else divided(config, tensor)
        self.module = unallocated(self.config)

    @cached_property
    def weights(self) -> int:
        """All parameters, tied ones once."""
        return self.module.n_parameters

    @cached_property
    def by_tensor(self) -> dict[int, int]:
        """Numbers of the matrix of each linear layer, tied ones once."""
        return {id(m.weight): m.weight.numel() for m in self.module.modules() if isinstance(m, nn.Linear)}

    @property
    def linear(self) -> int:
        """Numbers in the matrices of linear layers, which autocast copies in 16 bits."""
        return sum(self.by_tensor.values())

    @property
    def recomputes(self) -> bool:
        """True if training computes again what is quick to compute (`model/fast/activation_checkpointing.py`)."""
        return self.linear >= WORTH_IT

    @cached_property
    def untied(self) -> int:
        """Numbers in the matrices of linear layers that are no token table, which may be kept in 16 bits."""
        tables = {id(m.weight) for m in self.module.modules() if isinstance(m, nn.Embedding)}
        return sum(n for tensor, n in self.by_tensor.items() if tensor not in tables)

    @cached_property
    def vectors(self) -> int:
        """Numbers in parameters with one axis: biases and norms."""
        return sum(p.numel() for p in self.module.parameters() if p.ndim < 2)

    @property
    def blocks(self) -> list[nn.Module]:
        """The blocks of both stacks."""
        return [block for stack in self.module.stacks().values() for block in stack.blocks]

    @cached_property
    def matrices(self) -> list[tuple[int, int]]:
        """Rows and columns of the matrices inside blocks, which Muon takes, the shorter axis first."""
        found = {id(m.weight): m.weight.shape for b in self.blocks for m in b.modules() if isinstance(m, nn.Linear)}
        return [(min(shape), max(shape)) for shape in found.values()]

    @cached_property
    def hidden(self) -> int:
        """Parameters that Muon takes."""
        return sum(rows * columns for rows, columns in self.matrices)

    @cached_property
    def largest_unit(self) -> int:
        """Parameters of the largest block, or of all that is outside blocks: what `fully_shard` gathers at once."""
        sizes = [sum(p.numel() for p in block.parameters()) for block in self.blocks]
        return max(*sizes, self.weights - sum(sizes))

    def parts(self, shape: Shape, setting: Setting) -> list[Component]:
        """Components with the costs of one row."""
        again = self.recomputes and not setting.checkpointed
        return parts(self.module, shape.source, shape.target, explicit=setting.explicit, selective=again)

    def largest(self, shape: Shape, explicit: bool | None) -> int:
        """Numbers of the largest tensor that a block keeps of one row."""
        return largest_kept(self.module, shape.source, shape.target, explicit=explicit)


@lru_cache(maxsize=2)
def network_of(config: ModelConfig, tensor: int = 1) -> Network:
    """The counts of a network. Cached, because a run needs them several times before it begins."""
    return Network(config, tensor)


def divided(config: ModelConfig, ranks: int) -> ModelConfig:
    """The network that one of `ranks` ranks of tensor parallelism computes."""
    return config.model_copy(update={name: share(stack, ranks) for name, stack in config.stacks.items()})


@dataclass(frozen=True)
class Activations:
    """Bytes kept for the backward pass of one batch."""

    blocks: int
    """Bytes of all blocks if everything is kept."""
    one_block: int
    """Bytes of the largest block."""
    inputs: int
    """Bytes of the inputs of all blocks, which checkpointing keeps."""
    others: int
    """Embeddings, last norms, head."""
    logits: int
    """Bytes that the loss keeps: the logarithms of all probabilities, in float32."""
    head_gradients: int
    """Gradients of the head's matrix and of its input states, which a chunked loss makes in the forward pass."""
    largest: int
    """The largest tensor of a block in float32. Two of its gradients exist at the moment of the most memory."""

    @classmethod
    @lru_cache(maxsize=4)
    def of(cls, network: Network, shape: Shape, setting: Setting) -> "Activations":
        """From the cost of each component."""
        in_blocks = {"encoder": 0, "decoder": 0}
        others = 0
        for part in network.parts(shape, setting):
            n_bytes = part.cost.of(shape.rows).kept_bytes(mixed=setting.mixed)
            stack, _, rest = part.path.partition(".")
            if rest.startswith("blocks."):
                in_blocks[stack] += n_bytes
            else:
                others += n_bytes
        config = network.config
        lengths = {"encoder": shape.source, "decoder": shape.target}
        there = [(in_blocks[name], stack, lengths[name]) for name, stack in network.module.stacks().items()]
        logits = 4 * shape.positions * vocabulary(config)
        return cls(
            blocks=sum(in_blocks.values()),
            one_block=max(n_bytes // stack.config.n_layers for n_bytes, stack, _ in there),
            inputs=sum(
                4 * shape.rows * length * stack.config.d_model * stack.config.n_layers for _, stack, length in there
            ),
            others=others - logits,
            logits=logits,
            head_gradients=logits and 4 * config.output.embed_width * (vocabulary(config) + shape.positions),
            largest=4 * shape.rows * network.largest(shape, setting.explicit),
        )

    def kept(self, setting: Setting) -> int:
        """Bytes kept at the end of the forward pass, without logits. Includes one block that is computed again."""
        return self.others + (self.inputs + self.one_block if setting.checkpointed else self.blocks)

    def loss(self, setting: Setting) -> int:
        """Bytes of the logits at their peak: `LOSS_BYTES` and 4 each, or of one chunk in the type of the products."""
        if setting.chunked and self.logits > 4 * min(CHUNK, FEW):
            return min(2 * CHUNK, self.logits // (2 if setting.mixed else 1)) + self.head_gradients
        return self.logits // 4 * (4 + LOSS_BYTES)

    def working(self) -> int:
        """Bytes beside the kept ones when the backward pass has reached the last block."""
        return self.head_gradients + 2 * self.largest


@dataclass(frozen=True)
class PeakMemory:
    """Peak bytes of one rank during an update."""

    weights: int
    """The weights, with those of a teacher."""
    copies: int
    """16-bit copies of the matrices, of a large network one at a time, and weights gathered from others."""
    gradients: int
    optimizer: int
    mean: int
    """The running mean of the weights."""
    activations: int
    logits: int
    working: int
    """Gradients on their way through a block."""
    update: int
    """Bytes for the optimizer's step, or for adding up the gradients of a table that is used twice."""
    held_over: bool
    """Whether all gradients exist while a batch is computed: of earlier batches, or as buckets to send."""

    @property
    def resting(self) -> int:
        """Bytes between updates."""
        return self.weights + self.optimizer + self.mean

    @property
    def total(self) -> int:
        """The largest of three moments: the loss and the first step back, both with every activation, and the end."""
        computing = self.copies + self.activations + max(self.logits, self.working)
        computing += self.gradients if self.held_over else 0
        return self.resting + max(computing, self.gradients + self.update)


def memory_of(
    network: Network, shape: Shape, setting: Setting, *, optimizer: Optimizer, ema: bool = False
) -> PeakMemory:
    """The memory of one rank, for one batch of this shape on it."""
    shards = setting.data if setting.parallel == "fsdp" else 1
    activations = Activations.of(network, shape, setting)
    halved = network.untied if setting.weights == "bf16" else 0
    weights, trained = 4 * network.weights - 2 * halved, network.weights
    if setting.adapter is not None:
        weights, trained = adapted_sizes(network.config, setting.adapter)
    at_once = max(network.by_tensor.values()) if network.recomputes else network.linear
    copies = 2 * min(network.linear - halved, at_once) if setting.mixed else 0
    if shards > 1:  # the unit at work and the next one, gathered; and the gradients of one, before they are sent
        copies += 3 * 4 * network.largest_unit
    logits, working = activations.loss(setting), activations.working()
    if setting.teacher is not None:  # Its answers are compared with all logits at once.
        beside = network_of(setting.teacher)
        logits = activations.loss(replace(setting, chunked=False)) + TEACHER_LOGIT * (activations.logits // 4)
        working = max(working, 2 * 4 * shape.rows * beside.largest(shape, setting.explicit))
    own = optimizer_bytes(network, optimizer, rounded=setting.weights == "bf16")
    return PeakMemory(
        weights=weights // shards + teacher_bytes(setting),
        copies=copies,
        gradients=(4 * trained if setting.adapter else weights) // shards,
        optimizer=(8 * trained if setting.adapter else own) // shards,
        mean=4 * trained // shards if ema else 0,
        activations=activations.kept(setting),
        logits=logits,
        working=working,
        update=0 if setting.adapter else max(update_bytes(network, optimizer) // shards, tied_bytes(network)),
        held_over=setting.accumulate > 1 or setting.data > 1,
    )


def teacher_bytes(setting: Setting) -> int:
    """The weights of a teacher, which are among those of the run; 0 without one."""
    return 0 if setting.teacher is None else 4 * network_of(setting.teacher).weights


def optimizer_bytes(network: Network, optimizer: Optimizer, *, rounded: bool = False) -> int:
    """AdamW: two means a parameter; Muon: one for the matrices inside blocks, which it takes.

    In float32, or, `rounded`, in 16 bits, but for those of vectors.
    """
    n_means = 2 * network.weights - (network.hidden if isinstance(optimizer, Muon) else 0)
    return 2 * n_means + 2 * 2 * network.vectors if rounded else 4 * n_means


def tied_bytes(network: Network) -> int:
    """The gradient of a token table as embedding, and its sum with that as head; 0 if the two are not tied."""
    head = network.config.head
    if not isinstance(head, LanguageHead) or not head.tied:
        return 0
    return 2 * 4 * vocabulary(network.config) * network.config.output.embed_width


def update_bytes(network: Network, optimizer: Optimizer) -> int:
    """Muon: its largest batch of matrices of one shape, and their Nesterov momentum. AdamW: nothing."""
    if not isinstance(optimizer, Muon) or not network.matrices:
        return 0
    shapes = Counter(network.matrices)
    at_once = [max(rows * columns, min(MUON_BATCH, n * rows * columns)) for (rows, columns), n in shapes.items()]
    return (4 + MUON_BYTES) * max(at_once)


def reads_pictures(config: ModelConfig) -> bool:
    """Returns True if batches are counted in pictures, by `batch_size`, and not in tokens."""
    return config.decoder is None and isinstance(config.first.input, Continuous)


@cache
def adapted_sizes(config: ModelConfig, adapter: AdapterConfig) -> tuple[int, int]:
    """The bytes of all weights in float32 or as they are rounded, and the number of weights that are trained."""
    network = adapt(unallocated(config), adapter)
    tensors = [*network.parameters(), *network.buffers()]
    return sum(t.nbytes for t in tensors), sum(t.numel() for t in tensors if t.requires_grad)
