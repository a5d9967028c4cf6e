"""Describes the model to a page, and hands out the page's texts in other languages."""

from typing import Annotated, Any

from pydantic import Field

from clearhead.analysis.features import Features
from clearhead.api.sentences import Sentences
from clearhead.api.variants import changed, position_kinds
from clearhead.config import ClassificationHead, ModelConfig, TaggingHead
from clearhead.errors import UserError
from clearhead.explorer.answering.opened import Opened, stated
from clearhead.explorer.answering.replies import Reply
from clearhead.explorer.answering.requests import Asked
from clearhead.explorer.answering.starts import mask_of
from clearhead.explorer.answering.wording import worded
from clearhead.explorer.recording.sentences import vector_ops
from clearhead.explorer.static_files import catalogues
from clearhead.model.record import masks_of, ops_of


def about(opened: Opened) -> dict[str, Any]:
    """Everything that a page needs to know first, except for the questions that its host answers."""
    model, passes, config = opened.model, opened.passes, opened.model.config
    one = "image" if model.reader.reads_images else next(iter(config.stacks))
    labels = config.head.labels if isinstance(config.head, ClassificationHead | TaggingHead) else ()
    return {
        "name": opened.name,
        "kind": "encoder-decoder" if model.is_encoder_decoder else one,
        "family": model.family,
        "parameters": sum(parameter.numel() for parameter in model.network.parameters()),
        "dtype": str(next(model.network.parameters()).dtype).removeprefix("torch."),
        "limits": {name: stack.max_length for name, stack in config.stacks.items()},
        "has_tokenizer": model.has_tokenizer,
        "labels": list(labels) or None,
        "mask": mask_of(model),
        "step": passes.moments.step,
        "plan": plan_of(config, model.sentences),
        "history": passes.moments.history(),
        "losses": passes.moments.losses(),
        "compared": opened.compared_name,
        "revision": opened.revision,
        "start": stated(opened.start),
        "examples": [stated(example) for example in opened.examples],
        "languages": list(catalogues()) or ["en"],
        "walks": list(opened.walks),
        "features": [
            {"address": one.address, "writes": one.writes, "n": one.n, "source": one.source}
            for one in model.network.attached
            if isinstance(one, Features)
        ],
        "changes": {"scale": changed(config, scale=False) != config, "positions": position_kinds(config)},
    }


def plan_of(config: ModelConfig, sentences: Sentences) -> dict[str, object]:
    """How the values of a network are computed, and the vector of a sentence encoder of these."""
    ops = [*ops_of(config), *vector_ops(config, sentences)]
    return {
        "config": config.model_dump(mode="json"),
        "ops": [op.model_dump(mode="json", exclude_defaults=True) for op in ops],
        "masks": {name: mask.model_dump(mode="json") for name, mask in masks_of(config).items()},
    }


class TextsQuestion(Asked):
    """Asks for the page's texts in a language."""

    language: Annotated[str, Field(max_length=20)]


def texts(opened: Opened, question: TextsQuestion) -> Reply:
    """The texts by their keys."""
    known = catalogues()
    if question.language not in known:
        raise UserError(f"language: expected one of {', '.join(known) or 'none'}, got {question.language}")
    return Reply({"texts": worded(known[question.language], opened.model.config)})
