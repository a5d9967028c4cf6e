"""A task of clearhead in a package of its own: an encoder-decoder learns to sort the letters of a word."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Self

from clearhead.config import ModelConfig
from clearhead.data.encoded import EncodedPairs
from clearhead.data.sources import Pairs, read_texts
from clearhead.model import Transformer
from clearhead.recipe import Recipe
from clearhead.recipe.data import Source, TextData
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Characters, TokenizerConfig
from clearhead.tasks.evaluation import Evaluation, Sample
from clearhead.tasks.reports import SplitReport
from clearhead.tasks.sequence_to_sequence import SequenceToSequence, check_encoder_decoder
from clearhead.tasks.task import Batch, ExampleTask, Files, HeadLoss, Prediction, Trained
from clearhead.tasks.text_scores import exact_match
from clearhead.text.tokenizers import Tokenizer


class SortingRecipe(Recipe):
    """How to train a network that sorts."""

    task: Literal["sorting"]
    data: TextData
    tokenizer: TokenizerConfig = Characters()


class Sorting(HeadLoss, ExampleTask[SortingRecipe, str, EncodedPairs]):
    """p(the letters in order | a word), one letter after another."""

    recipe = SortingRecipe
    files = Files("words", {"kind": "text", "paths": "--text", "documents": "line"})
    use = "predict {} dcba"
    main_score, higher_is_better = "exact_match", True

    def __init__(self, tokenizer: Tokenizer, generation: GenerationConfig, max_tokens: int = 4096) -> None:
        self.tokenizer = tokenizer
        self.pairs = SequenceToSequence(tokenizer, max_tokens=max_tokens, packed=True, generation=generation)

    @classmethod
    def from_recipe(
        cls, recipe: SortingRecipe, splits: Mapping[str, Sequence[str]], tokenizer: Tokenizer | None
    ) -> Self:
        tokenizer = tokenizer or Tokenizer.train(splits["train"], recipe.tokenizer)
        return cls(tokenizer, recipe.generation, recipe.training.max_tokens)

    @classmethod
    def from_model(cls, model: Trained, recipe: SortingRecipe | None) -> Self:
        return cls(model.tokenizer, model.generation)

    # --- data

    @classmethod
    def read(cls, source: Source, data: TextData) -> list[str]:
        return [word.strip() for word in read_texts(source) if word.strip()]

    @classmethod
    def split(cls, splits: dict[str, list[str]], data: TextData) -> dict[str, list[str]]:
        words, n = splits["train"], len(splits["train"]) // 10
        return splits if "valid" in splits else {**splits, "train": words[n:], "valid": words[:n]}

    def known(self, examples: list[str]) -> list[str]:
        return examples

    def encode(self, examples: Sequence[str]) -> EncodedPairs:
        return EncodedPairs.of(Pairs([*examples], ["".join(sorted(word)) for word in examples]), self.tokenizer)

    @classmethod
    def content(cls, example: str) -> Sequence[str]:
        return (example,)

    def describe(self, name: str, examples: Sequence[str], data: EncodedPairs, train: Sequence[str]) -> SplitReport:
        return SplitReport.of([f"{name}: {len(examples):,} words"], {}, name=name, n=len(examples))

    # --- training

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return self.pairs.plan(self.train, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        some = self.train.take(examples)
        return self.pairs.batch(some.source, some.target)

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        check_encoder_decoder(config, "to sort letters", where=where, remedy=remedy)

    def fit(self, config: ModelConfig) -> ModelConfig:
        self.check_kind(config, where="model", remedy="try preset transformer-tiny")
        self.pairs.check(config, self.train, self.valid, remedy="try shorter words")
        return config

    # --- use

    def score(self, network: Transformer, data: EncodedPairs) -> Evaluation:
        outputs = self.pairs.write(network, data.source, self.pairs.generation)
        sample = Sample(data.text.source[0], outputs[0], data.text.target[0])
        score = exact_match(outputs, [[target] for target in data.text.target])
        return Evaluation((score,), (sample,), tuple(outputs), loss=1 - score.value)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        for text in model.translate(texts):
            yield Prediction(text, {"sorted": text})
