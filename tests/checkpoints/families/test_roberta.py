"""What the comparison with the reference library cannot see: where positions begin, left-out tensors, refusals."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from clearhead.analysis.comparison import CLOSE, reference_states, states
from clearhead.api import load
from clearhead.checkpoints.families import family_for, family_of
from clearhead.config import Learned
from clearhead.errors import UserError
from tests.checkpoints.families.hub import CONFIGS
from tests.parity.cases import base
from tests.parity.harness import Case, Gap, inputs, reference

BASE = base("roberta")
PAD = 1


def positions(**changes: object) -> Learned:
    document = CONFIGS["roberta"] | changes
    config, _ = family_of(document, where="config.json").read(document, where="config.json")
    assert config.encoder is not None
    assert isinstance(config.encoder.positions, Learned)
    return config.encoder.positions


def test_positions_begin_after_the_padding() -> None:
    assert positions() == Learned(max_length=512, offset=2)
    assert positions(pad_token_id=0) == Learned(max_length=513, offset=1)


def test_a_family_is_kept_when_it_is_saved_and_no_other_claims_it() -> None:
    for document in (CONFIGS["roberta"], CONFIGS["xlm_roberta"], CONFIGS["camembert"]):
        config, _ = family_of(document, where="").read(document, where="")
        for prefer, expected in ((document["model_type"], document["model_type"]), (None, "roberta")):
            found = family_for(config, prefer)
            assert found is not None
            assert found[0].model_type == expected


def test_old_tensors_of_a_classifier(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The pooler that the encoder was trained with is not the classifier's."""
    pytest.importorskip("transformers")
    case = Case("roberta", "", "RobertaForSequenceClassification", BASE, PAD)
    theirs = reference(case)
    theirs.save_pretrained(tmp_path / "theirs")
    extra = {"weight": torch.ones(24, 24), "bias": torch.ones(24)}
    tensors = theirs.state_dict() | {f"roberta.pooler.dense.{name}": tensor for name, tensor in extra.items()}
    tensors["roberta.embeddings.position_ids"] = torch.arange(20)[None]
    save_file(tensors, tmp_path / "theirs" / "model.safetensors", {"format": "pt"})
    ours = load(tmp_path / "theirs")
    batch = inputs(case, theirs)
    expected = reference_states(theirs, batch.theirs, ours.network)
    assert Gap.between(expected, states(ours.network, batch.ours), batch.ours).relative <= CLOSE
    assert [message for message in caplog.messages if "left out roberta.pooler.dense" in message]
    kept = json.loads((ours.save(tmp_path / "ours") / "config.json").read_text())
    assert (kept["pad_token_id"], kept["max_position_embeddings"]) == (PAD, 20)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "relu"}, "hidden_act: expected gelu, as this head always has it, got 'relu'"),
        ({"pad_token_id": -1}, "pad_token_id: expected another kind of value, got -1"),
        ({"pad_token_id": None}, "pad_token_id: expected another kind of value, got None"),
        ({"max_position_embeddings": 2}, "max_position_embeddings: expected more rows than pad_token_id=1"),
    ],
)
def test_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        positions(**changes)
