"""Direct logit attribution: how much of one logit each part of the network wrote."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.analysis.circuits.branches import branches
from clearhead.analysis.metrics import Ids, LogitDifference
from clearhead.analysis.passes import Inputs, by_stack, check_labels, layouts, traced
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Layout, Transformer
from clearhead.model.attention import Attention
from clearhead.model.heads import ClassificationHead, LanguageHead, TaggingHead
from clearhead.model.linear import LinearMap, effective_weight
from clearhead.model.norm import Norm
from clearhead.trace import Edit, Trace

Shares = Iterable[tuple[str, Tensor]]


@dataclass(frozen=True)
class Attribution:
    """One logit, or the difference of two, as a sum."""

    __repr__ = brief

    shares: dict[str, Tensor]
    """The shares, b each, by address, or by parameter name for a bias."""
    logit: Tensor
    """b: the logit of the network, which is the sum of the shares up to rounding."""


def attribute(
    network: Transformer,
    inputs: Inputs,
    logit: Ids,
    *,
    minus: Ids | None = None,
    position: int = -1,
    edit: dict[str, Edit] | None = None,
) -> Attribution:
    """logit = sum_c frozen_norm(c) . W[logit] + bias, c each writer to the residual stream   (Elhage et al. 2021)

    Splits logit[`logit`], or logit[`logit`] - logit[`minus`], at one position of the grid (of the pooled state if the
    head pools). The norms on the way (the final one, a sandwich's, post-norm's between the blocks) keep the scale they
    had. Parts: embedding, positions, each head, each FFN, and every bias by itself; an FFN's own biases are part of it.

    Raises UserError if the path to the logit is not linear: for heads with a layer of their own.
    """
    head = linear_head(network)
    tokens = by_stack(network, inputs)
    name = list(tokens)[-1]
    layout = layouts(network, tokens)[name]
    if not isinstance(head, ClassificationHead):
        _check_position(layout, position)
    check_labels(head.output.out_features, logit, minus)
    seen, logits = traced(network, tokens, edit)
    with torch.no_grad():
        direction, bias = _difference(_rows(head), logit, minus), head.output.bias
        picked = ((part, _pick(head, x, layout, position)) for part, x in _written(network, seen, name))
        shares = {part: (x * direction).sum(-1) for part, x in picked}
        total = logits if logits.ndim == 2 else logits[:, position]
        if bias is not None:
            shares["head.output.bias"] = _difference(bias.detach(), logit, minus).expand(len(total))
        return Attribution(shares, LogitDifference(logit, minus).of(total))


def attribute_each(
    network: Transformer, inputs: Inputs, logits: Tensor, *, edit: dict[str, Edit] | None = None
) -> dict[str, Tensor]:
    """The shares of several logits at each position of one input: `logits`, t k -> t k by part, from a single pass.

    Raises UserError as `attribute` does, and for a head that pools.
    """
    head = linear_head(network)
    if isinstance(head, ClassificationHead):
        raise UserError("attribution: expected a logit at each position, got a head that pools")
    tokens = by_stack(network, inputs)
    seen, _ = traced(network, tokens, edit)
    with torch.no_grad():
        directions, bias = _rows(head)[logits], head.output.bias
        parts = _written(network, seen, list(tokens)[-1])
        shares = {part: torch.einsum("td,tkd->tk", x[0].expand(len(logits), -1), directions) for part, x in parts}
        return shares if bias is None else shares | {"head.output.bias": bias[logits]}


def linear_head(network: Transformer) -> ClassificationHead | LanguageHead | TaggingHead:
    """The head. Raises UserError unless its logits are linear in the last states."""
    head = network.head
    if not isinstance(head, ClassificationHead | LanguageHead | TaggingHead):
        raise UserError("attribution: expected a head, got a network that ends in its states")
    capped = isinstance(head, LanguageHead) and head.soft_cap is not None
    pooled = isinstance(head, ClassificationHead) and (head.pooler is not None or head.distilled is not None)
    if head.dense is not None or capped or pooled:
        raise UserError("attribution: expected a linear head, got one with a layer, a pooler, a cap or a second output")
    return head


def _rows(head: ClassificationHead | LanguageHead | TaggingHead) -> Tensor:
    """v d: the direction of each logit in the last states."""
    rows = effective_weight(head.output)
    return rows if not isinstance(head, LanguageHead) or head.scale is None else rows * head.scale


def _written(network: Transformer, seen: Trace, name: str) -> Shares:
    """The summands of the last states, b t d each, as the head reads them."""
    stack = network.stacks()[name]
    embed = stack.embed
    begins = [at for at in (f"{name}.embed.tokens", f"{name}.embed.positions") if at in seen]
    parts = _normed(seen, f"{name}.embed.norm", embed.norm, ((at, seen[at]) for at in begins))
    if embed.project is not None:
        assert isinstance(embed.project, nn.Linear | LinearMap)
        weight = effective_weight(embed.project)
        parts = _mapped(parts, lambda part: part @ weight.mT, f"{name}.embed.project.bias", embed.project.bias)
    for branch in branches(name, stack):
        _, out_norm, after = branch.norms
        own, scale = _made(seen, branch.path, branch.module), branch.scale
        if scale is not None:
            own = _mapped(own, lambda part, weight=scale.weight: part * weight)
        own = _normed(seen, f"{branch.path}_out_norm", out_norm, own)
        if (factor := branch.block.config.scale_of(branch.path.rpartition(".")[2])) is not None:
            own = _mapped(own, lambda part, factor=factor: part * factor)
        parts = _normed(seen, f"{branch.path}_norm", after, itertools.chain(parts, own))
    return _normed(seen, f"{name}.final_norm", stack.final_norm, parts)


def _made(seen: Trace, path: str, module: nn.Module) -> Shares:
    """What each head of an attention writes, and the bias; or what a feed-forward part writes."""
    if not isinstance(module, Attention):
        return [(f"{path}.out", seen[f"{path}.out"])]
    heads = seen[f"{path}.heads"].unbind(1)
    each = ((f"{path}.heads[h={h}]", head) for h, head in enumerate(heads))
    return _mapped(each, lambda part: part, f"{path}.out.bias", module.out.bias)


def _mapped(
    parts: Shares, change: Callable[[Tensor], Tensor], name: str = "", bias: Tensor | None = None
) -> Iterator[tuple[str, Tensor]]:
    """What a linear map makes of each part; and its bias by itself."""
    for address, part in parts:
        result = change(part)
        yield address, result
    if bias is not None:
        yield name, bias.expand_as(result)


def _normed(seen: Trace, path: str, norm: nn.Module | None, parts: Shares) -> Shares:
    """centred(part) * rstd * gain, rstd of the whole as it was; and the norm's bias."""
    if norm is None:
        return parts
    assert isinstance(norm, Norm)
    scale = seen[f"{path}.rstd"]
    scale = scale * norm.gain.to(scale.device)
    return _mapped(parts, lambda part: norm.centred(part) * scale, f"{path}.bias", norm.bias)


def _pick(head: nn.Module, x: Tensor, layout: Layout, position: int) -> Tensor:
    """b t d -> b d: the state that the head reads for this logit."""
    return head.picked(x, layout) if isinstance(head, ClassificationHead) else x[:, position]


def _difference(rows: Tensor, logit: Ids, minus: Ids | None) -> Tensor:
    return rows[logit] if minus is None else rows[logit] - rows[minus]


def _check_position(layout: Layout, position: int) -> None:
    length = layout.grid[1]
    if not -length <= position < length or not layout.valid_cells[:, position].all():
        raise UserError(f"position {position}: expected a real position of every row, of length {length}")
