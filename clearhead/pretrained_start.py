"""Another checkpoint as the start of a run."""

import torch
from pydantic import ValidationError

from clearhead.api import Model, load, named_config
from clearhead.checkpoints.families import family_for
from clearhead.checkpoints.weights.hub import locate
from clearhead.config import Head, ModelConfig
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.assign import assemble, merged, new_head
from clearhead.randomness import key
from clearhead.recipe import ModelChoice, Recipe, explain
from clearhead.storage.tensors import model_tensors
from clearhead.tasks.registry import find
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
    """The recipe with what its run takes from its network: which stacks read a text.

    From a checkpoint it takes the settings of generation too, and those of reading pictures and of making vectors
    unless it has its own.
    """
    fields = dict(recipe)
    found: dict[str, object] = {"rereads": len(config.stacks) == 2} if "rereads" in fields else {}
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
    return Fitting(recipe.training, ranks, recipe.adapter)


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
