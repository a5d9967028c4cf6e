"""What comparison cannot see of T5: output matrices of their own, older configs, and what is left out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import load
from clearhead.checkpoints.families import family_of
from clearhead.config import LanguageHead
from clearhead.errors import UserError
from clearhead.model import Tokens
from tests.later import later

transformers = later("transformers")

SIZES: dict[str, Any] = {"vocab_size": 30, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 2}
# flan-t5-base and t5-base as they are on the hub, their sizes made small.
FLAN: dict[str, Any] = SIZES | {
    "architectures": ["T5ForConditionalGeneration"],
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "n_positions": 512,
    "num_decoder_layers": 2,
    "output_past": True,
    "pad_token_id": 0,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
    "task_specific_params": {"summarization": {"prefix": "summarize: "}},
    "tie_word_embeddings": False,
    "transformers_version": "4.23.1",
    "use_cache": True,
}
ORIGINAL = {name: value for name, value in FLAN.items() if name not in ("feed_forward_proj", "tie_word_embeddings")}
CROSS_BIAS = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def flan(folder: Path) -> Any:
    """A model of version 1.1 whose output matrix is its own, in a folder as on the hub."""
    theirs = transformers.T5ForConditionalGeneration(transformers.T5Config(**FLAN)).eval()
    theirs.lm_head.weight = torch.nn.Parameter(torch.randn(30, 16))
    theirs.save_pretrained(folder)
    return theirs


def logits(theirs: Any) -> torch.Tensor:
    with torch.no_grad():
        return theirs(input_ids=torch.tensor([[5, 6, 7]]), decoder_input_ids=torch.tensor([[0, 8, 9, 4]])).logits


def ours(folder: Path) -> torch.Tensor:
    with torch.no_grad():
        return load(folder).network(torch.tensor([[5, 6, 7]]), torch.tensor([[0, 8, 9, 4]]))


@pytest.mark.parametrize("saved_by", ["hub", "later version"])
def test_version_1_1_has_an_output_matrix_of_its_own(saved_by: str, tmp_path: Path) -> None:
    theirs = flan(tmp_path / "theirs")
    if saved_by == "hub":
        (tmp_path / "theirs" / "config.json").write_text(json.dumps(FLAN))
    else:
        assert json.loads((tmp_path / "theirs" / "config.json").read_text())["tie_word_embeddings"] is True
    model = load(tmp_path / "theirs")
    assert model.config.head == LanguageHead(tied=False)
    torch.testing.assert_close(ours(tmp_path / "theirs"), logits(theirs), atol=1e-5, rtol=1e-5)
    model.save(tmp_path / "ours")
    back = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").eval()
    assert torch.equal(back.lm_head.weight, theirs.lm_head.weight)
    assert torch.equal(logits(back), logits(theirs))


def test_one_matrix_for_two_is_copied(tmp_path: Path) -> None:
    """Two parameters must not share their memory: training one would change the other."""
    theirs = transformers.T5ForConditionalGeneration(transformers.T5Config(**FLAN)).eval()
    theirs.save_pretrained(tmp_path)
    network = load(tmp_path).network
    assert network.encoder is not None
    table, output = network.encoder.table.weight, network.get_parameter("head.output.weight")
    assert torch.equal(table, output)
    assert table.data_ptr() != output.data_ptr()
    torch.testing.assert_close(ours(tmp_path), logits(theirs), atol=1e-5, rtol=1e-5)


def test_the_original_is_tied_and_scaled() -> None:
    config, _ = family_of(ORIGINAL, where="c").read(ORIGINAL, where="c")
    assert config.head == LanguageHead(tied=True, scale=0.25)
    assert config.output.activation == "relu"
    assert not config.output.gated
    assert config.output.score_scale == 1.0


def test_an_unused_table_of_older_files_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    theirs = flan(tmp_path)
    tensors = {name: tensor.contiguous() for name, tensor in theirs.state_dict().items()}
    from safetensors.torch import save_file

    unique = {name: t for name, t in tensors.items() if "embed_tokens" not in name} | {CROSS_BIAS: torch.zeros(32, 2)}
    save_file(unique, tmp_path / "model.safetensors")
    torch.testing.assert_close(ours(tmp_path), logits(theirs), atol=1e-5, rtol=1e-5)
    assert f"left out {CROSS_BIAS}: attention to the source has no positions" in caplog.text


def test_names_of_the_activation_that_differ_are_read_as_the_reference_reads_them() -> None:
    for fields in ({"dense_act_fn": "relu"}, {"dense_act_fn": "gelu", "is_gated_act": False}):
        config, _ = family_of(FLAN, where="c").read(FLAN | fields, where="c")
        theirs = transformers.T5Config(**FLAN | fields)
        assert config.output.activation == theirs.dense_act_fn
        assert config.output.gated == theirs.is_gated_act


@pytest.mark.parametrize("value", ["gated-mish", "mish", "glu-gelu"])
def test_an_unknown_activation_is_refused(value: str) -> None:
    with pytest.raises(UserError, match=r"c:(dense_act_fn|is_gated_act): expected"):
        family_of(FLAN, where="c").read(FLAN | {"feed_forward_proj": value}, where="c")


def test_the_answer_does_not_depend_on_where_padding_is(tmp_path: Path) -> None:
    flan(tmp_path)
    network = load(tmp_path).network
    target = torch.tensor([[0, 8]])
    with torch.no_grad():
        right = network(Tokens.pad([[5, 6, 7], [5, 6, 7, 8, 9]]), Tokens(target.expand(2, -1)))[0]
        left = network(Tokens.pad([[5, 6, 7], [5, 6, 7, 8, 9]], left=True), Tokens(target.expand(2, -1)))[0]
    torch.testing.assert_close(left, right)
