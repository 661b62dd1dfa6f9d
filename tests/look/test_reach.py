"""How far gradients reach: they are those of the model, and attention carries them further."""

import sys
from pathlib import Path

import pytest
import torch

from regard.attention import record
from regard.cli import main
from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.explain.gradient_reach import (
    ALONE,
    WITH,
    WITHOUT,
    gradient_norms,
    gradient_reach,
    zero_weights,
)
from regard.inference.pictures import position_table, view_run
from regard.models.language.attention_rnn_lm import AttentionRNNLM
from regard.models.language.rnn_lm import RNNLM
from regard.models.translation.bahdanau import Bahdanau
from regard.runs.recipe import parse_recipe
from regard.runs.run import Run, create
from regard.tasks.abilities import ReachesBack
from tests.recipes.test_recipes import SMALL


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A tiny GPT, trained for a moment."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text("to be or not to be that is the question\n" * 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        made = create(parse_recipe(SMALL, "small"), folder / "gpt", folder, "cpu")
        made.train()
    made.model.eval()
    return made


def test_lengths_are_the_gradients_of_the_embeddings() -> None:
    model = RNNLM(RNNLM.Config(width=8, layers=1), vocabulary=10).eval()
    tokens = torch.tensor([[1, 2, 3, 2]])

    def predict() -> torch.Tensor:
        value: torch.Tensor = model({"tokens": tokens}).logits()[0, -1].log_softmax(0).max()
        return value

    found = gradient_norms(model, tokens, predict)
    (table,) = (each for each in model.modules() if isinstance(each, torch.nn.Embedding))
    table.weight.grad = None
    predict().backward()
    assert table.weight.grad is not None
    whole = [float(table.weight.grad[token].norm()) for token in (1, 3)]
    assert [found[0], found[2]] == pytest.approx(whole, rel=1e-4)
    assert all(length > 0 for length in found)
    assert not table._forward_hooks, "nothing is left in the model"


def test_without_attention_an_rnn_reaches_as_far_as_its_recurrence() -> None:
    model = AttentionRNNLM(AttentionRNNLM.Config(width=8, layers=1, memory=20), 10).eval()
    torch.nn.init.normal_(model.join.weight, std=2.0)
    tokens = torch.randint(1, 10, (1, 18))

    def predict() -> torch.Tensor:
        value: torch.Tensor = model({"tokens": tokens}).logits()[0, -1].log_softmax(0).max()
        return value

    from regard.attention import intervene

    whole = gradient_norms(model, tokens, predict)
    with intervene(model, {"*": zero_weights}), record(model) as tape:
        rest = gradient_norms(model, tokens, predict)
    assert not tape.weights(tape.sites[0]).any()
    assert whole[0] > 10 * rest[0], "through attention, the first token is one step away"


def test_a_translator_that_reads_backwards_keeps_the_order_of_its_source() -> None:
    model = Bahdanau(Bahdanau.Config(width=4, hidden=8), 10, 12).eval()
    batch = {
        "source": torch.tensor([[4, 5, 6, 3]]),
        "source_lengths": torch.tensor([4]),
        "tokens": torch.tensor([[1, 4, 5]]),
    }

    def predict() -> torch.Tensor:
        value: torch.Tensor = model(batch).logits()[0, -1].log_softmax(0).max()
        return value

    found = gradient_norms(model, batch["source"], predict)
    assert len(found) == 4
    assert all(length > 0 for length in found)


def test_a_run_says_how_far_it_reaches(run: Run, as_users_run_it: None) -> None:
    assert isinstance(run.task, ReachesBack)
    found = gradient_reach(run.task, run.model, Text("to be"))
    assert found.axis.labels == tuple("to be")
    assert set(found.norms) == {WITH, WITHOUT}
    assert all(norm > 0 for norm in found.norms[WITH])
    assert found.norms[WITHOUT][:-1] == (0.0,) * 4, "without it, a GPT depends on one token"
    assert ALONE not in found.norms
    with pytest.raises(UserError, match="text is empty"):
        gradient_reach(run.task, run.model, Text(""))
    with pytest.raises(UserError, match="at most 20,000 are allowed"):
        gradient_reach(run.task, run.model, Text("x" * 10**6))


VIEWS = ("matrix", "heads", "links", "text", "rollout", "reach", "positions", "curves")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_a_run_can_be_drawn(run: Run, tmp_path: Path, view: str) -> None:
    path, what = view_run(run.folder, "to be", view, tmp_path / f"{view}.png", device="cpu")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert what


def test_without_a_view_there_is_the_page(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.folder)
    path, what = view_run(run.folder, "to be", None, None, device="cpu")
    assert (str(path), what) == ("attention.html", "layers.0.attention")
    assert b"regard-data" in path.read_bytes()


def test_the_verb_draws_and_says_where_it_went(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    asked = ["regard", "look", str(run.folder), "to be", "-o", str(page), "--view", "text"]
    monkeypatch.setattr(sys, "argv", asked)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code in (0, None)
    assert capsys.readouterr().out == f"{page}: layers.0.attention\n"
    assert '{"view":"text"' in page.read_text(encoding="utf-8")


def test_what_a_view_cannot_do_is_said(run: Run, tmp_path: Path, as_users_run_it: None) -> None:
    picture = tmp_path / "a.png"
    with pytest.raises(UserError, match="did you mean 'curves'"):
        view_run(run.folder, "to be", "curve", picture)
    with pytest.raises(UserError, match="the view links needs an input"):
        view_run(run.folder, None, "links", picture)
    with pytest.raises(UserError, match="text is empty"):
        view_run(run.folder, " ", "links", picture)
    with pytest.raises(UserError, match="no run folder"):
        view_run(tmp_path / "nowhere", None, "curves", picture)
    with pytest.raises(UserError, match="must end in one of"):
        view_run(run.folder, None, "curves", tmp_path / "a.html")
    (tmp_path / "config.json").write_text((run.folder / "config.json").read_text())
    with pytest.raises(UserError, match="cannot be read as a log"):
        view_run(tmp_path, None, "curves", picture)
    with pytest.raises(UserError, match="no position encodings"):
        position_table(RNNLM(RNNLM.Config(width=8, layers=1), vocabulary=10))
    assert not picture.exists()


def test_a_text_that_is_too_long_is_refused_before_it_is_read(
    run: Run, as_users_run_it: None
) -> None:
    for long in ("x" * 10**6, "to be " * 5000):
        with pytest.raises(UserError, match="at most 20,000 are allowed"):
            run.look(long)
        with pytest.raises(UserError, match="at most 20,000 are allowed"):
            view_run(run.folder, long, "reach", run.folder / "a.png")
