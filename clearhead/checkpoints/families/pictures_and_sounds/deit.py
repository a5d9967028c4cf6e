"""The image encoder of Touvron et al. 2020, with a second token that learns from a teacher."""

from collections.abc import Sequence

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.pictures_and_sounds import vit
from clearhead.checkpoints.families.pictures_and_sounds.vit import bare, classifier, fields, unread_pooler
from clearhead.checkpoints.families.shared import labels, problem_type
from clearhead.checkpoints.weights.mapping import Rule, rename, reshape
from clearhead.config import ModelConfig

PREFIX = "deit."


def rules(config: ModelConfig) -> Sequence[Rule]:
    """The rules of a model without a teacher, and the token that learns from the teacher."""
    assert config.encoder is not None
    d = config.encoder.d_model
    token = reshape("embeddings.distillation_token", "encoder.embed.registers", there=[1, 1, d], here=[1, d])
    return (token, *vit.rules(config))


HEADS = (
    classifier("DeiTForImageClassification", PREFIX),
    HeadMap(
        "DeiTForImageClassificationWithTeacher",
        {"head.kind": "classification", "head.distilled": True},
        lambda _: (
            rename("cls_classifier.{p}", "head.output.{p}"),
            rename("distillation_classifier.{p}", "head.distilled.{p}"),
            unread_pooler(PREFIX),
        ),
        (*labels(), problem_type()),
        prefix=PREFIX,
    ),
    bare("DeiTModel"),
)

FAMILY = Family(
    model_type="deit",
    constants={**vit.CONSTANTS, "encoder.input.n_registers": 1},
    fields=fields(n_first=2),
    rules=rules,
    heads=HEADS,
)
