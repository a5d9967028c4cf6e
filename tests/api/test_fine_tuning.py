"""Somebody else's checkpoint, trained further by the ordinary command, and opened by the other library again."""

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead import cli
from clearhead.api import load
from clearhead.errors import UserError
from clearhead.recipe import Recipe, changed, read
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import ByteBPE
from clearhead.runs import resume, start
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.reading import Documents, RunningText
from clearhead.tasks.registry import validate
from clearhead.tasks.translation import Translation
from clearhead.text.tokenizers import Tokenizer
from clearhead.training.events import Evaluated
from clearhead.training.run import Run
from tests.later import later
from tests.training.tiny import NUMBERS, drive, losses, number_pairs, write_pairs

transformers = later("transformers")

PAIRS = number_pairs(24)
WIDTH = 32
CONSTANT = {"kind": "constant", "warmup": 10}
SIZES = {"hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
BOTH = {
    **{f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 1), ("ffn_dim", 64))},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    "d_model": WIDTH,
    "dropout": 0.0,
    "max_position_embeddings": 64,
}


@pytest.fixture(autouse=True)
def _quiet_and_fast(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr("os.fsync", lambda _: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- small checkpoints of the other library ----------------------------------------------------------------------


def saved(model: Any, folder: Path, *, dtype: torch.dtype = torch.float32) -> Path:
    """With every weight drawn, biases and norms too."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.to(dtype).save_pretrained(folder)
    return folder


def pieces(folder: Path, name: str, texts: list[str], **ids: int | str) -> list[str]:
    """A SentencePiece model of these texts; its pieces."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder.mkdir(parents=True, exist_ok=True)
    given = {"vocab_size": 80, "hard_vocab_limit": False, "minloglevel": 2} | ids
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_prefix=str(folder / "made"), **given)
    (folder / "made.vocab").unlink()
    (folder / "made.model").rename(folder / name)
    model = sentencepiece.SentencePieceProcessor(str(folder / name))
    return [model.id_to_piece(i) for i in range(len(model))]


def write_settings(folder: Path, kind: str, settings: dict[str, Any]) -> None:
    content = json.dumps({"tokenizer_class": kind, **settings})
    (folder / "tokenizer_config.json").write_text(content, encoding="utf-8")


def marian(folder: Path) -> Path:
    """Two languages, each with its own pieces in a list of its own; pad is the start token."""
    listed = [
        pieces(folder, f"{side}.spm", texts)[3:] for side, texts in (("source", PAIRS.source), ("target", PAIRS.target))
    ]
    ids = [{piece: i for i, piece in enumerate(dict.fromkeys(["</s>", "<unk>", "<pad>", *own]))} for own in listed]
    for name, own in zip(("vocab.json", "target_vocab.json"), ids, strict=True):
        (folder / name).write_text(json.dumps(own), encoding="utf-8")
    settings = {"separate_vocabs": True, "source_lang": "en", "target_lang": "de"}
    write_settings(folder, "MarianTokenizer", settings)
    pad = ids[1]["<pad>"]
    config = transformers.MarianConfig(
        vocab_size=len(ids[0]),
        decoder_vocab_size=len(ids[1]),
        share_encoder_decoder_embeddings=False,
        tie_word_embeddings=False,
        **dict.fromkeys(("pad_token_id", "decoder_start_token_id"), pad),
        **dict.fromkeys(("eos_token_id", "forced_eos_token_id"), 0),
        **BOTH,
    )
    return saved(transformers.MarianMTModel(config), folder)


def t5(folder: Path) -> Path:
    ids = pieces(folder, "spiece.model", [*PAIRS.source, *PAIRS.target], pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    write_settings(folder, "T5Tokenizer", {})
    config = transformers.T5Config(
        vocab_size=len(ids) + 100, d_model=WIDTH, d_kv=16, d_ff=64, num_layers=1, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return saved(transformers.T5ForConditionalGeneration(config), folder)


def byte_pairs(folder: Path, kind: str, special: dict[str, str]) -> int:
    """A tokenizer of this class, its special tokens first; how many tokens."""
    trained = json.loads(Tokenizer.train([*PAIRS.source, *PAIRS.target], ByteBPE(vocab_size=300)).library.to_str())
    names = list(dict.fromkeys(special.values()))
    ids = {token: i for i, token in enumerate([*names, *list(trained["model"]["vocab"])[4:]])}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in trained["model"]["merges"]]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    write_settings(folder, kind, special)
    return len(ids)


def bart(folder: Path) -> Path:
    names = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
    special = {f"{name}_token": token for name, token in names.items()}
    size = byte_pairs(folder, "BartTokenizer", special)
    config = transformers.BartConfig(
        vocab_size=size,
        pad_token_id=1,
        **dict.fromkeys(("bos_token_id", "forced_bos_token_id"), 0),
        **dict.fromkeys(("eos_token_id", "forced_eos_token_id", "decoder_start_token_id"), 2),
        **BOTH,
    )
    model = transformers.BartForConditionalGeneration(config)
    model.generation_config.forced_bos_token_id = 0
    return saved(model, folder)


def gpt2(folder: Path, *, dtype: torch.dtype = torch.float32) -> Path:
    """<|endoftext|> is its first and its last token, and no padding."""
    end = "<|endoftext|>"
    size = byte_pairs(folder, "GPT2Tokenizer", {"bos_token": end, "eos_token": end, "unk_token": end})
    config = transformers.GPT2Config(
        vocab_size=size, n_embd=WIDTH, n_layer=1, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0
    )
    return saved(transformers.GPT2LMHeadModel(config), folder, dtype=dtype)


def qwen(folder: Path) -> Path:
    """No first token at all."""
    size = byte_pairs(folder, "Qwen2Tokenizer", {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})
    config = transformers.Qwen2Config(
        vocab_size=size, num_key_value_heads=1, bos_token_id=None, eos_token_id=0, pad_token_id=1, **SIZES
    )
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink(missing_ok=True)
    return saved(transformers.Qwen2ForCausalLM(config), folder)


def llama(folder: Path) -> Path:
    """Its tokenizer puts <s> before a text and nothing after it."""
    ids = pieces(folder, "tokenizer.model", PAIRS.source, model_type="bpe", byte_fallback=True, vocab_size=320)
    config = transformers.LlamaConfig(
        vocab_size=len(ids), num_key_value_heads=2, bos_token_id=1, eos_token_id=2, **SIZES
    )
    return saved(transformers.LlamaForCausalLM(config), folder)


SEQ2SEQ: dict[str, Callable[[Path], Path]] = {"marian": marian, "t5": t5, "bart": bart}
CAUSAL: dict[str, Callable[[Path], Path]] = {"gpt2": gpt2, "qwen": qwen, "llama": llama}


# --- recipes -----------------------------------------------------------------------------------------------------


def recipe_of(task: str, beginning: Path | str, data: dict[str, Any], **training: Any) -> Recipe:
    """As the command makes it of the recipe that comes along."""
    over = {
        "data": data,
        "model": {"start": str(beginning)},
        "training": {
            "precision": "fp32",
            "matmul_precision": "highest",
            "device": "cpu",
            "label_smoothing": 0.0,
            "ema": None,
            **training,
        },
        "generation": {"max_new_tokens": 16, "temperature": 0.0},
    }
    return validate(changed(read(task), over), where=task)


def pairs_in(folder: Path) -> dict[str, Any]:
    """24 pairs, which are the validation data too."""
    files = write_pairs(folder, 24)
    return {"train": files, "valid": files}


def book_in(folder: Path, *, documents: str = "file") -> dict[str, Any]:
    (folder / "book.txt").write_text("\n".join(number_pairs(60).source), encoding="utf-8")
    paths = [str(folder / "book.txt")]
    return {"train": {"kind": "text", "paths": paths, "documents": documents}, "length": 16}


def begun(task: str, beginning: Path, data: dict[str, Any], folder: Path, **training: Any) -> Run:
    settings = {"steps": 8, "max_tokens": 400, "evaluate_every": 4, "save_every": 2, **training}
    return start(recipe_of(task, beginning, data, **settings), folder)[0]


# --- translators -------------------------------------------------------------------------------------------------


def translated_there(folder: Path, texts: list[str]) -> list[str]:
    """The greedy output of the other library, batched with padding."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = tokenizer(texts, return_tensors="pt", padding=True)
    out = model.generate(
        input_ids=given["input_ids"],
        attention_mask=given["attention_mask"],
        max_new_tokens=16,
        num_beams=1,
        do_sample=False,
    )
    return tokenizer.batch_decode(out, skip_special_tokens=True)


@pytest.mark.parametrize("name", ["marian", *(pytest.param(name, marks=pytest.mark.slow) for name in ("t5", "bart"))])
def test_a_translator_learns_pairs_by_heart_and_opens_there(name: str, tmp_path):
    beginning = SEQ2SEQ[name](tmp_path / "theirs")
    optimizer = {"kind": "adamw", "lr": 1e-2}
    steps = {"steps": 150, "max_tokens": 2000, "evaluate_every": 150, "optimizer": optimizer}
    run = begun("translation", beginning, pairs_in(tmp_path), tmp_path / "run", save_every=1000, **steps)
    events = [event.evaluation for event in drive(run) if isinstance(event, Evaluated)]
    assert events[-1].value("exact_match") >= 0.95, [event.value("exact_match") for event in events]
    model = load(tmp_path / "run")
    greedy = model.generation
    ours = model.translate(PAIRS.source, greedy)
    assert sum(a == b for a, b in zip(ours, PAIRS.target, strict=True)) >= 22
    model.save(tmp_path / "out")
    assert translated_there(tmp_path / "out", PAIRS.source) == ours
    assert load(tmp_path / "out").translate(PAIRS.source) == ours


@pytest.mark.parametrize("name", SEQ2SEQ)
def test_what_is_trained_on_is_what_the_other_library_would_train_on(name: str, tmp_path):
    """Source ids, labels and decoder inputs, and the loss of them."""
    beginning = SEQ2SEQ[name](tmp_path / "theirs")
    run = begun("translation", beginning, pairs_in(tmp_path), tmp_path / "run")
    task = run.task
    assert isinstance(task, Translation)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(beginning).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(beginning)
    for i in range(6):
        batch = task.collate([i])
        text = PAIRS
        ids, labels = tokenizer(text.source[i])["input_ids"], tokenizer(text_target=text.target[i])["input_ids"]
        assert batch.inputs[0].ids.tolist() == [ids]
        assert batch.labels.tolist() == labels
        assert load(beginning).reader.ids([text.source[i]]) == [ids], "as it is translated later"
        assert task.pairs.lengths(task.train.source, task.train.target)[i].tolist() == [len(ids), len(labels)]
        out = theirs(input_ids=torch.tensor([ids]), labels=torch.tensor([labels]))
        total, count = task.loss(run.network.eval(), batch)
        assert total.item() / count == pytest.approx(out.loss.item(), rel=1e-5)


# --- language models ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "documents"),
    [
        *(("gpt2", "line"), ("llama", "file")),
        *(
            pytest.param(name, kind, marks=pytest.mark.slow)
            for name, kind in (("gpt2", "file"), ("qwen", "file"), ("qwen", "line"), ("llama", "line"))
        ),
    ],
)
def test_a_language_model_goes_on_learning_and_opens_there(name: str, documents: str, tmp_path):
    beginning = CAUSAL[name](tmp_path / "theirs")
    optimizer = {"kind": "adamw", "lr": 1e-2}
    data = book_in(tmp_path, documents=documents)
    steps = {"steps": 60, "evaluate_every": 60, "optimizer": optimizer, "schedule": CONSTANT}
    run = begun("lm", beginning, data, tmp_path / "run", **steps)
    task = run.task
    assert isinstance(task, LanguageModel)
    before = task.scores(run.network, task.valid)[0].value
    after = [event.evaluation.value("loss") for event in drive(run) if isinstance(event, Evaluated)][-1]
    assert after < 0.8 * before
    model = load(tmp_path / "run")
    model.save(tmp_path / "out")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    prompt = "one two three"
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    out = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False, pad_token_id=0)
    written = tokenizer.decode(out[0], skip_special_tokens=True)
    assert prompt + model.generate(prompt) == written
    assert documents == "line" or any(number in model.generate(prompt) for number in NUMBERS)


def test_documents_and_windows_have_the_marks_of_the_tokenizer(tmp_path):
    """Where there is no first token a document begins with its text; a window begins as a prompt does."""
    marks = {"gpt2": ([0], [0], []), "qwen": ([], [0], []), "llama": ([1], [2], [1])}
    for name, (first, last, window) in marks.items():
        beginning = CAUSAL[name](tmp_path / name)
        tokenizer = Tokenizer.load(beginning)
        for documents in ("line", "file"):
            task = begun("lm", beginning, book_in(tmp_path, documents=documents), tmp_path / f"{name}-{documents}").task
            assert isinstance(task, LanguageModel)
            reading = task.train
            if isinstance(reading, Documents):
                assert reading.documents[0] == [*first, *tokenizer.encode(number_pairs(60).source[0]), *last]
                continue
            assert isinstance(reading, RunningText)
            inputs = reading.batch([3]).inputs[0].ids[0].tolist()
            text = reading.ids[3:19].tolist()
            assert inputs == [*window, *text[len(window) :]]
            assert reading.batch([3]).labels.tolist() == reading.ids[4:20].tolist()


def test_half_precision_is_trained_in_float32_and_the_checkpoint_stays(tmp_path):
    beginning = gpt2(tmp_path / "theirs", dtype=torch.bfloat16)
    before = (beginning / "model.safetensors").read_bytes()
    run = begun("lm", beginning, book_in(tmp_path), tmp_path / "run")
    assert {parameter.dtype for parameter in run.network.parameters()} == {torch.float32}
    first = {name: value.clone() for name, value in run.network.state_dict().items()}
    theirs = load(beginning, dtype="float32").network.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in first.items())
    drive(run)
    assert any(not torch.equal(value, first[name]) for name, value in run.network.state_dict().items())
    assert (beginning / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("task", ["lm", "translation"])
def test_going_on_needs_the_first_checkpoint_no_more(task: str, tmp_path):
    make, data = (gpt2, book_in) if task == "lm" else (bart, pairs_in)
    beginning = make(tmp_path / "theirs")
    found = losses(drive(begun(task, beginning, data(tmp_path), tmp_path / "run")))
    shutil.rmtree(beginning)
    for step in (6, 8):
        shutil.rmtree(tmp_path / "run" / f"step-{step:08d}")
    run, _ = resume(tmp_path / "run")
    assert run.progress.step == 4
    again = losses(drive(run))
    assert again == {step: loss for step, loss in found.items() if step > 4}
    before, after = (json.loads((tmp_path / "run" / f"step-{n:08d}" / "config.json").read_text()) for n in (4, 8))
    assert before == after


def test_the_special_tokens_of_the_checkpoint_stay_and_the_recipe_wins_for_the_rest(tmp_path):
    recipe = recipe_of("translation", bart(tmp_path / "theirs"), pairs_in(tmp_path), steps=1)

    def begin(name: str, generation: GenerationConfig) -> Run:
        return start(recipe.model_copy(update={"generation": generation}), tmp_path / name)[0]

    drive(begin("run", GenerationConfig(beams=3, max_new_tokens=9)))
    assert load(tmp_path / "run").generation == GenerationConfig(
        beams=3, max_new_tokens=9, start_id=2, end_ids=(2,), pad_id=1, forced_first_id=0, forced_last_id=2
    )
    task = begin("named", GenerationConfig(start_id=0)).task
    assert isinstance(task, Translation)
    assert task.collate([0]).inputs[1].ids[0, 0] == task.pairs.generation.start_id == 0


# --- what is refused ---------------------------------------------------------------------------------------------


def refused(task: str, beginning: Path | str, folder: Path, **tables: dict[str, Any]) -> str:
    """The one line, before any data are read: there are none."""
    missing = {"translation": {"source": "no.en", "target": "no.de"}, "lm": {"paths": ["no.txt"]}}
    model = {"start": str(beginning), **tables.pop("model", {})}
    over = {"data": {"train": missing[task]}, "training": {"steps": 1}, "model": model, **tables}
    recipe = changed(read(task), over)
    with pytest.raises(UserError) as caught:
        start(validate(recipe, where="r.toml"), folder / "run")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_checkpoint_of_another_kind_is_told_before_data_are_read(tmp_path):
    encoder = saved(transformers.BertModel(transformers.BertConfig(vocab_size=20, **SIZES)), tmp_path / "encoder")
    translator, writer = t5(tmp_path / "t5"), gpt2(tmp_path / "gpt2")
    bare = saved(transformers.GPT2Model(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2)), tmp_path / "bare")
    alone = "expected a decoder alone to model language, got an encoder"
    both = "expected an encoder and a decoder to translate, got one of them; try another model.start"
    for task, folder, told in (
        ("lm", encoder, f"{alone} alone; try another model.start"),
        ("lm", translator, f"{alone} too; try another model.start"),
        ("translation", writer, both),
        ("translation", encoder, both),
        ("lm", bare, "head.kind: expected language"),
        ("lm", tmp_path / "none", "found nothing; check the path"),
    ):
        assert told in refused(task, folder, tmp_path)
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        (writer / name).unlink()
    assert refused("lm", writer, tmp_path).startswith(f"{writer}: expected a tokenizer with the model, got none; try")


def test_an_architecture_or_a_tokenizer_beside_start_is_told(tmp_path):
    beginning, place = (
        gpt2(tmp_path / "theirs"),
        "cannot be set beside start, which keeps its architecture; leave it out",
    )
    for model, told in (
        ({"preset": "nano"}, f"r.toml:model: preset='nano' {place}"),
        ({"stacks": {"dropout": 0.1, "d_model": 8}}, f"r.toml:model: stacks.d_model=8 {place}"),
        ({"decoder": {"n_heads": 8}}, f"r.toml:model: decoder.n_heads=8 {place}"),
        ({"head": {"tied": True}}, f"r.toml:model: head.tied=True {place}"),
        ({"init": {"std": 0.1}}, f"r.toml:model: init.std=0.1 {place}"),
        ({"encoder": {"dropout": 0.1}}, f"model.encoder: {beginning} has no encoder; try model.stacks"),
        ({"stacks": {"dropout": 2}}, "model:decoder.dropout: expected"),
    ):
        assert refused("lm", beginning, tmp_path, model=model).startswith(told)
    told = refused("lm", beginning, tmp_path, tokenizer={"kind": "words"})
    assert told.endswith("tokenizer cannot be set beside model.start, which has its own; leave it out")


def test_a_tokenizer_larger_than_the_embedding_is_told(tmp_path):
    """Only where the data use such a token."""
    beginning = gpt2(tmp_path / "theirs")
    settings = json.loads((beginning / "tokenizer_config.json").read_text())
    size = json.loads((beginning / "config.json").read_text())["vocab_size"]
    listed = {"added_tokens_decoder": {str(size): {"content": "one", "special": False}}}
    (beginning / "tokenizer_config.json").write_text(json.dumps(settings | listed))
    with pytest.raises(UserError, match=rf"^model\.decoder: expected tokens below {size}, .* got {size}; try"):
        begun("lm", beginning, book_in(tmp_path), tmp_path / "run")


# --- the command -------------------------------------------------------------------------------------------------


def test_the_ordinary_command_starts_from_a_folder(tmp_path, monkeypatch, capsys):
    """A relative path is found from elsewhere; the recipe's tokenizer, network and large steps give way."""
    monkeypatch.chdir(tmp_path)
    gpt2(tmp_path / "theirs")
    book_in(tmp_path)
    line = "lm --text book.txt --steps 4 --out run --data.length 16 --model.start theirs --model.stacks.dropout 0.2"
    line += " --training.precision fp32 --training.max_tokens 200"
    cli.main(["train", *line.split()])
    saved_recipe = json.loads((tmp_path / "run" / "step-00000004" / "recipe.json").read_text())
    assert saved_recipe["model"]["start"] == str(tmp_path / "theirs")
    assert saved_recipe["training"]["optimizer"]["kind"] == "adamw"
    assert saved_recipe["training"]["optimizer"]["lr"] == 1e-4
    model = load(tmp_path / "run")
    assert model.config.output.dropout == 0.2
    assert model.config.output.d_model == WIDTH
    assert model.tokenizer.encode("one") == Tokenizer.load(tmp_path / "theirs").encode("one")
    capsys.readouterr()
    cli.main(["evaluate", "run"])
    assert "loss" in capsys.readouterr().out
