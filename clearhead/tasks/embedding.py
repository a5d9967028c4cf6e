"""Sentence vectors: texts that belong together get vectors that point the same way (Reimers and Gurevych 2019).

The other texts of a batch are the negatives (van den Oord et al. 2018, InfoNCE; Henderson et al. 2017, 4.4).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from itertools import chain
from typing import Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from clearhead.brief import brief
from clearhead.config import ModelConfig
from clearhead.config.heads import NoHead
from clearhead.config.inputs import TokenInput
from clearhead.data.bad_rows import BadRow
from clearhead.data.batches import Batches
from clearhead.data.sources import examples_of, rows_of
from clearhead.data.splits import complete_splits
from clearhead.data.tables import number_of, texts_of, written
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model import Tokens, Transformer
from clearhead.model.layout import Layout
from clearhead.model.sentences import Mode, Pooling, vectors
from clearhead.randomness import key
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Column, Data, HeldOut, HubDataset, Source, Table
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.classification.data import NO_LIMIT, Inputs
from clearhead.tasks.classification.scores import spearman
from clearhead.tasks.evaluation import N_MISTAKES, Evaluation, Sample
from clearhead.tasks.networks import batch_of, check_fits, extent_of, outputs_of, with_head
from clearhead.tasks.reports import SplitReport
from clearhead.tasks.scores import Score, mean, scored
from clearhead.tasks.task import Batch, ExampleTask, Files, Prediction, Trained
from clearhead.text.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Group:
    """An anchor, a text that belongs to it, and perhaps one that does not."""

    texts: tuple[str, ...]
    where: str

    @property
    def labels(self) -> tuple[str, ...]:
        """No labels: any group may be held out."""
        return ()

    @property
    def normalized(self) -> str:
        """The anchor. All its groups are in one split."""
        return self.texts[0]

    @property
    def is_blank(self) -> bool:
        """True if one of its texts is blank."""
        return not all(text.strip() for text in self.texts)


def read_groups(source: Source, negative: Column | None) -> list[Group]:
    """Every pair or triple of a source, in order. Raises UserError for a source of single texts."""
    if not source.is_paired:
        raise UserError(f'{source.kind}: expected pairs of texts, got single ones; try source = "A" and target = "B"')
    if negative is None:
        return [Group(texts, f"{_name(source)}, example {i}") for i, texts in enumerate(rows_of(source), start=1)]
    columns = [*_columns(source), negative]
    return [*examples_of(source, columns, lambda where, cells: Group(texts_of(columns, where, cells), where))]


def read_scored(source: Source, score: Column) -> list[tuple[Group, float]]:
    """Every pair of a source with its score. Raises UserError, which names the row, for a score that is no number."""
    columns = [*_columns(source), score]

    def make(where: str, cells: list[object]) -> tuple[Group, float]:
        number = number_of(written(cells[-1]))
        if number is None:
            got = f"got {cells[-1]!r}; mend it or delete the row"
            raise BadRow(f"{where}: expected a number in column {score!r}, {got}")
        return Group(texts_of(columns, where, cells[:-1]), where), number

    found = [*examples_of(source, columns, make)]
    if len({number for _, number in found}) < 2:
        raise UserError(f"{_name(source)}: expected different scores in column {score!r}, got one; try another column")
    return found


def _name(source: Source) -> str:
    return ", ".join(map(str, source.files)) or source.kind


def _columns(source: Source) -> list[Column]:
    if not isinstance(source, Table | HubDataset) or not source.is_paired:
        raise UserError(f'{source.kind}: expected a table with columns of pairs, got none; try kind = "table"')
    return source.columns


@dataclass(frozen=True)
class Groups:
    """Pairs or triples, and the ids of their texts with marks, cut to a length."""

    texts: Sequence[tuple[str, ...]]
    ids: Sequence[Sequence[Sequence[int]]]
    """The ids of text k of group i are ids[i][k]."""
    lengths: Sequence[int]
    """Tokens of each text before cutting."""

    @classmethod
    def of(cls, groups: Sequence[Group], tokenizer: Tokenizer, limit: int) -> Self:
        """Encodes the groups whose texts are not blank."""
        texts = [group.texts for group in groups if not group.is_blank]
        sides = [Inputs.of([(text,) for text in side], tokenizer, limit) for side in zip(*texts, strict=True)]
        ids = [*zip(*(side.ids for side in sides), strict=True)]
        return cls(texts, ids, [length for side in sides for length in side.lengths])

    @property
    def sizes(self) -> list[int]:
        """The tokens of the anchor and the positive of each group."""
        return [len(anchor) + len(positive) for anchor, positive, *_ in self.ids]

    def take(self, rows: Sequence[int]) -> Self:
        """The groups with these numbers."""
        starts = range(0, len(self.lengths), len(self.texts) or 1)  # One a side.
        lengths = [self.lengths[start + i] for start in starts for i in rows]
        return type(self)([self.texts[i] for i in rows], [self.ids[i] for i in rows], lengths)


ROWS = 256
"""Anchors that are compared with all positives at once."""


def retrieval(anchors: Tensor, positives: Tensor, texts: Sequence[tuple[str, ...]], temperature: float) -> Evaluation:
    """Scores how each anchor finds its positive among all positives: 1 / rank, and whether it ranks first.

    Vectors are n d, of length 1. Equal positives do not count against each other.
    """
    kinds = torch.from_numpy(np.unique([one[1] for one in texts], return_inverse=True)[1])
    ranks, best, nats = torch.empty(len(texts)), torch.empty(len(texts), dtype=torch.long), 0.0
    for rows in torch.arange(len(texts)).split(ROWS):
        cosines, own = anchors[rows] @ positives.mT, (torch.arange(len(rows)), rows)
        is_equal = kinds[rows][:, None] == kinds
        best[rows] = cosines.argmax(1)
        ranks[rows] = 1.0 + ((cosines > cosines[own][:, None]) & ~is_equal).sum(1)
        is_equal[own] = False
        nats += F.cross_entropy((cosines / temperature).masked_fill(is_equal, -torch.inf), rows, reduction="sum").item()
    mrr, first = scored("mrr", mean, 1 / ranks.numpy()), scored("accuracy", mean, (ranks == 1).numpy())
    worst = [i for i in ranks.argsort(descending=True, stable=True).tolist() if ranks[i] > 1]
    samples = [Sample(texts[i][0], texts[int(best[i])][1], texts[i][1]) for i in worst[:N_MISTAKES]]
    loss = nats / len(ranks)
    return Evaluation((mrr, first, Score("loss", loss)), tuple(samples), loss=loss)


def pooled(states: Tensor, tokens: Tokens, pooling: Mode) -> Tensor:
    """b t d (or packed n d) -> b d: one vector of each row's states."""
    layout = Layout.of(tokens)
    return vectors((Pooling((pooling,)),), layout.unpack(states), layout.valid)


def same(groups: Sequence[tuple[str, ...]]) -> Tensor:
    """b c, bool: which candidates, all positives and then all negatives, are no negatives for an anchor.

    Those are its own positive, texts equal to it or to the anchor, and positives of an equal anchor.
    """
    known: dict[str, int] = {}
    ids = np.array([[known.setdefault(text, len(known)) for text in group] for group in groups])
    anchors, positives, candidates = ids[:, 0], ids[:, 1], ids[:, 1:].T.ravel()
    found = (candidates == positives[:, None]) | (candidates == anchors[:, None])
    found[:, : len(ids)] |= anchors[:, None] == anchors
    return torch.from_numpy(found)


def contrast(found: Tensor, masked: Tensor, temperature: float, *, symmetric: bool) -> Tensor:
    """The summed loss of vectors of anchors, positives and negatives: n d. `masked` is as `same` gives it."""
    b = len(masked)
    found = F.normalize(found if found.dtype == torch.float64 else found.float(), dim=-1)
    right = torch.arange(b, device=found.device)
    hidden = masked.clone()
    hidden[right, right] = False
    scores = (found[:b] @ found[b:].mT / temperature).masked_fill(hidden, -torch.inf)
    loss = F.cross_entropy(scores, right, reduction="sum")
    if not symmetric:
        return loss
    return (loss + F.cross_entropy(scores[:, :b].mT, right, reduction="sum")) / 2


AT_ONCE = 64
"""Texts of one batch of predictions."""
SENTENCES = "sentences.json"


class EmbeddingData(Data):
    """Pairs of texts that belong together: an anchor (`source`) and its positive (`target`)."""

    test: Source | None = None
    negative: Column | None = None
    """Column of a hard negative: a text that resembles the anchor but does not belong to it."""
    scored: Source | None = None
    """Pairs scored by similarity. With them, validation also measures the rank correlation of cosines and scores."""
    score: Column = "score"
    """Column of that number."""
    held_out: HeldOut = 0.1
    """Share of the anchors, or their number, that are held out for validation, where `valid` is None."""
    max_length: PositiveInt = 128
    """Most tokens of a text, special ones included; longer ones are cut."""


class EmbeddingRecipe(Recipe):
    """How to train a sentence encoder."""

    task: Literal["embedding"]
    data: EmbeddingData
    tokenizer: TokenizerConfig = WordPiece(lowercase=True)
    model: ModelChoice = ModelChoice(preset="classifier")
    pooling: Mode | None = None
    """How the states of a text become one vector; None: as for `model.start`, or the mean."""
    temperature: PositiveFloat = 0.05
    """Divides the cosines. A lower temperature gives the hardest negatives more weight."""
    symmetric: bool = False
    """Adds the loss of finding each positive's anchor among the anchors of the batch."""
    batch_size: PositiveInt = 64
    """Pairs of one batch. Each pair serves the others as a negative. `training.max_tokens` has no effect."""

    @model_validator(mode="after")
    def _consistent(self) -> "EmbeddingRecipe":
        if self.training.label_smoothing:
            raise ValueError("training.label_smoothing has no meaning for vectors; leave it out")
        return self


@dataclass(eq=False)
class Embedding(ExampleTask[EmbeddingRecipe, Group, Groups]):
    """-log softmax(cos(anchor, candidates) / temperature) at its positive."""

    recipe = EmbeddingRecipe
    files = Files("a table of texts that belong together", {"kind": "table", "path": "--data"})
    verb = "embed"
    use = 'embed {} "A text."'
    samples = "worst mistakes"
    heads = ("none",)
    higher_is_better = True
    unit = "pairs"
    only_for_training = ("negative",)

    tokenizer: Tokenizer
    _: KW_ONLY
    limit: int = NO_LIMIT
    pairs: Callable[[], tuple[list[Group], np.ndarray]] | None = None
    __repr__ = brief
    """Texts with the scores whose rank correlation with their cosines is measured."""
    pooling: Mode = "mean"
    temperature: float = 0.05
    symmetric: bool = False
    batch_size: int = 64
    packed: bool = True
    model: Trained | None = None
    """It makes the vectors, if it is given."""

    def __post_init__(self) -> None:
        self.main_score = "mrr" if self.pairs is None else "spearman"
        own: JsonObject = {"pooling": self.pooling, "max_length": self.limit}
        self.documents = {SENTENCES: own}

    # --- data

    @classmethod
    def read(cls, source: Source, data: EmbeddingData) -> list[Group]:
        return read_groups(source, data.negative)

    @classmethod
    def split(cls, splits: dict[str, list[Group]], data: EmbeddingData) -> dict[str, list[Group]]:
        expected = "anchors, to hold some out"
        splits = complete_splits(splits, data.held_out, expected=expected, by_label=False, tested=False)
        for name, groups in splits.items():
            if (n := sum(not group.is_blank for group in groups)) < 2:
                raise UserError(f"data.{name}: expected at least 2 pairs without empty texts, got {n}")
        return splits

    @classmethod
    def from_recipe(
        cls, recipe: EmbeddingRecipe, splits: Mapping[str, Sequence[Group]], tokenizer: Tokenizer | None
    ) -> Self:
        pairs = pairs_of(recipe.data)
        if pairs is not None:
            pairs()  # Reports a mistake before anything takes long.
        return cls(
            tokenizer or Tokenizer.train((text for one in splits["train"] for text in one.texts), recipe.tokenizer),
            limit=recipe.data.max_length,
            pairs=pairs,
            pooling=recipe.pooling or "mean",
            temperature=recipe.temperature,
            symmetric=recipe.symmetric,
            batch_size=recipe.batch_size,
            packed=recipe.training.packed,
        )

    @classmethod
    def from_model(cls, model: Trained, recipe: EmbeddingRecipe | None) -> Self:
        if recipe is None:
            return cls(model.tokenizer, model=model)
        return cls(model.tokenizer, model=model, temperature=recipe.temperature, pairs=pairs_of(recipe.data))

    def known(self, examples: list[Group]) -> list[Group]:
        return examples

    def encode(self, examples: Sequence[Group]) -> Groups:
        return Groups.of(examples, self.tokenizer, self.limit)

    @classmethod
    def content(cls, example: Group) -> Sequence[str]:
        return example.texts

    def describe(self, name: str, examples: Sequence[Group], data: Groups, train: Sequence[Group]) -> SplitReport:
        """The report on a split."""
        known = {one.texts[0] for one in train if not one.is_blank}
        n, n_cut = len(data.texts), sum(length > self.limit for length in data.lengths)
        blank = f" ({len(examples) - n:,} with an empty text, left out)" if n < len(examples) else ""
        cut = f"; {n_cut:,} cut to {self.limit:,}" if n_cut else ""
        length = sum(data.lengths) / max(len(data.lengths), 1)
        findings = {
            "n_duplicates": (n - len({*data.texts}), "duplicates, kept"),
            "n_shared": (sum(one[0] in known for one in data.texts), "have an anchor that is also in train"),
        }
        lines = [f"{name}: {n:,} of {len(examples):,} examples{blank}, {length:.1f} tokens a text{cut}"]
        sizes = {"n_read": len(examples), "n_kept": n, "n_cut": n_cut}
        return SplitReport.of_texts(lines, findings, chain.from_iterable(data.ids), self.tokenizer, name=name, **sizes)

    # --- training

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        order = np.random.default_rng(key(seed, "batches", epoch)).permutation(len(self.train.texts))
        return Batches.of_size(order, self.batch_size)

    def collate(self, examples: Sequence[int]) -> Batch:
        """The anchors, then their positives, then their negatives, as rows of one batch."""
        groups = self.train.take(examples)
        rows = [ids for side in zip(*groups.ids, strict=True) for ids in side]
        return Batch(batch_of(self.tokenizer, rows, packed=self.packed), same(groups.texts))

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if config.is_encoder_decoder:
            raise UserError(f"{where}: expected an encoder or a decoder alone to make vectors, got both; {remedy}")
        if not isinstance(config.first.input, TokenInput):
            raise UserError(f"{where}: expected a network of texts, got one of pictures; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        """Removes any head, because vectors are made from the states of the stack."""
        self.check_kind(config, where="model", remedy="try preset classifier")
        rows = [ids for split in (self.train, self.valid) for group in split.ids for ids in group]
        check_fits(config, extent_of(rows), remedy="try a lower data.max_length")
        return config if isinstance(config.head, NoHead) else with_head(config, NoHead())

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The cross-entropy of each anchor's positive among the candidates of the batch, in nats."""
        (tokens,) = batch.inputs
        found = pooled(network(tokens), tokens, self.pooling)
        return contrast(found, batch.labels, self.temperature, symmetric=self.symmetric), batch.count

    # --- use

    def score(self, network: Transformer, data: Groups) -> Evaluation:
        """How each anchor finds its positive, and for the recipe's own data the rank correlation of the pairs."""
        found = retrieval(self.vectors(network, data, 0), self.vectors(network, data, 1), data.texts, self.temperature)
        if self.pairs is None or not self.is_of_recipe:
            return found
        groups, scores = self.pairs()
        encoded = self.encode(groups)
        cosines = (self.vectors(network, encoded, 0) * self.vectors(network, encoded, 1)).sum(-1)
        main = scored("spearman", spearman, scores, cosines.numpy(), unit="-1 to 1")
        return replace(found, scores=(main, *found.scores))

    def vectors(self, network: Transformer, data: Groups, k: int) -> Tensor:
        """n d: the vectors of text k of each group, of length 1, on the CPU."""
        if self.model is not None:
            return embedded(self.model, [texts[k] for texts in data.texts])
        ids = [group[k] for group in data.ids]
        vectors = torch.empty(len(ids), network.config.output.d_model)
        for rows, tokens, states in outputs_of(network, self.tokenizer, ids):
            vectors[rows] = F.normalize(pooled(states, tokens, self.pooling).float(), dim=-1).cpu()
        return vectors

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts the unit vector of each text, as numbers separated by spaces."""
        rows: list[list[float]] = embedded(model, texts).tolist()
        for row in rows:
            yield Prediction(" ".join(f"{number:.6g}" for number in row), {"vector": [*row]})


def pairs_of(data: EmbeddingData) -> Callable[[], tuple[list[Group], np.ndarray]] | None:
    """What reads the pairs of `data.scored` without empty texts, and their scores."""
    if data.scored is None:
        return None
    file = data.scored.under(data.folder)

    @cache
    def read() -> tuple[list[Group], np.ndarray]:
        kept = [one for one in read_scored(file, data.score) if not one[0].is_blank]
        return [group for group, _ in kept], np.array([score for _, score in kept])

    return read


def embedded(model: Trained, texts: Sequence[str]) -> Tensor:
    """n d: the vectors of texts, of length 1, as the model makes them."""
    return torch.cat([model.embed(texts[i : i + AT_ONCE]).float().cpu() for i in range(0, len(texts), AT_ONCE)])
