"""Tagging: a tag for each word of a sentence, such as its part of speech or the span it is in (BIO, IOBES)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PositiveInt

from clearhead.config import ModelConfig
from clearhead.config.heads import TaggingHead
from clearhead.data.batches import token_budget_batches
from clearhead.data.sequences import largest_of
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Tokens, Transformer
from clearhead.model.loss import IGNORED
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Column, Source, TestedData
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.evaluation import N_MISTAKES, Evaluation, Example, Sample
from clearhead.tasks.networks import BATCH_TOKENS, check_fits, distinct, layers_of, most_tokens, outputs_of, with_head
from clearhead.tasks.scores import Score, scored
from clearhead.tasks.tagging.data import (
    OUTSIDE,
    SCHEMES,
    Scheme,
    Span,
    TaggedSentence,
    changes_in,
    check_tags,
    normalize,
    read_tagged,
    scheme_of,
    spans_of,
    split_tagged,
    tags_in,
)
from clearhead.tasks.tagging.ids import WordIds, Words
from clearhead.tasks.tagging.scores import TagReport, check_span_scores, share, span_scores, tag_split
from clearhead.tasks.task import Batch, EncodedExamples, ExampleTask, Files, HeadLoss, Prediction, Trained
from clearhead.text.tokenizers import Tokenizer

USUAL_LENGTH = 512
"""Tokens that a model without a limit reads at once."""
WORD = re.compile(
    r"https?://[^\s)>\]]+|(?:\w\.){2,}|(?<!\S)['’]\w{1,2}(?!\S)|[@#]?\w+(?:[-.'’@/&_]+\w+|[.,:]\d+)*|([^\w\s])\1*"
)
"""A word of running text, or a run of one punctuation mark."""


class TaggingData(TestedData):
    """Sentences with a tag for each word, in CoNLL files, or in tables and datasets with lists."""

    words: Column | None = None
    """Column of the words; None: the first one, FORM of CoNLL-U, or one with a usual name such as tokens."""
    label: Column | None = None
    """Column of the tags; None: the last one, UPOS of CoNLL-U, or one with a usual name such as ner_tags."""
    max_length: PositiveInt = 256
    """Most tokens of an example, special ones included; longer sentences are read in parts."""


class TaggingRecipe(Recipe):
    """How to train a tagger."""

    task: Literal["tagging"]
    data: TaggingData
    tokenizer: TokenizerConfig = WordPiece()
    model: ModelChoice = ModelChoice(preset="classifier")


Tagged: TypeAlias = EncodedExamples[TaggedSentence, WordIds]


class Tagging(HeadLoss, ExampleTask[TaggingRecipe, TaggedSentence, Tagged]):
    """p(tag | sentence) for each word, which its first piece stands for."""

    recipe = TaggingRecipe
    files = Files("words with their tags", {"kind": "tagged", "paths": "--data"})
    verb = "tag"
    use = 'tag {} "A sentence."'
    samples = "worst mistakes"
    heads = ("tagging",)
    higher_is_better = True
    unit = "words"

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        tags: Sequence[str],
        limit: int = USUAL_LENGTH,
        max_tokens: int = BATCH_TOKENS,
        packed: bool = True,
    ) -> None:
        """`limit` is the most tokens of a part. Raises UserError if tags mark spans and nervaluate is not installed."""
        self.tokenizer, self.tags, self.limit = tokenizer, tuple(tags), limit
        self.max_tokens, self.packed = max_tokens, packed
        self.scheme = decoding_scheme(tags)
        if self.scheme:
            check_span_scores()
        self.main_score = "span_f1" if self.scheme else "accuracy"
        self.index = {"": IGNORED} | {tag: i for i, tag in enumerate(self.tags)}

    # --- data

    @classmethod
    def read(cls, source: Source, data: TaggingData) -> list[TaggedSentence]:
        return read_tagged(source, data.words, data.label)

    @classmethod
    def split(cls, splits: dict[str, list[TaggedSentence]], data: TaggingData) -> dict[str, list[TaggedSentence]]:
        return split_tagged(splits, data.held_out)

    @classmethod
    def from_recipe(
        cls, recipe: TaggingRecipe, splits: Mapping[str, Sequence[TaggedSentence]], tokenizer: Tokenizer | None
    ) -> "Tagging":
        train = splits["train"]
        return cls(
            tokenizer or Tokenizer.train((sentence.text for sentence in train), recipe.tokenizer),
            tags=tags_in(train),
            limit=recipe.data.max_length,
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
        )

    @classmethod
    def from_model(cls, model: Trained, recipe: TaggingRecipe | None) -> "Tagging":
        tags = tag_names(tagging_head(model.network.config))
        return cls(model.tokenizer, tags=tags, limit=most_tokens(model, USUAL_LENGTH))

    def known(self, examples: list[TaggedSentence]) -> list[TaggedSentence]:
        sentences = normalize(examples, self.scheme)
        check_tags(sentences, self.tags, remedy="correct it, or train with sentences of it")
        return sentences

    def encode(self, examples: Sequence[TaggedSentence]) -> Tagged:
        return Tagged(examples, self.ids([sentence.words for sentence in examples]))

    def ids(self, sentences: Sequence[Words]) -> WordIds:
        """The sentences as the network reads them."""
        return WordIds.of(sentences, self.tokenizer, self.limit)

    @classmethod
    def content(cls, example: TaggedSentence) -> Sequence[str]:
        return *example.words, *example.tags

    def report(self, splits: Mapping[str, Sequence[TaggedSentence]], encoded: Mapping[str, Tagged]) -> TagReport:
        train, scheme = splits["train"], scheme_of(self.tags)
        return TagReport(
            vocab_size=self.tokenizer.vocab_size,
            max_length=self.limit,
            scheme=scheme.name,
            notes=changes_in(splits.values()),
            splits=tuple(
                tag_split(name, split.examples, split.inputs, tags=self.tags, scheme=scheme, train=train)
                for name, split in encoded.items()
            ),
        )

    # --- training

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return token_budget_batches(self.train.inputs.lengths, max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        """Labels the cell of each word's first piece with the word's tag. All other cells are ignored."""
        parts = [self.train.inputs.parts[i] for i in examples]
        tokens = Tokens.pad([part.ids for part in parts], fill=self.tokenizer.pad_id or 0, packed=self.packed)
        labels = np.full(sum(len(part.ids) for part in parts), IGNORED)
        at = 0
        for part in parts:
            tags = self.train.examples[part.sentence].tags[part.start : part.start + len(part.cells)]
            labels[at + np.array(part.cells)] = [self.index[tag] for tag in tags]
            at += len(part.ids)
        return Batch((tokens,), torch.from_numpy(labels), n_ignored=int((labels == IGNORED).sum()))

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if (config.encoder is None) == (config.decoder is None):
            raise UserError(f"{where}: expected an encoder or a decoder alone to tag, got both; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        """Keeps a head of several tags, but gives it the tags of the data. Replaces any other head by a new one."""
        self.check_kind(config, where="model", remedy="try preset classifier")
        both = self.train.inputs, self.valid.inputs
        largest = max(largest_of([part.ids for part in ids.parts]) for ids in both)
        longest = max(max(ids.lengths) for ids in both)
        check_fits(config, (longest, largest), remedy="try a lower data.max_length")
        own = {"n_labels": len(self.tags), "labels": self.tags}
        if isinstance(config.head, TaggingHead) and config.head.n_labels > 1:
            return with_head(config, config.head.model_copy(update=own))
        return with_head(config, TaggingHead(**own, **layers_of(config.head)))

    # --- use

    def score(self, network: Transformer, data: Tagged) -> Evaluation:
        """The scores on these data, and the sentences with the largest loss."""
        decode, sentences = Decoder(self.tags), data.examples
        rows = log_shares(network, data.inputs, self.tokenizer)
        outputs = [[self.tags[i] for i in decode(shares)] for shares in rows]
        losses, hits, n_known = list[float](), list[int](), list[int]()
        for sentence, tags, shares in zip(sentences, outputs, rows, strict=True):
            known = [i for i, tag in enumerate(sentence.tags) if tag]
            losses.append(-sum(float(shares[i, self.index[sentence.tags[i]]]) for i in known))
            hits.append(sum(sentence.tags[i] == tags[i] for i in known))
            n_known.append(len(known))
        accuracy = scored("accuracy", share, np.array(hits), np.array(n_known), "0 to 1")
        loss = sum(losses) / max(sum(n_known), 1)
        spans = ()
        if self.scheme:
            spans = span_scores([spans_of(sentence.tags) for sentence in sentences], [*map(spans_of, outputs)])
        examples = tuple(
            Example(one.text, one.written(tags), one.written(one.tags), own, hit < n, one.place())
            for one, tags, own, hit, n in zip(sentences, outputs, losses, hits, n_known, strict=True)
        )
        order = sorted(range(len(losses)), key=lambda i: -losses[i])
        wrong = [i for i in order if examples[i].is_wrong][:N_MISTAKES]
        samples = tuple(mistake(sentences[i], outputs[i]) for i in wrong)
        return Evaluation((*spans, accuracy, Score("loss", loss)), samples, loss=loss, examples=examples)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts a tag for each word, or the spans that the tags mark, separated by tabs."""
        task = cls.from_model(model, None)
        sentences, decode = [Sentence.of(text) for text in texts], Decoder(task.tags)
        rows = log_shares(model.network, task.ids([sentence.words for sentence in sentences]), task.tokenizer)
        for text, sentence, shares in zip(texts, sentences, rows, strict=True):
            yield prediction_of(text, sentence, decode, shares)


def mistake(sentence: TaggedSentence, tags: Sequence[str]) -> Sample:
    """A sentence, and its words whose tags are wrong."""
    wrong = [i for i, tag in enumerate(sentence.tags) if tag and tag != tags[i]]
    output, reference = (" ".join(f"{sentence.words[i]}/{found[i]}" for i in wrong) for found in (tags, sentence.tags))
    return Sample(f"{sentence.place().rpartition('/')[2]}: {sentence.text}", output, reference)


# --- tags from logits -------------------------------------------------------------------------------------------------


def tagging_head(config: ModelConfig) -> TaggingHead:
    """The tagging head. Raises UserError for any other."""
    if not isinstance(config.head, TaggingHead):
        raise UserError(f"model: expected a tagging head, got {config.head.kind}; try clearhead train tagging first")
    return config.head


def tag_names(head: TaggingHead) -> tuple[str, ...]:
    """The names of a head's tags. A head with one label has two: one for its absence, then the label."""
    names = distinct(head.labels) or tuple(f"LABEL_{i}" for i in range(head.n_labels))
    return names if len(names) > 1 else (OUTSIDE, *names)


def log_shares(network: Transformer, words: WordIds, tokenizer: Tokenizer) -> list[np.ndarray]:
    """The log-probabilities of the tags of each word, n v for each sentence, on the CPU."""
    parts, n_tags = words.parts, len(tag_names(tagging_head(network.config)))

    def collate(rows: Sequence[int]) -> tuple[Tokens, ...]:
        return (Tokens.pad([parts[i].ids for i in rows], fill=tokenizer.pad_id or 0, packed=True),)

    of_parts = [np.empty((0, n_tags))] * len(parts)
    for rows, (tokens,), logits in outputs_of(network, words.lengths, collate):
        cells = tokens.real(logits) if logits.ndim == 3 else logits
        # The number of a lone label is its log-odds: that of 0 and itself are a softmax of two.
        cells = F.pad(cells, (n_tags - cells.shape[-1], 0))
        shares = cells.double().log_softmax(-1).cpu().numpy()
        starts = np.cumsum([0, *(len(parts[i].ids) for i in rows)])
        for i, start in zip(rows, starts[:-1], strict=True):
            of_parts[i] = shares[start + np.array(parts[i].cells)]
    sentences: list[list[np.ndarray]] = [[] for _ in range(words.n_sentences)]
    for part, shares in zip(parts, of_parts, strict=True):
        sentences[part.sentence].append(shares)
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


def prediction_of(text: str, sentence: Sentence, decode: Decoder, shares: np.ndarray) -> Prediction:
    """The tags of a text as word/TAG, or the spans that they mark with their places in the text."""
    chosen = decode(shares)
    tags = [decode.names[i] for i in chosen]
    likely = [float(row[i]) for row, i in zip(np.exp(shares), chosen, strict=True)]
    values: JsonObject = {"words": [*sentence.words], "tags": [*tags], "probabilities": [*likely]}
    if not decode.scheme:
        return Prediction(tabbed(" ".join(map("/".join, zip(sentence.words, tags, strict=True)))), values)
    entities = [entity(text, sentence, span, likely) for span in spans_of(tags)]
    shown = (f"{one['label']} {one['start']}-{one['end']} {one['text']}" for one in entities)
    return Prediction(tabbed(*shown), {**values, "entities": [*entities]})


def entity(text: str, sentence: Sentence, span: Span, likely: Sequence[float]) -> JsonObject:
    """A span as its characters [start, end) of the text. Its probability is the mean of its words'."""
    start, end = sentence.places[span.start][0], sentence.places[span.end - 1][1]
    probability = sum(likely[span.start : span.end]) / (span.end - span.start)
    return {"text": text[start:end], "label": span.label, "start": start, "end": end, "probability": probability}
