"""Generation: greedy, sampled or by beam search, with one event for each token."""

from clearhead.generation.generate import (
    Draft,
    Finished,
    GenerationEvent,
    check_draft,
    complete,
    completing,
    generate,
    in_batches,
)
from clearhead.generation.sampling import History, Sampler
from clearhead.generation.search import Hypothesis, Step, Stop
from clearhead.generation.speculation import Drafts

__all__ = [
    "Draft",
    "Drafts",
    "Finished",
    "GenerationEvent",
    "History",
    "Hypothesis",
    "Sampler",
    "Step",
    "Stop",
    "check_draft",
    "complete",
    "completing",
    "generate",
    "in_batches",
]
