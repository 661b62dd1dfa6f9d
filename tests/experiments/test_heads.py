"""The importance of heads against finite differences, and pruned models against masked heads."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.attention import intervene, without
from regard.attention.tape import Look
from regard.core.errors import UserError
from regard.decode import GenerationRequest, Greedy, generate
from regard.experiments.heads import (
    FirstBatches,
    Head,
    gate_gradients,
    head_importance,
    heads_to_keep,
    prune_heads,
    save_pruned,
)
from regard.export.ctranslate2 import export_ctranslate2
from regard.layers.text_encoder import Encoding
from regard.models.language.gpt import GPTState, GPTStepState
from regard.runs.pretrained import save_pretrained
from regard.runs.recipe import build_recipe
from regard.runs.run import Run, create, load

ENCODER = {"width": 12, "heads": 3, "layers": 2, "hidden": 8, "context": 32, "dropout": 0.1}
ROWS = ["a good dog\tyes", "a bad cat\tno", "good cats\tyes", "no dog\tno", "bad bad cat\tno"] * 4


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "train.tsv").write_text("\n".join(ROWS) + "\n")
    recipe = build_recipe(
        {
            "task": "classify",
            "about": {"title": "t", "paper": "p", "minutes": 1.0},
            "data": {
                "train": "train.tsv",
                "text": [1],
                "label": 2,
                "tokeniser": "wordpiece",
                "vocabulary": 40,
                "validation": 0.2,
                "evaluate_batch": 2,
            },
            "model": {"kind": "bert_classifier", "encoder": ENCODER},
            "train": {"updates": 2, "optimiser": {"name": "adamw", "lr": 1e-3}},
        }
    )
    made = create(recipe, tmp_path / "run", tmp_path)
    torch.manual_seed(1)
    for each in made.model.parameters():
        torch.nn.init.normal_(each, std=0.3)
    made.model.eval()
    return made


def test_importance_is_the_finite_difference_of_the_loss_in_each_gate(run: Run) -> None:
    run.model.double()
    few = FirstBatches(run.task.evaluation("validation"), 2)
    found = gate_gradients(run, few)
    site, head, small = "encoder.1.attention", 2, 1e-5

    def scaled(by: float) -> Tensor:
        def edit(weights: Tensor, look: Look) -> Tensor:
            gate = torch.ones(3, 1, 1, dtype=weights.dtype)
            gate[head] = by
            return weights * gate

        losses = []
        for index in range(len(few)):
            batch = few.batch(0, index)
            with torch.no_grad(), intervene(run.model, {site: edit}):
                logits = run.model(batch).logits
            classes = batch["classes"]
            losses.append(torch.nn.functional.cross_entropy(logits, classes, reduction="none"))
        return torch.cat(losses)

    slopes = (scaled(1 + small) - scaled(1 - small)) / (2 * small)
    assert found[site][head].item() == pytest.approx(slopes.abs().mean().item(), rel=1e-4)
    assert {name: len(each) for name, each in found.items()} == {
        "encoder.0.attention": 3,
        "encoder.1.attention": 3,
    }


def test_a_head_without_output_has_no_importance(run: Run) -> None:
    with torch.no_grad():
        run.model.get_parameter("encoder.0.attention.merge.weight")[:, 4:8] = 0.0
    ranked = head_importance(run, batches=2, ablate=True)
    assert len(ranked) == 6
    assert (ranked[-1].site, ranked[-1].head) == ("encoder.0.attention", 1)
    assert ranked[-1].importance == 0.0
    assert ranked[-1].loss_without == pytest.approx(0.0, abs=1e-6)
    assert all(each.loss_without for each in ranked[:-1])


def test_a_pruned_model_computes_what_masked_heads_compute(run: Run, tmp_path: Path) -> None:
    kept = {"encoder.0.attention": [1], "encoder.1.attention": [0, 2]}
    shut = {"encoder.0.attention": without(0, 2), "encoder.1.attention": without(1)}
    batch = run.task.evaluation("validation").batch(0, 0)
    left = save_pruned(run, tmp_path / "left", tmp_path, kept)
    with torch.no_grad(), intervene(run.model, shut):
        expected = run.model(batch).logits
    with torch.no_grad():
        torch.testing.assert_close(left.model(batch).logits, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            load(tmp_path / "left").model(batch).logits, left.model(batch).logits
        )
    assert left.model.encoder.config.heads_left == (1, 2)
    sizes = [sum(each.numel() for each in one.model.parameters()) for one in (run, left)]
    assert sizes[0] - sizes[1] == 3 * (4 * 4 * 12 + 3 * 4)  # of 3 heads: q, k, v, merge; 3 biases


GPT_BODY = {"width": 12, "heads": 3, "layers": 2, "context": 32}


def gpt_run(tmp_path: Path, **model: object) -> Run:
    (tmp_path / "plain.txt").write_text("a good dog\nand a bad cat\n" * 20)
    made = create(
        build_recipe(
            {
                "task": "language_model",
                "about": {"title": "t", "paper": "p", "minutes": 1.0},
                "data": {
                    "train": "plain.txt",
                    "validation": 0.2,
                    "tokeniser": "char",
                    "window": 8,
                    "order": "random",
                    "batch": 2,
                },
                "model": {"kind": "gpt", **GPT_BODY, **model},
                "train": {"updates": 2, "optimiser": {"name": "adamw", "lr": 1e-3}},
            }
        ),
        tmp_path / "gpt",
        tmp_path,
    )
    torch.manual_seed(1)
    for each in made.model.parameters():
        torch.nn.init.normal_(each, std=0.3)
    made.model.eval()
    return made


@pytest.mark.parametrize("settings", [{}, {"bias": False}, {"position": "rotary", "width": 18}])
def test_a_pruned_gpt_predicts_and_generates_as_with_masked_heads(
    settings: dict[str, object], tmp_path: Path
) -> None:
    run = gpt_run(tmp_path, **settings)
    kept = {"layers.0.attention": [1], "layers.1.attention": [0, 2]}
    shut = {"layers.0.attention": without(0, 2), "layers.1.attention": without(1)}
    left = load(save_pruned(run, tmp_path / "left", tmp_path, kept).folder)
    tokens = torch.tensor([[5, 6, 7, 8]])
    request = GenerationRequest(policy=Greedy(), max_tokens=12)
    with torch.no_grad(), intervene(run.model, shut):
        expected, texts = (
            run.model({"tokens": tokens}).logits(),
            generate(run.model, [[5], [6, 7]], request),
        )
    with torch.no_grad():
        torch.testing.assert_close(
            left.model({"tokens": tokens}).logits(), expected, atol=1e-5, rtol=1e-5
        )
    assert generate(left.model, [[5], [6, 7]], request) == texts
    assert isinstance(left.model.start({"tokens": tokens}), GPTState)  # with gradients
    with torch.no_grad():
        state = left.model.start({"tokens": tokens})
    assert isinstance(state, GPTStepState)  # as fast as the whole
    assert [each.memory.key.shape[1] for each in state.store.caches()] == [1, 2]
    rows = torch.tensor([0, 0])
    assert [each.memory.key.shape[:2] for each in state.select(rows).store.caches()] == [
        (2, 1),
        (2, 2),
    ]
    with pytest.raises(UserError, match=r"heads_left=\(1, 2\)"):
        export_ctranslate2(left.model, tmp_path / "ct2", words=[], specials={})
    with pytest.raises(UserError, match=r"has heads_left=None, not \(1, 2\)"):
        save_pretrained(left, tmp_path / "out")


def test_the_head_ranking_of_a_gpt_names_sites_that_pruning_takes(tmp_path: Path) -> None:
    run = gpt_run(tmp_path)
    ranked = head_importance(run, batches=2)
    left = prune_heads(run, heads_to_keep(ranked, 0.5))
    assert sum(left.model.config.heads_left) == 3
    for settings, why in (
        ({"key_heads": 1}, "share their keys"),
        ({"score": "bilinear"}, "learnt score"),
    ):
        (tmp_path / why).mkdir()
        with pytest.raises(UserError, match=why):
            prune_heads(gpt_run(tmp_path / why, **settings), heads_to_keep(ranked, 1.0))


def test_a_classifier_on_a_gpt_is_pruned_too(run: Run, tmp_path: Path) -> None:
    recipe = build_recipe(
        {
            "task": "classify",
            "about": {"title": "t", "paper": "p", "minutes": 1.0},
            "data": {**run.recipe.data.model_dump(exclude_none=True), "template": "gpt"},
            "model": {"kind": "gpt_classifier", "body": GPT_BODY},
            "train": {"updates": 2, "optimiser": {"name": "adamw", "lr": 1e-3}},
        }
    )
    made = create(recipe, tmp_path / "classes", tmp_path)
    made.model.eval()
    batch = made.task.evaluation("validation").batch(0, 0)
    kept = {"body.layers.0.attention": [2], "body.layers.1.attention": [0, 1, 2]}
    left = load(save_pruned(made, tmp_path / "fewer", tmp_path, kept).folder)
    with torch.no_grad(), intervene(made.model, {"body.layers.0.attention": without(0, 1)}):
        expected = made.model(batch).logits
    with torch.no_grad():
        torch.testing.assert_close(left.model(batch).logits, expected, atol=1e-5, rtol=1e-5)


def test_what_cannot_be_pruned_or_saved_is_an_error(
    run: Run, tmp_path: Path, as_users_run_it: None
) -> None:
    kept = {f"encoder.{number}.attention": [0] for number in range(2)}
    left = prune_heads(run, kept)
    with pytest.raises(UserError, match="pruned already"):
        prune_heads(left, kept)
    with pytest.raises(UserError, match=r"bert has heads_left=None, not \(1, 1\)"):
        save_pretrained(left, tmp_path / "out")
    with pytest.raises(UserError, match="keep=0 must be a share"):
        heads_to_keep([Head("a", 0, 1.0)], 0)
    with pytest.raises(ValueError, match="a number up to heads=4 for each of 2 layers"):
        Encoding(layers=2, heads_left=(5, 1))
