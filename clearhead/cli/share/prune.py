"""`clearhead prune`: a smaller model without the heads that matter least."""

from pathlib import Path

from clearhead.analysis.ablation import unit
from clearhead.analysis.pruning import without_heads
from clearhead.api import Model, load
from clearhead.cli.options import tell
from clearhead.cli.share.export import check_free
from clearhead.errors import UserError, pasted
from clearhead.runs import prepare_task, task_of

EXAMPLES = 32
"""Examples on which heads are measured. The network runs on them once for each head."""


def prune_command(name: str, *, heads: int, out: Path) -> None:
    """Measures every head on a batch of the run's data, removes the weakest of each attention, and saves the rest."""
    check_free(out)
    model = load(name).merge()
    _, recipe = task_of(name, model)
    if recipe is None:
        raise UserError(f"{name}: expected a run, whose data show which heads matter, got only a model; train it")
    task = prepare_task(recipe, model.tokenizer).task
    batch = task.collate(task.plan(seed=0, epoch=0)[0][:EXAMPLES])
    tell(f"{name}: measuring heads on {batch.count:,} labels of its data ...")
    found = without_heads(model.network, [x.padded() for x in batch.inputs], heads)
    before, after = (sum(p.numel() for p in one.parameters()) for one in (model.network, found.network))
    given = {"sentences": model.sentences, "family": model.family}
    Model(found.network, model.tokenizer, model.generation, **given).save(out)
    measured = unit(model.network)
    least = max(found.effects[site] for site in found.removed)
    tell(f"removed {len(found.removed)} of {len(found.effects)} heads, with effects of at most {least:.2g} {measured};")
    tell(f"the largest effect of one that stays is {max(found.effects.values()):.2g} {measured}")
    print(f"{out}: {after:,} parameters in place of {before:,} ({after / before - 1:.1%})", flush=True)
    tell(f"measure it: clearhead evaluate {pasted(out)} with your data; train it on with --model.start {pasted(out)}")
