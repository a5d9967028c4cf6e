"""Sounds as the samples that a model reads, as preprocessor_config.json describes (Baevski et al. 2020)."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue, PositiveInt, ValidationError

from clearhead.config import Config
from clearhead.data.sounds import ANOTHER, samples_of, stated
from clearhead.errors import UserError
from clearhead.recipe import explain
from clearhead.recipe.names import schema_of

EPS = 1e-7
"""Added to the variance of a sound."""

IGNORED: Final = frozenset(
    {
        *("feature_extractor_type", "processor_class", "transformers_version", "model_input_names", "device"),
        *("return_attention_mask", "padding_side", "padding"),
    }
)
ONLY: Final[Mapping[str, JsonValue]] = {"feature_size": 1, "padding_value": 0.0}


class WaveConfig(Config):
    """Fields of preprocessor_config.json."""

    sampling_rate: PositiveInt
    """Samples a second."""
    do_normalize: bool = True
    """Bring the samples of each sound to mean 0 and variance 1."""

    def to_document(self) -> dict[str, JsonValue]:
        """preprocessor_config.json with every field written out, the inverse of `read_preprocessor`."""
        kind = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "return_attention_mask": True}
        return {**kind, **ONLY, **self.model_dump(mode="json")}


def read_preprocessor(document: Mapping[str, JsonValue], *, where: str) -> WaveConfig:
    """Reads a preprocessor_config.json. Raises UserError for a field that is missing or not supported."""
    values = stated(document, ignored=IGNORED, only=ONLY, where=where)
    try:
        return WaveConfig.model_validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise UserError(f"{explain(error, where, schema=schema_of(WaveConfig))}; {ANOTHER}") from None


class WaveProcessor:
    """Sounds -> their samples in float32, equal to the reference library's for each sound alone."""

    def __init__(self, config: WaveConfig) -> None:
        self.config = config

    def __call__(self, sounds: Sequence[object]) -> list[NDArray[np.float32]]:
        """n for each of the sounds."""
        if isinstance(sounds, str) or not isinstance(sounds, Sequence) or not sounds:
            raise UserError("sounds: expected a list of at least one sound; try [sound]")
        read = [self.samples(sound, where=f"sounds[{i}]")[0] for i, sound in enumerate(sounds)]
        return [self.normalised(one) for one in read]

    def samples(self, sound: object, *, where: str = "sound") -> tuple[NDArray[np.float32], int]:
        """n: the samples of a `Sound` at the model's rate, and the rate that it had."""
        return samples_of(sound, self.config.sampling_rate, where=where)

    def normalised(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """(x - mean) / sqrt(variance + 1e-7), if the model was trained so."""
        if not self.config.do_normalize:
            return samples
        return ((samples - samples.mean()) / np.sqrt(samples.var() + EPS)).astype(np.float32)
