"""Translating and looking from the command line, with a translator trained for a moment."""

import json
import re
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.attention import record, sites_of
from regard.core.inputs import Text
from regard.data.text.parallel import encode_pairs
from regard.inference.align import alignments
from regard.inference.translate import SiteChoice, output_alignment, translations
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create, load
from regard.tasks.translate import Translation
from tests.cli.command import Regard

TINY = """
task = "translate"
[about]
title = "Tiny dates"
paper = "nobody"
minutes = 0.1
[data]
generate = { name = "dates", train = 300, validation = 20, test = 20 }
tokeniser = "char"
batch = 32
scores = ["exact", "bleu"]
search = { width = 3, max_length = 14, max_per_source = 0.0 }
[model]
kind = "%s"
width = 16
%s
[train]
updates = 3
optimiser = { name = "adam", lr = 1e-3 }
"""
KINDS = {
    "bahdanau": "hidden = 20",
    "transformer": "heads = 2\nhidden = 32\nencoder_layers = 1\ndecoder_layers = 2",
    "encoder_decoder": "",
}
LINES = ["3 mai 1998", "", "12 July 2026", "   ", "den 4. August 2001", "$x_{\t<b>", "日"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each kind."""
    folder, made = tmp_path_factory.mktemp("runs"), {}
    for kind, rest in KINDS.items():
        run = create(parse_recipe(TINY % (kind, rest), kind), folder / kind, folder, "cpu")
        run.train()
        made[kind] = load(folder / kind, "cpu")
    return made


def looked(run: Run, lines: list[str], width: int) -> list[tuple[str, dict[str, torch.Tensor]]]:
    task = run.task
    assert isinstance(task, Translation)
    beam = task.beam.__class__(**{**vars(task.beam), "width": width})
    every = translations(task, run.model, lines, beam=beam, choice=SiteChoice())
    return [(each.outputs.text, each.weights[0] if each.weights else {}) for each in every]


@pytest.mark.parametrize("kind", ["bahdanau", "transformer"])
@pytest.mark.parametrize("width", [1, 4])
def test_the_looks_of_a_translation_are_those_of_writing_it_alone(
    kind: str, width: int, runs: dict[str, Run]
) -> None:
    """The beam that won is followed through its ancestry: forced through the model again, it looks
    where the search said it looked."""
    run, task = runs[kind], runs[kind].task
    assert isinstance(task, Translation)
    for line, (_, looks) in zip(LINES, looked(run, LINES, width), strict=True):
        if not line.strip():
            assert not looks
            continue
        (again,) = translations(task, run.model, [line], beam=None, choice=None)
        source = task.numbering.source.encode(again.outputs.source.title)
        beam = task.beam.__class__(**{**vars(task.beam), "width": width})
        (alone,) = task.translate(run.model, [Text(line)], beam=beam)
        said = alone.outputs[0].hypothesis.tokens
        batch = {
            "source": torch.tensor([[*source, 3]]),
            "source_lengths": torch.tensor([len(source) + 1]),
            "tokens": torch.tensor([[2, *said]]),
        }
        with torch.no_grad(), record(run.model, list(looks)) as tape:
            run.model(batch)
        for site, weights in looks.items():
            want = tape.join(site)[0]
            torch.testing.assert_close(weights[..., : want.shape[2]], want, atol=1e-5, rtol=0)
            assert weights[..., want.shape[2] :].abs().sum() == 0


def test_lines_keep_their_order_whatever_the_chunk(regard: Regard, runs: dict[str, Run]) -> None:
    folder, text = str(runs["bahdanau"].folder), "".join(f"{line}\n" for line in LINES)
    whole = regard("translate", folder, text=text)
    assert whole.returncode == 0
    assert whole.stdout.count("\n") == len(LINES)
    rows = whole.stdout.split("\n")
    assert [not row for row in rows[:-1]] == [not line.strip() for line in LINES]
    assert regard("translate", folder, "--chunk", "1", text=text).stdout == whole.stdout
    aligned = regard("translate", folder, "--alignments", "--scores", text=text).stdout.split("\n")
    assert [row.split("\t")[0] for row in aligned] == rows
    assert all(len(row.split("\t")) == 3 for row in aligned if row)


def test_n_best_and_json(regard: Regard, runs: dict[str, Run]) -> None:
    folder = str(runs["bahdanau"].folder)
    shown = regard("translate", folder, "--nbest", "3", "--json", text="3 mai 1998\n\n")
    held = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [each["line"] for each in held] == [0, 0, 0, 1]
    assert held[3] == {"line": 1, "text": ""}
    scores = [each["score"] for each in held[:3]]
    assert scores == sorted(scores, reverse=True)
    table = regard("translate", folder, "--nbest", "2", "--scores", text="3 mai 1998\n")
    assert [row.split("\t")[0] for row in table.stdout.splitlines()] == ["0", "0"]


@pytest.mark.parametrize("kind", ["bahdanau", "transformer"])
@pytest.mark.parametrize("form", ["png", "svg", "html"])
def test_look_draws(kind: str, form: str, regard: Regard, runs: dict[str, Run]) -> None:
    hostile = "3 mai <script>alert(1)</script> $x$"
    done = regard("look", str(runs[kind].folder), hostile, "-o", f"seen.{form}")
    assert done.returncode == 0, done.stderr
    held = Path(f"seen.{form}").read_bytes()
    assert len(held) > 3000
    assert b"<script>alert" not in held
    assert (b"&lt;script&gt;" in held) == (form == "html")  # in the title


def test_what_is_looked_at_has_the_letters_and_the_numbers(runs: dict[str, Run]) -> None:
    run = runs["bahdanau"]
    (payload,) = run.look("3 mai")
    assert payload.keys.labels == (*"3 mai", "<eos>")
    assert payload.queries[-1] == "<eos>"
    assert payload.weights.shape == (1, len(payload.queries), 6)
    np.testing.assert_allclose(payload.weights.sum(2), 1, atol=1e-5)
    grid = runs["transformer"].look("3 mai")
    assert [each.site for each in grid[:2]] == ["decoder.0.cross", "decoder.1.cross"]
    assert {each.site for each in grid} == set(sites_of(runs["transformer"].model))
    assert all(each.weights.shape[0] == 2 for each in grid)
    one = runs["transformer"].look("3 mai", "decoder.1.*", heads=[1])
    assert [(each.site, each.weights.shape[0], each.axes) for each in one] == [
        ("decoder.1.cross", 1, ("target", "source")),
        ("decoder.1.attention", 1, ("target", "prefix")),
    ]
    np.testing.assert_array_equal(one[0].weights[0], grid[1].weights[1])
    assert one[1].keys.labels == ("<s>", *one[1].queries[:-1])
    (encoder, *_) = runs["transformer"].look("3 mai", "encoder.*")
    assert encoder.queries == encoder.keys == payload.keys


def test_words_of_an_output_are_counted_by_their_blanks(runs: dict[str, Run]) -> None:
    task = runs["bahdanau"].task
    assert isinstance(task, Translation)
    target = task.numbering.target
    (line,) = translations(task, runs["bahdanau"].model, ["3 mai"], choice=SiteChoice())
    said = line.outputs.outputs[0]
    hypothesis = said.hypothesis.__class__(target.encode("19-0"), 0.0, 0.0, [0] * 5)
    assert task.target_words(hypothesis.tokens, "3 mai") == [0, 0, 0, 0]
    assert all("-" in part for part in output_alignment(task, line).split())


def test_what_cannot_be_done_is_said(regard: Regard, runs: dict[str, Run]) -> None:
    blind = str(runs["encoder_decoder"].folder)
    no = regard("translate", blind, "--alignments", text="3 mai\n")
    assert (no.returncode, "no attention" in no.stderr) == (2, True)
    assert regard("translate", blind, text="3 mai\n").returncode == 0
    folder = str(runs["bahdanau"].folder)
    assert "text is empty" in regard("look", folder, "  ").stderr
    assert "did you mean" in regard("look", folder, "3 mai", "--site", "atend").stderr
    assert "must end in one of" in regard("look", folder, "3 mai", "-o", "a.gif").stderr
    generated = regard("generate", folder, "--prompt", "3")
    assert "task translate does not support generation" in generated.stderr
    assert "n_best=5" in regard("translate", folder, "--nbest", "5", "--beam", "2").stderr


def test_copied_words_are_aligned_and_cut_lines_are_called_by_their_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        (TINY % ("pointer_generator", "hidden = 20"))
        .replace('"dates"', '"copy"')
        .replace("char", "word")
    )
    text = text.replace(
        "[model]", 'copies = true\nmin_frequency = 20\nmax_length = 12\ntoo_long = "cut"\n[model]'
    )
    run = create(parse_recipe(text, "copy"), tmp_path / "run", tmp_path, "cpu")
    task = run.task
    assert isinstance(task, Translation)
    lines = ["tell Xavonir", "tell Xavonir " + "that 48213 is ready " * 4, ""]
    every = list(translations(task, run.model, lines, choice=SiteChoice(), name="in.txt"))
    assert "in.txt:2: " in caplog.text
    assert "in.txt:1: " not in caplog.text
    vocabulary = task.numbering.target.vocabulary
    said = every[0].outputs.outputs[0].hypothesis.__class__([vocabulary, 4], 0.0, 0.0, [0] * 3)
    assert task.target_words(said.tokens, every[0].outputs.source.title) == [0, 1]
    assert output_alignment(task, every[0]) is not None


def test_the_card_says_how_scores_were_computed(runs: dict[str, Run]) -> None:
    card = (runs["bahdanau"].folder / "README.md").read_text()
    assert "bleu: nrefs:1|" in card
    assert "300 pairs kept" in card


def test_from_python(runs: dict[str, Run]) -> None:
    done = runs["bahdanau"].translate(["3 mai 1998", "", "4 mai"])
    assert [bool(each) for each in done] == [True, False, True]


def test_translators_are_reported_by_length_side_by_side(
    runs: dict[str, Run], place: Path, regard: Regard
) -> None:
    both = [str(runs[kind].folder) for kind in ("bahdanau", "encoder_decoder")]
    done = regard("report", *both, "--score", "bleu", "--bands", "2,3", "-o", "lengths.png")
    assert done.returncode == 0, done.stderr
    head, *bands, last = (line.split("\t") for line in done.stdout.splitlines())
    assert head == ["words", "sentences", "bahdanau", "encoder_decoder"]
    assert [band[0] for band in bands] == ["0-2", "3-3", "4+"]
    assert sum(int(band[1]) for band in bands) == 20
    task = runs["bahdanau"].task
    assert isinstance(task, Translation)
    known = task.by_length(runs["bahdanau"].model, "test", "bleu", [2, 3])
    assert [band[2] for band in bands] == [f"{each.value:.2f}" for each in known]
    assert last == ["lengths.png: 20 sentences of test"]
    assert (place / "lengths.png").read_bytes().startswith(b"\x89PNG")
    assert "whole numbers" in regard("report", *both, "--bands", "2,x").stderr
    assert "lengths that grow" in regard("report", *both, "--bands", "3,2").stderr
    assert "did you mean 'bleu'" in regard("report", *both, "--score", "blue").stderr


def test_translations_begin_as_they_are_told(
    runs: dict[str, Run], place: Path, regard: Regard
) -> None:
    folder = str(runs["bahdanau"].folder)
    asked = "3 mai 1998\t2024-0\n\t2\n12 July 2026\n"
    for workers in ("1", "2"):
        done = regard("translate", folder, "--prefixes", "--workers", workers, text=asked)
        assert done.returncode == 0, done.stderr
        told, empty, free = done.stdout.splitlines()
        assert told.startswith("2024-0")
        assert (empty, free) == ("", runs["bahdanau"].translate(["12 July 2026"])[0])
    long = regard("translate", folder, "--prefixes", text=f"\n1 mai\n3 mai 1998\t{'2' * 40}\n")
    assert long.returncode == 2
    assert "stdin:3: the beginning has 40 tokens, but only 14 may be written" in long.stderr


def test_coverage_ranks_by_what_was_looked_at(
    runs: dict[str, Run], place: Path, regard: Regard
) -> None:
    run = runs["transformer"]
    task = run.task
    assert isinstance(task, Translation)
    said = regard(
        *("translate", str(run.folder), "--coverage", "5", "--nbest", "3", "--json"),
        text="3 mai 1998\n12 July\n",
    )
    assert said.returncode == 0, said.stderr
    beam = task.beam.__class__(**{**vars(task.beam), "width": 3, "n_best": 3, "coverage": 5.0})
    lines = ["3 mai 1998", "12 July"]
    scores = [json.loads(line)["score"] for line in said.stdout.splitlines()]
    every = translations(task, run.model, lines, beam=beam, choice=SiteChoice())
    expected = []
    for line in every:
        for output, looks in zip(line.outputs.outputs, line.weights, strict=True):
            mean = torch.cat(list(looks.values())).mean(0)  # [T,S]
            here = mean[:, : len(task.numbering.source.encode(line.outputs.source.title)) + 1]
            covered = here.sum(0).clamp(max=1.0).log().sum()
            likely = output.hypothesis.log_probability
            penalty = beam.penalty(len(output.hypothesis.tokens) + 1)
            expected.append(likely / penalty + 5.0 * float(covered))
    assert scores == pytest.approx(expected, abs=1e-4)
    refused = regard(
        "translate", str(runs["encoder_decoder"].folder), "--coverage", "1", text="a\n"
    )
    assert "no attention" in refused.stderr


@pytest.mark.parametrize("kind", ["bahdanau", "transformer"])
def test_given_translations_are_aligned_as_written_ones_are(
    kind: str, runs: dict[str, Run], place: Path, regard: Regard
) -> None:
    """What a model wrote, given back to it, is aligned as it was while it was written."""
    run = runs[kind]
    told = [text for text in LINES if text.strip()]
    asked = ("translate", str(run.folder), "--alignments", "--min-length", "5")
    wrote = regard(*asked, text="\n".join(told) + "\n")
    texts, links = zip(*(line.split("\t") for line in wrote.stdout.splitlines()), strict=True)
    (place / "a.txt").write_text("\n".join([*told, ""]) + "\n")
    (place / "b.txt").write_text("\n".join([*texts, "2001"]) + "\n")
    done = regard("align", str(run.folder), "a.txt", "b.txt")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*links, ""]
    assert all(links)
    (place / "gold.txt").write_text("\n".join([*links, ""]) + "\n")
    measured = regard("align", str(run.folder), "a.txt", "b.txt", "--gold", "gold.txt")
    assert f"alignment error rate 0.0000 over {len(told) + 1} pairs" in measured.stderr
    rows = [row for row in zip(texts, told, links, strict=True) if "\t" not in row[1]]
    (place / "both.tsv").write_text("".join(f"{b}\t{a}\n" for b, a, _ in rows))
    swapped = regard("align", str(run.folder), "both.tsv", "--fields", "2,1")
    assert swapped.stdout.splitlines() == [link for _, _, link in rows]


def test_each_word_of_a_given_translation_has_the_links_of_its_own_letters(
    runs: dict[str, Run],
) -> None:
    run, task = runs["bahdanau"], runs["bahdanau"].task
    assert isinstance(task, Translation)
    model = deepcopy(run.model)
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(8)  # an untrained look is too even to tell one word from another
    pairs = [("3 mai 1998 b", "2001 05 03 7 1998"), ("den 4. August", "12 9 1 2 3 4 5")]
    found = list(alignments(task, model, pairs))
    assert len({source for source, _ in found[0] | found[1]}) > 1, "a test that could not fail"
    for (source, target), links in zip(pairs, found, strict=True):
        batch = encode_pairs([(source, target)], task.numbering, whole=True)[0].gather(
            torch.tensor([0])
        )
        with torch.no_grad(), record(model.eval(), "*") as tape:
            model(batch)
        looks = torch.cat([tape.join(site) for site in tape.sites], dim=1).mean((0, 1))
        for row, (begin, end) in enumerate(spans(target)):
            look = looks[begin:end].mean(0)
            sums = [float(look[first:last].sum()) for first, last in spans(source)]
            assert (sums.index(max(sums)), row) in links


def spans(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


def test_alignments_that_cannot_be_made_are_told(
    runs: dict[str, Run], place: Path, regard: Regard
) -> None:
    (place / "a.txt").write_text("3 mai\n")
    (place / "gold.txt").write_text("0-0 x\n")
    folder = str(runs["bahdanau"].folder)
    assert "gold.txt:1" in regard("align", folder, "a.txt", "a.txt", "--gold", "gold.txt").stderr
    assert "--fields takes" in regard("align", folder, "a.tsv", "--fields", "1").stderr
    plain = regard("align", str(runs["encoder_decoder"].folder), "a.txt", "a.txt")
    assert (plain.returncode, "no attention" in plain.stderr) == (2, True)
