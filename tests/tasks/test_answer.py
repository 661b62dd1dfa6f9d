"""Answering: SQuAD's files and scores, windows that lose no answer, and a tiny reader."""

import json
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import UserError
from regard.data.text.questions import PassageQuestion, read_questions
from regard.data.text.tokeniser import Tokeniser, train_tokeniser
from regard.data.text.windows import EncodedWindows, Windowing, answer_span
from regard.runs.recipe import parse_recipe
from regard.runs.run import create, load
from regard.tasks.answer import Found, better
from regard.tasks.squad_metrics import exact_match, f1, over_all

WORDS = ("red", "blue", "green", "black", "white", "brown", "grey", "pink")
NAMES = ("ann", "bob", "cid", "dan", "eve", "fay", "gus", "ida")


def squad(count: int, *, gaps: bool) -> dict[str, object]:
    """Who wears which colour, in SQuAD's form; with gaps, some ask for a colour nobody wears."""
    draw, paragraphs = random.Random(0), []
    for number in range(count):
        names, colours = draw.sample(NAMES, 3), draw.sample(WORDS, 4)
        passage = " ".join(f"{n} wears {c} ." for n, c in zip(names, colours, strict=False))
        asked = []
        for place, colour in enumerate(colours if gaps else colours[:3]):
            there = place < 3
            name = names[place] if there else ""
            answers = [{"text": name, "answer_start": passage.index(name)}] if there else []
            question = {"id": f"{number}.{place}", "question": f"who wears {colour} ?"}
            asked.append({**question, "answers": answers, "is_impossible": not there})
        paragraphs.append({"context": passage, "qas": asked})
    return {"version": "v2.0", "data": [{"title": "x", "paragraphs": paragraphs}]}


@pytest.fixture(scope="module")
def pieces() -> Tokeniser:
    return train_tokeniser(
        "wordpiece", [" ".join((*WORDS, *NAMES, "who wears is ? ."))] * 9, vocabulary=150
    )


def test_both_forms_hold_the_same_questions(tmp_path: Path) -> None:
    held = squad(4, gaps=True)
    (tmp_path / "a.json").write_text(json.dumps(held))
    rows = []
    for each in read_questions(str(tmp_path / "a.json")):
        lists = {
            "text": [text for _, text in each.answers],
            "answer_start": [begin for begin, _ in each.answers],
        }
        row = {"id": each.name, "question": each.text, "context": each.passage, "answers": lists}
        rows.append(json.dumps(row))
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    first, second = (list(read_questions(str(tmp_path / name))) for name in ("a.json", "a.jsonl"))
    assert [(a.name, a.text, a.passage, a.answers) for a in first] == [
        (b.name, b.text, b.passage, b.answers) for b in second
    ]
    assert sum(not each.answers for each in first) == 4


def test_the_answers_of_stories_stand_in_the_sentence_that_tells_them(tmp_path: Path) -> None:
    path = tmp_path / "qa1.txt"
    path.write_text(
        "1 Ann is in the hall.\n2 Bob is in the hall.\n3 Where is Bob?\thall\t2\n"
        "4 Ann is in the attic.\n5 Where is Ann? \tattic\t1 4\n1 Cid is here.\n"
    )
    first, second = read_questions(str(path))
    assert first.passage == "Ann is in the hall. Bob is in the hall."
    assert first.answers == ((first.passage.rindex("hall"), "hall"),)
    assert second.passage == f"{first.passage} Ann is in the attic."
    assert second.answers == ((second.passage.index("attic"), "attic"),)
    assert second.where.endswith("qa1.txt:5")
    for facts in ("1", "7", "x", "²", ""):
        path.write_text(f"1 Ann is in the hall.\n2 Is Ann there?\tyes\t{facts}\n")
        with pytest.raises(UserError, match=r"qa1.txt:2: the answer 'yes' does not occur in the f"):
            list(read_questions(str(path)))


BAD: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "not JSON"),
    "a list": ("[]", "expected a JSON object"),
    "no articles": ('{"data": 3}', "no list 'data'"),
    "no questions": ('{"data": []}', "no questions"),
    "an answer elsewhere": (
        '{"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": "q7", "question": "?",'
        ' "answers": [{"text": "b", "answer_start": 1}]}]}]}]}',
        "question q7: the answer 'b' is not at character 1",
    ),
    "a place that is none": (
        '{"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": "q7", "question": "?",'
        ' "answers": [{"text": "b", "answer_start": "2"}]}]}]}]}',
        "answer_start='2' is not a character",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_with_a_file_is_said(
    case: str, tmp_path: Path, as_users_run_it: None
) -> None:
    text, message = BAD[case]
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(UserError, match=rf"bad\.json.*{message}"):
        list(read_questions(str(tmp_path / "bad.json")))


@given(
    words=st.lists(st.sampled_from((*WORDS, *NAMES)), min_size=1, max_size=60),
    window=st.integers(14, 40),
    stride=st.integers(1, 6),
    data=st.data(),
)
def test_windows_hold_every_token_and_the_answer_where_it_is_whole(
    pieces: Tokeniser, words: list[str], window: int, stride: int, data: st.DataObject
) -> None:
    passage = " ".join(words)
    place = data.draw(st.integers(0, len(words) - 1))
    begin = len(" ".join(words[:place])) + (place > 0)
    asked = PassageQuestion("q", "who ?", passage, ((begin, words[place]),), "here")
    assert pieces.template is not None
    cut = Windowing(
        tokeniser=pieces, template=pieces.template, window=window, stride=stride, longest_question=5
    )
    held = EncodedWindows(cut.windows([asked]), pieces.pad)
    batch = held.gather(torch.arange(len(held)))
    assert batch["tokens"].shape[1] <= window
    assert not any(batch[name].isnan().any() for name in batch)
    covered = {span for each in held.windows for span in each.spans}
    assert covered == set(pieces.offsets(passage))
    whole = 0
    for row, (first, last) in enumerate(zip(batch["first"], batch["last"], strict=True)):
        if first == 0:
            assert last == 0
            continue
        whole += 1
        assert batch["passage"][row, [int(first), int(last)]].all()
        each = held.windows[row]
        spans = each.spans[int(first) - each.begin], each.spans[int(last) - each.begin]
        assert passage[spans[0][0] : spans[1][1]] == words[place]
    if stride + 3 <= window - 8:  # windows overlap by a word at least
        assert whole


def test_ends_are_the_tokens_that_an_answer_touches() -> None:
    spans = [(0, 2), (2, 5), (6, 9)]
    assert answer_span((3, "x"), spans) == (1, 1)
    assert answer_span((1, "abcdefg"), spans) == (0, 2)
    assert answer_span((5, " "), spans) is None


SCORES = [
    ("The cat", "cat", 1.0, 1.0),
    ("cat!", "a cat", 1.0, 1.0),
    ("black cat", "cat", 0.0, 2 / 3),
    ("dog", "cat", 0.0, 0.0),
    ("", "", 1.0, 1.0),
    ("", "cat", 0.0, 0.0),
    ("the", "", 1.0, 1.0),
    ("to be or not to be", "to be", 0.0, 0.5),
]


@pytest.mark.parametrize(("said", "gold", "exact", "overlap"), SCORES)
def test_scores_are_those_of_squads_scripts(
    said: str, gold: str, exact: float, overlap: float
) -> None:
    assert exact_match(said, gold) == exact
    assert f1(said, gold) == pytest.approx(overlap)


def test_the_best_of_several_answers_counts() -> None:
    assert over_all(f1, ["cat", ""], [["dog", "a cat"], []]) == 100.0
    assert over_all(exact_match, ["cat", "cat"], [["dog", "a cat"], []]) == 50.0


def test_the_best_window_answers_and_the_worst_says_there_is_no_answer() -> None:
    one, other = Found("a", 0, 1.0, 5.0), Found("b", 9, 2.0, 3.0)
    assert better(one, other) == better(other, one) == Found("b", 9, 2.0, 3.0)
    assert better(None, one) == one


RECIPE = """
task = "answer"
[about]
title = "Tiny"
paper = "nobody"
minutes = 0.1
[data]
train = "train.json"
validation = "train.json"
window = 32
stride = 8
longest_question = 8
batch = 32
[model]
kind = "bert_reader"
encoder = { width = 32, heads = 2, layers = 2, hidden = 64, context = 32, dropout = 0.0 }
[train]
updates = 30
optimiser = { name = "adamw", lr = 5e-3 }
"""


@pytest.mark.parametrize("gaps", [False, True])
def test_a_reader_is_trained_measured_saved_and_used(gaps: bool, tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps(squad(20, gaps=gaps)))
    changes = [f"data.unanswerable={str(gaps).lower()}"]
    run = create(parse_recipe(RECIPE, "tiny", changes), tmp_path / "run", tmp_path, "cpu")
    before = run.evaluate("validation")
    run.train()
    again = load(tmp_path / "run", "cpu")
    after = again.evaluate("validation")
    assert after["loss"] < before["loss"]
    assert after["f1"] >= after["exact_match"] >= 0
    assert ("no_answer_right" in after) == gaps
    asked = "who wears red ?\teve wears blue . bob wears red ."
    (said,) = again.predict([asked])
    fields = said.fields
    passage = asked.split("\t")[1]
    assert passage[int(str(fields["begin"])) : int(str(fields["end"]))] == fields["answer"]
    assert "[SEP]" in again.look(asked)[0].keys


def test_no_answer_is_given_where_it_scores_better(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps(squad(3, gaps=True)))
    asked = "who ?\tann wears red ."
    for threshold, empty in ((-1e9, True), (1e9, False)):
        changes = ["data.unanswerable=true", f"data.threshold={threshold}"]
        recipe = parse_recipe(RECIPE, "tiny", changes)
        run = create(recipe, tmp_path / f"run{empty}", tmp_path, "cpu")
        (said,) = run.predict([asked])
        assert (said.text == "") == empty


@pytest.mark.usefixtures("as_users_run_it")
def test_what_cannot_be_asked_is_said(tmp_path: Path, pieces: Tokeniser) -> None:
    (tmp_path / "train.json").write_text(json.dumps(squad(3, gaps=True)))
    run = create(
        parse_recipe(RECIPE, "tiny", ["data.unanswerable=true"]), tmp_path / "a", tmp_path, "cpu"
    )
    with pytest.raises(UserError, match="line 1: expected a pair of texts, separated by a tab"):
        run.predict(["who ?"])
    with pytest.raises(UserError, match=r"0\.3: there is no answer; set data\.unanswerable"):
        create(parse_recipe(RECIPE, "tiny"), tmp_path / "b", tmp_path, "cpu")
    with pytest.raises(UserError, match="stride=30 would skip some"):
        create(
            parse_recipe(RECIPE, "tiny", ["data.stride=30", "data.unanswerable=true"]),
            tmp_path / "c",
            tmp_path,
            "cpu",
        )
