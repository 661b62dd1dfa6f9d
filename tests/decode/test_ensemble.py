"""Ensembles: the mean of probabilities, step by step, under any search."""

import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
import torch

import regard
from regard.cli import main
from regard.core.errors import UserError
from regard.decode.ensemble import Ensemble
from regard.models.language.rnn_lm import RNNLM
from regard.models.translation.transformer import Transformer
from regard.runs.ensemble import together
from regard.train.display import SilentDisplay

SOURCE = {"source": torch.tensor([[4, 5, 3], [6, 3, 0]]), "source_lengths": torch.tensor([3, 2])}


def translator(seed: int) -> Transformer:
    torch.manual_seed(seed)
    config = Transformer.Config(
        width=16, hidden=16, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0
    )
    return Transformer(config, vocabulary=9, source_vocabulary=9).eval()


def test_steps_are_the_mean_of_probabilities() -> None:
    models = [translator(seed) for seed in (1, 2, 3)]
    both = Ensemble(models).eval()
    state, states = both.start(SOURCE), [each.start(SOURCE) for each in models]
    for tokens in (torch.tensor([2, 2]), torch.tensor([4, 5])):
        logits, state = both.step(tokens, state)
        each = [model.step(tokens, own) for model, own in zip(models, states, strict=True)]
        states = [after for _, after in each]
        mean = torch.stack([own.softmax(-1) for own, _ in each]).mean(0)
        assert torch.allclose(logits.exp(), mean, atol=1e-6)
        assert torch.allclose(logits.softmax(-1), mean, atol=1e-6)
    turned, _ = both.step(torch.tensor([5, 4]), state.select(torch.tensor([1, 0])))
    straight, _ = both.step(torch.tensor([4, 5]), state)
    assert torch.allclose(turned.flip(0), straight, atol=1e-5)


def test_what_cannot_write_is_refused() -> None:
    with pytest.raises(UserError, match="a Linear cannot write"):
        Ensemble([torch.nn.Linear(2, 2)])
    assert len(Ensemble([RNNLM(RNNLM.Config(width=4), 5)]).models) == 1


def test_runs_translate_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [("ja", "yes"), ("nein", "no")] * 10
    small = {"train.epochs": 1, "model.width": 16, "data.vocabulary": 300}
    runs = [
        regard.fit("translate", given, folder=tmp_path / name, display=SilentDisplay(),
                   changes={**small, "train.seed": seed})
        for name, seed, given in (("a", 1, pairs), ("b", 2, pairs), ("c", 1, [("x", "y z")] * 20))
    ]  # fmt: skip
    once = runs[0].translate(["ja", "nein"])
    assert together(runs[0], [runs[0]]).translate(["ja", "nein"]) == once
    with pytest.raises(UserError, match="other tokenisers"):
        together(runs[0], [runs[2]])
    words = ["translate", str(tmp_path / "a"), "--with", str(tmp_path / "b")]
    monkeypatch.setattr(sys, "argv", ["regard", *words])
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"ja\nnein\n"), encoding="utf-8"))
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code
    expected = together(runs[0], [runs[1]]).translate(["ja", "nein"])
    assert capsys.readouterr().out.splitlines() == expected
