"""Models of two towers: CLIP and SigLIP, as a pair of families and what compares their vectors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clearhead.checkpoints.families.family import COMMON, Family
from clearhead.checkpoints.families.pictures_and_sounds import clip, siglip
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import ANOTHER, FieldMap, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, rename, reshape
from clearhead.config import ModelConfig
from clearhead.errors import refuse


@dataclass(frozen=True)
class Towers:
    """A model of two towers in the reference library."""

    model_type: str
    architecture: str
    text: Family
    image: Family
    has_bias: bool
    """Whether a number is added to every logit."""
    template: str
    """The sentence about a label, as the pipeline of the reference library writes it."""
    shared: tuple[str, ...] = ()
    """Fields at the top that count for both towers."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The values of these fields where a config leaves them out."""

    @property
    def families(self) -> tuple[Family, Family]:
        """The families of the two towers: of texts and of pictures."""
        return self.text, self.image

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What compares the vectors: one number is a list of one in SigLIP."""
        if not self.has_bias:
            return (rename("logit_scale", "logit_scale"),)
        return tuple(reshape(name, name, there=[1], here=[]) for name in ("logit_scale", "logit_bias"))

    def check(self, document: Mapping[str, Any], *, where: str) -> None:
        """Raises UserError for another class than the two towers together, and for a field that is not supported."""
        names = document.get("architectures") or [self.architecture]
        if names != [self.architecture]:
            raise refuse(f"{where}:architectures", self.architecture, short(names), "try a folder of that class")
        for part in ("text_config", "vision_config", "text_config_dict", "vision_config_dict"):
            if not isinstance(document.get(part) or {}, Mapping):
                raise refuse(f"{where}:{part}", "a table", short(document[part]), ANOTHER)
        own = [same(name, default=self.defaults[name]) for name in self.shared]
        numbers = ignored("logit_scale_init_value", "initializer_factor", "initializer_range")
        rest = {name: said for name, said in document.items() if not name.startswith(("text_config", "vision_config"))}
        FieldMap((*own, numbers, *COMMON)).values(rest, where=where)

    def towers(self, document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The configs of the two towers: of texts and of pictures."""
        shared = {name: document.get(name, self.defaults[name]) for name in self.shared}
        both = zip(self.families, ("text_config", "vision_config"), strict=True)
        text, image = (
            {
                **_part(document, name),
                **shared,
                "model_type": family.model_type,
                "architectures": [family.heads[0].architecture],
            }
            for family, name in both
        )
        return text, image

    def written(self, text: ModelConfig, image: ModelConfig) -> dict[str, Any] | None:
        """The config of two towers; None if they are none of this kind."""
        said, shown = self.text.write(text), self.image.write(image)
        if said is None or shown is None:
            return None
        (text_document, text_head), (image_document, image_head) = said, shown
        if (text_head, image_head) != (self.text.heads[0], self.image.heads[0]):
            return None
        shared = {name: text_document[name] for name in self.shared}
        top = {"architectures": [self.architecture], "model_type": self.model_type, **shared}
        return {**top, "text_config": text_document, "vision_config": image_document}


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The config of one tower. An older field, where it is there, takes precedence with all its defaults."""
    older = document.get(f"{name}_dict")
    return (document.get(name) or {}) if older is None else older


CLIP = Towers(
    "clip",
    "CLIPModel",
    clip.TEXT,
    clip.IMAGE,
    has_bias=False,
    template="This is a photo of {}.",
    shared=("projection_dim",),
    defaults={"projection_dim": 512},
)
SIGLIP = Towers("siglip", "SiglipModel", siglip.TEXT, siglip.IMAGE, has_bias=True, template="This is a photo of {}.")
TOWERS = (CLIP, SIGLIP)


def towers_of(document: Mapping[str, Any]) -> Towers | None:
    """The model of two towers that a config names; None if it names none."""
    return next((one for one in TOWERS if one.model_type == document.get("model_type")), None)
