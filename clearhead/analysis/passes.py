"""Forward passes of an analysis: their inputs, their values, and passes that begin at a block."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.cache import KeyValues
from clearhead.model.mode import Evaluating
from clearhead.trace import Address, Edit, Trace, recording, trace, zero

Inputs = Sequence[Tokens | Tensor]
"""An input for each stack."""


class Seen(Protocol):
    """The values of one forward pass by address, with the batch axis: a `Trace`, or what computes them on demand."""

    def __getitem__(self, address: str, /) -> Tensor: ...


# --- inputs -----------------------------------------------------------------------------------------------------------


def by_stack(network: Transformer, inputs: Inputs) -> dict[str, Tokens]:
    """Each stack's input in the padded layout, by the stack's name. Raises UserError for a wrong number of inputs."""
    names = network.stacks()
    if len(inputs) != len(names):
        raise UserError(f"this network has {len(names)} stack(s) and takes as many inputs, got {len(inputs)}")
    tokens = [Tokens(x) if isinstance(x, Tensor) else x.padded() for x in inputs]
    return dict(zip(names, tokens, strict=True))


def seen_by_stack(network: Transformer, inputs: Inputs) -> dict[str, Tokens]:
    """The same with the vectors of the pictures within texts, which say how the text's positions are laid out."""
    with inference(network):
        return {name: network.see(tokens) for name, tokens in by_stack(network, inputs).items()}


def one_text(network: Transformer, inputs: Inputs) -> dict[str, Tokens]:
    """Each stack's input, as `by_stack` returns it. Raises UserError for several texts or padding."""
    tokens = by_stack(network, inputs)
    for name, one in tokens.items():
        if len(one.ids) != 1 or (one.valid is not None and not one.valid.all()):
            raise UserError(f"{name}: expected one text without padding, got {len(one.ids)} rows; pass one of them")
    return tokens


def layouts(network: Transformer, tokens: Mapping[str, Tokens]) -> dict[str, Layout]:
    """The layout of each stack, by its name."""
    return {name: stack.embed.layout(tokens[name]) for name, stack in network.stacks().items()}


def n_positions(places: Mapping[str, Layout]) -> int:
    """The number of positions of a pass, padding included."""
    return sum(b * t for b, t in (layout.grid for layout in places.values()))


def repeated(tokens: Tokens, n: int) -> Tokens:
    """The batch n times over, one copy after the other."""
    values = {key: value for key, value in vars(tokens).items() if isinstance(value, Tensor)}
    return replace(tokens, **{key: value.repeat(n, *[1] * (value.ndim - 1)) for key, value in values.items()})


def check_labels(size: int, *labels: int | Sequence[int] | None, name: str = "logit") -> None:
    """Raises UserError for a label that the network does not have."""
    for some in labels:
        for label in () if some is None else [some] if isinstance(some, int) else some:
            if not 0 <= label < size:
                raise UserError(f"{name} {label}: expected a number below {size}")


# --- values -----------------------------------------------------------------------------------------------------------


@contextmanager
def inference(network: Transformer) -> Iterator[None]:
    """The network computes in evaluation mode and without gradients while the block runs."""
    with Evaluating(network), torch.no_grad():
        yield


def traced(
    network: Transformer,
    tokens: Mapping[str, Tokens],
    edit: Mapping[str, Edit] | None = None,
    *,
    without: Collection[str] = (),
) -> tuple[Trace, Tensor]:
    """A trace of one pass, and its result."""
    with inference(network), trace(network, edit, without=without) as seen:
        return seen, network(*tokens.values())


def rows_at(network: Transformer, inputs: Sequence[Tokens], addresses: Collection[str]) -> dict[str, Tensor]:
    """n d: the value at each address for every real position of a batch, in order.

    The pass ends at the last of the values. Raises UserError for an address that the network's fast kernels do not
    have, and for a value that is not one vector for each position.
    """
    with inference(network), recording(network, addresses) as seen:
        network(*inputs)
    tokens = dict(zip(network.stacks(), inputs, strict=True))
    return {at: _real_rows(seen[at], tokens[at.split(".")[0]], at) for at in addresses}


def _real_rows(value: Tensor, tokens: Tokens, address: str) -> Tensor:
    """m d or b t d -> n d"""
    if value.ndim == 2 and tokens.rows is not None:
        return value[: len(tokens.rows)]
    if value.ndim != 3:
        raise UserError(f"{address}: expected one vector for each position, got shape {tuple(value.shape)}")
    return tokens.padded().real(value)


def sizes_of(tokens: Tokens, n: int) -> list[int]:
    """How many of the n real positions of a batch belong to each of its rows."""
    b = tokens.ids.shape[0]
    return [n // b] * b if tokens.valid is None else [int(size) for size in tokens.valid.sum(1)]


def row_means(values: Tensor, counts: Tensor) -> Tensor:
    """n -> b: the mean of each row's values. `counts`, b, are the numbers of values of the rows; at least 0."""
    owner = torch.arange(len(counts), device=values.device).repeat_interleave(counts)
    return values.new_zeros(len(counts)).index_add_(0, owner, values).div_(counts).clamp_(min=0.0)


def text_mean(value: Tensor, axes: str, places: Mapping[str, Layout], path: str) -> Tensor:
    """The value's mean over the real positions of the batch, everywhere."""
    names = axes.split()
    letter = next((name for name in "ts" if name in names), None)
    weight = value.new_ones(len(value), *[1] * (value.ndim - 1))
    if letter is not None:
        name = "encoder" if letter == "s" and ".cross." in path else path.split(".", maxsplit=1)[0]
        shape = [n if axis in ("b", letter) else 1 for axis, n in zip(names, value.shape, strict=True)]
        weight = places.get(name, list(places.values())[-1]).valid_cells.to(value).view(shape)
    dims = [i for i, axis in enumerate(names) if axis in ("b", letter)]
    return ((value * weight).sum(dims, keepdim=True) / weight.sum()).expand_as(value)


# --- passes that begin at a block -------------------------------------------------------------------------------------


def last_states(network: Transformer, name: str) -> str:
    """The address of a stack's last states."""
    stack = network.stacks()[name]
    end = f"blocks.{len(stack.blocks) - 1}.resid_post" if stack.final_norm is None else "final_norm.out"
    return f"{name}.{end}"


Part = tuple[str, int]
"""A stack and the number of a block, with -1 its embedding and with n_layers its final norm; or the head, 0."""
SEEN = re.compile(r"(resid_\w+|q|k|v|z|out|pre|post|logits)")
"""The values that fast kernels compute too."""


def part_of(network: Transformer, path: str) -> Part:
    """The part of the network that computes the value at a path."""
    name, _, rest = path.partition(".")
    stacks = network.stacks()
    if name not in stacks:
        return "head", 0
    block = re.match(r"blocks\.(\d+)\.", rest)
    return name, int(block[1]) if block else len(stacks[name].blocks) if rest.startswith("final_norm.") else -1


def in_order(network: Transformer, part: Part) -> tuple[int, int]:
    """A key that sorts parts in the order in which they run."""
    return [*network.stacks(), "head"].index(part[0]), part[1]


def next_size(n: int) -> int:
    """The next of 1, 2, 4, 7, 11, 17, 26, …"""
    up = 1
    while up < n:
        up += up // 2 + 1
    return up


def is_everywhere(at: Address, edit: Edit) -> bool:
    """True for an edit that does the same at every position."""
    return (edit is zero or isinstance(edit, int | float)) and not {"t", "s"} & dict(at.index).keys()


@dataclass
class Following(KeyValues):
    """Keys and values after those of the text itself."""

    __repr__ = brief

    is_shared: bool = False
    """True if all copies read one row, in which the text stands once."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        assert self.k is not None
        assert self.v is not None
        n, both = len(k) // len(self.k), ((self.k, k), (self.v, v))
        if self.is_shared:
            keys, values = (torch.cat([old, new.transpose(0, 1).flatten(1, 2)[None]], 2) for old, new in both)
        else:
            keys, values = (torch.cat([old[None].expand(n, *old.shape).flatten(0, 1), new], 2) for old, new in both)
        return keys, values


class Given(KeyValues):
    """Keys and values of all positions. Those of the queries are among them."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        assert self.k is not None
        assert self.v is not None
        return self.k, self.v


def can_share(attn_bias: AttentionBias) -> bool:
    """True if only a mask says which keys a query reads."""
    return attn_bias.score_bias is None and attn_bias.relation is None and attn_bias.unreachable is None


def shared(mask: Tensor, n: int, own: int) -> Tensor:
    """The mask, 1 1 t s, of n copies whose keys stand in one row: those of the text, and then `own` of each copy."""
    t, s = mask.shape[2:]
    each = mask.new_full((n, t, n, own), float("-inf"))
    each[range(n), :, range(n)] = mask[0, 0, :, s - own :]
    return torch.cat([mask[0, 0, :, : s - own].repeat(n, 1), each.view(n * t, n * own)], 1)[None, None]
