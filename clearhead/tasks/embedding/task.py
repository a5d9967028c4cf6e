"""Sentence vectors: texts that belong together get vectors that point the same way (Reimers and Gurevych 2019).

The other texts of a batch are the negatives (van den Oord et al. 2018, InfoNCE; Henderson et al. 2017, 4.4).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.config.heads import NoHead
from clearhead.config.inputs import TokenInput
from clearhead.data.batches import Batches
from clearhead.data.corpus import Encoded
from clearhead.data.splits import SplitsReport, fingerprint
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model import Tokens, Transformer
from clearhead.model.layout import Layout
from clearhead.model.sentences import Mode, Pooling, vectors
from clearhead.randomness import key
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Column, Data, HeldOut, Source
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.classification.scores import spearman
from clearhead.tasks.embedding.data import Group, Groups, GroupSplit, hold_out, read_groups, read_scored
from clearhead.tasks.evaluation import N_MISTAKES, Evaluation, Sample
from clearhead.tasks.networks import check_fits, outputs_of, with_head
from clearhead.tasks.scores import Score, scored
from clearhead.tasks.task import Batch, Files, Prediction, Prepared, RecipeTask, Trained
from clearhead.text.tokenizers import Tokenizer

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
    both = np.ones(len(ranks)), 1 / ranks.numpy()
    mrr = scored("mrr", lambda _, found: float(found.mean()), *both, "0 to 1")
    first = scored("accuracy", lambda _, found: float((found == 1).mean()), *both, "0 to 1")
    worst = [i for i in ranks.argsort(descending=True, stable=True).tolist() if ranks[i] > 1]
    samples = [Sample(texts[i][0], texts[int(best[i])][1], texts[i][1]) for i in worst[:N_MISTAKES]]
    loss = nats / len(ranks)
    return Evaluation((mrr, first, Score("loss", loss)), tuple(samples), loss=loss)


def with_correlation(found: Evaluation, first: Tensor, second: Tensor, scores: np.ndarray) -> Evaluation:
    """The same with Spearman's correlation of the cosines with the scores of pairs, in front."""
    one = scored("spearman", spearman, scores, (first * second).sum(-1).numpy(), "-1 to 1")
    return Evaluation((one, *found.scores), found.samples, loss=found.loss)


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


class Embedding(RecipeTask[EmbeddingRecipe]):
    """-log softmax(cos(anchor, candidates) / temperature) at its positive."""

    recipe = EmbeddingRecipe
    files = Files("a table of texts that belong together", {"kind": "table", "path": "--data"})
    verb = "embed"
    use = 'embed {} "A text."'
    samples = "worst mistakes"
    heads = ("none",)
    higher_is_better = True
    unit = "pairs"

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: Groups,
        valid: Groups,
        *,
        pairs: tuple[Groups, np.ndarray] | None = None,
        pooling: Mode = "mean",
        temperature: float = 0.05,
        symmetric: bool = False,
        batch_size: int = 64,
        packed: bool = True,
    ) -> None:
        """`pairs` are the texts of `data.scored` with their scores, on which validation measures rank correlation."""
        self.tokenizer, self.train, self.valid, self.pairs = tokenizer, train, valid, pairs
        self.pooling: Mode = pooling
        self.temperature, self.symmetric = temperature, symmetric
        self.batch_size, self.packed = batch_size, packed
        self.main_score = "mrr" if pairs is None else "spearman"

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        order = np.random.default_rng(key(seed, "batches", epoch)).permutation(len(self.train.texts))
        return Batches.of_size(order, self.batch_size)

    def collate(self, examples: Sequence[int]) -> Batch:
        """The anchors, then their positives, then their negatives, as rows of one batch."""
        groups = [self.train.ids[i] for i in examples]
        rows = [group[k] for k in range(len(groups[0])) for group in groups]
        tokens = Tokens.pad(rows, fill=self.tokenizer.pad_id or 0, packed=self.packed)
        return Batch((tokens,), same([self.train.texts[i] for i in examples]))

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if len(config.stacks) == 2:
            raise UserError(f"{where}: expected an encoder or a decoder alone to make vectors, got both; {remedy}")
        if not isinstance(config.first.input, TokenInput):
            raise UserError(f"{where}: expected a network of texts, got one of pictures; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        """Removes any head, because vectors are made from the states of the stack."""
        self.check_kind(config, where="model", remedy="try preset classifier")
        rows = [ids for split in (self.train, self.valid) for group in split.ids for ids in group]
        sizes = max(map(len, rows)), max(map(max, rows))
        check_fits(config, sizes, remedy="try a lower data.max_length")
        return config if isinstance(config.head, NoHead) else with_head(config, NoHead())

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The cross-entropy of each anchor's positive among the candidates of the batch, in nats."""
        (tokens,) = batch.inputs
        found = pooled(network(tokens), tokens, self.pooling)
        return contrast(found, batch.labels, self.temperature, symmetric=self.symmetric), batch.count

    def evaluate(self, network: Transformer) -> Evaluation:
        def vectors_of(groups: Groups, k: int) -> Tensor:
            return self.vectors(network, [group[k] for group in groups.ids])

        valid = self.valid if self.few is None else self.valid.take(self.few.rows)
        found = retrieval(vectors_of(valid, 0), vectors_of(valid, 1), valid.texts, self.temperature)
        if self.pairs is None:
            return found
        groups, scores = self.pairs
        return with_correlation(found, vectors_of(groups, 0), vectors_of(groups, 1), scores)

    def sizes(self) -> Sequence[int]:
        return self.valid.sizes

    def vectors(self, network: Transformer, ids: Sequence[Sequence[int]]) -> Tensor:
        """n d: the vectors of texts, of length 1, on the CPU."""

        def collate(rows: Sequence[int]) -> tuple[Tokens, ...]:
            return (Tokens.pad([ids[i] for i in rows], fill=self.tokenizer.pad_id or 0, packed=True),)

        vectors = torch.empty(len(ids), network.config.output.d_model)
        for rows, (tokens,), states in outputs_of(network, [*map(len, ids)], collate):
            vectors[rows] = F.normalize(pooled(states, tokens, self.pooling).float(), dim=-1).cpu()
        return vectors

    @classmethod
    def prepare(cls, recipe: EmbeddingRecipe, tokenizer: Tokenizer | None) -> Prepared:
        data, limit = recipe.data, recipe.data.max_length
        read = {name: read_groups(source, data.negative) for name, source in data.sources.items()}
        if "valid" not in read:
            read["train"], read["valid"] = hold_out(read["train"], data.held_out)
        tokenizer = tokenizer or Tokenizer.train((text for g in read["train"] for text in g.texts), recipe.tokenizer)
        found = {name: Groups.of(groups, tokenizer, limit) for name, groups in read.items()}
        for name, groups in found.items():
            if len(groups.texts) < 2:
                raise UserError(f"data.{name}: expected at least 2 pairs without empty texts, got {len(groups.texts)}")
        counts = [GroupSplit.of(name, read[name], groups, found["train"], limit) for name, groups in found.items()]
        report = SplitsReport[GroupSplit](vocab_size=tokenizer.vocab_size, max_length=limit, splits=tuple(counts))
        pooling: Mode = recipe.pooling or "mean"
        pairs = None
        if data.scored is not None:
            groups, scores = scored_pairs(data)
            pairs = Groups.of(groups, tokenizer, limit), scores
        task = cls(
            tokenizer,
            found["train"],
            found["valid"],
            pairs=pairs,
            pooling=pooling,
            temperature=recipe.temperature,
            symmetric=recipe.symmetric,
            batch_size=recipe.batch_size,
            packed=recipe.training.packed,
        )
        sha = {name: fingerprint(*([group.texts] for group in groups)) for name, groups in read.items()}
        own: JsonObject = {"pooling": pooling, "max_length": limit}
        documents = {SENTENCES: own}
        return Prepared(task, Encoded(tokenizer, found["train"], found["valid"], report, sha, documents=documents))

    @classmethod
    def measure(
        cls, model: Trained, recipe: EmbeddingRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        data = None if recipe is None else recipe.data
        if source is not None:
            groups = read_groups(source, None)
        else:
            assert data is not None
            read = {name: read_groups(one, None) for name, one in data.sources.items()}
            groups = read["test"] if "test" in read else read.get("valid") or hold_out(read["train"], data.held_out)[1]
        texts = [group.texts for group in groups if not group.is_blank]
        anchors, positives = (embedded(model, [one[k] for one in texts]) for k in (0, 1))
        found = retrieval(anchors, positives, texts, recipe.temperature if recipe else 0.05)
        if source is not None or data is None or data.scored is None:
            return found
        pairs, scores = scored_pairs(data)
        first, second = (embedded(model, [one.texts[k] for one in pairs]) for k in (0, 1))
        return with_correlation(found, first, second, scores)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts the unit vector of each text, as numbers separated by spaces."""
        rows: list[list[float]] = embedded(model, texts).tolist()
        for row in rows:
            yield Prediction(" ".join(f"{number:.6g}" for number in row), {"vector": [*row]})


def scored_pairs(data: EmbeddingData) -> tuple[list[Group], np.ndarray]:
    """The pairs of `data.scored` without empty texts, and their scores."""
    assert data.scored is not None
    read = read_scored(data.scored.under(data.folder), data.score)
    kept = [(group, score) for group, score in read if not group.is_blank]
    return [group for group, _ in kept], np.array([score for _, score in kept])


def embedded(model: Trained, texts: Sequence[str]) -> Tensor:
    """n d: the vectors of texts, of length 1, as the model makes them."""
    return torch.cat([model.embed(texts[i : i + AT_ONCE]).float().cpu() for i in range(0, len(texts), AT_ONCE)])
