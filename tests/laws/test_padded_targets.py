"""The loss of a padded batch of a language model is that of its real targets."""

from pathlib import Path

import pytest
import torch
from torch import nn

from regard.core.protocols import Batch, Carry
from regard.data import IGNORE
from regard.outputs.next_token import SoftmaxOutput
from regard.tasks.language_model import LanguageModelling, Texts
from regard.train.evaluate import evaluate


class Bigrams(nn.Module):
    """The next token by the one before it."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, 3)
        self.output = nn.Parameter(torch.randn(vocabulary, 3))

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        return SoftmaxOutput(self.words(batch["tokens"]), self.output)


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LanguageModelling:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 5)
    data = Texts(
        train="text.txt", validation="text.txt", order="random", batch=2, window=4, evaluate_batch=3
    )
    return LanguageModelling.open(data, tmp_path)


@pytest.mark.parametrize("training", [True, False])
def test_ignored_targets_are_no_items(task: LanguageModelling, training: bool) -> None:
    model = Bigrams(task.sizes["vocabulary"]).train(training)
    tokens, targets = torch.randint(1, 5, (3, 6)), torch.randint(1, 5, (3, 6))
    whole = task.loss(model, {"tokens": tokens, "targets": targets}, None)
    padding = torch.full((3, 2), IGNORE)
    longer = {
        "tokens": torch.cat([tokens, torch.zeros(3, 2, dtype=torch.int64)], 1),
        "targets": torch.cat([targets, padding], 1),
    }
    padded = task.loss(model, longer, None)
    assert padded.items == whole.items == 18
    torch.testing.assert_close(padded.total, whole.total)


def test_a_validation_is_over_every_target_once(task: LanguageModelling) -> None:
    model = Bigrams(task.sizes["vocabulary"])
    ids = task.corpus("validation").ids.long()
    sums = evaluate(model, task, task.evaluation("validation"))
    logits = model.words(ids[:-1]) @ model.output.T
    expected = nn.functional.cross_entropy(logits, ids[1:])
    assert sums.items == len(ids) - 1
    assert sums.items % 12, "the last batch is padded"
    assert sums.loss == pytest.approx(expected.item(), rel=1e-5)
