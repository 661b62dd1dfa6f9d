"""The [train] table of a recipe."""

import pytest

from regard.core.config import parse
from regard.core.errors import UserError
from regard.train.settings import Training

SGD = {"name": "sgd", "lr": 1}

WRONG: dict[str, tuple[dict[str, object], str]] = {
    "typo": ({"updates": 1, "clpi": 1}, "unknown key 'train.clpi': did you mean 'train.clip'?"),
    "no end": (
        {},
        "train: set the length of the training with updates or epochs; neither is given",
    ),
    "two ends": ({"updates": 1, "epochs": 1}, "train: set the length of the training"),
    "no step": ({"updates": 0}, "train.updates=0 must be greater than 0"),
    "clip": ({"updates": 1, "clip": -1.0}, "train.clip=-1.0 must be greater than 0"),
    "precision": ({"updates": 1, "precision": "half"}, "train.precision='half' is not known:"),
    "keep": ({"updates": 1, "keep": 1}, "train.keep=1 must be greater than or equal to 2"),
    "schedule": (
        {"updates": 1, "schedule": {"name": "cosin"}},
        "train.schedule.name='cosin' is not known: did you mean 'cosine'? Allowed: constant, step",
    ),
    "in schedule": (
        {"updates": 1, "schedule": {"name": "cosine", "warm_up": 3}},
        "unknown key 'train.schedule.warm_up': did you mean 'train.schedule.warmup'?",
    ),
    "two averages": ({"updates": 1, "ema": 0.9, "weights": "average"}, "train: ema and weights="),
}


@pytest.mark.parametrize(("given", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_in_the_train_table_is_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(Training, {"optimiser": SGD, **given}, at="train")
    assert str(caught.value).startswith(said)


def test_epochs_and_updates_are_two_ways_to_say_how_long() -> None:
    assert parse(Training, {"optimiser": SGD, "epochs": 3}).total_updates(per_epoch=7) == 21
    assert parse(Training, {"optimiser": SGD, "updates": 5}).total_updates(per_epoch=7) == 5
