"""Circuits: the parts of a network, and the connections between them, that make one number of its result."""

from clearhead.analysis.circuits.circuits import Circuits
from clearhead.analysis.circuits.graph import Edge, Edges, Nodes
from clearhead.analysis.circuits.parts import with_a_place
from clearhead.analysis.circuits.patching import (
    Point,
    curve,
    patched_but,
    patched_edges,
    patched_nodes,
    refined_edges,
    refined_nodes,
)
from clearhead.analysis.metrics import Divergence, LogitDifference, LogProbability, Loss, Metric, VectorShift

__all__ = [
    "Circuits",
    "Divergence",
    "Edge",
    "Edges",
    "LogProbability",
    "LogitDifference",
    "Loss",
    "Metric",
    "Nodes",
    "Point",
    "VectorShift",
    "curve",
    "patched_but",
    "patched_edges",
    "patched_nodes",
    "refined_edges",
    "refined_nodes",
    "with_a_place",
]
