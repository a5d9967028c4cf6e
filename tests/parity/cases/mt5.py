"""mT5's configurations: T5's, without those that scale or name another version."""

from tests.parity.cases import t5
from tests.parity.harness import relatives

OTHERS = ("flan", "flan-wide", "flan-deep", "unscaled")
BASE = {**t5.BASE, "feed_forward_proj": "gated-gelu", "d_ff": 48}
VARIANTS = {name: change for name, change in t5.VARIANTS.items() if name not in OTHERS}

CASES = relatives(
    "mt5",
    {
        "MT5ForConditionalGeneration": {**VARIANTS, "plain-relu": {"feed_forward_proj": "relu"}},
        "MT5Model": {},
        "MT5EncoderModel": {},
        "MT5ForSequenceClassification": {"labels": {"num_labels": 3}},
        "MT5ForTokenClassification": {"labels": {"num_labels": 5}},
        "MT5ForQuestionAnswering": {},
    },
    BASE,
    quick=("plain-MT5EncoderModel",),
)
