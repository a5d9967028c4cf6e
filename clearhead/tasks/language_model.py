"""Language modelling: the next token of running text (Radford et al. 2019)."""

from collections.abc import Sequence

import numpy as np
import torch

from clearhead.data.batches import spans, windows
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.model import Tokens, Transformer
from clearhead.recipe_generation import GenerationConfig
from clearhead.tasks.metrics import Score, bits_per_byte, perplexity
from clearhead.tasks.task import Batch, Evaluation, Sample, Task


class LanguageModel(Task):
    """p(token | the tokens before it in a window of `length`)."""

    main_score = "loss"
    higher_is_better = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: str,
        valid: str,
        *,
        length: int,
        max_tokens: int,
        generation: GenerationConfig,
    ) -> None:
        self.tokenizer, self.length, self.generation = tokenizer, length, generation
        self.train, self.valid = (np.array(tokenizer.encode(text)) for text in (train, valid))
        self.valid_text = valid
        self.batch_size = max(1, max_tokens // length)
        for name, ids in (("train", self.train), ("valid", self.valid)):
            if len(ids) <= length:
                raise UserError(f"{name}: expected more than {length} tokens, got {len(ids)}; lower data.length")

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        starts = windows(len(self.train), self.length, seed=seed, epoch=epoch)
        return [starts[i : i + self.batch_size].tolist() for i in range(0, len(starts), self.batch_size)]

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.batch(self.train, examples)

    def batch(self, ids: np.ndarray, starts: Sequence[int], length: int | None = None) -> Batch:
        """Windows that begin at `starts`, each token labelled with the next."""
        cells = np.asarray(starts)[:, None] + np.arange((length or self.length) + 1)
        rows = torch.from_numpy(ids[cells])
        return Batch((Tokens(rows[:, :-1].contiguous()),), rows[:, 1:].flatten())

    def evaluate(self, network: Transformer) -> Evaluation:
        scores = self.measure(network)
        prompt = self.valid[: max(1, min(16, self.length // 2))].tolist()
        out = complete(
            network,
            [prompt],
            config=self.generation,
            eos_id=self.tokenizer.eos_id,
            pad_id=self.tokenizer.pad_id or 0,
        )
        text = self.tokenizer.decode(out[0][0].tokens)
        return Evaluation(scores, (Sample(self.tokenizer.decode(prompt), text, ""),))

    def measure(self, network: Transformer) -> tuple[Score, ...]:
        """Loss on the whole validation text in windows that do not overlap, in nats a token; and what follows."""
        device = next(network.parameters()).device
        groups: dict[int, list[int]] = {}
        for start, stop in spans(len(self.valid), self.length):
            groups.setdefault(stop - start, []).append(start)
        nats, n_tokens = 0.0, 0
        training = network.training
        network.eval()
        with torch.inference_mode():
            for length, starts in groups.items():
                size = max(1, 8192 // length)
                for i in range(0, len(starts), size):
                    batch = self.batch(self.valid, starts[i : i + size], length).to(device)
                    total, count = self.loss(network, batch)
                    nats, n_tokens = nats + total.item(), n_tokens + count
        network.train(training)
        n_bytes = len(self.valid_text.encode())
        return (Score("loss", nats / n_tokens), perplexity(nats, n_tokens), bits_per_byte(nats, n_bytes))
