"""What the comparison with the reference library cannot see: the tensors of older checkpoints, and refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearhead.analysis.comparison import CLOSE, reference_states, states
from clearhead.api import Model, load
from clearhead.checkpoints.families import family_for, family_of, preset
from clearhead.checkpoints.families.family import canonical
from clearhead.config import ModelConfig, NoHead
from clearhead.errors import UserError
from clearhead.model.heads import NoHead as NoHeadModule
from clearhead.model.layout import Layout
from tests.checkpoints.families.hub import CONFIGS
from tests.later import later
from tests.parity.cases import base
from tests.parity.harness import Case, Gap, inputs, reference

HUB = (
    "bert",
    "bert_multilingual",
    "bert_ner",
    "cross_encoder",
    "roberta",
    "roberta_squad",
    "xlm_roberta",
    "camembert",
    "modernbert",
    "vit",
    "electra_small",
    "distilbert",
    "mpnet",
)

BASE = base("bert")

transformers = later("transformers")


def read(document: dict[str, Any]) -> ModelConfig:
    return family_of(document, where="config.json").read(document, where="config.json")[0]


def saved(folder: Path, theirs: Any, tensors: dict[str, Tensor], **changes: object) -> Model:
    """Ours from the reference's config and these tensors."""
    folder.mkdir()
    document = {**theirs.config.to_dict(), "architectures": [type(theirs).__name__], **changes}
    (folder / "config.json").write_text(json.dumps(document))
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return load(folder)


def agrees(theirs: Any, ours: Model, case: Case) -> bool:
    batch = inputs(case, theirs)
    expected = reference_states(theirs, batch.theirs, ours.network)
    return Gap.between(expected, states(ours.network, batch.ours), batch.ours).relative <= CLOSE


@pytest.mark.parametrize("document", [CONFIGS[name] for name in HUB], ids=HUB)
def test_configs_of_the_hub_read_as_the_reference_reads_them(document: dict[str, Any]) -> None:
    kind = transformers.AutoConfig.for_model(document["model_type"])
    config, again = read(document), kind.from_dict(document).to_dict() | {"architectures": document["architectures"]}
    assert config == read(json.loads(json.dumps(again)))
    found = family_for(config, document["model_type"])
    assert found is not None
    assert found[0].model_type == document["model_type"]
    assert canonical(read(found[2])) == canonical(config)


def test_our_preset_is_the_hub_s() -> None:
    assert canonical(read(CONFIGS["bert"])) == canonical(preset("bert-base"))


def test_tensors_of_an_old_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """gamma and beta, buffers, a second copy of what is tied, and two heads of which one is not ours."""
    case = Case("bert", "old", "BertForMaskedLM", BASE)
    theirs = reference(case)
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in theirs.state_dict().items()
    }
    assert "cls.predictions.decoder.weight" in tensors
    tensors["bert.embeddings.position_ids"] = torch.arange(20)[None]
    for name, shape in {"bert.pooler.dense": (24, 24), "cls.seq_relationship": (2, 24)}.items():
        tensors |= {f"{name}.weight": torch.ones(shape), f"{name}.bias": torch.ones(shape[0])}
    ours = saved(tmp_path / "theirs", theirs, tensors)
    assert agrees(theirs, ours, case)
    told = sorted(message.split(" left out ")[1] for message in caplog.messages if "left out" in message)
    assert told == [
        "bert.pooler.dense.bias, bert.pooler.dense.weight: this head reads the states, not the pooled one",
        "cls.seq_relationship.bias, cls.seq_relationship.weight: no head here tells whether two sentences follow",
    ]


def test_a_copy_that_differs_is_refused(tmp_path: Path) -> None:
    theirs = reference(Case("bert", "", "BertForMaskedLM", BASE))
    tensors = theirs.state_dict()
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.decoder.bias"] + 1
    with pytest.raises(UserError, match=r"cls\.predictions\.decoder\.bias: expected the numbers of cls\.predictions"):
        saved(tmp_path / "theirs", theirs, tensors)


def test_untied_output_adds_the_decoder_s_own_bias(tmp_path: Path) -> None:
    case = Case("bert", "untied", "BertForMaskedLM", {**BASE, "tie_word_embeddings": False})
    theirs = reference(case)
    tensors = theirs.state_dict()
    tensors["cls.predictions.bias"] = torch.zeros(60)
    assert agrees(theirs, saved(tmp_path / "two", theirs, tensors), case)
    tensors["cls.predictions.bias"] = tensors.pop("cls.predictions.decoder.bias")
    assert agrees(theirs, saved(tmp_path / "one", theirs, tensors), case)


def test_pretraining_class_reads_as_the_masked_word_head() -> None:
    assert read(CONFIGS["bert"] | {"architectures": ["BertForPreTraining"]}) == read(CONFIGS["bert"])


@pytest.mark.parametrize("architecture", ["BertModel", "RobertaModel"])
def test_a_pooler_is_there_where_its_tensors_are(architecture: str, tmp_path: Path) -> None:
    case = Case("", "", architecture, BASE, 1)
    theirs = reference(case)
    tensors = theirs.state_dict()
    with_pooler = saved(tmp_path / "with", theirs, tensors)
    assert with_pooler.config.head == NoHead(pooler=True)
    batch = inputs(case, theirs)
    head = with_pooler.network.head
    assert isinstance(head, NoHeadModule)
    with torch.no_grad():
        expected = theirs(**batch.theirs).pooler_output
        pooled = head.pooled(with_pooler.network(*batch.ours), Layout.of(batch.ours[0]))
    torch.testing.assert_close(pooled, expected, atol=1e-5, rtol=0)

    del tensors["pooler.dense.weight"], tensors["pooler.dense.bias"]
    without = saved(tmp_path / "without", theirs, tensors)
    assert without.config.head == NoHead(pooler=False)
    assert agrees(theirs, without, case)
    without.save(tmp_path / "again")
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == tensors.keys()
    assert load(tmp_path / "again").config == without.config


def test_bare_tensors_under_a_head_have_no_prefix(tmp_path: Path) -> None:
    case = Case("bert", "", "BertForMaskedLM", BASE)
    theirs = reference(case)
    tensors = {name.removeprefix("bert."): t for name, t in theirs.state_dict().items() if name.startswith("bert.")}
    with pytest.raises(UserError, match=r"cls\.predictions\.\S+: expected a tensor of shape \S+ \S+ got none"):
        saved(tmp_path / "theirs", theirs, tensors)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type: expected 'absolute', the only value"),
        ({"hidden_act": "mish"}, "hidden_act: expected relu or gelu or .*, got 'mish'"),
        ({"is_decoder": True}, "is_decoder: expected False, the only value that is supported, got True"),
        ({"num_attention_heads": 7}, "num_attention_heads=7 must divide hidden_size=768"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers:"),
        ({"architectures": ["BertForMultipleChoice"]}, "architectures: expected one of BertForMaskedLM, BertModel"),
    ],
)
def test_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(CONFIGS["bert"] | changes)
