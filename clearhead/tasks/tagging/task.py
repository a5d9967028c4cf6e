"""Tagging: a tag for each word of a sentence, such as its part of speech or the span it is in (BIO, IOBES)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PositiveInt

from clearhead.config import ModelConfig, TaggingHead
from clearhead.data.batches import token_budget_batches
from clearhead.data.corpus import Encoded
from clearhead.data.sequences import largest_of
from clearhead.data.splits import fingerprint
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Tokens, Transformer
from clearhead.model.loss import IGNORED
from clearhead.model.mode import Evaluating
from clearhead.progress import counted
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Column, Source, TestedData
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.classification.task import BATCH_TOKENS, most_tokens, told_apart
from clearhead.tasks.evaluation import Evaluation, Example, Sample, part_of
from clearhead.tasks.scores import Score, scored
from clearhead.tasks.tagging.data import (
    OUTSIDE,
    SCHEMES,
    Scheme,
    Span,
    TaggedSentence,
    check_tags,
    checked,
    read_tagged,
    scheme_of,
    spans_of,
    tagged_splits,
)
from clearhead.tasks.tagging.ids import WordIds
from clearhead.tasks.tagging.scores import TagReport, check_span_scores, share, span_scores, tag_split
from clearhead.tasks.task import (
    Batch,
    Files,
    HeadTask,
    Prediction,
    Prepared,
    Trained,
    check_length,
    check_vocabulary,
    layers_of,
    with_head,
)
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


N_MISTAKES = 5


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


@dataclass(frozen=True)
class Tagged:
    """Sentences and their ids."""

    sentences: Sequence[TaggedSentence]
    ids: WordIds

    @classmethod
    def of(cls, sentences: Sequence[TaggedSentence], tokenizer: Tokenizer, limit: int) -> Self:
        """Encodes the sentences."""
        return cls(sentences, WordIds.of([one.words for one in sentences], tokenizer, limit))

    def taken(self, rows: Sequence[int]) -> Self:
        """The sentences with these numbers."""
        return type(self)([self.sentences[i] for i in rows], self.ids.taken(rows))


class Tagging(HeadTask[TaggingRecipe]):
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
        train: Tagged,
        valid: Tagged,
        *,
        tags: Sequence[str],
        max_tokens: int,
        packed: bool = True,
    ) -> None:
        """Raises UserError if the tags mark spans and nervaluate is not installed."""
        self.tokenizer, self.train, self.valid, self.tags = tokenizer, train, valid, tuple(tags)
        self.max_tokens, self.packed = max_tokens, packed
        self.scheme = decoding_scheme(tags)
        if self.scheme:
            check_span_scores()
        self.main_score = "span_f1" if self.scheme else "accuracy"
        self.index = {"": IGNORED} | {tag: i for i, tag in enumerate(self.tags)}

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return token_budget_batches(self.train.ids.lengths, max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.batch(self.train, examples)

    def batch(self, data: Tagged, examples: Sequence[int]) -> Batch:
        """Labels the cell of each word's first piece with the word's tag. All other cells are ignored."""
        parts = [data.ids.parts[i] for i in examples]
        tokens = Tokens.pad([part.ids for part in parts], fill=self.tokenizer.pad_id or 0, packed=self.packed)
        labels = np.full(sum(len(part.ids) for part in parts), IGNORED)
        at = 0
        for part in parts:
            tags = data.sentences[part.sentence].tags[part.start : part.start + len(part.cells)]
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
        name = "decoder" if config.encoder is None else "encoder"
        both = self.train.ids, self.valid.ids
        largest = max(largest_of([part.ids for part in ids.parts]) for ids in both)
        check_length(name, config.output, max(max(ids.lengths) for ids in both), remedy="try a lower data.max_length")
        check_vocabulary(name, config.output, largest)
        own = {"n_labels": len(self.tags), "labels": self.tags}
        if isinstance(config.head, TaggingHead) and config.head.n_labels > 1:
            head = config.head.model_copy(update=own)
        else:
            head = TaggingHead(**own, **layers_of(config.head))
        return with_head(config, head)

    def evaluate(self, network: Transformer) -> Evaluation:
        return self.measure(network, part_of(self.valid, self.few))

    def judged_sizes(self) -> Sequence[int]:
        sizes = [0] * len(self.valid.sentences)
        for part in self.valid.ids.parts:
            sizes[part.sentence] += len(part.ids)
        return sizes

    def measure(self, network: Transformer, data: Tagged) -> Evaluation:
        """The scores on these data, and the sentences with the largest loss."""
        decode, shares = Decoder(self.tags), log_shares(network, data.ids, self.tokenizer)
        outputs = [[self.tags[i] for i in decode(rows)] for rows in shares]
        losses = [
            [-float(row[self.index[tag]]) for row, tag in zip(rows, one.tags, strict=True) if tag]
            for rows, one in zip(shares, data.sentences, strict=True)
        ]
        known = [[bool(tag) for tag in one.tags] for one in data.sentences]
        hits = [
            sum(a == b for a, b, is_known in zip(one.tags, tags, there, strict=True) if is_known)
            for one, tags, there in zip(data.sentences, outputs, known, strict=True)
        ]
        n_known = np.array([*map(sum, known)])
        accuracy = scored("accuracy", share, np.array(hits), n_known, "0 to 1")
        loss = sum(map(sum, losses)) / max(int(n_known.sum()), 1)
        spans = (
            span_scores([spans_of(one.tags) for one in data.sentences], [*map(spans_of, outputs)])
            if self.scheme
            else ()
        )
        order = sorted(range(len(losses)), key=lambda i: -sum(losses[i]))
        wrong = [i for i in order if hits[i] < n_known[i]][:N_MISTAKES]
        samples = tuple(mistake(data.sentences[i], outputs[i]) for i in wrong)
        examples = tuple(
            Example(one.text, one.written(tags), one.written(one.tags), sum(own), hit < sum(there), one.place())
            for one, tags, own, hit, there in zip(data.sentences, outputs, losses, hits, known, strict=True)
        )
        return Evaluation((*spans, accuracy, Score("loss", loss)), samples, loss=loss, examples=examples)

    @classmethod
    def prepared(cls, recipe: TaggingRecipe, tokenizer: Tokenizer | None) -> Prepared:
        data = recipe.data
        found = tagged_splits(data, data.words, data.label, data.held_out)
        train = found.splits["train"]
        tokenizer = tokenizer or Tokenizer.train((one.text for one in train), recipe.tokenizer)
        encoded = {name: Tagged.of(split, tokenizer, data.max_length) for name, split in found.splits.items()}
        report = TagReport(
            vocab_size=tokenizer.vocab_size,
            max_length=data.max_length,
            scheme=found.scheme.name,
            notes=found.notes,
            splits=tuple(
                tag_split(name, one.sentences, one.ids, tags=found.tags, scheme=found.scheme, train=train)
                for name, one in encoded.items()
            ),
        )
        task = cls(
            tokenizer,
            encoded["train"],
            encoded["valid"],
            tags=found.tags,
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
        )
        sha = {name: fingerprint(*([(*e.words, *e.tags)] for e in split)) for name, split in found.splits.items()}
        return Prepared(task, Encoded(tokenizer, encoded["train"], encoded["valid"], report, sha))

    @classmethod
    def measured(
        cls, model: Trained, recipe: TaggingRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        names = tag_names(tagging_head(model.network.config))
        data = None if recipe is None else recipe.data
        if source is not None:
            read = read_tagged(source, data.words if data else None, data.label if data else None)
            sentences, _ = checked(read, decoding_scheme(names))
            check_tags(sentences, names, remedy="correct it, or train with sentences of it")
        else:
            assert data is not None
            splits = tagged_splits(data, data.words, data.label, data.held_out).splits
            sentences = splits.get("test", splits["valid"])
        found = Tagged.of(sentences, model.tokenizer, most_tokens(model, 512))
        return cls(model.tokenizer, found, found, tags=names, max_tokens=BATCH_TOKENS).evaluate(model.network)

    @classmethod
    def predicted(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts a tag for each word, or the spans that the tags mark, separated by tabs."""
        tagging_head(model.network.config)
        yield from said(model.network, model.tokenizer, texts, most_tokens(model, 512))


def mistake(sentence: TaggedSentence, tags: Sequence[str]) -> Sample:
    """A sentence, and its words whose tags are wrong."""
    wrong = [i for i, tag in enumerate(sentence.tags) if tag and tag != tags[i]]
    output, reference = (" ".join(f"{sentence.words[i]}/{found[i]}" for i in wrong) for found in (tags, sentence.tags))
    return Sample(f"{sentence.place().rpartition('/')[2]}: {sentence.text}", output, reference)
