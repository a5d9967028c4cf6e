"""Features: sparse directions of a network's values, learned from its own passes, that can be seen and edited."""

from clearhead.analysis.features.dictionary import Features, Site, read_by_ffn
from clearhead.analysis.features.report import (
    Example,
    Report,
    effect_on_logits,
    replacing,
    report,
    strongest,
    top_examples,
)
from clearhead.analysis.features.training import Ended, Event, Settings, Stepped, train

__all__ = [
    "Ended",
    "Event",
    "Example",
    "Features",
    "Report",
    "Settings",
    "Site",
    "Stepped",
    "effect_on_logits",
    "read_by_ffn",
    "replacing",
    "report",
    "strongest",
    "top_examples",
    "train",
]
