"""Writes README.md of a saved model: what it is, how to open it, and the figures of its training."""

from collections.abc import Mapping

from pydantic import JsonValue

from clearhead.config import ClassificationHead, ModelConfig, PatchInput, StackConfig
from clearhead.model.summary import summarize


def card(
    config: ModelConfig, name: str, *, architecture: str | None, about: Mapping[str, JsonValue], has_tokenizer: bool
) -> str:
    """The text. `architecture` is the class as which other libraries open the model; None if they have none."""
    header = ["---", f"library_name: {'transformers' if architecture else 'clearhead'}", "tags:", "- clearhead", "---"]
    facts: list[tuple[str, object]] = [
        ("Architecture", architecture or "clearhead's own"),
        ("Parameters", f"{summarize(config).parameters:,}"),
    ]
    facts += [(name.capitalize(), described(stack)) for name, stack in config.stacks.items()]
    lines = [*header, "", f"# {name}", "", "| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in facts)]
    if about:
        lines += ["", "## Training", "", "| | |", "|---|---|", *(f"| {key} | {shown(v)} |" for key, v in about.items())]
    lines += [
        "",
        "## Use",
        "",
        "```python",
        "import clearhead",
        "",
        'model = clearhead.load("FOLDER")',
        use(config),
        "```",
    ]
    if architecture:
        imports = f"from transformers import {architecture}" + (", AutoTokenizer" if has_tokenizer else "")
        lines += ["", "or", "", "```python", imports, "", f'model = {architecture}.from_pretrained("FOLDER")']
        lines += ['tokenizer = AutoTokenizer.from_pretrained("FOLDER")'] if has_tokenizer else []
        lines += ["```"]
    return "\n".join(lines) + "\n"


def described(stack: StackConfig) -> str:
    """One line about a stack."""
    reads = stack.input
    what = (
        f"images of {reads.image_size} x {reads.image_size}"
        if isinstance(reads, PatchInput)
        else f"vocabulary of {reads.vocab_size:,}"
    )
    return f"{stack.n_layers} layers of width {stack.d_model}, {stack.n_heads} heads, {what}"


def use(config: ModelConfig) -> str:
    """One line that uses such a model."""
    if isinstance(config.head, ClassificationHead):
        return 'model.classify(["…"])'
    if config.decoder is None:
        return 'model.embed(["…"])'
    return 'model.generate("…")' if config.encoder is None else 'model.translate(["…"])'


def shown(value: JsonValue) -> str:
    """A figure for people."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
