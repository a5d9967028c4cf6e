"""A part of a network as data, and how another package adds a kind of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, TypeGuard

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from clearhead.config.base import Config
from clearhead.errors import UserError
from clearhead.extensions import extensions, load_extension


class Mechanism(Config):
    """The config of one part of a network, such as its positions.

    Another package names its kinds `PACKAGE.NAME`, and the entry point of each in the group `clearhead.mechanisms` too.
    """

    builds: ClassVar[str]
    """The module of the part, `module:object`: it is called with the config first."""
    kind: str

    def build(self, *inputs: Any, **options: Any) -> Any:
        """The module of the part. Further arguments depend on the part."""
        return load_extension("mechanisms", self.kind, self.builds)(self, *inputs, **options)


def is_added(kind: object) -> TypeGuard[str]:
    """Returns True if this is the name of a kind that another package adds."""
    return isinstance(kind, str) and "." in kind


def load_added(kind: str) -> Any:
    """What another package adds under this name. Raises UserError, which names the package, if it is not installed."""
    known = extensions("mechanisms")
    where = known.get(kind)
    if where is None:
        nearest = get_close_matches(kind, known, n=1) or [f"pip install {kind.rpartition('.')[0]}"]
        raise UserError(f"expected a mechanism that is installed, got {kind}; try {nearest[0]}")
    return load_extension("mechanisms", kind, where)


@dataclass(frozen=True)
class Kinds:
    """The kinds that a field takes: `own`, and those that other packages add.

    Theirs are subclasses of `base`, or names of functions if that is None.
    """

    own: Any
    base: type[Mechanism] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        as_it_is = core_schema.wrap_serializer_function_ser_schema(
            lambda value, serialize: serialize(value), schema=core_schema.any_schema()
        )
        own = handler.generate_schema(self.own)
        return core_schema.no_info_wrap_validator_function(self._validate, own, serialization=as_it_is)

    def _validate(self, value: Any, validate_own: Callable[[Any], Any]) -> Any:
        kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", value)
        if not is_added(kind) or (self.base is None and not isinstance(value, str)):
            return validate_own(_with_tuples(value))
        added = type(value) if isinstance(value, Mechanism) else load_added(kind)
        if self.base is None:
            return value
        if not issubclass(added, self.base):
            raise ValueError(f"expected a kind of {self.base.__name__}, got {kind}")
        if isinstance(value, str):
            return added(kind=kind)
        if isinstance(value, Mapping) and (wrong := next((x for x in value if x not in added.model_fields), None)):
            fields = [name for name in added.model_fields if name != "kind"]
            nearest = get_close_matches(wrong, fields, n=1)
            remedy = f"did you mean {nearest[0]}?" if nearest else f"try one of {', '.join(fields)}"
            raise ValueError(f"expected a field of {kind}, got {wrong}; {remedy if fields else 'remove it'}")
        return added.model_validate(value)


def _with_tuples(value: Any) -> Any:
    """The value with tuples for lists, which strict validation takes for no tuples once a validator wraps it."""
    if isinstance(value, Mapping):
        return {name: _with_tuples(item) for name, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


class NormConfig(Mechanism):
    """A norm of another package. Its module, a `clearhead.model.norm.Norm`, is built from it, the width and `axes`."""


Norm = Annotated[Literal["layer", "rms"] | NormConfig, Kinds(Literal["layer", "rms"], NormConfig)]
Activation = Annotated[str, Kinds(Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "squared_relu", "xielu"])]
"""An activation of another package is a function of a tensor."""
