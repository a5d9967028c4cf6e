"""What each command refuses, in one line and before it writes anything."""

import shlex
from pathlib import Path

import pytest

from tests.shell import Folders, Shell
from tests.tasks.test_classification import rows, write_table
from tests.training.tiny import write_recipe

CLEAN, CORRUPT = "--clean 'one two three four five two'", "--corrupt 'one three two four five two'"
CIRCUITS = "circuits {decoder_pre_learned}"
PATCH = "patch {gpt2} --clean 'one two three' --corrupt 'one four three' --minus two"
FEATURES = "features train {writer} --data long.txt --out f"
CAPTURE = "capture {decoder_pre_learned} --data a.txt --out c"

LINES = [
    # help and usage
    ("bogus", 'Unknown command "bogus"'),
    ("train", "RECIPE requires an argument."),
    ("translate", "MODEL requires an argument. Folder of a model or run,"),
    ("summary gpt2 --bogus", "Unknown option: --bogus. See clearhead summary --help"),
    ("summary gpt2 --batch x", 'unable to convert "x" into int'),
    ("summary gpt3", "try gpt2"),
    ("summary gpt2 --batch 0", "batch: expected 1 or more, got 0"),
    # recipes and their fields
    ("train recipe --training.bogus 1", "recipe: expected a recipe or data, got no such file; try one of captions"),
    ("train table.csv --lable y", "--lable: no such option; did you mean --label?"),  # Before any guess.
    ("train lm --training.stpes 1", "lm:training.stpes: no such field; did you mean steps?"),
    ("train translation --model.presett gpt2", "model.presett: no such field; did you mean preset?"),
    ("train lm --stepz 1", "--stepz: no such option; did you mean --steps?"),
    ("train lm --clip 1", "--clip: no such option; did you mean --training.clip?"),
    ("train lm --bogus 1", "--bogus: no such option; write a field of the recipe as --TABLE.FIELD VALUE"),
    ("train lm --traning.clip 1", "--traning.clip: no such option; did you mean --training.clip?"),
    ("train lm --traning-save-every 1", "did you mean --training.save_every?"),
    ("train tagging --data.train.path a", "tagging:data.train.path: no such field; did you mean paths?"),
    ("train tagging --path a", "--path: no such option; did you mean --data.train.paths?"),
    ("train tagging --sourc a", "--sourc: no such option; write a field of the recipe as --TABLE.FIELD VALUE"),
    ("train lm --training.lr 1 --text a", "lm:training.lr: no such field; did you mean training.optimizer.lr?"),
    ("train lm --model.n_heads 8 --text a", "lm:model.n_heads: no such field; did you mean model.stacks.n_heads?"),
    ("train lm --data.x " + "[" * 100_000, "--data.x: expected at most 100 levels of tables and lists, got more"),
    ("train lm --training.clip", "--training.clip: expected a value after it, got none"),
    ("train lm 3", "3: expected a field such as --training.clip, got a value"),
    ("train lm --text a --device tpu", 'Invalid value "tpu" for --device. Choose from: "auto", "cpu"'),
    ("train lm --text a --steps -1", "lm:training.steps: expected greater than 0, got -1"),
    ("train lm --text a --model.stacks.n_heads 7", "n_heads=7 must divide d_model=128"),
    ("train lm --text a --model.stacks.n_head 8", "n_head: no such field; did you mean n_heads?"),
    ("train image_classification --data a --augment.shfit 1", "augment.shfit: no such field; did you mean shift?"),
    ("resume nowhere", "nowhere: expected a run with a checkpoint, found none"),
    ("curve nowhere", "expected a run with a checkpoint"),
    # data
    ("train lm", "lm: expected a text, got none; give --text FILE"),
    ("train translation --source a", "got --source; give --source FILE --target FILE"),
    ("train translation --text a", "got --text; give --source FILE --target FILE"),
    ("train lm --text a --source b", "lm: expected a text, got --source and --text; give --text FILE"),
    ("train lm --text nowhere.txt", "nowhere.txt: expected a file, got none"),
    ("train {recipe} --valid-source a.en", "got --valid-source; give --valid-source FILE --valid-target FILE"),
    ("train {recipe} --sweep training.clip=1,-1", "training.clip: expected greater than 0, got -1"),
    ("train {recipe} --sweep training.clip", "expected a field with its values"),
    ("demo --to zz", "language: expected fr, de, es, got 'zz'; try fr"),
    ("tokenizer train a.txt --out new --vocab-size 3", "tokenizer:vocab_size: expected greater than 4, got 3"),
    ("tokenizer train no.txt --out new", "no.txt: expected a file, got none"),
    ("tokenizer train a.txt --out {writer}", "expected a new folder"),
    # models
    ("translate nowhere hello", "nowhere: expected a local folder, or the whole model in the hub's cache"),
    ("export nowhere --to onnx", "nowhere: expected a local folder, or the whole model in the hub's cache"),
    ("translate ./nowhere hello", "./nowhere: expected a folder with a model, found nothing"),
    ("translate empty hello", "empty: expected a folder with a model, got an empty one; check the path"),
    ("generate {translator} one", "try clearhead translate"),
    ("translate {writer} one", "try clearhead generate"),
    ("translate {labels} one", "expected a model to translate, got one to classify; try clearhead classify {labels}"),
    ("answer {labels} one? --context two", "expected a model to answer, got one to classify; try clearhead"),
    ("transcribe {translator} 0.wav", "0.wav: expected a sound file, got No such file or directory"),
    # translate and generate
    ("translate {translator} a --file a.txt", "got a text on the line too"),
    ("translate {translator} --file none.en", "none.en: expected a file, got none"),
    ("translate {translator} one --n-best 9", "n_best=9 must be at most beams=2"),
    ("generate {writer} a --file a.txt", "got a prompt on the line too"),
    ("generate {writer} one --top-p 2", "generation:top_p: expected less than"),
    # predict
    ("classify {labels} one --file a.csv", "--file a.csv: expected it alone, got a text on the line too"),
    ("predict {labels} --file none.en", "none.en: expected a file, got none"),
    ("classify {labels} one --text a", "--text: expected --file with a table, got none"),
    ("classify {labels} --file a.csv --text bod", "a.csv:1: expected a column 'bod', got none; try body"),
    ("classify {labels} --file b.csv", "b.csv:1: expected a column 'text', got n, m; give --text NAME, or"),
    ("classify {labels} --file a.txt --text b", "a.txt: expected a table with columns b, got lines; leave out --text"),
    (
        "classify {labels} --file a.csv --text-pair b",
        "a.csv:1: expected a column 'b', got none; there are body, kind",
    ),
    ("classify {labels} --file c.jsonl", "c.jsonl:2:text: expected text, got int"),
    ("classify {labels} one --out no/a.txt", "no/a.txt: expected a file in a folder that is there, got no"),
    ("classify {labels} one --labels a,b", "labels: expected a model with a label entailment, got one with"),
    ("classify {labels} one --several", "--labels: expected labels beside --template and --several, got none"),
    ("answer {labels} --context a", "answer: expected a question, got none; try clearhead answer MODEL"),
    ("transcribe {speech}", "transcribe: expected a WAV file, got none"),
    ("transcribe {speech} a.txt", "a.txt: expected a WAV file, got File format b'one ' not understood"),
    # evaluate
    ("evaluate {translator} --text a.txt", "give --source FILE --target FILE"),
    ("evaluate {translator} --source a.txt", "got --source; give --source FILE --target FILE"),
    ("evaluate {writer} --source a.txt --target a.txt", "give --text FILE"),
    ("evaluate {writer}", "expected a text, got none; give --text FILE"),
    ("evaluate {writer} --text a.txt --beams 3", "--beams: expected a model of another task, got {writer}; leave it"),
    ("evaluate {translator} --source a.txt --target b.csv --tokenize x", 'Choose from: "auto", "13a"'),
    ("evaluate {labels} --data a.csv", "labels: expected the columns of a.csv, got none; give --text NAME"),
    # look inside
    (f"{PATCH} --answer 'five six'", "--answer: expected one token, got five six, which is"),
    (f"{PATCH} --answer five --position 7", "position 7: expected a position of the clean text, whose length is 3"),
    (f"{PATCH} --answer five", "at most 0.1 apart, and shares of that mean little; choose another text, position or"),
    ("patch {gpt2} --clean a --corrupt a --answer five", "patching: expected texts that answer differently"),
    (f"{CIRCUITS} {CLEAN}", "--clean: expected it and --corrupt, or --pairs SET, got neither; try --pairs ioi"),
    (f"{CIRCUITS} {CLEAN} --corrupt one", "corrupt: expected"),
    (f"{CIRCUITS} {CLEAN} {CORRUPT} --answer 'one two'", "--answer: expected one token, got"),
    (f"{CIRCUITS} {CLEAN} {CORRUPT} --top 0", "--top: expected a share"),
    (f"{CIRCUITS} {CLEAN} {CORRUPT} --exact 2", "--exact: expected a share"),
    (f"{CIRCUITS} {CLEAN} {CORRUPT} --position 99", "position 99: expected"),
    (f"{CIRCUITS} --pairs a.txt", "a.txt:1: expected a column 'clean', got none"),
    (f"{CIRCUITS} --pairs a.txt --edges", "--edges: expected no such option with --pairs"),
    (f"{CIRCUITS} --pairs a.txt --features f", "--features: expected no such option with --pairs"),
    (f"{FEATURES} --at decoder.blocks.0.resid_post --width wide", "--width: expected a number of features"),
    (f"{FEATURES} --at decoder.blocks.0.resid_mid", "no such address in this trace"),
    (f"{FEATURES} --at decoder.blocks.0.resid_post --active 500", "k: expected 1 to 256"),
    (f"{FEATURES} --at decoder.blocks.0.attn --kind transcoder", "expected the address of an FFN"),
    (f"{CAPTURE} --at decoder.no_such", "decoder.no_such: expected an address of this model"),
    ("difference {decoder_rotary_grouped} {decoder_pre_learned}", "expected the same in both models, got"),
    ("difference none@3 {decoder_pre_learned}", "none@3: expected the folder of a run before @"),
    # judge
    ("wrong-labels table.csv --folds 1", "--folds: expected at least 2, got 1"),
    ("wrong-labels table.csv --folds 13", "expected at least 2 labels with 13 texts each"),
    (
        "wrong-labels translation --data.train.source a --data.train.target b",
        "expected texts with labels, got the task translation",
    ),
    ("wrong-labels nowhere.csv", "nowhere.csv: expected a file, got none"),
    # share
    ("export {gpt2} --to torch", 'Invalid value "torch" for --to. Choose from: "hf", "peft", "ctranslate2", "onnx"'),
    ("export {gpt2}", "--to requires an argument. The form to write: hf for transformers, peft for adapters in PEFT,"),
    ("export {gpt2} --to hf --dtype int8", 'Invalid value "int8" for --dtype'),
    ("export {gpt2} --to hf --quantization int8", "--quantization: expected it with --to ctranslate2, got --to hf"),
    (
        "export {gpt2} --to ctranslate2 --quantization int8 --dtype float16",
        "both name the type of the weights; give one",
    ),
    ("export {gpt2} --to onnx --dtype bfloat16", "expected float32 or float16 with --to onnx, got bfloat16"),
    ("export {gpt2} --to onnx --dtype q8_0", "--dtype: expected q8_0 with --to gguf, got --to onnx; try float16"),
    ("export {gpt2} --to onnx --shard-gb 1", "--shard-gb: expected it with --to hf, got --to onnx"),
    ("export {gpt2} --to hf --shard-gb 0", "--shard-gb: expected more than 0, got 0; try 5"),
    ("export {gpt2} --to hf --out empty", "empty: expected nothing there, got a file or folder; give another --out"),
    # plan
    ("plan gpt2 --length 2000", "--length: expected at most 1024, the positions of the decoder, got 2000"),
    ("plan gpt2 --mfu 2", "--mfu: expected a share above 0 and up to 1, got 2.0; try 0.4"),
    ("plan gpt2 --tokens 0", "--tokens: expected 1 or more, got 0"),
    ("plan gpt2 --batch 9", "--batch: expected at least a sequence of 1024 tokens, got 9; try 1024"),
    ("plan nothing.toml", "nothing.toml: expected a recipe or data, got no such file"),
    ("profile nano --training.clip 1", "--training.clip: expected a recipe to change, got the model nano"),
    ("profile nano --steps 0", "--steps: expected 1 or more, got 0"),
    ("profile nano --length 64 --batch 8", "--batch: expected at least a sequence of 64 tokens, got 8"),
    ("profile vit-tiny", "vit-tiny.head.kind: expected language, got classification"),
    # serve, watch
    ("serve {writer} --host 0.0.0.0", "CLEARHEAD_API_KEY"),
    ("serve {writer} --slots 0", "--slots: expected 1 or more, got 0"),
    ("serve {writer} --prefix-cache -1", "--prefix-cache: expected 0 or more megabytes, got -1"),
    ("serve {writer} --port 70000", "port: expected 0 to 65535"),
    ("serve {image-classifier} --port 0", "expected a model that reads text"),
    ("serve {gpt2} --port 0 --draft {image-classifier}", "draft: expected a network that continues texts"),
    ("watch none", "none: expected the folder of a run, got none; try the one that clearhead train named"),
    ("watch a.txt", "a.txt: expected the folder of a run, got a file; "),
    ("watch empty", "empty: expected the folder of a run, got one without a run; "),
]


@pytest.mark.parametrize(("line", "says"), LINES, ids=[line[:60] for line, _ in LINES])
def test_a_mistake_is_one_line(
    shell: Shell, folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, says: str
) -> None:
    monkeypatch.delenv("CLEARHEAD_API_KEY", raising=False)
    for name, content in (
        ("a.csv", "body,kind\none,1\n"),
        ("b.csv", "n,m\none,1\n"),
        ("c.jsonl", '{"text": "one"}\n{"text": 2}\n'),
        ("a.txt", "one two\n" * 40),
        ("long.txt", "one two\n" * 4000),
    ):
        Path(name).write_text(content, encoding="utf-8")
    write_table(Path("table.csv"), rows())
    Path("empty").mkdir()
    if "{recipe}" in line:
        own = Folders(folders.parent)
        own.update(folders)
        own["recipe"] = write_recipe(tmp_path, steps=1)
        folders = own
    before = {*tmp_path.rglob("*")}
    assert says.format_map(folders) in shell.refused(*shlex.split(line.format_map(folders)))
    assert {*tmp_path.rglob("*")} - {tmp_path / "runs"} == before
