"""The grid of configurations: no option of a folder makes a silent difference to transformers.

The table of docs/pretrained.md is made here: `python -m tests.parity.test_grid` writes it anew.
"""

import re
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import transformers

from regard.runs.pretrained import from_pretrained
from tests.parity.grid import (
    BASES,
    HALF,
    SILENT,
    Option,
    built,
    config,
    generates,
    outcome,
    pipeline,
    template,
    tensor,
    words,
    write,
)

transformers.logging.set_verbosity_error()
pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers, about the odd settings
PAGE = Path(__file__).parents[2] / "docs" / "pretrained.md"
BEGIN, END = "<!-- grid: made by tests/parity/test_grid.py -->", "<!-- end of grid -->"

BERTS = ("BERT", "BERT classifier")
ROBERTAS = ("RoBERTa", "RoBERTa classifier")
UNIGRAMS = ("XLM-RoBERTa classifier", "CamemBERT classifier")
ENCODERS = (*BERTS, *ROBERTAS, *UNIGRAMS)
GPTS = ("GPT-2", "GPT-2 classifier", "OpenAI GPT")
CLASSIFIERS = ("BERT classifier", "RoBERTa classifier", *UNIGRAMS, "GPT-2 classifier")
EVERY = tuple(BASES)
BERT_WORDS = "bert.embeddings.word_embeddings.weight"
MARKS = {"[CLS]": 2, "[SEP]": 3}
FRAME = "[CLS] $A [SEP]"


def each(columns: Iterable[str], option: Option) -> dict[str, Option]:
    return dict.fromkeys(columns, option)


def activation(name: str) -> dict[str, Option]:
    return {
        **each(ENCODERS, config(hidden_act=name)),
        "DistilBERT": config(activation=name),
        **each(GPTS[:2], config(activation_function=name)),
        "OpenAI GPT": config(afn=name),
        "Marian": config(activation_function=name),
    }


WRITERS = {"GPT-2": (122, 269), "Marian": (36, 31)}
"""Columns that write, with tokens of their outputs."""


def of_tokens(name: str, value: Callable[[tuple[int, int]], object]) -> dict[str, Option]:
    return {column: generates(**{name: value(tokens)}) for column, tokens in WRITERS.items()}


GRID: dict[str, dict[str, Option]] = {
    "the folder as it is": each(EVERY, Option()),
    **{f"activation {name}": activation(name) for name in ("relu2", "quick_gelu", "gelu_10")},
    "activation silu": activation("silu"),
    "activation prelu": activation("prelu"),
    "layer norm epsilon 0.01": {
        **each(ENCODERS, config(layer_norm_eps=0.01)),
        **each(GPTS, config(layer_norm_epsilon=0.01)),
    },
    "is_decoder": each((*ENCODERS, "Marian"), config(is_decoder=True)),
    "add_cross_attention": each((*ENCODERS, *GPTS[:2]), config(add_cross_attention=True)),
    "pruned_heads": each((*BERTS, "DistilBERT"), config(pruned_heads={"0": [1]})),
    "relative positions": each(BERTS, config(position_embedding_type="relative_key")),
    "scale_attn_by_inverse_layer_idx": each(GPTS[:2], config(scale_attn_by_inverse_layer_idx=True)),
    "scale_attn_weights false": each(GPTS[:2], config(scale_attn_weights=False)),
    "reorder_and_upcast_attn": each(GPTS[:2], config(reorder_and_upcast_attn=True)),
    "scale_embedding": {"Marian": config(scale_embedding=True)},
    "pad_token_id 5": {
        "RoBERTa": config(pad_token_id=5),
        "GPT-2": config(pad_token_id=5),
        "GPT-2 classifier": config(pad_token_id=5),
    },
    "tie_word_embeddings false": {
        "BERT": built(tie_word_embeddings=False),
        "DistilBERT": built(tie_word_embeddings=False),
        "GPT-2": built(tie_word_embeddings=False),
        "OpenAI GPT": built(tie_word_embeddings=False),
        "Marian": built(tie_word_embeddings=False),
    },
    "tied tensors that differ": {
        "BERT": tensor("cls.predictions.decoder.weight", BERT_WORDS),
        "DistilBERT": tensor(
            "vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"
        ),
        "GPT-2": tensor("lm_head.weight", "transformer.wte.weight"),
        "Marian": tensor("lm_head.weight", "model.shared.weight"),
    },
    "a tensor without a place": {
        "BERT": tensor("bert.more.weight", BERT_WORDS),
        "GPT-2": tensor("transformer.more", "transformer.wte.weight"),
    },
    "weights in half precision": each(EVERY, HALF),
    "two names with two values": {
        **each(GPTS, config(num_attention_heads=4)),
        "DistilBERT": config(num_attention_heads=4),
        "Marian": config(num_attention_heads=4),
    },
    "a name for the other (hidden_size)": {
        **each(GPTS, config(n_embd=None, hidden_size=8)),
        "DistilBERT": config(dim=None, hidden_size=8),
        "Marian": config(d_model=None, hidden_size=8),
    },
    "n_positions left out": {
        "GPT-2": Option(build={"n_positions": 1024}, files={"config.json": {"n_positions": None}}),
        "OpenAI GPT": Option(
            build={"n_positions": 512}, files={"config.json": {"n_positions": None}}
        ),
    },
    "n_inner": {
        "GPT-2": built(n_inner=20),
        "OpenAI GPT": config(n_inner=20),
        "BERT": config(n_inner=20),
    },
    "hidden_size left out": each((*ENCODERS, "DistilBERT"), config(hidden_size=None, dim=None)),
    "quantization_config": each(EVERY, config(quantization_config={"quant_method": "gptq"})),
    "no model_type": each(EVERY, config(model_type=None)),
    "num_labels 1": {
        "BERT classifier": built(num_labels=1),
        "GPT-2 classifier": built(num_labels=1),
    },
    "num_labels 1, regression": {
        "BERT classifier": built(num_labels=1, problem_type="regression"),
        "GPT-2 classifier": built(num_labels=1, problem_type="regression"),
    },
    "several numbers": each(CLASSIFIERS, config(problem_type="regression")),
    "several labels": each(CLASSIFIERS, config(problem_type="multi_label_classification")),
    "problem_type of another name": each(CLASSIFIERS, config(problem_type="ranking")),
    "num_labels against id2label": each(
        CLASSIFIERS, config(num_labels=2, id2label={"0": "a", "1": "b", "2": "c"})
    ),
    "two classes of one name": each(CLASSIFIERS, config(id2label={"0": "a", "1": "a"})),
    "tokenizer_class of the family": {
        **each((*BERTS, "DistilBERT"), words(tokenizer_class="BertTokenizer")),
        **each(ROBERTAS, words(tokenizer_class="RobertaTokenizerFast")),
    },
    "tokenizer_class left out": each(
        (*ENCODERS, "DistilBERT"), words(tokenizer_class=None, model_input_names=None)
    ),
    "tokenizer_class unknown": each(
        (*ENCODERS, "DistilBERT"), words(tokenizer_class="MyTokenizer")
    ),
    "do_lower_case false, family's class": each(
        BERTS, words(tokenizer_class="BertTokenizer", do_lower_case=False)
    ),
    "no post-processor": each(
        (*BERTS[1:], *ROBERTAS[1:], *UNIGRAMS), pipeline(post_processor=None)
    ),
    "no post-processor, family's class": {
        name: Option(files={"tokenizer.json": {"post_processor": None}, **option.files})
        for names, option in (
            (BERTS, words(tokenizer_class="BertTokenizer")),
            (ROBERTAS, words(tokenizer_class="RobertaTokenizer")),
        )
        for name in names
    },
    "template for one text only": each(
        BERTS, pipeline(post_processor=template(FRAME, "$A $B:1", **MARKS))
    ),
    "template with parts of its own": each(
        BERTS,
        pipeline(post_processor=template("[CLS]:1 $A [SEP]", f"{FRAME} $B:0 [SEP]:1", **MARKS)),
    ),
    "template that turns a pair around": each(
        BERTS, pipeline(post_processor=template(FRAME, "[CLS] $B [SEP] $A:1", **MARKS))
    ),
    "model_input_names without token_type_ids": each(
        BERTS, words(model_input_names=["input_ids", "attention_mask"])
    ),
    "a normaliser of its own": each(
        (*BERTS, *ROBERTAS), pipeline(normalizer={"type": "Lowercase"})
    ),
    "<mask> without lstrip": {"RoBERTa": Option(act=lambda folder: _no_lstrip(folder))},
    "add_bos_token": each(GPTS[:2], words(add_bos_token=True)),
    "add_eos_token": each(GPTS[:2], words(add_eos_token=True)),
    "add_prefix_space": each(GPTS[:2], words(add_prefix_space=True)),
    "generation: eos_token_id, a list of one": each(WRITERS, generates(eos_token_id=[0])),
    "generation: eos_token_id, a list of several": of_tokens("eos_token_id", lambda n: [0, *n]),
    "generation: no eos_token_id": each(WRITERS, generates(eos_token_id=None)),
    "generation: bad_words_ids of one token": of_tokens(
        "bad_words_ids", lambda n: [[t] for t in n]
    ),
    "generation: bad_words_ids of several tokens": of_tokens("bad_words_ids", lambda n: [[*n]]),
    "generation: suppress_tokens": of_tokens("suppress_tokens", list),
    "generation: begin_suppress_tokens": of_tokens("begin_suppress_tokens", list),
    "generation: forced_bos_token_id": of_tokens("forced_bos_token_id", lambda n: n[0]),
    "generation: sequence_bias": of_tokens("sequence_bias", lambda n: [[[n[0]], -9.0]]),
    **{
        f"generation: {name} {value!r}": each(WRITERS, generates(**{name: value}))
        for name, value in (
            ("repetition_penalty", 1.7),
            ("no_repeat_ngram_size", 2),
            ("num_beams", 4),
            ("do_sample", True),
            ("min_new_tokens", 4),
            ("max_new_tokens", 6),
            ("exponential_decay_length_penalty", [2, 1.5]),
        )
    },
    **{
        f"generation: early_stopping {value!r}": {
            "Marian": generates(early_stopping=value, length_penalty=2.0)
        }
        for value in (False, True, "never", "later")
    },
    **{
        f"generation: {name} {value!r}": {"Marian": generates(**{name: value})}
        for name, value in (
            ("length_penalty", 0.3),
            ("max_length", 5),
            ("min_length", 6),
            ("encoder_no_repeat_ngram_size", 2),
            ("num_beam_groups", 3),
        )
    },
    "generation: no forced_eos_token_id": {"Marian": generates(forced_eos_token_id=None)},
    "generation: no max_length": {"Marian": generates(max_length=None)},
    "generation: no bad_words_ids": {"Marian": generates(bad_words_ids=None)},
    "settings of generate in config.json beside a generation_config.json": {
        "GPT-2": config(repetition_penalty=1.7, eos_token_id=[122, 269]),
        "Marian": config(num_beams=1, length_penalty=3.0),
    },
    "settings of generate in config.json alone": {
        "Marian": Option(
            files={"config.json": {"num_beams": 2, "max_length": 9}},
            act=lambda folder: (folder / "generation_config.json").unlink(),
        ),
        "GPT-2": Option(
            files={"config.json": {"eos_token_id": [122, 269]}},
            act=lambda folder: (folder / "generation_config.json").unlink(),
        ),
    },
}
"""Options by name, for each column that they concern."""


def _no_lstrip(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"lstrip": true', '"lstrip": false'))


def bases(folder: Path) -> tuple[dict[str, Path], dict[str, tuple[str, ...]]]:
    """The folder of each column, and the notes of its import."""
    made = {name: make(folder / name) for name, make in BASES.items()}
    return made, {name: from_pretrained(each).began for name, each in made.items()}


def cell(folder: Path, row: str, column: str, found: tuple[dict, dict]) -> str:
    made, usual = found
    place = write(folder / "changed", column, GRID[row][column], made)
    return outcome(place, GRID[row][column], usual[column])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    return bases(tmp_path_factory.mktemp("bases"))


def in_page() -> dict[tuple[str, str], str]:
    """The cells of the table in the page."""
    lines = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip().splitlines()
    head, _, *rows = [[each.strip() for each in line.strip("|").split("|")] for line in lines]
    return {(row[0], head[n]): text for row in rows for n, text in enumerate(row) if n and text}


@pytest.mark.parametrize("row", GRID)
def test_no_option_makes_a_silent_difference(
    tmp_path: Path, row: str, found: tuple[dict, dict]
) -> None:
    cells = {column: cell(tmp_path / column, row, column, found) for column in GRID[row]}
    assert not [each for each in cells.values() if each.startswith(SILENT)], cells
    page = in_page()
    assert cells == {column: page.get((row, column)) for column in GRID[row]}, (
        "run python -m tests.parity.test_grid"
    )


def test_the_table_of_the_page_has_these_options_and_no_others() -> None:
    assert {row for row, _ in in_page()} == set(GRID)


def table(cells: dict[tuple[str, str], str]) -> str:
    """The cells as Markdown."""
    head = ["option", *BASES]
    lines = [head, ["---"] * len(head)]
    lines += [[row, *(cells.get((row, column), "") for column in BASES)] for row in GRID]
    return "\n".join(f"| {' | '.join(line)} |".replace("  |", " |") for line in lines)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as held:
        ready = bases(Path(held))
        filled = {
            (row, column): cell(Path(held) / str(number) / column, row, column, ready)
            for number, row in enumerate(GRID)
            for column in GRID[row]
        }
    text = PAGE.read_text()
    whole = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    PAGE.write_text(whole.sub(lambda _: f"{BEGIN}\n{table(filled)}\n{END}", text))
    for key, value in filled.items():
        if value.startswith(SILENT):
            print(*key, value, sep=": ")
