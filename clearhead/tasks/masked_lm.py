"""Masked language modelling: tokens of a text from those on both sides (Devlin et al. 2018, 3.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, JsonValue
from torch import Tensor

from clearhead.brief import brief
from clearhead.config import ModelConfig, Share
from clearhead.config.heads import LanguageHead
from clearhead.data.batches import DocumentSlice
from clearhead.data.corpus import encoded_text
from clearhead.data.sequences import Sequences
from clearhead.errors import UserError
from clearhead.json_text import tabbed
from clearhead.model import Tokens, Transformer
from clearhead.model.loss import IGNORED, MANY
from clearhead.model.mode import Evaluating
from clearhead.progress import counted
from clearhead.randomness import key
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Source, TextData
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.classification.data import NO_LIMIT
from clearhead.tasks.evaluation import Evaluation, Sample
from clearhead.tasks.networks import check_fits, most_tokens, with_head
from clearhead.tasks.reading import PackedRows, Reading, RowsTask, count, measured_text, text_report
from clearhead.tasks.reports import SplitsReport
from clearhead.tasks.scores import Score, perplexity
from clearhead.tasks.task import Batch, Files, Prediction, Prepared, RecipeTask, Trained, defaults
from clearhead.text.special_tokens import SpecialTokens, continuing, special_ids, template_tokens, with_mask
from clearhead.text.tokenizers import Tokenizer

HIDDEN, REPLACED = 0.8, 0.1
"""Shares of the chosen tokens that become the mask token, and a random token. The rest keep their token."""


@dataclass(frozen=True)
class Masking:
    """Chooses tokens of a text and hides most of them. Special tokens are never chosen."""

    __repr__ = brief

    mask_id: int
    ordinary: np.ndarray
    """The ids that are not special."""
    is_ordinary: np.ndarray
    """v: whether an id is one of them."""
    continues: np.ndarray
    """v: whether a token is chosen with the one before it."""
    share: float

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, share: float, whole_words: bool) -> "Masking":
        """The masking for a tokenizer. Raises UserError if it has no mask token."""
        n = tokenizer.vocab_size
        is_ordinary = np.ones(n, dtype=bool)
        is_ordinary[sorted(special_ids(tokenizer))] = False
        continues = continuing(tokenizer) if whole_words else np.zeros(n, dtype=bool)
        return cls(tokenizer.need("mask"), np.flatnonzero(is_ordinary), is_ordinary, continues, share)

    def __call__(self, ids: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """n -> the ids to read, and which ones were chosen: the share of the ordinary ids, but at least one word."""
        chosen = self.chosen(ids, random)
        at = np.flatnonzero(chosen)
        lot, other = random.random(len(at)), random.choice(self.ordinary, len(at))
        kept = np.where(lot < HIDDEN + REPLACED, other, ids[at])
        read = ids.copy()
        read[at] = np.where(lot < HIDDEN, self.mask_id, kept)
        return read, chosen

    def chosen(self, ids: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """n, bool: which ids the network restores. Words are taken in random order until they are enough tokens."""
        chosen = np.zeros(len(ids), dtype=bool)
        ordinary = self.is_ordinary[ids]
        goes_on = self.continues[ids] & ordinary
        goes_on[1:] &= ordinary[:-1]
        goes_on[:1] = False
        word = np.cumsum(~goes_on) - 1
        words, sizes = np.unique(word[ordinary], return_counts=True)
        if not len(words):
            return chosen
        order = random.permutation(len(words))
        wanted = max(1, round(self.share * int(ordinary.sum())))
        # Half of a word more than wanted is as good as half of one less.
        n_words = max(1, int((sizes[order].cumsum() - (sizes[order] - 1) / 2 <= wanted).sum()))
        return np.isin(word, words[order[:n_words]])


class MaskedRows(PackedRows):
    """Rows of several texts, each with marks around it. A row's masks depend on its example and a seed alone."""

    def __init__(
        self, texts: Sequences, length: int, *, around: SpecialTokens, masking: Masking, seed: int | str
    ) -> None:
        super().__init__(texts.lengths, length, largest=max(texts.largest, masking.mask_id), marks=len(around))
        self.texts, self.around, self.masking, self.seed = texts, around, masking, seed

    def row(self, epoch: int, pieces: Sequence[DocumentSlice], number: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """The label of a cell is IGNORED where its token is not chosen."""
        random = np.random.default_rng(key(self.seed, "masks", epoch, number))
        texts = [self.texts.read(piece.document, piece.start, piece.stop).tolist() for piece in pieces]
        marked = [self.around.around(text) for text in texts]
        ends = np.cumsum([*map(len, marked)])[:-1]
        whole = np.concatenate(marked)
        read, chosen = self.masking(whole, random)
        return [*zip(np.split(read, ends), np.split(np.where(chosen, whole, IGNORED), ends), strict=True)]


N_BEST = 5


def fill(model: Trained, ids: Sequence[int]) -> list[list[tuple[str, float]]]:
    """For each mask token of a text, the likeliest tokens in its place with their probabilities, best first.

    A long text is read in pieces, as in training and evaluation.
    """
    network, tokenizer = model.network, model.tokenizer
    mask, marks, places = tokenizer.need("mask"), template_tokens(tokenizer), list[list[tuple[str, float]]]()
    room = max(most_tokens(model, NO_LIMIT) - len(marks), 1)
    with Evaluating(network), torch.inference_mode():
        for start in range(0, len(ids), room):
            piece = marks.around(ids[start : start + room])
            if at := [i for i, token in enumerate(piece) if token == mask]:
                inputs = Tokens(torch.tensor([piece], device=network.device))
                best = network(inputs)[0, at].float().softmax(-1).topk(min(N_BEST, tokenizer.vocab_size))
                for tokens, shares in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                    places.append([*zip((word_of(tokenizer, token) for token in tokens), shares, strict=True)])
    return places


def word_of(tokenizer: Tokenizer, token: int) -> str:
    """A token as text, without the space before it; a special token by its name."""
    return tokenizer.decode([token]).strip() or tokenizer.tokens([token])[0]


N_SAMPLES = 2


class MaskedData(TextData):
    """Texts: the documents of one or several sources, or one running text, cut into pieces."""

    length: Annotated[int, Field(ge=8)] = 128
    """Tokens of a row, which holds several short texts."""
    masked: Share = 0.15
    """Share of the tokens hidden for the network to predict; 0.3 or 0.4 is often better (Wettig et al. 2023)."""
    whole_words: bool = False
    """Choose all tokens of a word or none."""


class MaskedRecipe(Recipe):
    """How to pretrain an encoder."""

    task: Literal["masked_lm"]
    data: MaskedData
    tokenizer: TokenizerConfig = WordPiece()
    model: ModelChoice = ModelChoice(preset="classifier")


class MaskedLanguageModel(RowsTask, RecipeTask[MaskedRecipe]):
    """p(token | the tokens on both sides that are not masked)."""

    recipe = MaskedRecipe
    files = Files("a text", {"kind": "text", "paths": "--text"})
    verb = "fill"
    use = 'fill {} "A text with <mask> in it."'
    main_score = "loss"
    higher_is_better = False
    unit = "masked tokens"

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: Sequences,
        valid: Sequences,
        *,
        length: int,
        max_tokens: int,
        masked: float = 0.15,
        whole_words: bool = False,
        seed: int = 0,
    ) -> None:
        """Texts without marks. `seed` decides the masks; those of `valid` are always the same."""
        self.tokenizer, self.length = tokenizer, length
        masking = Masking.of(tokenizer, share=masked, whole_words=whole_words)
        self.use = f'fill {{}} "A text with {tokenizer.library.id_to_token(masking.mask_id)} in it."'
        both = {"around": template_tokens(tokenizer), "masking": masking}
        self.train = MaskedRows(train, length, seed=seed, **both)
        self.valid = MaskedRows(valid, length, seed="validation", **both)
        self.batch_size = max(1, max_tokens // length)

    @property
    def rows(self) -> Reading:
        return self.train

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if config.encoder is None or config.decoder is not None:
            got = "a decoder too" if config.encoder is not None else "a decoder alone"
            raise UserError(f"{where}: expected an encoder alone to restore masked tokens, got {got}; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        """Keeps a language head. Replaces any other by one with the layers of Devlin et al. 2018."""
        self.check_kind(config, where="model", remedy="try preset classifier")
        check_fits(config, (self.length, max(self.train.largest, self.valid.largest)), remedy="try a lower data.length")
        if config.predicts_tokens:
            return config
        head = LanguageHead(tied=True, bias=True, transform=True, transform_bias=config.output.bias)
        return with_head(config, head)

    def score(self, network: Transformer, data: MaskedRows) -> Evaluation:
        """Measures loss, perplexity and accuracy at masked places. Every evaluation masks the same places."""
        nats, n_right, n, samples = 0.0, 0, 0, list[Sample]()
        device, size = network.device, max(1, MANY // self.tokenizer.vocab_size // self.length)
        with Evaluating(network), torch.inference_mode():
            for batch in counted(data.everything(size), "reading", -(-len(data.rows_chosen) // size)):
                chosen = batch.labels != IGNORED
                logits, wanted = network(*batch.to(device).inputs).float().cpu()[chosen], batch.labels[chosen]
                nats += torch.nn.functional.cross_entropy(logits, wanted, reduction="sum").item()
                found = logits.argmax(-1)
                n_right, n = n_right + int((found == wanted).sum()), n + len(wanted)
                if len(samples) < N_SAMPLES:
                    samples.append(self.sample(batch, found, wanted))
        if not n:
            raise UserError("valid: expected a token that can be masked, got none; give more validation data")
        loss = nats / n
        accuracy = Score("accuracy", n_right / n, unit="of the masked tokens, 0 to 1")
        scores = Score("loss", loss, unit="nats a masked token"), perplexity(nats, n), accuracy
        return Evaluation(scores, tuple(samples), loss=loss)

    def sample(self, batch: Batch, found: Tensor, wanted: Tensor) -> Sample:
        """A sample: the first tokens of a batch as the network reads them, and its first predictions."""
        ids = batch.inputs[0].real(batch.inputs[0].ids)[: self.length // 2]
        n = int((batch.labels[: len(ids)] != IGNORED).sum())
        outputs, references = (" ".join(self.tokenizer.tokens(some[:n].tolist())) for some in (found, wanted))
        return Sample(self.tokenizer.library.decode(ids.tolist(), skip_special_tokens=False), outputs, references)

    @classmethod
    def prepare(cls, recipe: MaskedRecipe, tokenizer: Tokenizer | None) -> Prepared:
        data = recipe.data
        found = encoded_text(recipe, tokenizer, held_out=data.held_out, extended=with_mask, marks=SpecialTokens())
        task = cls(
            found.tokenizer,
            found.train.ids,
            found.valid.ids,
            length=data.length,
            max_tokens=recipe.training.max_tokens,
            masked=data.masked,
            whole_words=data.whole_words,
            seed=recipe.training.seed,
        )
        return Prepared(task, replace(found, report=task.report()))

    def report(self) -> SplitsReport:
        """Counts the texts and tokens of each split. Raises UserError if no token can be masked."""
        both = {"train": self.train, "valid": self.valid}
        special = np.array(sorted(special_ids(self.tokenizer)))
        trained: dict[str, int] = {}
        for name, rows in both.items():
            n_ordinary = int(rows.texts.lengths.sum()) - count(rows.texts, special)
            trained[name] = max(round(n_ordinary * rows.masking.share), min(n_ordinary, 1))
            if not n_ordinary:
                raise UserError(f"{name}: expected tokens to mask, got only unknown ones; try the model's own language")
        return text_report(both, self.tokenizer, length=self.length - self.train.marks, trained=trained)

    @classmethod
    def measure(
        cls, model: Trained, recipe: MaskedRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        data = defaults(cls.recipe, model) if recipe is None else recipe.data
        text = measured_text(model, source, data, SpecialTokens()).ids
        length = min(data.length, most_tokens(model, data.length))
        both = {"masked": data.masked, "whole_words": data.whole_words}
        task = cls(model.tokenizer, text, text, length=length, max_tokens=length, **both)
        return task.score(model.network, task.valid)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts the likeliest tokens for each mask token with their probabilities, separated by tabs.

        Raises UserError for a text without the tokenizer's mask token.
        """
        mask, tokenizer = model.tokenizer.need("mask"), model.tokenizer
        for number, ids in enumerate(tokenizer.encode_batch(texts), start=1):
            if mask not in ids:
                word = tokenizer.library.id_to_token(mask)
                raise UserError(
                    f"text {number}: expected {word} where a word is to be filled in, got none; write {word}"
                )
            places = fill(model, ids)
            line = tabbed(*(cell for place in places for token, share in place for cell in (token, f"{share:.4f}")))
            masks: list[JsonValue] = [
                [{"token": token, "probability": share} for token, share in place] for place in places
            ]
            yield Prediction(line, {"masks": masks})
