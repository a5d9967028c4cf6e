"""Weights under the names of another class of their family, against the reference library."""

import json
from pathlib import Path

import pytest

from clearhead.api import load
from clearhead.errors import UserError
from tests.later import later
from tests.parity.cases import CASES
from tests.parity.harness import Case, Gap, inputs, reference, reference_states, states

transformers = later("transformers")
CLOSE = 1e-5

PAIRS = [
    *(("bert", f"BertFor{head}", "BertModel") for head in ("MaskedLM", "SequenceClassification", "QuestionAnswering")),
    ("bert", "BertForSequenceClassification", "BertForMaskedLM"),
    ("gpt2", "GPT2LMHeadModel", "GPT2Model"),
    ("gpt2", "GPT2Model", "GPT2LMHeadModel"),
    ("gpt2", "GPT2ForTokenClassification", "GPT2LMHeadModel"),
    ("llama", "LlamaForCausalLM", "LlamaModel"),
    ("vit", "ViTForImageClassification", "ViTModel"),
    ("t5", "T5ForConditionalGeneration", "T5EncoderModel"),
    ("bart", "BartModel", "BartForConditionalGeneration"),
    ("bart", "BartForConditionalGeneration", "BartModel"),
]


def case_of(family: str, architecture: str) -> Case:
    return next(case for case in CASES if (case.family, case.architecture) == (family, architecture))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "saved", "opened"), PAIRS)
def test_weights_of_another_class_open_as_there(family: str, saved: str, opened: str, tmp_path: Path) -> None:
    reference(case_of(family, saved)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "architectures": [opened]}))
    theirs, said = getattr(transformers, opened).from_pretrained(tmp_path, output_loading_info=True)
    missing = [name for name in said["missing_keys"] if "pooler" not in name]  # ours reads the states themselves
    if missing:
        with pytest.raises(UserError, match=r"expected a tensor of shape .*, got none"):
            load(tmp_path)
        return
    ours, case = load(tmp_path), case_of(family, opened)
    batch = inputs(case, theirs.eval())
    expected = reference_states(theirs, batch.theirs, ours.network)
    assert Gap.between(expected, states(ours.network, batch.ours), batch.ours).relative <= CLOSE


def test_the_heads_that_a_class_lacks_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reference(case_of("bert", "BertForMaskedLM")).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": ["BertModel"]}))
    load(tmp_path)
    assert "left out cls.predictions" in caplog.text
    assert "BertModel has no head of BertForMaskedLM" in caplog.text
