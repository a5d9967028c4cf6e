"""One contestant of `benchmarks.decoding` in a process of its own, told what to do on standard input.

The first line in is the assignment, the answer to it a line of JSON; after that each line asks for one turn.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from benchmarks.contestants.opening import memory
from clearhead.config import Config

Kind = Literal[
    "clearhead fp32", "clearhead bf16", "clearhead int8", "clearhead int4",
    "clearhead scored",
    "transformers fp32", "transformers bf16", "ctranslate2 fp32", "ctranslate2 int8",
]  # fmt: skip


class Assignment(Config):
    """Whom to be, and what to write."""

    kind: Kind
    hf: Path
    """Folder as the Hugging Face libraries keep it."""
    ct2: Path
    """The same model for CTranslate2."""
    inputs: tuple[tuple[int, ...], ...]
    """Token ids: prompts, or sources with their end tokens."""
    new_tokens: int
    """Written for each input, whatever they are: no text ends before."""
    beams: int
    translates: bool
    start_id: int
    eos_id: int
    threads: int


class Answer(Config):
    """One turn: every input once."""

    texts: tuple[tuple[int, ...], ...]
    """What was written; with random weights not the same everywhere, and never shorter."""
    seconds: float
    cpu_seconds: float
    peak_gb: float


Write = Callable[[], list[list[int]]]


def ours(a: Assignment, precision: str) -> Write:
    """As `clearhead generate` and `translate` have it."""
    import torch

    import clearhead
    from clearhead.generation import complete
    from clearhead.machine.device import keep_freed_memory
    from clearhead.recipe.generation import GenerationConfig

    keep_freed_memory()
    torch.set_num_threads(a.threads)
    network = clearhead.load(a.hf, **OPTIONS[precision]).network
    config = GenerationConfig(
        max_new_tokens=a.new_tokens,
        min_new_tokens=a.new_tokens,
        beams=a.beams,
        start_id=a.start_id,
        end_ids=(a.eos_id,),
    )
    source, prompts = (a.inputs, None) if a.translates else (None, a.inputs)
    scored = precision == "scored"
    written = partial(complete, network, prompts, source=source, config=config, scored=scored)
    return lambda: [list(best.tokens) for [best, *_] in written()]


def transformers_side(a: Assignment, precision: str) -> Write:
    """`generate` of the reference library, its default cache and attention."""
    import torch
    import transformers

    torch.set_num_threads(a.threads)
    auto = transformers.AutoModelForSeq2SeqLM if a.translates else transformers.AutoModelForCausalLM
    model = auto.from_pretrained(a.hf, dtype=getattr(torch, DTYPES[precision])).eval()
    width = max(map(len, a.inputs))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in a.inputs])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in a.inputs])
    ends: dict[str, Any] = {"eos_token_id": a.eos_id, "pad_token_id": 0, "forced_eos_token_id": None}
    lengths = {"max_new_tokens": a.new_tokens, "min_new_tokens": a.new_tokens}
    skip = 1 if a.translates else width

    def write() -> list[list[int]]:
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=mask, do_sample=False, num_beams=a.beams, bad_words_ids=None, **lengths, **ends
            )
        return out[:, skip:].tolist()

    return write


def ctranslate2_side(a: Assignment, precision: str) -> Write:
    """Its Generator or Translator, one batch."""
    import ctranslate2

    kind = "int8_float32" if precision == "int8" else "float32"
    settings: dict[str, Any] = {"compute_type": kind, "intra_threads": a.threads, "inter_threads": 1}
    name = "shared_vocabulary.json" if (a.ct2 / "shared_vocabulary.json").is_file() else "vocabulary.json"
    words: list[str] = json.loads((a.ct2 / name).read_text(encoding="utf-8"))
    ids = {word: i for i, word in enumerate(words)}
    inputs = [[words[i] for i in row] for row in a.inputs]
    if a.translates:
        translator = ctranslate2.Translator(str(a.ct2), **settings)

        def translate() -> list[list[int]]:
            lengths = {"min_decoding_length": a.new_tokens, "max_decoding_length": a.new_tokens}
            found = translator.translate_batch(inputs, beam_size=a.beams, max_batch_size=0, **lengths)
            return [[ids[word] for word in one.hypotheses[0]] for one in found]

        return translate
    generator = ctranslate2.Generator(str(a.ct2), **settings)

    def write() -> list[list[int]]:
        lengths = {"min_length": a.new_tokens, "max_length": a.new_tokens}
        found = generator.generate_batch(
            inputs, beam_size=a.beams, include_prompt_in_result=False, max_batch_size=0, **lengths
        )
        return [list(one.sequences_ids[0]) for one in found]

    return write


DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"dtype": dtype} for name, dtype in DTYPES.items()},
    "int8": {"int8": True},
    "int4": {"int4": True},
    "scored": {"dtype": "float32"},
}
"""How a model of ours is loaded. `scored` gives log-probabilities too, as no other contestant does."""


def writer(a: Assignment) -> Write:
    """Built here, so that a process imports only what its side would."""
    side, precision = a.kind.split()
    if side == "clearhead":
        return ours(a, precision)
    return (transformers_side if side == "transformers" else ctranslate2_side)(a, precision)


def main() -> None:
    """Answer line by line until there are no more."""
    write = writer(Assignment.model_validate_json(sys.stdin.readline()))
    print("{}", flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        texts = write()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        rows = tuple(tuple(row) for row in texts)
        answer = Answer(texts=rows, seconds=wall, cpu_seconds=cpu, peak_gb=memory("VmHWM") / 1e9)
        print(answer.model_dump_json(), flush=True)


if __name__ == "__main__":
    main()
