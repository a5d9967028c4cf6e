"""The transformers library's generate() around one of our networks: only the search is theirs."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoints.families.generation import write_generation
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig
from tests.generation.networks import PAD
from tests.later import later

transformers = later("transformers")


def wrapped(net: Transformer) -> Any:
    """Our network behind the library's interface, without a cache."""
    from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput, Seq2SeqLMOutput

    class Config(transformers.PretrainedConfig):
        model_type = "wrapped"

    class Encoder(torch.nn.Module):
        main_input_name = "input_ids"

        def forward(self, input_ids: Tensor, **_: object) -> BaseModelOutput:
            return BaseModelOutput(last_hidden_state=input_ids[..., None])

    class Wrapped(transformers.PreTrainedModel, transformers.GenerationMixin):
        config_class = Config
        main_input_name = "input_ids"

        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.net, self.encoder = net, Encoder()

        def get_encoder(self, *_: object, **__: object) -> Encoder:
            return self.encoder

        def prepare_inputs_for_generation(self, input_ids: Tensor, **kwargs: object) -> dict[str, object]:
            names = ("attention_mask", "encoder_outputs")
            return {"input_ids": input_ids, **{name: kwargs[name] for name in names if name in kwargs}}

        def forward(
            self,
            input_ids: Tensor,
            attention_mask: Tensor | None = None,
            encoder_outputs: BaseModelOutput | None = None,
            **_: object,
        ) -> CausalLMOutput | Seq2SeqLMOutput:
            valid = None if attention_mask is None else attention_mask.bool()
            if encoder_outputs is None:
                return CausalLMOutput(logits=self.net(Tokens(input_ids, valid)))
            assert encoder_outputs.last_hidden_state is not None
            source = Tokens(encoder_outputs.last_hidden_state[..., 0], valid)
            return Seq2SeqLMOutput(logits=self.net(source, Tokens(input_ids)))

    return Wrapped(Config(is_encoder_decoder=net.encoder is not None)).eval()


def texts(net: Transformer, rows: Sequence[Sequence[int]], config: GenerationConfig) -> list[list[int]]:
    """n_best texts of each row, best first, end tokens included, under the settings as `write_generation` has them.

    Sources are padded on the right, prompts on the left. To the library's n-gram control and forced first token padding
    is text: with them, one row at a time.
    """
    cross = net.encoder is not None
    settings = transformers.GenerationConfig(**write_generation(config, encoder_decoder=cross))
    found: list[list[int]] = []
    together = config.no_repeat_ngram is None and config.forced_first_id is None
    for batch in [rows] if together else [[row] for row in rows]:
        tokens = Tokens.pad(batch, fill=PAD, left=not cross)
        valid = torch.ones_like(tokens.ids) if tokens.valid is None else tokens.valid.long()
        written = wrapped(net).generate(tokens.ids, attention_mask=valid, generation_config=settings, use_cache=False)[
            :, 1 if cross else tokens.grid[1] :
        ]
        found += map(ended, written.tolist(), [config.end_ids] * len(written))
    return found


def ended(text: list[int], end_ids: Sequence[int]) -> list[int]:
    """A text up to its end token; the rest is padding."""
    end = next((i for i, token in enumerate(text) if token in end_ids), len(text))
    assert set(text[end + 1 :]) <= {PAD}
    return text[: end + 1]
