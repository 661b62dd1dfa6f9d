"""The translation task: its data, its loss, its outputs, and what it says of bad settings.

The models here are made of nothing: an echo that writes its source, and one that only has a loss.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.core.config import parse
from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.core.protocols import Batch, Carry
from regard.data.batch import IGNORE
from regard.outputs.next_token import SoftmaxOutput
from regard.tasks import TASKS
from regard.tasks.translate import Translation
from regard.tasks.translation_data import Pairs, readable
from regard.tasks.translation_metrics import LengthBand

PAIRS = [("ein haus", "a house"), ("der garten", "the garden"), ("", ""), ("ja", "yes yes yes")]
COPY: Mapping[str, object] = {"name": "copy", "train": 300, "validation": 40, "test": 30, "seed": 1}


@dataclass(frozen=True)
class EchoState:
    source: Tensor
    place: int = 0

    def select(self, rows: Tensor) -> "EchoState":
        return EchoState(self.source[rows], self.place)


class Echo(nn.Module):
    """Writes what it reads, one token after the other; both sides share a vocabulary."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.certain = nn.Parameter(torch.tensor(9.0))
        self.widest = 0
        """The most tokens of a source so far."""

    def start(self, source: Batch) -> EchoState:
        assert not self.training
        self.widest = max(self.widest, source["source"].shape[1])
        last = source["source"].gather(1, source["source_lengths"][:, None] - 1)
        assert bool((last == 3).all()), "every source ends with <eos>"
        return EchoState(source.get("source_extended", source["source"]))

    def step(self, tokens: Tensor, state: EchoState) -> tuple[Tensor, EchoState]:
        width = max(self.vocabulary, int(state.source.max()) + 1)
        # Whoever has ended goes on with the end.
        place = min(state.place, state.source.shape[1] - 1)
        due = state.source[:, place]
        logits = torch.nn.functional.one_hot(due, width) * self.certain
        return logits, EchoState(state.source, state.place + 1)


class Even(nn.Module):
    """Says of every token that it is as likely as any other, and has something further to learn."""

    def __init__(self, vocabulary: int, further: float | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocabulary, 2))
        self.further = further

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        states = torch.zeros(*batch["tokens"].shape, 2)
        further = None if self.further is None else torch.tensor(self.further)
        return SoftmaxOutput(states, self.weight, auxiliary=further)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, side in (("a.de", 0), ("a.en", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    return tmp_path


def data(**given: object) -> Pairs:
    files = {"train": ["a.de", "a.en"], "validation": ["a.de", "a.en"]}
    return parse(Pairs, ({} if "generate" in given else files) | given, at="data")


def echoing(folder: Path, **given: object) -> tuple[Translation, Echo]:
    task = Translation.open(data(joint=True, **given), folder)
    return task, Echo(task.sizes["vocabulary"])


def texts(task: Translation, model: nn.Module, lines: list[str]) -> list[str]:
    return [each.text for each in task.translate(model, [Text(line) for line in lines])]


LINE = st.text(st.characters(exclude_categories=[]), max_size=12)
ODD = [
    "",
    "a\nb",
    "\ud800x",
    "x\udc00",
    "\x00\x07\x1b[2J",
    "语言 ไทย \u202eabc",
    "\u2028",
    "a\x85b",
]


@settings(deadline=None, max_examples=30)
@given(lines=st.lists(LINE | st.sampled_from(ODD), max_size=6), width=st.sampled_from([1, 3]))
def test_any_text_gives_a_line_for_a_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], width: int
) -> None:
    """Bytes can write everything, so that what an echo gives back shows where each line went."""
    generate = {**COPY, "train": 2}
    task, model = echoing(
        tmp_path_factory.getbasetemp(),
        generate=generate,
        tokeniser="byte",
        search={"width": width, "max_length": 1, "max_per_source": 1.0},
    )
    outputs = texts(task, model, lines)
    due = [readable(line, task.data) for line in lines]
    assert outputs == [" ".join(line.splitlines()) if line.strip() else "" for line in due]
    assert all(len(output.splitlines()) <= 1 for output in outputs)


@pytest.mark.parametrize("kind", ["word", "char", "bpe"])
def test_what_a_vocabulary_does_not_know_shifts_no_line(folder: Path, kind: str) -> None:
    task, model = echoing(folder, tokeniser=kind)
    outputs = texts(task, model, ["ein haus", *ODD, "ja"])
    assert len(outputs) == len(ODD) + 2
    assert (outputs[0], outputs[1], outputs[-1]) == ("ein haus", "", "ja")


def test_halves_of_characters_are_replaced_and_pairs_of_halves_joined() -> None:
    assert readable("a\ud83d\ude42b\ud800", data()) == "a🙂b\ufffd"
    assert readable("a\r\nB", data(lowercase=True)) == "a b"


def test_many_lines_come_back_in_their_order(folder: Path) -> None:
    task, model = echoing(folder, tokeniser="byte", evaluate_batch=3)
    lines = ["x" * (number * 7 % 11) for number in range(20)]
    done = task.translate(model, [Text(line) for line in lines])
    assert [each.text for each in done] == lines
    assert [not each.outputs for each in done] == [not line for line in lines]
    assert task.translate(model, []) == []
    assert task.translate(model, [Text(""), Text(" ")])[1].text == ""


def test_a_source_past_the_maximum_is_cut_with_a_warning_or_translated_whole(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["abc", "", "abcdefgh", "xy"]
    task, model = echoing(folder, tokeniser="byte", max_length=3)
    with caplog.at_level(logging.WARNING):
        assert texts(task, model, lines) == lines
        assert not caplog.records
        task, model = echoing(folder, tokeniser="byte", max_length=3, too_long="cut")
        done = task.translate(model, [Text(line) for line in lines], name="talk.de")
    assert [each.text for each in done] == ["abc", "", "abc", "xy"]
    assert model.widest == 4
    assert [record.getMessage() for record in caplog.records] == [
        "talk.de:3: 8 tokens are more than max_length=3; the rest is not translated"
    ]


@pytest.mark.parametrize("width", [1, 2])
def test_unknown_words_are_copied(folder: Path, width: int) -> None:
    given = {"generate": COPY, "copies": True, "min_frequency": 20, "search": {"width": width}}
    task, model = echoing(folder, **given)
    lines = ["please tell Xavonir that Xavonir has 4711 and Ymir", "Zoe", "is ready"]
    assert texts(task, model, lines) == lines
    plain, model = echoing(folder, **{**given, "copies": False})
    assert texts(plain, model, lines)[1] == "<unk>"
    short, model = echoing(folder, **given, max_length=3, too_long="cut")
    assert texts(short, model, lines)[0] == "please tell Xavonir"


def test_the_model_is_as_it_was_after_translating(folder: Path) -> None:
    task, model = echoing(folder, tokeniser="byte")
    model.train()
    texts(task, model, ["a"])
    assert model.training


def test_a_model_that_cannot_step_cannot_translate(folder: Path) -> None:
    task, _ = echoing(folder)
    with pytest.raises(UserError, match="a Even cannot translate: it has no start and step"):
        task.translate(Even(9), [Text("a")])


def test_scores_are_of_outputs_and_references_as_written(folder: Path) -> None:
    (folder / "b.de").write_text("Ein Haus\nja\n\nnein nein\n")
    (folder / "b.en").write_text("EIN HAUS\nja\n\nno\n")
    given = {"tokeniser": "byte", "test": ["b.de", "b.en"], "scores": ["exact", "multi_bleu"]}
    task, model = echoing(folder, **given)
    assert task.score(model, "test")["exact"] == 50.0
    task, model = echoing(folder, **given, lowercase=True)
    found = task.score(model, "test")
    assert list(found) == ["exact", "multi_bleu"]
    assert found["exact"] == 75.0
    assert "case:lc" in task.signatures()["exact"]
    assert task.by_length(model, "test", "exact") == [LengthBand(0, 10, 4, 75.0)]
    silent, model = echoing(folder, **{**given, "scores": []})
    assert silent.score(model, "test") == {}


def test_the_loss_is_per_target_token_and_further_losses_are_for_training(
    folder: Path,
) -> None:
    task = Translation.open(data(smoothing=0.5), folder)
    size = task.sizes["vocabulary"]
    batch = task.evaluation("validation").batch(0, 0)
    tokens = sum(len(target.split()) + 1 for _, target in PAIRS)
    model = Even(size, further=7.0).eval()
    measured = task.loss(model, batch, None)
    assert measured.items == tokens
    assert measured.total.item() == pytest.approx(tokens * log(size), rel=1e-6)
    learnt = task.loss(model.train(), batch, None)
    assert learnt.total.item() == pytest.approx(tokens * log(size) + 7.0, rel=1e-6)
    plain = task.loss(Even(size).train(), batch, None)
    assert plain.total.item() == pytest.approx(tokens * log(size), rel=1e-6)
    assert task.metrics({"loss": 2.0}) == {"loss": 2.0, "perplexity": exp(2.0)}


def test_smoothing_spreads_some_of_each_target_and_nothing_on_padding(folder: Path) -> None:
    class Sure(Even):
        def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
            states = torch.ones(*batch["tokens"].shape, 2)
            return SoftmaxOutput(states, self.weight)

    model = Sure(Translation.open(data(), folder).sizes["vocabulary"])
    nn.init.normal_(model.weight)
    logs = model.weight.sum(1).log_softmax(0)
    task = Translation.open(data(smoothing=0.3), folder)
    batch = task.evaluation("validation").batch(0, 0)
    said = batch["targets"][batch["targets"] != IGNORE]
    for training, due in (
        (True, -(0.7 * logs[said] + 0.3 * logs[1:].mean()).sum()),  # <pad> is 0
        (False, -logs[said].sum()),
    ):
        total = task.loss(model.train(training), batch, None).total
        assert total.item() == pytest.approx(due.item(), rel=1e-5)


def test_training_leaves_out_and_reports_what_measuring_keeps(folder: Path) -> None:
    task = Translation.open(data(max_length=2, batch=3), folder)
    assert str(task.kept) == "2 pairs kept, 1 too long, 1 with an empty side"
    assert sum(len(task.batches().batch(0, i)["source"]) for i in range(len(task.batches()))) == 2
    whole = task.evaluation("train")
    assert sum(len(whole.batch(0, index)["source"]) for index in range(len(whole))) == len(PAIRS)
    nothing = Translation.open(data(max_length=1), folder)
    with pytest.raises(UserError, match=r"nothing to learn from: 0 pairs kept, 3 too long, 1 with"):
        nothing.batches()


@pytest.mark.parametrize("joint", [False, True])
def test_a_task_that_was_saved_numbers_as_before(folder: Path, tmp_path: Path, joint: bool) -> None:
    task = Translation.open(data(joint=joint), folder)
    saved = tmp_path / "run"
    saved.mkdir()
    task.save(saved)
    assert sorted(path.name for path in saved.iterdir()) == (
        ["tokenizer.json"] if joint else ["source.tokenizer.json", "tokenizer.json"]
    )
    (folder / "a.de").unlink()  # to translate, nobody needs the data
    again = Translation.open(data(joint=joint), folder, saved)
    assert again.sizes == task.sizes
    for side in ("source", "target"):
        one, other = (getattr(each.numbering, side) for each in (task, again))
        assert one.digest == other.digest
    assert (task.numbering.source.digest == task.numbering.target.digest) == joint
    with pytest.raises(UserError, match=r"a\.de: no such file"):
        again.batches()


def test_sizes_of_vocabularies_are_those_asked_for(folder: Path) -> None:
    task = Translation.open(data(vocabulary=7, source_vocabulary=5), folder)
    assert task.sizes == {"vocabulary": 7, "source_vocabulary": 5}


def test_generated_pairs_need_no_files_and_have_all_splits(tmp_path: Path) -> None:
    generate = {"name": "dates", "train": 60, "validation": 20, "test": 10, "seed": 3}
    task = Translation.open(data(generate=generate, tokeniser="char", batch=16), tmp_path)
    assert task.splits == ("train", "validation", "test")
    assert task.kept.kept == 60
    whole = task.evaluation("test")
    assert sum(len(whole.batch(0, index)["source"]) for index in range(len(whole))) == 10
    batch = task.batches().batch(0, 0)
    dates = [task.numbering.target.decode(row[row != IGNORE][:-1]) for row in batch["targets"]]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates)


def test_files_without_a_test_split_say_so(folder: Path) -> None:
    task = Translation.open(data(), folder)
    assert task.splits == ("train", "validation")
    with pytest.raises(UserError, match=r"this recipe has no test pairs; set data\.test"):
        task.evaluation("test")


def test_pairs_in_one_file_make_the_same_batches(folder: Path) -> None:
    rows = "".join(f"{target}\t{source}\n" for source, target in PAIRS)
    (folder / "a.tsv").write_text("en\tde\n" + rows)
    one = Translation.open(data(), folder)
    given = {"train": "a.tsv", "validation": "a.tsv", "fields": ["de", "en"]}
    other = Translation.open(data(**given), folder)
    for left, right in ((one.batches(), other.batches()),):
        for name, tensor in left.batch(0, 0).items():
            assert torch.equal(tensor, right.batch(0, 0)[name])


def test_the_task_is_in_the_table_and_its_settings_can_be_written_and_read() -> None:
    assert TASKS["translate"] is Translation
    given = data(generate=COPY, search={"width": 2}, scores=["exact"])
    assert parse(Pairs, given.model_dump(mode="json", exclude_none=True)) == given
    files = data(test="a.tsv", train="a.tsv", validation="b.jsonl", fields=["x", "y"])
    assert parse(Pairs, files.model_dump(mode="json", exclude_none=True)) == files


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train": None}, "train and validation are missing"),
        ({"generate": COPY, "test": ["a", "b"]}, "give either files or generate, not both"),
        ({"generate": {**COPY, "name": "date"}}, "unknown generator 'date': did you mean 'dates'"),
        ({"generate": {"name": "copy"}}, r"data\.generate\.train is missing"),
        ({"train": ["a"]}, "a: a file with both sides must be"),
        ({"train": ["a", "b", "c"]}, "one file or two, not 3"),
        ({"test": "a.tsv"}, "a.tsv: needs fields="),
        ({"train": ["-", "b"]}, "stdin can be read only once"),
        ({"batch": 2, "tokens_per_batch": 9}, "either batch or tokens_per_batch"),
        ({"joint": True, "source_vocabulary": 9}, "leave out source_vocabulary"),
        ({"copies": True, "tokeniser": "bpe"}, "copies is for tokeniser=\"word\", not 'bpe'"),
        ({"too_long": "cut"}, 'too_long="cut" needs max_length'),
        ({"smoothing": 1.0}, r"data\.smoothing=1\.0 must"),
        ({"scores": ["blue"]}, r"data\.scores\[0\]='blue' is not known: did you mean 'bleu'"),
        ({"search": {"widht": 3}}, r"'data\.search\.widht': did you mean 'data\.search\.width'"),
        ({"tokenizer": "bpe"}, r"did you mean 'data\.tokeniser'"),
    ],
)
def test_settings_that_make_no_task_are_refused(
    as_users_run_it: None, given: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        data(**given)


def test_a_missing_file_is_told_with_its_origin(folder: Path) -> None:
    with pytest.raises(
        UserError, match=r"a\.fr: no such file; did you mean \S+ .*comes from: me\."
    ):
        Translation.open(data(train=["a.de", "a.fr"], origin="me"), folder)
