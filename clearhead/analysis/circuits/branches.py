"""The branches of a network's blocks: what writes to a residual stream and what reads it.

Features split what is written at their site, as heads split what an attention writes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from clearhead.analysis.features import Features, read_by_ffn
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model.attention import Attention
from clearhead.model.block import Block
from clearhead.model.layout import Layout
from clearhead.model.mixers.mixer import Mixer
from clearhead.model.norm import Norm
from clearhead.model.residual import LayerScale
from clearhead.model.transformer import Stack

N_FEATURES = 64
"""Features of a site that are nodes of a graph, at most: those that matter most to the metric."""


@dataclass(frozen=True, eq=False)
class Split:
    """value = sum_i f_i W_dec[i] + error: the value at `features.writes`, in parts that add up to it exactly."""

    __repr__ = brief

    features: Features
    chosen: tuple[int, ...] = ()
    """The features that are parts of their own."""
    has_others: bool = True
    """Whether other features are active. Together they are one part more."""

    @property
    def address(self) -> str:
        """The address of the features."""
        return self.features.address

    @property
    def writes(self) -> str:
        """The address of the value that is split."""
        return self.features.writes

    @property
    def shares(self) -> "list[Share]":
        """The chosen features, the others if there are any, and what none of them explains."""
        others = [Share(self, "others")] if self.has_others else []
        return [*(Share(self, i) for i in self.chosen), *others, Share(self, "error")]

    def unchosen(self, active: Tensor) -> Tensor:
        """... f -> ... f: 0 for each chosen feature."""
        rest = active.clone()
        rest[..., list(self.chosen)] = 0
        return rest

    def slopes(self, gradient: Tensor) -> Tensor:
        """... d -> ... f: the gradient at each feature, from that at the value."""
        return gradient @ self.features.like(gradient).w_dec.mT

    def through(self, active: Tensor, stream: Tensor, gradient: Tensor, whole: Tensor) -> Tensor:
        """r b t d: the gradient at a stream through each share alone.

        `active` are the features as they follow from the stream, `gradient` is that at the value, and `whole` that at
        the stream through the whole value.
        """
        slopes = self.slopes(gradient)
        each = torch.diag_embed(slopes[..., list(self.chosen)]).movedim(-2, 0)
        (rest,) = backward(active, [stream], self.unchosen(slopes))
        with torch.enable_grad():
            some = active[..., list(self.chosen)]
        found = backward(some, [stream], each, batched=True)[0] if self.chosen else whole.new_zeros(0, *whole.shape)
        ends = [rest[None]] * self.has_others
        return torch.cat([found, *ends, (whole - found.sum(0) - rest)[None]])


@dataclass(frozen=True)
class Share:
    """A part of a value: of one feature, of all other features, or the error, which no feature explains."""

    split: Split
    which: int | Literal["others", "error"]

    def __str__(self) -> str:
        return f"{self.split.address}{f'[f={self.which}]' if isinstance(self.which, int) else f'.{self.which}'}"

    def of(self, values: Mapping[str, Tensor]) -> Tensor:
        """... b t d: the part, from the value and the features at their addresses."""
        features, active = self.split.features, values[self.split.address]
        if self.which == "error":
            return values[self.split.writes] - features.written(active)
        if self.which == "others":
            return features.written(self.split.unchosen(active))
        return active[..., self.which, None] * features.like(active).w_dec[self.which]


def chosen(split: Split, lost: Tensor, active: Tensor, gradients: list[Tensor], n: int) -> Split:
    """The split with the n active features whose change matters most to the metric, to first order.

    `lost` is clean - corrupt of the features, b t f, `active` says which are active at a real position, f, and
    `gradients` are those at the value; the largest estimate of each counts.
    """
    estimates = [(lost * split.slopes(gradient)).sum((0, 1)).abs() for gradient in gradients]
    scores = torch.stack(estimates).amax(0).masked_fill(~active, -1)
    total = int(active.sum())
    best = scores.topk(min(n, total)).indices.sort().values
    return Split(split.features, tuple(best.tolist()), total > n)


def backward(
    of: Tensor, at: Sequence[Tensor], gradient: Tensor | None = None, *, batched: bool = False
) -> list[Tensor]:
    """The gradients at these values, 0 where nothing depends on one."""
    found = torch.autograd.grad(
        of, at, gradient, retain_graph=True, allow_unused=True, is_grads_batched=batched, materialize_grads=True
    )
    return list(found)


Norms = tuple[Norm | None, Norm | None, Norm | None]
Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class Writer:
    """Adds to a residual stream: an embedding, positions, a head, an FFN, or a feature of what one of them writes."""

    path: str
    """The address of what it writes, with all heads of an attention, or of the value that its feature is a part of."""
    head: int | None = None
    of: Share | None = None

    def __str__(self) -> str:
        return str(self.of or (self.path if self.head is None else f"{self.path}[h={self.head}]"))

    def picked(self, values: Values) -> Tensor:
        """... b t d: the value at its path, or its head of it."""
        value = values[self.path]
        return value if self.head is None else value.select(-3, self.head)

    def share(self, values: Values) -> Tensor:
        """... b t d: what it wrote."""
        return self.picked(values) if self.of is None else self.of.of(values)


@dataclass(frozen=True)
class Reader:
    """Reads a residual stream: the query, key or value of a head, an FFN, a feature, or the network's head."""

    name: str
    """`….attn.q`, `….cross.k`, `….ffn.pre`, `….features[f=3]` or `head.logits`."""
    head: int | None
    path: str
    """The address of the first value that follows from this reading alone, or that a feature is a part of."""
    feeds: tuple[str, ...]
    """The writers that write what they make of it; none for the network's head."""
    writer: Writer | None = None
    """The one writer that it feeds; None for parts of an attention and for the network's head."""

    def __str__(self) -> str:
        return self.name if self.head is None else f"{self.name}[h={self.head}]"

    def made(self, values: Values) -> Tensor:
        """... b t d or b t k: its own part of the value that its group computes from a stream."""
        if self.writer is not None:
            return self.writer.share(values)
        return values[self.path] if self.head is None else values[self.path].select(-3, self.head)


@dataclass(frozen=True, eq=False)
class Branch:
    """An attention or a feed-forward with its place in a block; or a cut, where features are all of the stream."""

    path: str
    block: Block
    module: nn.Module
    reads: str
    """The address of the stream that it reads."""
    before: str
    """The address of the stream to which its result is added."""
    result: str
    """The address of the stream after it."""
    norms: Norms
    """The norms before it, after it, and after the sum."""
    scale: LayerScale | None
    split: Split | None = None
    """The features that split its result."""

    @property
    def is_cut(self) -> bool:
        """True for a place of the stream. Its features read all that comes before; all that comes after reads these."""
        return self.path == self.before

    @property
    def out(self) -> str:
        """The address of its result."""
        return self.before if self.is_cut else f"{self.path}.out"

    @property
    def heads(self) -> str:
        """The address of what each head of an attention writes."""
        return f"{self.path}.heads"

    @property
    def writers(self) -> list[Writer]:
        """Its heads, or itself, or the parts into which features split its result."""
        if self.split is not None:
            return [Writer(self.out, of=share) for share in self.split.shares]
        if not isinstance(self.module, Attention):
            return [Writer(self.out)]
        return [Writer(self.heads, head) for head in range(self.module.n_heads)]

    def made(self, x: Tensor, layout: Layout) -> dict[str, Tensor]:
        """What the branch makes of a stream, ... b t d, by address, with its features. It must not be an attention."""
        read = self.normed(x)
        out = self.module(read, layout) if isinstance(self.module, Mixer) else self.module(read)
        if self.split is None:
            return {self.out: out}
        value = {self.out: out, self.reads: x}.get(self.split.features.reads, read)
        return {self.out: out, self.split.address: self.split.features.encode(value)}

    def attended(self, clean: Values, heads: Tensor) -> Tensor:
        """w b t d: the outputs of an attention's writers for the heads' outputs `heads`, b h t d."""
        if self.split is None:
            return heads.transpose(0, 1)
        out = clean[self.out] + (heads - clean[self.heads]).sum(1)
        values = {self.out: out, self.split.address: self.split.features.encode(out)}
        return torch.stack([writer.share(values) for writer in self.writers])

    def readers(self, sides: str = "qkv") -> list[Reader]:
        """The queries, keys and values of its heads that `sides` names, or its feed-forward."""
        if not isinstance(self.module, Attention):
            names = [f"{self.path}.pre"] if self.split is None else [*map(str, self.writers)]
            pairs = zip(names, self.writers, strict=True)
            return [Reader(name, None, self.out, (str(writer),), writer) for name, writer in pairs]
        whole = None if self.split is None else tuple(map(str, self.writers))
        found: list[Reader] = []
        for side in sides:
            path = f"{self.path}.{side}"
            n = self.module.n_heads if side == "q" else self.module.n_kv_heads
            group = self.module.n_heads // n
            for head in range(n):
                feeds = range(head * group, (head + 1) * group)
                found.append(Reader(path, head, path, whole or tuple(f"{self.heads}[h={h}]" for h in feeds)))
        return found

    def onward(self, x: Tensor, out: Tensor) -> Tensor:
        """The stream after the branch, ... b t d, from the stream before it and the branch's result."""
        if self.is_cut:
            return out
        _, out_norm, after = self.norms
        branch = out if self.scale is None else self.scale(out)
        return self.block.residual(x, lambda _: branch, (after, out_norm), False)

    def changes(self, x: Tensor, out: Tensor, before: Tensor, written: Tensor) -> Tensor:
        """n b t d: by how much the stream after the branch falls with each change alone.

        `before` are changes of the stream before it, x, and `written` changes of its result.
        """
        if self.is_cut:
            return written
        if self.norms[2] is None:
            nothing = torch.zeros_like(x)
            return torch.cat([before, self.onward(nothing, out) - self.onward(nothing, out - written)])
        whole = self.onward(x, out)
        return torch.cat([whole - self.onward(x - before, out), whole - self.onward(x, out - written)])

    def normed(self, x: Tensor) -> Tensor:
        """What the module reads of a stream."""
        norm = self.norms[0]
        return x if norm is None else norm(x)


def branches(name: str, stack: Stack) -> Iterator[Branch]:
    """The branches of a stack in the order in which they add to its stream."""
    post = stack.config.norm_place == "post"
    for i, block in enumerate(stack.blocks):
        assert isinstance(block, Block)
        at = f"{name}.blocks.{i}"

        def norms(norm: Norm | None, out: Norm | None) -> Norms:
            return (None, out, norm) if post else (norm, out, None)

        pre, x, end = f"{at}.resid_pre", f"{at}.resid_attn", f"{at}.resid_post"
        attention = norms(block.attn_norm, block.attn_out_norm)
        stream = pre
        if block.mix is not None:
            after = x if block.attn is None else f"{at}.resid_mix"
            yield Branch(f"{at}.mix", block, block.mix, pre, stream, after, attention, block.attn_scale)
            stream = after
        if block.attn is not None:
            yield Branch(f"{at}.attn", block, block.attn, pre, stream, x, attention, block.attn_scale)
        if block.cross is not None:
            crossing = norms(block.cross_norm, block.cross_out_norm)
            after = f"{at}.resid_cross"
            yield Branch(f"{at}.cross", block, block.cross, x, x, after, crossing, block.cross_scale)
            x = after
        norm = block.attn_norm if block.parallel == "one_norm" else block.ffn_norm
        reads = pre if block.parallel else x
        if block.ffn is not None:
            yield Branch(f"{at}.ffn", block, block.ffn, reads, x, end, norms(norm, block.ffn_out_norm), block.ffn_scale)


def with_features(name: str, stack: Stack, splits: Sequence[Split]) -> list[Branch]:
    """The branches of a stack, with the features at their places.

    Raises UserError for features that a circuit has no place for, and for two of the same value.
    """
    found = list(branches(name, stack))
    for split in splits:
        own = split.features
        at = next((i for i, one in enumerate(found) if one.out == split.writes), None)
        if at is not None:
            _check_reads(found[at], own)
            found[at] = replace(found[at], split=split)
            continue
        after = [i + 1 for i, one in enumerate(found) if one.result == split.writes]
        before = [i for i, one in enumerate(found) if one.before == split.writes]
        if own.reads != own.writes or not (after or before):
            raise UserError(
                f"{own.address}: expected features of a residual stream, or of what an attention or a feed-forward"
                f" writes, got ones that write to {own.writes}; leave them out of the circuit"
            )
        i = (after or before)[0]
        place = {"path": own.writes, "reads": own.writes, "before": own.writes, "result": own.writes}
        plain = replace(found[min(i, len(found) - 1)], module=nn.Identity(), norms=(None, None, None), scale=None)
        found.insert(i, replace(plain, **place, split=split))
    return found


def _check_reads(branch: Branch, features: Features) -> None:
    """Raises UserError unless the features are the only ones of the branch, and follow from what it reads."""
    if branch.split is not None:
        other = branch.split.address
        raise UserError(f"{features.address}: expected one set of features of {branch.out}, got also {other}; name one")
    known = {branch.out}
    if not isinstance(branch.module, Attention) and not branch.is_cut:
        known |= {branch.reads, f"{branch.path.rpartition('.')[0]}.{read_by_ffn(branch.block)}"}
    if features.reads not in known:
        raise UserError(
            f"{features.address}: expected features that read {' or '.join(sorted(known))}, got {features.reads};"
            " leave them out of the circuit"
        )
