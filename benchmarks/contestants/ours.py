"""Our side: a run of `clearhead train`, with its defaults, through the loop that every user gets."""

import torch

from benchmarks.contestants.contestant import Contestant, Facts
from benchmarks.contestants.gpt import GptWorkload
from benchmarks.contestants.workload import EOS, N_SPECIAL, PAD, Workload
from clearhead.config import Init, LanguageHead, Learned, ModelConfig, StackConfig, TokenInput
from clearhead.data.encoded import EncodedText
from clearhead.data.sequences import Sequences
from clearhead.data.sources import Pairs
from clearhead.model import Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Words
from clearhead.recipe.training import AdamW, Constant, MatmulPrecision, Training
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.translation import EncodedPairs, Translation
from clearhead.text.tokenizers import Tokenizer
from clearhead.training.events import Skipped, Started, Stepped
from clearhead.training.run import Run
from clearhead.training.train import train

ENDLESS = 1 << 30
"""Steps until the run would evaluate or end: nobody waits that long."""


class Ours(Contestant):
    """`for event in train(run)`: packed batches, precision, allocator and kernels as the product chooses them."""

    def __init__(self, workload: Workload | GptWorkload, threads: int | None, *, compiled: bool = False) -> None:
        torch.manual_seed(workload.seed)
        if isinstance(workload, Workload):
            parts = network_config(workload), translation(workload), training(workload, threads)
        else:
            parts = decoder_config(workload), language_model(workload), language_training(workload, threads)
        network, task, settings = parts
        self.run = Run(Transformer(network), task, settings.model_copy(update={"compile": compiled}), None)
        self.events = train(self.run)
        started = next(self.events)
        assert isinstance(started, Started)
        self.started = started

    def facts(self) -> Facts:
        return Facts(n_parameters=self.started.n_parameters, precision=self.started.precision)

    def arithmetic(self) -> tuple[str, MatmulPrecision]:
        return self.run.progress.precision, self.run.progress.matmul

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


# --- language models ---------------------------------------------------------------------------------------------


def decoder_config(w: GptWorkload) -> ModelConfig:
    """The peer's network."""
    stack = StackConfig(
        input=TokenInput(vocab_size=w.vocab_size),
        positions=Learned(max_length=w.length),
        activation="gelu",
        d_model=w.d_model,
        n_layers=w.n_layers,
        n_heads=w.n_heads,
        d_ff=4 * w.d_model,
        dropout=w.dropout,
        attn_dropout=w.dropout,
    )
    return ModelConfig(decoder=stack, head=LanguageHead(tied=True))


def language_training(w: GptWorkload, threads: int | None) -> Training:
    """The workload's optimizer; everything else is the product's default."""
    return Training(
        steps=ENDLESS,
        evaluate_every=ENDLESS,
        max_tokens=w.batch * w.length,
        optimizer=AdamW(lr=w.lr, betas=w.betas, eps=w.eps, weight_decay=w.weight_decay),
        schedule=Constant(),
        clip=w.clip,
        seed=w.seed,
        threads=threads,
        device="cpu",
        precision=w.precision,
    )


def language_model(w: GptWorkload) -> LanguageModel:
    """The product's language-model task on the workload's text."""
    words = " ".join(f"w{i}" for i in range(w.vocab_size - N_SPECIAL))
    tokenizer = Tokenizer.train([words], Words(vocab_size=w.vocab_size))
    text = EncodedText(Sequences.of([(w.words() + N_SPECIAL).tolist()]), is_running=True, n_bytes=1, beginning="")
    return LanguageModel(
        tokenizer, text, text, length=w.length, max_tokens=w.batch * w.length, generation=GenerationConfig()
    )
