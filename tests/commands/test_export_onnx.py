import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.api import Model, load
from clearhead.cli.share.formats import quiet
from clearhead.cli.share.onnx import FILE, Plain, difference, input_names, sample, signature, write
from clearhead.config import ClassificationHead, Learned, ModelConfig, PatchInput, StackConfig
from clearhead.model import Tokens, Transformer
from tests.later import later
from tests.small_models import model_of

later("onnx")
later("onnxscript")


def images() -> Model:
    """A classifier of tiny images."""
    stack = StackConfig(
        input=PatchInput(image_size=8, patch_size=4),
        d_model=16,
        n_layers=1,
        n_heads=2,
        d_ff=32,
        positions=Learned(max_length=5),
    )
    network = Transformer(ModelConfig(encoder=stack, head=ClassificationHead(n_labels=3)))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return Model(network.eval())


MODELS = {
    "encoder": lambda: model_of("bert-base"),
    "decoder": lambda: model_of("nano"),
    "both": lambda: model_of("demo"),
    "images": images,
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name in ("encoder", "both") else [pytest.mark.slow]) for name in MODELS],
)
def exported(request, tmp_path_factory) -> tuple[Model, Path, float]:
    model = MODELS[request.param]()
    folder = tmp_path_factory.mktemp(request.param)
    with quiet():
        return model, folder, write(model, folder)


def of_evaluator(path: Path, given: dict[str, Tensor]) -> Tensor:
    """What ONNX's reference evaluator makes of the graph."""
    from onnx.reference import ReferenceEvaluator

    with quiet():
        ran: Any = ReferenceEvaluator(str(path)).run(None, {name: value.numpy() for name, value in given.items()})
    return torch.from_numpy(ran[0])


def of_runtime(path: Path, given: dict[str, Tensor]) -> Tensor:
    """What onnxruntime makes of it."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {name: value.numpy() for name, value in given.items()})[0])


def ours(model: Model, given: dict[str, Tensor]) -> Tensor:
    """The network's own answer, by way of ids and lengths."""
    if "pixel_values" in given:
        inputs = [Tokens(given["pixel_values"])]
    else:
        rows = [
            row[: int(n)].tolist() for row, n in zip(given["input_ids"], given["attention_mask"].sum(1), strict=True)
        ]
        inputs = [Tokens.pad(rows)]
        if "token_type_ids" in given:
            inputs = [Tokens(inputs[0].ids, inputs[0].valid, types=given["token_type_ids"])]
        if "decoder_input_ids" in given:
            inputs.append(Tokens(given["decoder_input_ids"]))
    with torch.no_grad():
        return model.network(*inputs)


@pytest.mark.parametrize(
    ("run", "batch", "length", "decoder_length"),
    [(of_evaluator, 2, 3, 9), (of_runtime, 2, 3, 9), (of_runtime, 5, 17, 2), (of_runtime, 2, 40, 1)],
)
def test_any_batch_and_length(
    exported: tuple[Model, Path, float], run: Any, batch: int, length: int, decoder_length: int
):
    model, folder, _ = exported
    given = sample(model.network, batch=batch, length=length, decoder_length=decoder_length)
    expected, found = ours(model, given), run(folder / FILE, given)
    assert found.shape == expected.shape
    if "attention_mask" in given and "decoder_input_ids" not in given:
        real = given["attention_mask"].bool()
        assert not real.all(), "some of it is padding"
        expected, found = expected[real], found[real]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    assert float(expected.abs().max()) > 0.1


def test_it_was_checked(exported: tuple[Model, Path, float]):
    model, folder, gap = exported
    assert 0 < gap < 1e-5
    other = Transformer(model.config)
    torch.manual_seed(1)
    for parameter in other.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    assert difference(Plain(other).eval(), folder / FILE) > 0.1, "another network is not close"


def test_what_stands_beside(exported: tuple[Model, Path, float]):
    model, folder, _ = exported
    files = {path.name for path in folder.iterdir()}
    assert FILE in files
    assert ("tokenizer.json" in files) == model.has_tokenizer
    if "config.json" in files:
        assert json.loads((folder / "config.json").read_bytes())["architectures"]


def test_names(exported: tuple[Model, Path, float]):
    import onnx

    model, folder, _ = exported
    graph = onnx.load(folder / FILE).graph
    assert [value.name for value in graph.input] == input_names(model.network)
    axes = [[d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim] for value in graph.input]
    told = ", ".join(f"{n} [{', '.join(map(str, a))}]" for n, a in zip(input_names(model.network), axes, strict=True))
    assert signature(model) == f"{told} -> {graph.output[0].name}"


def test_no_path_of_this_machine_is_inside(exported: tuple[Model, Path, float]):
    _, folder, _ = exported
    content = (folder / FILE).read_bytes()
    assert b".py" not in content
    assert str(Path(__file__).parents[2]).encode() not in content


@pytest.mark.slow
def test_half_precision(tmp_path):
    model_of("gpt2").save(tmp_path / "model")
    model = load(tmp_path / "model", dtype="float16")
    (tmp_path / "graph").mkdir()
    with quiet():
        assert 0 < write(model, tmp_path / "graph") < 0.02


@pytest.mark.parametrize("limit", [2, 3])
def test_short_positions(limit: int):
    network = model_of("gpt2").network
    config = network.config.decoder
    assert config is not None
    stack = config.model_copy(update={"positions": Learned(max_length=limit)})
    short = Transformer(network.config.model_copy(update={"decoder": stack}))
    given = sample(short, batch=3, length=6, decoder_length=4)
    assert given["input_ids"].shape == (3, limit)
    assert given["attention_mask"].sum(1).tolist() == [limit, 1, limit]
