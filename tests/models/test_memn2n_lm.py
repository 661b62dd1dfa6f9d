"""MemN2N as a language model: a literal loop over its equations."""

from math import exp

import pytest
import torch

from regard.core.errors import UserError
from regard.models.memory.memn2n_lm import MemN2NLM


def test_the_equations_of_the_paper() -> None:
    torch.manual_seed(0)
    config = MemN2NLM.Config(width=4, linear=2, hops=2, memory=3, init_range=0.7)
    model, tokens = MemN2NLM(config, 7).double().eval(), [5, 2, 6, 2]
    with torch.no_grad():
        logits = model({"tokens": torch.tensor([tokens])}).logits()[0]
        for t in range(4):
            held = [(i, age) for age, i in enumerate(range(t - 2, t + 1)) if i >= 0]
            m = [model.keys.weight[tokens[i]] + model.key_ages[age] for i, age in held]
            c = [model.values.weight[tokens[i]] + model.value_ages[age] for i, age in held]
            u = torch.full((4,), 0.1, dtype=torch.float64)
            for _ in range(2):
                scores = [exp(float(u @ each)) for each in m]
                read = sum(s / sum(scores) * each for s, each in zip(scores, c, strict=True))
                u = model.between.weight @ u + read
                u = torch.cat([u[:2], u[2:].relu()])
            torch.testing.assert_close(logits[t], model.output.weight @ u)


def test_more_linear_units_than_there_are_is_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="linear=9 units of width=8"):
        MemN2NLM(MemN2NLM.Config(width=8, linear=9), 5)
