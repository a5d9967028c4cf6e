"""Language modelling: the next token of a text (Radford et al. 2019)."""

from collections.abc import Sequence

import torch

from clearhead.config import ModelConfig
from clearhead.data.batches import Batches
from clearhead.data.encoded import EncodedText
from clearhead.data.marks import template_marks
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.model import Transformer
from clearhead.model.mode import Evaluating
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.metrics import Score, bits_per_byte, perplexity
from clearhead.tasks.reading import read_as
from clearhead.tasks.task import Batch, Evaluation, Sample, Task, check_length, check_vocabulary, check_writes

EVALUATION_TOKENS = 8192
PROMPT_TOKENS = 16


class LanguageModel(Task):
    """p(token | the tokens before it, `length` at most)."""

    main_score = "loss"
    higher_is_better = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: EncodedText,
        valid: EncodedText,
        *,
        length: int,
        max_tokens: int,
        generation: GenerationConfig,
    ) -> None:
        self.tokenizer, self.length, self.generation = tokenizer, length, generation
        self.train = read_as(train, length, tokenizer, name="train")
        self.valid = read_as(valid, length, tokenizer, name="valid")
        self.valid_text = valid
        self.batch_size = max(1, max_tokens // length)

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return Batches.of_size(self.train.examples(seed=seed, epoch=epoch), self.batch_size)

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.train.batch(examples)

    @staticmethod
    def check_kind(config: ModelConfig, *, where: str = "model", remedy: str = "try preset nano") -> None:
        """Nothing, if a network of this kind can model language; `where` names it in the error."""
        if config.encoder is not None or config.decoder is None:
            got = "an encoder alone" if config.decoder is None else "an encoder too"
            raise UserError(f"{where}: expected a decoder alone to model language, got {got}; {remedy}")
        check_writes(config, where=where)

    def check(self, config: ModelConfig) -> None:
        self.check_kind(config)
        check_length("decoder", config.output, self.length, remedy="try a lower data.length")
        check_vocabulary("decoder", config.output, max(self.train.largest, self.valid.largest))

    def evaluate(self, network: Transformer) -> Evaluation:
        ids = self.tokenizer.encode(self.valid_text.beginning)[: min(PROMPT_TOKENS, self.length // 2)]
        prompt = [*template_marks(self.tokenizer).before, *ids]
        written = complete(
            network,
            [prompt] if prompt else None,
            config=self.generation,
            bos_id=self.tokenizer.bos_id,
            eos_id=self.tokenizer.eos_id,
            pad_id=self.tokenizer.pad_id or 0,
        )
        sample = Sample(self.tokenizer.decode(prompt), self.tokenizer.decode(written[0][0].tokens), "")
        scores = self.measure(network)
        return Evaluation(scores, (sample,), loss=scores[0].value)

    def measure(self, network: Transformer) -> tuple[Score, ...]:
        """Mean loss in nats over every token of the validation text, in windows that do not overlap; and its kin."""
        device = next(network.parameters()).device
        nats, n_tokens = 0.0, 0
        with Evaluating(network), torch.inference_mode():
            for batch in self.valid.everything(max(1, EVALUATION_TOKENS // self.length)):
                total, count = self.loss(network, batch.to(device))
                nats, n_tokens = nats + total.item(), n_tokens + count
        per_byte = bits_per_byte(nats, self.valid_text.n_bytes)
        return (Score("loss", nats / n_tokens), perplexity(nats, n_tokens), per_byte)
