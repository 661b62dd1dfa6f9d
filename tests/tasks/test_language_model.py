"""The loss of language models, as it is written down."""

from pathlib import Path

import pytest
import torch
from torch import nn

from regard.core.protocols import Batch, Carry
from regard.outputs.next_token import SoftmaxOutput
from regard.tasks.language_model import LanguageModelling, Texts


class Sure(nn.Module):
    """Says the same of every place."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, 2))

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        return SoftmaxOutput(torch.ones(*batch["tokens"].shape, 2), self.weight)


@pytest.mark.parametrize("tokeniser", ["word", "char", "byte", "bpe"])
def test_smoothing_spreads_some_of_each_target_and_nothing_on_padding(
    tokeniser: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 20)
    data = Texts(train="text.txt", tokeniser=tokeniser, batch=2, window=4, smoothing=0.3)
    task = LanguageModelling.open(data, tmp_path)
    model, batch = Sure(task.sizes["vocabulary"]), task.batches().batch(0, 0)
    logs, said = model.weight.sum(1).log_softmax(0), batch["targets"].flatten()
    for training, due in (
        (True, -(0.7 * logs[said] + 0.3 * logs[1:].mean()).sum()),  # <pad> is 0
        (False, -logs[said].sum()),
    ):
        total = task.loss(model.train(training), batch, None).total
        assert total.item() == pytest.approx(due.item(), rel=1e-5)
