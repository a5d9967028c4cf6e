"""`clearhead summary`, `check`, `export`, `prune` and `push`."""

from pathlib import Path
from typing import Literal

from clearhead.cli.options import Flag, Named, OneObject, Revision

SHORT = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
"""Other names of types."""


def summary(
    model: str,
    /,
    *,
    source_length: int | None = None,
    target_length: int | None = None,
    batch: int = 1,
    json: OneObject = False,
) -> None:
    """Count a model by component: parameters, shapes, FLOPs a token, bytes of activations and cache.

    Args:
        model: Folder of a model or run, or an architecture by name: transformer-base, bert-base, gpt2, llama-tiny, ...
        source_length: Tokens of the source, or of the only input.
        target_length: Tokens of the target.
        batch: Sequences at once.
    """
    from clearhead.cli.judge.evaluate import summary_command

    summary_command(model, source_length=source_length, target_length=target_length, batch=batch, as_json=json)


def check(model: str, /, *, revision: Revision = None, json: OneObject = False) -> None:
    """Check whether a model opens, and compare its values with those of the reference library.

    Says what each field of its config.json decided, and, where `transformers` is installed, the largest difference of
    the residual stream after every layer and of the logits, in float32 on one random input. Exit code 4 if they are
    not close.

    For a config without weights, and for one that does not open, prints a verdict: "opens", "opens but for a head" or
    "does not open", which mechanism is missing, the field that says so, and the nearest thing that works. Exit code 2
    unless it opens.

    Args:
        model: Folder of a model or run, the name of a model on the Hugging Face hub, or a config.json alone.
    """
    from clearhead.cli.judge.check import check_command

    check_command(model, revision=revision, as_json=json)


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
        to: The form to write.
        out: New folder to write (default: the model's name and the form, such as opus-de-en-onnx).
        dtype: Type of the weights (default: as they are stored; float32 for onnx). For gguf also q8_0, eight bits.
        quantization: For ctranslate2: weights of 8 or 16 bits instead.
        shard_gb: For hf: gigabytes of weights a file at most (default: 5).
    """
    from clearhead.cli.share.export import ExportOptions, export_command

    options = ExportOptions(dtype=SHORT.get(dtype or "", dtype), quantization=quantization, shard_gb=shard_gb)
    export_command(model, to=to, out=out, options=options, revision=revision)


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
    from clearhead.cli.share.prune import prune_command

    prune_command(model, heads=heads, out=out)


def push(model: Named, repository: str, /, *, private: Flag = False, revision: str | None = None) -> None:
    """Upload a model to the Hugging Face hub, where others and `clearhead.load` open it by its name.

    Writes the model as `export --to hf` does, with its tokenizer, settings and model card, and prints the address.
    Needs a token that may write: `hf auth login`, or the environment variable HF_TOKEN.

    Args:
        repository: Name of the repository, such as owner/name; made where there is none, else its files are replaced.
        private: Make a new repository visible to its owner alone.
        revision: Branch, tag or commit of the model that is read.
    """
    from clearhead.cli.share.push import push_command

    push_command(model, repository, private=private, revision=revision)
