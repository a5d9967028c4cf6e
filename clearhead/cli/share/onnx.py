"""A network as an ONNX graph: plain tensors in and out, any batch and any length."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.analysis import comparison
from clearhead.api import CONFIG, Model, model_json
from clearhead.api.folders import PREPROCESSOR
from clearhead.api.pretrained import GENERATION, export
from clearhead.cli.options import tell
from clearhead.config import Continuous, NoHead, PatchInput, TokenInput, WaveInput
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.assign import merged
from clearhead.model.mode import Evaluating

FILE = "model.onnx"
AXES = {"pixel_values": ("batch",), "input_features": ("batch",), "decoder_input_ids": ("batch", "decoder_length")}
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
    target = ["decoder_input_ids"] * network.config.is_encoder_decoder
    if isinstance(reads, Continuous):
        return ["pixel_values" if isinstance(reads, PatchInput) else "input_features", *target]
    types = ["token_type_ids"] if reads.n_types > 1 else []
    return ["input_ids", "attention_mask", *types, *target]


def output_name(network: Transformer) -> str:
    """The name of the graph's output."""
    return "last_hidden_state" if isinstance(network.config.head, NoHead) else "logits"


def tokens(given: Mapping[str, Tensor]) -> list[Tokens]:
    """The inputs as a network reads them, one `Tokens` for each stack."""
    if "pixel_values" in given:
        first = Tokens(given["pixel_values"])
    elif "input_features" in given:
        first = Tokens(given["input_features"].mT)
    else:
        first = Tokens(given["input_ids"], given["attention_mask"].bool(), types=given.get("token_type_ids"))
    return [first, Tokens(given["decoder_input_ids"])] if "decoder_input_ids" in given else [first]


def sample(network: Transformer, *, batch: int, length: int, decoder_length: int) -> dict[str, Tensor]:
    """A random batch of this size, its second row padded on the right; shorter where positions end before."""
    config, generator = network.config, torch.Generator().manual_seed(0)
    length = min(length, config.first.max_length or length)
    lengths = [length, max(1, length // 2), *[length] * (batch - 2)]
    found, _ = comparison.sample(network, lengths=lengths, generator=generator)
    reads, dtype = config.first.input, network.dtype
    found = {name: value.to(dtype) if value.is_floating_point() else value for name, value in found.items()}
    if isinstance(reads, TokenInput) and reads.n_types > 1:
        shape = found["input_ids"].shape
        found["token_type_ids"] = torch.randint(reads.n_types, shape, generator=generator)
    if config.is_encoder_decoder:
        n = min(decoder_length, config.output.max_length or decoder_length)
        found["decoder_input_ids"] = found["decoder_input_ids"][:, :n].contiguous()
    return {name: found[name] for name in input_names(network)}


def write(model: Model, folder: Path) -> float:
    """Writes graph, config and tokenizer. Returns the largest difference of the graph's output, as `difference` does.

    Weights of 1.5 GB or more are in files beside the graph, whose own file is limited to 2 GB.
    """
    if isinstance(model.config.first.input, WaveInput):
        raise UserError("export: expected a model of texts, images or frames for onnx, got one of samples; try --to hf")
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
    """Removes the source locations of nodes, which are paths of this machine."""
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
    own = {CONFIG: model_json(model.config, model.settings())}
    documents: dict[str, Any] = (
        own if exported is None else {n: exported.files.json.get(n) for n in (CONFIG, GENERATION)}
    )
    documents[PREPROCESSOR] = model.reader.processor.config.to_document() if model.reader.processor else None
    documents |= model.contract.files()
    written = {n: json.dumps(document, indent=2).encode() for n, document in documents.items() if document}
    return found | written


def difference(plain: Plain, path: Path) -> float:
    """max |graph - ours| / max |ours| on the real positions of another batch, by ONNX's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    given = sample(plain.network, batch=4, length=9, decoder_length=7)
    with Evaluating(plain), torch.no_grad():
        ours = plain(*given.values()).float()
    ran: Any = ReferenceEvaluator(str(path)).run(None, {name: value.numpy() for name, value in given.items()})
    theirs = torch.from_numpy(ran[0]).float()
    if "attention_mask" in given and "decoder_input_ids" not in given and ours.ndim == 3:
        real = given["attention_mask"].bool()
        ours, theirs = ours[real], theirs[real]
    return comparison.relative(ours, theirs)


def signature(model: Model) -> str:
    """The names and shapes of inputs and outputs, as text."""
    network = model.network
    reads = network.config.first.input
    numbers = reads.shape if isinstance(reads, Continuous) else ()
    last = {"pixel_values": numbers, "input_features": numbers[::-1]}
    sides = {name: (*AXES.get(name, SEQUENCE), *last.get(name, ())) for name in input_names(network)}
    shapes = {name: ", ".join(map(str, side)) for name, side in sides.items()}
    return f"{', '.join(f'{name} [{shape}]' for name, shape in shapes.items())} -> {output_name(network)}"
