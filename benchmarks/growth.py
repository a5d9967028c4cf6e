"""A larger network that computes exactly what a small one computes, as the beginning of its training.

Function-preserving growth: Chen et al. 2016, "Net2Net"; Chen et al. 2022, "bert2BERT"; for layers Gong et al. 2019.
Everything new is random but for the projections that write to the residual stream, which are zero.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.model import Transformer

WRITERS = "attn.out.weight", "ffn.down.weight"
"""What writes to the residual stream. Parts that only read it may be random, since the new components are zero."""


def grown(network: Transformer, sizes: Mapping[str, int], *, seed: int = 0) -> Transformer:
    """A network of these larger sizes with the same logits, up to rounding: a decoder like Llama.

    `sizes` are of `d_model`, `n_heads`, `d_ff` and `n_layers`. Heads keep their width, so that rotary positions turn
    them as before. New components of the residual stream are zero. They lower the mean square that a norm divides by,
    so its gain and its epsilon are lowered as much. Each old layer is followed by as many new ones as fit.
    """
    old = network.decoder.config if network.decoder else None
    assert old is not None
    assert (old.norm, old.norm_place, old.bias, old.kv_heads) == ("rms", "pre", False, old.n_heads)
    assert all(size >= dict(old)[name] for name, size in sizes.items())
    share = old.d_model / sizes.get("d_model", old.d_model)
    changes = {**sizes, "d_head": old.head_width, "norm_eps": old.norm_eps * share}
    config = {**dict(network.config), "decoder": {**dict(old), **changes}}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        large = Transformer(ModelConfig.model_validate(config)).to(next(network.parameters()).dtype)
    every = math.ceil(sizes.get("n_layers", old.n_layers) / old.n_layers)
    state = network.state_dict()
    for name, new in large.state_dict().items():
        _fill(new, state.get(_origin(name, every, old.n_layers)), name, share)
    return large


def _origin(name: str, every: int, n_layers: int) -> str:
    """The name of the weight that becomes a part of this one; that of no weight in a new layer."""
    match name.split("."):
        case ["decoder", "blocks", i, *rest]:
            layer = int(i) // every if int(i) % every == 0 else n_layers
            return ".".join(["decoder", "blocks", str(layer), *rest])
        case _:
            return name


@torch.no_grad()
def _fill(new: Tensor, old: Tensor | None, name: str, share: float) -> None:
    """Writes an old weight into the beginning of a new one, and zeros where the rest must not show."""
    if name.endswith(WRITERS) or "embed" in name or name.startswith("head"):
        new.zero_()
    if old is None:
        return
    if old.ndim == 1:
        new.fill_(float(old.mean()) * math.sqrt(share))
        new[: len(old)] = old * math.sqrt(share)
    else:
        new[tuple(slice(size) for size in old.shape)] = old
