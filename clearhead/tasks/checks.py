"""What a task requires of an architecture."""

from typing import Any

from clearhead.config import ClassificationHead, Head, LanguageHead, ModelConfig, StackConfig, TokenInput
from clearhead.errors import UserError


def check_writes(config: ModelConfig, *, where: str) -> None:
    """Raises UserError unless the network gives every token a probability."""
    if not isinstance(config.head, LanguageHead):
        raise UserError(f"{where}.head.kind: expected language, got {config.head.kind}; try a model with such a head")


def check_decoder(config: ModelConfig, what: str, *, where: str, remedy: str) -> None:
    """Raises UserError unless the network is a decoder alone that gives every token a probability."""
    if config.encoder is not None or config.decoder is None:
        got = "an encoder alone" if config.decoder is None else "an encoder too"
        raise UserError(f"{where}: expected a decoder alone {what}, got {got}; {remedy}")
    check_writes(config, where=where)


def check_length(name: str, stack: StackConfig, length: int, *, remedy: str) -> None:
    """Raises UserError unless the stack's positions reach as far as the data."""
    if stack.max_length is not None and length > stack.max_length:
        raise UserError(f"model.{name}: expected positions for {length} tokens, got {stack.max_length}; {remedy}")


def check_vocabulary(name: str, stack: StackConfig, largest: int) -> None:
    """Raises UserError unless the stack has an embedding for every token of the data, up to the `largest`."""
    if isinstance(stack.input, TokenInput) and largest >= stack.input.vocab_size:
        raise UserError(
            f"model.{name}: expected tokens below {stack.input.vocab_size}, the size of its embedding, got {largest};"
            " try the tokenizer that belongs to it"
        )


def with_head(config: ModelConfig, head: Head) -> ModelConfig:
    """The architecture under another head. Raises ValidationError if they do not fit."""
    return ModelConfig.model_validate({**dict(config), "head": head})


def layers_of(head: Head) -> dict[str, Any]:
    """The fields of a classification head that other heads have too, so that a new head keeps its layers."""
    names = ("transform", "transform_bias", "bias", "dropout") if isinstance(head, ClassificationHead) else ()
    return {name: dict(head)[name] for name in names}
