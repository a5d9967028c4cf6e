"""From text to text: an encoder-decoder learns to translate, summarise, correct or otherwise rewrite, by teacher
forcing (Vaswani et al. 2017, 3.1; Raffel et al. 2020).
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

from clearhead.config import Config, ModelConfig
from clearhead.data.corpus import encoded_pairs
from clearhead.data.encoded import EncodedPairs
from clearhead.data.sources import Pairs
from clearhead.data.sources import pairs_of as pairs_in
from clearhead.data.splits import pair_splits
from clearhead.errors import UserError
from clearhead.generation.settings import searching
from clearhead.json_text import tabbed
from clearhead.model import Transformer
from clearhead.recipe import Recipe
from clearhead.recipe.data import Data, HeldOut, Preparation, Source
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.evaluation import Evaluation, Example, Sample
from clearhead.tasks.floors import Floor
from clearhead.tasks.scores import Score, of_each, perplexity
from clearhead.tasks.sequence_to_sequence import SequenceToSequence, check_encoder_decoder
from clearhead.tasks.task import Batch, Files, HeadLoss, Prediction, Prepared, R, RecipeTask, Trained
from clearhead.tasks.text_scores import (
    MAIN,
    Metric,
    Tokenize,
    bleu,
    bleu_metric,
    bleu_name,
    bleu_tokenizer,
    chrf,
    exact_match,
    moses_bleu,
    written_scores,
)
from clearhead.text.languages import known_tags, prefix_of, tag_for, tags_of, untagged, with_prefix
from clearhead.text.special_tokens import source_tokens
from clearhead.text.tokenizers import Tokenizer

N_SAMPLES = 4


class PairData(Data):
    """Sources and targets, such as sentences and their translations."""

    test: Source | None = None
    held_out: HeldOut = 1000
    """Training pairs that are held out for validation if `valid` is None, by number or share, chosen by the hash of
    their source; at most a fifth."""
    preparation: Preparation = Preparation()


@dataclass(eq=False)
class PairTask(HeadLoss, RecipeTask[R]):
    """p(target | source), one token after another."""

    measures = ("beams", "length_penalty")
    higher_is_better = True

    tokenizer: Tokenizer
    train: EncodedPairs
    valid: EncodedPairs
    _: KW_ONLY
    max_tokens: int
    packed: bool = True
    generation: GenerationConfig

    def __post_init__(self) -> None:
        settings = {"max_tokens": self.max_tokens, "packed": self.packed, "generation": self.generation}
        self.pairs = SequenceToSequence(self.tokenizer, **settings)
        self.n_marks = len(self.pairs.source_tokens) + len(self.pairs.target_tokens)

    @abstractmethod
    def scores(self, outputs: Sequence[str], text: Pairs) -> tuple[Score, ...]:
        """The scores of these outputs, the main one first."""

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return self.pairs.plan(self.train, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.pairs.batch([self.train.source[i] for i in examples], [self.train.target[i] for i in examples])

    def fit(self, config: ModelConfig) -> ModelConfig:
        self.check_kind(config, where="model", remedy="try preset transformer-tiny")
        self.pairs.check(config, self.train, self.valid, remedy="try a lower data.preparation.max_length")
        return config

    def score(self, network: Transformer, data: EncodedPairs) -> Evaluation:
        """Writes an output for each source, and measures the outputs and the perplexity of the targets."""
        outputs = self.pairs.write(network, data.source, self.generation)
        nats, n_tokens = self.pairs.log_loss(network, data.source, data.target)
        scores = (*self.scores(outputs, data.text), perplexity(nats, n_tokens))
        sentences = next((score for score in scores if score.name == "chrf"), None)
        sentences = sentences or chrf(outputs, [[target] for target in data.text.target])
        rows = zip(data.text.source, outputs, data.text.target, of_each(sentences), strict=True)
        examples = tuple(
            Example(source, output, target, 100 - share, output != target) for source, output, target, share in rows
        )
        samples = tuple(Sample(one.source, one.output, one.reference) for one in examples[:N_SAMPLES])
        return Evaluation(scores, samples, tuple(outputs), nats / n_tokens, examples)

    def floors(self, held_out: Mapping[str, EncodedPairs]) -> Iterator[Floor]:
        """What copies of the sources score."""
        for split, pairs in held_out.items():
            copies = [self.bare(source) for source in pairs.text.source]
            yield Floor.of("copy of the source", split, self.scores(copies, pairs.text)[0])

    @abstractmethod
    def bare(self, source: str) -> str:
        """A source without the task's prefix, as in the data."""

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts the output text for each input."""
        for text in model.translate(texts):
            yield Prediction(tabbed(text), {"text": text})


def pairs_of(model: Trained, recipe: Any, source: Source | None, *, prefix: str = "", tag: str = "") -> EncodedPairs:
    """The pairs of a source, or the test (else validation) pairs of a recipe, as the model reads them.

    `prefix` is put before each source. So is `tag`, with which the pairs of the recipe begin that are taken.
    """
    if source is not None:
        text = Pairs.of((prefix + tag + text, target) for text, target in pairs_in(source))
    else:
        splits = pair_splits(recipe.data, recipe.data.held_out, prefix=prefix)
        text = Pairs.of(row for row in splits.get("test", splits["valid"]) if row[0].startswith(tag))
    pairs, limit = EncodedPairs.of(text, model.tokenizer), model.contract.max_length
    room = None if limit is None else max(limit - len(source_tokens(model.tokenizer)), 0)
    return replace(pairs, source=[ids[:room] for ids in pairs.source])


# --- translation ------------------------------------------------------------------------------------------------------


class EvaluationConfig(Config):
    """The settings of the scores that choose the best checkpoint."""

    tokenize: Tokenize = "auto"
    """The tokenizer of BLEU, by sacreBLEU's name; auto: by the script of the reference translations.

    auto takes zh for Chinese, char for other scripts without spaces (Japanese, Thai, Lao, Khmer, Burmese), else 13a.
    """


class TranslationRecipe(Recipe):
    """How to train a translator."""

    task: Literal["translation"]
    data: PairData
    evaluation: EvaluationConfig = EvaluationConfig()


@dataclass(eq=False)
class Translation(PairTask[TranslationRecipe]):
    """Sentences and their translations.

    Raises UserError if the package of BLEU's tokenizer is not installed.
    """

    recipe = TranslationRecipe
    files = Files("sentences and their translations", {"kind": "parallel", "source": "--source", "target": "--target"})
    measures = ("beams", "length_penalty", "tokenize", "moses", "to")
    verb = "translate"
    use = 'translate {} "A sentence."'

    tokenize: Tokenize = "auto"
    """BLEU's tokenizer; "auto" chooses by the references of `valid`."""
    tags: Mapping[str, str] | None = None
    """The tag of each language, if there are several."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.of_all: Tokenize = bleu_tokenizer(self.valid.text.target) if self.tokenize == "auto" else self.tokenize
        bleu_metric(self.of_all)  # Reports a missing package before anything takes long.
        self.main_score = "bleu" if self.tags else bleu_name(self.of_all)

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
            return bleu(outputs, references, tokenize=self.of_all), chrf(outputs, references), exact
        found: list[Score] = []
        for language, tag in self.tags.items():
            rows = [i for i, source in enumerate(text.source) if source.startswith(tag)]
            if rows:
                own, references = [outputs[i] for i in rows], [[text.target[i]] for i in rows]
                both = bleu(own, references, tokenize=self.tokenize), chrf(own, references)
                found += [replace(score, name=f"{score.name.split('_')[0]}.{language}") for score in both]
        if not found:
            raise UserError(
                f"data: expected sources that begin with {' or '.join(self.tags.values())}, got none; try --to"
            )
        means = [score.value for score in found if score.name.startswith("bleu.")]
        return Score(self.main_score, sum(means) / len(means), f"mean of {len(means)}"), *found, exact

    def bare(self, source: str) -> str:
        return untagged(source, [*(self.tags or {}).values()])

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
        found = task.score(model.network, pairs)
        extra = (moses_bleu(found.outputs, pairs.text.target, moses),) if moses else ()
        return replace(found, scores=(*found.scores, *extra))


# --- other texts ------------------------------------------------------------------------------------------------------


class TextToTextData(PairData):
    """Sources and targets, in two columns of a table or dataset."""

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


@dataclass(eq=False)
class TextToText(PairTask[TextToTextRecipe]):
    """Sources, each with its prefix, and targets. Raises UserError if the metric cannot judge the targets."""

    recipe = TextToTextRecipe
    files = Files("a table of sources and targets", {"kind": "table", "path": "--data"})
    verb = "summarize"
    use = 'summarize {} "A text."'

    metric: Metric = "rouge"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.main_score = MAIN[self.metric]
        written_scores(self.metric, self.valid.text.target, self.valid.text.target)

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        check_encoder_decoder(config, "to write a text for another", where=where, remedy=remedy)

    def scores(self, outputs: Sequence[str], text: Pairs) -> tuple[Score, ...]:
        """The chosen metric, and exact match."""
        found = written_scores(self.metric, outputs, text.target)
        exact = () if self.metric == "exact_match" else (exact_match(outputs, [[target] for target in text.target]),)
        return (*found, *exact)

    def bare(self, source: str) -> str:
        return source.removeprefix(prefix_of(self.tokenizer))

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
        return task.score(model.network, pairs)
