"""Reads features of SAELens and circuit-tracer.

SAELens: a folder with `cfg.json` and `sae_weights.safetensors`. Its tensors are `W_enc` (d f), `W_dec` (f d), `b_enc`,
`b_dec`, and for some architectures `threshold` or `log_threshold` (f) and `W_skip` (d d, transposed). `architecture` is
`standard`, `topk` (with `k`, or `activation_fn_kwargs.k`), `jumprelu`, or `transcoder`, `skip_transcoder`,
`jumprelu_transcoder`, `jumprelu_skip_transcoder`. `apply_b_dec_to_input` subtracts `b_dec` before it encodes;
`rescale_acts_by_decoder_norm` multiplies by the rows' lengths. `hook_name`, and `hook_name_out` of a transcoder, are
in `metadata` or beside it.

circuit-tracer: a folder with `config.yaml` and `layer_0.safetensors`, `layer_1.safetensors`, ... with `W_enc` and
`W_dec` (both f d), `b_enc`, `b_dec`, and `activation_function.threshold` or `W_skip` (transposed). The config's fields
`feature_input_hook` and `feature_output_hook` name the values of a layer; `activation` is `topk` with `k`, or `relu`;
without it a threshold decides.

Hooks are those of TransformerLens. A value that they have before a norm's gain is read after it, the gain folded into
the weights; so is the centring of `center_writing_weights`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import JsonValue
from torch import Tensor

from clearhead.analysis.features import Features, Site
from clearhead.checkpoints.weights.documents import CONFIG_LIMIT, is_there, read_json, shown, size_of
from clearhead.checkpoints.weights.safetensors import with_metadata
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.block import Block
from clearhead.model.norm import Norm

CONFIG, WEIGHTS, SET = "cfg.json", "sae_weights.safetensors", "config.yaml"
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


def read(path: Path, network: Transformer, *, layer: int | None, stack: str) -> Features:
    """The features of a folder. Raises UserError for one that is neither library's, or that is not supported."""
    if is_there(path / CONFIG):
        return _of_sae_lens(path, network, stack)
    if is_there(path / SET):
        return _of_circuit_tracer(path, network, layer, stack)
    raise UserError(f"{path}: expected features.json, {CONFIG} or {SET}, got none of them; give the folder that has it")


# --- SAELens ------------------------------------------------------------------------------------------------------


def _of_sae_lens(folder: Path, network: Transformer, stack: str) -> Features:
    config, where = read_json(folder / CONFIG, limit=CONFIG_LIMIT), folder / CONFIG
    metadata = config.get("metadata")
    facts: dict[str, JsonValue] = {**config, **(metadata if isinstance(metadata, dict) else {})}
    tensors, _ = with_metadata(folder / WEIGHTS)
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
    file, is_topk = folder / WEIGHTS, "topk" in (base, facts.get("activation_fn_str", facts.get("activation_fn")))
    threshold = tensors.get("threshold")
    if threshold is None and "log_threshold" in tensors:
        threshold = tensors["log_threshold"].exp()
    if (base == "jumprelu") != (threshold is not None):
        raise UserError(f"{file}: expected a threshold with jumprelu alone, got {', '.join(tensors)}")
    made = Features(
        Site(reads.address, writes.address),
        *(_tensor(tensors, name, file) for name in ("W_enc", "b_enc", "W_dec", "b_dec")),
        threshold=None if threshold is None else threshold.float(),
        k=_k(facts, where) if is_topk else None,
        w_skip=tensors["W_skip"].float().T.contiguous() if "W_skip" in tensors else None,
    )
    return _after_gain(_folded(made, facts, subtracts=not is_transcoder), reads, writes, where)


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


# --- circuit-tracer -----------------------------------------------------------------------------------------------


def _of_circuit_tracer(folder: Path, network: Transformer, layer: int | None, stack: str) -> Features:
    facts, where = _fields(folder / SET), folder / SET
    if facts.get("model_kind", "transcoder_set") != "transcoder_set":
        raise UserError(f"{where}:model_kind: expected transcoder_set, got {facts['model_kind']!r}")
    if layer is None:
        raise UserError(f"{folder}: expected the number of a layer with a folder of several transcoders, got none")
    file = folder / f"layer_{layer}.safetensors"
    tensors, _ = with_metadata(file)
    hooks = [facts.get(f"feature_{side}_hook") for side in ("input", "output")]
    reads, writes = (
        _place(None if hook is None else f"blocks.{layer}.{hook}", network, stack, f"{where}:feature_{side}_hook")
        for hook, side in zip(hooks, ("input", "output"), strict=True)
    )
    activation = facts.get("activation")
    threshold = tensors["activation_function.threshold"].float() if _jumps(tensors, activation) else None
    if activation not in (None, "topk", "relu"):
        raise UserError(f"{where}:activation: expected topk or relu, got {activation!r}")
    if activation == "topk" and not facts.get("k", "").isdigit():
        raise UserError(f"{where}:k: expected a whole number with topk, got {facts.get('k')!r}")
    made = Features(
        Site(reads.address, writes.address),
        _tensor(tensors, "W_enc", file).T.contiguous(),
        _tensor(tensors, "b_enc", file),
        _tensor(tensors, "W_dec", file),
        _tensor(tensors, "b_dec", file),
        threshold=threshold,
        k=int(facts["k"]) if activation == "topk" else None,
        w_skip=tensors["W_skip"].float().T.contiguous() if "W_skip" in tensors else None,
    )
    return _after_gain(made, reads, writes, where)


def _jumps(tensors: Mapping[str, Tensor], activation: str | None) -> bool:
    """Whether thresholds decide which features are active: if the config names no other way."""
    return activation is None and "activation_function.threshold" in tensors


def _fields(path: Path) -> dict[str, str]:
    """The lines `name: value` of a YAML file that are not indented; all else in it is left out."""
    size = size_of(path)
    if size > CONFIG_LIMIT:
        raise UserError(f"{path}: expected at most {CONFIG_LIMIT:,} bytes, got {size:,}; try downloading it again")
    text = path.read_bytes().decode("utf-8", errors="replace")
    pairs = re.findall(
        r"""^([A-Za-z_]\w*):[ \t]*(?:"([^"\n]*)"|'([^'\n]*)'|([^#\n]*?))[ \t]*(?:#.*)?$""", text, re.MULTILINE
    )
    found = {name: next(filter(None, values), "") for name, *values in pairs}
    return {name: value for name, value in found.items() if value not in ("", "null", "~")}


# --- both -----------------------------------------------------------------------------------------------------------


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
    """The features as they read the norm's result, of which their files have the value before its gain.

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


def _tensor(tensors: Mapping[str, Tensor], name: str, file: Path) -> Tensor:
    if name not in tensors:
        raise UserError(f"{file}: expected the tensor {name}, got {', '.join(tensors)}; try downloading it again")
    return tensors[name].float()
