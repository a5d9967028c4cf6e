"""Another config over the same weights, such as attention without its scale or with other positions."""

import re

from pydantic import ValidationError

from clearhead.config import ModelConfig, StackConfig
from clearhead.config.positions import WITHOUT_WEIGHTS
from clearhead.errors import UserError, expectation
from clearhead.model import Transformer
from clearhead.model.assign import assemble
from clearhead.storage.tensors import model_tensors


def changed(config: ModelConfig, *, scale: bool = True, positions: str | None = None) -> ModelConfig:
    """The config without the scale of its scores, or with other positions, in every stack.

    Raises UserError if the network cannot have such positions.
    """
    try:
        new = {name: _stack(stack, scale, positions) for name, stack in config.stacks.items()}
        return ModelConfig.model_validate({**dict(config), **new})
    except ValidationError as error:
        message = expectation(error.errors(include_url=False)[0])
        raise UserError(f"positions: expected some for this network, got {positions}; {message}") from None


def position_kinds(config: ModelConfig) -> list[str]:
    """The kinds of positions that the network can have, with its own first."""
    own = config.output.positions.kind
    return [own, *(kind for kind in WITHOUT_WEIGHTS if kind != own and _fits(config, kind))]


def over_the_same_weights(network: Transformer, config: ModelConfig) -> Transformer:
    """A network of a changed config that shares the tensors of another, in evaluation mode."""
    tensors = model_tensors(network)
    for name, stack in network.config.stacks.items():
        if stack.positions.kind != config.stacks[name].positions.kind:
            own = rf"{name}\.(positions|.*\.attn\.distance)\..*"
            tensors = {one: tensor for one, tensor in tensors.items() if not re.fullmatch(own, one)}
    return assemble(config, tensors, where="change").to(network.device).eval()


def _stack(stack: StackConfig, scale: bool, positions: str | None) -> StackConfig:
    new: dict[str, object] = dict(stack)
    if not scale:
        new["attn_scale"] = 1.0
    if positions is not None and positions != stack.positions.kind:
        if positions not in WITHOUT_WEIGHTS:
            known = ", ".join(WITHOUT_WEIGHTS)
            raise UserError(f"positions: expected one of {known}, got {positions}, which must be learned")
        new |= {"positions": WITHOUT_WEIGHTS[positions], "window_positions": None, "rotary_layers": None}
    return StackConfig.model_validate(new)


def _fits(config: ModelConfig, kind: str) -> bool:
    try:
        changed(config, positions=kind)
    except UserError:
        return False
    return True
