"""The grid of configurations: options of foreign folders by family, and what becomes of each.

A folder is made by transformers, changed, and read both there and here. The outcome is `equal` if
all numbers and outputs are the same, `refused` if the import raises a UserError, `told` if a note
of the import names the option. Anything else is a silent difference.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from torch import Tensor

from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.decode import GenerationRequest
from regard.runs.pretrained import from_pretrained
from regard.runs.run import Run
from tests.hub.decoder_folders import LINES, gpt2_folder, gpt_folder, marian_folder, varied
from tests.hub.folders import bert_folder, roberta_folder
from tests.hub.test_configs import distilbert_folder

CONFIG, GENERATION = "config.json", "generation_config.json"
WORDS, PIPELINE = "tokenizer_config.json", "tokenizer.json"
Changes = Mapping[str, object]
SILENT = "SILENT"


@dataclass(frozen=True, kw_only=True)
class Option:
    """A change of a folder."""

    build: Changes = field(default_factory=dict)
    """Settings of the model when transformers makes it."""
    files: Mapping[str, Changes] = field(default_factory=dict)
    """Values of JSON files; None removes one."""
    act: Callable[[Path], None] | None = None
    named: tuple[str, ...] = ()
    """What a note or a refusal names, if not the changed settings."""

    @property
    def names(self) -> tuple[str, ...]:
        """What a note or a refusal must name, one of them."""
        return self.named or (*self.build, *(name for each in self.files.values() for name in each))


def config(**changes: object) -> Option:
    return Option(files={CONFIG: changes})


def built(**changes: object) -> Option:
    return Option(build=changes)


def generates(**changes: object) -> Option:
    return Option(files={GENERATION: changes})


def words(**changes: object) -> Option:
    return Option(files={WORDS: changes})


def pipeline(**changes: object) -> Option:
    return Option(files={PIPELINE: changes})


def tensor(name: str, like: str) -> Option:
    """A tensor that the file does not hold, of the shape of another."""

    def act(folder: Path) -> None:
        held = load_file(folder / "model.safetensors")
        new = torch.randn(held[like].shape, generator=torch.Generator().manual_seed(0))
        save_file({**held, name: new}, folder / "model.safetensors", metadata={"format": "pt"})

    return Option(act=act, named=(name,))


def half(folder: Path) -> None:
    held = {name: each.half() for name, each in load_file(folder / "model.safetensors").items()}
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})


HALF = Option(act=half, files={CONFIG: {"dtype": "float16"}}, named=("float16",))


def template(single: str, pair: str, **marks: int) -> object:
    pipe = Tokenizer(models.BPE())
    pipe.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=list(marks.items())
    )
    return json.loads(pipe.to_str())["post_processor"]


def unigram_folder(folder: Path, family: str) -> Path:
    """An XLM-RoBERTa or a CamemBERT that classifies, with a unigram vocabulary."""
    pieces = Tokenizer(models.Unigram())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=marks, unk_token="<unk>", show_progress=False
    )
    pieces.train_from_iterator(LINES, trainer)
    vocabulary = [tuple(each) for each in json.loads(pieces.to_str())["model"]["vocab"]]
    name = {"xlm-roberta": "XLMRoberta", "camembert": "Camembert"}[family]
    made = getattr(transformers, f"{name}Tokenizer")(vocab=vocabulary)
    made.save_pretrained(folder)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2}
    sizes |= {"intermediate_size": 12, "max_position_embeddings": 99, "type_vocab_size": 1}
    held = transformers.AutoConfig.for_model(family, **sizes, vocab_size=len(made))
    model = getattr(transformers, f"{name}ForSequenceClassification")(held)
    _draw(model)
    model.save_pretrained(folder)
    return folder


def _draw(model: torch.nn.Module) -> None:
    torch.manual_seed(3)
    for each in model.parameters():
        torch.nn.init.normal_(each, std=0.3)


CLASSES = "ForSequenceClassification"
BASES: dict[str, Callable[..., Path]] = {
    "BERT": lambda folder, **build: bert_folder(folder, **build),
    "BERT classifier": lambda folder, **build: bert_folder(folder, f"Bert{CLASSES}", **build),
    "RoBERTa": lambda folder: roberta_folder(folder),
    "RoBERTa classifier": lambda folder: roberta_folder(folder, f"Roberta{CLASSES}"),
    "XLM-RoBERTa classifier": lambda folder: unigram_folder(folder, "xlm-roberta"),
    "CamemBERT classifier": lambda folder: unigram_folder(folder, "camembert"),
    "DistilBERT": lambda folder, **build: distilbert_folder(
        folder, "DistilBertForMaskedLM", **build
    ),
    "GPT-2": lambda folder, **build: varied(gpt2_folder(folder, **build)),
    "GPT-2 classifier": lambda folder, **build: gpt2_folder(folder, f"GPT2{CLASSES}", **build),
    "OpenAI GPT": lambda folder, **build: gpt_folder(folder, **build),
    "Marian": lambda folder, **build: varied(marian_folder(folder, **build)),
}
"""A folder of each column of the table, by its model."""

TEXTS = ["the cat sat on the mat .", "a dog\n saw  the cat", " good food,\tbad service"]


def write(folder: Path, column: str, option: Option, made: dict[str, Path]) -> Path:
    """The folder of a column with an option; folders without settings are made once."""
    if option.build:
        BASES[column](folder, **option.build)
    else:
        shutil.copytree(made[column], folder)
    for file, changes in option.files.items():
        path = folder / file
        held = json.loads(path.read_text()) if path.exists() else {}
        held = {**held, **changes}
        kept = {n: v for n, v in held.items() if v is not None or file == PIPELINE}
        path.write_text(json.dumps(kept))
    if option.act is not None:
        option.act(folder)
    return folder


def outcome(folder: Path, option: Option, usual: tuple[str, ...]) -> str:
    """What becomes of a folder; `usual` are the notes of the column without any option."""

    def is_named(text: str) -> bool:
        return any(name.replace("_", "-") in text.replace("_", "-") for name in option.names)

    try:
        run = from_pretrained(folder)
    except UserError as problem:
        return "refused" if is_named(str(problem)) else f"{SILENT} about the reason: {problem}"
    if any(is_named(note) for note in set(run.began) - set(usual)):
        return "told"
    with torch.no_grad():
        same = _COMPARED[run.recipe.kind](run, folder)
    return "equal" if same else SILENT


def _close(here: Tensor, there: Tensor) -> bool:
    return here.shape == there.shape and torch.allclose(here, there, atol=1e-5, rtol=1e-4)


def _masked_lm(run: Run, folder: Path) -> bool:
    """Ids and logits of texts with a hidden word."""
    tok = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    same = True
    for text in (*TEXTS, f"the {tok.mask_token} sat", f"{tok.mask_token}cat  {tok.mask_token} ."):
        given = tok(text, return_tensors="pt")
        if run.model.encoder.config.segments == 0:
            given.pop("token_type_ids", None)
        batch = run.task.encode([Text(text)])
        same &= batch["tokens"].tolist() == given["input_ids"].tolist()
        if not same:
            return False
        there = model(**given).logits
        same &= _close(run.model(batch).words.logits().reshape(there.shape), there)
    return same


def _classifier(run: Run, folder: Path) -> bool:
    """What is predicted for texts, and for pairs of them."""
    tok = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32
    )
    pairs = from_pretrained(folder, changes=['data.text=["one", "two"]'])
    value = {None: 1, "single_label_classification": 1, "multi_label_classification": 2}
    kind = value.get(model.config.problem_type, 0) if model.config.num_labels > 1 else 0
    same = True
    for text in TEXTS:
        plain = text.replace("\t", " ")
        for each, given in (
            (run.predict([text])[0], (text,)),
            (pairs.predict([f"{plain}\tthe mat  !"])[0], (plain, "the mat  !")),
        ):
            logits = model(**tok(*given, return_tensors="pt")).logits[0]
            there = (logits, logits.softmax(0), logits.sigmoid())[kind]
            if kind:
                here = list(each.fields["probabilities"].values())
            else:
                here = list(each.fields.get("values", {"": each.fields["value"]}).values())
            same &= _close(torch.tensor(here), there)
    return same


def _gpt(run: Run, folder: Path) -> bool:
    """Ids, the next token, and what greedy decoding writes."""
    tok = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    same = True
    for text in TEXTS:
        given = tok(text, return_tensors="pt")
        given.pop("token_type_ids", None)
        ids = run.task.reads.encode_prompt(text)
        if [ids] != given["input_ids"].tolist():
            return False
        (answer,) = run.predict([text])
        there = model(**given).logits[0, -1].softmax(0).max().item()
        same &= abs(answer.fields["next"][0]["p"] - there) < 1e-5
        written = model.generate(**given, max_new_tokens=12)[0, len(ids) :].tolist()
        here = [each.token for each in run.generate(text, GenerationRequest(max_tokens=12))]
        same &= here == written
    return same


def _marian(run: Run, folder: Path) -> bool:
    """What is written for texts."""
    tok = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32)
    marks = (model.config.pad_token_id, 0)
    texts = LINES
    there = [model.generate(**tok([text], return_tensors="pt"))[0, 1:] for text in texts]
    found = run.task.translate(run.model, [Text(text) for text in texts])
    here = [each.outputs[0].hypothesis.tokens for each in found]
    return [[n for n in each if n not in marks] for each in here] == [
        [n for n in each.tolist() if n not in marks] for each in there
    ]


_COMPARED: dict[str, Callable[[Run, Path], bool]] = {
    "bert": _masked_lm,
    "bert_classifier": _classifier,
    "gpt": _gpt,
    "gpt_classifier": _classifier,
    "transformer": _marian,
}
