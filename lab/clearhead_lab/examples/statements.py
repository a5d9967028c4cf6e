"""The false statements of statements.toml, computed with the engine's parts."""

from functools import partial
from typing import Any

from clearhead_lab.examples import parts, places, shapes, words
from clearhead_lab.examples.parts import Compute, Statement
from clearhead_lab.examples.records import Inputs, Record, records

SPACE: dict[str, Any] = {**vars(parts), **vars(places), **vars(shapes), **vars(words)}
"""What an expression may name."""


def compute(record: Record, _: Inputs, *, false: bool = False) -> Statement:
    """The truth of a statement in its world, or in the one where it would hold."""
    assert record.claim is not None
    holds, values = record.claim.run(SPACE, false=false)
    return Statement(holds, record.ours.format(**values))


COMPUTED: dict[str, Compute] = {name: partial(compute, one) for name, one in records().items() if one.claim}
