"""Recipes train as they did: the first ten losses of a few of them are kept here.

`python -m tests.recipes.ten_updates` prints those of all recipes. With other instruction sets,
other numbers of threads and the kernels of regard off, they differ by less than 1e-6.
"""

from pathlib import Path

import pytest

from tests.recipes.ten_updates import losses_of

KEPT = {
    "dates": [
        2.768003,
        2.766637,
        2.762799,
        2.765016,
        2.761056,
        2.753395,
        2.755208,
        2.74838,
        2.744845,
        2.737815,
    ],
    "ptb-lstm": [
        2.637832,
        4.924046,
        2.440996,
        5.22091,
        3.835716,
        2.505555,
        4.939051,
        2.600528,
        3.347813,
        3.492542,
    ],
    "shakespeare-gpt-small": [
        3.540149,
        3.435268,
        3.492324,
        3.392078,
        3.317192,
        3.043765,
        3.040832,
        3.004656,
        3.089985,
        2.68332,
    ],
    "conll2003-crf": [
        2.152941,
        2.072364,
        1.9977,
        1.93487,
        1.860097,
        1.846312,
        1.749582,
        1.741994,
        1.718637,
        1.707909,
    ],
}
"""A recurrent translator, a recurrent language model, a Transformer and a tagger."""


@pytest.mark.parametrize("name", KEPT)
def test_the_first_losses_are_those_that_were_kept(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    assert losses_of([name], tmp_path)[name] == pytest.approx(KEPT[name], rel=1e-4)
