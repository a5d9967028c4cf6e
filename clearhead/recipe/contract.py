"""The settings of training that decide how a network reads an input. Imports no torch.

A run has it in its recipe, a saved model or adapter in `FILE`. Every way to ask reads texts by it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import JsonValue, PositiveInt, ValidationError

from clearhead.brief import brief
from clearhead.config import Config
from clearhead.config.adapter import Bits
from clearhead.errors import UserError, expectation
from clearhead.json_text import JsonObject

FILE = "clearhead_contract.json"
LONGEST = "model_max_length"
"""The setting of a tokenizer for the most tokens that other libraries keep of a text."""
REMEDY = "try the folder as it was saved"


class Contract(Config):
    """How training read texts. A field is None where nothing is known."""

    task: str | None = None
    """The task of the recipe."""
    max_length: PositiveInt | None = None
    """Most tokens of a text that the network reads at once, special ones included."""
    overlap: int | None = None
    """Tokens that two windows of a long context have in common."""
    pairs: bool | None = None
    """Whether every input is a pair of texts."""
    base_bits: Bits | None = None
    """The bits to which the matrices below adapters are rounded; None for as many as they are stored in."""
    base_dtype: str | None = None
    """The type of number of the model below adapters."""
    base_sha256: str | None = None
    """Hash of some numbers of every weight of the model below adapters."""

    @classmethod
    def of_recipe(cls, recipe: Mapping[str, JsonValue], n_marks: int, *, where: Path) -> Self:
        """The contract of a run, from the tables of its recipe; `n_marks` special tokens are around a source."""
        task, data = recipe.get("task"), recipe.get("data")
        if not isinstance(data, Mapping):
            return cls()
        preparation = data.get("preparation")
        length = data.get("max_length", data.get("length") if task == "masked_lm" else None)
        bare = data.get("length") if task == "denoising" else None
        bare = preparation.get("max_length") if isinstance(preparation, Mapping) else bare
        length = bare + n_marks if isinstance(bare, int) else length
        pairs = next((data[name] is not None for name in ("text_pair", "context") if name in data), None)
        return cls.read({"task": task, "max_length": length, "overlap": data.get("overlap"), "pairs": pairs}, where)

    def files(self) -> dict[str, JsonObject]:
        """The contract as a file; none if nothing is known."""
        known: JsonObject = self.model_dump(mode="json", exclude_none=True)
        return {FILE: known} if known else {}

    @classmethod
    def read(cls, content: object, where: Path) -> Self:
        """The contract in a file. Raises UserError if it holds no contract."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise UserError(f"{where}:{field}: {expectation(first)}, got {brief(first['input'])}; {REMEDY}") from None
