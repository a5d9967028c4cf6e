"""The size and the cost of a network by component: parameters, shapes, FLOPs, activation and cache bytes.

Parameters and shapes are read from the network itself, built without memory for its weights. The rest is
arithmetic:

- FLOPs: 2 for each multiply and add of a matrix product. Lookups, norms, activations and softmax are not
  counted; a causal mask or a window saves none, since the whole product is computed before it is masked.
- Activation bytes: what a training step on a CPU keeps of the forward pass until the backward one, and the
  output. Each value counts with the component that reads it; masks, indices and rotations are not counted.
- Cache bytes: keys and values of all positions, once the last target token is generated.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from clearhead.config import ModelConfig, StackConfig
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model.cost import Component, parts
from clearhead.model.meta import Weight, unallocated, weights_of

DEFAULT_LENGTH = 512
"""Positions of a stack whose config sets no limit."""


@dataclass(frozen=True)
class Row:
    """One component, with its `count` equal instances summed."""

    component: str
    path: str
    """The path of its instances in the network, with `*` for the number of the block."""
    count: int
    weights: tuple[Weight, ...]
    """The weights of one instance."""
    flops: int
    """FLOPs of one forward pass over the whole batch."""
    tokens: int
    """Positions of the whole batch in the component's stack."""
    activation_bytes: int
    cache_bytes: int

    @property
    def parameters_each(self) -> int:
        """Parameters of one instance."""
        return sum(weight.parameters for weight in self.weights)

    @property
    def parameters(self) -> int:
        """Parameters of all instances."""
        return self.count * self.parameters_each

    @property
    def flops_per_token(self) -> float:
        """FLOPs for each position of the component's own stack."""
        return self.flops / self.tokens

    @property
    def shapes(self) -> str:
        """Shapes of one instance, equal ones together: `4 x (512, 512), 4 x (512)`."""
        shapes = Counter(weight.shape for weight in self.weights if not weight.tied_to)
        parts = [f"{n} x {_shape(shape)}" if n > 1 else _shape(shape) for shape, n in shapes.items()]
        parts += [f"{_shape(w.shape)} tied to {w.tied_to}" for w in self.weights if w.tied_to]
        return ", ".join(parts)

    def to_json(self) -> JsonObject:
        """Every field, shapes by parameter."""
        return {
            "component": self.component,
            "path": self.path,
            "count": self.count,
            "shapes": {weight.name: list(weight.shape) for weight in self.weights},
            "tied": {weight.name: weight.tied_to for weight in self.weights if weight.tied_to},
            "parameters_each": self.parameters_each,
            "parameters": self.parameters,
            "flops_per_token": round(self.flops_per_token),
            "flops": self.flops,
            "activation_bytes": self.activation_bytes,
            "cache_bytes": self.cache_bytes,
        }


@dataclass(frozen=True)
class Summary:
    """Every component of a network, and the totals."""

    rows: tuple[Row, ...]
    batch: int
    source_length: int | None
    target_length: int | None
    bytes_per_number: int

    @property
    def parameters(self) -> int:
        """All parameters, tied ones counted once."""
        return sum(row.parameters for row in self.rows)

    @property
    def weight_bytes(self) -> int:
        """All parameters, in bytes."""
        return self.parameters * self.bytes_per_number

    @property
    def flops(self) -> int:
        """FLOPs of one forward pass over the whole batch."""
        return sum(row.flops for row in self.rows)

    @property
    def flops_per_token(self) -> float:
        """FLOPs of one position; with two stacks, of one source and one target position."""
        return sum(row.flops_per_token for row in self.rows)

    @property
    def activation_bytes(self) -> int:
        """Bytes kept for the backward pass of the whole batch, including the output.

        All states count, though training leaves out those of the last block that a classifier does not read.
        """
        return sum(row.activation_bytes for row in self.rows)

    @property
    def cache_bytes(self) -> int:
        """Keys and values of the whole batch after the last target token."""
        return sum(row.cache_bytes for row in self.rows)

    def lines(self) -> list[str]:
        """Two tables as text: the network's parameters, and the cost of one forward pass."""
        held = [["component", "path", "shapes of one", "count", "each", "parameters"]]
        held += [
            [r.component, r.path, r.shapes, f"{r.count:,}", f"{r.parameters_each:,}", f"{r.parameters:,}"]
            for r in self.rows
            if r.weights or not r.activation_bytes  # computed positions have no parameters, which a line of 0 shows
        ]
        held.append(["total", "", "", "", "", f"{self.parameters:,}"])
        costs = [["component", "path", "FLOPs a token", "FLOPs", "activation bytes", "cache bytes"]]
        rows: list[tuple[str, str, Row | Summary]] = [
            *((row.component, row.path, row) for row in self.rows if row.flops or row.activation_bytes),
            ("total", "", self),
        ]
        costs += [
            [
                component,
                path,
                f"{round(r.flops_per_token):,}",
                f"{r.flops:,}",
                f"{r.activation_bytes:,}",
                f"{r.cache_bytes:,}",
            ]
            for component, path, r in rows
        ]
        given = [f"batch {self.batch:,}"]
        given += [f"source length {self.source_length:,}"] if self.source_length else []
        given += [f"target length {self.target_length:,}"] if self.target_length else []
        given += [f"{self.bytes_per_number:,} bytes a number"]
        return [
            *_table(held, n_text=3),
            "",
            f"One forward pass: {', '.join(given)}; weights {self.weight_bytes:,} bytes",
            "",
            *_table(costs, n_text=2),
        ]

    def to_json(self) -> JsonObject:
        """The totals, what they were computed for, and every row."""
        return {
            "parameters": self.parameters,
            "weight_bytes": self.weight_bytes,
            "flops_per_token": round(self.flops_per_token),
            "flops": self.flops,
            "activation_bytes": self.activation_bytes,
            "cache_bytes": self.cache_bytes,
            "batch": self.batch,
            "source_length": self.source_length,
            "target_length": self.target_length,
            "bytes_per_number": self.bytes_per_number,
            "components": [row.to_json() for row in self.rows],
        }


def summarize(
    config: ModelConfig,
    *,
    batch: int = 1,
    source_length: int | None = None,
    target_length: int | None = None,
    bytes_per_number: int = 4,
) -> Summary:
    """The size of this config's network, and its cost on a batch without padding.

    Lengths are positions of the encoder (source) and the decoder (target); the default is the longest that
    the stack's config allows, else 512. An image has the length of its patches and class token.

    Raises UserError for a size below 1, a length without its stack, or one that the positions cannot name.
    """
    for name, value in (("batch", batch), ("bytes_per_number", bytes_per_number)):
        if value < 1:
            raise UserError(f"{name}: expected 1 or more, got {value}; try 1")
    source = _length("source_length", source_length, config.encoder)
    target = _length("target_length", target_length, config.decoder)
    network = unallocated(config)
    weights = weights_of(network)
    rows = tuple(
        Row(
            component=part.component,
            path=part.path,
            count=part.count,
            weights=_weights_of(part, weights),
            flops=part.cost.of(batch).flops,
            tokens=batch * part.length,
            activation_bytes=part.cost.of(batch).kept * bytes_per_number,
            cache_bytes=part.cost.of(batch).cached * bytes_per_number,
        )
        for part in parts(network, source or 0, target or 0)
    )
    summary = Summary(rows, batch, source, target, bytes_per_number)
    assert summary.parameters == network.n_parameters
    return summary


def _length(name: str, given: int | None, stack: StackConfig | None) -> int | None:
    """Positions of a stack; None without such a stack. Raises UserError for a length that it cannot read."""
    if stack is None:
        if given is not None:
            other = "target_length" if name == "source_length" else "source_length"
            raise UserError(f"{name}: expected none, as there is no such stack, got {given}; try {other}")
        return None
    fixed = stack.fixed_length
    limit = fixed or stack.max_length
    length = (limit or DEFAULT_LENGTH) if given is None else given
    if fixed is not None and length != fixed:
        raise UserError(f"{name}: expected the input's {fixed} positions, got {length}; try leaving it out")
    if length < 1 or (limit is not None and length > limit):
        expected = "1 or more" if limit is None else f"1 to {limit}"
        raise UserError(f"{name}: expected {expected}, got {length}; try {limit or DEFAULT_LENGTH}")
    return length


def _weights_of(part: Component, weights: Mapping[str, Weight]) -> tuple[Weight, ...]:
    """The parameters of a component's first instance, as it names them."""
    return tuple(
        Weight(name[len(part.first) + 1 :], weight.shape, weight.tied_to)
        for name, weight in weights.items()
        if name == part.first or name.startswith(f"{part.first}.")
    )


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _table(rows: list[list[str]], *, n_text: int) -> list[str]:
    """Columns two spaces apart, the first `n_text` left-aligned; rules under the heading, above the total."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(cells: list[str]) -> str:
        aligned = [
            cell.ljust(width) if i < n_text else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(aligned).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    heading, *body, total = map(line, rows)
    return [heading, rule, *body, rule, total]
