"""Writes README.md of a saved model: its architecture, how to open it, and the figures of its training."""

from collections.abc import Mapping

from pydantic import JsonValue

from clearhead.config import ClassificationHead, Continuous, ModelConfig, StackConfig, VectorHead
from clearhead.model.summary import summarize


def card(
    config: ModelConfig, name: str, *, architecture: str | None, about: Mapping[str, JsonValue], has_tokenizer: bool
) -> str:
    """The text. `architecture` is the class as which other libraries open the model; None if they have none."""
    library = "transformers" if architecture else "clearhead"
    facts = {"Architecture": architecture or "clearhead's own", "Parameters": f"{summarize(config).parameters:,}"}
    facts |= {title.capitalize(): described(stack) for title, stack in config.stacks.items()}
    lines = ["---", f"library_name: {library}", "tags:", "- clearhead", "---", "", f"# {name}", "", *table(facts)]
    if about:
        lines += ["", "## Training", "", *table(about)]
    lines += ["", "## Use", "", *code("import clearhead", "", 'model = clearhead.load("FOLDER")', use(config))]
    if architecture:
        imports = f"from transformers import {architecture}" + (", AutoTokenizer" if has_tokenizer else "")
        opened = [f'model = {architecture}.from_pretrained("FOLDER")']
        opened += ['tokenizer = AutoTokenizer.from_pretrained("FOLDER")'] if has_tokenizer else []
        lines += ["", "or", "", *code(imports, "", *opened)]
    return "\n".join(lines) + "\n"


def table(rows: Mapping[str, JsonValue]) -> list[str]:
    """A table of names and values, numbers with four digits."""
    shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in rows.items()}
    return ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in shown.items())]


def code(*lines: str) -> list[str]:
    """A block of Python."""
    return ["```python", *lines, "```"]


def described(stack: StackConfig) -> str:
    """One line about a stack."""
    reads = stack.input
    what = (
        f"{reads.medium}s of {' x '.join(map(str, reads.shape)) if reads.is_fixed else 'any length'}"
        if isinstance(reads, Continuous)
        else f"vocabulary of {reads.vocab_size:,}"
    )
    return f"{stack.n_layers} layers of width {stack.d_model}, {stack.n_heads} heads, {what}"


def use(config: ModelConfig) -> str:
    """One line that uses such a model."""
    if isinstance(config.head, ClassificationHead):
        return 'model.classify(["…"])'
    if config.decoder is None or isinstance(config.head, VectorHead):
        return 'model.embed(["…"])'
    return 'model.generate("…")' if config.encoder is None else 'model.translate(["…"])'
