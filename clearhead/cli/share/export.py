"""`clearhead export`, `prune` and `push`."""

import importlib.util
import tempfile
from pathlib import Path
from typing import Literal

from clearhead.cli.options import Flag, Named, Revision, tell
from clearhead.errors import UserError, pasted

SHORT = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
"""Other names of types."""
EXAMPLES = 32
"""Examples on which heads are measured. The network runs on them once for each head."""


def export(
    model: Named,
    /,
    *,
    to: Literal["hf", "peft", "ctranslate2", "onnx", "gguf"],
    out: Path | None = None,
    dtype: Literal["float32", "bfloat16", "float16", "f32", "bf16", "f16", "q8_0"] | None = None,
    quantization: Literal["int8", "int8_float16", "int8_bfloat16", "int8_float32", "int16"] | None = None,
    shard_gb: float | None = None,
    revision: Revision = None,
) -> None:
    """Write a model in the form that another library opens.

    - hf: the folder that the Hugging Face libraries (transformers, tokenizers) open. Needs nothing besides clearhead.
    - peft: the adapters of a run with `--adapter.kind`, which the library PEFT puts on the model they are of.
    - ctranslate2: for CTranslate2, which translates and generates fast on CPUs, by its own converter.
    - onnx: one graph for onnxruntime and others, for batches of any size and length: token ids and mask, or pixels, in;
      logits out. It keeps no cache between calls.
    - gguf: one file for llama.cpp and the programs made of it, with the tokenizer.

    ctranslate2 and onnx need pip install 'clearhead[export]', and gguf 'clearhead[gguf]'. What these three write is run
    once and compared with the model.

    Args:
        to: The form to write: hf for transformers, peft for adapters in PEFT, ctranslate2 for fast CPUs, onnx for
            onnxruntime, or gguf for llama.cpp.
        out: New folder to write (default: the model's name and the form, such as opus-de-en-onnx).
        dtype: Type of the weights (default: as they are stored; float32 for onnx). For gguf also q8_0, eight bits.
        quantization: For ctranslate2: weights of 8 or 16 bits instead.
        shard_gb: For hf: gigabytes of weights a file at most (default: 5).
    """
    from clearhead.checkpoints.weights.hub import locate
    from clearhead.cli.share.formats import NEEDS, WRITERS, ExportOptions, check_free, check_options

    options = ExportOptions(dtype=SHORT.get(dtype or "", dtype), quantization=quantization, shard_gb=shard_gb)
    check_options(to, options)
    for package in NEEDS[to]:
        if importlib.util.find_spec(package) is None:
            extra = "gguf" if to == "gguf" else "export"
            remedy = f"try pip install 'clearhead[{extra}]'"
            raise UserError(f"--to {to}: expected the package {package}, got none; {remedy}")
    # A model on the hub is in a folder there that is named after its revision.
    called = Path(model).resolve().name if Path(model).exists() else model.rpartition("/")[2]
    place = out or Path(f"{called}-{to}")
    check_free(place)
    tell(f"reading {model}")
    folder = locate(model, revision=revision)
    written = WRITERS[to](folder, place, options, model)
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    print(f"{place}: {written.what}, {size / 1e6:,.1f} MB", flush=True)
    tell(f"Open it with {written.hint}")


def prune(model: str, /, *, heads: int, out: Path) -> None:
    """Remove the attention heads that matter least, and write the smaller model.

    Removes as many heads from each attention: those whose absence, each alone, changes the output least on a batch of
    the run's data. Queries, keys, values and outputs become narrower, so that the model is smaller and quicker. Train
    it on afterwards: `clearhead train RECIPE --model.start OUT`.

    Args:
        model: Folder of a run.
        heads: Heads to remove from each attention.
        out: New folder to write.
    """
    from clearhead.analysis.ablation import unit
    from clearhead.analysis.pruning import without_heads
    from clearhead.api import Model, load
    from clearhead.cli.share.formats import check_free
    from clearhead.runs import prepare_task, task_of

    check_free(out)
    opened = load(model).merge()
    _, recipe = task_of(model, opened)
    if recipe is None:
        raise UserError(f"{model}: expected a run, whose data show which heads matter, got only a model; train it")
    task = prepare_task(recipe, opened.tokenizer).task
    batch = task.collate(task.plan(seed=0, epoch=0)[0][:EXAMPLES])
    tell(f"{model}: measuring heads on {batch.count:,} labels of its data ...")
    pruned = without_heads(opened.network, [x.padded() for x in batch.inputs], heads)
    before, after = opened.network.n_parameters, pruned.network.n_parameters
    given = {"sentences": opened.sentences, "family": opened.family}
    Model(pruned.network, opened.tokenizer, opened.generation, **given).save(out)
    measured = unit(opened.network)
    least = max(pruned.effects[site] for site in pruned.removed)
    tell(
        f"removed {len(pruned.removed)} of {len(pruned.effects)} heads, with effects of at most {least:.2g} {measured};"
    )
    tell(f"the largest effect of one that stays is {max(pruned.effects.values()):.2g} {measured}")
    print(f"{out}: {after:,} parameters in place of {before:,} ({after / before - 1:.1%})", flush=True)
    tell(f"measure it: clearhead evaluate {pasted(out)} with your data; train it on with --model.start {pasted(out)}")


def push(model: Named, repository: str, /, *, private: Flag = False, revision: str | None = None) -> None:
    """Upload a model to the Hugging Face hub, where others and `clearhead.load` open it by its name.

    Writes the model as `export --to hf` does, with its tokenizer, settings and model card, and prints the address.
    Needs a token that may write: `hf auth login`, or the environment variable HF_TOKEN.

    Args:
        repository: Name of the repository, such as owner/name; made where there is none, else its files are replaced.
        private: Make a new repository visible to its owner alone.
        revision: Branch, tag or commit of the model that is read.
    """
    from clearhead.api import load
    from clearhead.checkpoints.weights.hub import locate, upload

    tell(f"reading {model}")
    opened = load(locate(model, revision=revision))
    with tempfile.TemporaryDirectory() as temporary:
        # The card is named after its folder.
        folder = opened.save(Path(temporary) / (repository.rpartition("/")[2] or "model"))
        tell(f"uploading to {repository}")
        print(upload(folder, repository, private=private), flush=True)
