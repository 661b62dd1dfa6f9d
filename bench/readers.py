"""Readers: training steps of MemN2N against a plain loop over the sentences of a story.

    python -m bench.readers            (a minute)
    python -m bench.readers --quick

The plain version is what ports of the paper do: for every fact and every table an embedding of each
word, times its position weight, and a sum; then the hops. Both have the same weights and return the
same loss, which is checked first. A step is loss, gradient and update of one batch of 32 stories;
an epoch of a task of bAbI with 1,000 questions has 29. With ten networks, as the paper trains, the
plain version takes ten steps, and ours one with ten copies.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.measure import Work, machine, paired_ratio, show
from regard.core.allocation import keep_freed_memory
from regard.core.protocols import Batch
from regard.models.memory.memn2n import MemN2N

VOCABULARY, WORDS, STEPS_PER_EPOCH = 40, 7, 29
SIZES = {"10 facts, as task 1": 10, "50 facts, as task 3": 50}


class PlainMemN2N(nn.Module):
    """The same network with a loop over facts."""

    def __init__(self, model: MemN2N, copy: int) -> None:
        super().__init__()
        self.tables = nn.ParameterList(each.detach().clone() for each in model.tables[copy])
        self.slots, self.width = model.slots, model.config.width

    def sentence(self, words: Tensor, table: Tensor, ages: Tensor | None) -> Tensor:
        """The sum of the words of each sentence, and its age."""
        real = (words != 0).float()
        total = real.sum(1, keepdim=True).clamp_min(1)  # [B,1]
        place = torch.arange(1, words.shape[1] + 1) / total  # [B,J]
        scale = torch.arange(1, self.width + 1) / self.width
        weights = 2 * ((1 - place)[..., None] - scale * (1 - 2 * place)[..., None])  # [B,J,D]
        vector = (F.embedding(words, table) * weights * real[..., None]).sum(1)
        if ages is None:
            return vector
        held = F.embedding((VOCABULARY + ages - 1).clamp_min(VOCABULARY), table)
        return vector + held * (ages > 0)[:, None]

    def forward(self, batch: Batch) -> Tensor:
        """The logits of the answers."""
        facts, ages, counts = batch["facts"], batch["ages"], batch["counts"]
        query = self.sentence(batch["question"], self.tables[0], None)
        real = torch.arange(facts.shape[1]) < counts[:, None]
        for key, value in zip(self.tables[:-1], self.tables[1:], strict=True):
            stories = range(facts.shape[1])
            memory = torch.stack([self.sentence(facts[:, i], key, ages[:, i]) for i in stories], 1)
            output = torch.stack(
                [self.sentence(facts[:, i], value, ages[:, i]) for i in stories], 1
            )
            scores = (memory @ query[..., None])[..., 0].masked_fill(~real, float("-inf"))
            empty = (self.slots - counts).float().log()[:, None]  # as many slots of score zero
            weights = torch.cat([scores, empty], 1).softmax(1)[:, :-1]
            query = query + (weights[:, None] @ output)[:, 0]
        logits: Tensor = query @ self.tables[-1][:VOCABULARY].T
        return logits


def drawn(facts: int) -> Batch:
    """A batch of stories."""
    counts = torch.randint(2, facts, (32,))
    ages = (counts[:, None] - torch.arange(facts)).clamp_min(0)
    words = torch.randint(4, VOCABULARY, (32, facts, WORDS)) * (ages > 0)[..., None]
    question = torch.randint(4, VOCABULARY, (32, 4))
    classes = torch.randint(4, VOCABULARY, (32,))
    return {
        "facts": words,
        "ages": ages,
        "counts": counts,
        "question": question,
        "classes": classes,
    }


def training_steps(facts: int, copies: int) -> tuple[Work, Work]:
    """A step of ours with so many copies, and of as many plain networks with the same weights."""
    torch.manual_seed(0)
    batch = drawn(facts)
    ours = MemN2N(MemN2N.Config(copies=copies), VOCABULARY, facts)
    plain = [PlainMemN2N(ours, copy) for copy in range(copies)]
    losses = [F.cross_entropy(each(batch), batch["classes"], reduction="sum") for each in plain]
    total = torch.stack(losses).sum()
    torch.testing.assert_close(ours(batch).nll(batch["classes"]), total, rtol=1e-4, atol=1e-4)
    optimiser, *others = (torch.optim.SGD(each.parameters(), 1e-3) for each in (ours, *plain))

    def step_ours() -> None:
        optimiser.zero_grad()
        ours(batch).nll(batch["classes"]).backward()
        optimiser.step()

    def step_plain() -> None:
        for model, other in zip(plain, others, strict=True):
            other.zero_grad()
            F.cross_entropy(model(batch), batch["classes"], reduction="sum").backward()
            other.step()

    return step_ours, step_plain


def bench_memn2n(repeats: int) -> None:
    """Epochs per second, and how many times as many as the plain loop."""
    rows = []
    for name, facts in SIZES.items():
        for copies in (1, 10):
            ours, plain = training_steps(facts, copies)
            ratio = paired_ratio(ours, plain, repeats)
            began = time.perf_counter()
            for _ in range(repeats):
                ours()
            each = (time.perf_counter() - began) / repeats
            rows.append((name, copies, f"{1 / (each * STEPS_PER_EPOCH):.1f}", f"{ratio:.1f}"))
    header = ("stories", "networks", "epochs/s, all of them", "times a plain loop")
    show("MemN2N, 20 wide, three hops: training", header, rows)


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    keep_freed_memory()
    print(machine())
    bench_memn2n(5 if parser.parse_args().quick else 40)


if __name__ == "__main__":
    main()
