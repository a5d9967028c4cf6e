"""Text to text: an encoder-decoder learns to summarise, correct or otherwise rewrite texts (Raffel et al. 2020)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from clearhead.config import Config, ModelConfig
from clearhead.data.corpus import encoded_pairs
from clearhead.data.encoded import EncodedPairs
from clearhead.data.sources import Pairs
from clearhead.generation.settings import searching
from clearhead.recipe import Recipe
from clearhead.recipe.data import Data, HeldOut, Preparation, Source
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.evaluation import Evaluation
from clearhead.tasks.scores import Score
from clearhead.tasks.sequence_to_sequence import (
    PairTask,
    SequenceToSequence,
    check_encoder_decoder,
    pairs_of,
)
from clearhead.tasks.task import Files, Prepared, Trained
from clearhead.tasks.text_scores import MAIN, Metric, exact_match, written_scores
from clearhead.text.languages import prefix_of, with_prefix
from clearhead.text.tokenizers import Tokenizer


class TextToTextData(Data):
    """Sources and targets, in two columns of a table or dataset."""

    test: Source | None = None
    held_out: HeldOut = 1000
    """Training pairs that are held out for validation if `valid` is None, by number or share, chosen by the hash of
    their source; at most a fifth."""
    prefix: str = ""
    """Text before each source, in training and in use, such as "summarize: " for a checkpoint that knows it."""
    preparation: Preparation = Preparation(max_length=512, too_long="cut")


class WritingConfig(Config):
    """The score that chooses the best checkpoint."""

    metric: Metric = "rouge"
    """rouge for summaries, bleu for sentences, chrf for any script, exact_match where one output is right."""


class TextToTextRecipe(Recipe):
    """How to train a network that rewrites texts."""

    task: Literal["text_to_text"]
    data: TextToTextData
    evaluation: WritingConfig = WritingConfig()


class TextToText(PairTask[TextToTextRecipe]):
    """p(target | prefix source), one token after another."""

    recipe = TextToTextRecipe
    files = Files("a table of sources and targets", {"kind": "table", "path": "--data"})
    measures = ("beams", "length_penalty")
    verb = "summarize"
    use = 'summarize {} "A text."'

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: EncodedPairs,
        valid: EncodedPairs,
        *,
        max_tokens: int,
        packed: bool = True,
        generation: GenerationConfig,
        metric: Metric = "rouge",
    ) -> None:
        """Pairs whose sources begin with the prefix. Raises UserError if the metric cannot judge the targets."""
        written_scores(metric, valid.text.target, valid.text.target)
        self.tokenizer, self.train, self.valid = tokenizer, train, valid
        self.metric, self.main_score = metric, MAIN[metric]
        self.pairs = SequenceToSequence(tokenizer, max_tokens=max_tokens, packed=packed, generation=generation)

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        check_encoder_decoder(config, "to write a text for another", where=where, remedy=remedy)

    def scores(self, outputs: Sequence[str], text: Pairs) -> tuple[Score, ...]:
        """The chosen metric, and exact match."""
        found = written_scores(self.metric, outputs, text.target)
        exact = () if self.metric == "exact_match" else (exact_match(outputs, [[target] for target in text.target]),)
        return (*found, *exact)

    @classmethod
    def prepare(cls, recipe: TextToTextRecipe, tokenizer: Tokenizer | None) -> Prepared:
        data = recipe.data
        found = encoded_pairs(
            recipe, tokenizer, held_out=data.held_out, preparation=data.preparation, prefix=data.prefix
        )
        task = cls(
            with_prefix(found.tokenizer, data.prefix),
            found.train,
            found.valid,
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
            generation=recipe.generation,
            metric=recipe.evaluation.metric,
        )
        return Prepared(task, replace(found, text_tokenizer=task.tokenizer))

    @classmethod
    def measure(
        cls, model: Trained, recipe: TextToTextRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        pairs = pairs_of(model, recipe, source, prefix=prefix_of(model.tokenizer))
        metric: Metric = recipe.evaluation.metric if recipe else "rouge"
        generation = searching(model.generation, options)
        task = cls(model.tokenizer, pairs, pairs, max_tokens=4096, generation=generation, metric=metric)
        return task.evaluate(model.network)
