"""`clearhead plan`, `profile` and `summary`."""

import json as json_lines
import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from clearhead.cli.options import DeviceName, OneObject, check_positive, tell
from clearhead.errors import UserError


def plan(
    config: str,
    /,
    *,
    gpu: Literal["h100", "h200", "a100", "cpu"] = "h100",
    flops: float | None = None,
    memory: float | None = None,
    bandwidth: float | None = None,
    watts: float | None = None,
    carbon: float | None = None,
    tokens: int | None = None,
    batch: int | None = None,
    length: int | None = None,
    mfu: float = 0.4,
    json: OneObject = False,
) -> None:
    """Reckon what training costs on one GPU: memory, hours, kilowatt-hours, and the line that starts it.

    Runs nothing. It takes more, smaller batches an update, and computes blocks again, where memory asks for it.

    Args:
        config: A recipe (name or .toml file), folder of a model or run, or an architecture by name, such as gpt2.
        gpu: Whose figures to take, where none are given below.
        flops: TFLOP/s of a dense bfloat16 product.
        memory: GB of a GPU.
        bandwidth: GB/s of that memory.
        watts: Its power limit.
        carbon: Grams of CO2 for each kilowatt-hour of your electricity; says the grams of the run.
        tokens: To train on (default: 20 for each parameter).
        batch: Tokens of an update, source and target together (default: the recipe's, or 524,288).
        length: Tokens of a sequence (default: the recipe's, or the longest the model takes).
        mfu: Share of those FLOPs that computation reaches; measure it with `clearhead profile`.
    """
    from clearhead.cli.plan.costs import TOKENS_A_PARAMETER, console_of, show, subject_of, to_json
    from clearhead.training.planning.memory import Network
    from clearhead.training.planning.one_gpu import Job, hardware
    from clearhead.training.planning.one_gpu import plan as reckon

    check_positive(tokens=tokens, batch=batch, length=length, carbon=carbon)
    if not 0 < mfu <= 1:
        raise UserError(f"--mfu: expected a share above 0 and up to 1, got {mfu}; try 0.4")
    subject = subject_of(config, length)
    mixed = subject.training.precision != "fp32"
    job = Job(
        config=subject.config,
        training=subject.training,
        source=subject.source,
        target=subject.target,
        batch=batch or subject.batch,
        tokens=tokens or TOKENS_A_PARAMETER * Network(subject.config).weights,
        mfu=mfu if mixed else mfu / 2,  # float32 products run at half the rate of bfloat16 ones, with TF32 or oneDNN
        mixed=mixed,
        adapter=subject.adapter,
    )
    machine = hardware(gpu, {"flops": flops, "memory": memory, "bandwidth": bandwidth, "watts": watts})
    found = reckon(job, machine)
    show(job, machine, found, subject, console_of(as_json=json), carbon)
    if json:
        print(json_lines.dumps(to_json(job, machine, found, subject, carbon)))


def profile(
    model: str,
    /,
    *changes: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    steps: int = 5,
    batch: int | None = None,
    length: int | None = None,
    device: DeviceName | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
    watts: float | None = None,
    carbon: float | None = None,
    json: OneObject = False,
) -> None:
    """Time a training step by component, and compare it with what this machine can do.

    Says the milliseconds and the FLOPs of each component, tokens a second, and the share of the ceiling (MFU), which is
    the rate of a large matrix product in the same type, measured on the spot. A recipe whose data are there is profiled
    on its own batches (`clearhead profile lm --data.train.paths '["book.txt"]'`), any other on random tokens.

    Args:
        model: A recipe (name or .toml file), folder of a model or run, or an architecture by name, such as gpt2.
        changes: Fields of the recipe, as for train.
        steps: Training steps to time, after two to warm up.
        batch: Tokens of a batch, source and target together (default: the recipe's, or 4,096).
        length: Tokens of a sequence (default: the recipe's, or the longest the model takes).
        device: Where to compute; auto takes a GPU if there is one.
        precision: auto takes bf16 where it is faster and the losses agree.
        watts: Power while it computes (default: the processor's counters, else an assumed rating of its cores).
        carbon: Grams of CO2 for each kilowatt-hour of your electricity; says the grams of the tokens.
    """
    from clearhead.cli.plan.costs import console_of
    from clearhead.cli.plan.timing import prepared, show, to_json
    from clearhead.machine.device import prepare_machine
    from clearhead.training.performance import choose
    from clearhead.training.profile import profile as measure

    check_positive(steps=steps, batch=batch, length=length, watts=watts, carbon=carbon)
    network, task, training = prepared(
        model, changes, steps=steps, batch=batch, length=length, short={"device": device, "precision": precision}
    )
    place = prepare_machine(training)
    network.to(place)
    batches = task.plan(seed=training.seed, epoch=0)[:steps]
    choice = choose(network, task.collate(batches[0]).to(place), training, task)
    tell(f"{model}: timing {steps} steps")
    measured = measure(
        network,
        lambda network, batch: task.loss(network, batch, smoothing=training.label_smoothing),
        [lambda examples=examples: task.collate(examples) for examples in batches],
        training,
        choice.arithmetic,
        steps=steps,
        watts=watts,
    )
    show(measured, console_of(as_json=json), carbon)
    if json:
        print(json_lines.dumps(to_json(measured, carbon)))


def summary(
    model: str,
    /,
    *,
    source_length: int | None = None,
    target_length: int | None = None,
    batch: int = 1,
    json: OneObject = False,
) -> None:
    """Count a model by component: parameters, shapes, FLOPs a token, bytes of activations and cache.

    Args:
        model: Folder of a model or run, or an architecture by name: transformer-base, bert-base, gpt2, llama-tiny, ...
        source_length: Tokens of the source, or of the only input.
        target_length: Tokens of the target.
        batch: Sequences at once.
    """
    from clearhead.api import named_config
    from clearhead.model.summary import summarize

    counts = summarize(named_config(model), batch=batch, source_length=source_length, target_length=target_length)
    print("\n".join(counts.lines()), file=sys.stderr if json else sys.stdout)
    if json:
        print(json_lines.dumps(counts.to_json()))
