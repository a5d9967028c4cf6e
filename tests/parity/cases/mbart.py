"""Configurations of mBART, M2M-100 and Blenderbot."""

from tests.parity.cases import bart
from tests.parity.harness import relatives

BASE, VARIANTS = bart.BASE, bart.VARIANTS
FROM_START = {"decoder_start_token_id": 2}
LAYERS = {"encoder_layerdrop": 0.1, "decoder_layerdrop": 0.1}
M2M_100 = {
    **{name: change for name, change in VARIANTS.items() if name not in ("scaled", "short", "long", "scaled-wide")},
    "unscaled": {"scale_embedding": False},
    "unscaled-wide": {
        "scale_embedding": False, "d_model": 32, "encoder_attention_heads": 8, "decoder_attention_heads": 8
    },
    "layer-dropout": LAYERS,
    "long": {"max_position_embeddings": 300},
}  # fmt: skip

M2M_100_BASE = {name: value for name, value in BASE.items() if name != "max_position_embeddings"}

CASES = [
    *relatives(
        "mbart",
        {
            "MBartForConditionalGeneration": VARIANTS,
            "MBartModel": {"scaled": {"scale_embedding": True}},
            "MBartForSequenceClassification": {"labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}}},
            "MBartForQuestionAnswering": {},
        },
        {**BASE, **FROM_START},
        quick=("scaled-wide-MBartForConditionalGeneration", "labels-MBartForSequenceClassification"),
        pad=1,
    ),
    *relatives(
        "m2m_100",
        {"M2M100ForConditionalGeneration": M2M_100, "M2M100Model": {"unscaled": {"scale_embedding": False}}},
        M2M_100_BASE,
        quick=("unscaled-wide-M2M100ForConditionalGeneration",),
        pad=1,
    ),
    *relatives(
        "blenderbot",
        {"BlenderbotForConditionalGeneration": VARIANTS, "BlenderbotModel": {"scaled": {"scale_embedding": True}}},
        {**BASE, "encoder_no_repeat_ngram_size": 0},
        quick=("scaled-BlenderbotForConditionalGeneration",),
    ),
]
