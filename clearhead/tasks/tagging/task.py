"""Tagging: a tag for each word of a sentence, such as its part of speech or the span it is in (BIO, IOBES)."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, Self, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PositiveInt

from clearhead.brief import shorten
from clearhead.config import ModelConfig
from clearhead.config.heads import TaggingHead
from clearhead.data.batches import token_budget_batches
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Transformer
from clearhead.model.loss import IGNORED
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Column, Source, TestedData
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.evaluation import N_MISTAKES, Evaluation, Example, Sample
from clearhead.tasks.floors import Floor
from clearhead.tasks.networks import (
    BATCH_TOKENS,
    batch_of,
    check_fits,
    distinct,
    extent_of,
    layers_of,
    most_tokens,
    outputs_of,
    with_head,
)
from clearhead.tasks.parts import EncodedExamples, Part, Parts
from clearhead.tasks.reports import SplitReport, check_known, repeats, shares_line
from clearhead.tasks.scores import Score
from clearhead.tasks.tagging.data import TaggedSentence, normalize, read_tagged, split_tagged, tags_in
from clearhead.tasks.tagging.tags import (
    OUTSIDE,
    Decoder,
    Span,
    decoding_scheme,
    scheme_of,
    spans_of,
    tag_scores,
    usual_tags,
)
from clearhead.tasks.task import Batch, ExampleTask, Files, HeadLoss, Prediction, Trained
from clearhead.text.special_tokens import SpecialTokens, template_tokens
from clearhead.text.tokenizers import Tokenizer

USUAL_LENGTH = 512
"""Tokens that a model without a limit reads at once."""
MOST_NAMES = 20
"""Tags that are listed by name."""
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


# --- words as ids -----------------------------------------------------------------------------------------------------

Words = Sequence[str]


@dataclass(frozen=True)
class SentencePart(Part):
    """Consecutive words of a sentence, which the network reads together."""

    start: int
    """Its first word there."""
    cells: list[int]
    """Where in `ids` the first piece of each word is."""


@dataclass(frozen=True, repr=False)
class WordIds(Parts[SentencePart]):
    """Sentences as ids: one part each, or several if they are longer than the limit."""

    n_cut: int
    """Words with more pieces than fit; only the first pieces are read."""

    @classmethod
    def of(cls, sentences: Sequence[Words], tokenizer: Tokenizer, limit: int) -> Self:
        """Encodes sentences, whose words are joined by spaces, with the marks of the tokenizer's template.

        Each part has at most `limit` ids. A sentence of more is split between words.
        """
        marks, parts, n_cut = template_tokens(tokenizer), list[SentencePart](), 0
        room = max(1, limit - len(marks))
        for i, words in enumerate(sentences):
            pieces = pieces_of(words, tokenizer)
            n_cut += sum(len(piece.ids) > room for piece in pieces)
            parts += _parts(i, [piece.cut(room) for piece in pieces], marks, room)
        return cls(parts, len(sentences), n_cut)

    @property
    def n_split(self) -> int:
        """Sentences in several parts."""
        return len({part.example for part in self.parts if part.start})


def _parts(sentence: int, pieces: Sequence["Pieces"], marks: SpecialTokens, room: int) -> Iterator[SentencePart]:
    start, ids, cells = 0, list[int](), list[int]()
    for i, piece in enumerate(pieces):
        if len(ids) + len(piece.ids) > room:
            yield SentencePart(sentence, marks.around(ids), start, cells)
            start, ids, cells = i, list[int](), list[int]()
        cells.append(len(marks.before) + len(ids) + piece.n_spaces)
        ids += piece.ids
    if ids:
        yield SentencePart(sentence, marks.around(ids), start, cells)


@dataclass(frozen=True, slots=True)
class Pieces:
    """The ids of a word, with those of the space before it if it has any of its own."""

    ids: list[int]
    n_spaces: int = 0

    def cut(self, room: int) -> "Pieces":
        """The pieces, or if they exceed `room` its first ids without the space."""
        return self if len(self.ids) <= room else Pieces(self.ids[self.n_spaces :][:room])


def pieces_of(words: Words, tokenizer: Tokenizer) -> list[Pieces]:
    """The pieces of each word, at least one: the unknown token for a word that the tokenizer removes.

    They are those of the words with spaces between them. A piece of several words belongs to the first of them.
    """
    text = " ".join(words)
    ends: list[int] = []
    for word in words:
        ends.append(len(word) + (ends[-1] + 1 if ends else 0))
    found: list[list[int]] = [[] for _ in words]
    spaces, n_spaces, at = list[int](), [0] * len(words), 0
    for token, (start, end) in zip(tokenizer.encode(text), tokenizer.offsets(text), strict=True):
        if not text[start:end].strip():
            spaces.append(token)
            continue
        while at < len(ends) - 1 and ends[at] <= start:
            at += 1
        if not found[at]:
            n_spaces[at], found[at] = len(spaces), spaces
        found[at].append(token)
        spaces = list[int]()
    return [Pieces(ids, n) if ids else Pieces([tokenizer.unk_id or 0]) for ids, n in zip(found, n_spaces, strict=True)]


# --- the task ---------------------------------------------------------------------------------------------------------

Tagged: TypeAlias = EncodedExamples[TaggedSentence, WordIds]


@dataclass(eq=False)
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

    tokenizer: Tokenizer
    _: KW_ONLY
    tags: Sequence[str]
    limit: int = USUAL_LENGTH
    """The most tokens of a part."""
    max_tokens: int = BATCH_TOKENS
    packed: bool = True

    def __post_init__(self) -> None:
        self.scheme = decoding_scheme(self.tags)
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
    ) -> Self:
        train = splits["train"]
        return cls(
            tokenizer or Tokenizer.train((sentence.text for sentence in train), recipe.tokenizer),
            tags=tags_in(train),
            limit=recipe.data.max_length,
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
        )

    @classmethod
    def from_model(cls, model: Trained, recipe: TaggingRecipe | None) -> Self:
        tags = tag_names(tagging_head(model.network.config))
        return cls(model.tokenizer, tags=tags, limit=most_tokens(model, USUAL_LENGTH))

    def known(self, examples: list[TaggedSentence]) -> list[TaggedSentence]:
        sentences = normalize(examples, self.scheme)
        check_known(sentences, self.tags, what="tag", remedy="correct it, or train with sentences of it")
        return sentences

    def encode(self, examples: Sequence[TaggedSentence]) -> Tagged:
        return Tagged(examples, self.ids([sentence.words for sentence in examples]))

    def ids(self, sentences: Sequence[Words]) -> WordIds:
        """The sentences as the network reads them."""
        return WordIds.of(sentences, self.tokenizer, self.limit)

    @classmethod
    def content(cls, example: TaggedSentence) -> Sequence[str]:
        return *example.words, *example.tags

    def describe(
        self, name: str, examples: Sequence[TaggedSentence], data: Tagged, train: Sequence[TaggedSentence]
    ) -> SplitReport:
        """The report on a split. Raises UserError for sentences without a known tag."""
        sentences, ids, limit, scheme = data.examples, data.inputs, self.limit, scheme_of(self.tags)
        unlabelled = [one for one in sentences if not one.labels]
        if len(unlabelled) == len(sentences):
            raise UserError(f"{sentences[0].place()}: expected known tags to {name} on, got none; try another --label")
        counts = Counter(tag for one in sentences for tag in one.labels)
        n, n_words, n_labels = len(sentences), sum(len(one.words) for one in sentences), counts.total()
        longest = max(len(one.words) for one in sentences)
        kinds, what = {tag: counts[tag] for tag in self.tags}, "tags"
        if scheme and (labels := dict.fromkeys(tag[2:] for tag in self.tags if tag[2:])):
            marked = Counter(span.label for one in sentences for span in spans_of(one.tags))
            kinds, what = {label: marked[label] for label in labels}, "spans"
        some = {kind: count for kind, count in sorted(kinds.items(), key=lambda item: -item[1]) if count}
        size = f"{n:,} sentences, {n_words:,} words; {n_words / n:.1f} words each, at most {longest:,}"
        lines = [
            f"{name}: {size}; at most {max(ids.lengths):,} tokens",
            f"  labels: {n_labels:,}, {n_labels / n:.1f} a sentence",
            f"  {max(sum(kinds.values()), 1):,} {what}: {shares_line(some, MOST_NAMES)}",
        ]
        if none := [kind for kind, count in kinds.items() if not count]:
            lines.append(f"  none of {shorten(none, MOST_NAMES)}: its scores say nothing about that")
        if name == "train":
            how = f"spans, tagged in {scheme.name.upper()}" if scheme else "tags of single words"
            lines = [f"tags: {how}", *lines]
        changed = [one for one in sentences if one.n_changed]
        first, begun = (some[0].place() if some else "" for some in (unlabelled, changed))
        n_changed = sum(one.n_changed for one in changed)
        findings = {
            "n_changed": (n_changed, f"tags I- that begin a span are read as B-, such as in the sentence at {begun}"),
            "n_unlabelled": (len(unlabelled), f"sentences without a known tag, such as {first}"),
            "n_split": (ids.n_split, f"sentences of more than {limit:,} tokens, read in parts"),
            "n_cut": (ids.n_cut, f"words of more than {limit:,} tokens, cut"),
        }
        again = repeats(
            sentences,
            train,
            labels=lambda one: one.tags,
            place=TaggedSentence.place,
            another="with other tags",
        )
        sizes = {"n_sentences": n, "n_words": n_words, "n_labels": n_labels, what: kinds}
        return SplitReport.of_texts(lines, {**findings, **again}, ids.ids, self.tokenizer, name=name, **sizes)

    # --- training

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return token_budget_batches(self.train.inputs.lengths, max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        """Labels the cell of each word's first piece with the word's tag. All other cells are ignored."""
        parts = [self.train.inputs.parts[i] for i in examples]
        inputs = batch_of(self.tokenizer, [part.ids for part in parts], packed=self.packed)
        labels = np.full(sum(len(part.ids) for part in parts), IGNORED)
        at = 0
        for part in parts:
            tags = self.train.examples[part.example].tags[part.start : part.start + len(part.cells)]
            labels[at + np.array(part.cells)] = [self.index[tag] for tag in tags]
            at += len(part.ids)
        return Batch(inputs, torch.from_numpy(labels), n_ignored=int((labels == IGNORED).sum()))

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if (config.encoder is None) == (config.decoder is None):
            raise UserError(f"{where}: expected an encoder or a decoder alone to tag, got both; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        """Keeps a head of several tags, but gives it the tags of the data. Replaces any other head by a new one."""
        self.check_kind(config, where="model", remedy="try preset classifier")
        check_fits(
            config, extent_of(self.train.inputs.ids, self.valid.inputs.ids), remedy="try a lower data.max_length"
        )
        own = {"n_labels": len(self.tags), "labels": tuple(self.tags)}
        if isinstance(config.head, TaggingHead) and config.head.n_labels > 1:
            return with_head(config, config.head.model_copy(update=own))
        return with_head(config, TaggingHead(**own, **layers_of(config.head)))

    # --- use

    def score(self, network: Transformer, data: Tagged) -> Evaluation:
        """The scores on these data, and the sentences with the largest loss."""
        decode, outputs, examples = Decoder(self.tags), list[list[str]](), list[Example]()
        for one, shares in zip(data.examples, log_shares(network, data.inputs, self.tokenizer), strict=True):
            tags = [self.tags[i] for i in decode(shares)]
            known = [i for i, tag in enumerate(one.tags) if tag]
            loss = -sum(float(shares[i, self.index[one.tags[i]]]) for i in known)
            is_wrong = any(one.tags[i] != tags[i] for i in known)
            examples.append(Example(one.text, one.written(tags), one.written(one.tags), loss, is_wrong, one.place()))
            outputs.append(tags)
        scores = tag_scores([one.tags for one in data.examples], outputs, has_spans=bool(self.scheme))
        loss = sum(one.error for one in examples) / max(sum(len(one.labels) for one in data.examples), 1)
        order = sorted(range(len(examples)), key=lambda i: -examples[i].error)
        wrong = [i for i in order if examples[i].is_wrong][:N_MISTAKES]
        samples = tuple(mistake(data.examples[i], outputs[i]) for i in wrong)
        return Evaluation((*scores, Score("loss", loss)), samples, loss=loss, examples=tuple(examples))

    def floors(self, held_out: Mapping[str, Tagged]) -> Iterator[Floor]:
        """The most frequent tag of each word in training; an unknown word gets the most frequent tag of all."""
        tag = usual_tags(
            (word, tag) for one in self.train.examples for word, tag in zip(one.words, one.tags, strict=True)
        )
        for split, data in held_out.items():
            both = [one.tags for one in data.examples], [[*map(tag, one.words)] for one in data.examples]
            main = tag_scores(*both, has_spans=bool(self.scheme))[0]
            yield Floor.of("most frequent tag of each word", split, main)

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
    nothing = np.empty((0, n_tags))
    of_parts = [nothing] * len(parts)
    for rows, tokens, logits in outputs_of(network, tokenizer, words.ids):
        cells = tokens.real(logits) if logits.ndim == 3 else logits
        # The number of a lone label is its log-odds: that of 0 and itself are a softmax of two.
        cells = F.pad(cells, (n_tags - cells.shape[-1], 0))
        shares = cells.double().log_softmax(-1).cpu().numpy()
        starts = np.cumsum([0, *(len(parts[i].ids) for i in rows)])
        for i, start in zip(rows, starts[:-1], strict=True):
            of_parts[i] = shares[start + np.array(parts[i].cells)]
    sentences: list[list[np.ndarray]] = [[nothing] for _ in range(words.n_examples)]
    for part, shares in zip(parts, of_parts, strict=True):
        sentences[part.example].append(shares)
    return [*map(np.concatenate, sentences)]


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
