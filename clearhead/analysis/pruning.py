"""Removes the attention heads whose absence changes the output least (Michel et al. 2019, "Are sixteen heads…")."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.analysis.ablation import effects
from clearhead.config import ModelConfig, StackConfig
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.assign import assemble
from clearhead.model.attention import Attention


@dataclass(frozen=True)
class Pruned:
    """A smaller network, and the effect of each head of the old one."""

    network: Transformer
    effects: Mapping[str, float]
    """KL(whole || without this head) in nats, by address, such as `encoder.blocks.0.attn.z[h=2]`."""
    removed: tuple[str, ...]
    """The addresses of the removed heads."""


def without_heads(network: Transformer, inputs: Sequence[Tokens | Tensor], n: int) -> Pruned:
    """The network without the n heads of each attention that have the least effect on these inputs.

    The heads are removed, not zeroed: queries, keys, values and the output matrix are narrower. Each effect is that of
    one head alone. The result shares no tensor with `network`. Raises UserError for a network that has no n heads to
    lose, whose heads share keys, or whose positions belong to heads.
    """
    config = ModelConfig.model_validate(
        {**dict(network.config), **{name: _narrower(name, stack, n) for name, stack in network.config.stacks.items()}}
    )
    attentions = {path: module for path, module in network.named_modules() if isinstance(module, Attention)}
    sites = {path: [f"{path}.z[h={h}]" for h in range(module.n_heads)] for path, module in attentions.items()}
    found = effects(network, inputs, [site for some in sites.values() for site in some])
    tensors = {name: p.detach().clone() for name, p in network.named_parameters()}
    removed: list[str] = []
    for path, some in sites.items():
        weakest = sorted(range(len(some)), key=lambda h: found[some[h]])[:n]
        removed += [some[h] for h in sorted(weakest)]
        heads = torch.tensor([h for h in range(len(some)) if h not in weakest])
        width = attentions[path].d_head
        kept = (heads[:, None] * width + torch.arange(width)).flatten()
        for name in [name for name in tensors if name.startswith(f"{path}.")]:
            part, _, kind = name.removeprefix(f"{path}.").partition(".")
            if part in "qkv":
                tensors[name] = tensors[name][kept].contiguous()
            elif part == "out" and kind == "weight":
                tensors[name] = tensors[name][:, kept].contiguous()
    return Pruned(assemble(config, tensors, where="prune").eval(), found, tuple(removed))


def _narrower(name: str, stack: StackConfig, n: int) -> StackConfig:
    """The stack with n fewer heads, of the same width. Raises UserError if that is impossible."""
    if not 0 < n < stack.n_heads:
        raise UserError(f"--heads: expected 1 to {stack.n_heads - 1} of the {name}'s heads, got {n}; keep at least one")
    if stack.kv_heads != stack.n_heads:
        raise UserError(f"prune: expected heads with keys of their own, got {stack.kv_heads} keys for {stack.n_heads}")
    if stack.latent is not None:
        raise UserError(
            f"prune: expected queries, keys and values of one width, got latent.d_value={stack.value_width}"
        )
    if stack.positions.by_head:
        kind = stack.positions.kind
        raise UserError(f"prune: expected positions that all heads share, got {kind}, which differ by head")
    heads = {"n_heads": stack.n_heads - n, "d_head": stack.head_width, "attn_scale": stack.score_scale}
    return stack.model_copy(update={**heads, "n_kv_heads": None if stack.n_kv_heads is None else stack.n_heads - n})
