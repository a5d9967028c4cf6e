"""What happens inside a model over a data set: activations on disk, effects with intervals, strongest examples."""

from clearhead.capture.difference import Difference, difference
from clearhead.capture.effects import Effect, effects
from clearhead.capture.examples import Example, Examples
from clearhead.capture.prompts import over_prompts
from clearhead.capture.reading import Captured, Rows
from clearhead.capture.texts import Texts, drawn, texts_in
from clearhead.capture.writing import CaptureSettings, capture
from clearhead.data.prompts import Prompt, prompts_in

__all__ = [
    "CaptureSettings",
    "Captured",
    "Difference",
    "Effect",
    "Example",
    "Examples",
    "Prompt",
    "Rows",
    "Texts",
    "capture",
    "difference",
    "drawn",
    "effects",
    "over_prompts",
    "prompts_in",
    "texts_in",
]
