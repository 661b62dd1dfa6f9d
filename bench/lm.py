"""Language models side by side: ours, transformers' GPT-2, litgpt if it is there, plain torch.

    python -m bench.lm              (some minutes on a quiet machine)
    python -m bench.lm --quick      (fewer repeats)

Each line is a ratio of medians of interleaved repeats in one process: above 1 means ours is faster.
Every system trains with the same fused AdamW (or SGD) and the same clipping, so that what differs
is the model and its loss. Ours goes through the task, as in training.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.measure import Work, machine, medians, show
from regard.core.device import steady_allocation
from regard.data import train as train_tokeniser
from regard.decode import Greedy, Request, generate
from regard.models.attention_rnn_lm import AttentionRNNLM
from regard.models.gpt import GPT
from regard.models.rnn_lm import RNNLM
from regard.tasks.language_model import LanguageModelling, Texts
from regard.train.optimise import SGD, AdamW, build, scale_gradients

LAYERS, HEADS, WIDTH, CONTEXT, ROWS = 6, 6, 384, 256, 12
"""The GPT of the comparison: nanoGPT's size for characters."""
TASK = LanguageModelling(Texts(train="none"), Path(), train_tokeniser("byte", []))
"""Only its loss is used."""


def our_training(model: nn.Module, batches: list[Tensor], rule: AdamW | SGD, clip: float) -> Work:
    """Updates as the loop takes them; a recurrent state is carried."""
    optimiser = build(rule, model.train())

    def work() -> None:
        carry = None
        for tokens in batches:
            batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
            loss = TASK.loss(model, batch, carry)
            loss.total.backward()
            scale_gradients(model.parameters(), items=loss.items, clip=clip)
            optimiser.step()
            optimiser.zero_grad()
            carry = loss.carry

    return work


def their_training(model: nn.Module, loss_of: Callable[[Tensor], Tensor], tokens: Tensor) -> Work:
    """An update of another library's model."""
    optimiser = torch.optim.AdamW(model.train().parameters(), 1e-4, fused=True)

    def work() -> None:
        loss_of(tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return work


def peer_gpt(vocabulary: int) -> nn.Module:
    """transformers' GPT-2 of the same size, with the attention it chooses by itself."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=CONTEXT,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    model: nn.Module = GPT2LMHeadModel(config)
    return model


def litgpt_gpt(vocabulary: int) -> nn.Module | None:
    """litgpt's model in GPT-2's form; None if the package is not there."""
    try:
        from litgpt import model as theirs
    except ImportError:
        return None
    config = theirs.Config(
        block_size=CONTEXT,
        vocab_size=vocabulary,
        padded_vocab_size=vocabulary,
        n_layer=LAYERS,
        n_head=HEADS,
        n_embd=WIDTH,
        rotary_percentage=1.0,
        bias=True,
    )
    model: nn.Module = theirs.GPT(config)
    return model


def our_gpt(vocabulary: int, context: int = CONTEXT) -> GPT:
    """Ours of the same size."""
    return GPT(
        GPT.Config(width=WIDTH, heads=HEADS, layers=LAYERS, context=context), vocabulary=vocabulary
    )


def gpt_training(repeats: int) -> None:
    """Tokens per second of one update, for a small and for GPT-2's vocabulary."""
    rows = []
    for vocabulary in (65, 50257):
        tokens = torch.randint(vocabulary, (ROWS, CONTEXT + 1))
        hugging, lit = peer_gpt(vocabulary), litgpt_gpt(vocabulary)

        def hugging_loss(tokens: Tensor, model: nn.Module = hugging) -> Tensor:
            logits = model(tokens[:, :-1]).logits
            return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

        def lit_loss(tokens: Tensor, model: nn.Module | None = lit) -> Tensor:
            assert model is not None
            return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

        works = {
            "ours": our_training(our_gpt(vocabulary), [tokens], AdamW(lr=1e-4), 1.0),
            "transformers": their_training(hugging, hugging_loss, tokens),
        }
        if lit is not None:
            works["litgpt"] = their_training(lit, lit_loss, tokens)
        seconds = medians(works, repeats)
        rows += [
            (
                vocabulary,
                peer,
                f"{ROWS * CONTEXT / seconds['ours']:,.0f}",
                f"{ROWS * CONTEXT / spent:,.0f}",
                f"{spent / seconds['ours']:.2f}",
            )
            for peer, spent in seconds.items()
            if peer != "ours"
        ]
    show(
        f"Training a GPT of {LAYERS} x {WIDTH}, {ROWS} rows of {CONTEXT} tokens "
        "(goal: 1.3 by transformers, 1.0 by litgpt)",
        ["vocabulary", "peer", "ours tokens/s", "peer tokens/s", "ratio"],
        rows,
    )


def gpt_generation(repeats: int) -> None:
    """Greedy tokens per second with a cache, from a prompt of 16 tokens."""
    from transformers import GPT2LMHeadModel

    rows, length = [], 128
    asked = Request(policy=Greedy(), max_tokens=length)
    for vocabulary, batch in ((65, 1), (65, 8), (50257, 1), (50257, 8)):
        prompts = torch.randint(vocabulary, (batch, 16))
        ours, theirs = our_gpt(vocabulary).eval(), peer_gpt(vocabulary).eval()
        assert isinstance(theirs, GPT2LMHeadModel)

        def our_work(model: GPT = ours, prompts: Tensor = prompts) -> object:
            return generate(model, prompts.tolist(), asked)

        @torch.inference_mode()
        def their_work(model: GPT2LMHeadModel = theirs, prompts: Tensor = prompts) -> object:
            return model.generate(  # type: ignore[misc]
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=length,
                min_new_tokens=length,
                do_sample=False,
            )

        seconds = medians({"ours": our_work, "theirs": their_work}, repeats, warmup=1)
        rate = {name: batch * length / spent for name, spent in seconds.items()}
        rows.append(
            (
                vocabulary,
                batch,
                f"{rate['ours']:,.0f}",
                f"{rate['theirs']:,.0f}",
                f"{rate['ours'] / rate['theirs']:.2f}",
            )
        )
    show(
        f"Generating {length} tokens with a cache, GPT of {LAYERS} x {WIDTH} (goal: 2)",
        ["vocabulary", "batch", "ours tokens/s", "transformers tokens/s", "ratio"],
        rows,
    )


State = tuple[Tensor, Tensor]


class BareLSTM(nn.Module):
    """What one writes by hand: embedding, nn.LSTM, nn.Linear."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.cells = nn.LSTM(width, width, 2, batch_first=True, dropout=0.5)
        self.drop = nn.Dropout(0.5)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Logits and the state."""
        states, last = self.cells(self.drop(self.embed(tokens)), state)
        return self.output(self.drop(states)), last


def bare_training(model: BareLSTM, batches: list[Tensor]) -> Work:
    """The loop of the usual example, with the state carried and detached."""
    optimiser = torch.optim.SGD(model.train().parameters(), 1.0, fused=True)

    def work() -> None:
        state = None
        for tokens in batches:
            logits, last = model(tokens[:, :-1], state)
            F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimiser.step()
            optimiser.zero_grad()
            state = (last[0].detach(), last[1].detach())

    return work


def recurrent(repeats: int) -> None:
    """The LSTM against a bare loop, and with attention against without."""
    vocabulary, rows = 10000, []
    for width in (200, 650):
        batches = [torch.randint(vocabulary, (20, 36)) for _ in range(3)]
        rule = SGD(lr=1.0)
        plain = RNNLM(RNNLM.Config(width=width, dropout=0.5), vocabulary)
        attending = AttentionRNNLM(AttentionRNNLM.Config(width=width, dropout=0.5), vocabulary)
        works = {
            "ours": our_training(plain, batches, rule, 0.25),
            "bare": bare_training(BareLSTM(vocabulary, width), batches),
            "attending": our_training(attending, batches, rule, 0.25),
        }
        seconds = medians(works, repeats)
        rows.append(
            (
                f"2 x {width}",
                f"{3 * 20 * 35 / seconds['ours']:,.0f}",
                f"{seconds['bare'] / seconds['ours']:.2f}",
                f"{seconds['ours'] / seconds['attending']:.2f}",
            )
        )
    show(
        "Training LSTM language models, 20 rows of 35, vocabulary 10,000",
        [
            "size",
            "tokens/s",
            "by a bare nn.LSTM loop (goal 0.95)",
            "with attention by without (goal 0.5)",
        ],
        rows,
    )


def imports(repeats: int) -> None:
    """How long `import regard` takes beyond starting Python, and whether it brings torch."""
    code = "import sys, regard; sys.exit('torch' in sys.modules)"
    spent: dict[str, list[float]] = {"pass": [], code: []}
    for _ in range(max(3, repeats)):
        for each, times in spent.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", each], check=True)
            times.append(time.perf_counter() - start)
    seconds = median(spent[code]) - median(spent["pass"])
    show("import regard, without torch (goal: 0.3 s)", ["seconds"], [(f"{seconds:.3f}",)])


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["train", "generate", "recurrent", "import"])
    chosen = parser.parse_args()
    repeats = 3 if chosen.quick else 9
    steady_allocation()
    torch.manual_seed(0)
    print(machine())
    parts = {
        "train": gpt_training,
        "generate": gpt_generation,
        "recurrent": recurrent,
        "import": imports,
    }
    for name, part in parts.items():
        if chosen.only in (None, name):
            part(repeats)


if __name__ == "__main__":
    main()
