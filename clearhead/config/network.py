"""A whole network, as data."""

from typing import Literal, Self

from pydantic import PositiveFloat, model_validator

from clearhead.config.base import Config
from clearhead.config.heads import Head, LanguageHead, NoHead, TaggingHead, VectorHead
from clearhead.config.inputs import TokenInput
from clearhead.config.pictures import PictureInput
from clearhead.config.positions import Rotary
from clearhead.config.stack import StackConfig

StackName = Literal["encoder", "decoder"]


class Init(Config):
    """The distribution of a new network's weights."""

    std: PositiveFloat = 0.02
    """Standard deviation of embeddings, and of matrices if `matrices` is normal."""
    matrices: Literal["normal", "xavier"] = "normal"
    """xavier: uniform with variance 2 / (fan_in + fan_out) (Glorot and Bengio 2010)."""
    depth_scaled: bool = True
    """Divide the matrices that write to the residual stream by sqrt(number of branches)."""


class ModelConfig(Config):
    """A whole network: encoder, decoder or both, and a head."""

    encoder: StackConfig | None = None
    decoder: StackConfig | None = None
    head: Head = LanguageHead()
    pictures: PictureInput | None = None
    """Pictures within the text of a decoder."""
    share_embeddings: bool = False
    """One token table for encoder and decoder."""
    init: Init = Init()

    @property
    def stacks(self) -> dict[StackName, StackConfig]:
        """The stacks by name, in the order in which they run."""
        both: dict[StackName, StackConfig | None] = {"encoder": self.encoder, "decoder": self.decoder}
        return {name: stack for name, stack in both.items() if stack is not None}

    @property
    def first(self) -> StackConfig:
        """The stack that reads the input: the encoder if there is one."""
        return next(iter(self.stacks.values()))

    @property
    def output(self) -> StackConfig:
        """The stack whose states the head reads."""
        return self.decoder or self.first

    @property
    def has_logits(self) -> bool:
        """True unless the network ends in its states or in a vector."""
        return not isinstance(self.head, NoHead | VectorHead)

    @property
    def predicts_tokens(self) -> bool:
        """True if its logits are of the tokens of a vocabulary."""
        return isinstance(self.head, LanguageHead)

    @property
    def continues_texts(self) -> bool:
        """True for a decoder alone that predicts tokens."""
        return self.encoder is None and self.predicts_tokens

    @property
    def answers_by_position(self) -> bool:
        """True if each position of the last stack has an answer of its own."""
        return isinstance(self.head, LanguageHead | TaggingHead)

    @property
    def is_encoder_decoder(self) -> bool:
        """True if one stack reads a text and the other writes another."""
        return len(self.stacks) == 2

    @property
    def is_causal(self) -> bool:
        """True if the last stack is a decoder, which attends only to the past."""
        return self.decoder is not None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.encoder is None and self.decoder is None:
            raise ValueError("encoder and decoder are both missing: give at least one")
        if self.encoder and self.decoder and self.encoder.d_model != self.decoder.d_model:
            raise ValueError(
                f"encoder.d_model={self.encoder.d_model} must equal decoder.d_model={self.decoder.d_model}"
            )
        if self.encoder is not None and self.encoder.mixer is not None:
            raise ValueError("encoder.mixer: its state reads only the past; move it to a decoder, or leave it out")
        if self.decoder is not None:
            read = self.decoder.input
            if not isinstance(read, TokenInput):
                raise ValueError("decoder.input must be tokens: a decoder writes text")
            if read.mask_id is not None:
                raise ValueError(
                    "decoder.input.mask_id: its factor depends on the whole text, which a decoder does not see"
                )
        if self.share_embeddings:
            tables = [s.input.vocab_size for s in self.stacks.values() if isinstance(s.input, TokenInput)]
            if len(tables) != 2 or tables[0] != tables[1]:
                raise ValueError(f"share_embeddings needs two token stacks with one vocab_size, got {tables}")
            widths = [stack.embed_width for stack in self.stacks.values()]
            if len({*widths}) > 1:
                raise ValueError(f"share_embeddings needs one width of the tables, got {widths}")
        if self.predicts_tokens and not isinstance(self.output.input, TokenInput):
            raise ValueError("head: a language head needs a stack that reads tokens")
        width, needed = self.output.embed_width, self.output.d_model
        if isinstance(self.head, LanguageHead) and not self.head.transform and width != needed:
            raise ValueError(f"head.transform=False needs input.width={width} to be d_model={needed}; set transform")
        return self

    @model_validator(mode="after")
    def _pictures(self) -> Self:
        if self.pictures is not None:
            text = None if self.decoder is None or self.encoder is not None else self.decoder.input
            if not isinstance(text, TokenInput):
                raise ValueError("pictures need a decoder without an encoder, whose text they stand in")
            if self.pictures.mark_id >= text.vocab_size:
                raise ValueError(f"pictures.mark_id={self.pictures.mark_id} must be below vocab_size={text.vocab_size}")
            positions = self.output.positions
            if self.pictures.any_size and (not isinstance(positions, Rotary) or positions.sections is None):
                raise ValueError("pictures of any size need decoder.positions.sections, which turn by row and column")
            if self.pictures.any_size and self.output.window is not None:
                raise ValueError("pictures of any size need a decoder without window")
        return self
