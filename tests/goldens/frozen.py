"""What a refactoring may not change, as JSON values by name."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, get_args
from unittest.mock import patch

from torch import nn

from clearhead.checkpoints.families import family_of, presets
from clearhead.config import ModelConfig, PatchInput
from clearhead.model.cost import parts
from clearhead.model.fast.tensor_parallel import undivided, uneven
from clearhead.model.meta import masks_of, ops_of, unallocated, weights_of
from clearhead.recipe.training import AdamW, Muon
from clearhead.training import sharding
from clearhead.training.events import Stepped
from clearhead.training.planning.memory import Network, Setting, Shape, memory_of
from clearhead.training.ranks import Ranks
from clearhead.training.train import train
from tests.model import small
from tests.training.tiny import Kind, new_run, task_of

LENGTHS = (17, 11)
STEPS = 20
SETTINGS = {
    "plain": Setting(mixed=False, chunked=False),
    "mixed": Setting(),
    "checkpointed": Setting(checkpointed=True, accumulate=2),
    "fused": Setting(explicit=False, weights="bf16"),
    "fsdp": Setting(parallel="fsdp", data=2, tensor=2),
}


def divides(config: ModelConfig, ranks: int) -> bool:
    """True if heads and feed-forward units can be divided among this number of ranks."""
    stacks = unallocated(config).stacks().values()
    return not any(undivided(stack) or uneven(stack, stack.config, ranks) for stack in stacks)


def configs() -> Iterator[tuple[str, ModelConfig]]:
    """Every preset, every pair of mechanisms, and every variant that is compared with the reference library."""
    yield from ((f"preset {name}", config) for name, config in presets().items())
    for name, changes in small.PAIRS.items():
        yield f"decoder {name}", small.decoder(**changes).config
        yield f"encoder-decoder {name}", small.encoder_decoder(**changes).config
    import transformers

    from tests.parity.cases import CASES

    for case in CASES:
        reference = getattr(transformers, case.architecture)
        document = reference.config_class(**case.config, architectures=[case.architecture]).to_dict()
        document["architectures"] = [case.architecture]
        yield f"parity {case}", family_of(document, where="config.json").read(document, where="config.json")[0]


def frozen() -> dict[str, Any]:
    """Everything, by name."""
    found: dict[str, Any] = {}
    for name, config in configs():
        found[f"{name}: ops"] = [op.model_dump() for op in ops_of(config)]
        found[f"{name}: masks"] = {at: mask.model_dump() for at, mask in masks_of(config).items()}
        found |= {f"{name}: {what}": value for what, value in _counted(config)}
    found |= {f"losses {kind}": _losses(kind) for kind in get_args(Kind)}
    return found


def _lengths(config: ModelConfig) -> tuple[int, int]:
    """Of source and target; 0 for a stack that is not there, an image's own length."""
    source, target = LENGTHS
    if config.encoder is not None and isinstance(config.encoder.input, PatchInput):
        source = config.encoder.input.length
    return source if config.encoder else 0, target if config.decoder else 0


def _counted(config: ModelConfig) -> Iterator[tuple[str, Any]]:
    network, lengths = unallocated(config), _lengths(config)
    yield "weights", {name: [weight.shape, weight.tied_to] for name, weight in weights_of(network).items()}
    for explicit in (None, True, False):
        yield f"cost explicit={explicit}", [asdict(part) for part in parts(network, *lengths, explicit=explicit)]
    for name, setting in SETTINGS.items():
        if setting.tensor == 1 or divides(config, setting.tensor):
            counts, shape = Network(config, setting.tensor), Shape(3, *lengths)
            for optimizer in (AdamW(), Muon()):
                yield f"memory {name} {optimizer.kind}", asdict(memory_of(counts, shape, setting, optimizer=optimizer))
    if divides(config, 2):
        yield "shards", _shards(config)


def _shards(config: ModelConfig) -> list[Any]:
    """How tensor parallelism divides each module: what PyTorch is asked to do."""
    asked: list[Any] = []
    network = unallocated(config)
    names = {id(module): name for name, module in network.named_modules()}

    def record(module: nn.Module, mesh: object, plan: dict[str, object]) -> None:
        asked.extend([f"{names[id(module)]}.{path}", type(style).__name__] for path, style in plan.items())

    ranks = Ranks(size=2, rank=1, tensor_size=2, mesh={"tensor": None})  # pyrefly: ignore
    with patch("torch.distributed.tensor.parallel.parallelize_module", record):
        for stack in filter(None, (network.encoder, network.decoder)):
            sharding._divide_stack(stack, ranks)
    return sorted(asked)


def _losses(kind: Kind) -> list[str]:
    run = new_run(task_of(kind), steps=STEPS)
    return [event.loss.hex() for event in train(run) if isinstance(event, Stepped)]
