"""`Model`, and `load`, which opens one from a folder or from the hub."""

from clearhead.api.folders import CONFIG, architecture, model_folder, model_json, named_config, read_config
from clearhead.api.loading import load
from clearhead.api.model import Model
from clearhead.api.towers import TwoTowerModel, load_towers

__all__ = [
    "CONFIG",
    "Model",
    "TwoTowerModel",
    "architecture",
    "load",
    "load_towers",
    "model_folder",
    "model_json",
    "named_config",
    "read_config",
]
