"""Tagging: a tag for each word of a sentence, such as its part of speech or the span it is in (BIO, IOBES)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import PositiveInt

from clearhead.config import ModelConfig, TaggingHead
from clearhead.data.batches import token_budget_batches
from clearhead.data.corpus import Encoded
from clearhead.data.sequences import largest_of
from clearhead.data.splits import fingerprint
from clearhead.data.tag_report import TagReport, tag_split
from clearhead.data.tag_schemes import spans_of
from clearhead.data.tagged import TaggedSentence, check_tags, checked, read_tagged, tagged_splits
from clearhead.data.tagged_ids import WordIds
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.loss import IGNORED
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Column, Source, TestedData
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.answers import BATCH_TOKENS, most_tokens
from clearhead.tasks.checks import check_length, check_vocabulary, layers_of, with_head
from clearhead.tasks.examples import Example
from clearhead.tasks.few import part_of
from clearhead.tasks.head_task import HeadTask
from clearhead.tasks.label_scores import scored
from clearhead.tasks.metrics import Score
from clearhead.tasks.span_scores import check_span_scores, share, span_scores
from clearhead.tasks.tag_answers import Decoder, decoding_scheme, log_shares, said, tag_names, tagging_head
from clearhead.tasks.task import Batch, Evaluation, Files, Prediction, Prepared, Sample, Trained
from clearhead.text.tokenizers import Tokenizer

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
