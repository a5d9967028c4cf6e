"""Translation: source sentences in, target sentences out, by teacher forcing (Vaswani et al. 2017, 3.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from clearhead.config import Config, ModelConfig
from clearhead.data.corpus import encoded_pairs
from clearhead.data.encoded import EncodedPairs
from clearhead.data.sources import Pairs
from clearhead.errors import UserError
from clearhead.generation.settings import searching
from clearhead.recipe import Recipe
from clearhead.recipe.data import Data, HeldOut, Preparation, Source
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.evaluation import Evaluation
from clearhead.tasks.scores import Score
from clearhead.tasks.sequence_to_sequence import PairTask, SequenceToSequence, check_encoder_decoder, pairs_of
from clearhead.tasks.task import Files, Prepared, Trained
from clearhead.tasks.text_scores import (
    Tokenize,
    bleu,
    bleu_metric,
    bleu_name,
    bleu_tokenizer,
    chrf,
    exact_match,
    moses_bleu,
)
from clearhead.text.languages import known_tags, tag_for, tags_of
from clearhead.text.tokenizers import Tokenizer


class TranslationData(Data):
    """Sentence pairs."""

    test: Source | None = None
    held_out: HeldOut = 1000
    """Training pairs that are held out for validation if `valid` is None, by number or share, chosen by the hash of
    their source; at most a fifth."""
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


class Translation(PairTask[TranslationRecipe]):
    """p(target | source), one token after another."""

    recipe = TranslationRecipe
    files = Files("sentences and their translations", {"kind": "parallel", "source": "--source", "target": "--target"})
    measures = ("beams", "length_penalty", "tokenize", "moses", "to")
    verb = "translate"
    use = 'translate {} "A sentence."'

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
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """`tokenize` names BLEU's tokenizer; "auto" chooses by the references of `valid`. `tags` are by language.

        Raises UserError if the package of that tokenizer is not installed.
        """
        self.tokenize: Tokenize = bleu_tokenizer(valid.text.target) if tokenize == "auto" else tokenize
        bleu_metric(self.tokenize)  # Reports a missing package before anything takes long.
        self.asked: Tokenize = tokenize
        self.main_score = "bleu" if tags else bleu_name(self.tokenize)
        self.tokenizer, self.train, self.valid = tokenizer, train, valid
        self.tags = dict(tags or {})
        self.pairs = SequenceToSequence(tokenizer, max_tokens=max_tokens, packed=packed, generation=generation)

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        check_encoder_decoder(config, "to translate", where=where, remedy=remedy)

    def scores(self, outputs: Sequence[str], text: Pairs) -> tuple[Score, ...]:
        """BLEU, chrF and exact match. For several languages the mean BLEU comes first, which is the main score, then
        BLEU and chrF of each language.
        """
        references = [[one] for one in text.target]
        exact = exact_match(outputs, references)
        if not self.tags:
            return bleu(outputs, references, tokenize=self.tokenize), chrf(outputs, references), exact
        found: list[Score] = []
        for language, tag in self.tags.items():
            rows = [i for i, source in enumerate(text.source) if source.startswith(tag)]
            if rows:
                own, references = [outputs[i] for i in rows], [[text.target[i]] for i in rows]
                both = bleu(own, references, tokenize=self.asked), chrf(own, references)
                found += [replace(score, name=f"{score.name.split('_')[0]}.{language}") for score in both]
        if not found:
            raise UserError(
                f"data: expected sources that begin with {' or '.join(self.tags.values())}, got none; try --to"
            )
        means = [score.value for score in found if score.name.startswith("bleu.")]
        return Score(self.main_score, sum(means) / len(means), f"mean of {len(means)}"), *found, exact

    @classmethod
    def prepare(cls, recipe: TranslationRecipe, tokenizer: Tokenizer | None) -> Prepared:
        data = recipe.data
        tags = tags_of(recipe)
        found = encoded_pairs(
            recipe, tokenizer, held_out=data.held_out, preparation=data.preparation, tags=[*tags.values()]
        )
        task = cls(
            found.tokenizer,
            found.train,
            found.valid,
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
            generation=recipe.generation,
            tokenize=recipe.evaluation.tokenize,
            tags=tags,
        )
        return Prepared(task, found)

    @classmethod
    def measure(
        cls, model: Trained, recipe: TranslationRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        """`moses` adds the BLEU of papers on small corpora, which has a tokenizer of its own. `to` is a language."""
        search, tags = dict(options), known_tags(model.tokenizer, recipe)
        before = tag_for(search.pop("to", None), tags)
        pairs = pairs_of(model, recipe, source, tag=before)
        tokenize = search.pop("tokenize", recipe.evaluation.tokenize if recipe else "auto")
        moses, generation = search.pop("moses", None), searching(model.generation, search)
        task = cls(model.tokenizer, pairs, pairs, max_tokens=4096, generation=generation, tokenize=tokenize, tags=tags)
        found = task.evaluate(model.network)
        extra = (moses_bleu(found.outputs, pairs.text.target, moses),) if moses else ()
        return replace(found, scores=(*found.scores, *extra))
