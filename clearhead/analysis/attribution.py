"""Direct logit attribution: how much of one logit each part of the network wrote."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.analysis.ablation import by_stack, layouts, real
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Layout, Transformer
from clearhead.model.attention import Attention
from clearhead.model.block import Block
from clearhead.model.heads import ClassificationHead, LanguageHead, TaggingHead
from clearhead.model.layout import Tokens
from clearhead.model.linear import LinearMap, effective_weight
from clearhead.model.mode import Evaluating
from clearhead.model.norm import Norm
from clearhead.model.residual import LayerScale
from clearhead.trace import Edit, Trace, trace

Shares = Iterator[tuple[str, Tensor]]


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
    inputs: Sequence[Tokens | Tensor],
    logit: int,
    *,
    minus: int | None = None,
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
    for label in (logit, minus):
        if label is not None and not 0 <= label < head.output.out_features:
            raise UserError(f"logit {label}: expected a number below {head.output.out_features}")
    with Evaluating(network), torch.no_grad(), trace(network, edit) as seen:
        logits = network(*tokens.values())
    with torch.no_grad():
        direction, bias = _difference(effective_weight(head.output), logit, minus), head.output.bias
        if isinstance(head, LanguageHead) and head.scale is not None:
            direction = direction * head.scale
        shares = {part: _pick(head, x, layout, position) @ direction for part, x in _written(network, seen, name)}
        total = logits if logits.ndim == 2 else logits[:, position]
        if bias is not None:
            shares["head.output.bias"] = _difference(bias.detach(), logit, minus).expand(len(total))
        return Attribution(shares, _difference(total.mT, logit, minus))


def attribute_each(
    network: Transformer, inputs: Sequence[Tokens | Tensor], logits: Tensor, *, edit: dict[str, Edit] | None = None
) -> dict[str, Tensor]:
    """The shares of several logits at each position of one input: `logits`, t k -> t k by part, from a single pass.

    Raises UserError as `attribute` does, and for a head that pools.
    """
    head = linear_head(network)
    if isinstance(head, ClassificationHead):
        raise UserError("attribution: expected a logit at each position, got a head that pools")
    tokens = by_stack(network, inputs)
    with Evaluating(network), torch.no_grad(), trace(network, edit) as seen:
        network(*tokens.values())
        directions, bias = effective_weight(head.output)[logits], head.output.bias
        if isinstance(head, LanguageHead) and head.scale is not None:
            directions = directions * head.scale
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


def _written(network: Transformer, seen: Trace, name: str) -> Shares:
    """The summands of the last states, b t d each, as the head reads them."""
    stack = network.stacks()[name]
    embed = stack.embed
    parts = _normed(seen, f"{name}.embed.norm", embed.norm, _embedded(seen, name))
    if embed.project is not None:
        parts = _projected(f"{name}.embed.project", embed.project, parts)
    is_post = stack.config.norm_place == "post"
    for i, block in enumerate(stack.blocks):
        assert isinstance(block, Block)
        for path, norm, branch in _branches(block, seen, f"{name}.blocks.{i}"):
            parts = itertools.chain(parts, _scaled(block.residual.config.branch_scale, branch))
            parts = _normed(seen, path, norm, parts) if is_post else parts
    return _normed(seen, f"{name}.final_norm", stack.final_norm, parts)


def _branches(block: Block, seen: Trace, path: str) -> Iterator[tuple[str, nn.Module | None, Shares]]:
    """A block's branches: the path of each one's first norm, which post-norm has after the sum; it; the summands."""
    attended = _gained(block.attn_scale, _attended(seen, f"{path}.attn", block.attn))
    yield f"{path}.attn_norm", block.attn_norm, _normed(seen, f"{path}.attn_out_norm", block.attn_out_norm, attended)
    if block.cross is not None:
        read = _gained(block.cross_scale, _attended(seen, f"{path}.cross", block.cross))
        yield (
            f"{path}.cross_norm",
            block.cross_norm,
            _normed(seen, f"{path}.cross_out_norm", block.cross_out_norm, read),
        )
    fed = _gained(block.ffn_scale, _one(seen, f"{path}.ffn.out"))
    yield f"{path}.ffn_norm", block.ffn_norm, _normed(seen, f"{path}.ffn_out_norm", block.ffn_out_norm, fed)


def _projected(path: str, project: nn.Module, parts: Shares) -> Shares:
    """What a linear map of the embedding makes of each part; and its bias."""
    assert isinstance(project, nn.Linear | LinearMap)
    weight = effective_weight(project)
    for address, part in parts:
        made = part @ weight.mT
        yield address, made
    if project.bias is not None:
        yield f"{path}.bias", project.bias.expand_as(made)


def _scaled(factor: float | None, parts: Shares) -> Shares:
    for address, part in parts:
        yield address, part if factor is None else part * factor


def _gained(scale: nn.Module | None, parts: Shares) -> Shares:
    assert scale is None or isinstance(scale, LayerScale)
    for address, part in parts:
        yield address, part if scale is None else part * scale.weight


def _embedded(seen: Trace, name: str) -> Shares:
    yield from _one(seen, f"{name}.embed.tokens")
    if f"{name}.embed.positions" in seen:
        yield from _one(seen, f"{name}.embed.positions")


def _attended(seen: Trace, path: str, attention: Attention) -> Shares:
    heads = seen[f"{path}.heads"]
    for h in range(heads.shape[1]):
        yield f"{path}.heads[h={h}]", heads[:, h]
    bias = attention.out.bias
    if bias is not None:
        yield f"{path}.out.bias", bias.expand_as(heads[:, 0])


def _one(seen: Trace, address: str) -> Shares:
    yield address, seen[address]


def _normed(seen: Trace, path: str, norm: nn.Module | None, parts: Shares) -> Shares:
    """centred(part) * rstd * gain, rstd of the whole as it was; and the norm's bias."""
    if norm is None:
        yield from parts
        return
    assert isinstance(norm, Norm)
    scale = seen[f"{path}.rstd"] * norm.gain
    for address, part in parts:
        yield address, norm.centred(part) * scale
    if norm.bias is not None:
        yield f"{path}.bias", norm.bias.expand_as(scale)


def _pick(head: nn.Module, x: Tensor, layout: Layout, position: int) -> Tensor:
    """b t d -> b d: the state that the head reads for this logit."""
    return head.picked(x, layout) if isinstance(head, ClassificationHead) else x[:, position]


def _difference(rows: Tensor, logit: int, minus: int | None) -> Tensor:
    return rows[logit] if minus is None else rows[logit] - rows[minus]


def _check_position(layout: Layout, position: int) -> None:
    length = layout.grid[1]
    if not -length <= position < length or not real(layout)[:, position].all():
        raise UserError(f"position {position}: expected a real position of every row, of length {length}")
