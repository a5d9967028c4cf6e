"""Tensors of files that the reference library does not write itself: older names, copies, other heads, four bits."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearhead.analysis.comparison import CLOSE, reference_states, states
from clearhead.api import Model, load
from clearhead.checkpoints.families import family_of
from clearhead.checkpoints.families.mixtures.gpt_oss import restored
from clearhead.checkpoints.weights import mapping
from clearhead.config import LanguageHead, NoHead, Rotary
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.heads import NoHead as NoHeadModule
from clearhead.model.layout import Layout
from tests.checkpoints.families.hub import CONFIGS
from tests.later import later
from tests.parity.cases import CASES, TEXT_PARTS, base, of
from tests.parity.harness import Case, Gap, both, inputs, reference, round_trip

transformers = later("transformers")


def saved(folder: Path, theirs: Any, tensors: Mapping[str, Tensor], **changes: object) -> Model:
    """Ours from the reference's config and these tensors."""
    theirs.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return load(folder)


def agrees(theirs: Any, ours: Model, case: Case) -> bool:
    batch = inputs(case, theirs)
    expected = reference_states(theirs, batch.theirs, ours.network)
    return Gap.between(expected, states(ours.network, batch.ours), batch.ours).relative <= CLOSE


def ones(**shapes: tuple[int, ...]) -> dict[str, Tensor]:
    return {name: torch.ones(shape) for name, shape in shapes.items()}


def linear(name: str, n_out: int, n_in: int) -> dict[str, Tensor]:
    return ones(**{f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)})


# --- older names, buffers, and what is left out --------------------------------------------------------------------


def test_tensors_of_an_old_checkpoint(tmp_path, caplog):
    """gamma and beta, buffers, a second copy of what is tied, and two heads of which one is not ours."""
    case = Case("bert", "old", "BertForMaskedLM", base("bert"))
    theirs = reference(case)
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in theirs.state_dict().items()
    }
    assert "cls.predictions.decoder.weight" in tensors
    tensors["bert.embeddings.position_ids"] = torch.arange(20)[None]
    tensors |= linear("bert.pooler.dense", 24, 24) | linear("cls.seq_relationship", 2, 24)
    assert agrees(theirs, saved(tmp_path, theirs, tensors), case)
    told = sorted(message.split(" left out ")[1] for message in caplog.messages if "left out" in message)
    assert told == [
        "bert.pooler.dense.bias, bert.pooler.dense.weight: this head reads the states, not the pooled one",
        "cls.seq_relationship.bias, cls.seq_relationship.weight: no head here tells whether two sentences follow",
    ]


def test_old_tensors_of_a_classifier(tmp_path, caplog):
    """The pooler that the encoder was trained with is not the classifier's."""
    case = Case("roberta", "", "RobertaForSequenceClassification", base("roberta"), 1)
    theirs = reference(case)
    tensors = theirs.state_dict() | linear("roberta.pooler.dense", 24, 24)
    ours = saved(tmp_path / "theirs", theirs, tensors | {"roberta.embeddings.position_ids": torch.arange(20)[None]})
    assert agrees(theirs, ours, case)
    assert "left out roberta.pooler.dense" in caplog.text
    kept = json.loads((ours.save(tmp_path / "ours") / "config.json").read_text())
    assert (kept["pad_token_id"], kept["max_position_embeddings"]) == (1, 20)


def table_of(document: dict[str, Any]) -> tuple[list[mapping.Rule], dict[str, Tensor]]:
    """The weight table of a config, and a network's tensors."""
    family = family_of(document, where="")
    config, head = family.read(document, where="")
    ours = {name: parameter.detach() for name, parameter in Transformer(config).named_parameters()}
    return family.table(config, head), ours


def test_masks_and_frequencies_are_ignored_and_the_second_head_is_left_out():
    document = CONFIGS["distil_gpt2"] | {"architectures": ["GPT2DoubleHeadsModel"]}
    table, ours = table_of(document)
    masks = ones(**{f"transformer.h.{i}.attn.{n}": (1,) for i in range(2) for n in ("bias", "masked_bias")})
    second = linear("multiple_choice_head.summary", 1, 1)
    found = mapping.load(table, mapping.save(table, ours) | masks | second, where="folder")
    assert found.left_out.keys() == second.keys()
    assert found.tensors.keys() == ours.keys()
    table, ours = table_of(CONFIGS["tiny_llama"])
    frequencies = ones(**{f"model.layers.{i}.self_attn.rotary_emb.inv_freq": (4,) for i in range(2)})
    found = mapping.load(table, mapping.save(table, ours) | frequencies, where="folder")
    assert found.tensors.keys() == ours.keys()
    assert not found.left_out


def test_products_are_written_transposed():
    document = CONFIGS["distil_gpt2"] | {"n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 5}
    table, ours = table_of(document)
    theirs, block = mapping.save(table, ours), "decoder.blocks.0"
    for name, own in {"attn.c_proj": "attn.out", "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"}.items():
        assert torch.equal(theirs[f"transformer.h.0.{name}.weight"], ours[f"{block}.{own}.weight"].mT), name
    sides = torch.cat([ours[f"{block}.attn.{side}.weight"].mT for side in "qkv"], 1)
    assert torch.equal(theirs["transformer.h.0.attn.c_attn.weight"], sides)
    for name, own in {"ln_1": "attn_norm", "ln_2": "ffn_norm"}.items():
        assert theirs[f"transformer.h.0.{name}.weight"] is ours[f"{block}.{own}.weight"]


@pytest.mark.parametrize(
    ("name", "changes", "table", "copies"),
    [
        ("llama_3_2", {}, "model.embed_tokens.weight", ()),
        *(
            ("opus_mt", {"sinusoidal_layout": layout}, "model.shared.weight", ("encoder", "decoder"))
            for layout in ("concatenated", "interleaved")
        ),
        ("bart_summarizer", {}, "model.shared.weight", ("encoder", "decoder")),
    ],
)
def test_a_tied_table_may_be_stored_several_times_if_it_is_the_same(
    name: str, changes: dict[str, Any], table: str, copies: tuple[str, ...]
):
    document = CONFIGS[name] | changes
    family = family_of(document, where="")
    config, head = family.read(document, where="")
    rules, numbers = family.table(config, head), torch.randn(20, config.output.d_model)
    theirs = {table: numbers} | {f"model.{stack}.embed_tokens.weight": numbers for stack in copies}
    theirs |= {f"model.{stack}.version": torch.tensor([3.0]) for stack in copies if name.startswith("bart")}
    theirs |= {f"model.{s}.embed_positions.weight": torch.zeros(512, 16) for s in copies if name.startswith("opus")}
    found = mapping.load(rules, theirs | {"lm_head.weight": numbers.clone()}, where="f")
    [ours] = found.tensors
    assert found.left_out == {}
    assert mapping.save(rules, found.tensors).keys() & {table, "lm_head.weight"} == {table}
    assert torch.equal(mapping.save(rules, found.tensors)[table], numbers)
    assert torch.equal(mapping.load(rules, {"lm_head.weight": numbers}, where="f").tensors[ours], found.tensors[ours])
    with pytest.raises(UserError, match=rf"f:lm_head\.weight: expected the numbers of {table}"):
        mapping.load(rules, theirs | {"lm_head.weight": numbers + 1}, where="f")


def test_an_interleaved_tensor_of_another_shape_is_named():
    rules, _ = table_of(CONFIGS["opus_mt"] | {"sinusoidal_layout": "interleaved"})
    with pytest.raises(UserError, match=r"f:model\.shared\.weight: expected 16 on axis 1, got shape \[20, 15\]"):
        mapping.load(rules, {"model.shared.weight": torch.zeros(20, 15)}, where="f")


def test_the_two_biases_over_the_vocabulary(tmp_path):
    """Equal where the output is tied; else the network adds the decoder's own, of which a file may have one copy."""
    first, second = "cls.predictions.bias", "cls.predictions.decoder.bias"
    theirs = reference(Case("bert", "", "BertForMaskedLM", base("bert")))
    tensors = theirs.state_dict()
    with pytest.raises(UserError, match=r"cls\.predictions\.decoder\.bias: expected the numbers of cls\.predictions"):
        saved(tmp_path / "tied", theirs, tensors | {second: tensors[second] + 1})
    case = Case("bert", "untied", "BertForMaskedLM", {**base("bert"), "tie_word_embeddings": False})
    theirs = reference(case)
    tensors = theirs.state_dict() | {first: torch.zeros(60)}
    assert agrees(theirs, saved(tmp_path / "two", theirs, tensors), case)
    tensors[first] = tensors.pop(second)
    assert agrees(theirs, saved(tmp_path / "one", theirs, tensors), case)


@pytest.mark.parametrize("architecture", ["BertModel", "RobertaModel", "ViTModel"])
def test_a_pooler_is_there_where_its_tensors_are(architecture: str, tmp_path):
    case = Case("", "", architecture, base("vit" if architecture == "ViTModel" else "bert"), 1)
    theirs = reference(case)
    tensors = theirs.state_dict()
    ours = saved(tmp_path / "with", theirs, tensors)
    assert ours.config.head == NoHead(pooler=True)
    batch, head = inputs(case, theirs), ours.network.head
    assert isinstance(head, NoHeadModule)
    with torch.no_grad():
        pooled = head.pooled(ours.network(*batch.ours), Layout.of(batch.ours[0]))
        torch.testing.assert_close(pooled, theirs(**batch.theirs).pooler_output, atol=1e-5, rtol=0)
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("pooler.")}
    without = saved(tmp_path / "without", theirs, kept)
    assert without.config.head == NoHead(pooler=False)
    assert agrees(theirs, without, case)
    assert load(without.save(tmp_path / "again")).config == without.config
    assert "pooler.dense.weight" not in load_file(tmp_path / "again" / "model.safetensors")


@pytest.mark.parametrize(("architecture", "prefix"), [("ViTForImageClassification", "vit."), ("ViTModel", "")])
def test_tensors_by_the_library_s_own_names(architecture: str, prefix: str, tmp_path):
    """Newer than those it writes; with a mask token, and a pooler that a classifier does not use."""
    case = Case("vit", "", architecture, {name: value for name, value in base("vit").items() if name != "num_labels"})
    theirs = reference(case)
    tensors = theirs.state_dict()
    assert f"{prefix}layers.0.attention.q_proj.weight" in tensors
    tensors |= ones(**{f"{prefix}embeddings.mask_token": (1, 1, 24)})
    tensors |= linear(f"{prefix}pooler.dense", 24, 24) if prefix else {}
    assert agrees(theirs, saved(tmp_path, theirs, tensors), case)


def test_a_checkpoint_of_deberta_v3_has_the_newer_spelling_of_its_head(tmp_path):
    case = Case("deberta-v2", "newer", "DebertaV2ForMaskedLM", base("deberta-v2") | {"legacy": False})
    theirs = reference(case)
    unread = ones(**{"mask_predictions.dense.weight": (2,), "deberta.embeddings.position_embeddings.weight": (2,)})
    ours = saved(tmp_path / "theirs", theirs, theirs.state_dict() | unread)
    assert agrees(theirs, ours, case)
    back = transformers.AutoModelForMaskedLM.from_pretrained(ours.save(tmp_path / "ours")).eval()
    assert agrees(back, ours, case)


def test_frequencies_per_layer_as_older_checkpoints_have_them(tmp_path):
    theirs, ours = both(of("esm")[0], tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    stored = tensors.pop(next(name for name in tensors if name.endswith("inv_freq")))
    for layer in range(2):
        tensors[f"esm.encoder.layer.{layer}.attention.self.rotary_embeddings.inv_freq"] = stored.clone()
    assert saved(tmp_path, theirs, tensors).config == ours.config
    positions = ours.config.first.positions
    assert isinstance(positions, Rotary)
    assert positions.frequencies == tuple(stored.tolist())


def test_a_narrow_token_table_is_read_with_its_layers(tmp_path):
    shape = {"vocab_size": 60, "hidden_size": 24, "ffn_dim": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
    own = {"word_embed_proj_dim": 10, "do_layer_norm_before": False, "max_position_embeddings": 32}
    case = Case("opt", "narrow", "OPTForCausalLM", {**shape, **own}, 1)
    theirs, ours = both(case, tmp_path / "theirs")
    assert agrees(theirs, ours, case)
    round_trip(theirs, ours, tmp_path / "ours")


# --- T5 ------------------------------------------------------------------------------------------------------------

FLAN = CONFIGS["flan_t5"]
FLAN_CASE = Case("t5", "flan", "T5ForConditionalGeneration", FLAN)
CROSS_BIAS = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def flan(*, own_output: bool = True) -> Any:
    """A model of version 1.1, whose output matrix is its own."""
    theirs = transformers.T5ForConditionalGeneration(transformers.T5Config(**FLAN)).eval()
    if own_output:
        theirs.lm_head.weight = torch.nn.Parameter(torch.randn(30, 16))
    return theirs


@pytest.mark.parametrize("saved_by", ["hub", "later version"])
def test_version_1_1_has_an_output_matrix_of_its_own(saved_by: str, tmp_path):
    theirs, path = flan(), tmp_path / "theirs" / "config.json"
    theirs.save_pretrained(path.parent)
    assert json.loads(path.read_text())["tie_word_embeddings"] is True
    if saved_by == "hub":
        path.write_text(json.dumps(FLAN))
    ours = load(path.parent)
    assert ours.config.head == LanguageHead(tied=False)
    assert agrees(theirs, ours, FLAN_CASE)
    back = transformers.AutoModelForSeq2SeqLM.from_pretrained(ours.save(tmp_path / "ours")).eval()
    assert torch.equal(back.lm_head.weight, theirs.lm_head.weight)
    assert agrees(back, ours, FLAN_CASE)


def test_one_matrix_for_two_is_copied(tmp_path):
    """Two parameters must not share their memory: training one would change the other."""
    theirs = flan(own_output=False)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    table, output = (ours.network.get_parameter(f"{n}.weight") for n in ("encoder.embed.tokens", "head.output"))
    assert torch.equal(table, output)
    assert table.data_ptr() != output.data_ptr()
    assert agrees(theirs, ours, FLAN_CASE)


def test_an_unused_table_of_older_files_is_left_out(tmp_path, caplog):
    theirs = flan()
    unique = {name: tensor for name, tensor in theirs.state_dict().items() if "embed_tokens" not in name}
    assert agrees(theirs, saved(tmp_path, theirs, unique | {CROSS_BIAS: torch.zeros(32, 2)}), FLAN_CASE)
    assert f"left out {CROSS_BIAS}: attention to the source has no positions" in caplog.text


def test_a_bare_bart_with_a_new_head_opens_elsewhere(tmp_path):
    """The head has no bias, of which the other library's config has no word."""
    reference(Case("bart", "", "BartModel", base("bart"))).save_pretrained(tmp_path / "bare")
    ours = load(tmp_path / "bare", head=LanguageHead(tied=True))
    ours.save(tmp_path / "new")
    theirs, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "new", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    assert agrees(theirs.eval(), ours, Case("bart", "", "BartForConditionalGeneration", base("bart")))
    assert load(tmp_path / "new").config == ours.config


# --- the names of another class ------------------------------------------------------------------------------------

PAIRS = [
    *(("bert", f"BertFor{head}", "BertModel") for head in ("MaskedLM", "SequenceClassification", "QuestionAnswering")),
    ("bert", "BertForSequenceClassification", "BertForMaskedLM"),
    ("bert", "BertModel", "BertForMaskedLM"),
    ("gpt2", "GPT2LMHeadModel", "GPT2Model"),
    ("gpt2", "GPT2Model", "GPT2LMHeadModel"),
    ("gpt2", "GPT2ForTokenClassification", "GPT2LMHeadModel"),
    ("llama", "LlamaForCausalLM", "LlamaModel"),
    ("vit", "ViTForImageClassification", "ViTModel"),
    ("t5", "T5ForConditionalGeneration", "T5EncoderModel"),
    ("bart", "BartModel", "BartForConditionalGeneration"),
    ("bart", "BartForConditionalGeneration", "BartModel"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "named", "opened"), PAIRS)
def test_weights_of_another_class_open_as_there(family: str, named: str, opened: str, tmp_path, caplog):
    case, other = (
        next(case for case in CASES if (case.family, case.architecture) == (family, name)) for name in (opened, named)
    )
    reference(other).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": [opened]}))
    theirs, said = getattr(transformers, opened).from_pretrained(tmp_path, output_loading_info=True)
    missing = [name for name in said["missing_keys"] if "pooler" not in name]  # ours reads the states themselves
    if missing:
        with pytest.raises(UserError, match=r"expected a tensor of shape .*, got none"):
            load(tmp_path)
        return
    assert agrees(theirs.eval(), load(tmp_path), case)
    if named == "BertForMaskedLM":
        assert "left out cls.predictions" in caplog.text
        assert "BertModel has no head of BertForMaskedLM" in caplog.text


TODAY = {"language_model.model.": "model.language_model.", "language_model.lm_head": "lm_head", "": "model."}


def test_both_ways_to_name_the_tensors_of_a_text_part(tmp_path):
    _, ours = both(TEXT_PARTS[1], tmp_path)
    file, renamed = tmp_path / "model.safetensors", dict[str, Tensor]()
    for name, tensor in load_file(file).items():
        old = next(prefix for prefix in TODAY if name.startswith(prefix))
        renamed[TODAY[old] + name.removeprefix(old)] = tensor
    assert renamed.keys() != load_file(file).keys()
    save_file(renamed, file, {"format": "pt"})
    again = load(tmp_path).network
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), ours.network.parameters(), strict=True))
    save_file(renamed | ones(**{"model.else.weight": (1,)}), file, {"format": "pt"})
    with pytest.raises(UserError, match=r"model\.else\.weight: expected no such tensor"):
        load(tmp_path)


# --- experts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"num_local_experts": 3}, r"moe.gate.weight: expected shape \[3, 24\], got \[4, 24\]"),
        ({"num_local_experts": 5}, r"expected shape \[5, 24\], got \[4, 24\]"),
        ({"num_experts_per_tok": 5}, "must be at most"),
    ],
)
def test_a_number_of_experts_that_does_not_fit_is_one_line(changes: dict[str, int], told: str, tmp_path):
    theirs = reference(of("mixtral")[0])
    theirs.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=told) as found:
        saved(tmp_path, theirs, load_file(tmp_path / "model.safetensors"), **changes)
    assert "\n" not in str(found.value)


def test_a_correction_is_as_exact_as_it_is_stored(tmp_path):
    stored = reference(of("glm4_moe")[0])
    stored.save_pretrained(tmp_path)
    name, wanted = next((name, one) for name, one in stored.named_buffers() if name.endswith("correction_bias"))
    router = f"decoder.blocks.{name.split('.')[2]}.ffn.router"
    found = load(tmp_path, dtype="bfloat16").network
    assert found.get_parameter(f"{router}.weight").dtype == torch.bfloat16
    assert torch.equal(found.get_parameter(f"{router}.correction"), wanted)


def packed(shape: tuple[int, ...], generator: torch.Generator) -> dict[str, Tensor]:
    """Random four-bit numbers, e r g 16, and scales, e r g."""
    blocks = torch.randint(0, 256, (*shape, 16), generator=generator).to(torch.uint8)
    return {"blocks": blocks, "scales": torch.randint(118, 126, shape, generator=generator).to(torch.uint8)}


def test_four_bit_numbers_are_restored_as_the_reference_does():
    mxfp4 = pytest.importorskip("transformers.integrations.mxfp4")
    found = packed((2, 6, 3), torch.Generator().manual_seed(0))
    expected = mxfp4.convert_moe_packed_tensors(found["blocks"], found["scales"])
    assert torch.equal(restored(found["blocks"], found["scales"]), expected.mT)
    with pytest.raises(UserError, match="expected bytes and a scale for each group"):
        restored(found["blocks"], found["scales"][:, :, :1])


def test_a_folder_of_four_bit_numbers_opens(tmp_path):
    case, generator = of("gpt_oss")[0], torch.Generator().manual_seed(0)
    case = replace(case, config={**case.config, "hidden_size": 32, "intermediate_size": 32})
    theirs, _ = both(case, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for i, layer in enumerate(theirs.model.layers):
        for name, rows in (("gate_up_proj", 64), ("down_proj", 32)):
            found, at = packed((4, rows, 1), generator), f"model.layers.{i}.mlp.experts.{name}"
            with torch.no_grad():
                getattr(layer.mlp.experts, name).copy_(restored(found["blocks"], found["scales"]).mT)
            del tensors[at]
            tensors |= {f"{at}_{kind}": tensor for kind, tensor in found.items()}
    quantized = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | quantized))
    save_file(tensors, tmp_path / "model.safetensors")
    ours = load(tmp_path, dtype=torch.float32)
    assert agrees(theirs, ours, case)
    assert "quantization_config" not in json.loads((ours.save(tmp_path / "ours") / "config.json").read_text())
