"""Generates text with edits: one position at a time, each edit at its own positions."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.api import Model
from clearhead.explorer.answering.edits import Window
from clearhead.generation import Finished, Hypothesis, Step, generate
from clearhead.generation.settings import GREEDY, changed
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import Edit

LONGEST = 200
"""The most tokens that a model writes if no target is given."""


@dataclass
class EditedGeneration:
    """A model that continues a text, or writes a target. Use it from one thread that holds the lock."""

    model: Model
    inputs: list[Tokens]
    """One a stack; the decoder of an encoder-decoder begins with its start token."""
    edit: dict[str, Edit]
    window: Window
    left_out: tuple[str, ...] = ()
    """The addresses of edits that cannot be made during generation."""
    best: tuple[Hypothesis, ...] = ()
    """The results, best first; empty before `steps` has ended."""

    @property
    def notes(self) -> tuple[str, ...]:
        """A note about the edits that were left out, if any."""
        if not self.left_out:
            return ()
        return (f"This was written without the edits of {', '.join(self.left_out)}, which need the whole text.",)

    def steps(self, config: GenerationConfig) -> Iterator[Step]:
        """Generates one step a token."""
        prompt, source = self.inputs[-1], self.inputs[0] if self.model.is_encoder_decoder else None
        self.window.start = 0
        with torch.no_grad(), self.model.tracing(self.edit) if self.edit else nullcontext() as seen:
            for event in generate(self.model.network, prompt, source=source, config=config):
                if isinstance(event, Finished):
                    self.best = tuple(event.hypotheses[0])
                else:
                    if seen is not None:
                        seen._values.clear()  # Nobody reads them, and they would pile up.
                    self.window.start = prompt.grid[1] + event.index
                    yield event

    def logits(self, written: list[int]) -> Tensor:
        """t v: the logits from which each written token was chosen."""
        read = self.inputs[-1].ids
        ids = torch.cat([read, torch.tensor([written[:-1]], dtype=torch.long, device=read.device)], 1)
        self.window.start = 0
        watched = self.model.tracing(self.edit) if self.edit else nullcontext()
        with Evaluating(self.model.network), torch.no_grad(), watched:
            logits = self.model.network(*self.inputs[:-1], Tokens(ids))
        return logits[0, read.shape[1] - 1 :].float()


def greedy(model: Model) -> GenerationConfig:
    """The model's settings, with greedy decoding and at most LONGEST tokens."""
    settings = model.settings()
    longest = min(settings.max_new_tokens, LONGEST)
    lengths = {"max_new_tokens": longest, "min_new_tokens": min(settings.min_new_tokens, longest)}
    return changed(settings, GREEDY | lengths)
