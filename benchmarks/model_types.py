"""`python -m benchmarks.model_types`: reading and writing with small models of several types, against `transformers`.

Both run in one process, in turn, on the same weights, which are drawn at random.
"""

import json as json_module
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from cyclopts import App

from benchmarks.entry import run_command
from benchmarks.figures import within
from clearhead.api import load
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.model import Tokens
from clearhead.recipe.generation import GenerationConfig

STORIES: dict[str, Any] = {
    "hidden_size": 288,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "vocab_size": 32_000,
    "max_position_embeddings": 256,
}
TYPES: dict[str, tuple[str, dict[str, Any]]] = {
    "distilgpt2": ("GPT2LMHeadModel", {"n_layer": 6, "vocab_size": 50_257}),
    "stories15M": ("LlamaForCausalLM", {**STORIES, "intermediate_size": 768}),
    "pythia-14m": (
        "GPTNeoXForCausalLM",
        {
            "hidden_size": 128,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "intermediate_size": 512,
            "vocab_size": 50_304,
        },
    ),
    "gemma-3-270m": (
        "Gemma3ForCausalLM",
        {
            "hidden_size": 640,
            "num_hidden_layers": 18,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "intermediate_size": 2048,
            "vocab_size": 262_144,
            "sliding_window": 512,
        },
    ),
    "stories15M with 8 experts, 2 used": (
        "MixtralForCausalLM",
        {**STORIES, "intermediate_size": 768, "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "Qwen3-MoE with 32 experts, 8 used": (
        "Qwen3MoeForCausalLM",
        {
            **STORIES,
            "hidden_size": 512,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "moe_intermediate_size": 192,
            "num_experts": 32,
            "num_experts_per_tok": 8,
            "norm_topk_prob": True,
        },
    ),
    "MiniLM-L6": (
        "BertModel",
        {
            "hidden_size": 384,
            "num_hidden_layers": 6,
            "num_attention_heads": 12,
            "intermediate_size": 1536,
            "vocab_size": 30_522,
        },
    ),
}
"""Class and sizes; all but those with experts are published."""
QUICK = {"num_hidden_layers": 2, "n_layer": 2, "vocab_size": 1000}
FEWEST = 3
"""Turns of each side, however long they take."""
SIDES = ("clearhead", "transformers")

Call = Callable[[], object]
app = App(name="python -m benchmarks.model_types", help="Small models of several types, against transformers.")


@dataclass(frozen=True)
class Task:
    """What both sides read or write."""

    name: str
    rows: int
    n_read: int
    n_new: int = 0
    """Tokens written for each text; 0 for one pass that gives the logits of every token."""


WRITING = (Task("prefill", 1, 128), Task("prefill of 8", 8, 64), Task("decoding", 1, 16, 64), Task("of 8", 8, 16, 64))
READING = (Task("forward", 1, 128), Task("forward of 8", 8, 64))


def opened(architecture: str, sizes: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same model on both sides."""
    import transformers

    torch.manual_seed(0)
    model_class = getattr(transformers, architecture)
    theirs = model_class(model_class.config_class(**sizes)).eval()
    theirs.save_pretrained(folder)
    return {"transformers": theirs, "clearhead": load(folder).network.eval()}


def calls(task: Task, sides: Mapping[str, Any], vocab_size: int) -> dict[str, Call]:
    """The task for each side."""
    ids = torch.randint(10, vocab_size, (task.rows, task.n_read), generator=torch.Generator().manual_seed(1))
    ours, theirs = sides["clearhead"], sides["transformers"]
    if not task.n_new:
        return {"clearhead": lambda: ours(Tokens(ids)), "transformers": lambda: theirs(input_ids=ids)}
    config = GenerationConfig(max_new_tokens=task.n_new, min_new_tokens=task.n_new)
    theirs.generation_config.eos_token_id, theirs.generation_config.pad_token_id = None, 0
    mask, lengths = torch.ones_like(ids), {"max_new_tokens": task.n_new, "min_new_tokens": task.n_new}
    return {
        "clearhead": lambda: complete(ours, ids.tolist(), config=config),
        "transformers": lambda: theirs.generate(ids, attention_mask=mask, do_sample=False, **lengths),
    }


def timed(call: Call) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    with torch.inference_mode():
        call()
    return time.perf_counter() - wall, time.process_time() - cpu


def race(each: Mapping[str, Call], rounds: int, seconds: float) -> dict[str, tuple[float, float]]:
    """Median seconds of each side, after a call or two that do not count; who begins changes every round.

    Stops after `seconds`, but not before `FEWEST` rounds, or after `rounds`.
    """
    begun = time.perf_counter()
    for side in SIDES:
        if timed(each[side])[0] < seconds / 10:
            timed(each[side])
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    for i in range(rounds):
        if i >= FEWEST and time.perf_counter() - begun > seconds:
            break
        for side in SIDES if i % 2 else reversed(SIDES):
            found[side].append(timed(each[side]))
    return {side: (median(wall for wall, _ in turns), median(cpu for _, cpu in turns)) for side, turns in found.items()}


@app.default
def model_types(
    *, only: str = "", rounds: int = 15, seconds: float = 8.0, threads: int = 1, quick: bool = False, json: bool = False
) -> None:
    """One pass over prompts, and greedy writing with a cache, in float32; about five minutes.

    Parameters
    ----------
    only: Of the models, those whose name contains this.
    rounds: Most turns of each side, of which the median counts.
    seconds: Time for the turns of one task; three are taken in any case.
    threads: CPU threads.
    quick: Two layers, a small vocabulary and one round, to see that everything works; its figures mean nothing.
    json: Print the ratios as one JSON object on the last line.
    """

    chosen = {name: one for name, one in TYPES.items() if only in name}
    if not chosen:
        raise UserError(f"--only: expected part of one of {', '.join(TYPES)}, got {only}; leave it out")

    def measure(scratch: Path) -> None:
        torch.set_num_threads(threads)
        ratios: dict[str, dict[str, float]] = {}
        print("| model | task | clearhead, ms | transformers, ms | times as fast | by CPU time |")
        print("|---|---|---:|---:|---:|---:|")
        for name, (architecture, sizes) in chosen.items():
            shape = {**sizes, **{key: value for key, value in QUICK.items() if quick and key in sizes}}
            sides = opened(architecture, shape, scratch / architecture)
            ratios[name] = {}
            for task in WRITING if "LM" in architecture else READING:
                each = calls(task, sides, sides["transformers"].config.vocab_size)
                found = race(each, 1 if quick else rounds, seconds)
                (ours, our_cpu), (theirs, their_cpu) = (found[side] for side in SIDES)
                ratios[name][task.name] = round(theirs / ours, 2)
                figures = f"{ours * 1e3:.1f} | {theirs * 1e3:.1f} | {theirs / ours:.2f} | {their_cpu / our_cpu:.2f}"
                print(f"| {name} | {task.name} | {figures} |", flush=True)
        if json:
            print(json_module.dumps(ratios))

    within(measure)


def main(words: Sequence[str] | None = None) -> None:
    """Runs the command. A mistake of the user is one line."""
    run_command(app, words)


if __name__ == "__main__":
    main()
