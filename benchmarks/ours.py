"""Our side: a run of `clearhead train`, with its defaults, through the loop that every user gets."""

import torch

from benchmarks.contestant import Contestant, Facts
from benchmarks.workload import EOS, N_SPECIAL, PAD, Workload
from clearhead.config import Init, LanguageHead, ModelConfig, StackConfig, TokenInput
from clearhead.data.sources import Pairs
from clearhead.data.tokenizers import Tokenizer
from clearhead.model import Transformer
from clearhead.recipe.data import Words
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.training import AdamW, Constant, Training
from clearhead.tasks.translation import EncodedPairs, Translation
from clearhead.training.train import Run, Skipped, Started, Stepped, train

ENDLESS = 1 << 30
"""Steps until the run would evaluate or end: nobody waits that long."""


class Ours(Contestant):
    """`for event in train(run)`: packed batches, precision, allocator and kernels as the product chooses them."""

    def __init__(self, workload: Workload, threads: int | None) -> None:
        torch.manual_seed(workload.seed)
        network = Transformer(network_config(workload))
        self.run = Run(network, translation(workload), training(workload, threads), None)
        self.events = train(self.run)
        started = next(self.events)
        assert isinstance(started, Started)
        self.started = started

    def facts(self) -> Facts:
        return Facts(n_parameters=self.started.n_parameters, precision=self.started.precision)

    def prepare(self, n_steps: int) -> None:
        """Nothing: the loop makes its batches as it goes, by the clock."""

    def steps(self, n_steps: int) -> tuple[int, float]:
        n_tokens, loss = 0, float("nan")
        for _ in range(n_steps):
            event = next(self.events)
            assert isinstance(event, Stepped | Skipped)
            if isinstance(event, Stepped):
                n_tokens, loss = n_tokens + event.n_tokens, event.loss
        return n_tokens, loss


def network_config(w: Workload) -> ModelConfig:
    """The network of the workload; dropout on attention weights and feed-forward activations as the peer has it."""
    stack = StackConfig(
        input=TokenInput(vocab_size=w.vocab_size, scale=True),
        d_model=w.d_model,
        n_layers=w.n_layers,
        n_heads=w.n_heads,
        d_ff=w.d_ff,
        dropout=w.dropout,
        attn_dropout=w.dropout,
        ffn_dropout=w.dropout,
    )
    return ModelConfig(
        encoder=stack,
        decoder=stack,
        head=LanguageHead(tied=True),
        share_embeddings=True,
        init=Init(matrices="xavier", depth_scaled=False),
    )


def training(w: Workload, threads: int | None) -> Training:
    """The workload's optimizer; everything else is the product's default."""
    return Training(
        steps=ENDLESS,
        evaluate_every=ENDLESS,
        max_tokens=w.max_tokens,
        optimizer=AdamW(lr=w.lr, betas=w.betas, eps=w.eps),
        schedule=Constant(),
        label_smoothing=w.label_smoothing,
        clip=w.clip,
        seed=w.seed,
        threads=threads,
        device="cpu",
    )


def translation(w: Workload) -> Translation:
    """The product's translation task on the workload's sentences."""
    source, target = w.sentences()
    words = " ".join(f"w{i}" for i in range(w.vocab_size - N_SPECIAL))
    tokenizer = Tokenizer.train([words], Words(vocab_size=w.vocab_size))
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.vocab_size) == (PAD, EOS, w.vocab_size)
    pairs = EncodedPairs(Pairs([], []), source, target)
    return Translation(tokenizer, pairs, pairs, max_tokens=w.max_tokens, generation=GenerationConfig())
