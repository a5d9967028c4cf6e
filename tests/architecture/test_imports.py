"""Who may import whom, what may not be imported at all, and which names stay inside checkpoints/families/."""

import ast
import re
import sys
from collections.abc import Iterator

import pytest

from clearhead.cli.commands import COMMANDS
from tests import processes
from tests.architecture.source import LAB, PACKAGE, ROOT, Import, Source, part, sources

# The import table of the architecture: a part, and all that it may import besides itself.
BASE = {"brief", "errors", "extensions", "config", "recipe", "randomness", "json_text", "progress", "version"}
NETWORK = BASE | {"trace", "model"}
TASKS = NETWORK | {"generation", "text", "data", "tasks"}
FLOOR = TASKS | {"storage", "machine", "checkpoints", "analysis"}
ENGINE = FLOOR | {"api", "training", "capture"}
ALLOWED: dict[str, set[str]] = {
    **dict.fromkeys(BASE, BASE),
    "trace": BASE,
    "model": BASE | {"trace", "machine"},
    "generation": NETWORK,
    "text": BASE,
    "data": BASE | {"text"},
    "checkpoints": BASE,
    "tasks": NETWORK | {"generation", "text", "data"},
    "storage": BASE,
    "machine": BASE,
    "training": TASKS | {"storage", "machine"},
    "analysis": NETWORK | {"generation"},
    "api": FLOOR,
    "capture": FLOOR | {"api"},
    "pretrained_start": ENGINE,
    "runs": ENGINE | {"pretrained_start"},
    "session": ENGINE | {"pretrained_start", "runs", "explorer", "live"},
    "sklearn": {"api", "data", "errors", "session"},
    "batch": {"api", "capture", "config", "errors", "trace"},
    "web": {"errors", "version"},
    "explorer": ENGINE | {"web"},
    "live": BASE | {"storage", "web"},
    "serve": FLOOR | {"api", "web"},
    "demo": ENGINE | {"runs", "explorer", "web"},
    "cli": ENGINE | {"pretrained_start", "runs", "session", "explorer", "live", "serve", "web", "demo"},
    "lab": ENGINE | {"", "explorer", "session", "cli"},  # clearhead_lab, which no part of clearhead imports
    "__main__": {"cli"},
    "": {
        "api",
        "session",
        "sklearn",
        "trace",
        "config",
        "errors",
        "version",
    },  # clearhead/__init__.py hands out names, lazily
}
# The one upward import: Model.explore() opens the explorer.
EXCEPTION = ("api", "explore", "explorer")

WITHOUT_TORCH = (
    *("brief", "config", "recipe", "errors", "randomness", "json_text", "progress", "version"),
    *("text.tokenizers", "text.formats", "data.sources", "data.batches", "data.sentences"),
    *("data.images", "text.chat"),
    *("checkpoints.families", "checkpoints.weights.fields", "checkpoints.weights.documents"),
    *("tasks.registry", "explorer.static_files", "live"),
    *sorted(
        {where.partition(":")[0].removeprefix(f"{PACKAGE}.") for group in COMMANDS.values() for where in group.values()}
    ),
)

FAMILIES = ("gpt", "llama", "bert", "t5", "marian", "bart", "roberta", "qwen", "mistral", "vit")
CAPITALISED = ("LLaMA", "RoBERTa", "ViT", *(f(name) for name in FAMILIES for f in (str.upper, str.title)))
# A name, not a part of a word: gpt2, bert-base, ViTConfig and is_llama, but neither vital nor INT5.
FAMILY_NAME = re.compile(
    rf"(?<![A-Za-z])(?:{'|'.join(FAMILIES)})(?![a-z])|(?<![A-Z])(?:{'|'.join(CAPITALISED)})(?![a-z])"
)

COURSE = f"{LAB}.course"
"""It names families, and runs the code of its own pages."""
EXPRESSIONS = f"{LAB}.write.functions"
"""It evaluates the expressions of its own functions.toml, which is part of the package."""
UNSAFE_MODULES = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
UNSAFE_CALLS = {"eval", "exec", "torch.save", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}


def _targets(source: Source, item: Import) -> list[str]:
    """The part of the package that an import names: `trace` for `from clearhead import trace`."""
    if item.module == PACKAGE and item.name:
        return [item.name] if (ROOT / PACKAGE / f"{item.name}.py").exists() or item.name in ALLOWED else [""]
    return [part(item.module)] if item.module.split(".")[0] == PACKAGE else []


def test_imports_follow_the_table():
    wrong: list[str] = []
    for source in sources():
        assert source.part in ALLOWED, f"{source.path.name}: name its part in the import table of {__name__}"
        for item in source.imports:
            for target in _targets(source, item):
                is_exception = (source.part, item.function, target) == EXCEPTION
                if target != source.part and target not in ALLOWED[source.part] and not is_exception:
                    wrong.append(f"{source.at(item.line)}: {source.part} may not import {target or PACKAGE}")
    assert not wrong, "\n".join(wrong)


def test_table_has_no_cycle():
    reached = dict.fromkeys(BASE, 0)
    waiting = {name: needs - BASE for name, needs in ALLOWED.items() if name not in BASE}
    while waiting:
        ready = {name for name, needs in waiting.items() if not needs & waiting.keys()}
        assert ready, f"a cycle among {sorted(waiting)}"
        waiting = {name: needs for name, needs in waiting.items() if name not in ready}
        reached |= dict.fromkeys(ready, len(reached))


def _loaded_with(modules: list[str], known: dict[str, Source]) -> Iterator[tuple[Source, Import]]:
    """Every import that runs when `modules` are imported, packages on the way included."""
    todo, done = modules, set[str]()
    while todo:
        name, *todo = todo
        if name in done or name not in known:
            continue
        done.add(name)
        todo.append(name.rpartition(".")[0])
        for item in known[name].imports:
            if item.function is None and not item.for_types_only:
                yield known[name], item
                todo += [item.module, f"{item.module}.{item.name}"]


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_module_needs_no_torch(name: str):
    known = {source.module: source for source in sources()}
    modules = [module for module in known if f"{module}.".startswith(f"{PACKAGE}.{name}.")]
    heavy = {"torch", "transformers", "datasets", "matplotlib"}
    wrong = {
        f"{source.at(item.line)}: imports {item.module}, so {name} does too"
        for source, item in _loaded_with(modules, known)
        if item.module.split(".")[0] in heavy
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_light_modules_load_nothing_heavy():
    """As the table says, in a process of its own; a preset needs no torch either."""
    names = ", ".join(f"{PACKAGE}.{name}" for name in WITHOUT_TORCH)
    code = (
        f"import sys, {names}; {PACKAGE}.checkpoints.families.presets();"
        " print({'torch', 'PIL', 'jinja2'} & sys.modules.keys())"
    )
    done = processes.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stdout + done.stderr


def _names(source: Source) -> Iterator[tuple[int, str]]:
    """Identifiers and string literals with their lines; prose in docstrings is free to name its sources."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in source.docstrings:
                yield node.lineno, text
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.keyword(arg=str(name)):
                yield node.value.lineno, name
            case _:
                pass


def test_family_names_stay_in_families():
    wrong = [
        f"{source.at(line)}: {text.strip()[:80]!r} names a family; name the mechanism"
        for source in sources()
        if not source.module.startswith((f"{PACKAGE}.checkpoints.families", COURSE))
        for line, text in _names(source)
        if FAMILY_NAME.search(text)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "is_family"),
    [
        *((name, True) for name in ("gpt2", "bert-base", "ViTConfig", "is_llama", "T5Bias", "BertLayer", "vit_tiny")),
        *((name, False) for name in ("vital", "bartender", "Mariana", "INT5", "egpt", "invite", "libert\u00e9")),
    ],
)
def test_family_pattern(text: str, is_family: bool):
    assert bool(FAMILY_NAME.search(text)) == is_family


def test_nothing_executes_data():
    wrong: list[str] = []
    for source in sources():
        if source.module.startswith((COURSE, EXPRESSIONS)):
            continue
        wrong += [
            f"{source.at(item.line)}: {item.module} runs what it reads"
            for item in source.imports
            if {item.module.split(".")[0], f"{item.module}.{item.name}"} & (UNSAFE_MODULES | UNSAFE_CALLS)
        ]
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if called in UNSAFE_CALLS or (called == "torch.load" and keywords.get("weights_only") != "True"):
                wrong.append(f"{source.at(node.lineno)}: {called} runs what it reads")
            if called == "hasattr":
                wrong.append(f"{source.at(node.lineno)}: hasattr asks what a type should say")
    assert not wrong, "\n".join(wrong)


# What a stranger wrote is read by json_text.parse. These read what clearhead or a library has just written.
READ_OWN_JSON = ("json_text", "training.metrics_log", "storage.manifest", "storage.checkpoints", "text.schemes")
READ_OWN_JSON += ("text.chat", "explorer.answering.words", "explorer.static_files", "cli.share.ctranslate2")
READ_OWN_JSON += ("recipe.generation", f"{LAB}.course.values", f"{LAB}.course.site")


def test_json_has_one_reader():
    wrong = [
        source.at(node.lineno)
        for source in sources()
        if source.module.removeprefix(f"{PACKAGE}.") not in READ_OWN_JSON
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.load", "json.loads")
    ]
    assert not wrong, f"read with clearhead.json_text.parse, which bounds and explains: {wrong}"
