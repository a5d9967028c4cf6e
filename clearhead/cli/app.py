"""The application that the commands belong to, and the kinds of option they share."""

from typing import Annotated, Literal

from cyclopts import App, Parameter

app = App(
    name="clearhead",
    help="A Transformer you can see through: train it, use it, look inside.",
    help_epilogue=(
        "Begin with `clearhead demo`. `clearhead COMMAND --help` explains one command. Results go to standard output,"
        " everything else to standard error; with --debug an error shows where in the code it arose.\n\n"
        "Exit codes: 0 done, 2 a mistake of yours, 3 out of memory, 4 training met NaN or infinity, 130 or 143 stopped"
        " by Ctrl-C or SIGTERM."
    ),
    help_format="markdown",
    version_flags=["--version"],
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)


Text = str
"""Words for a model, or the name of a column."""
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Repeated = Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=True)]
Files = Repeated
Device = Literal["auto", "cpu", "cuda", "mps"]
Tokenize = Literal["auto", "13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"]
