"""What stands beside the weights in other folders: how images are prepared, how sentence vectors are pooled."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.config import ModelConfig, PatchInput
from clearhead.errors import UserError
from clearhead.model.heads import Pool
from clearhead.weights.documents import read_json, shown

if TYPE_CHECKING:
    from clearhead.data.images import ImageProcessor

PREPROCESSOR = "preprocessor_config.json"
POOLING_FIELD = "pooling_of_texts"
POOLING = Path("1_Pooling") / "config.json"

MODES: dict[str, Pool] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}


def images_of(folder: Path, config: ModelConfig) -> "ImageProcessor | None":
    """How this model's images are prepared, where the folder says."""
    path = folder / PREPROCESSOR
    if not path.is_file():
        return None
    from clearhead.data.images import ImageProcessor, read_preprocessor

    reads = config.encoder.input if config.encoder else None
    n_channels = reads.n_channels if isinstance(reads, PatchInput) else None
    settings = read_preprocessor(read_json(path), where=str(path))
    return ImageProcessor(settings, n_channels=n_channels, where=str(path))


def pooling_of(folder: Path, document: Mapping[str, Any]) -> Pool:
    """How an encoder of sentences makes one vector of its states: as sentence-transformers' 1_Pooling says, or the
    config.json that we wrote; else the mean.
    """
    path, own = folder / POOLING, document.get(POOLING_FIELD)
    for mode in MODES.values():
        if own == mode:
            return mode
    if not path.is_file():
        return "mean"
    document = read_json(path)
    chosen = [name for name, value in document.items() if name.startswith("pooling_mode_") and value]
    if len(chosen) != 1 or chosen[0] not in MODES:
        got = shown(", ".join(chosen)) or "none"
        raise UserError(f"{path}: expected one of {', '.join(MODES)}, got {got}; use model.network")
    return MODES[chosen[0]]
