"""The text model of a model of pictures and texts opens alone, with equal logits, and is written as a text model."""

import json

import pytest
import torch

from clearhead.analysis.comparison import CLOSE
from clearhead.checkpoints.families.verdicts import OPENS, verdict
from tests.later import later
from tests.parity.cases import TEXT_PARTS, mostly_slow
from tests.parity.harness import Case, both, gaps

transformers = later("transformers")
TODAY = {"language_model.model.": "model.language_model.", "language_model.lm_head": "lm_head", "": "model."}


@pytest.mark.parametrize("case", mostly_slow(TEXT_PARTS), ids=str)
def test_its_states_are_the_reference_s(case: Case, tmp_path, caplog):
    theirs, ours = both(case, tmp_path / "theirs")
    for way, gap in gaps(case, theirs, ours):
        assert gap.relative <= CLOSE, (way, gap)
    assert any("what reads " in record.message for record in caplog.records)
    ours.save(tmp_path / "ours")
    inner = theirs.config.text_config
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    assert back.config.model_type == inner.model_type
    own = {name.removeprefix("model."): tensor for name, tensor in back.state_dict().items()}
    for name, tensor in theirs.state_dict().items():
        if name.startswith("model.language_model."):
            assert torch.equal(own[name.removeprefix("model.language_model.")], tensor), name


def test_what_is_said_of_it(tmp_path):
    both(TEXT_PARTS[0], tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    found = verdict(document, where="c")
    assert (found.kind, found.without) == (OPENS, "what reads pictures")
    other = verdict({**document, "text_config": {"model_type": "recurrent_gemma"}}, where="c")
    assert other.kind != OPENS
    assert "several networks in one" in other.error
    broken = {**document, "text_config": {**document["text_config"], "hidden_size": "a"}}
    assert verdict(broken, where="c").error.startswith("c:hidden_size: expected a whole number, got 'a'")
