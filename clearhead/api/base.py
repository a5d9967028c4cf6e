"""`ModelBase`: a network with its tokenizer, processors and settings, which the functions of this package take."""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import torch
from pydantic import JsonValue

from clearhead.api.reader import Images, Input, Reader
from clearhead.api.sentences import Sentences
from clearhead.config import ModelConfig, TokenInput
from clearhead.model import Tokens, Transformer
from clearhead.recipe.contract import LONGEST, Contract
from clearhead.recipe.generation import GenerationConfig
from clearhead.text.special_tokens import roles
from clearhead.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from clearhead.data.images import ImageProcessor
    from clearhead.data.sounds import SoundProcessor, WaveProcessor


class ModelBase:
    """A network, its tokenizer, its image or sound processor, and its default settings of generation."""

    def __init__(
        self,
        network: Transformer,
        tokenizer: Tokenizer | None = None,
        generation: GenerationConfig | None = None,
        *,
        images: "ImageProcessor | None" = None,
        sounds: "SoundProcessor | WaveProcessor | None" = None,
        sentences: Sentences | None = None,
        contract: Contract | None = None,
        family: str | None = None,
        about: Mapping[str, JsonValue] | None = None,
        recipe: Mapping[str, JsonValue] | None = None,
        base: str | None = None,
    ) -> None:
        """`contract` says how training read texts, `sentences` how `embed` makes one vector of a text, `family` as
        which architecture to save if several fit, and `about` what a model card says about the training. `recipe` has
        the tables that the model was trained by, if it comes from a run. `base` names the model that its adapters are
        of.
        """
        self.contract = contract or Contract()
        self.network = network
        self.reader = Reader(network.config, tokenizer, images, sounds, self.contract.max_length)
        self.generation = generation or GenerationConfig()
        self.sentences, self.family, self.about = sentences or Sentences(), family, dict(about or {})
        self.recipe, self.base = recipe, base

    def __repr__(self) -> str:
        """The stacks and the head in one line."""
        sizes = [f"{name} of {s.n_layers} x {s.d_model}" for name, s in self.config.stacks.items()]
        return f"Model({', '.join([*sizes, f'{self.config.head.kind} head'])})"

    def put_under(self, contract: Contract) -> None:
        """Reads texts as this contract says, in place."""
        self.contract, self.reader = contract, replace(self.reader, max_length=contract.max_length)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises UserError if the model came without one."""
        return self.reader.words

    @property
    def has_tokenizer(self) -> bool:
        """True if the model came with a tokenizer."""
        return self.reader.tokenizer is not None

    @property
    def images(self) -> "ImageProcessor":
        """The image processor. Raises UserError if the model came without one."""
        return self.reader.pictures

    @property
    def config(self) -> ModelConfig:
        """The architecture."""
        return self.network.config

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.network.device

    @property
    def is_encoder_decoder(self) -> bool:
        """True if the model reads one text and writes another."""
        return self.config.is_encoder_decoder

    def around(self, network: Transformer, about: Mapping[str, JsonValue] | None = None) -> Self:
        """A model around another network, with everything of this one but `about` and `base`."""
        model = copy(self)
        model.network, model.about, model.base = network, dict(about or {}), None
        model.reader = replace(self.reader, config=network.config)
        return model

    def inputs(self, text: Input, other: str | None = None, *, image: Images = None) -> list[Tokens]:
        """The tokens of an input for each stack, on the network's device."""
        return [self.here(tokens) for tokens in self.reader.inputs(text, other, self.generation, image)]

    def here(self, tokens: Tokens) -> Tokens:
        """The tokens on the network's device, and pixels in its type."""
        if tokens.pictures is not None:
            tokens = replace(tokens, pictures=tokens.pictures.to(self.network.dtype))
        if tokens.ids.is_floating_point():
            tokens = replace(tokens, ids=tokens.ids.to(self.network.dtype))
        return tokens.to(self.device)

    def tokenizer_files(self) -> dict[str, bytes]:
        """The tokenizer in the form of other libraries, with this model's limit, side of padding and roles of tokens.

        That of an encoder-decoder adds the end token.
        """
        tokenizer, reads = self.tokenizer.ending() if self.is_encoder_decoder else self.tokenizer, self.config.first
        stated, types = tokenizer.settings.get(LONGEST), isinstance(reads.input, TokenInput) and reads.input.n_types > 1
        limits = [self.contract.max_length or stated, reads.max_length]
        limit = min((one for one in limits if isinstance(one, int)), default=None)
        settings: dict[str, object] = {
            LONGEST: limit,
            "padding_side": "left" if self.config.continues_texts else "right",
            "model_input_names": ["input_ids", *["token_type_ids"] * types, "attention_mask"],
            **({} if self.config.decoder else roles(tokenizer)),
        }
        return tokenizer.to_files(**{name: value for name, value in settings.items() if value is not None})

    def settings(self, config: GenerationConfig | None = None) -> GenerationConfig:
        """These settings of generation, by default the model's own, with the tokenizer's special tokens."""
        config, ids = config or self.generation, self.tokenizer if self.has_tokenizer else None
        return config if ids is None else config.with_ids(start_id=ids.bos_id, end_id=ids.eos_id, pad_id=ids.pad_id)
