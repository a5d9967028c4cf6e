"""The settings of a training run: its limits, optimizer and learning rate schedule. Imports no torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from clearhead.config import Config, Probability, Share

MatmulPrecision = Literal["highest", "high", "medium"]
Ratio = Annotated[float, Field(ge=0.0, le=1.0)]


# --- optimizers ---------------------------------------------------------------------------------------------


class AdamW(Config):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019); by default as in Vaswani et al. 2017."""

    kind: Literal["adamw"] = "adamw"
    lr: PositiveFloat = 1e-3
    """Peak learning rate, which the schedule multiplies."""
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    """Decay of the running mean of the gradient, and of its square."""
    eps: PositiveFloat = 1e-9
    fused: bool = True
    """Use PyTorch's fused kernel where the device has one."""
    weight_decay: NonNegativeFloat = 0.0
    """Applied to matrices only: never to biases, norms or embeddings (a tied head is an embedding)."""


class Muon(Config):
    """Momentum whose update is made orthogonal, for hidden matrices (Jordan 2024); AdamW for everything else.

    An update has the root mean square 0.2 of a typical AdamW update (Liu et al. 2025, "Muon is scalable",
    2.2), so learning rates and weight decays found for AdamW are a fair first guess.
    """

    kind: Literal["muon"] = "muon"
    lr: PositiveFloat = 2e-3
    """Peak learning rate of the hidden matrices, which the schedule multiplies."""
    momentum: Probability = 0.95
    weight_decay: NonNegativeFloat = 0.0
    """Applied to matrices only: never to biases, norms or embeddings (a tied head is an embedding)."""
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    """Precision of the orthogonalisation; auto: bfloat16 where the hardware has instructions for it, else float32."""
    adamw_lr: PositiveFloat = 1e-3
    """Peak learning rate of embeddings, head, norms and biases."""
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    """Decays of the moments, for the weights that AdamW updates."""
    eps: PositiveFloat = 1e-9
    """Added to the root of the second moment, for the weights that AdamW updates."""
    fused: bool = True
    """Whether one kernel updates the weights that AdamW updates."""


Optimizer = Annotated[AdamW | Muon, Field(discriminator="kind")]


# --- schedules ----------------------------------------------------------------------------------------------


class InverseSqrt(Config):
    """lr * min(step / warmup, sqrt(warmup / step)): Vaswani et al. 2017, equation 3, scaled to peak at lr."""

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"
    warmup: PositiveInt = 4000
    """Steps until the peak."""


class Cosine(Config):
    """Linear warm-up times half a cosine over the run, down to lr * min_ratio (Loshchilov & Hutter 2017)."""

    kind: Literal["cosine"] = "cosine"
    warmup: NonNegativeInt = 100
    """Steps of linear rise."""
    min_ratio: Ratio = 0.1
    """The final learning rate, as a share of lr."""


class WarmupStableDecay(Config):
    """Linear warm-up, then lr, then a straight line down to lr * min_ratio (Hu et al. 2024, MiniCPM, 4)."""

    kind: Literal["wsd"] = "wsd"
    warmup: NonNegativeInt = 100
    """Steps of linear rise."""
    decay_fraction: Share = 0.2
    """Share of the run, at its end, that decays."""
    min_ratio: Ratio = 0.0
    """The final learning rate, as a share of lr."""


class Constant(Config):
    """Linear warm-up, then lr."""

    kind: Literal["constant"] = "constant"
    warmup: NonNegativeInt = 0
    """Steps of linear rise."""


Schedule = Annotated[InverseSqrt | Cosine | WarmupStableDecay | Constant, Field(discriminator="kind")]


class Teacher(Config):
    """A model of the same task, whose answers are learned besides the labels (Hinton et al. 2015)."""

    start: str
    """Its folder, or its name on the hub. Its tokenizer and its labels must be those of the run."""
    temperature: PositiveFloat = 2.0
    """Divides the logits of both, so that the shares of unlikely answers count more."""
    weight: Share = 0.5
    """Share of the loss that is the difference from the teacher; the labels have the rest."""


# --- the run ------------------------------------------------------------------------------------------------


class Training(Config):
    """The limits of a run, its updates, and the checkpoints it keeps."""

    steps: PositiveInt | None = None
    """Updates at most. A run ends at the first of its limits; give at least one."""
    epochs: PositiveFloat | None = None
    """Passes over the training examples at most."""
    minutes: PositiveFloat | None = None
    """Wall time at most, from the first step, with evaluations. The schedule then follows the time. The last evaluation
    begins early enough to end by then if it takes as long as the one before; the first is guessed from the updates."""

    max_tokens: PositiveInt = 4096
    """Tokens of one batch, source and target together, padding included."""
    accumulate: PositiveInt = 1
    """Batches of one update. Their gradients add up to exactly those of one large batch."""
    optimizer: Optimizer = AdamW()
    schedule: Schedule = InverseSqrt()
    label_smoothing: Probability = 0.0
    """Share of the target spread over all tokens (Szegedy et al. 2016; Vaswani et al. 2017, 5.4)."""
    clip: PositiveFloat | None = 1.0
    """Largest norm of the gradient of an update; None for no limit."""
    ema: Probability | None = None
    """Decay of a running mean of the weights. The mean is then evaluated and kept as the model."""
    blend: Share | None = None
    """Share of the trained weights in the model that is evaluated and kept. The weights that the run began with have
    the rest (Wortsman et al. 2022, "Robust fine-tuning"). None: 1, or what suits the first weights of a task."""

    freeze: tuple[str, ...] = ()
    """Parts that are not trained: `embedding`, `encoder`, `head`, blocks as `decoder.0..3`, or patterns of addresses. A
    head that is tied to the token table is a part of the embedding."""
    unfreeze_every: PositiveInt | None = None
    """Train the head alone at first, and after each so many epochs one part more: the blocks from the last to the
    first, then the embeddings."""
    unfreeze_at: tuple[PositiveInt, ...] = ()
    """The same after each of these numbers of updates."""

    teacher: Teacher | None = None
    """A trained model to learn from as well. A new network takes its tokenizer."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16: matrix products in bfloat16, weights and sums in float32; auto: the faster one on this machine."""
    weights: Literal["fp32", "bf16"] = "fp32"
    """bf16: matrices of linear layers, their gradients and the optimizer's state in bfloat16, with stochastic
    rounding; needs bf16 precision. Embeddings, and heads tied to them, stay in float32."""
    matmul_precision: Literal["auto"] | MatmulPrecision = "auto"
    """PyTorch's float32_matmul_precision; auto: medium where it is faster and as accurate as float32."""
    compile: bool = False
    """Compile the network with torch.compile: the first steps take minutes, and on a CPU later ones are no faster."""
    packed: bool = True
    """Keep padding out of linear layers."""
    attention: Literal["auto", "explicit", "fused"] = "auto"
    """auto: whichever is faster for the length and the device."""
    chunked_loss: bool = True
    """Compute the logits of a large vocabulary and their gradients in chunks, never all at once."""
    checkpoint_activations: bool = False
    """Keep only the input of each block and recompute the rest in the backward pass (Chen et al. 2016): a third more
    time, much less memory."""
    check_memory: bool = True
    """Refuse to begin if the first batch is not expected to fit into memory."""
    keep_freed_memory: bool = True
    """Have the C library keep freed memory for the next step."""
    cheap_dropout: bool = True
    """On a CPU, draw eight dropout decisions from one random number, with probabilities rounded to 1/256."""
    seed: NonNegativeInt = 0
    threads: Annotated[int, Field(ge=1, le=512)] | None = None
    """CPU threads; None for PyTorch's default."""

    parallel: Literal["auto", "ddp", "fsdp"] = "auto"
    """With torchrun: ddp, a copy of all in every process; fsdp, weights, gradients and optimizer divided among them;
    auto: ddp, or fsdp where tensor_parallel is above 1."""
    tensor_parallel: PositiveInt = 1
    """With torchrun: processes that share the heads and units of each block, and read the same examples."""

    evaluate_every: PositiveInt | None = None
    """Updates between evaluations; None: once an epoch. There is always one at the end."""
    evaluate_examples: Literal["auto", "all"] | PositiveInt = "auto"
    """Validation examples that these evaluations measure at most, always the same ones; auto: all, but of very many
    only as many as have 131,072 tokens together, and at least 1,000. The best model is judged on all at the end."""
    save_every: PositiveInt | None = None
    """Updates between checkpoints; None: at each evaluation. There is always one at the end."""
    save_in_background: bool = False
    """Write checkpoints while training goes on, from a copy in CPU memory."""
    keep_last: PositiveInt = 3
    """Newest checkpoints kept, besides the best one."""
    keep_spaced: NonNegativeInt = 8
    """Checkpoints kept besides, evenly spaced over the run."""
    patience: Literal["auto"] | NonNegativeInt | None = "auto"
    """Stop after this many evaluations in a row without a better main score, or a lower loss at an equal score; auto:
    after 8 that are 300 updates or more; 0 or None: never."""
    on_nan: Literal["stop", "skip"] = "stop"
    """On an update with NaN or infinity: stop the run before it changes a weight, or skip the update. The run stops in
    any case after 10 skipped updates in a row."""

    @property
    def keeps_mean(self) -> bool:
        """Whether the model that is kept is a mean of weights, beside those that are trained."""
        return self.ema is not None or (self.blend or 1.0) < 1.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.ema is not None and (self.blend or 1.0) < 1.0:
            raise ValueError("blend: expected no ema beside it, got both; leave one out")
        if self.weights == "bf16" and self.precision == "fp32":
            raise ValueError("weights: expected fp32 with precision=fp32, got bf16; try precision=bf16")
        return self
