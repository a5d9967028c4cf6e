"""Asks exported models with the libraries that they are exported for: transformers, ONNX Runtime, CTranslate2, PEFT.

Each library gets the tokenizer of the folder, told to cut, and does by its own means what `clearhead predict` does.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

Net = Callable[..., np.ndarray]
"""Tensors by their names -> logits or states."""
Ask = Callable[[Sequence[Any]], list[Any]]
Problem = Literal["single_label_classification", "multi_label_classification", "regression"]
HEADS = {
    "classify": "SequenceClassification",
    "tag": "TokenClassification",
    "answer": "QuestionAnswering",
    "fill": "MaskedLM",
    "translate": "Seq2SeqLM",
    "complete": "CausalLM",
    "pictures": "ImageClassification",
}
LONGEST_ANSWER = 30
N_BEST = 5
TIE = 1e-5
"""Scores of equal windows of a repeated text differ by less; the first one counts."""
NEW = 12


def network_of(folder: Path, form: str) -> Any:
    """The reference library's network."""
    import transformers

    cls = getattr(transformers, f"AutoModelFor{HEADS[form]}") if form in HEADS else transformers.AutoModel
    return cls.from_pretrained(folder).eval()


def by_transformers(network: Any) -> Net:
    import torch

    def net(**given: Any) -> np.ndarray:
        with torch.inference_mode():
            said = network(**{name: torch.as_tensor(np.asarray(value)) for name, value in given.items()})
        if "start_logits" in said:
            return torch.stack([said.start_logits, said.end_logits], -1).numpy()
        return (said.logits if "logits" in said else said.last_hidden_state).numpy()

    return net


def by_onnx(folder: Path) -> Net:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    wanted = [one.name for one in session.get_inputs()]

    def net(**given: Any) -> np.ndarray:
        types = np.zeros_like(given["input_ids"]) if "input_ids" in given else None
        found: Any = session.run(None, {name: np.asarray(given.get(name, types)) for name in wanted})
        return found[0]

    return net


def tokenizer_of(folder: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(folder)


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def names_of(folder: Path) -> dict[int, str]:
    """The labels that config.json names."""
    config = config_of(folder)
    if "clearhead" in config:
        return dict(enumerate(config["model"]["head"]["labels"]))
    return {int(number): name for number, name in config["id2label"].items()}


def softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def scored(logits: np.ndarray, problem: Problem | None, names: Mapping[int, str]) -> dict[str, Any]:
    """The values of logits, by the kind of labels."""
    if problem == "regression":
        return {"values": [float(value) for value in logits]}
    shares = 1 / (1 + np.exp(-logits)) if problem == "multi_label_classification" else softmax(logits)
    return {"probabilities": {names[i]: float(share) for i, share in enumerate(shares)}}


# --- what the network says of each input ----------------------------------------------------------------------------


def classifies(net: Net, tokenizer: Any, problem: Problem | None, names: Mapping[int, str]) -> Ask:
    def ask(rows: Sequence[Any]) -> list[Any]:
        texts = [([row],) if isinstance(row, str) else ([row[0]], [row[1]]) for row in rows]
        given = (tokenizer(*one, truncation=True, return_tensors="np") for one in texts)
        return [scored(net(**one)[0], problem, names) for one in given]

    return ask


def embeds(net: Net, tokenizer: Any) -> Ask:
    def vector(row: str) -> np.ndarray:
        mean = net(**tokenizer([row], truncation=True, return_tensors="np"))[0].mean(0)
        return mean / np.linalg.norm(mean)

    return lambda rows: [{"vector": vector(row).tolist()} for row in rows]


def sees(net: Net, folder: Path) -> Ask:
    from transformers import AutoImageProcessor
    from transformers.image_utils import load_image

    processor, names = AutoImageProcessor.from_pretrained(folder), names_of(folder)
    pixels = lambda row: np.asarray(processor(load_image(row), return_tensors="pt")["pixel_values"])  # noqa: E731
    return lambda rows: [scored(net(pixel_values=pixels(row))[0], None, names) for row in rows]


def tags(net: Net, folder: Path, words_of: Callable[[str], Sequence[str]]) -> Ask:
    """The words, which the library does not find itself, are packed whole into windows of the tokenizer's length."""
    tokenizer, names = tokenizer_of(folder), names_of(folder)
    whole, bare = (tokenizer("cat", add_special_tokens=marked)["input_ids"] for marked in (True, False))
    before = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
    first, last = whole[:before], whole[before + len(bare) :]
    room = tokenizer.model_max_length - len(first) - len(last)

    def windows(words: Sequence[str]) -> list[list[list[int]]]:
        found: list[list[list[int]]] = [[]]
        for word in words:
            ids = tokenizer([word], is_split_into_words=True, add_special_tokens=False)["input_ids"]
            ids = (ids or [tokenizer.unk_token_id])[:room]
            if sum(map(len, found[-1])) + len(ids) > room:
                found.append([])
            found[-1].append(ids)
        return found if found[0] else []

    def ask(rows: Sequence[str]) -> list[Any]:
        answers = []
        for row in rows:
            words, chosen, likely = [*words_of(row)], list[str](), list[float]()
            for window in windows(words):
                given = np.array([[*first, *chain.from_iterable(window), *last]])
                shares = softmax(net(input_ids=given, attention_mask=np.ones_like(given))[0].astype(np.float64))
                for at in len(first) + np.cumsum([0, *map(len, window[:-1])]):
                    chosen.append(names[int(shares[at].argmax())])
                    likely.append(float(shares[at].max()))
            answers.append({"words": words, "tags": chosen, "probabilities": likely})
        return answers

    return ask


def answers(net: Net, folder: Path, overlap: int) -> Ask:
    """The best span of any window, or none where the first cell has more in every window."""
    tokenizer = tokenizer_of(folder)
    limit = tokenizer.model_max_length

    def ask(rows: Sequence[Any]) -> list[Any]:
        return [one(*row) for row in rows]

    def one(question: str, context: str) -> dict[str, Any]:
        room = limit - tokenizer.num_special_tokens_to_add(pair=True)
        places = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(places) > room // 2:  # The library refuses a question that leaves no room; a user cuts it.
            question, places = question[: places[room // 2 - 1][1]], places[: room // 2]
        room -= len(places)
        given = tokenizer(
            question, context, truncation="only_second", max_length=limit, stride=min(overlap, room // 2),
            return_overflowing_tokens=True, return_offsets_mapping=True,
        )  # fmt: skip
        best, none = (-np.inf, 0, 0, 0.0), (np.inf, 0, 0, 0.0)  # score, start, end, probability
        for i, ids in enumerate(given["input_ids"]):
            logits = net(input_ids=np.array([ids]), attention_mask=np.ones((1, len(ids)), np.int64))[0]
            shares = np.exp(logits - logits.max(0)).astype(np.float64)
            shares /= shares.sum(0)
            none = min(none, (float(logits[0].sum()), 0, 0, float(shares[0].prod())))
            cells = [at for at, of in enumerate(given.sequence_ids(i)) if of == 1]
            sums = logits[cells, :1] + logits[None, cells, 1][0]
            sums[np.tril_indices(len(cells), -1)] = sums[np.triu_indices(len(cells), LONGEST_ANSWER)] = -np.inf
            if not cells or sums.max() <= best[0] + TIE:
                continue
            a, b = (cells[int(at)] for at in np.unravel_index(int(sums.argmax()), sums.shape))
            places = given["offset_mapping"][i]
            best = (float(sums.max()), places[a][0], places[b][1], float(shares[a, 0] * shares[b, 1]))
        _, start, end, share = best if best[0] >= none[0] else none
        said = context[start:end]
        place = {"start": start, "end": end} if said else {"start": None, "end": None}
        return {"answer": said, **place, "probability": share}

    return ask


def fills(net: Net, folder: Path) -> Ask:
    """The best tokens at each mask, in windows of the length that the tokenizer names."""
    tokenizer = tokenizer_of(folder)

    def ask(rows: Sequence[str]) -> list[Any]:
        found = []
        for row in rows:
            masks = []
            for ids in tokenizer(row, truncation=True, return_overflowing_tokens=True)["input_ids"]:
                if tokenizer.mask_token_id not in ids:
                    continue
                shares = softmax(net(input_ids=np.array([ids]), attention_mask=np.ones((1, len(ids)), np.int64))[0])
                for at in (i for i, token in enumerate(ids) if token == tokenizer.mask_token_id):
                    best = np.argsort(-shares[at], kind="stable")[:N_BEST]
                    masks.append([float(shares[at][token]) for token in best])
            found.append({"masks": masks})
        return found

    return ask


# --- texts that are written -----------------------------------------------------------------------------------------


def continues(write: Callable[[list[int]], list[int]], folder: Path, prefix: str = "") -> Ask:
    """The text that `write` makes of a source's or prompt's ids."""
    tokenizer = tokenizer_of(folder)

    def ask(rows: Sequence[str]) -> list[Any]:
        ids = (tokenizer(prefix + row, truncation=bool(tokenizer.model_max_length < 1e9))["input_ids"] for row in rows)
        return [{"text": tokenizer.decode(write(one), skip_special_tokens=True)} for one in ids]

    return ask


def greedily(net: Net, folder: Path, *, pairs: bool) -> Callable[[list[int]], list[int]]:
    """The likeliest tokens one by one, of a graph without a cache."""
    settings = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))

    def write(ids: list[int]) -> list[int]:
        source = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
        found = [settings["decoder_start_token_id"]] if pairs else [*ids]
        n = len(found)
        while len(found) < n + NEW and (len(found) == n or found[-1] != settings["eos_token_id"]):
            written = np.array([found])
            both = {**source, "decoder_input_ids": written}
            given = both if pairs else {"input_ids": written, "attention_mask": np.ones_like(written)}
            found.append(int(net(**given)[0, -1].argmax()))
        return found[n:]

    return write


def generated(network: Any, *, pairs: bool) -> Callable[[list[int]], list[int]]:
    """What the reference library's own search writes."""
    import torch

    def write(ids: list[int]) -> list[int]:
        given = torch.tensor([ids])
        with torch.inference_mode():
            found = network.generate(given, attention_mask=torch.ones_like(given), num_beams=1, do_sample=False)[0]
        return found[1 if pairs else len(ids) :].tolist()

    return write


def by_ctranslate2(folder: Path, *, pairs: bool) -> Callable[[list[int]], list[int]]:
    import ctranslate2

    tokenizer = tokenizer_of(folder)
    opened: Any = (ctranslate2.Translator if pairs else ctranslate2.Generator)(str(folder))

    def write(ids: list[int]) -> list[int]:
        tokens = tokenizer.convert_ids_to_tokens(ids)
        if pairs:
            found = opened.translate_batch([tokens], beam_size=1, max_decoding_length=NEW, max_input_length=0)
            return tokenizer.convert_tokens_to_ids(found[0].hypotheses[0])
        found = opened.generate_batch([tokens], beam_size=1, max_length=NEW, include_prompt_in_result=False)
        return found[0].sequences_ids[0]

    return write


# --- all of them ----------------------------------------------------------------------------------------------------


def elsewhere(export: str, folder: Path, form: str, *, data: Mapping[str, Any], words_of: Any) -> Ask:
    """One exported model; `form` is the verb of its task, or what tells it from others of its verb."""
    pairs = form == "translate"
    if export == "ctranslate2":
        return continues(by_ctranslate2(folder, pairs=pairs), folder, data.get("prefix", ""))
    network = None if export == "onnx" else network_of(folder, form)
    net = by_onnx(folder) if export == "onnx" else by_transformers(network)
    match form:
        case "translate" | "complete":
            write = generated(network, pairs=pairs) if network is not None else greedily(net, folder, pairs=pairs)
            return continues(write, folder, data.get("prefix", ""))
        case "tag":
            return tags(net, folder, words_of)
        case "answer":
            return answers(net, folder, data["overlap"])
        case "fill":
            return fills(net, folder)
        case "embed":
            return embeds(net, tokenizer_of(folder))
        case "pictures":
            return sees(net, folder)
        case _:
            return classifies(net, tokenizer_of(folder), data.get("problem_type"), names_of(folder))


def by_peft(folder: Path) -> Ask | str:
    """PEFT on a saved adapter, or its warning of a field that it does not know."""
    import warnings

    import peft
    import transformers

    names = json.loads((folder / "clearhead_head.json").read_text(encoding="utf-8"))["labels"]
    base = transformers.AutoModelForSequenceClassification.from_pretrained("base", num_labels=len(names))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        network: Any = peft.PeftModel.from_pretrained(base, folder).eval()
    unknown = [str(one.message) for one in told if "clearhead_base_bits" in str(one.message)]
    return (
        unknown[0]
        if unknown
        else classifies(by_transformers(network), tokenizer_of(folder), None, dict(enumerate(names)))
    )
