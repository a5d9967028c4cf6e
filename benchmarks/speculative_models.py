"""A target of GPT-2's 124M shape and a draft of 15M, trained on the same text, for `benchmarks.speculative`.

Training 124 million weights from nothing takes a CPU long, so three things are saved. Rows of the table that the text
never reads are not trained. The target is trained with 3 of its 12 layers first, which are then stacked (Gong et al.
2019, "Efficient training of BERT by progressively stacking") and trained on together. And the text is an easy one.
"""

import time
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from clearhead.api import Model, load
from clearhead.config import ModelConfig
from clearhead.data.encoded import EncodedText
from clearhead.data.sequences import Sequences
from clearhead.data.tokenizers import Tokenizer
from clearhead.families import preset
from clearhead.model import Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Words
from clearhead.recipe.training import AdamW, Training, WarmupStableDecay
from clearhead.tasks.language_model import LanguageModel
from clearhead.training.events import Evaluated, Stepped
from clearhead.training.run import Run
from clearhead.training.train import train

LENGTH = 256
"""Tokens of a training example, and of the longest text that the models can write."""
BATCH = 1024
"""Tokens of an update."""
N_VALID = 20
"""Examples that are kept from training."""
FIRST = {"n_layers": 3}
"""The target in its first stage."""
TARGET = {"n_layers": 12}
DRAFT = {"n_layers": 3, "d_model": 256, "n_heads": 4, "d_ff": 1024}
"""15.6 million parameters, 12.9 of them in the table of words."""
UNWRITTEN = 30.0
"""Minus the logit of tokens that the text never has."""


def make(folder: Path, text: str, words: Path, steps: Mapping[str, int]) -> None:
    """Writes folder/draft, folder/first and folder/target, each unless it is there; `steps` are their updates."""
    tokenizer = Tokenizer.load(words)
    ids = torch.tensor(tokenizer.encode(text))
    used, compact = ids.unique(return_inverse=True)
    print(f"{len(ids):,} tokens, {len(used):,} of them different", flush=True)
    data = compact[: -N_VALID * LENGTH], compact[-N_VALID * LENGTH :]
    for name, sizes, lr in (("draft", DRAFT, 2e-3), ("first", FIRST, 1e-3), ("target", TARGET, 5e-4)):
        if (folder / name).is_dir():
            continue
        network = Transformer(shaped(sizes, len(used)))
        if name == "target":
            network.load_state_dict(stacked(narrowed(load(folder / "first").network, used), TARGET["n_layers"]))
        learn(network, data, steps[name], lr)
        save(network, used, data[1], tokenizer, folder / name)


def narrowed(network: Transformer, used: Tensor) -> dict[str, Tensor]:
    """The weights with only these rows of the table of words."""
    size = len(network.decoder.table.weight) if network.decoder else 0
    return {name: v[used] if v.shape[:1] == (size,) else v for name, v in network.state_dict().items()}


def shaped(sizes: Mapping[str, int], vocab_size: int) -> ModelConfig:
    """GPT-2 with other sizes and no dropout."""
    config = preset("gpt2")
    assert config.decoder is not None
    reads = config.decoder.input.model_copy(update={"vocab_size": vocab_size})
    changes = {"input": reads, "dropout": 0.0, "attn_dropout": 0.0, **sizes}
    return ModelConfig.model_validate({**dict(config), "decoder": config.decoder.model_copy(update=changes)})


def learn(network: Transformer, data: tuple[Tensor, Tensor], n_steps: int, lr: float) -> None:
    """Trains in place, through the loop of `clearhead train lm`."""
    size = len(network.decoder.table.weight) if network.decoder else 0
    tokenizer = Tokenizer.train([" ".join(f"w{i}" for i in range(size))], Words(vocab_size=size))
    train_text, valid_text = (EncodedText(Sequences.of([one.tolist()]), True, 1, "") for one in data)
    written = GenerationConfig(max_new_tokens=1, start_id=0)
    task = LanguageModel(tokenizer, train_text, valid_text, length=LENGTH, max_tokens=BATCH, generation=written)
    config = Training(
        steps=n_steps,
        evaluate_every=n_steps,
        max_tokens=BATCH,
        optimizer=AdamW(lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01),
        schedule=WarmupStableDecay(warmup=max(1, n_steps // 20), decay_fraction=0.4),
        threads=torch.get_num_threads(),
        device="cpu",
        check_memory=False,
    )
    began = time.process_time()
    for event in train(Run(network, task, config, None)):
        if isinstance(event, Stepped) and (event.step % 20 == 0 or event.step < 4):
            took = time.process_time() - began
            print(f"step {event.step} of {n_steps}: loss {event.loss:.3f}, {took:.0f} CPU seconds", flush=True)
        if isinstance(event, Evaluated):
            print(*event.evaluation.scores, flush=True)


def stacked(state: Mapping[str, Tensor], n_layers: int) -> dict[str, Tensor]:
    """The weights of a network with `n_layers`: these layers, and again these layers."""
    place = "decoder.blocks."
    found = {name: value for name, value in state.items() if not name.startswith(place)}
    n_first = 1 + max(int(name.split(".")[2]) for name in state if name.startswith(place))
    for i in range(n_layers):
        whose = f"{place}{i % n_first}."
        found |= {f"{place}{i}." + name.removeprefix(whose): v for name, v in state.items() if name.startswith(whose)}
    return found


@torch.inference_mode()
def save(network: Transformer, used: Tensor, valid: Tensor, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes the model with the whole vocabulary: the other tokens have low logits."""
    from clearhead.model import Tokens

    assert network.decoder is not None
    stack = network.decoder.config
    network.eval()
    states = torch.cat([network.decoder(Tokens(row[None]))[0][0] for row in valid.split(LENGTH)])
    # The row whose product with every state is the nearest to a low logit.
    low = torch.linalg.lstsq(states.double(), torch.full((len(states), 1), -UNWRITTEN).double()).solution[:, 0].float()
    sizes = {name: dict(stack)[name] for name in ("n_layers", "d_model", "n_heads", "d_ff")}
    whole = Transformer(shaped(sizes, tokenizer.vocab_size))
    state = dict(network.state_dict())
    for name, value in state.items():
        if value.shape[:1] == used.shape:
            state[name] = low.repeat(tokenizer.vocab_size, 1).index_copy(0, used, value)
    whole.load_state_dict(state)
    Model(whole, tokenizer, GenerationConfig(max_new_tokens=LENGTH // 2)).save(folder)
