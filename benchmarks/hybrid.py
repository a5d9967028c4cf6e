"""`python -m benchmarks.hybrid`: a network of states and attention against the reference library, in turn."""

import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from cyclopts import App, Parameter
from torch import Tensor, nn

import clearhead
from benchmarks.entry import run_command
from benchmarks.figures import Figure, show, within
from clearhead.generation import complete
from clearhead.machine.device import keep_freed_memory
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig

LENGTH = 512
WRITTEN = 64
GOALS = {"prefill of 512": 1.2, "step": 1.5, "training step": 1.2}
SIZES = {
    "vocab_size": 50_304, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
    "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64, "tie_word_embeddings": True,
}  # fmt: skip
EVERY_FOURTH = [*["linear_attention"] * 3, "full_attention"] * 3
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_5_text": {
        "linear_num_key_heads": 6, "linear_num_value_heads": 12, "linear_key_head_dim": 64, "linear_value_head_dim": 64
    },
    "granitemoehybrid": {
        "layer_types": EVERY_FOURTH, "mamba_n_heads": 24, "mamba_d_state": 128, "num_local_experts": 0,
        "shared_intermediate_size": 2048, "attention_multiplier": 0.125, "position_embedding_type": "nope",
    },
    "falcon_h1": {
        "mamba_d_ssm": 768, "mamba_n_heads": 12, "mamba_d_head": 64, "mamba_d_state": 128, "intermediate_size": 1536
    },
    "lfm2": {"layer_types": ["conv", "conv", "full_attention"] * 4, "block_auto_adjust_ff_dim": False},
}  # fmt: skip
QUICK = {"vocab_size": 200, "num_hidden_layers": 4}

app = App(name="python -m benchmarks.hybrid", help="States and attention in one network, against the reference.")

Seconds = tuple[float, ...]
Turn = Callable[[], Seconds]


def ours(network: Transformer, ids: Tensor) -> tuple[Turn, Turn]:
    """What writes and what trains, as `clearhead generate` and a training loop do."""

    def generate(n: int) -> object:
        config = GenerationConfig(max_new_tokens=n, min_new_tokens=n, end_ids=(0,))
        return list(complete(network.eval(), [ids[0].tolist()], config=config, scored=False))

    return turns(network, generate, lambda: network(Tokens(ids), labels=ids.roll(-1)[0]) / LENGTH)


def theirs(model: Any, ids: Tensor) -> tuple[Turn, Turn]:
    """The same of the reference."""
    lengths = {"eos_token_id": 0, "pad_token_id": 0, "attention_mask": torch.ones_like(ids), "do_sample": False}

    def generate(n: int) -> object:
        with torch.inference_mode():
            return model.eval().generate(ids, max_new_tokens=n, min_new_tokens=n, **lengths)

    return turns(model, generate, lambda: F.cross_entropy(model(ids).logits[0], ids.roll(-1)[0]))


def turns(network: nn.Module, generate: Callable[[int], object], loss: Callable[[], Tensor]) -> tuple[Turn, Turn]:
    """`written` and `trained` of one of the two."""
    return (lambda: written(generate)), (lambda: (trained(network, loss),))


def race(rivals: Sequence[Turn], rounds: int) -> list[list[Seconds]]:
    """Seconds of the two in turn, after one round that does not count: by kind, then ours and theirs of each round."""
    found: list[tuple[Seconds, ...]] = []
    for i in range(rounds + 1):
        order = (0, 1) if i % 2 else (1, 0)
        taken = {which: rivals[which]() for which in order}
        found.append((taken[0], taken[1]))
    return [list(kind) for kind in zip(*(zip(*each, strict=True) for each in found[1:]), strict=True)]


def written(generate: Callable[[int], object]) -> Seconds:
    """Seconds of the prompt with one token, and of one more."""
    began = time.process_time()
    generate(1)
    first = time.process_time() - began
    generate(WRITTEN + 1)
    return first, (time.process_time() - began - 2 * first) / WRITTEN


def trained(network: nn.Module, loss: Callable[[], Tensor]) -> float:
    """Seconds of forward and backward pass and of AdamW, the second time."""
    optimizer, began = torch.optim.AdamW(network.train().parameters(), fused=True), 0.0
    for _ in range(2):
        began = time.process_time()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return time.process_time() - began


@app.default
def hybrid(*, rounds: int = 5, quick: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Read 512 tokens, write one more, and train on them: one thread, float32, processor time.

    Args:
        rounds: Turns of each, of which the median counts.
        quick: A tiny network, to see that everything works; its figures mean nothing.
    """
    import transformers

    keep_freed_memory()
    torch.set_num_threads(1)

    def measure(scratch: Path) -> None:
        figures: list[Figure] = []
        for name, changes in CONFIGS.items():
            torch.manual_seed(0)
            given: dict[str, Any] = SIZES | changes | (QUICK if quick else {})
            kinds = (
                {"layer_types": given["layer_types"][: given["num_hidden_layers"]]} if "layer_types" in given else {}
            )
            config = transformers.AutoConfig.for_model(name, **(given | kinds))
            model = transformers.AutoModelForCausalLM.from_config(config).eval()
            model.save_pretrained(scratch / name)
            network = clearhead.load(scratch / name, dtype="float32").network
            ids = torch.randint(1, config.vocab_size, (1, LENGTH))
            size = sum(w.numel() for w in network.parameters()) / 1e6
            print(name, f"{size:.0f}M parameters; seconds, ours and theirs; ratios of each round:")
            # Training comes last: it changes the weights, of which decoding keeps copies.
            pairs = zip(ours(network, ids), theirs(model, ids), strict=True)
            raced = chain(*(race(pair, rounds) for pair in pairs))
            for (what, goal), seconds in zip(GOALS.items(), raced, strict=True):
                mine, peer = (median(side) for side in zip(*seconds, strict=True))
                ratios = sorted(b / a for a, b in seconds)
                print(f"{what} {mine:.4g} {peer:.4g}, {ratios[0]:.2f} to {ratios[-1]:.2f}", flush=True)
                figures.append(Figure(f"{name}, {what}: ours to transformers", peer / mine, goal))
        show("hybrids", figures)

    within(measure)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line, or these words of one; a mistake of the user's is one line."""
    run_command(app, words)


if __name__ == "__main__":
    main()
