"""Scores of spans of words, and the report on tagged sentences before training."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from clearhead.config import Config
from clearhead.data.splits import Repeats, repeats, shares_line
from clearhead.errors import UserError
from clearhead.tasks.scores import Score, scored
from clearhead.tasks.tagging.data import Scheme, Span, TaggedSentence, spans_of
from clearhead.tasks.tagging.ids import WordIds


def check_span_scores() -> None:
    """Raises UserError unless nervaluate is installed."""
    try:
        import nervaluate  # noqa: F401
    except ImportError:
        raise UserError("span_f1: expected the package nervaluate, got none; pip install 'clearhead[eval]'") from None


def span_scores(references: Sequence[Sequence[Span]], outputs: Sequence[Sequence[Span]]) -> tuple[Score, ...]:
    """Micro-averaged F1, precision and recall of the spans of sentences: words and label must be the same.

    Each has a bootstrap interval over sentences. Raises UserError as `check_span_scores` does.
    """
    check_span_scores()
    from nervaluate.entities import Entity
    from nervaluate.strategies import StrictEvaluation

    def entities(spans: Sequence[Span]) -> list[Entity]:
        return [Entity(label=span.label, start=span.start, end=span.end - 1) for span in spans]

    strict = StrictEvaluation()
    each = [strict.evaluate(entities(a), entities(b), [])[0] for a, b in zip(references, outputs, strict=True)]
    hits = np.array([one.correct for one in each])
    there, here = (np.array([*map(len, spans)]) for spans in (references, outputs))
    return (
        scored("span_f1", share, 2 * hits, there + here, "0 to 1"),
        scored("precision", share, hits, here, "0 to 1"),
        scored("recall", share, hits, there, "0 to 1"),
    )


def share(parts: np.ndarray, wholes: np.ndarray) -> float:
    """The sum of the parts divided by the sum of the wholes; n, n. 0 if the wholes are empty."""
    return float(parts.sum() / max(wholes.sum(), 1))


MOST_NAMES = 20
"""Tags that are listed by name."""


class TagSplit(Repeats):
    """One split."""

    name: str
    n_sentences: int
    n_words: int
    n_labels: int
    """Words whose tag is known: the labels that are trained or measured."""
    n_unlabelled: int
    """Sentences without any known tag."""
    unlabelled: str
    """The place of the first of them."""
    longest: int
    """Most words of a sentence."""
    n_pieces: int
    longest_ids: int
    """Most tokens of an example, special ones included."""
    n_split: int
    """Sentences that are read in several parts because they have more tokens than the limit."""
    n_cut: int
    """Words with more pieces than the limit, of which only the first ones are read."""
    tags: dict[str, int]
    """How many words have each tag."""
    spans: dict[str, int]
    """How many spans have each label; empty for tags of single words."""
    n_unseen: int
    """Words that training does not have, apart from case."""

    def lines(self, limit: int) -> list[str]:
        """The findings as text."""
        words, sentences = max(self.n_words, 1), max(self.n_sentences, 1)
        size = f"{self.n_sentences:,} sentences, {self.n_words:,} words"
        lengths = f"{self.n_words / sentences:.1f} words each, at most {self.longest:,}"
        tokens = f"{self.n_pieces / words:.2f} tokens a word, at most {self.longest_ids:,} together"
        lines = [
            f"{self.name}: {size}; {lengths}; {tokens}",
            f"  labels: {self.n_labels:,}, {self.n_labels / sentences:.1f} a sentence",
        ]
        kinds, what = (self.spans, "spans") if self.spans else (self.tags, "tags")
        ordered = {name: count for name, count in sorted(kinds.items(), key=lambda item: -item[1]) if count}
        lines.append(f"  {max(sum(kinds.values()), 1):,} {what}: {shares_line(ordered, MOST_NAMES)}")
        if none := [name for name, count in kinds.items() if not count]:
            lines.append(f"  none of {', '.join(none[:MOST_NAMES])}: its scores say nothing about that")
        found = [
            (self.n_unlabelled, f"sentences without a known tag, such as {self.unlabelled}"),
            (self.n_split, f"sentences of more than {limit:,} tokens, read in parts"),
            (self.n_cut, f"words of more than {limit:,} tokens, cut"),
        ]
        lines += [f"  {count:,} {what}" for count, what in found if count]
        if self.name != "train":
            lines.append(f"  {self.n_unseen / words:.1%} of the words are not in train")
        return lines + self.repeated(self.n_sentences, another="with other tags")


class TagReport(Config):
    """All counts. `lines()` is for people, `model_dump()` for programs."""

    vocab_size: int
    max_length: int
    scheme: str
    notes: tuple[str, ...]
    splits: tuple[TagSplit, ...]

    def lines(self) -> list[str]:
        """The report as plain text, one finding a line."""
        how = "tags of single words" if self.scheme == "none" else f"spans, tagged in {self.scheme.upper()}"
        found = [line for split in self.splits for line in split.lines(self.max_length)]
        return [f"vocabulary: {self.vocab_size:,} tokens", f"tags: {how}", *self.notes, *found]


def tag_split(
    name: str,
    sentences: Sequence[TaggedSentence],
    ids: WordIds,
    *,
    tags: Sequence[str],
    scheme: Scheme,
    train: Sequence[TaggedSentence],
) -> TagSplit:
    """The report on a split. Raises UserError for training sentences of which no tag is known."""
    is_train = name == "train"
    vocabulary = {word.lower() for one in train for word in one.words}
    unlabelled = [one for one in sentences if not one.labels]
    if len(unlabelled) == len(sentences):
        raise UserError(f"{sentences[0].place()}: expected known tags to {name} on, got none; try another --label")
    counts = Counter(tag for one in sentences for tag in one.labels)
    marked = Counter(span.label for one in sentences for span in (spans_of(one.tags) if scheme else ()))
    labels = dict.fromkeys(tag[2:] for tag in tags if tag[2:]) if scheme else {}
    return TagSplit(
        name=name,
        n_sentences=len(sentences),
        n_words=sum(len(one.words) for one in sentences),
        n_labels=sum(counts.values()),
        n_unlabelled=len(unlabelled),
        unlabelled=unlabelled[0].place() if unlabelled else "",
        longest=max(len(one.words) for one in sentences),
        n_pieces=ids.n_pieces,
        longest_ids=max(ids.lengths),
        n_split=ids.n_split,
        n_cut=ids.n_cut,
        tags={tag: counts[tag] for tag in tags},
        spans={label: marked[label] for label in labels},
        n_unseen=0 if is_train else sum(word.lower() not in vocabulary for one in sentences for word in one.words),
        **repeats(sentences, () if is_train else train, labels=lambda one: one.tags, place=TaggedSentence.place),
    )
