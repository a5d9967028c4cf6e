"""Bad input to `load`, end to end: one line that names the file and what in it; nothing runs, nothing is allocated."""

import base64
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearhead.api import load
from clearhead.cli import main
from clearhead.errors import UserError
from clearhead.recipe.tokenizers import Characters
from clearhead.text.tokenizers import Tokenizer
from tests.hostile import (
    CONFIG,
    FIRST,
    INDEX,
    LABELLED,
    WEIGHTS,
    config_outcome,
    document_of,
    make,
    outcome,
    put,
    refusal,
    watched,
)
from tests.parity.cases import REPRESENTATIVES
from tests.parity.harness import Case

Spoil = Callable[[Path], object]
GENERATION, PREPROCESSOR, BIN = "generation_config.json", "preprocessor_config.json", "pytorch_model.bin"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GPT-2 with a tokenizer; opened once, so that all that opening imports is there."""
    folder = make(next(case for case in FIRST if case.family == "gpt2"), tmp_path_factory.mktemp("good") / "model")
    Tokenizer.train(["abc def", "a b c"], Characters()).save(folder)
    load(folder).generate("abc", load(folder).generation.model_copy(update={"max_new_tokens": 2}))
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A copy to be spoilt."""
    return Path(shutil.copytree(good, tmp_path / "model"))


def fields_of(case: Case, folder: Path) -> dict[str, Any]:
    """The fields of a written config that decide something."""
    return {name: value for name, value in document_of(make(case, folder)).items() if name not in UNMAPPED}


UNMAPPED = {"architectures", "model_type", "dtype"}

# --- every mapped field of every family ----------------------------------------------------------------------------

BAD: list[object] = [10**9, 10**300, -1, 0, 2.5, 1e300, "x", "24", "", None, [], [[1]], {}, {"a": {"b": [1]}}, True]


def check_fields(case: Case, folder: Path, values: list[object], *, one_in: int = 1) -> int:
    """Every field at bad values is refused by its name, or means something; returns how many were refused.

    One in so many values of each field, in turn.
    """
    refused = 0
    fields = fields_of(case, folder)
    document, tensors = document_of(folder), tuple(load_file(folder / WEIGHTS))
    for i, name in enumerate(fields):
        for value in values[i % one_in :: one_in]:
            said = config_outcome(put(folder, {**document, name: value}))
            if said is None:
                # A width that no tensor has, or a field that limits nothing here.
                said = outcome(folder) if value == 10**9 and type(document[name]) is int else None
            if said is not None:
                refused += 1
                by_tensor = said.removeprefix(":").startswith(tensors)
                assert name in said or by_tensor, (name, value, said)
    return refused


@pytest.mark.parametrize("case", [*FIRST, LABELLED[0]], ids=str)
def test_every_field_of_every_family(case: Case, tmp_path: Path) -> None:
    assert check_fields(case, tmp_path / "model", BAD[:9], one_in=3) > 20


@pytest.mark.slow
@pytest.mark.parametrize("case", REPRESENTATIVES, ids=str)
def test_every_field_of_every_class(case: Case, tmp_path: Path) -> None:
    more: list[object] = [-(10**9), 1e-300, -0.5, [1], False, "x" * 5000, "\n\u2028", "é\0", 2**63, [10**9] * 1000]
    assert check_fields(case, tmp_path / "model", BAD + more) > 100


SIZES = ("layer", "size", "embd", "d_model", "head", "inner", "ffn", "d_ff", "position", "kv", "dim")


ONE_OF_EACH = ("gpt2", "qwen2", "mbart", "deberta-v2", "siglip_vision_model", "unispeech-sat")


@pytest.mark.parametrize(
    "case",
    [case if case.family in ONE_OF_EACH else pytest.param(case, marks=pytest.mark.slow) for case in FIRST],
    ids=str,
)
def test_no_size_is_allocated_before_the_tensors_are_compared(case: Case, tmp_path: Path) -> None:
    folder = make(case, tmp_path / "model")
    outcome(folder)
    document = document_of(folder)
    sizes = [n for n, v in document.items() if type(v) is int and any(part in n for part in SIZES) and "token" not in n]
    assert len(sizes) >= 4
    for i, name in enumerate(sizes):
        put(folder, {**document, name: (10**9, 2**20, 1024)[i % 3]})
        with watched():
            outcome(folder)
    put(folder, document | dict.fromkeys(sizes, 10**9))
    assert "expected" in refusal(folder)
    put(folder, document | dict.fromkeys(sizes, 0))
    assert refusal(folder).startswith(f"{CONFIG}:")


# --- files ---------------------------------------------------------------------------------------------------------


def text(name: str, content: str | bytes) -> Spoil:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def fields(**changes: object) -> Spoil:
    return lambda folder: put(folder, {**document_of(folder), **changes})


def raw(old: str, new: str) -> Spoil:
    """config.json with a part of its text exchanged."""

    def spoil(folder: Path) -> None:
        content = (folder / CONFIG).read_text()
        assert old in content
        put(folder, content.replace(old, new, 1))

    return spoil


def alone(name: str) -> Spoil:
    """The weights in this form and no other."""

    def spoil(folder: Path) -> None:
        (folder / WEIGHTS).unlink()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")

    return spoil


def shards(folder: Path, n: int = 3) -> dict[str, str]:
    """The weights in n files; returns the index's table."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    places = {name: f"model-{i % n + 1:05}-of-{n:05}.safetensors" for i, name in enumerate(sorted(tensors))}
    for file in set(places.values()):
        save_file({name: tensors[name] for name in tensors if places[name] == file}, folder / file)
    write_index(folder, places)
    return places


def write_index(folder: Path, places: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))


def truncated(folder: Path) -> None:
    file = folder / max(shards(folder).values())
    file.write_bytes(file.read_bytes()[:-1])


def flipped(folder: Path) -> None:
    places = shards(folder)
    names = sorted(places)
    write_index(folder, {**places, names[0]: places[names[1]], names[1]: places[names[0]]})


def outside(file: str) -> Spoil:
    def spoil(folder: Path) -> None:
        places = shards(folder)
        write_index(folder, {**places, "transformer.wte.weight": file})

    return spoil


def shard_missing(folder: Path) -> None:
    (folder / max(shards(folder).values())).unlink()


def emptied(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def removed(*names: str) -> Spoil:
    return lambda folder: [(folder / name).unlink() for name in names]


def replaced_by_folder(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()


def listed(**changes: str) -> str:
    """modules.json with the network alone, some of it exchanged."""
    return json.dumps([{"name": "0", "path": "", "type": "sentence_transformers.models.Transformer", **changes}])


SHARD = "model-0000[13]-of-00003.safetensors"
FILES: dict[str, tuple[Spoil, str]] = {
    "truncated": (lambda f: os.truncate(f / WEIGHTS, 3000), rf"{WEIGHTS}: expected a whole safetensors file"),
    "truncated-shard": (truncated, rf"{SHARD}: expected a whole safetensors file"),
    "missing-shard": (shard_missing, rf"{SHARD}: expected a file, got none"),
    "flipped-index": (flipped, rf"model-0000\d-of-00003.safetensors:\S+: expected this tensor, as {INDEX} says"),
    "outside": (
        outside("../evil.safetensors"),
        rf"{INDEX}:transformer.wte.weight: expected the name of a .safetensors",
    ),
    "shard-list": (lambda f: (shards(f), write_index(f, [1])), rf"{INDEX}:weight_map: expected a table"),
    "weights-folder": (replaced_by_folder, rf"{WEIGHTS}: expected a regular file"),
    "no-config": (removed(CONFIG), rf"{CONFIG}: expected a file beside the weights, got none"),
    "no-weights": (removed(WEIGHTS), rf": expected {WEIGHTS} or {INDEX}, got neither"),
    "empty": (emptied, r": expected a folder with a model, got an empty one"),
    "config-nothing": (
        text(CONFIG, "{}"),
        rf"{CONFIG}:model_type: expected an architecture that clearhead opens, got None",
    ),
    "config-cut": (raw("}", ""), rf"{CONFIG}:\d+: expected JSON"),
    "config-bytes": (text(CONFIG, b'{"a": "\xff"}'), rf"{CONFIG}: expected UTF-8, got the byte 0xFF"),
    "quantized": (
        fields(quantization_config={"quant_method": "aqlm", "bits": 4}),
        rf"{CONFIG}:quantization_config: expected plain weights or one of gptq, .*, got aqlm in 4 bits; try the checkp",
    ),
    "adapter": (
        text("adapter_config.json", '{"peft_type": "LORA", "base_model_name_or_path": "x/y"}'),
        r"adapter_model.safetensors: expected the adapter's weights, got none; save it again with safetensors",
    ),
    "adapter-weights": (
        text("adapter_model.safetensors", "x"),
        r"adapter_model.safetensors: expected adapter_config.json",
    ),
    "alias": (fields(hidden_size=7), rf"{CONFIG}:hidden_size: expected n_embd=\d+, of which it is another name, got 7"),
    "shared-code": (fields(is_causal=False), rf"{CONFIG}:is_causal: expected True, as its attention is"),
    "gguf-alone": (
        alone("x.Q4_0.gguf"),
        r"x.Q4_0.gguf: expected a whole GGUF file, got a value of 4 bytes where 1 are",
    ),
    "onnx-alone": (alone("onnx/model.onnx"), r"onnx/model.onnx: expected weights in safetensors, got an ONNX graph"),
    "unknown-type": (
        fields(model_type="recurrent_gemma"),
        rf"{CONFIG}:model_type: expected an architecture.*, got 'recurrent_gemma', which has no table",
    ),
    "unknown-class": (fields(architectures=["GPT2Evil"]), rf"{CONFIG}:architectures: expected one of GPT2LMHeadModel"),
    "decoder": (fields(is_decoder=1), rf"{CONFIG}:is_decoder: expected False"),
    "heads": (fields(n_head=7), rf"{CONFIG}: ?.*n_head=7 must divide n_embd=24"),
    "generation-garbage": (text(GENERATION, "garbage"), rf"{GENERATION}:1: expected JSON"),
    "generation-beams": (text(GENERATION, '{"num_beams": "x"}'), rf"{GENERATION}:num_beams: expected a valid integer"),
    "modules": (text("modules.json", "{}"), r"modules.json: expected a JSON list, got dict"),
    "modules-outside": (text("modules.json", listed(path="../x")), r"modules.json:0:path: expected a folder in this"),
    "modules-code": (text("modules.json", listed(type="x.Custom")), r"modules.json:0:type: expected a class of sente"),
    "modules-alone": (text("modules.json", listed()), r"modules.json: expected a Pooling after the Transformer, got n"),
    "tokenizer-garbage": (text("tokenizer.json", "garbage"), r"tokenizer.json: expected a tokenizer, got"),
    "tokenizer-config": (text("tokenizer_config.json", "[]"), r"tokenizer_config.json: expected a JSON object"),
    "added-tokens": (
        text(
            "tokenizer_config.json",
            '{"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": {"x": 1}}',
        ),
        r"tokenizer_config.json:added_tokens_decoder: expected tokens by id",
    ),
    "manifest": (text("MANIFEST.json", "{}"), r"MANIFEST.json: expected a manifest as it was written"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_spoilt_folder(name: str, folder: Path) -> None:
    spoil, expected = FILES[name]
    spoil(folder)
    said = refusal(folder)
    assert re.match(expected, said), said


@pytest.mark.parametrize("content", ["garbage", "[]", '{"size": "x"}', '{"size": 1e300}', '{"image_std": 0}'])
def test_how_images_are_prepared(content: str, tmp_path: Path) -> None:
    folder = make(next(case for case in FIRST if case.family == "vit"), tmp_path / "model")
    for spoilt in (content, '{"image_mean": [0.5]}', '{"image_std": 1e-300}', '{"rescale_factor": 1e300}', '{"x": 1}'):
        (folder / PREPROCESSOR).write_text(spoilt)
        assert refusal(folder).startswith(f"{PREPROCESSOR}:")


# --- tensors -------------------------------------------------------------------------------------------------------


def changed(name: str, change: Callable[[Tensor], Tensor]) -> Spoil:
    def spoil(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        save_file(tensors | {name: change(tensors[name]).contiguous()}, folder / WEIGHTS)

    return spoil


def dropped(*names: str) -> Spoil:
    def spoil(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        save_file({name: tensor for name, tensor in tensors.items() if name not in names}, folder / WEIGHTS)

    return spoil


def added(name: str) -> Spoil:
    return lambda folder: save_file({**load_file(folder / WEIGHTS), name: torch.ones(3)}, folder / WEIGHTS)


def with_number(value: float) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor.view(-1)[-1] = value
        return tensor

    return change


TABLE, QKV, FC = "transformer.wte.weight", "transformer.h.1.attn.c_attn.weight", "transformer.h.0.mlp.c_fc.weight"
NORM = "transformer.ln_f.bias"
TENSORS: dict[str, tuple[Spoil, str]] = {
    "missing": (dropped(TABLE), f"{TABLE}: expected a tensor of shape [60, 24], got none"),
    "extra": (added("transformer.h.0.evil.weight"), "transformer.h.0.evil.weight: expected no such tensor"),
    "extra-strange": (added("transformer.h.0.ln_1.a\nb\ud7ff"), "transformer.h.0.ln_1.a b?: expected no such tensor"),
    "extra-long": (added("x" * 100_000), "x" * 199 + "…: expected no such tensor"),
    "rows": (changed(TABLE, lambda t: t[:-1]), f"{TABLE}: expected shape [60, 24], got [59, 24]"),
    "scalar": (changed(NORM, lambda t: t[0]), f"{NORM}: expected shape [24], got []"),
    "flat": (changed(FC, lambda t: t.flatten()), f"{FC}: expected a matrix, got shape [2304]"),
    "unequal-parts": (changed(QKV, lambda t: t[:, :-1]), f"{QKV}: expected 3 equal parts, got shape [24, 71]"),
    "integers": (changed(TABLE, lambda t: t.long()), f"{TABLE}: expected float numbers, got int64"),
    "float8": (changed(TABLE, lambda t: t.to(torch.float8_e4m3fn)), f"{WEIGHTS}:{TABLE}: expected one of F64"),
    "nan": (changed(FC, with_number(float("nan"))), f"{FC}: expected finite numbers, got NaN or infinity"),
    "copy": (
        lambda f: save_file({**load_file(f / WEIGHTS), "lm_head.weight": torch.ones(60, 24)}, f / WEIGHTS),
        f"lm_head.weight: expected the numbers of {TABLE}",
    ),
    "wider": (fields(n_embd=48), "expected shape"),
    "deeper": (fields(n_layer=3), "transformer.h.2.ln_1.weight: expected a tensor of shape [24], got none"),
    "shallower": (fields(n_layer=1), "transformer.h.1."),
    "no-head": (
        fields(architectures=["GPT2ForSequenceClassification"], id2label={"0": "a", "1": "b"}),
        "score.weight: expected a tensor of shape [2, 24], got none",
    ),
    "no-output": (fields(tie_word_embeddings=False), "lm_head.weight: expected a tensor of shape [60, 24], got none"),
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.filterwarnings("error")
def test_a_spoilt_tensor(name: str, folder: Path) -> None:
    spoil, expected = TENSORS[name]
    spoil(folder)
    said = refusal(folder)
    assert expected in said, said


# --- pickles -------------------------------------------------------------------------------------------------------

PAYLOAD = base64.b64decode(b"Y3Bvc2l4CnN5c3RlbQooUyd0b3VjaCByYW4nCnRSLg==")  # posix.system("touch ran")


def test_a_pickle_is_not_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (folder / WEIGHTS).unlink()
    (folder / BIN).write_bytes(PAYLOAD)
    with pytest.raises(UserError) as error:
        load(folder)
    assert str(error.value).startswith(f"{folder / BIN}: expected ")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.rglob("ran"))
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_pickle_beside_good_weights_is_not_touched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for name in (BIN, "model.bin", "training_args.bin", "rust_model.ot", "tf_model.h5", "optimizer.pt"):
        (folder / name).write_bytes(PAYLOAD)
    os.mkfifo(folder / "pytorch_model.bin.index.json")  # to open it would wait for ever
    (folder / "modeling_evil.py").write_text("raise SystemExit('ran')")
    (folder / "torch.py").write_text("raise SystemExit('ran')")
    (folder / BIN).chmod(0)
    with watched():
        load(folder)
    assert not (folder / "ran").exists()


# --- the command line ----------------------------------------------------------------------------------------------

ALL = FILES | TENSORS
SHOWN = (
    *("empty", "no-config", "config-cut", "quantized", "heads"),
    *("truncated-shard", "tokenizer-garbage", "generation-beams", "extra-strange", "nan", "no-head"),
)


@pytest.mark.parametrize("name", SHOWN)
def test_a_user_sees_one_line(name: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ALL[name][0](folder)
    said = refusal(folder)
    reads_config_alone = config_outcome(folder) is not None if (folder / CONFIG).exists() else True
    for words in (["check", folder], ["generate", folder, "x"], *([["summary", folder]] if reads_config_alone else [])):
        capfd.readouterr()
        with pytest.raises(SystemExit) as end, watched():
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        assert end.value.code == 2
        # Of a config that it can read and that does not open, `check` prints a verdict too.
        assert out == "" or (words[0] == "check" and out.startswith(("does not open: ", "opens but for a head: ")))
        assert err.count("\n") == 1
        assert err.startswith(f"error: {folder}")
        if name not in ("empty", "no-config"):
            assert err.removeprefix(f"error: {folder}").removeprefix("/") == said + "\n"


# --- tokens the network has no vector for --------------------------------------------------------------------------


def test_more_tokens_than_vectors(folder: Path) -> None:
    """Such a model opens, as in the reference library; only a text with such a token is refused."""
    words = [chr(0x4E00 + i) for i in range(80)]
    Tokenizer.train(words, Characters()).save(folder)
    model = load(folder)
    known, rare = ([word for word in words if (model.tokenizer.encode(word)[0] < 60) == few] for few in (True, False))
    model.embed([known[0], known[1] * 3])
    for call in (lambda: model.generate(rare[0]), lambda: model.embed(rare), lambda: model.logits(rare[1])):
        with pytest.raises(UserError, match=r"^tokenizer: expected ids below 60, .*, got \d\d; try"):
            call()


# --- hostile configs -----------------------------------------------------------------------------------------------

LABELS = {str(i): f"L{i}" for i in range(1_000_000)}


def deep(levels: int, table: bool = True) -> str:
    opening, closing = ('{"a": ', "}") if table else ("[", "]")
    return opening * levels + "1" + closing * levels


HOSTILE: dict[str, tuple[Spoil, str | None]] = {
    "remote-code": (fields(auto_map={"AutoModel": "evil--modeling_evil.Evil"}, trust_remote_code=True), None),
    "url": (fields(_name_or_path="https://example.com/evil", name_or_path="file:///etc/passwd"), None),
    "type-path": (fields(model_type="../../etc/passwd"), f"{CONFIG}:model_type:"),
    "class-dunder": (fields(architectures=["__import__"]), f"{CONFIG}:architectures:"),
    "pipelines": (fields(custom_pipelines={"x": {"impl": "modeling_evil.Evil"}}), None),
    "tokenizer-class": (fields(tokenizer_class="modeling_evil.Evil"), None),
    "field-strange": (lambda f: put(f, {**document_of(f), "a\nb\u2028\x1b[31m": 1}), None),
    "value-long": (fields(activation_function="x" * 900_000), f"{CONFIG}:activation_function:"),
    "ignored-long": (fields(summary_type="x" * 900_000), None),
    "deep-table": (raw('"n_embd": 24', f'"n_embd": {deep(5000)}'), f"{CONFIG}: expected at most 100 levels"),
    "deep-list": (raw('"n_embd": 24', f'"n_embd": {deep(900, table=False)}'), f"{CONFIG}: expected at most 100 levels"),
    "labels-million": (fields(architectures=["GPT2ForTokenClassification"], id2label=LABELS), f"{CONFIG}:"),
    "labels-odd": (
        fields(architectures=["GPT2ForTokenClassification"], id2label={"x": "a", "": "b"}),
        f"{CONFIG}:id2label:",
    ),
    "labels-nested": (
        fields(architectures=["GPT2ForTokenClassification"], id2label={"0": {"a": 1}, "1": []}),
        f"{CONFIG}:id2label: expected a name for each number",
    ),
    "special-tokens": (fields(bos_token_id=[[1]], eos_token_id={"a": 1}), f"{CONFIG}:bos_token_id:"),
    "quantised": (fields(quantization_config={"quant_method": "bitsandbytes"}), f"{CONFIG}:quantization_config:"),
    "ours": (fields(clearhead=1), ""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_config(name: str, folder: Path) -> None:
    spoil, expected = HOSTILE[name]
    spoil(folder)
    (folder / "modeling_evil.py").write_text("raise SystemExit('ran')")
    with watched():
        said = outcome(folder)
    assert (said is None) is (expected is None), said
    if said is not None and expected is not None:
        assert said.startswith(expected) or expected in said, said


def test_a_field_that_nobody_knows_is_told_in_one_short_line(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(folder, {**document_of(folder), "a\nb\u2028\x1b[31m": 1, "x" * 100_000: 2})
    load(folder)
    (told,) = [record.message for record in caplog.records]
    assert told.isprintable()
    assert len(told) < 500
    assert "config.json: not read, as it changes no number in transformers 5.23.0 either: a b" in told


ANGLES: list[object] = [
    {"rope_type": "dynamic"},
    {"rope_type": "linear", "factor": 0},
    {"rope_type": "linear"},
    {"rope_type": "yarn", "factor": 1e300, "original_max_position_embeddings": 0},
    {"rope_type": "yarn", "factor": 4.0, "beta_fast": 0.0},
    {"rope_type": "yarn", "factor": 4.0, "mscale": "x", "mscale_all_dim": [1]},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0},
    {"rope_type": ["linear"]},
    {"rope_type": None, "rope_theta": -1},
    {"rope_theta": "x"},
    {"__class__": "x"},
    {"a\nb": 1},
    "linear",
    7,
]


@pytest.mark.parametrize("family", ["llama", "modernbert"])
def test_absurd_angles(family: str, tmp_path: Path) -> None:
    folder = make(next(case for case in FIRST if case.family == family), tmp_path / "model")
    document = document_of(folder)
    for angles in ANGLES:
        both = {"full_attention": angles, "sliding_attention": angles}
        put(folder, {**document, "rope_parameters": both if family == "modernbert" else angles})
        said = outcome(folder)
        assert said is not None, angles
        assert said.startswith((f"{CONFIG}:rope_parameters:", f"{CONFIG}:rope_parameters.")), (angles, said)


def test_extreme_angles_that_are_numbers(tmp_path: Path) -> None:
    """What is a network is one, however absurd; its numbers may be."""
    folder = make(next(case for case in FIRST if case.family == "llama"), tmp_path / "model")
    for angles in ({"rope_theta": 1e300}, {"rope_type": "linear", "factor": 1e300}, {"rope_theta": 1.0000001}):
        assert outcome(put(folder, {**document_of(folder), "rope_parameters": angles})) is None


@pytest.mark.parametrize("name", [None, 3, b"gpt2", ["gpt2"]])
def test_a_name_that_is_none_asks_no_hub(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.checkpoints.weights.hub._download", lambda *_: pytest.fail("the hub was asked"))
    with pytest.raises(UserError, match=r"^name: expected a folder or the name of a model, got "):
        load(name)
