"""Builds a network around tensors that already exist, such as a checkpoint's, without copies or random draws."""

import logging
from collections.abc import Callable, Mapping
from typing import cast

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from clearhead.config import Head, LanguageHead, ModelConfig
from clearhead.errors import UserError
from clearhead.model.heads import build_head
from clearhead.model.linear import LinearMap, RoundedTable, plain, shared_copy
from clearhead.model.meta import unallocated, weights_of
from clearhead.model.transformer import Transformer, draw

_log = logging.getLogger("clearhead")

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def assemble(
    config: ModelConfig, tensors: Mapping[str, Tensor], *, where: str, called: Callable[[str], str] = str
) -> Transformer:
    """The network whose parameters are these tensors themselves, with their strides and float dtypes.

    A tied table is given once, under its first name. Errors use the names in `called`. Raises UserError
    for a missing, misshapen, extra or integer tensor before anything is allocated.
    """
    return filled(unallocated(config), tensors, where=where, called=called)


def filled(
    network: Transformer, tensors: Mapping[str, Tensor], *, where: str, called: Callable[[str], str] = str
) -> Transformer:
    """The network without memory, with these tensors as its parameters and buffers. Errors are as in `assemble`."""
    check(network, tensors, where=where, called=called)
    network.load_state_dict({name: tensor.detach() for name, tensor in tensors.items()}, strict=False, assign=True)
    network.tie()
    assert not any(tensor.is_meta for tensor in network.state_dict().values())
    return network


def check(
    network: Transformer, tensors: Mapping[str, Tensor], *, where: str, called: Callable[[str], str] = str
) -> None:
    """Raises UserError, which names the first difference, unless these are the network's parameters and buffers."""
    buffers = {name: tensor for name, tensor in network.named_buffers() if name in network.state_dict()}
    wanted = {name: list(weight.shape) for name, weight in weights_of(network).items() if not weight.tied_to}
    wanted |= {name: list(tensor.shape) for name, tensor in buffers.items()}

    def refuse(name: str, expected: object, got: object) -> UserError:
        place = f"{where}:{called(name)}"
        return UserError(f"{place}: expected {expected}, got {got}; try the config.json it was saved with")

    for name, shape in wanted.items():
        if name not in tensors:
            raise refuse(name, f"a tensor of shape {shape}", "none")
        if list(tensors[name].shape) != shape:
            raise refuse(name, f"shape {shape}", list(tensors[name].shape))
        if tensors[name].dtype not in ((buffers[name].dtype,) if name in buffers else DTYPES):
            raise refuse(
                name,
                "integers" if name in buffers else "float numbers",
                f"{tensors[name].dtype}".removeprefix("torch."),
            )
    extra = sorted(tensors.keys() - wanted.keys())
    idle = [name for name in extra if name.endswith(".bias") and not tensors[name].any()]
    for name in extra:
        if name not in idle:
            raise refuse(name, "no such tensor", f"one of shape {list(tensors[name].shape)}")
    if idle:  # Quantizers add them to maps without a bias.
        names = f"{called(idle[0])}{f' and {len(idle) - 1} more' if len(idle) > 1 else ''}"
        _log.warning("%s: left out %s: a bias of zeros changes nothing", where, names)


def merged(network: Transformer) -> Transformer:
    """A copy of `network` with plain maps and tables of the same effective weights; `network` itself if all are plain.

    The copy shares all other tensors. Its config unties a head that no longer multiplies by the token table.
    """
    changed = [m for m in network.modules() if isinstance(m, LinearMap | RoundedTable)]
    instead: dict[nn.Module, nn.Module] = {m: plain(m) for m in changed}
    if not instead:
        return network
    made, head = cast("Transformer", shared_copy(network, instead)), network.config.head
    if isinstance(head, LanguageHead) and head.tied and network.get_submodule("head.output") in instead:
        made.config = network.config.model_copy(update={"head": head.model_copy(update={"tied": False})})
    return made


def new_head(config: ModelConfig, tensors: Mapping[str, Tensor], head: Head) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The same network under another head. Its output, and layers that the old head does not have, get new weights.

    Raises UserError if this network cannot have such a head.
    """
    try:
        config = ModelConfig.model_validate({**dict(config), "head": head})
    except ValidationError as error:
        raise UserError(f"head: expected one for this network, got {head.kind}; {error.errors()[0]['msg']}") from None
    new = build_head(config)
    draw(new, config.init)
    dtype = next((tensor.dtype for tensor in tensors.values()), torch.float32)
    drawn = {f"head.{name}": parameter.detach().to(dtype) for name, parameter in new.named_parameters()}
    if isinstance(head, LanguageHead) and head.tied:
        del drawn["head.output.weight"]
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if not name.startswith("head.")
        or (
            name in drawn
            and not name.startswith(("head.output.", "head.distilled."))
            and tensor.shape == drawn[name].shape
        )
    }
    return config, drawn | kept
