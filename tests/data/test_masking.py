"""Masking and passages: shares that are exact, marks that are never hidden, words that stay whole,
negatives from other documents, and batches that are a function of seed, epoch and index."""

import tarfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import UserError
from regard.data.batch import IGNORE, random_integers
from regard.data.text.documents import (
    TokenisedDocuments,
    document_sources,
    offsets_from_sizes,
    tokenise_documents,
)
from regard.data.text.masking import Masking
from regard.data.text.pretraining import PretrainingBatches, PretrainingInputs
from regard.data.text.sentence_pairs import make_passage_pairs, make_passages
from regard.data.text.special_tokens import InputTemplate, truncated_lengths
from regard.data.text.tokeniser import Tokeniser, train_tokeniser

MARKS, VOCABULARY, MASK = 5, 60, 4
SPECIAL = torch.arange(VOCABULARY) < MARKS
CONTINUES = torch.arange(VOCABULARY) >= 40
TEMPLATE = InputTemplate(before=(2,), between=(3,), after=(3,), parts=(0, 1))


def rows(count: int, width: int, *place: int) -> torch.Tensor:
    """Rows of words and pieces of words between marks, some of them with padding."""
    drawn = random_integers(count * width, *place).view(count, width)
    tokens = MARKS + drawn % (VOCABULARY - MARKS)
    tokens[:, 0], tokens[:, width // 2], tokens[:, -1] = 2, 3, 3
    tokens[0, width // 3 :] = 0
    return tokens


def hidden(
    masking: Masking, tokens: torch.Tensor, *place: int
) -> tuple[torch.Tensor, torch.Tensor]:
    read, targets = masking.apply(
        tokens, random_integers(3 * tokens.numel(), *place).view(*tokens.shape, 3)
    )
    return read, targets


@given(width=st.integers(4, 80), seed=st.integers(0, 99), whole=st.booleans())
def test_marks_are_never_hidden_and_targets_are_what_stood_there(
    width: int, seed: int, whole: bool
) -> None:
    tokens = rows(6, width, seed)
    masking = Masking(mask=MASK, special=SPECIAL, continues=CONTINUES if whole else None)
    read, targets = hidden(masking, tokens, seed, 1)
    chosen = targets != IGNORE
    assert not (chosen & SPECIAL[tokens]).any()
    assert torch.equal(targets[chosen], tokens[chosen])
    assert torch.equal(read[~chosen], tokens[~chosen])
    assert (read[chosen][SPECIAL[read[chosen]]] == MASK).all()


@given(width=st.integers(4, 200), share=st.floats(0.02, 0.9), seed=st.integers(0, 99))
def test_the_share_of_chosen_tokens_is_exact_in_every_row(
    width: int, share: float, seed: int
) -> None:
    tokens = rows(5, width, seed)
    _, targets = hidden(Masking(mask=MASK, special=SPECIAL, share=share), tokens, seed, 1)
    plain = (~SPECIAL[tokens]).sum(1)
    exact = [float(torch.tensor(float(n)) * share) for n in plain]  # in single precision
    due = [min(int(n), max(1, round(each))) for n, each in zip(plain, exact, strict=True)]
    assert (targets != IGNORE).sum(1).tolist() == due


def test_eight_in_ten_are_masked_one_is_another_and_one_stays() -> None:
    tokens = MARKS + random_integers(200 * 200, 0).view(200, 200) % (VOCABULARY - MARKS)
    read, targets = hidden(Masking(mask=MASK, special=SPECIAL), tokens, 1)
    chosen = targets != IGNORE
    count = int(chosen.sum())
    assert count == 200 * 30
    masked = int((read[chosen] == MASK).sum()) / count
    kept = int((read[chosen] == targets[chosen]).sum()) / count
    spread = 4 * (0.8 * 0.2 / count) ** 0.5  # four standard deviations
    assert abs(masked - 0.8) < spread
    # One in ten stays, and one in 55 of those that are drawn is drawn as itself.
    assert abs(kept - 0.1 - 0.1 / (VOCABULARY - MARKS)) < spread
    swapped = read[chosen & (read != MASK) & (read != targets)]
    assert set(swapped.tolist()) == set(range(MARKS, VOCABULARY))


@given(width=st.integers(4, 120), seed=st.integers(0, 199), share=st.sampled_from([0.15, 0.5]))
def test_whole_words_fill_the_share_as_those_of_berts_script(
    width: int, seed: int, share: float
) -> None:
    tokens = rows(4, width, seed)
    masking = Masking(mask=MASK, special=SPECIAL, continues=CONTINUES, share=share)
    drawn = random_integers(3 * tokens.numel(), seed, 1).view(*tokens.shape, 3)
    targets = masking.apply(tokens, drawn).targets
    for row, keys, found in zip(tokens.tolist(), drawn[..., 0].tolist(), targets, strict=True):
        words: list[list[int]] = []
        for place, token in enumerate(row):
            goes_on = token >= 40 and place > 0 and row[place - 1] >= MARKS
            if token >= MARKS and goes_on:
                words[-1].append(place)
            elif token >= MARKS:
                words.append([place])
        words.sort(key=lambda word: keys[word[0]])
        due = max(1, round(sum(map(len, words)) * share))
        taken: list[int] = []
        for word in words:
            if len(taken) + len(word) <= due:
                taken += word
        taken = taken or words[0] if words else []
        assert (found != IGNORE).nonzero().flatten().tolist() == sorted(taken)


def test_shares_that_do_not_fit_are_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="together at most 1"):
        Masking(mask=MASK, special=SPECIAL, masked=0.95, swapped=0.1)
    with pytest.raises(UserError, match=r"share=1\.5"):
        Masking(mask=MASK, special=SPECIAL, share=1.5)
    with pytest.raises(UserError, match="there are none to mask"):
        Masking(mask=MASK, special=torch.ones(3, dtype=torch.bool))


def made_up(sizes: list[list[int]]) -> TokenisedDocuments:
    """Documents with sentences of these sizes; every token is a number of its own."""
    lengths = torch.tensor([size for each in sizes for size in each])
    begins = offsets_from_sizes(lengths)
    count = offsets_from_sizes(torch.tensor([len(each) for each in sizes]))
    return TokenisedDocuments(torch.arange(int(begins[-1])), begins[:-1], begins, count)


SIZES = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=2, max_size=8)


def owner(documents: TokenisedDocuments, token: int) -> int:
    """The document of a token."""
    borders = documents.begins[documents.sentences]
    return int(torch.searchsorted(borders, torch.tensor(token), right=True)) - 1


@given(sizes=SIZES, room=st.integers(2, 60), seed=st.integers(0, 9))
def test_a_second_part_is_from_another_document_or_goes_on(
    sizes: list[list[int]], room: int, seed: int
) -> None:
    documents = made_up(sizes)
    pairs = make_passage_pairs(documents, room, 0.1, seed)
    for first, second, apart in zip(pairs.first, pairs.second, pairs.random_next, strict=True):
        (a, b), (c, d) = first.tolist(), second.tolist()
        assert a < b
        assert c < d
        assert (b - a) + (d - c) <= room
        assert owner(documents, a) == owner(documents, b - 1)
        assert owner(documents, c) == owner(documents, d - 1)
        assert (owner(documents, a) != owner(documents, c)) == bool(apart)
        if not apart:
            assert b <= c


def test_sentences_that_were_not_used_are_taken_up_again() -> None:
    documents = made_up([[1] * 200, [1] * 200])
    pairs = make_passage_pairs(documents, 10, 0.0, 3)
    ours = pairs.first[:, 0] < 200  # with sentences of one token nothing is ever cut off
    spans = torch.cat([pairs.first[ours], pairs.second[ours & ~pairs.random_next]])
    read = sorted(place for first, last in spans.tolist() for place in range(first, last))
    assert read == list(range(200))
    assert 0.3 < pairs.random_next.float().mean() < 0.7


@given(sizes=SIZES, room=st.integers(1, 60))
def test_passages_without_pairs_hold_every_sentence_once(sizes: list[list[int]], room: int) -> None:
    documents = made_up(sizes)
    passages = make_passages(documents, room)
    read = [place for first, last in passages.first.tolist() for place in range(first, last)]
    lost = sum(max(0, size - room) for each in sizes for size in each)
    assert len(set(read)) == len(read) == int(documents.begins[-1]) - lost
    assert int(passages.sizes.max()) <= room


@given(first=st.integers(1, 40), second=st.integers(1, 40), room=st.integers(2, 60))
def test_the_longer_part_gives_first(first: int, second: int, room: int) -> None:
    held = [first, second]
    while sum(held) > room:  # as in BERT's code, one token at a time
        held[0 if held[0] > held[1] else 1] -= 1
    assert truncated_lengths([first, second], room) == held


def test_one_document_has_no_other(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="needs at least two documents"):
        make_passage_pairs(made_up([[3, 4]]), 10, 0.1, 0)


@pytest.fixture(scope="module")
def pieces() -> Tokeniser:
    return train_tokeniser(
        "wordpiece", ["the old cat sat on a mat and slept there all day long", "so it was"]
    )


def passages(documents: TokenisedDocuments, **changes: object) -> PretrainingInputs:
    masking = Masking(mask=MASK, special=torch.arange(1000) < MARKS)
    settings = {"window": 24, "seed": 3} | changes
    return PretrainingInputs(
        documents=documents, template=TEMPLATE, pad=0, masking=masking, **settings
    )


DOCUMENTS = made_up([[5, 9, 4, 7] * 3, [3, 8] * 5, [20, 4, 6], [7] * 9])


def test_batches_are_framed_and_know_their_parts() -> None:
    batches = PretrainingBatches(passages(DOCUMENTS), 4)
    for index in range(len(batches)):
        batch = batches.batch(0, index)
        for tokens, targets, length, parts in zip(
            *(batch[name].tolist() for name in ("tokens", "targets", "lengths", "parts")),
            strict=True,
        ):
            if not length:
                continue  # a row that fills up the last batch
            was = [t if t != IGNORE else token for token, t in zip(tokens, targets, strict=True)]
            assert (was[0], was[length - 1], was[length:]) == (2, 3, [0] * (len(was) - length))
            middle = parts.index(1) - 1
            assert was[middle] == 3
            assert parts == [0] * (middle + 1) + [1] * (length - middle - 1) + [-1] * (
                len(parts) - length
            )


def test_a_batch_is_the_same_whenever_it_is_asked_for() -> None:
    first, again = (PretrainingBatches(passages(DOCUMENTS), 4) for _ in range(2))
    places = [(epoch, index) for epoch in range(3) for index in range(len(first))]
    asked = {place: first.batch(*place) for place in places}
    for place in reversed(places):
        for name, each in again.batch(*place).items():
            assert torch.equal(each, asked[place][name]), (place, name)


def contents(batches: PretrainingBatches, epoch: int) -> set[tuple[int, ...]]:
    """What the model reads in an epoch, row by row, without padding."""
    return {
        tuple(row[:length])
        for index in range(len(batches))
        for held in [batches.batch(epoch, index)]
        for row, length in zip(held["tokens"].tolist(), held["lengths"].tolist(), strict=True)
    }


def test_static_masks_come_again_and_dynamic_ones_do_not() -> None:
    static = PretrainingBatches(passages(DOCUMENTS), 1, copies=2)
    dynamic = PretrainingBatches(passages(DOCUMENTS), 1)
    assert contents(static, 0) & contents(static, 2)
    assert not contents(static, 0) & contents(static, 1)
    assert not contents(dynamic, 0) & contents(dynamic, 2)
    whole = passages(DOCUMENTS, next_sentence=False)
    assert contents(PretrainingBatches(whole, 1, copies=1), 0) == contents(
        PretrainingBatches(whole, 1, copies=1), 5
    )


def test_shards_hold_the_rows_of_the_whole() -> None:
    whole = PretrainingBatches(passages(DOCUMENTS), 4)
    parts = [whole.shard(rank, 2) for rank in range(2)]
    for index in range(len(whole)):
        held = [part.batch(0, index)["tokens"] for part in parts]
        assert torch.equal(torch.stack(held, 1).flatten(0, 1), whole.batch(0, index)["tokens"])


TEXT = "the old cat sat\non a mat\n\nso it was\n\n\nall day long\nthere\n"


@pytest.mark.parametrize("form", ["blank", "line", "tsv", "jsonl", "folder", "archive"])
def test_documents_are_the_same_from_every_form(
    form: str, pieces: Tokeniser, tmp_path: Path
) -> None:
    texts = [each.strip() for each in TEXT.split("\n\n")]
    path, field = tmp_path / "text", None
    if form == "blank":
        path.write_text(TEXT)
    elif form == "folder":
        path.mkdir()
        for number, text in enumerate(texts):
            (path / f"{number}.txt").write_text(text)
    elif form == "archive":
        path = tmp_path / "text.tar.gz"
        for number, text in enumerate(texts):
            (tmp_path / f"{number}.txt").write_text(text)
        with tarfile.open(path, "w:gz") as archive:
            for number in range(len(texts)):
                archive.add(tmp_path / f"{number}.txt", f"text/{number}.txt")
    else:
        texts = [text.replace("\n", ". ") for text in texts]
        path = tmp_path / f"text.{form}"
        written = {"line": "{}\n", "tsv": "x\t{}\n", "jsonl": '{{"text": "{}"}}\n'}[form]
        path.write_text("".join(written.format(text) for text in texts))
        field = {"tsv": 2, "jsonl": "text"}.get(form)
    boundary = "line" if form == "line" else None
    cut = "punctuation" if form in ("line", "tsv", "jsonl") else "lines"
    sources = document_sources(str(path), field, boundary=boundary, sentences=cut)
    for _ in range(2):  # the second time from the cache
        found = tokenise_documents(sources, pieces, folder=tmp_path / "cache")
        assert found.sentences.tolist() == [0, 2, 3, 5]
        spelled = pieces.decode(found.tokens(torch.arange(int(found.begins[-1]))))
        assert spelled.replace(".", "").split() == TEXT.split()


def test_some_documents_are_themselves(pieces: Tokeniser, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    every = tokenise_documents(
        document_sources(str(tmp_path / "a.txt")), pieces, folder=tmp_path / "cache"
    )
    some = every.only(torch.tensor([0, 2]))
    assert len(some) == 2
    assert pieces.decode(some.tokens(torch.arange(int(some.begins[-1])))).split() == (
        ["the", "old", "cat", "sat", "on", "a", "mat", "all", "day", "long", "there"]
    )


@pytest.mark.usefixtures("as_users_run_it")
def test_documents_that_cannot_be_read_are_named(pieces: Tokeniser, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no files in this folder"):
        document_sources(str(tmp_path / "empty"))
    (tmp_path / "torn.tar").write_bytes(b"no archive at all")
    with pytest.raises(UserError, match=r"torn\.tar: not a complete tar archive"):
        tokenise_documents(
            document_sources(str(tmp_path / "torn.tar")), pieces, folder=tmp_path / "cache"
        )
    (tmp_path / "a.txt").write_text("so it was\n")
    with pytest.raises(UserError, match="documents do not work with tokeniser"):
        tokenise_documents(
            document_sources(str(tmp_path / "a.txt")),
            train_tokeniser("word", ["so"]),
            folder=tmp_path,
        )
