"""The commands: where each one stands, and the application that holds them.

A command is one function: its signature, its help and its body. `COMMANDS` names the function, or the App of a command
with subcommands. Only the module of the command that runs is imported. The list of all commands imports all
modules, so none of them imports torch outside its functions.
Other packages add commands as entry points of `clearhead.commands`.
"""

import tomllib
from collections.abc import Collection
from importlib.resources import files

from cyclopts import App, Group

from clearhead.errors import UserError
from clearhead.extensions import extensions, load_extension
from clearhead.version import __version__

COMMANDS: dict[str, dict[str, str]] = {
    "Train": {
        "train": "clearhead.cli.train.train:train",
        "resume": "clearhead.cli.train.train:resume",
        "watch": "clearhead.cli.train.watch:watch",
        "curve": "clearhead.cli.train.overview:curve",
        "recipes": "clearhead.cli.train.overview:recipes",
        "tokenizer": "clearhead.cli.train.tokenizer:tokenizer",
    },
    "Use": {
        "translate": "clearhead.cli.use.translate:translate",
        "generate": "clearhead.cli.use.translate:generate",
        "predict": "clearhead.cli.use.predict:predict",
        "classify": "clearhead.cli.use.predict:classify",
        "tag": "clearhead.cli.use.predict:tag",
        "answer": "clearhead.cli.use.predict:answer",
        "fill": "clearhead.cli.use.predict:fill",
        "summarize": "clearhead.cli.use.predict:summarize",
        "embed": "clearhead.cli.use.predict:embed",
        "transcribe": "clearhead.cli.use.transcribe:transcribe",
        "serve": "clearhead.cli.use.serve:serve",
    },
    "Look inside": {
        "explore": "clearhead.cli.look.explore:explore",
        "capture": "clearhead.cli.look.capture:capture",
        "effects": "clearhead.cli.look.capture:effects",
        "examples": "clearhead.cli.look.capture:examples",
        "circuits": "clearhead.cli.look.circuits:circuits",
        "patch": "clearhead.cli.look.patch:patch",
        "difference": "clearhead.cli.look.difference:difference",
        "features": "clearhead.cli.look.features:features",
        "steer": "clearhead.cli.look.features:steer",
    },
    "Judge": {
        "evaluate": "clearhead.cli.judge.evaluate:evaluate",
        "compare": "clearhead.cli.judge.compare:compare",
        "wrong-labels": "clearhead.cli.judge.wrong_labels:wrong_labels",
        "check": "clearhead.cli.judge.check:check",
    },
    "Share": {
        "export": "clearhead.cli.share.export:export",
        "push": "clearhead.cli.share.export:push",
        "prune": "clearhead.cli.share.export:prune",
    },
    "Plan": {
        "plan": "clearhead.cli.plan.plan:plan",
        "profile": "clearhead.cli.plan.plan:profile",
        "summary": "clearhead.cli.plan.plan:summary",
        "doctor": "clearhead.cli.screen:doctor",
    },
    "Learn": {
        "demo": "clearhead.cli.learn:demo",
        "lab": "clearhead.cli.learn:lab",
        "help": "clearhead.cli.screen:help_",
    },
}
"""`module:function` of each command of this package, by group of the help and by name."""
REPLACED = ("lab",)
"""Commands that only say which package to install, until that package adds a command of the same name."""
ADDED = "From other packages"
"""The group of a function that another package adds. An App names its own group."""
EPILOGUE = (
    "Begin with `clearhead demo`. `clearhead COMMAND --help` explains one command, and `clearhead --install-completion`"
    " completes them in bash, zsh and fish. Results go to standard output, everything else to standard error. Every"
    " command takes --debug, which shows where in the code an error arose, --no-tokenizer, which opens a model without"
    " its tokenizer, and --explain, which says at the end by which fast paths a text was written.\n\n"
    "Exit codes: 0 done, 2 a mistake of yours, 3 out of memory, 4 training met NaN or infinity, 130 or 143 stopped"
    " by Ctrl-C or SIGTERM."
)


def application(command: str | None = None, *, titles: Collection[str] = ()) -> App:
    """The application with this command, or with all of them if there is no command of this name.

    With `titles` it has the commands of these groups.

    Raises UserError for a command that cannot be loaded; among all of them it is one line of the help.
    """
    places = _places(command)
    is_known = command in places
    app = App(
        name="clearhead",
        help="A Transformer you can see through: train it, use it, look inside.",
        help_epilogue=None if is_known else EPILOGUE,
        help_format="markdown",
        version=__version__,
        version_flags=["--version"],
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    groups = {title: Group(title, sort_key=number) for number, title in enumerate((*COMMANDS, ADDED, "Options"))}
    app.register_install_completion_command()
    for flag in (*app.help_flags, *app.version_flags, "--install-completion"):
        app[flag].group = groups["Options"]
    for number, (name, (title, where)) in enumerate(places.items()):
        if (is_known and name != command) or (titles and title not in titles):
            continue
        try:
            target = load_extension("commands", name, where)
        except UserError as error:
            if is_known:
                raise
            target = App(name, help=str(error))
        shown = examples(name) if is_known else None
        if not isinstance(target, App):
            app.command(target, name=name, group=groups[title], sort_key=number, help_epilogue=shown)
            continue
        target.help_epilogue = shown or target.help_epilogue
        if title != ADDED or not target.group:
            target.group, target.sort_key = groups[title], number
        app.command(target, name=name)
    return app


def examples(command: str) -> str | None:
    """Markdown that ends the help of one of our commands: three lines that run as they are."""
    text = files("clearhead.cli").joinpath("examples.toml").read_text(encoding="utf-8")
    lines = tomllib.loads(text).get(command)
    return None if lines is None else "Examples:\n\n" + "\n".join(f"- `{line}`" for line in lines)


def _places(command: str | None) -> dict[str, tuple[str, str]]:
    """The group of the help and the `module:object` of each command by name."""
    places = {name: (title, where) for title, commands in COMMANDS.items() for name, where in commands.items()}
    try:
        added = extensions("commands")
        for name, where in added.items():
            if name in places and name not in REPLACED:
                raise UserError(f"clearhead.commands: expected another name than {name}, got {where}; rename it there")
    except UserError:
        if command in places:
            return places
        raise
    return places | {name: (places.get(name, (ADDED,))[0], where) for name, where in added.items()}
