"""What happens inside a model over a data set: activations on disk, effects with intervals, strongest examples."""

from clearhead.capture.difference import Difference, difference
from clearhead.capture.effects import Effect, NodeEffect, effects, node_effects
from clearhead.capture.examples import Example, Examples
from clearhead.capture.reading import Captured, Rows
from clearhead.capture.texts import Texts, drawn, texts_in
from clearhead.capture.writing import CaptureSettings, capture

__all__ = [
    "CaptureSettings",
    "Captured",
    "Difference",
    "Effect",
    "Example",
    "Examples",
    "NodeEffect",
    "Rows",
    "Texts",
    "capture",
    "difference",
    "drawn",
    "effects",
    "node_effects",
    "texts_in",
]
