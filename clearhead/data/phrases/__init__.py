"""The embedded corpus: phrases composed from CLDR with their alignment. It needs no network and no bundled text."""

from clearhead.data.phrases.compose import KINDS, PhraseCorpus, compose
from clearhead.data.phrases.draft import Phrase, Span

__all__ = ["KINDS", "Phrase", "PhraseCorpus", "Span", "compose"]
