"""Another config over the same weights: what attention is without its scale, or with other positions."""

from pydantic import ValidationError

from clearhead import config as c
from clearhead.api import Model
from clearhead.config import ModelConfig, StackConfig
from clearhead.errors import UserError
from clearhead.explorer.requests import Change, PositionKind
from clearhead.model.assign import assemble
from clearhead.training.tensors import model_tensors

WITHOUT_WEIGHTS: dict[PositionKind, c.Sinusoidal | c.Rotary | c.ALiBi | c.NoPositions] = {
    "sinusoidal": c.Sinusoidal(), "rotary": c.Rotary(), "alibi": c.ALiBi(), "none": c.NoPositions(),
}  # fmt: skip
"""Kinds of positions that any network can take: they have nothing to learn."""


def changes(config: ModelConfig) -> dict[str, object]:
    """What can be changed: whether there is a scale, and the kinds of positions, the network's own first."""
    own = config.output.positions.kind
    others = [kind for kind in WITHOUT_WEIGHTS if kind != own and _fits(config, kind)]
    return {"scale": changed(config, Change(scale=False)) != config, "positions": [own, *others]}


def changed(config: ModelConfig, change: Change) -> ModelConfig:
    """The config with the change in every stack; UserError where the network cannot have it."""
    stacks = {"encoder": config.encoder, "decoder": config.decoder}
    try:
        new = {name: _stack(stack, change) for name, stack in stacks.items() if stack is not None}
        return ModelConfig.model_validate({**dict(config), **new})
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise UserError(f"change: expected one for this network, got {change.positions}; {message}") from None


def variant(model: Model, change: Change) -> Model:
    """The model with the change; its weights are the same tensors."""
    config = changed(model.config, change)
    tensors = model_tensors(model.network)
    for name, old, new in (
        ("encoder", model.config.encoder, config.encoder),
        ("decoder", model.config.decoder, config.decoder),
    ):
        if old is not None and new is not None and old.positions.kind != new.positions.kind:
            tensors.pop(f"{name}.positions.table.weight", None)
    network = assemble(config, tensors, where="change").to(model.device).eval()
    tokenizer = model.tokenizer if model.has_tokenizer else None
    return Model(network, tokenizer, model.generation, images=model.reader.images, family=model.family)


def _stack(stack: StackConfig, change: Change) -> StackConfig:
    new: dict[str, object] = dict(stack)
    if not change.scale:
        new["attn_scale"] = 1.0
    if change.positions is not None and change.positions != stack.positions.kind:
        if change.positions not in WITHOUT_WEIGHTS:
            known = ", ".join(WITHOUT_WEIGHTS)
            raise UserError(f"change.positions: expected {known}, got {change.positions}, which must be learned")
        new |= {"positions": WITHOUT_WEIGHTS[change.positions], "window_positions": None}
    return StackConfig.model_validate(new)


def _fits(config: ModelConfig, kind: PositionKind) -> bool:
    try:
        changed(config, Change(positions=kind))
    except UserError:
        return False
    return True
