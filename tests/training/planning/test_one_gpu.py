from dataclasses import replace

import pytest

from clearhead.checkpoints.families import preset
from clearhead.errors import UserError
from clearhead.recipe.training import Muon, Training
from clearhead.training.planning.one_gpu import GB, KNOWN, Cost, Hardware, Job, command, hardware, option_effects, plan

GPT2 = preset("gpt2")
H100 = KNOWN["h100"]
BATCH = 1 << 17


def job(training: Training | None = None) -> Job:
    return Job(GPT2, training or Training(), 0, 512, BATCH, 10**9)


def wide(gb: float) -> Hardware:
    return replace(H100, memory=int(gb * GB))


def test_less_memory_asks_for_smaller_batches_then_for_checkpointing():
    plenty, some, little, none = (plan(job(), wide(gb)) for gb in (80, 40, 2.6, 0.5))
    assert plenty.setting.accumulate < some.setting.accumulate <= little.setting.accumulate
    assert [one.setting.checkpointed for one in (plenty, some, little)] == [False, False, True]
    assert [one.fits for one in (plenty, some, little, none)] == [True, True, True, False]
    for found in (plenty, some, little):
        assert found.shape.rows * found.setting.accumulate * 512 == BATCH
    assert command(job(), some, "lm") == "clearhead train lm --training.max_tokens 65536 --training.accumulate 2"
    assert command(job(), little, "lm").endswith("--training.checkpoint_activations true")


def test_compute_is_six_flops_a_parameter_and_token_and_attention():
    found = plan(job(), H100)
    matrices = 124e6 - 1024 * 768
    assert 6 * matrices < found.compute * 0.4 * H100.flops / BATCH < 1.2 * 6 * matrices
    assert found.hours * 3600 == pytest.approx(10**9 / BATCH * found.step)
    assert found.kwh == pytest.approx(0.7 * found.hours)
    assert plan(job(Training(optimizer=Muon())), H100).optimizer > found.optimizer


def test_options_trade_memory_for_time():
    one = plan(job(), H100)
    effects = dict[str, Cost](option_effects(job(), H100, one))
    checkpointed, whole, explicit, halved = effects.values()
    assert [*effects][-1] == "weights in bfloat16"
    assert checkpointed.memory.activations < one.memory.activations < explicit.memory.activations
    assert checkpointed.compute > one.compute
    assert whole.memory.logits > one.memory.logits
    assert halved.memory.resting < 0.75 * one.memory.resting
    assert plan(job(Training(steps=1, weights="bf16")), H100).memory == halved.memory


def test_figures_given_replace_those_known():
    found = hardware("a100", {"flops": 100, "memory": 40, "watts": None})
    assert (found.flops, found.memory, found.watts) == (100e12, 40_000_000_000, 400)
    with pytest.raises(UserError, match=r"^--flops: expected more than 0, got 0; leave it out for that of h100$"):
        hardware("h100", {"flops": 0})
    with pytest.raises(UserError, match=r"^--batch: expected at least a sequence of 512 tokens, got 9; try 512$"):
        plan(replace(job(), batch=9), H100)
