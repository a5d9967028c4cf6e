"""Ablation: the output of a network without some of its parts, its heads and neurons, and the effect of each part."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.analysis.comparison import states
from clearhead.analysis.metrics import Cosine, Metric, Vectors, mean_states
from clearhead.errors import UserError
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.linear import LinearMap, refuse_rounded
from clearhead.model.mode import Evaluating
from clearhead.progress import pieces
from clearhead.trace import Address, Edit, Trace, trace, zero


@dataclass(frozen=True)
class Part:
    """Columns of an output projection's input: those of a head or a neuron."""

    site: str
    stack: str
    block: int
    projection: str
    columns: slice
    index: int
    is_head: bool

    def place(self) -> tuple[str, int, str]:
        return self.stack, self.block, self.projection


def part_at(network: Transformer, site: str) -> Part:
    """The part at an address. Raises UserError for an address of anything else."""
    address = Address.parse(site)
    match = re.fullmatch(r"(encoder|decoder)\.blocks\.(\d+)\.(?:(attn|cross)\.z|ffn\.post)", address.path)
    index = dict(address.index)
    stack = network.stacks().get(match[1]) if match else None
    axis = "h" if match and match[3] else "f"
    if match is None or stack is None or set(index) != {axis}:
        raise UserError(f"{site}: expected a head or neuron, such as decoder.blocks.0.attn.z[h=2] or ….ffn.post[f=7]")
    config, block, i = stack.config, int(match[2]), index[axis]
    if axis == "f" and config.has_experts(block):
        raise UserError(f"{site}: expected a neuron of one feed-forward part, got a block with experts; try a head")
    count, width = (config.n_heads, config.head_width) if axis == "h" else (config.d_ff, 1)
    has_cross = network.encoder is not None and match[1] == "decoder"
    if block >= config.n_layers or not -count <= i < count or (match[3] == "cross" and not has_cross):
        raise UserError(f"{site}: no such part; {match[1]} has {config.n_layers} blocks, {axis} is below {count}")
    projection = address.path.replace(".z", ".out").replace(".post", ".down")
    start = i % count * width
    return Part(site, match[1], block, projection, slice(start, start + width), i % count, axis == "h")


def switched_off(value: Tensor, parts: Sequence[Part]) -> Tensor:
    """Sets heads, b h t k, or neurons, b t f, to 0, each in its own copy of the batch."""
    value = value.clone()
    for rows, part in zip(value.chunk(len(parts)), parts, strict=True):
        rows.select(1 if part.is_head else 2, part.index).zero_()
    return value


How = Literal["zero", "mean"]


def without(
    network: Transformer, inputs: Sequence[Tokens | Tensor], sites: Iterable[str], *, how: How = "zero"
) -> Tensor:
    """Logits, b t v (b v if the head pools), with the values at these addresses removed.

    `zero` puts 0 there. `mean` puts the value's mean over the real positions of the batch, which keeps what is common
    to all texts (Wang et al. 2022, mean ablation).
    """
    tokens = by_stack(network, inputs)
    edit: dict[str, Edit] = dict.fromkeys(sites, zero)
    if how == "mean":
        with Evaluating(network), torch.no_grad(), trace(network) as seen:
            network(*tokens.values())
        edit = {site: _mean(seen, Address.parse(site), layouts(network, tokens)) for site in edit}
    with Evaluating(network), torch.no_grad(), trace(network, edit):
        return network(*tokens.values())


def effects(
    network: Transformer,
    inputs: Sequence[Tokens | Tensor],
    sites: Iterable[str],
    *,
    position: int | None = None,
    metric: Metric | None = None,
    vectors: Vectors = mean_states,
    budget: int = 1024,
) -> dict[str, float]:
    """KL(plain || without that part), in nats, for each head (`….attn.z[h=2]`) or neuron (`….ffn.post[f=7]`).

    The mean over the real positions of the last stack, or over the batch at one position; a head that pools has one
    distribution for each row, a span head two: for the answer's start and end. A network without logits has the shift
    of its vector, 1 - cosine, instead: `vectors` makes one of its states. With a `metric`, such as the logit of a
    label, the effect is metric(plain) - metric(without), the mean over the batch.

    Several parts of one block go through one forward pass, of at most about `budget` positions, which starts at that
    block.
    """
    ablations = Ablations(network, inputs, position=position, metric=metric, vectors=vectors)
    return ablations.effects(sites, budget=budget)


def unit(network: Transformer) -> str:
    """What effects are measured in, without a metric of one's own."""
    return "1 - cosine" if isinstance(network.config.head, c.NoHead | c.VectorHead) else "nats"


class Ablations:
    """Compares the output of a network without some parts with its whole output, which is computed once."""

    def __init__(
        self,
        network: Transformer,
        inputs: Sequence[Tokens | Tensor],
        *,
        position: int | None = None,
        edit: Mapping[str, Edit] | None = None,
        metric: Metric | None = None,
        vectors: Vectors = mean_states,
    ) -> None:
        """Arguments are as in `effects`. With `edit`, parts are removed from the edited network."""
        refuse_rounded(network, "effects")
        self._network, self._position, self._edit = network, position, dict(edit or {})
        self._tokens = by_stack(network, inputs)
        self._last = list(self._tokens)[-1]
        layout = layouts(network, self._tokens)
        self._length = sum(b * t for b, t in (one.grid for one in layout.values()))
        self.metric = metric
        """What is compared; None for the divergence of the answers."""
        with Evaluating(network), torch.no_grad():
            if not self._edit:
                self._plain = states(network, list(self._tokens.values()))
            if metric is None and unit(network) != "nats":
                self.metric = Cosine(vectors(self._result(), layout[self._last]), vectors)
            if self._edit:
                self._expected = self._edited(())
            else:
                self._expected = self._read(self._plain[last_states(network, self._last)], layout[self._last])

    def effects(self, sites: Iterable[str], *, budget: int = 1024) -> dict[str, float]:
        """The effects as the function `effects` computes them."""
        found = dict.fromkeys(sites, 0.0)
        return found | {site: self.divergence(logs) for site, logs in self.answers(found, budget=budget)}

    def answers(self, sites: Iterable[str], *, budget: int = 1024) -> Iterator[tuple[str, Tensor]]:
        """The output without each part, block by block: n v, log probabilities; or the metric, b."""
        parts = sorted((part_at(self._network, site) for site in sites), key=Part.place)
        for _, group in itertools.groupby(parts, key=Part.place):
            several, at_once = list(group), max(1, budget // self._length)
            for start in pieces(range(0, len(several), at_once)):
                some = several[start : start + at_once]
                with Evaluating(self._network), torch.no_grad():
                    actual = self._edited(some) if self._edit else self._without(some)
                yield from zip((part.site for part in some), actual.chunk(len(some)), strict=True)

    def divergence(self, logs: Tensor) -> float:
        """KL(plain || these), in nats, the mean over the rows; or how much smaller these are than the plain metric."""
        if self.metric is not None:
            return float((self._expected - logs).mean())
        return max(0.0, float((self._expected.exp() * (self._expected - logs)).sum(-1).mean()))

    def divergences(self, logs: Tensor) -> Tensor:
        """b: KL(plain || these), in nats, the mean over the rows of each text of the batch; or as `divergence`."""
        if self.metric is not None:
            return self._expected - logs
        each = (self._expected.exp() * (self._expected - logs)).sum(-1)
        valid = real(layouts(self._network, self._tokens)[self._last])
        if isinstance(self._network.config.head, c.LanguageHead | c.TaggingHead):
            counts = _counted(valid, self._position).sum(1)
        else:
            counts = torch.full((len(valid),), len(each) // len(valid), device=each.device)
        owner = torch.arange(len(valid), device=each.device).repeat_interleave(counts)
        return each.new_zeros(len(valid)).index_add_(0, owner, each).div_(counts).clamp_(min=0.0)

    def _without(self, parts: Sequence[Part]) -> Tensor:
        """What `answers` compares, with each part switched off in its own copy of the batch."""
        return self._read(*_ablated(self._network, self._tokens, self._plain, parts))

    def _read(self, x: Tensor, layout: Layout) -> Tensor:
        """What `answers` compares, of the last states."""
        if self.metric is not None:
            return self.metric(self._network.head(x, layout), layout)
        return _distributions(self._network, x, layout, self._position)

    def _result(self) -> Tensor:
        """The network's result, with the edits."""
        with trace(self._network, self._edit):
            return self._network(*self._tokens.values())

    def _edited(self, parts: Sequence[Part]) -> Tensor:
        """The output of an edited network. Every block runs again."""
        n, edit = max(1, len(parts)), dict(self._edit)
        if parts:
            path = Address.parse(parts[0].site).path
            edit[path] = _then(edit.pop(path, None), lambda value: switched_off(value, parts))
        many = {name: repeated(batch, n) for name, batch in self._tokens.items()}
        with trace(self._network, edit):
            result = self._network(*many.values())
        layout = layouts(self._network, many)[self._last]
        if self.metric is not None:
            return self.metric(result, layout)
        return _logs(self._network, result, real(layout), self._position)


def by_stack(network: Transformer, inputs: Sequence[Tokens | Tensor]) -> dict[str, Tokens]:
    """Each stack's input in the padded layout, by the stack's name. Raises UserError for a wrong number of inputs."""
    names = network.stacks()
    if len(inputs) != len(names):
        raise UserError(f"this network has {len(names)} stack(s) and takes as many inputs, got {len(inputs)}")
    tokens = [Tokens(x) if isinstance(x, Tensor) else x.padded() for x in inputs]
    return dict(zip(names, tokens, strict=True))


def layouts(network: Transformer, tokens: Mapping[str, Tokens]) -> dict[str, Layout]:
    """The layout of each stack, by its name."""
    return {name: stack.embed.layout(tokens[name]) for name, stack in network.stacks().items()}


def real(layout: Layout) -> Tensor:
    """b t, bool: the real positions."""
    everywhere = torch.ones(layout.grid, dtype=torch.bool, device=layout.positions.device)
    return everywhere if layout.valid is None else layout.valid


def _ablated(
    network: Transformer, tokens: Mapping[str, Tokens], plain: Mapping[str, Tensor], parts: Sequence[Part]
) -> tuple[Tensor, Layout]:
    """The last states with each part switched off in its own copy of the batch: (n b) t d, and their layout."""
    n, (name, start, projection) = len(parts), parts[0].place()
    many = {name: repeated(batch, n) for name, batch in tokens.items()}
    before = f"{name}.blocks.{start - 1}.resid_post" if start else f"{name}.blocks.0.resid_pre"
    x = plain[before].repeat(n, 1, 1)
    reader = network.get_submodule(projection)
    assert isinstance(reader, nn.Linear | LinearMap)
    closed = torch.zeros(n, reader.in_features, dtype=torch.bool, device=x.device)
    for row, part in zip(closed, parts, strict=True):
        row[part.columns] = True
    closed = closed.repeat_interleave(len(x) // n, 0)[:, None]
    crosses = name == "decoder" and "encoder" in tokens
    memory = plain[last_states(network, "encoder")].repeat(n, 1, 1) if crosses else None

    def switch_off(_module: object, read: tuple[Tensor, ...]) -> Tensor:
        return read[0].masked_fill(closed, 0.0)

    handle = reader.register_forward_pre_hook(switch_off)
    try:
        return run_from(network, many, name, start, x, memory)
    finally:
        handle.remove()


def run_from(
    network: Transformer, tokens: Mapping[str, Tokens], name: str, start: int, x: Tensor, memory: Tensor | None
) -> tuple[Tensor, Layout]:
    """The network's last states and their layout, from the input x, b t d, of block `start` of the stack `name`.

    `memory` has the encoder's last states, for a decoder that reads them.
    """
    places, stack = layouts(network, tokens), network.stacks()[name]
    layout = places[name]
    read = None if memory is None else (memory, places["encoder"])
    memory_bias = None if read is None else AttentionBias.between(layout, read[1], dtype=x.dtype)
    for block, kind in list(zip(stack.blocks, stack.kinds, strict=True))[start:]:
        attn_bias = stack.attn_bias(layout, layout, kind=kind, dtype=x.dtype)
        x = block(x, layout, attn_bias, memory=read, memory_bias=memory_bias)
    x = x if stack.final_norm is None else stack.final_norm(x)
    if name == "encoder" and network.decoder is not None:
        return network.decoder(tokens["decoder"], (x, layout))
    return x, layout


def _then(first: Edit | None, second: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Applies both edits to one value."""

    def both(value: Tensor) -> Tensor:
        match first:
            case None:
                return second(value)
            case Tensor():
                return second(first.to(value).expand_as(value))
            case int() | float():
                return second(torch.full_like(value, first))
            case _:
                return second(first(value).expand_as(value))

    return both


def _distributions(network: Transformer, x: Tensor, layout: Layout, position: int | None) -> Tensor:
    """n v: log probabilities, one row for each distribution that counts."""
    valid = real(layout)
    if isinstance(network.config.head, c.LanguageHead | c.TaggingHead):
        return network.head(x[_counted(valid, position)][None], layout)[0].float().log_softmax(-1)
    return _logs(network, network.head(x, layout), valid, position)


def _logs(network: Transformer, logits: Tensor, valid: Tensor, position: int | None) -> Tensor:
    """The distributions from all logits."""
    match network.config.head:
        case c.NoHead() | c.VectorHead():
            raise AssertionError("a network without logits has a metric")
        case c.ClassificationHead():
            pass
        case c.SpanHead():
            # Finite, because 0 * inf is not 0.
            logits = logits.mT.masked_fill(~valid[:, None], -1e9).flatten(0, 1)
        case c.LanguageHead() | c.TaggingHead():
            logits = logits[_counted(valid, position)]
    return logits.float().log_softmax(-1)


def _counted(valid: Tensor, position: int | None) -> Tensor:
    if position is None:
        return valid
    length = valid.shape[1]
    if not -length <= position < length or not valid[:, position].any():
        raise UserError(f"position {position}: expected a real position of the last stack, whose length is {length}")
    only = torch.zeros_like(valid)
    only[:, position] = valid[:, position]
    return only


def _mean(seen: Trace, where: Address, layout: Mapping[str, Layout]) -> Tensor:
    """Puts the value's mean over the real positions of the batch everywhere at the address."""
    value, axes = seen[where.path], seen.axes[where.path]
    names = axes.split()
    letter = next((name for name in "ts" if name in names), None)
    weight = value.new_ones(len(value), *[1] * (value.ndim - 1))
    if letter is not None:
        stack = where.path.split(".")[0]
        name = "encoder" if letter == "s" and ".cross." in where.path else stack
        shape = [n if axis in ("b", letter) else 1 for axis, n in zip(names, value.shape, strict=True)]
        valid = real(layout.get(name, list(layout.values())[-1]))
        weight = valid.to(value).view(shape)
    dims = [i for i, axis in enumerate(names) if axis in ("b", letter)]
    average = (value * weight).sum(dims, keepdim=True) / weight.sum()
    return where.of(average.expand_as(value), axes)


def last_states(network: Transformer, name: str) -> str:
    """The address of a stack's last states."""
    stack = network.stacks()[name]
    end = f"blocks.{len(stack.blocks) - 1}.resid_post" if stack.final_norm is None else "final_norm.out"
    return f"{name}.{end}"


def repeated(tokens: Tokens, n: int) -> Tokens:
    """The batch n times over, one copy after the other."""
    values = {key: value for key, value in vars(tokens).items() if isinstance(value, Tensor)}
    return replace(tokens, **{key: value.repeat(n, *[1] * (value.ndim - 1)) for key, value in values.items()})
