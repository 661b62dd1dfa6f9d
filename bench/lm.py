"""Language models side by side: ours, transformers' GPT-2, litgpt if it is there, plain torch.

    python -m bench.lm              (some minutes on a quiet machine)
    python -m bench.lm --quick      (fewer repeats)

Each line is a ratio of medians of interleaved repeats: above 1 means ours is faster. GPTs have a
process each (see bench/apart.py). Every system trains with the same fused AdamW (or SGD) and the
same clipping, so that what differs is the model, its loss, and memory, which our loop has malloc
keep. Ours goes through the task, as in training.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.apart import Contender, medians_apart, steadily
from bench.measure import Work, machine, medians, missing, rates, show
from regard.core.allocation import keep_freed_memory
from regard.data import train_tokeniser as train_tokeniser
from regard.decode import GenerationRequest, Greedy, generate
from regard.models.language.attention_rnn_lm import AttentionRNNLM
from regard.models.language.gpt import GPT
from regard.models.language.rnn_lm import RNNLM
from regard.tasks.language_model import LanguageModelling, Texts
from regard.train.optimise import SGD, AdamW, build_optimiser, scale_gradients

LAYERS, HEADS, WIDTH, CONTEXT, ROWS = 6, 6, 384, 256, 12
"""The GPT of the comparison: nanoGPT's size for characters."""
PROMPT, WRITTEN = 16, 128
"""Tokens of a prompt, and what is written after it."""
TASK = LanguageModelling(Texts(train="none"), Path(), train_tokeniser("byte", []))
"""Only its loss is used."""


def our_training(model: nn.Module, batches: list[Tensor], rule: AdamW | SGD, clip: float) -> Work:
    """Updates as the loop takes them; a recurrent state is carried."""
    optimiser = build_optimiser(rule, model.train())

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


def our_gpt_training(vocabulary: int) -> Work:
    """An update of our GPT."""
    return our_training(our_gpt(vocabulary), [drawn(vocabulary)], AdamW(lr=1e-4), 1.0)


def hugging_training(vocabulary: int) -> Work:
    """An update of transformers' GPT-2."""
    model = hugging_gpt(vocabulary)
    return their_training(model, lambda tokens: model(tokens).logits, drawn(vocabulary))


def lit_training(vocabulary: int) -> Work:
    """An update of litgpt's model in GPT-2's form."""
    from litgpt import model as theirs

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
    return their_training(model, model, drawn(vocabulary))


def their_training(model: nn.Module, logits: Callable[[Tensor], Tensor], tokens: Tensor) -> Work:
    """An update of another library's model."""
    optimiser = torch.optim.AdamW(model.train().parameters(), 1e-4, fused=True)

    def work() -> None:
        found = logits(tokens[:, :-1])
        F.cross_entropy(found.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return work


def drawn(vocabulary: int, rows: int = ROWS, length: int = CONTEXT + 1) -> Tensor:
    """Random tokens, the same for all."""
    torch.manual_seed(0)
    return torch.randint(vocabulary, (rows, length))


def hugging_gpt(vocabulary: int) -> nn.Module:
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


def our_gpt(vocabulary: int) -> GPT:
    """Ours of the same size."""
    config = GPT.Config(width=WIDTH, heads=HEADS, layers=LAYERS, context=CONTEXT)
    return GPT(config, vocabulary=vocabulary)


def gpt_training(repeats: int) -> None:
    """Tokens per second of one update, for a small and for GPT-2's vocabulary."""
    rows = []
    for vocabulary in (65, 50257):
        contenders = {"ours": steadily(our_gpt_training, vocabulary)}
        if not missing("transformers"):
            contenders["transformers"] = partial(hugging_training, vocabulary)
            contenders["transformers, malloc as ours"] = steadily(hugging_training, vocabulary)
        if not missing("litgpt"):
            contenders["litgpt"] = partial(lit_training, vocabulary)
        seconds = medians_apart(contenders, repeats, warmup=2)
        rows += rates(seconds, ROWS * CONTEXT, (vocabulary,))
    show(
        f"Training a GPT of {LAYERS} x {WIDTH}, {ROWS} rows of {CONTEXT} tokens "
        "(goal: 1.3 by transformers, 1.0 by litgpt)",
        ["vocabulary", "peer", "ours tokens/s", "peer tokens/s", "ratio"],
        rows,
    )


def our_generation(vocabulary: int, batch: int) -> Work:
    """Greedy tokens of our GPT."""
    prompts = drawn(vocabulary, batch, PROMPT).tolist()
    asked = GenerationRequest(policy=Greedy(), max_tokens=WRITTEN)
    return partial(generate, our_gpt(vocabulary).eval(), prompts, asked)


def hugging_generation(vocabulary: int, batch: int) -> Work:
    """Greedy tokens of transformers' GPT-2."""
    prompts, model = drawn(vocabulary, batch, PROMPT), hugging_gpt(vocabulary).eval()

    @torch.inference_mode()
    def work() -> object:
        return model.generate(  # type: ignore[operator]
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=WRITTEN,
            min_new_tokens=WRITTEN,
            do_sample=False,
        )

    return work


def gpt_generation(repeats: int) -> None:
    """Greedy tokens per second with a cache."""
    if missing("transformers"):
        return
    rows = []
    for vocabulary, batch in ((65, 1), (65, 8), (50257, 1), (50257, 8)):
        contenders: dict[str, Contender] = {
            "ours": steadily(our_generation, vocabulary, batch),
            "transformers": partial(hugging_generation, vocabulary, batch),
        }
        seconds = medians_apart(contenders, repeats)
        rows += rates(seconds, batch * WRITTEN, (vocabulary, batch))
    show(
        f"Generating {WRITTEN} tokens with a cache, GPT of {LAYERS} x {WIDTH} (goal: 2)",
        ["vocabulary", "batch", "peer", "ours tokens/s", "peer tokens/s", "ratio"],
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
    keep_freed_memory()
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
