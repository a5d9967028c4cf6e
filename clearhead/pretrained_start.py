"""Another checkpoint as the start of a run."""

from collections.abc import Mapping

import torch
from pydantic import ValidationError

from clearhead.api import Model, load, named_config
from clearhead.brief import shorten
from clearhead.checkpoints.families import family_for
from clearhead.checkpoints.weights.hub import locate
from clearhead.config import Head, ModelConfig
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.assign import assemble, merged, new_head
from clearhead.randomness import key
from clearhead.recipe import ModelChoice, Recipe, explain
from clearhead.recipe.training import Training
from clearhead.storage.tensors import model_tensors
from clearhead.tasks.registry import find
from clearhead.text.tokenizers import Tokenizer
from clearhead.training.planning.fitting import Fitting
from clearhead.training.ranks import ALONE, Ranks

SPECIAL = ("start_id", "end_ids", "pad_id", "forced_first_id", "forced_last_id")
SPECIAL += ("banned_ids", "first_banned_ids", "speech")
"""Settings of generation that come from the checkpoint and its tokenizer."""


def pretrained_start(recipe: Recipe, ranks: Ranks = ALONE) -> Model:
    """The model that `model.start` names, in float32, with the recipe's dropouts and its settings of generation.

    The checkpoint's special tokens stay unless the recipe names others. Raises UserError for a model that cannot do the
    recipe's task, and OutOfMemory for one that cannot be trained here.
    """
    name = recipe.model.start
    assert name is not None
    fitting_of(recipe, ranks).check_model(named_config(str(locate(name))))
    model = load(name, dtype=torch.float32)
    find(recipe.task, where="task").check_kind(model.config, where=name, remedy="try another model.start")
    if not model.has_tokenizer and not model.reader.reads_images:
        raise UserError(f"{name}: expected a tokenizer with the model, got none; try to put its files into the folder")
    config = with_dropouts(model.config, recipe.model)
    # Copies, because loaded tensors are mapped from files that may be gone before they are read.
    tensors = {tensor: values.clone() for tensor, values in model_tensors(merged(model.network)).items()}
    ours, theirs = dict(recipe.generation), dict(model.generation)
    kept = {field: theirs[field] for field in SPECIAL if ours[field] in (None, ())}
    reads, network = model.reader, assemble(config, tensors, where=name)
    given = {"images": reads.images, "sounds": reads.sounds}
    begun = Model(network, reads.tokenizer, recipe.generation.model_copy(update=kept), **given)
    begun.sentences, begun.generation = model.sentences, begun.settings()
    return begun


def complete_recipe(recipe: Recipe, config: ModelConfig, base: Model | None) -> Recipe:
    """The recipe completed from its network: which stacks read a text.

    From a checkpoint it takes the settings of generation too, and those of reading pictures and of making vectors
    unless it has its own.
    """
    fields = dict(recipe)
    found: dict[str, object] = {"rereads": config.is_encoder_decoder} if "rereads" in fields else {}
    if "pictures" in fields:
        found["pictures"] = fields["pictures"] or (config.pictures and config.pictures.model_dump(mode="json"))
    if base is None:
        return recipe.model_copy(update=found)
    images, found = base.reader.images, found | {"generation": base.generation}
    if "pixels" in fields and images is not None:
        found["pixels"] = fields["pixels"] or images.explicit()
    if "pooling" in fields:
        theirs = base.sentences.pooling
        found["pooling"] = fields["pooling"] or theirs
    return recipe.model_copy(update=found)


def under_head(network: Transformer, head: Head, *, seed: int) -> Transformer:
    """The same network under a new head, which is drawn at random and has the layers that its family gives it."""
    known = family_for(network.config)
    head = head if known is None else known[0].fitting(head)
    torch.manual_seed(key(seed, "init"))
    config, tensors = new_head(network.config, model_tensors(network), head)
    return assemble(config, tensors, where="model.start")


def fitting_of(recipe: Recipe, ranks: Ranks) -> Fitting:
    """What decides the memory of a run of this recipe."""
    return Fitting(recipe.training, ranks, recipe.adapter, teacher_config(recipe.training))


def teacher_config(training: Training) -> ModelConfig | None:
    """The architecture of the teacher; None without one. Reads no weights."""
    return None if training.teacher is None else named_config(str(locate(training.teacher.start)))


def teacher_of(recipe: Recipe) -> Model | None:
    """The model from whose answers the recipe learns, in float32; None without one."""
    chosen = recipe.training.teacher
    return None if chosen is None else load(chosen.start, dtype=torch.float32).merge()


def teacher_for(
    recipe: Recipe, config: ModelConfig, files: Mapping[str, bytes], ranks: Ranks = ALONE
) -> Transformer | None:
    """The network of the teacher. `files` are those of the run's tokenizer, if it has one.

    Raises UserError unless the teacher reads and answers what the network of this config does.
    """
    teacher = teacher_of(recipe)
    if teacher is None:
        return None
    assert recipe.training.teacher is not None
    where = f"training.teacher: {recipe.training.teacher.start}"
    if ranks.size > 1 or recipe.training.compile:
        raise UserError("training.teacher: expected one process without compile; leave out one of the two")
    ours, theirs = _answers(config), _answers(teacher.config)
    if ours != theirs:
        raise UserError(f"{where}: expected {ours}, got {theirs}; try a teacher that was trained on the same labels")
    own = Tokenizer.from_files(files, where="tokenizer") if files else None
    if _vocabulary(own) != _vocabulary(teacher.reader.tokenizer):
        raise UserError(
            f"{where}: expected the tokenizer of the run, got another; leave out model.start, or the teacher"
        )
    return teacher.network


def _vocabulary(tokenizer: Tokenizer | None) -> dict[str, int]:
    return {} if tokenizer is None else tokenizer.library.get_vocab()


def _answers(config: ModelConfig) -> str:
    """What a network chooses from, in words. Raises UserError if it is not one of several answers."""
    head, reads = config.head, " and ".join(config.stacks)
    kind = getattr(head, "problem_type", None)
    if head.kind not in ("language", "classification", "tagging") or kind not in (None, "single_label_classification"):
        got = f"a {head.kind} head" if kind is None else kind
        raise UserError(f"training.teacher: expected a task with one of several answers, got {got}; leave it out")
    names = getattr(head, "labels", ())
    size = getattr(head, "n_labels", getattr(config.output.input, "vocab_size", 0))
    return f"{head.kind} by {reads} with {size} answers{': ' * bool(names)}{shorten(names)}"


def with_dropouts(config: ModelConfig, choice: ModelChoice) -> ModelConfig:
    """The architecture with the dropouts that a recipe gives its stacks."""
    tables = config.model_dump(mode="json")
    for stack, changes in {"encoder": choice.encoder, "decoder": choice.decoder}.items():
        if tables[stack] is not None:
            tables[stack] |= choice.stacks | changes
        elif changes:
            raise UserError(f"model.{stack}: {choice.start} has no {stack}; try model.stacks")
    try:
        return ModelConfig.model_validate(tables)
    except ValidationError as error:
        raise UserError(explain(error, "model")) from None
