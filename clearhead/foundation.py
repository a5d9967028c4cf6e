"""Another checkpoint as the start of a run."""

import torch
from pydantic import ValidationError

from clearhead.api import Model, load, named_config
from clearhead.config import Head, ModelConfig
from clearhead.errors import UserError
from clearhead.families import family_for
from clearhead.model import Transformer
from clearhead.model.assign import assemble, merged, new_head
from clearhead.randomness import key
from clearhead.recipe import ModelChoice, Recipe, explain
from clearhead.storage.tensors import model_tensors
from clearhead.tasks.registry import find
from clearhead.training.fitting import check_model
from clearhead.training.ranks import ALONE, Ranks
from clearhead.weights.hub import locate

SPECIAL = ("start_id", "end_ids", "pad_id", "forced_first_id", "forced_last_id", "banned_ids")
"""Settings of generation that come from the checkpoint and its tokenizer."""


def foundation(recipe: Recipe, ranks: Ranks = ALONE) -> Model:
    """The model that `model.start` names, in float32, with the recipe's dropouts and its settings of generation.

    The checkpoint's special tokens stay unless the recipe names others. Raises UserError for a model that cannot do the
    recipe's task, and OutOfMemory for one that cannot be trained here.
    """
    name = recipe.model.start
    assert name is not None
    check_model(named_config(str(locate(name))), recipe.training, ranks, recipe.adapter)
    model = load(name, dtype=torch.float32)
    find(recipe.task, where="task").check_kind(model.config, where=name, remedy="try another model.start")
    if not model.has_tokenizer:
        raise UserError(f"{name}: expected a tokenizer with the model, got none; try to put its files into the folder")
    config = with_dropouts(model.config, recipe.model)
    # Copies, because loaded tensors are mapped from files that may be gone before they are read.
    tensors = {tensor: values.clone() for tensor, values in model_tensors(merged(model.network)).items()}
    ours, ids = dict(recipe.generation), model.tokenizer
    theirs = dict(model.generation)
    kept = {field: theirs[field] for field in SPECIAL if ours[field] in (None, ())}
    generation = recipe.generation.model_copy(update=kept)
    return Model(
        assemble(config, tensors, where=name),
        ids,
        generation.with_ids(start_id=ids.bos_id, end_id=ids.eos_id, pad_id=ids.pad_id),
    )


def under_head(network: Transformer, head: Head, *, seed: int) -> Transformer:
    """The same network under a new head, which is drawn at random and has the layers that its family gives it."""
    known = family_for(network.config)
    head = head if known is None else known[0].fitting(head)
    torch.manual_seed(key(seed, "init"))
    config, tensors = new_head(network.config, model_tensors(network), head)
    return assemble(config, tensors, where="model.start")


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
