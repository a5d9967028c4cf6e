"""Masked language modelling: tokens of a text from those on both sides (Devlin et al. 2018, 3.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, JsonValue
from torch import Tensor

from clearhead.config import LanguageHead, ModelConfig, Share
from clearhead.data.batches import Batches
from clearhead.data.corpus import encoded_text
from clearhead.data.labelled_ids import NO_LIMIT
from clearhead.data.masking import Masking
from clearhead.data.sequences import Sequences
from clearhead.data.text_report import TextReport, count, text_report
from clearhead.errors import UserError
from clearhead.json_text import tabbed
from clearhead.model import Transformer
from clearhead.model.loss import IGNORED, MANY
from clearhead.model.mode import Evaluating
from clearhead.progress import counted
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Source, TextData
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.answers import most_tokens
from clearhead.tasks.checks import check_length, check_vocabulary, with_head
from clearhead.tasks.filling import fill
from clearhead.tasks.head_task import HeadTask
from clearhead.tasks.masked_rows import MaskedRows
from clearhead.tasks.metrics import Score, perplexity
from clearhead.tasks.reading import bare_text
from clearhead.tasks.task import Batch, Evaluation, Files, Prediction, Prepared, Sample, Trained
from clearhead.text.special_tokens import SpecialTokens, special_ids, template_tokens, with_mask
from clearhead.text.tokenizers import Tokenizer

N_SAMPLES = 2


class MaskedData(TextData):
    """Texts: the documents of one or several sources, or one running text, cut into pieces."""

    length: Annotated[int, Field(ge=8)] = 128
    """Tokens of a row, which holds several short texts."""
    masked: Share = 0.15
    """Share of the tokens that the network restores; 0.3 or 0.4 is often better (Wettig et al. 2023)."""
    whole_words: bool = False
    """Choose all tokens of a word or none."""


class MaskedRecipe(Recipe):
    """How to pretrain an encoder."""

    task: Literal["masked_lm"]
    data: MaskedData
    tokenizer: TokenizerConfig = WordPiece()
    model: ModelChoice = ModelChoice(preset="classifier")


class MaskedLanguageModel(HeadTask[MaskedRecipe]):
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
        marks = template_tokens(tokenizer)
        self.use = f'fill {{}} "A text with {tokenizer.library.id_to_token(masking.mask_id)} in it."'
        self.train = MaskedRows(train, length, marks=marks, masking=masking, seed=seed)
        self.valid = MaskedRows(valid, length, marks=marks, masking=masking, seed="validation")
        self.largest = max(train.largest, valid.largest, masking.mask_id)
        self.batch_size = max(1, max_tokens // length)

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return Batches.of_size(self.train.examples(seed=seed, epoch=epoch), self.batch_size)

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.train.batch(examples)

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if config.encoder is None or config.decoder is not None:
            got = "a decoder too" if config.encoder is not None else "a decoder alone"
            raise UserError(f"{where}: expected an encoder alone to restore masked tokens, got {got}; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        """Keeps a language head. Replaces any other by one with the layers of Devlin et al. 2018."""
        self.check_kind(config, where="model", remedy="try preset classifier")
        check_length("encoder", config.output, self.length, remedy="try a lower data.length")
        check_vocabulary("encoder", config.output, self.largest)
        if isinstance(config.head, LanguageHead):
            return config
        head = LanguageHead(tied=True, bias=True, transform=True, transform_bias=config.output.bias)
        return with_head(config, head)

    def evaluate(self, network: Transformer) -> Evaluation:
        """Measures loss, perplexity and accuracy at masked places. Every evaluation masks the same places."""
        nats, n_right, n, samples = 0.0, 0, 0, list[Sample]()
        device, rows = next(network.parameters()).device, None if self.few is None else self.few.rows
        size = max(1, MANY // self.tokenizer.vocab_size // self.length)
        with Evaluating(network), torch.inference_mode():
            for batch in counted(self.valid.everything(size, rows), "reading", -(-len(rows or self.valid) // size)):
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
        scores = (
            Score("loss", loss, unit="nats a masked token"),
            perplexity(nats, n),
            Score("accuracy", n_right / n, unit="of the masked tokens, 0 to 1"),
        )
        return Evaluation(scores, tuple(samples), loss=loss)

    def judged_sizes(self) -> Sequence[int]:
        return self.valid.sizes()

    def sample(self, batch: Batch, found: Tensor, wanted: Tensor) -> Sample:
        """A sample: the first tokens of a batch as the network reads them, and its first predictions."""
        ids = batch.inputs[0].real(batch.inputs[0].ids)[: self.length // 2]
        n = int((batch.labels[: len(ids)] != IGNORED).sum())
        outputs, references = (" ".join(self.tokenizer.tokens(some[:n].tolist())) for some in (found, wanted))
        return Sample(self.tokenizer.library.decode(ids.tolist(), skip_special_tokens=False), outputs, references)

    @classmethod
    def prepared(cls, recipe: MaskedRecipe, tokenizer: Tokenizer | None) -> Prepared:
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

    def report(self) -> TextReport:
        """Counts the texts and tokens of each split. Raises UserError if no token can be masked."""
        both = {"train": self.train, "valid": self.valid}
        special = np.array(sorted(special_ids(self.tokenizer)))
        trained: dict[str, int] = {}
        for name, rows in both.items():
            n_ordinary = int(rows.texts.lengths.sum()) - count(rows.texts, special)
            trained[name] = max(round(n_ordinary * rows.masking.share), min(n_ordinary, 1))
            if not n_ordinary:
                raise UserError(f"{name}: expected tokens to mask, got only unknown ones; try the model's own language")
        return text_report(
            {name: rows.texts for name, rows in both.items()},
            vocab_size=self.tokenizer.vocab_size,
            length=self.length - len(self.train.marks),
            unknown=self.tokenizer.unk_id,
            examples={name: len(rows) for name, rows in both.items()},
            trained=trained,
        )

    @classmethod
    def measured(
        cls, model: Trained, recipe: MaskedRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        data = MaskedData.model_construct() if recipe is None else recipe.data
        text = bare_text(model, source, data, data.held_out)
        length = min(data.length, most_tokens(model, data.length))
        both = {"masked": data.masked, "whole_words": data.whole_words}
        return cls(model.tokenizer, text, text, length=length, max_tokens=length, **both).evaluate(model.network)

    @classmethod
    def predicted(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts the likeliest tokens for each mask token with their probabilities, separated by tabs."""
        for places in fill(model.network, model.tokenizer, texts, limit=most_tokens(model, NO_LIMIT)):
            line = tabbed(*(cell for place in places for token, share in place for cell in (token, f"{share:.4f}")))
            masks: list[JsonValue] = [
                [{"token": token, "probability": share} for token, share in place] for place in places
            ]
            yield Prediction(line, {"masks": masks})
