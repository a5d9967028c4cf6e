"""The numbers of a forward pass, and the parameters of the model."""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from clearhead.errors import UserError
from clearhead.explorer.answering.about import plan_of
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.replies import Reply, check_size
from clearhead.explorer.answering.requests import Addresses, Asked, OfRun, Step
from clearhead.explorer.recording import codecs
from clearhead.explorer.recording.recording import pixels_of, recompute
from clearhead.explorer.recording.sentences import vector_weights
from clearhead.model.assign import merged
from clearhead.model.ops import op_weights
from clearhead.trace import Address, nearest


def run(opened: Opened, question: OfRun) -> Reply:
    """A pass at a glance: tokens, shapes, attention as pixels, the likeliest answers."""
    found = opened.passes.get(question.run)
    recording, manifest = found.recording, found.recording.manifest
    tensors = pixels_of(recording.tensors) if recording.pixels is None else dict(recording.pixels)
    if recording.output is not None:
        tensors |= {f"output.{name}": value for name, value in vars(recording.output).items()}
    elif "head.logits" in recording.tensors:
        tensors["output.logits"] = recording.tensors["head.logits"]
    is_changed = manifest.config != opened.model.config
    facts = {a: fact.model_dump(mode="json", exclude_defaults=True) for a, fact in manifest.tensors.items()}
    reply = {
        "tokens": {name: [token.model_dump(mode="json") for token in row] for name, row in manifest.tokens.items()},
        "facts": facts,
        "words": found.words(recording.output.ids) if recording.output is not None else {},
        "notes": list(found.notes),
        "grid": found.reading.grid,
        "plan": plan_of(manifest.config, found.model.sentences) if is_changed else None,
    }
    present = {name: value for name, value in reply.items() if value is not None}
    return Reply(present | {"target": found.target}, tensors)


class ValuesQuestion(OfRun):
    """Asks for recorded numbers, whole or in part."""

    at: Addresses
    dtype: Literal["float32", "float16"] = "float32"


def values(opened: Opened, question: ValuesQuestion) -> Reply:
    """The numbers; closed cells are NaN."""
    recording = opened.passes.get(question.run).recording
    tensors: dict[str, Tensor] = {}
    for at in question.at:
        value = recording.value(at)
        value = value.masked_fill(value.isneginf(), float("nan"))
        tensors[at] = codecs.to_half(value) if question.dtype == "float16" else value
        check_size(sum(tensor.nbytes for tensor in tensors.values()))
    return _shaped(tensors)


class WeightsQuestion(Asked):
    """Asks for parameters, whole or one row."""

    at: Addresses
    step: Step | None = None


def weights(opened: Opened, question: WeightsQuestion) -> Reply:
    """The parameters as float32."""
    model = opened.passes.checkpoint(question.step)
    known = op_weights(merged(model.network)) | vector_weights(model.sentences)
    tensors: dict[str, Tensor] = {}
    for at in question.at:
        where = Address.parse(at)
        if where.path not in known:
            raise UserError(f"{where.path}: expected a parameter, got none{nearest(where.path, known)}")
        weight = known[where.path].detach()
        row = dict(where.index)
        if row and (len(where.index) > 1 or "i" not in row or not 0 <= row["i"] < len(weight)):
            raise UserError(f"{where}: expected no index, or one row from i=0 to i={len(weight) - 1}")
        part = weight[row["i"]] if row else weight
        check_size(4 * part.numel() + sum(tensor.nbytes for tensor in tensors.values()))
        tensors[at] = part.to("cpu").float()
    return _shaped(tensors)


def check(opened: Opened, question: OfRun) -> Reply:
    """How far every op, evaluated again, is from its recorded value."""
    found = opened.passes.get(question.run)
    return Reply({"check": recompute(found.recording, found.model.network).model_dump(mode="json")})


def _shaped(tensors: Mapping[str, Tensor]) -> Reply:
    return Reply({"shapes": {at: list(value.shape) for at, value in tensors.items()}}, tensors)
