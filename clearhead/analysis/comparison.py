"""Compares our network with that of the reference library on the same input, layer by layer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from clearhead.analysis.passes import inference
from clearhead.config import Continuous, PatchInput, TaggingHead, VectorHead, WaveInput
from clearhead.model import Tokens, Transformer
from clearhead.model.layout import round_up

LOGITS = "head.logits"
RESULTS = ("logits", "prediction_logits", "last_hidden_state")
"""The logits, or the states of a model without a head, by the names that the reference has for them."""
VECTORS = ("text_embeds", "image_embeds", "pooler_output")
"""The vector of a text or a picture, by the names that the reference has for it."""
CLOSE = 1e-5
"""The tolerance in float32: |difference| <= CLOSE * max(1, max |reference|)."""


@dataclass(frozen=True)
class Difference:
    """One value, by its address here."""

    address: str
    largest: float
    """max |ours - theirs| over the real positions."""
    relative: float
    """The difference as a share of max(1, max |theirs|)."""


def states(network: Transformer, tokens: Sequence[Tokens]) -> dict[str, Tensor]:
    """The residual stream after the embedding and after each block, the final norms, and the logits, by address.

    Reads the results of the modules, whatever path they take. Packed inputs give packed values.
    """
    found: dict[str, Tensor] = {}
    handles = [module.register_forward_hook(_keep(found, address)) for address, module in modules(network).items()]
    try:
        with inference(network):
            logits = network(*tokens)
    finally:
        for handle in handles:
            handle.remove()
    return without_padding(found | {LOGITS: logits}, network, tokens)


def without_padding(found: dict[str, Tensor], network: Transformer, tokens: Sequence[Tokens]) -> dict[str, Tensor]:
    """The values with zeros where a shorter sound of a batch has no moments; `tokens` has no cell for each moment."""
    for stack, given in zip(network.stacks().values(), tokens, strict=True):
        if isinstance(stack.config.input, WaveInput) and given.valid is not None:
            layout = stack.embed.layout(given)
            grid = layout.grid
            found = {a: layout.blank(value) if value.shape[:2] == grid else value for a, value in found.items()}
    return found


def modules(network: Transformer) -> dict[str, nn.Module]:
    """The modules whose results are the residual stream, by address."""
    found: dict[str, nn.Module] = {}
    for name, stack in network.stacks().items():
        found[f"{name}.blocks.0.resid_pre"] = stack.embed
        found |= {f"{name}.blocks.{i}.resid_post": block for i, block in enumerate(stack.blocks)}
        if stack.final_norm is not None:
            found[f"{name}.final_norm.out"] = stack.final_norm
    return found


def reference_states(theirs: Any, arguments: Mapping[str, Any], network: Transformer) -> dict[str, Tensor]:
    """The hidden states of the reference's model under our addresses. The last one is normalised.

    Several sounds are computed one by one, because padding changes what a norm over all moments makes there.
    """
    if "attention_mask" in arguments and "input_values" in arguments:
        waves, lengths = arguments["input_values"], arguments["attention_mask"].sum(1).tolist()
        alone = ({"input_values": wave[None, :n]} for wave, n in zip(waves, lengths, strict=True))
        each = [reference_states(theirs, one, network) for one in alone]
        return {address: pad_sequence([one[address][0] for one in each], batch_first=True) for address in each[0]}
    with torch.no_grad():
        out = theirs(**arguments, output_hidden_states=True)
    ours = network.stacks()
    hidden = [out.encoder_hidden_states, out.decoder_hidden_states] if len(ours) == 2 else [out.hidden_states]
    found: dict[str, Tensor] = {}
    for (name, stack), values in zip(ours.items(), hidden, strict=True):
        addresses = [f"{name}.blocks.0.resid_pre", *(f"{name}.blocks.{i}.resid_post" for i in range(len(stack.blocks)))]
        # The library does not normalise the last state of an encoder of images or waves, nor of a tower.
        is_tower = isinstance(network.config.head, VectorHead)
        reads = stack.config.input
        if stack.final_norm is not None and not isinstance(reads, PatchInput | WaveInput) and not is_tower:
            # Networks of states alone give no state before the first block, but the last one with the norm and without.
            normed = [f"{name}.final_norm.out"]
            is_last = theirs.config.model_type in ("mamba", "mamba2", "falcon_mamba", "rwkv")
            addresses = addresses[1:] + normed if is_last else addresses[:-1] + normed
            every = getattr(theirs.config, "rescale_every", 0)
            if every > 0:  # RWKV halves its stream every few layers.
                values = [*(x * 2 ** ((i + 1) // every) for i, x in enumerate(values[:-1])), values[-1]]
        # A last state that the library has projected for its head is another value.
        there = zip(addresses, values, strict=True)
        found |= {address: value for address, value in there if value.shape[-1] == stack.config.d_model}
    if "start_logits" in out:
        return found | {LOGITS: torch.stack([out.start_logits, out.end_logits], -1)}
    names = VECTORS if isinstance(network.config.head, VectorHead) else RESULTS
    logits = next(out[name] for name in names if name in out)
    # A tagger with one label has no axis of labels there.
    is_flat = isinstance(network.config.head, TaggingHead) and logits.ndim == 2
    return found | {LOGITS: logits[..., None] if is_flat else logits}


def numbers_there(reads: Continuous, values: Tensor) -> dict[str, Tensor]:
    """The argument of the reference's model for these numbers; its frames lie along the last axis."""
    if isinstance(reads, WaveInput):
        return {"input_values": values[..., 0]}
    return {"pixel_values": values} if isinstance(reads, PatchInput) else {"input_features": values.mT.contiguous()}


def differences(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], tokens: Sequence[Tokens]) -> list[Difference]:
    """The difference of ours from theirs at real tokens, by address. `tokens` is each stack's input."""
    found: list[Difference] = []
    for address, reference in theirs.items():
        batch = tokens[0] if address.startswith("encoder.") else tokens[-1]
        a, b = _real(reference, batch), _real(ours[address], batch)
        if a.shape != b.shape:
            raise ValueError(f"{address}: expected shape {list(a.shape)}, got {list(b.shape)}")
        gap = float((a.double() - b.double()).abs().amax())
        found.append(Difference(address, gap, gap / max(1.0, float(a.abs().amax()))))
    return found


def sample(
    network: Transformer, *, lengths: Sequence[int], generator: torch.Generator, pad: int = 0, end: int | None = None
) -> tuple[dict[str, Any], list[Tokens]]:
    """A random batch for both, padded on the right: the reference's arguments, and our `Tokens` for each stack.

    `end` is the last token of each text and nowhere else, for a network that classifies where it stands.
    """
    arguments: dict[str, Any] = {}
    tokens: list[Tokens] = []
    for name, stack in network.stacks().items():
        reads = stack.config.input
        if isinstance(reads, Continuous):
            values = torch.randn((len(lengths), *reads.shape), generator=generator)
            arguments |= numbers_there(reads, values)
            tokens.append(Tokens(values))
            continue
        others = [i for i in range(reads.vocab_size) if i not in (pad, end)]
        drawn = [torch.randint(len(others), (n,), generator=generator).tolist() for n in lengths]
        rows = [[others[i] for i in row] for row in drawn]
        batch = Tokens.pad(rows if end is None else [[*row[:-1], end] for row in rows], fill=pad)
        valid = batch.valid_cells.long()
        prefix = "decoder_" if name == "decoder" and network.encoder is not None else ""
        arguments |= {f"{prefix}input_ids": batch.ids, f"{prefix}attention_mask": valid}
        tokens.append(batch)
    return arguments, tokens


def _keep(found: dict[str, Tensor], address: str) -> Callable[[object, object, Tensor], None]:
    def hook(_module: object, _arguments: object, output: Tensor) -> None:
        found[address] = output

    return hook


def _real(value: Tensor, tokens: Tokens) -> Tensor:
    """n …: the real positions of a value that has positions."""
    if tokens.ids.ndim != 2 or tokens.valid is None:
        return value
    if value.ndim == 3 and value.shape[:2] == tokens.grid:
        return value.flatten(0, 1)[tokens.valid.flatten()]
    n = int(tokens.valid.sum())
    return value[:n] if value.ndim == 2 and len(value) == round_up(n) else value  # Packed, with rows beyond the real.


def relative(ours: Tensor, theirs: Tensor) -> float:
    """max |theirs - ours| / max |ours|"""
    return float((theirs - ours).abs().max() / ours.abs().max())
