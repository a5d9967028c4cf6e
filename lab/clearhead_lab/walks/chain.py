"""A chain of the documents: a network with the printed matrices, and walks along it (ui/src/core/walk.ts)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import JsonValue
from tokenizers import Tokenizer as Library
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor

from clearhead import config as c
from clearhead.api import Model
from clearhead.model import Transformer
from clearhead.text.tokenizers import Tokenizer
from clearhead_lab.examples.parts import set_weight, stack
from clearhead_lab.examples.records import Record, records
from clearhead_lab.examples.verdicts import judge

Json = dict[str, Any]
Rows = Sequence[Sequence[float]]
UNKNOWN = "?"
"""The token of every other word: its vector is zero."""
BLOCK = "encoder.blocks.0"
ATTENTION = f"{BLOCK}.attn"


@dataclass(frozen=True)
class Walk:
    """A way along a chain: stops in order, as the page reads them."""

    name: str
    title: str
    stops: Sequence[Json]

    def document(self, text: str) -> Json:
        """The walk as the page reads it, about this text."""
        return {"name": self.name, "title": self.title, "text": text, "stops": list(self.stops)}


@dataclass(frozen=True)
class Chain:
    """A chain that is a network. `model` and `walks` are called when it is opened."""

    name: str
    source: str
    text: str
    """What its model reads."""
    model: Callable[[], Model]
    walks: Callable[[], Sequence[Walk]]

    def documents(self) -> list[Json]:
        """Its walks as the page reads them."""
        return [walk.document(self.text) for walk in self.walks()]


# --- the network -------------------------------------------------------------------------------------------------


def encoder(
    words: Mapping[str, int],
    table: Mapping[str, Sequence[float]],
    *,
    d_head: int,
    weights: Mapping[str, Tensor],
    up: tuple[Tensor, Tensor] | None = None,
    positions: c.NoPositions | c.Sinusoidal | None = None,
) -> Model:
    """One encoder block with one head over words with these ids and vectors, and matrices as the documents print them.

    `weights` are by the name of a part of the attention (q, k, v, out), and `up` is the matrix and the bias of a
    feed-forward that ends with its activation. Parts without a matrix hand on zeros. The norms follow their sums, so
    that the attention reads the vectors as they are.
    """
    d_model, n = len(next(iter(table.values()))), max(words.values()) + 1
    config = stack(
        d_model,
        d_head=d_head,
        d_ff=d_model,
        input=c.TokenInput(vocab_size=n),
        positions=positions or c.NoPositions(),
        norm_place="post",
        norm_eps=1e-8,
        ffn_bias=up is not None,
    )
    network = Transformer(c.ModelConfig(encoder=config, head=c.NoHead()))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        for name, matrix in weights.items():
            set_weight(network.get_submodule(f"{ATTENTION}.{name}"), matrix.float())
        if up is not None:
            matrix, bias = up
            set_weight(network.get_submodule(f"{BLOCK}.ffn.up"), matrix.float(), bias.float())
            set_weight(network.get_submodule(f"{BLOCK}.ffn.down"), torch.eye(d_model), torch.zeros(d_model))
        rows = network.get_parameter("encoder.embed.tokens.weight")
        for word, vector in table.items():
            rows[words[word]] = torch.tensor(vector)
    library = Library(WordLevel(dict(words), unk_token=UNKNOWN))
    library.pre_tokenizer = WhitespaceSplit()
    return Model(network.eval(), Tokenizer(library, {"unk_token": UNKNOWN}))


def matrix(record: str, name: str) -> Tensor:
    """A matrix among the inputs of a record."""
    return torch.tensor(records()[record].inputs[name], dtype=torch.float64)


# --- stops -------------------------------------------------------------------------------------------------------


def stop(name: str, view: str, say: str, *, step: str | None = None, query: int = 0, key: int = 0, **rest: Any) -> Json:
    """A stop at a place of the first block; `rest` are its other fields, and `edits`, `other` and `change`."""
    place: Json = {"view": view, "query": query, "key": key, "head": 0}
    place |= {} if step is None else {"step": step}
    place |= {field: rest.pop(field) for field in ("edits", "other", "change", "dim") if field in rest}
    return {"name": name, "place": place, "say": say, **rest}


def printed(record: str, at: str | None = None, *, rows: Sequence[str] | None = None) -> Json:
    """What a record prints, beside the value at an address of the stop's run, or beside what the engine computes of it.

    `rows` names the rows; by default rows are those of the tokens.
    """
    one = records()[record]
    theirs = shaped(one.printed)
    found: Json = {
        "record": one.id,
        "source": f"{one.document}, {one.section}",
        "title": one.title,
        "verdict": one.verdict,
        "printed": theirs,
        "decimals": one.decimals,
        "cause": cause(one),
    }
    if rows is not None:
        found["rows"] = list(rows)
    if at is not None:
        return found | {"at": at}
    ours = judge(one).ours
    return found | {"right": ours if isinstance(ours, str) else like(ours, theirs)}


def cause(record: Record) -> str:
    """The reason why a record is wrong or cannot be checked."""
    if record.lost:
        return f"The document does not give {record.lost}."
    follows = f" This follows from {', '.join(record.follows)}." if record.follows else ""
    return record.cause + follows


def shaped(value: Any) -> JsonValue:
    """Printed numbers as rows; words unchanged."""
    if not isinstance(value, list):
        return value
    return value if isinstance(value[0], list) else [value]


def like(numbers: Sequence[float], rows: Any) -> Any:
    """The numbers in rows as long as these; in one row where there are none or another number of them."""
    lengths = [len(row) for row in rows] if isinstance(rows, list) else []
    if sum(lengths) != len(numbers):
        return [list(numbers)]
    left = iter(numbers)
    return [[next(left) for _ in range(length)] for length in lengths]


def put(address: str, rows: Rows, axis: str = "t") -> list[Json]:
    """Edits that put rows of numbers, one for each index of an axis, in the place of the value at an address."""
    start = address[:-1] + "," if address.endswith("]") else address + "["
    return [{"at": f"{start}{axis}={i}]", "do": "set", "value": list(row)} for i, row in enumerate(rows)]
