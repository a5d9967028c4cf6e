"""One pair of texts or a set of them on the command line, and the effects over it."""

import json as json_lines
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from clearhead.brief import amount, between
from clearhead.cli.options import Text, given, progress, tell
from clearhead.errors import UserError

if TYPE_CHECKING:
    from clearhead.api import Model
    from clearhead.capture import Effect
    from clearhead.capture.prompts import How
    from clearhead.data.prompts import Prompt

SHOWN = 20


@Parameter(name="*")
@dataclass(frozen=True)
class Pairs:
    """What is compared: a clean and a corrupt text, or a set of such pairs."""

    clean: Text | None = None
    """The text that gives the answer; a file, for a model that reads images."""
    corrupt: Text | None = None
    """A text with another answer."""
    pairs: str | None = None
    """In their place a set: agreement, greater_than, ioi, pronouns, a template (.toml), a table or a report (.html)."""
    prompts: int = 100
    """Pairs to draw from a template."""
    seed: int = 0
    """Seed of the draw."""
    target: Text | None = None
    """What the decoder of an encoder-decoder has written so far (default: nothing)."""
    answer: Text | None = None
    """Token or label of the answer (default: the likeliest on the clean text). A word has its space: " Paris"."""
    minus: Text | None = None
    """Token or label that it is compared with (default: the likeliest on the corrupt text)."""
    position: int | None = None
    """Position of the answer in the clean text (default: the last, or where the likeliest answers differ)."""
    report: Path | None = None
    """HTML file to write: figure, table, prompts, and the Python that gives the same numbers."""

    def read(self) -> "list[Prompt]":
        """The prompts. Raises UserError unless there is one pair of texts or one set."""
        from clearhead.data.prompts import Prompt, prompts_in

        own = given(answer=self.answer, minus=self.minus, target=self.target)
        if self.pairs is not None and (self.clean or self.corrupt):
            raise UserError("--pairs: expected it without --clean and --corrupt, got both; leave one of them out")
        if self.pairs is not None:
            return [replace(one, **own) for one in prompts_in(self.pairs, n=self.prompts, seed=self.seed)]
        if self.clean is None or self.corrupt is None:
            raise UserError("--clean: expected it and --corrupt, or --pairs SET, got neither; try --pairs ioi")
        return [Prompt((self.clean,), (self.corrupt,), **own)]

    def measure(
        self, model: "Model", how: "How", sites: str = "heads", *, name: str, exact: float = 1 / 3
    ) -> "list[Effect]":
        """The effects over the prompts. The metrics of the clean and the corrupt texts are printed."""
        from clearhead.capture import over_prompts
        from clearhead.capture.prompts import ENDS
        from clearhead.capture.report import report

        prompts = self.read()
        with progress():
            found = over_prompts(model, prompts, how, sites, position=self.position, exact=exact)
        for one in found[:2]:
            if one.site in ENDS:
                interval = f", {between(one.interval, '.4g')}" * (len(prompts) > 1)
                tell(f"{one.site} {one.mean:.4g}{interval} (the logit of the answer less that of the other)")
        if left := len(prompts) - found[0].n_texts:
            tell(f"left out: {amount(left, 'pairs')} whose two answers are so near that shares of them mean little")
        if self.report is not None:
            about = {"model": name, "how": how, "sites": sites, "position": self.position, "exact": exact}
            page = report(self.report.name, model, prompts, found, {**about, "set": self.pairs, "seed": self.seed})
            self.report.write_text(page, encoding="utf-8")
            tell(f"{self.report}: {amount(len(found), 'effects')} over {amount(len(prompts), 'pairs')}")
        return [one for one in found if one.site not in ENDS]


ONE_PAIR = Pairs()


def print_effects(found: "Sequence[Effect]", *, json: bool, unit: str = "mean", top: int | None = None) -> None:
    """Prints all effects in their order, or the `top` largest; or all as JSON."""
    if json:
        print(json_lines.dumps([asdict(one) for one in found]))
        return
    print(f"{unit:>10}  {'95% interval':>22}  site")
    for one in found if top is None else sorted(found, key=lambda one: -abs(one.mean))[:top]:
        print(f"{one.mean:10.4f}  {between(one.interval):>22}  {one.site}")
