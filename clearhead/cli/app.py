"""The application that the commands belong to, and the kinds of option they share."""

from typing import Annotated, Literal

from cyclopts import App, Parameter

app = App(
    name="clearhead",
    help="A Transformer you can see through: train it, use it, look inside.",
    help_epilogue=(
        "Begin with `clearhead demo`. `clearhead COMMAND --help` explains one command. Results go to standard output,"
        " everything else to standard error; with --debug an error shows where in the code it arose, with"
        " --no-tokenizer a model opens without its tokenizer, for commands that read no text, and with --explain a"
        " command that writes text says in the end by which paths (docs/inference.md).\n\n"
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
Named = Annotated[str, Parameter(help="Folder of a model or run, or the name of a model on the Hugging Face hub.")]
Revision = Annotated[str | None, Parameter(help="Branch, tag or commit on the hub.")]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
Device = Annotated[DeviceName, Parameter(help="Where to compute.")]
Int8 = Annotated[Flag, Parameter(help="Round the weights to eight bits: faster, and nearly the same (CPU only).")]
Int4 = Annotated[
    Flag,
    Parameter(help="Round the weights to four bits: less accurate, and on a CPU quickest for one text at a time."),
]
OneObject = Annotated[Flag, Parameter(help="Print one JSON object on standard output, and nothing else there.")]
Length = Annotated[int | None, Parameter(help="Tokens of a text at most.")]
Tokenize = Literal["auto", "13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"]
