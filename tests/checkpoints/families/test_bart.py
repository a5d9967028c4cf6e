"""What comparison cannot see of BART: configs and tensors as they are on the hub, and heads put on a bare model."""

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import load
from clearhead.checkpoints.families import family_of
from clearhead.checkpoints.weights import mapping
from clearhead.config import ClassificationHead, LanguageHead, Learned
from clearhead.errors import UserError
from clearhead.model import Tokens

# bart-large-mnli, its sizes made small.
MNLI: dict[str, Any] = {
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "activation_function": "gelu",
    "add_final_layer_norm": False,
    "architectures": ["BartForSequenceClassification"],
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "d_model": 16,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 24,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 1,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 1,
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
    "gradient_checkpointing": False,
    "id2label": {"0": "contradiction", "1": "neutral", "2": "entailment"},
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "label2id": {"contradiction": 0, "entailment": 2, "neutral": 1},
    "max_position_embeddings": 30,
    "model_type": "bart",
    "normalize_before": False,
    "num_hidden_layers": 1,
    "output_past": False,
    "pad_token_id": 1,
    "scale_embedding": False,
    "transformers_version": "4.7.0.dev0",
    "use_cache": True,
    "vocab_size": 20,
}
SUMMARIZER = MNLI | {
    "add_bias_logits": False,
    "architectures": ["BartForConditionalGeneration"],
    "early_stopping": True,
    "extra_pos_embeddings": 2,
    "force_bos_token_to_be_generated": True,
    "length_penalty": 2.0,
    "no_repeat_ngram_size": 3,
    "normalize_embedding": True,
    "prefix": " ",
    "replacing_rate": 0,
    "static_position_embeddings": False,
    "student_decoder_layers": None,
    "student_encoder_layers": None,
    "task_specific_params": {"summarization": {"num_beams": 4}},
}


def test_reads_configs_of_the_hub() -> None:
    config, _ = family_of(MNLI, where="c").read(MNLI, where="c")
    assert config.head == ClassificationHead(
        n_labels=3, labels=("contradiction", "neutral", "entailment"), pool="last", pooler=True
    )
    assert config.decoder is not None
    assert config.decoder.positions == Learned(max_length=30, offset=2)
    config, _ = family_of(SUMMARIZER, where="c").read(SUMMARIZER, where="c")
    assert config.head == LanguageHead(tied=True, bias=True)


def test_versions_and_copies_are_no_weights() -> None:
    family = family_of(MNLI, where="c")
    config, head = family.read(MNLI, where="c")
    table = torch.randn(20, 16)
    theirs = {f"model.{name}.weight": table for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")}
    theirs |= {f"model.{stack}.version": torch.tensor([3.0]) for stack in ("encoder", "decoder")}
    found = mapping.load(family.table(config, head), theirs, where="f")
    assert list(found.tensors) == ["encoder.embed.tokens.weight"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("normalize_embedding", False), ("static_position_embeddings", True), ("tie_word_embeddings", False)],
)
def test_refuses_what_it_does_not_have(field: str, value: bool) -> None:
    with pytest.raises(UserError, match=f"c:{field}: expected {not value}, the only value that is supported"):
        family_of(SUMMARIZER, where="c").read(SUMMARIZER | {field: value}, where="c")


def test_a_bare_model_with_a_new_head_opens_elsewhere(tmp_path: Path) -> None:
    """The head has no bias, of which the other library's config has no word."""
    transformers = pytest.importorskip("transformers")
    names = ("vocab_size", "d_model", "max_position_embeddings")
    sizes = {name: value for name, value in MNLI.items() if name in names or name[3:].startswith("coder_")}
    transformers.BartModel(transformers.BartConfig(**sizes)).save_pretrained(tmp_path / "bare")
    model = load(tmp_path / "bare", head=LanguageHead(tied=True))
    model.save(tmp_path / "new")
    theirs, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "new", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        expected = theirs(input_ids=ids, decoder_input_ids=ids).logits
        torch.testing.assert_close(model.network(Tokens(ids), Tokens(ids)), expected, atol=1e-5, rtol=1e-5)
    assert load(tmp_path / "new").config == model.config
