"""The embedded corpus: phrases composed from CLDR, with their alignment; no network, no bundled text."""

from clearhead.data.phrases.compose import KINDS, PhraseCorpus, compose
from clearhead.data.phrases.draft import Phrase, Span

__all__ = ["KINDS", "Phrase", "PhraseCorpus", "Span", "compose"]
