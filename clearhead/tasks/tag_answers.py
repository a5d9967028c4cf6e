"""The answers of a tagger: the best valid sequence of tags for each sentence, and the spans that they mark."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from clearhead.config import ModelConfig, TaggingHead
from clearhead.data.batches import token_budget_batches
from clearhead.data.tag_schemes import OUTSIDE, SCHEMES, Scheme, Span, scheme_of, spans_of
from clearhead.data.tagged_ids import WordIds
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.progress import counted
from clearhead.tasks.answers import BATCH_TOKENS, told_apart
from clearhead.tasks.task import Prediction
from clearhead.text.tokenizers import Tokenizer

WORD = re.compile(
    r"https?://[^\s)>\]]+|(?:\w\.){2,}|(?<!\S)['’]\w{1,2}(?!\S)|[@#]?\w+(?:[-.'’@/&_]+\w+|[.,:]\d+)*|([^\w\s])\1*"
)
"""A word of running text, or a run of one punctuation mark."""


def tagging_head(config: ModelConfig) -> TaggingHead:
    """The tagging head. Raises UserError for any other."""
    if not isinstance(config.head, TaggingHead):
        raise UserError(f"model: expected a tagging head, got {config.head.kind}; try clearhead train tagging first")
    return config.head


def tag_names(head: TaggingHead) -> tuple[str, ...]:
    """The names of a head's tags. A head with one label has two: one for its absence, then the label."""
    names = told_apart(head.labels) or tuple(f"LABEL_{i}" for i in range(head.n_labels))
    return names if len(names) > 1 else (OUTSIDE, *names)


def log_shares(network: Transformer, words: WordIds, tokenizer: Tokenizer) -> list[np.ndarray]:
    """The log-probabilities of the tags of each word, n v for each sentence, on the CPU."""
    parts, budget = words.parts, max([BATCH_TOKENS, *words.lengths])
    n_tags = len(tag_names(tagging_head(network.config)))
    found = [np.empty((0, n_tags))] * len(parts)
    with Evaluating(network), torch.inference_mode():
        for examples in counted(token_budget_batches(words.lengths, max_tokens=budget, seed=0, epoch=0), "reading"):
            tokens = Tokens.pad([parts[i].ids for i in examples], fill=tokenizer.pad_id or 0, packed=True)
            tokens = tokens.to(next(network.parameters()).device)
            logits = network(tokens)
            cells = tokens.real(logits) if logits.ndim == 3 else logits
            # The number of a lone label is its log-odds: that of 0 and itself are a softmax of two.
            cells = F.pad(cells, (n_tags - cells.shape[-1], 0))
            shares = cells.double().log_softmax(-1).cpu().numpy()
            starts = np.cumsum([0, *(len(parts[i].ids) for i in examples)])
            for i, start in zip(examples, starts[:-1], strict=True):
                found[i] = shares[start + np.array(parts[i].cells)]
    sentences: list[list[np.ndarray]] = [[] for _ in range(words.n_sentences)]
    for part, rows in zip(parts, found, strict=True):
        sentences[part.sentence].append(rows)
    return [np.concatenate(rows) if rows else np.empty((0, n_tags)) for rows in sentences]


class Decoder:
    """The tags with the largest sum of log-probabilities among the sequences that their scheme allows."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.scheme = names, decoding_scheme(names)
        around = [*names, OUTSIDE]
        allowed = np.array([[self.scheme.follows(a, b) for b in around] for a in around])
        self.blocked = np.where(allowed, 0.0, -np.inf)
        """v+1 v+1: from a tag to the next one; the last row is the beginning, the last column the end."""

    def __call__(self, shares: np.ndarray) -> np.ndarray:
        """n v -> n: the number of each word's tag (Viterbi 1967)."""
        if not self.scheme or not len(shares):
            return shares.argmax(-1)
        inner, best = self.blocked[:-1, :-1], shares[0] + self.blocked[-1, :-1]
        back = np.zeros(shares.shape, dtype=np.int64)
        for i, row in enumerate(shares[1:], start=1):
            paths = best[:, None] + inner
            back[i] = paths.argmax(0)
            best = paths.max(0) + row
        chosen = [int((best + self.blocked[:-1, -1]).argmax())]
        for i in range(len(shares) - 1, 0, -1):
            chosen.append(int(back[i][chosen[-1]]))
        return np.array(chosen[::-1])


def decoding_scheme(names: Sequence[str]) -> Scheme:
    """The scheme of these tags, or none if some spans could not begin."""
    scheme = scheme_of(names)
    begun = {name[2:] for name in names if name[0] in ("B", scheme.single)}
    return scheme if {name[2:] for name in names if name != OUTSIDE} <= begun else SCHEMES["none"]


@dataclass(frozen=True)
class Sentence:
    """Words, and where they are in their text."""

    words: tuple[str, ...]
    places: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, text: str) -> "Sentence":
        """The words of a text, separated by white space. Punctuation around a word is a word of its own."""
        found = [match.span() for match in WORD.finditer(text)]
        return cls(tuple(text[a:b] for a, b in found), tuple(found))


def said(network: Transformer, tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> Iterator[Prediction]:
    """The tags of each text as word/TAG, or the spans that they mark with their places in the text."""
    names = tag_names(tagging_head(network.config))
    sentences, decode = [Sentence.of(text) for text in texts], Decoder(names)
    ids = WordIds.of([sentence.words for sentence in sentences], tokenizer, limit)
    for text, sentence, shares in zip(texts, sentences, log_shares(network, ids, tokenizer), strict=True):
        chosen = decode(shares)
        tags = [names[i] for i in chosen]
        likely = [float(row[i]) for row, i in zip(np.exp(shares), chosen, strict=True)]
        values: JsonObject = {"words": [*sentence.words], "tags": [*tags], "probabilities": [*likely]}
        if not decode.scheme:
            line = " ".join(f"{word}/{tag}" for word, tag in zip(sentence.words, tags, strict=True))
            yield Prediction(tabbed(line), values)
            continue
        found = [entity(text, sentence, span, likely) for span in spans_of(tags)]
        shown = (f"{one['label']} {one['start']}-{one['end']} {one['text']}" for one in found)
        yield Prediction(tabbed(*shown), {**values, "entities": [*found]})


def entity(text: str, sentence: Sentence, span: Span, likely: Sequence[float]) -> JsonObject:
    """A span as its characters [start, end) of the text. Its probability is the mean of its words'."""
    start, end = sentence.places[span.start][0], sentence.places[span.end - 1][1]
    probability = sum(likely[span.start : span.end]) / (span.end - span.start)
    return {"text": text[start:end], "label": span.label, "start": start, "end": end, "probability": probability}
