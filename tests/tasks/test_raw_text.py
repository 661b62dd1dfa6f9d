"""Taggers on raw text, and files whose tags do not fit their scheme."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

import regard
from regard.core.errors import UserError
from regard.data.text.conll import TaggedSentence, check_tags, read_conll
from regard.data.text.segment import blank_spans, word_spans
from regard.runs.recipe import parse_recipe
from regard.runs.run import create
from regard.train.display import SilentDisplay
from tests.tasks.test_tag import RECIPE, SENTENCES


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.txt").write_text("\n".join(SENTENCES))
    return tmp_path


def test_answers_are_on_the_original_text(place: Path) -> None:
    recipe = parse_recipe(RECIPE, "tiny", ["data.words=plain", "train.epochs=12"])
    run = create(recipe, place / "run", place, "cpu")
    run.train(SilentDisplay())
    text = "  John Smith, saw  (Paris)."
    (found,) = run.predict([text])
    words, chunks = found.fields["words"], found.fields["chunks"]
    assert words == ["John", "Smith", ",", "saw", "(", "Paris", ")", "."]
    assert isinstance(chunks, list)
    assert chunks
    for chunk in chunks:
        assert text[chunk["begin"] : chunk["end"]] == chunk["text"]
    assert {"PER", "LOC"} >= {chunk["kind"] for chunk in chunks}
    assert json.dumps(chunks)


@pytest.mark.parametrize(
    "text", ["", "  ", "a", "a\u3000b.", "don't", "3.5% of U.S.-made e-mails?!"]
)
def test_every_word_is_in_the_text_and_nothing_is_lost(text: str) -> None:
    for spans in (word_spans(text), blank_spans(text)):
        assert all(0 <= begin < end <= len(text) for begin, end in spans)
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
        assert "".join(text[b:e] for b, e in spans) == "".join(text.split())


def test_a_lenient_recipe_reads_what_a_strict_one_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "train.txt"
    path.write_text("John I-PER\nsleeps O\nin O\nParis I-LOC\n\nMary B-PER\nleft O\n")
    with pytest.raises(UserError, match=r"train\.txt:1: 'I-PER' after 'O'"):
        create(parse_recipe(RECIPE, "t"), tmp_path / "a", tmp_path, "cpu")
    recipe = parse_recipe(RECIPE, "t", ["data.lenient=true", "train.epochs=1"])
    run = create(recipe, tmp_path / "b", tmp_path, "cpu")
    assert "S-PER" in run.task.labels  # type: ignore[attr-defined]
    assert caplog.text.count("read leniently") == 1
    wrong = TaggedSentence("f", 1, ("a",), ("X-PER",))
    with pytest.raises(UserError, match="not a tag of iob2"):
        check_tags(wrong, "iob2", lenient=True)
    assert len(list(read_conll(str(path)))) == 2


def test_a_first_recipe_of_a_tagger_reads_raw_text(place: Path) -> None:
    small = {"train.epochs": 1, "model.hidden": 8}
    run = regard.fit(
        "tag", place / "train.txt", folder=place / "r", changes=small, display=SilentDisplay()
    )
    (found,) = run.predict(["John saw Paris."])
    assert found.fields["words"] == ["John", "saw", "Paris", "."]
