"""Translation: source sentences in, target sentences out, by teacher forcing (Vaswani et al. 2017, 3.1)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor

from clearhead.config import Config, ModelConfig
from clearhead.data.batches import token_budget_batches
from clearhead.data.corpus import encoded_pairs
from clearhead.data.encoded import EncodedPairs
from clearhead.data.marks import source_marks, target_marks
from clearhead.data.sequences import largest_of, lengths_of
from clearhead.data.sources import Pairs, read_pairs
from clearhead.data.splits import pair_splits
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.generation.settings import searching
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.recipe import Recipe
from clearhead.recipe.data import Data, Preparation, Source
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.checks import check_length, check_vocabulary, check_writes
from clearhead.tasks.examples import Example
from clearhead.tasks.metrics import (
    Tokenize,
    bleu,
    bleu_metric,
    bleu_name,
    chrf,
    exact_match,
    moses_bleu,
    of_each,
    perplexity,
)
from clearhead.tasks.scripts import bleu_tokenizer
from clearhead.tasks.task import (
    Batch,
    Evaluation,
    Files,
    Prediction,
    Prepared,
    RecipeTask,
    Sample,
    Trained,
    head_loss,
)

N_SAMPLES = 4


class TranslationData(Data):
    """Sentence pairs."""

    test: Source | None = None
    held_out: PositiveInt = 1000
    """Training pairs that are the validation data where `valid` is None, chosen by their source's hash."""
    preparation: Preparation = Preparation()


class EvaluationConfig(Config):
    """The settings of the scores that choose the best checkpoint."""

    tokenize: Tokenize = "auto"
    """The tokenizer of BLEU, by sacreBLEU's name; auto: by the script of the reference translations.

    auto takes zh for Chinese, char for other scripts without spaces (Japanese, Thai, Lao, Khmer, Burmese), else 13a.
    """


class TranslationRecipe(Recipe):
    """How to train a translator."""

    task: Literal["translation"]
    data: TranslationData
    evaluation: EvaluationConfig = EvaluationConfig()


class Translation(RecipeTask[TranslationRecipe]):
    """p(target | source), one token after another."""

    recipe = TranslationRecipe
    files = Files("sentences and their translations", {"kind": "parallel", "source": "--source", "target": "--target"})
    measures = ("beams", "length_penalty", "tokenize", "moses")
    use = 'translate {} "A sentence."'
    higher_is_better = True

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: EncodedPairs,
        valid: EncodedPairs,
        *,
        max_tokens: int,
        packed: bool = True,
        generation: GenerationConfig,
        tokenize: Tokenize = "auto",
    ) -> None:
        """`tokenize` is that of BLEU; "auto" chooses by the references of `valid`.

        Raises UserError if the package of that tokenizer is not installed.
        """
        self.tokenize: Tokenize = bleu_tokenizer(valid.text.target) if tokenize == "auto" else tokenize
        bleu_metric(self.tokenize)  # Reports a missing package before anything takes long.
        self.main_score = bleu_name(self.tokenize)
        self.tokenizer, self.train, self.valid = tokenizer, train, valid
        self.max_tokens, self.packed, self.generation = max_tokens, packed, generation
        start = generation.start_id
        self.start = tokenizer.need("bos") if start is None else start
        self.source_marks, self.target_marks = source_marks(tokenizer), target_marks(tokenizer, generation)

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return token_budget_batches(self.lengths(self.train), max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def lengths(self, pairs: EncodedPairs) -> np.ndarray:
        """n 2: the tokens of each pair's sides, with marks."""
        sides = lengths_of(pairs.source) + len(self.source_marks), lengths_of(pairs.target) + len(self.target_marks)
        return np.stack(sides, axis=1)

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.batch(self.train, examples)

    def batch(self, pairs: EncodedPairs, examples: Sequence[int]) -> Batch:
        """Source with its marks; start + written -> written, which is the target with its marks: bos x -> x eos."""
        written = [self.target_marks.around(pairs.target[i]) for i in examples]
        read = [self.source_marks.around(pairs.source[i]) for i in examples]
        source = Tokens.pad(read, fill=self.pad, packed=self.packed)
        target = Tokens.pad([[self.start, *ids[:-1]] for ids in written], fill=self.pad, packed=self.packed)
        return Batch((source, target), torch.tensor([token for ids in written for token in ids]))

    @property
    def pad(self) -> int:
        """The token of cells that are padding."""
        pad = self.generation.pad_id
        return (self.tokenizer.pad_id if pad is None else pad) or 0

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if config.encoder is None or config.decoder is None:
            raise UserError(f"{where}: expected an encoder and a decoder to translate, got one of them; {remedy}")
        check_writes(config, where=where)

    def fit(self, config: ModelConfig) -> ModelConfig:
        self.check_kind(config, where="model", remedy="try preset transformer-tiny")
        assert config.encoder is not None
        longest = np.maximum(*(self.lengths(pairs).max(axis=0) for pairs in (self.train, self.valid))).tolist()
        for name, stack, length in zip(("encoder", "decoder"), (config.encoder, config.output), longest, strict=True):
            check_length(name, stack, length, remedy="try a lower data.preparation.max_length")
        check_vocabulary("encoder", config.encoder, max(map(largest_of, (self.train.source, self.valid.source))))
        check_vocabulary("decoder", config.output, max(map(largest_of, (self.train.target, self.valid.target))))
        return config

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        return head_loss(network, batch, smoothing=smoothing)

    def evaluate(self, network: Transformer) -> Evaluation:
        return self.measure(network, self.valid, self.generation)

    def measure(self, network: Transformer, pairs: EncodedPairs, generation: GenerationConfig) -> Evaluation:
        """BLEU, chrF, exact match and perplexity on these pairs."""
        outputs = self.translate(network, pairs.source, generation)
        references = [[text] for text in pairs.text.target]
        nats, n_tokens = self.log_loss(network, pairs)
        scores = (
            bleu(outputs, references, tokenize=self.tokenize),
            chrf(outputs, references),
            exact_match(outputs, references),
            perplexity(nats, n_tokens),
        )
        triples = [*zip(pairs.text.source, outputs, pairs.text.target, strict=True)]
        examples = tuple(
            Example(*triple, 100 - share, triple[1] != triple[2])
            for triple, share in zip(triples, of_each(scores[1]), strict=True)
        )
        samples = tuple(Sample(*triple) for triple in triples[:N_SAMPLES])
        return Evaluation(scores, samples, tuple(outputs), nats / n_tokens, examples)

    def translate(
        self, network: Transformer, source: Sequence[Sequence[int]], generation: GenerationConfig
    ) -> list[str]:
        """The best output for each source, as text."""
        hypotheses = complete(
            network,
            source=[self.source_marks.around(ids) for ids in source],
            config=generation,
            bos_id=self.start,
            eos_id=self.target_marks.after[-1],
            pad_id=self.pad,
        )
        return self.tokenizer.decode_batch([best[0].tokens for best in hypotheses])

    def log_loss(self, network: Transformer, pairs: EncodedPairs) -> tuple[float, int]:
        """The targets' negative log-likelihood in nats, without label smoothing, and the number of their tokens."""
        nats, n_tokens = 0.0, 0
        lengths = self.lengths(pairs)
        budget = max(self.max_tokens, 4096, int(lengths.sum(axis=1).max()))
        with Evaluating(network), torch.inference_mode():
            for examples in token_budget_batches(lengths, max_tokens=budget, seed=0, epoch=0):
                batch = self.batch(pairs, examples).to(next(network.parameters()).device)
                total, count = self.loss(network, batch)
                nats, n_tokens = nats + total.item(), n_tokens + count
        return nats, n_tokens

    @classmethod
    def prepared(cls, recipe: TranslationRecipe, tokenizer: Tokenizer | None) -> Prepared:
        data = recipe.data
        found = encoded_pairs(recipe, tokenizer, held_out=data.held_out, preparation=data.preparation)
        task = cls(
            found.tokenizer,
            found.train,
            found.valid,
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
            generation=recipe.generation,
            tokenize=recipe.evaluation.tokenize,
        )
        return Prepared(task, found)

    @classmethod
    def measured(
        cls, model: Trained, recipe: TranslationRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        """`moses` adds the BLEU of papers on small corpora, which has a tokenizer of its own."""
        if source is not None:
            text = read_pairs(source)
        else:
            assert recipe is not None
            splits = pair_splits(recipe.data, recipe.data.held_out)
            text = Pairs.of(splits.get("test", splits["valid"]))
        search, pairs = dict(options), EncodedPairs.of(text, model.tokenizer)
        tokenize = search.pop("tokenize", recipe.evaluation.tokenize if recipe else "auto")
        moses, generation = search.pop("moses", None), searching(model.generation, search)
        task = cls(model.tokenizer, pairs, pairs, max_tokens=4096, generation=generation, tokenize=tokenize)
        found = task.evaluate(model.network)
        extra = (moses_bleu(found.outputs, text.target, moses),) if moses else ()
        return replace(found, scores=(*found.scores, *extra))

    @classmethod
    def predicted(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        for text in model.translate(texts, searching(model.generation, {})):
            yield Prediction(text, {"text": text})
