"""What labels stand for: the losses of transformers, figures by hand, and predictions."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from regard.core.errors import UserError
from regard.outputs.classes import Classes
from regard.runs.recipe import parse_recipe
from regard.runs.run import create, load
from regard.tasks.problems import PROBLEMS
from tests.tasks.test_classify import RECIPE

TARGETS = {
    "single_label": torch.tensor([2, 0]),
    "multi_label": torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]),
    "regression": torch.tensor([[0.5, -2.0, 3.0], [0.0, 1.0, 9.0]]),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_loss_is_that_of_transformers_and_empty_rows_do_not_count(name: str) -> None:
    theirs = {"single_label": "single_label_classification"}
    theirs |= {"multi_label": "multi_label_classification", "regression": "regression"}
    config = BertConfig(
        vocab_size=9, hidden_size=4, num_attention_heads=1, num_hidden_layers=1, num_labels=3
    )
    config.problem_type = theirs[name]
    model = BertForSequenceClassification(config).eval()
    nn.init.normal_(model.classifier.weight)
    there = model(input_ids=torch.tensor([[1, 2], [3, 4]]), labels=TARGETS[name])
    problem = PROBLEMS[name]
    logits = torch.cat([there.logits, torch.ones(1, 3)])
    rows = torch.cat([TARGETS[name], TARGETS[name][:1]])
    targets = problem.without(rows, torch.tensor([False, False, True]))
    assert problem.real(targets).tolist() == [True, True, False]
    here = problem.loss(Classes(logits), targets) / 2
    torch.testing.assert_close(here, there.loss)


def test_figures_of_several_labels_are_counted_label_by_label() -> None:
    problem, labels = PROBLEMS["multi_label"], ("a", "b", "c")
    logits = torch.tensor([[9.0, -9.0, 9.0], [9.0, -9.0, -9.0]])
    counts = problem.counts(logits, TARGETS["multi_label"], labels, detailed=True)
    figures = problem.metrics({name: each / 2 for name, each in counts.items()}, labels)
    # a: found twice, there once: F1 2/3. b: never. c: found and there: F1 1.
    assert figures["accuracy"] == 0.5
    assert figures["macro_f1"] == pytest.approx((2 / 3 + 0 + 1) / 3)
    assert figures["micro_f1"] == pytest.approx(2 * 2 / (3 + 2))
    none = problem.prediction("t", [0.1, 0.2, 0.3], labels)
    assert (none.text, none.fields["labels"]) == ("\t", [])


def test_figures_of_numbers_are_error_and_correlation() -> None:
    problem = PROBLEMS["regression"]
    said, true = torch.randn(50, 1), torch.randn(50, 1)
    counts = problem.counts(said, true, ("value",), detailed=True)
    figures = problem.metrics({name: each / 50 for name, each in counts.items()}, ("value",))
    assert figures["mean_absolute_error"] == pytest.approx((said - true).abs().mean().item())
    expected = torch.corrcoef(torch.cat([said, true], 1).T)[0, 1].item()
    assert figures["pearson"] == pytest.approx(expected, abs=1e-5)
    constant = problem.counts(torch.ones(3, 1), torch.ones(3, 1), ("value",), detailed=True)
    same = problem.metrics({name: each / 3 for name, each in constant.items()}, ("value",))
    assert same == {"mean_absolute_error": 0.0, "pearson": 0.0}


def test_labels_that_do_not_suit_are_named_with_their_place() -> None:
    with pytest.raises(UserError, match=r"f:3: the label 'x' is not among those"):
        PROBLEMS["multi_label"].target(["a", "x"], ("a", "b"), "f:3")
    for wrong in ("much", "nan", [1.0, 2.0]):
        with pytest.raises(UserError, match=r"f:3: the label .* must be 1 finite number,"):
            PROBLEMS["regression"].target(wrong, ("value",), "f:3")


def test_a_run_learns_numbers(tmp_path: Path) -> None:
    rows = [f"the film was {w}\t{n}" for w, n in (("great", 3.5), ("bad", -1), ("so", 1))] * 12
    (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n")
    changes = ["data={train='train.tsv', validation='train.tsv', text=1, label=2}"]
    changes += ['data.problem="regression"', "train.epochs=60"]
    run = create(parse_recipe(RECIPE, "tiny", changes), tmp_path / "run", tmp_path, "cpu")
    run.train()
    figures = run.evaluate("validation")
    assert figures["pearson"] > 0.99
    assert figures["mean_absolute_error"] < 0.3
    again = load(tmp_path / "run", "cpu")
    (answer,) = again.predict(["the film was great"])
    value = answer.fields["value"]
    assert isinstance(value, float)
    assert math.isclose(value, 3.5, abs_tol=0.5)
    assert answer.text == f"{value:.4f}"
    with pytest.raises(UserError, match="an audit is of the class"):
        again.task.subject("validation", most=4, seed=0)
    with pytest.raises(UserError, match=r"class_weights .* not \'regression\'"):
        parse_recipe(RECIPE, "tiny", [*changes, 'data.class_weights="balanced"'])
