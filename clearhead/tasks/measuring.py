"""What several tasks do to measure a network: add up losses, write a text, compare texts with their references."""

from collections.abc import Iterable, Sequence

import torch

from clearhead.generation import complete
from clearhead.model import Transformer
from clearhead.model.mode import Evaluating
from clearhead.progress import counted
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.task import Batch, head_loss
from clearhead.text.tokenizers import Tokenizer


def losses(network: Transformer, batches: Iterable[Batch], n: int) -> list[tuple[float, int]]:
    """The summed loss of each of `n` batches by the network's head, and the number of its labels."""
    device, found = next(network.parameters()).device, list[tuple[float, int]]()
    with Evaluating(network), torch.inference_mode():
        for batch in counted(batches, "reading", n):
            total, count = head_loss(network, batch.to(device))
            found.append((total.item(), count))
    return found


def total_loss(network: Transformer, batches: Iterable[Batch], n: int) -> tuple[float, int]:
    """The summed loss of `n` batches by the network's head, and the number of their labels."""
    found = losses(network, batches, n)
    return sum(nats for nats, _ in found), sum(count for _, count in found)


def continued(network: Transformer, tokenizer: Tokenizer, prompt: Sequence[int], config: GenerationConfig) -> str:
    """The text that a decoder writes after these tokens."""
    written = complete(
        network,
        [prompt] if prompt else None,
        config=config,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id or 0,
        scored=False,
    )
    return tokenizer.decode(written[0][0].tokens)
