"""config.json of well-known models: all their fields, decoders in small sizes and encoders as they are on the hub."""

import json
from pathlib import Path
from typing import Any

CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
