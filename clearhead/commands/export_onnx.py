"""A network as an ONNX graph: plain tensors in and out, any batch and any length."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.api import CONFIG, Model
from clearhead.api.pretrained import GENERATION, export
from clearhead.api.sidecars import PREPROCESSOR
from clearhead.commands import tell
from clearhead.config import NoHead, PatchInput, StackConfig, TokenInput
from clearhead.model import Tokens, Transformer
from clearhead.model.assign import merged
from clearhead.model.mode import Evaluating

FILE = "model.onnx"
AXES = {"pixel_values": ("batch",), "decoder_input_ids": ("batch", "decoder_length")}
SEQUENCE = ("batch", "length")


class Plain(nn.Module):
    """logits = network(tensors in the order of `names`), the names other libraries have for them."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.network, self.names = network, input_names(network)

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.network(*tokens(dict(zip(self.names, tensors, strict=True))))


def input_names(network: Transformer) -> list[str]:
    """The names of the graph's inputs."""
    reads = network.config.first.input
    if isinstance(reads, PatchInput):
        return ["pixel_values"]
    types = ["token_type_ids"] if reads.n_types > 1 else []
    return ["input_ids", "attention_mask", *types, *["decoder_input_ids"] * (len(network.config.stacks) == 2)]


def output_name(network: Transformer) -> str:
    """The name of the graph's output."""
    return "last_hidden_state" if isinstance(network.config.head, NoHead) else "logits"


def tokens(given: Mapping[str, Tensor]) -> list[Tokens]:
    """The inputs as a network reads them, one `Tokens` for each stack."""
    if "pixel_values" in given:
        return [Tokens(given["pixel_values"])]
    first = Tokens(given["input_ids"], given["attention_mask"].bool(), types=given.get("token_type_ids"))
    return [first, Tokens(given["decoder_input_ids"])] if "decoder_input_ids" in given else [first]


def sample(network: Transformer, *, batch: int, length: int, decoder_length: int) -> dict[str, Tensor]:
    """A random batch of this size, its second row padded on the right; shorter where positions end before."""
    generator = torch.Generator().manual_seed(0)
    first, last = network.config.first, network.config.output
    reads = first.input
    if isinstance(reads, PatchInput):
        shape = (batch, reads.n_channels, reads.image_size, reads.image_size)
        dtype = next(network.parameters()).dtype
        return {"pixel_values": torch.randn(shape, generator=generator).to(dtype)}

    def ids(stack: StackConfig, length: int, n: int) -> Tensor:
        return torch.randint(n, (batch, min(length, stack.max_length or length)), generator=generator)

    found = {"input_ids": ids(first, length, reads.vocab_size)}
    found["attention_mask"] = torch.ones_like(found["input_ids"])
    found["attention_mask"][1, max(1, found["input_ids"].shape[1] // 2) :] = 0
    if reads.n_types > 1:
        found["token_type_ids"] = ids(first, length, reads.n_types)
    if last is not first:
        assert isinstance(last.input, TokenInput)
        found["decoder_input_ids"] = ids(last, decoder_length, last.input.vocab_size)
    return found


def write(model: Model, folder: Path) -> float:
    """Write graph, config and tokenizer; returns the largest difference of the graph's output, relative to the largest
    value.

    Weights of 1.5 GB or more are in files beside the graph, whose own file is limited to 2 GB.
    """
    tell("following a batch through the network, operation by operation")
    network = model.network
    plain, example = Plain(network), sample(network, batch=3, length=6, decoder_length=4)
    axes = tuple(dict(enumerate(AXES.get(name, SEQUENCE))) for name in plain.names)
    with Evaluating(plain), torch.no_grad():
        program = torch.onnx.export(
            plain,
            tuple(example.values()),
            input_names=plain.names,
            output_names=[output_name(network)],
            dynamic_shapes=(axes,),
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        forget(program.model)
        program.save(folder / FILE)
    for name, content in beside(model).items():
        (folder / name).write_bytes(content)
    return difference(plain, folder / FILE)


def forget(graph: Any) -> None:
    """Remove the source locations of nodes, which are paths of this machine."""
    graph.metadata_props.clear()
    for owner in (graph.graph, *graph.functions.values()):
        owner.metadata_props.clear()
        for node in owner.all_nodes():
            node.metadata_props.clear()
            for value in node.outputs:
                value.metadata_props.clear()
        for value in owner.inputs:
            value.metadata_props.clear()


def beside(model: Model) -> dict[str, bytes]:
    """Config, settings and tokenizer, as other libraries keep them, by file name."""
    found: dict[str, bytes] = model.tokenizer_files() if model.has_tokenizer else {}
    exported = export(merged(model.network), model.settings(), prefer=model.family, shard_bytes=1 << 62)
    documents = {} if exported is None else {n: exported.files.json.get(n) for n in (CONFIG, GENERATION)}
    documents[PREPROCESSOR] = model.reader.images.config.to_document() if model.reader.images else None
    written = {n: json.dumps(document, indent=2).encode() for n, document in documents.items() if document}
    return found | written


def difference(plain: Plain, path: Path) -> float:
    """max |graph - ours| / max |ours| on another batch, where there are tokens, by ONNX's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    given = sample(plain.network, batch=4, length=9, decoder_length=7)
    with Evaluating(plain), torch.no_grad():
        ours = plain(*given.values()).float()
    ran: Any = ReferenceEvaluator(str(path)).run(None, {name: value.numpy() for name, value in given.items()})
    theirs = torch.from_numpy(ran[0]).float()
    if "attention_mask" in given and "decoder_input_ids" not in given and ours.ndim == 3:
        real = given["attention_mask"].bool()
        ours, theirs = ours[real], theirs[real]
    return float((ours - theirs).abs().max() / ours.abs().max())


def signature(model: Model) -> str:
    """The names and shapes of inputs and outputs, as text."""
    network = model.network
    first = network.config.first.input
    pixels = (first.n_channels, first.image_size, first.image_size) if isinstance(first, PatchInput) else ()
    shapes = {name: ", ".join(map(str, (*AXES.get(name, SEQUENCE), *pixels))) for name in input_names(network)}
    return f"{', '.join(f'{name} [{shape}]' for name, shape in shapes.items())} -> {output_name(network)}"
