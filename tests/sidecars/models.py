"""Seeded changes of the files beside the weights, and what each comes to in both libraries."""

import logging
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from clearhead.api import load
from clearhead.errors import UserError
from tests.sidecars import reference
from tests.sidecars.tiny import change, document, network, put, texts, tokenizer

CONFIG, MODULES, TEXTS = "config.json", "modules.json", "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
FAMILIES = ("Bert", "GPT2", "Llama", "ModernBert")
CLOSE = 2e-5


@dataclass(frozen=True)
class Case:
    """One changed folder: what was changed, and how it is asked."""

    what: str
    folder: Path
    asks: str
    """vectors or scores."""
    texts: list[str]
    prompt: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What it came to: same, refused, or wrong; and why."""

    kind: str
    told: str = ""


def make(seed: int, folder: Path) -> Case:
    """The folder of this seed."""
    draw = random.Random(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    return KINDS[kind](draw, folder)


def outcome(case: Case) -> Outcome:
    """Both libraries on one folder: equal numbers, or one line of ours that names a file or a field of it."""
    logging.disable(logging.WARNING)
    try:
        ours = answers(case)
    except UserError as error:
        line = str(error)
        named = line.startswith((f"{case.folder}/", f"{case.folder}:")) and line.isprintable() and "; " in line
        return Outcome("refused" if named else "wrong", line.removeprefix(str(case.folder)))
    finally:
        logging.disable(logging.NOTSET)
    try:
        theirs = expected(case)
    except Exception as error:
        return Outcome("wrong", f"the reference refuses: {type(error).__name__}: {error}"[:300])
    if ours.shape != theirs.shape:
        return Outcome("wrong", f"shapes {list(ours.shape)} and {list(theirs.shape)}")
    gap = float((ours - theirs).abs().max() / max(1.0, float(theirs.abs().max())))
    return Outcome("same" if gap <= CLOSE else "wrong", f"{gap:.1e}")


def answers(case: Case) -> torch.Tensor:
    """Ours; of a folder that we wrote again, too, which must be equal."""
    model = load(case.folder)
    again = load(model.save(case.folder.with_name(f"{case.folder.name}-again")))
    if case.asks == "vectors":
        found = [one.embed(case.texts, unit=False, prompt=case.prompt) for one in (model, again)]
    else:
        found = [_table([dict(row) for row in one.classify(case.texts)]) for one in (model, again)]
    assert torch.equal(*found), "saved, it answers otherwise"
    return found[0]


def expected(case: Case) -> torch.Tensor:
    """The reference's."""
    if case.asks == "vectors":
        return reference.vectors(case.folder, case.texts, prompt=case.prompt)
    return _table(reference.scores(case.folder, case.texts))


def _table(rows: list[dict[str, float]]) -> torch.Tensor:
    """A column for each label, by name; labels of other names make another number."""
    names = sorted(rows[0])
    return torch.tensor([[row[name] for name in names] + [float(hash(tuple(names)) % 997)] for row in rows])


# --- sentences -------------------------------------------------------------------------------------------------------

MODES = ["cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
NEW = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
STATES = {"method": "forward", "method_output_name": "last_hidden_state"}
READS = [STATES, STATES, {**STATES, "method_output_name": "pooler_output"}]
TANH = "torch.nn.modules.activation.Tanh"


def sentences(draw: random.Random, folder: Path) -> Case:
    """A network with modules of every kind in folders of any name, and what stands before and around texts."""
    place = draw.choice(["", "", "0_Transformer", "deep/net"])
    limit = draw.choice([{}, {"model_max_length": draw.randint(4, 30)}, {"truncation_side": "left"}])
    network(folder / place, draw.choice(FAMILIES), "Model", draw.randint(0, 99))
    tokenizer(folder / place, **limit)
    listed = [("0", place, "Transformer")]
    width = _pooling(draw, folder / (name := draw.choice(["1_Pooling", "pool", "x/y"])))
    listed.append(("1", name, "Pooling"))
    for i in range(2, 2 + draw.randint(0, 3)):
        kind = draw.choice(["Dense", "Dense", "Normalize", "LayerNorm", "Dropout"])
        path = f"{i}_{draw.choice([kind, 'any'])}"
        width = MAKERS[kind](draw, folder / path, width)
        listed.append((str(i), path, kind))
    put(folder / MODULES, [_entry(i, *one) for i, one in enumerate(listed)])
    if draw.random() < 0.7:
        said = {"max_seq_length": draw.choice([None, 3, 6, 11, 40]), "do_lower_case": draw.random() < 0.4}
        if draw.random() < 0.3:
            said |= {"modality_config": {"text": draw.choice(READS)}, "module_output_name": "token_embeddings"}
        name = draw.choice([TEXTS, TEXTS, "sentence_roberta_config.json", "sentence_mpnet_config.json"])
        kept = dict(draw.sample(sorted(said.items(), key=str), draw.randint(1, 2)))
        put(folder / place / name, said if "modality_config" in kept or "module_output_name" in kept else kept)
    if draw.random() < 0.7:
        names = {"query": "ab cd", "other": "A", "none": ""}
        prompts = dict(draw.sample(sorted(names.items()), draw.randint(0, 3)))
        default = draw.choice([None, *prompts, *(["missing"] if draw.random() < 0.2 else [])])
        put(folder / PROMPTS, {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": "cosine"})
        if draw.random() < 0.5:
            change(
                folder / PROMPTS, {draw.choice(["truncate_dim", "truncate_dim", "note"]): draw.choice([1, 7, 16, 99])}
            )
    what = _spoiled(draw, folder, place) if draw.random() < 0.3 else "as it was made"
    case = Case(f"sentences: {what}", folder, "vectors", texts(draw), draw.choice([None, None, "ab ", "Q e"]))
    return case


def _entry(i: int, name: str, path: str, kind: str) -> dict[str, object]:
    return {"idx": i, "name": name, "path": path, "type": f"sentence_transformers.models.{kind}"}


def _pooling(draw: random.Random, place: Path) -> int:
    n = draw.choice([1, 1, 1, 2, 3])
    include = {} if draw.random() < 0.5 else {"include_prompt": draw.random() < 0.5}
    if draw.random() < 0.3:
        chosen = draw.sample(NEW, n)
        put(place / CONFIG, {"embedding_dimension": 16, "pooling_mode": chosen[0] if n == 1 else chosen, **include})
    else:
        old = {f"pooling_mode_{mode}": False for mode in MODES} | {
            f"pooling_mode_{m}": True for m in draw.sample(MODES, n)
        }
        put(place / CONFIG, {"word_embedding_dimension": 16, **old, **include})
    return 16 * n


def _dense(draw: random.Random, place: Path, width: int) -> int:
    out, bias = draw.choice([width, 5, 24]), draw.random() < 0.7
    activation = draw.choice([TANH, "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.GELU"])
    said: dict[str, Any] = {"in_features": width, "out_features": out, "bias": bias, "activation_function": activation}
    if out == width and draw.random() < 0.3:
        said["use_residual"] = True
    put(place / CONFIG, said)
    tensors = {"linear.weight": _noise(draw, out, width)} | ({"linear.bias": _noise(draw, out)} if bias else {})
    if draw.random() < 0.3 and "use_residual" not in said:
        torch.save(tensors, place / "pytorch_model.bin")  # noqa: TID251 - as older versions wrote
    else:
        save_file(tensors, place / "model.safetensors")
    return out


def _norm(draw: random.Random, place: Path, width: int) -> int:
    put(place / CONFIG, {"dimension": width})
    save_file({"norm.weight": _noise(draw, width), "norm.bias": _noise(draw, width)}, place / "model.safetensors")
    return width


def _unit(draw: random.Random, place: Path, width: int) -> int:
    if draw.random() < 0.5:
        place.mkdir(parents=True)
    else:
        put(place / CONFIG, {})
    return width


def _dropout(draw: random.Random, place: Path, width: int) -> int:
    put(place / CONFIG, {"dropout": draw.choice([0.1, 0.5])})
    return width


MAKERS = {"Dense": _dense, "LayerNorm": _norm, "Normalize": _unit, "Dropout": _dropout}


def _noise(draw: random.Random, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(draw.randint(0, 10**6))) * 0.5


def _spoiled(draw: random.Random, folder: Path, place: str) -> str:
    """One file of it changed so that it may mean nothing."""
    modules = document(folder / MODULES)
    last, what = modules[-1], draw.choice(["type", "code", "path", "order", "setting", "mode", "weights", "task"])
    config = folder / last["path"] / CONFIG
    match what:
        case "type":
            last["type"] = f"sentence_transformers.models.{draw.choice(['WeightedLayerPooling', 'CNN', 'LSTM'])}"
        case "code":
            last["type"] = "custom.Pooling"
        case "path":
            last["path"] = draw.choice(["../x", "/x", "nowhere"])
        case "order":
            modules.reverse()
        case "setting" if config.is_file():
            change(config, {"module_input_name": "token_embeddings"} if "Dense" in last["type"] else {"mystery": 1})
        case "mode":
            change(folder / modules[1]["path"] / CONFIG, {"pooling_mode": "median"})
        case "weights" if (config.parent / "model.safetensors").is_file():
            tensors = load_file(config.parent / "model.safetensors")
            save_file({f"x.{name}": value for name, value in tensors.items()}, config.parent / "model.safetensors")
        case "task":
            put(folder / place / TEXTS, {"transformer_task": "fill-mask"})
    put(folder / MODULES, modules)
    return what


# --- labels ----------------------------------------------------------------------------------------------------------


def labels(draw: random.Random, folder: Path) -> Case:
    """A classifier whose config says this and that of its labels."""
    n = draw.choice([1, 2, 3, 4])
    network(folder, draw.choice(FAMILIES), "ForSequenceClassification", draw.randint(0, 99), num_labels=n)
    tokenizer(folder)
    said = document(folder / CONFIG)
    for name in ("id2label", "label2id", "num_labels", "problem_type"):
        said.pop(name, None)
    names = [f"name {i}" for i in range(n)]
    how = draw.choice(["names", "num_labels", "gaps", "disagree", "from 1", "null", "both", "twice"])
    match how:
        case "names" | "disagree":
            said["id2label"] = {str(i): name for i, name in enumerate(names)}
            if how == "disagree":
                said["label2id"] = {name: n - 1 - i for i, name in enumerate(names)}
        case "num_labels":
            said["num_labels"] = n
        case "gaps":
            said["id2label"] = {str(2 * i): name for i, name in enumerate(names)}
        case "from 1":
            said["id2label"] = {str(i + 1): name for i, name in enumerate(names)}
        case "null":
            said |= {"id2label": None, "label2id": None, "num_labels": n}
        case "both":
            said |= {"id2label": {str(i): name for i, name in enumerate(names)}, "num_labels": n + draw.randint(0, 1)}
        case "twice":
            said["id2label"] = {("0" * draw.randint(0, 1)) + str(i): name for i, name in enumerate(names)}
    kind = draw.choice([None, None, "regression", "multi_label_classification", "single_label_classification", "x"])
    if kind is not None or draw.random() < 0.3:
        said["problem_type"] = kind
    if draw.random() < 0.4:
        said["pad_token_id"] = draw.choice([said.get("eos_token_id"), 3, 10])
    put(folder / CONFIG, said)
    return Case(f"labels: {how}, {kind}", folder, "scores", texts(draw))


# --- config.json -----------------------------------------------------------------------------------------------------

NOTES: dict[str, object] = {
    "_num_labels": 5,
    "gradient_checkpointing": False,
    "model_max_length": 4096,
    "vendor_note": "trained in May",
    "unsloth_fixed": True,
    "rope_scaling": {"type": "linear", "factor": 2.0},
    "sliding_window": 3,
    "is_causal": False,
    "head_dim": 4,
    "hidden_size": 24,
    "num_attention_heads": 4,
    "layer_types": ["full_attention", "full_attention"],
    "mixture_of_depths": {"k": 2},
    "sentence_transformers": {"x": 1},
    "transformers_weights": "other.safetensors",
}


def unknown(draw: random.Random, folder: Path) -> Case:
    """Fields that training scripts and other classes leave."""
    case = labels_alone(draw, folder)
    notes = dict(draw.sample(sorted(NOTES.items()), draw.randint(1, 2)))
    change(folder / CONFIG, notes)
    return Case(f"unknown: {', '.join(notes)}", folder, "scores", case.texts)


def nulls(draw: random.Random, folder: Path) -> Case:
    """One field that is null."""
    case = labels_alone(draw, folder)
    said = document(folder / CONFIG)
    name = draw.choice([n for n in sorted(said) if said[n] is not None and n not in ("architectures", *BOOKKEEPING)])
    put(folder / CONFIG, {**said, name: None})
    return Case(f"null: {said['model_type']} {name}", folder, "scores", case.texts)


BOOKKEEPING = (
    *("use_cache", "is_decoder", "is_encoder_decoder", "initializer_range", "transformers_version", "dtype"),
    *("add_cross_attention", "output_hidden_states", "return_dict", "chunk_size_feed_forward", "output_attentions"),
    *("deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index", "reorder_and_upcast_attn"),
    *("scale_attn_by_inverse_layer_idx", "pretraining_tp", "initializer_cutoff_factor", "decoder_bias"),
    *("summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "gradient_checkpointing"),
    *("position_embedding_type", "tie_word_embeddings", "classifier_dropout", "model_type", "is_llama_config"),
)
"""Fields that change no number: the reference's types refuse null there, ours do not look."""


def strangers(draw: random.Random, folder: Path) -> Case:
    """Adapters, quantised weights and other forms, beside the model or instead of it."""
    case = labels_alone(draw, folder)
    what = draw.choice(["adapter", "adapter weights", "quantised", "gguf", "onnx", "beside"])
    match what:
        case "adapter":
            put(folder / "adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "a/b", "r": 8})
        case "adapter weights":
            save_file({"x": torch.zeros(1)}, folder / "adapter_model.safetensors")
        case "quantised":
            method = draw.choice(["gptq", "awq", "bitsandbytes", "fp8"])
            change(folder / CONFIG, {"quantization_config": {"quant_method": method, "bits": 4}})
        case "gguf" | "onnx":
            (folder / "model.safetensors").unlink()
            (folder / f"model.{what}").write_bytes(b"x")
        case "beside":
            (folder / draw.choice(["x.gguf", "model.onnx", "tf_model.h5", "notes.txt"])).write_bytes(b"x")
    return Case(f"strangers: {what}", folder, "scores", case.texts)


def labels_alone(draw: random.Random, folder: Path) -> Case:
    """A classifier of two labels, unchanged."""
    family = draw.choice(FAMILIES)
    network(folder, family, "ForSequenceClassification", draw.randint(0, 99), num_labels=2)
    tokenizer(folder)
    return Case(family, folder, "scores", texts(draw))


KINDS: dict[str, Callable[[random.Random, Path], Case]] = {
    "sentences": sentences,
    "labels": labels,
    "sentences again": sentences,
    "unknown": unknown,
    "nulls": nulls,
    "strangers": strangers,
}


def run(seed: int, place: Path) -> tuple[Case, Outcome]:
    """The case of this seed, made, asked and removed."""
    folder = place / str(seed)
    folder.mkdir()
    try:
        case = make(seed, folder)
        return case, outcome(case)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder.with_name(f"{folder.name}-again"), ignore_errors=True)
