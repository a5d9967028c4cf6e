"""Folders of features, in clearhead's form and in that of SAELens.

SAELens: a folder with `cfg.json` and `sae_weights.safetensors`. Its tensors are `W_enc` (d f), `W_dec` (f d), `b_enc`,
`b_dec`, and for some architectures `threshold` or `log_threshold` (f) and `W_skip` (d d, transposed). `architecture` is
`standard`, `topk` (with `k`, or `activation_fn_kwargs.k`), `jumprelu`, or `transcoder`, `skip_transcoder`,
`jumprelu_transcoder`, `jumprelu_skip_transcoder`. `apply_b_dec_to_input` subtracts `b_dec` before it encodes;
`rescale_acts_by_decoder_norm` multiplies by the rows' lengths. `hook_name`, and `hook_name_out` of a transcoder, are
in `metadata` or beside it.

Hooks are those of TransformerLens. A value that they have before a norm's gain is read after it, the gain folded into
the weights; so is the centring of `center_writing_weights`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import Field, JsonValue, TypeAdapter, ValidationError
from torch import Tensor

from clearhead.analysis.features import Features, Site
from clearhead.checkpoints.weights.documents import CONFIG_LIMIT, is_there, read_json, shown
from clearhead.checkpoints.weights.safetensors import with_metadata
from clearhead.config.base import Config
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model import Transformer
from clearhead.model.block import Block
from clearhead.model.meta import ops_of
from clearhead.model.norm import Norm
from clearhead.storage import checkpoints
from clearhead.trace import nearest

ABOUT, WEIGHTS = "features.json", "features.safetensors"
FORMAT = "clearhead-features/1"
TENSORS = ("w_enc", "b_enc", "w_dec", "b_dec", "threshold", "w_skip")


class About(Config):
    """features.json: where the features belong, and how they came about."""

    format: str
    reads: str
    writes: str
    name: str = "features"
    k: int | None = None
    trained: JsonObject = Field(default_factory=dict)
    """The settings of the training."""
    report: JsonObject = Field(default_factory=dict)
    """What was measured at its end."""


def save_features(
    features: Features,
    folder: str | Path,
    *,
    trained: Mapping[str, JsonValue] | None = None,
    report: Mapping[str, JsonValue] | None = None,
) -> Path:
    """Writes a new folder with features.safetensors and features.json. Raises UserError if it exists."""
    tensors: dict[str, Tensor] = {
        name: value.detach().contiguous() for name in TENSORS if (value := getattr(features, name)) is not None
    }
    about: JsonObject = {"format": FORMAT, "reads": features.reads, "writes": features.writes}
    about |= {"name": features.name, "k": features.k, "trained": dict(trained or {}), "report": dict(report or {})}
    return checkpoints.write_folder(
        Path(folder), checkpoints.Checkpoint(tensors={WEIGHTS: tensors}, json={ABOUT: about})
    )


def load_features(path: str | Path, network: Transformer, *, stack: str | None = None) -> Features:
    """The features in a folder for this network: our own, or SAELens's.

    `stack` is that of the network that files from elsewhere belong to (default: its last). Raises UserError for files
    that are damaged, that hold something that is not supported, or that do not fit the network.
    """
    folder = Path(path)
    if is_there(folder / ABOUT):
        features = _own(folder)
    elif is_there(folder / SAE_CONFIG):
        features = _of_sae_lens(folder, network, stack or list(network.stacks())[-1])
    else:
        raise UserError(f"{folder}: expected {ABOUT} or {SAE_CONFIG}, got neither; give the folder that has it")
    name = features.reads.split(".")[0]
    if name not in network.stacks():
        raise UserError(f"{folder}: expected features of {' or '.join(network.stacks())}, got {features.reads}")
    return replace(features, source=f"{str(path)!r}, model.network")


def attach(network: Transformer, *several: Features) -> None:
    """Gives features addresses in every trace of this network, in place of those that it had.

    Raises UserError for features of a value that the network does not have, and for two of the same address;
    `dataclasses.replace(features, name=…)` gives another.
    """
    known = {op.out for op in ops_of(network.config)}
    for at in (at for one in several for at in (one.reads, one.writes)):
        if at not in known:
            raise UserError(f"{at}: expected features of a value of this network, got others{nearest(at, known)}")
    addresses = [one.address for one in several]
    twice = next((at for at in addresses if addresses.count(at) > 1), None)
    if twice is not None:
        raise UserError(f"{twice}: expected one set of features at an address, got two; give one another name")
    network.attached = list(several)


def _own(folder: Path) -> Features:
    try:
        about = TypeAdapter(About).validate_python(read_json(folder / ABOUT, limit=CONFIG_LIMIT))
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{folder / ABOUT}:{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if about.format != FORMAT:
        raise UserError(f"{folder / ABOUT}:format: expected {FORMAT}, got {about.format!r}; try a newer clearhead")
    tensors, _ = with_metadata(folder / WEIGHTS)
    missing = {"w_enc", "b_enc", "w_dec", "b_dec"} - tensors.keys()
    if missing or tensors.keys() - set(TENSORS):
        raise UserError(f"{folder / WEIGHTS}: expected the tensors {', '.join(TENSORS)}, got {', '.join(tensors)}")
    w_enc, b_enc, w_dec, b_dec = (tensors[name] for name in TENSORS[:4])
    threshold, skip = tensors.get("threshold"), tensors.get("w_skip")
    site = Site(about.reads, about.writes)
    return checked(Features(site, w_enc, b_enc, w_dec, b_dec, threshold, about.k, skip, about.name), folder)


def checked(features: Features, folder: Path) -> Features:
    """The features. Raises UserError for numbers that are not finite."""
    for name in TENSORS:
        value = getattr(features, name)
        if value is not None and not torch.isfinite(value).all():
            raise UserError(f"{folder}:{name}: expected finite numbers, got NaN or infinity; try downloading it again")
    return features


SAE_CONFIG, SAE_WEIGHTS = "cfg.json", "sae_weights.safetensors"
HOOKS = {
    "hook_resid_pre": "resid_pre",
    "hook_resid_mid": "resid_attn",
    "hook_resid_post": "resid_post",
    "hook_attn_out": "attn.out",
    "hook_mlp_out": "ffn.out",
    "mlp.hook_out": "ffn.out",
    "mlp.hook_in": "ffn_norm.out",
    "mlp.hook_pre": "ffn.pre",
    "mlp.hook_post": "ffn.post",
    "ln1.hook_normalized": "attn_norm.out",
    "ln2.hook_normalized": "ffn_norm.out",
}
"""The names of TransformerLens in a block, and ours."""
KINDS = ("standard", "topk", "jumprelu")
"""The architectures of SAELens that are read, and with `transcoder` in place of `standard` and after the others."""


@dataclass(frozen=True)
class _Place:
    """A value as a hook names it."""

    address: str
    norm: Norm | None = None
    """The norm whose gain it does not have yet."""


def _of_sae_lens(folder: Path, network: Transformer, stack: str) -> Features:
    config, where = read_json(folder / SAE_CONFIG, limit=CONFIG_LIMIT), folder / SAE_CONFIG
    metadata = config.get("metadata")
    facts: JsonObject = {**config, **(metadata if isinstance(metadata, dict) else {})}
    tensors, _ = with_metadata(folder / SAE_WEIGHTS)
    architecture = str(facts.get("architecture", "standard"))
    base = re.sub(r"_?(skip_)?transcoder$", "", architecture) or "standard"
    if base not in KINDS:
        raise UserError(f"{where}:architecture: expected {', '.join(KINDS)} or a transcoder, got {architecture!r}")
    for field, fine in (("normalize_activations", "none"), ("reshape_activations", "none")):
        if facts.get(field) not in (None, fine):
            raise UserError(f"{where}:{field}: expected {fine!r}, got {facts[field]!r}; fold it into the weights")
    if facts.get("hook_head_index") is not None:
        raise UserError(f"{where}:hook_head_index: expected features of a whole value, got those of one head")
    reads = _place(facts.get("hook_name"), network, stack, f"{where}:hook_name")
    is_transcoder = architecture.endswith("transcoder")
    writes = _place(facts.get("hook_name_out"), network, stack, f"{where}:hook_name_out") if is_transcoder else reads
    file, is_topk = folder / SAE_WEIGHTS, "topk" in (base, facts.get("activation_fn_str", facts.get("activation_fn")))
    threshold = tensors.get("threshold")
    if threshold is None and "log_threshold" in tensors:
        threshold = tensors["log_threshold"].exp()
    if (base == "jumprelu") != (threshold is not None):
        raise UserError(f"{file}: expected a threshold with jumprelu alone, got {', '.join(tensors)}")
    features = _features(tensors, file, reads, writes, threshold, _k(facts, where) if is_topk else None)
    return _after_gain(_folded(features, facts, subtracts=not is_transcoder), reads, writes, where)


def _folded(features: Features, facts: Mapping[str, JsonValue], *, subtracts: bool) -> Features:
    """The features with the scaling of inputs and lengths that a config describes folded into their weights.

    `subtracts` is what an absent apply_b_dec_to_input means.
    """
    w_enc, b_enc, w_dec = features.w_enc, features.b_enc, features.w_dec
    if facts.get("rescale_acts_by_decoder_norm"):
        length = w_dec.norm(dim=1)
        w_enc, b_enc, w_dec = w_enc * length, b_enc * length, w_dec / length[:, None]
    if facts.get("apply_b_dec_to_input", subtracts):
        b_enc = b_enc - features.b_dec @ w_enc
    kwargs = facts.get("model_from_pretrained_kwargs")
    if isinstance(kwargs, dict) and kwargs.get("center_writing_weights"):
        w_enc = w_enc - w_enc.mean(0)
    return replace(features, w_enc=w_enc, b_enc=b_enc, w_dec=w_dec)


def _k(facts: Mapping[str, JsonValue], where: Path) -> int:
    """The number of active features."""
    inside = facts.get("activation_fn_kwargs")
    k = facts.get("k", inside.get("k") if isinstance(inside, dict) else None)
    if not isinstance(k, int) or isinstance(k, bool):
        raise UserError(f"{where}:k: expected a whole number with topk, got {k!r}")
    return k


def _place(hook: JsonValue, network: Transformer, stack: str, where: str) -> _Place:
    """The value that a hook of TransformerLens names."""
    match = re.fullmatch(r"blocks\.(\d+)\.([\w.]+)", hook) if isinstance(hook, str) else None
    if match is None or match[2] not in HOOKS:
        got = shown(repr(hook))
        raise UserError(f"{where}: expected blocks.0. and one of {', '.join(HOOKS)}, got {got}")
    if stack not in network.stacks() or int(match[1]) >= len(network.stacks()[stack].blocks):
        raise UserError(f"{where}: expected a block of this network's {stack}, got {hook!r}; try another model")
    block = network.stacks()[stack].blocks[int(match[1])]
    assert isinstance(block, Block)
    name, path = HOOKS[match[2]], f"{stack}.blocks.{match[1]}"
    # Where the branch ends in a norm, TransformerLens has the value after it.
    after = {"hook_mlp_out": block.ffn_out_norm, "hook_attn_out": block.attn_out_norm}.get(match[2])
    if after is not None:
        name = f"{name.split('.')[0]}_out_norm.out"
    norm = {"attn_norm.out": block.attn_norm, "ffn_norm.out": block.ffn_norm}.get(name)
    if name in ("attn_norm.out", "ffn_norm.out") and not isinstance(norm, Norm):
        raise UserError(f"{where}: expected a block with a norm there, got {hook!r} for one without; try another model")
    return _Place(f"{path}.{name}", norm if match[2].endswith("normalized") else None)


def _after_gain(features: Features, reads: _Place, writes: _Place, where: Path) -> Features:
    """The features for the norm's result; their files have features for the value before its gain.

    n = (out - bias) / gain, so that n W_enc = out (W_enc / gain) - (bias / gain) W_enc.
    """
    if writes.norm is not None and writes is not reads:
        raise UserError(f"{where}: expected features that write to the network, got a norm without its gain")
    if reads.norm is None:
        return features
    if reads.address == writes.address:
        raise UserError(f"{where}: expected an autoencoder of a value with an address, got a norm without its gain")
    with torch.no_grad():
        gain, bias = reads.norm.gain.float(), reads.norm.bias
        w_enc = features.w_enc / gain[:, None]
        b_enc = features.b_enc if bias is None else features.b_enc - bias.float() @ w_enc
        skip = None if features.w_skip is None else features.w_skip / gain[:, None]
        b_dec = features.b_dec if skip is None or bias is None else features.b_dec - bias.float() @ skip
        return replace(features, w_enc=w_enc, b_enc=b_enc, w_skip=skip, b_dec=b_dec)


def _features(
    tensors: Mapping[str, Tensor], file: Path, reads: _Place, writes: _Place, threshold: Tensor | None, k: int | None
) -> Features:
    """The features with these tensors."""
    names = ("W_enc", "b_enc", "W_dec", "b_dec")
    for name in names:
        if name not in tensors:
            raise UserError(f"{file}: expected the tensor {name}, got {', '.join(tensors)}; try downloading it again")
    skip = tensors["W_skip"].float().T.contiguous() if "W_skip" in tensors else None
    threshold = None if threshold is None else threshold.float()
    own = (tensors[name].float() for name in names)
    return Features(Site(reads.address, writes.address), *own, threshold=threshold, k=k, w_skip=skip)
