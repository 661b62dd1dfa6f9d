"""AWD-LSTM and ULMFiT: what is dropped and for how long, what is pooled, what begins with what."""

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.layers.weight_drop import LockedDropout, WeightDropLSTM, dropped_words
from regard.models.language.awd_lstm import AWDLSTM
from regard.models.language.rnn_lm import RNNLM
from regard.models.text.ulmfit import ULMFiT, pooled
from regard.train.optimise import Adam, build_optimiser
from regard.train.stages import Stages

V = 11


def lm(**changes: object) -> AWDLSTM:
    return AWDLSTM(AWDLSTM.Config(**{"width": 6, "hidden": 8, "layers": 2, **changes}), V)


def classifier(source: nn.Module | None = None, **changes: object) -> ULMFiT:
    config = ULMFiT.Config(**{"source": "runs/lm", "hidden": 5, "window": 3, **changes})
    return ULMFiT(config, V, 2, source=source or lm())


def texts() -> dict[str, Tensor]:
    tokens = torch.randint(4, V, (2, 8))
    tokens[1, 5:] = 0
    return {"tokens": tokens, "lengths": torch.tensor([8, 5])}


def test_without_dropout_a_cell_is_torchs_lstm() -> None:
    ours, theirs = WeightDropLSTM(3, 4), nn.LSTM(3, 4, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.read)
        theirs.weight_hh_l0.copy_(ours.again)
        theirs.bias_ih_l0.copy_(ours.bias)
        theirs.bias_hh_l0.zero_()
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(ours(x, None)[0], theirs(x)[0])


def test_recurrent_weights_are_dropped_for_a_whole_window_and_only_while_training() -> None:
    cell, x = WeightDropLSTM(3, 4, dropout=0.5), torch.randn(2, 5, 3)
    torch.manual_seed(5)
    said = cell(x, None)[0]
    torch.manual_seed(5)
    again = nn.functional.dropout(cell.again, 0.5)
    plain = WeightDropLSTM(3, 4)
    with torch.no_grad():
        plain.load_state_dict({**cell.state_dict(), "again": again})
    torch.testing.assert_close(said, plain(x, None)[0])
    assert not torch.equal(cell(x, None)[0], cell(x, None)[0])
    assert torch.equal(cell.eval()(x, None)[0], cell(x, None)[0])


def test_locked_dropout_takes_the_same_numbers_at_all_positions() -> None:
    kept = LockedDropout(0.5)(torch.ones(4, 7, 50))
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert (kept == kept[:, :1]).all()
    assert not torch.equal(kept[0], kept[1]), "each row its own"


def test_words_are_dropped_whole() -> None:
    kept = dropped_words(torch.ones(200, 3), 0.25, training=True)
    assert (kept == kept[:, :1]).all()
    assert 0.1 < (kept[:, 0] == 0).float().mean() < 0.4
    torch.testing.assert_close(kept[kept > 0], torch.full_like(kept[kept > 0], 4 / 3))


def test_a_language_model_begins_with_the_weights_of_another(as_users_run_it: None) -> None:
    first = lm()
    second = AWDLSTM(AWDLSTM.Config(width=6, hidden=8, layers=2, source="runs/lm"), V, source=first)
    batch = {"tokens": torch.randint(V, (2, 5))}
    assert torch.equal(first.eval()(batch).logits(), second.eval()(batch).logits())
    assert second.embed.weight is not first.embed.weight
    with pytest.raises(
        UserError, match=r"of other sizes: .*give this recipe the kind and the sizes"
    ):
        AWDLSTM(AWDLSTM.Config(width=4, hidden=8, layers=2, source="x"), V, source=first)


def test_pooling_is_the_last_the_most_and_the_mean_of_real_words() -> None:
    states = torch.randn(3, 4, 2)
    found = pooled(states, torch.tensor([4, 2, 0]))
    for row, length in ((0, 4), (1, 2)):
        own = states[row, :length]
        torch.testing.assert_close(found[row], torch.cat((own[-1], own.amax(0), own.mean(0))))
    assert (found[2] == 0).all()


def test_windows_change_nothing_but_how_far_gradients_reach() -> None:
    source, batch = lm(), texts()
    whole, cut = classifier(source, window=100).eval(), classifier(source, window=3).eval()
    cut.load_state_dict(whole.state_dict())
    torch.testing.assert_close(whole(batch).logits, cut(batch).logits)
    reached = []
    for windows in (1, 2, 9):
        model = classifier(source, window=3, windows=windows).eval()
        model.load_state_dict(whole.state_dict())
        table = model.reader.embed.weight
        table.grad = None
        model(batch).logits.sum().backward()
        words = table.grad.abs().sum(1).nonzero().flatten().tolist()
        own = {int(word) for row in batch["tokens"] for word in row[3 * (3 - windows) :] if word}
        assert set(words) - {0} <= own or windows == 9
        reached.append(len(words))
    assert reached[0] < reached[2]


def test_fresh_keeps_the_sizes_and_none_of_the_weights() -> None:
    source = lm()
    before = {name: each.clone() for name, each in source.state_dict().items()}
    model = classifier(source, fresh=True)
    after = model.reader.state_dict()
    assert all(after[name].shape == each.shape for name, each in before.items())
    assert not any(torch.equal(after[name], each) for name, each in before.items() if each.any())


def test_its_stages_are_words_cells_and_the_top_and_the_output_layer_does_not_learn() -> None:
    model = classifier()
    stages = Stages(unfreeze=1).assign(model)
    opens = {
        name: stages[id(each)].unfreeze_epoch
        for name, each in model.named_parameters()
        if each.requires_grad
    }
    assert opens["top.2.weight"] == 0
    assert opens["reader.cells.1.again"] == 1
    assert opens["reader.cells.0.again"] == 2
    assert opens["reader.embed.weight"] == 3
    assert "reader.bias" not in opens
    assert len(build_optimiser(Adam(lr=0.1), model, Stages()).param_groups) >= 4


def test_what_is_pooled_is_normalised_over_texts_and_one_text_alone_learns_too() -> None:
    model, batch = classifier(dropout=0.0).train(), texts()
    seen: list[torch.Tensor] = []
    model.top[0].register_forward_hook(lambda _, __, out: seen.append(out))
    model(batch)
    assert seen[0].mean(0).abs().max() < 1e-5
    one = {name: rows[:1] for name, rows in batch.items()}
    model.reader.eval()
    alone = model(one).logits
    alone.sum().backward()
    assert model.top[2].weight.grad.isfinite().all()
    torch.testing.assert_close(alone, model.eval()(one).logits)


def test_words_are_read_in_the_vocabulary_of_the_source() -> None:
    model, batch = classifier().eval(), texts()
    other = {**batch, "source_tokens": batch["tokens"], "tokens": batch["tokens"] * 100}
    assert torch.equal(model(batch).logits, model(other).logits)


def test_another_kind_of_model_is_no_source(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="initialised from an awd_lstm, not from a Linear"):
        classifier(nn.Linear(2, 2))
    with pytest.raises(UserError, match="not from a RNNLM"):
        classifier(RNNLM(RNNLM.Config(width=4), V))
