"""Circuits: the parts of a network, and the connections between them, that make one number of its result."""

from clearhead.analysis.circuits.circuits import Circuits
from clearhead.analysis.circuits.exact import Point, faithfulness, patched_but, patched_edges, patched_nodes
from clearhead.analysis.circuits.graph import Edge, Edges, Nodes
from clearhead.analysis.circuits.metrics import Divergence, LogitDifference, LogProbability, Loss, Metric, VectorShift

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
    "faithfulness",
    "patched_but",
    "patched_edges",
    "patched_nodes",
]
