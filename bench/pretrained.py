"""BERT-base and GPT-2 small side by side: ours, transformers, CTranslate2.

    python -m bench.pretrained                  (about half an hour on a quiet machine)
    python -m bench.pretrained --quick          (small batches, fewer repeats)
    python -m bench.pretrained --only generate  (or forward, record, tune)

Weights are random: what is timed does not depend on them. Each line is a ratio of medians of
interleaved repeats: above 1 means ours is faster. What is not installed is left out, and that is
said.
"""

import argparse
import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.measure import Work, machine, medians, missing, show
from regard.attention import record
from regard.core.device import steady_allocation
from regard.core.protocols import Batch
from regard.decode import Greedy, Request, generate
from regard.export.ctranslate2 import export
from regard.models.bert import BERT, Encoding
from regard.models.bert_classifier import BERTClassifier
from regard.models.gpt import GPT
from regard.quantise import quantise


@dataclass(frozen=True)
class Size:
    """How large the models are; the usual ones, but for a trial run."""

    width: int = 768
    heads: int = 12
    layers: int = 12
    words: int = 30522
    """Of BERT."""
    tokens: int = 50257
    """Of GPT-2."""
    written: int = 64
    """Tokens to generate."""
    lengths: tuple[int, ...] = (128, 512)
    batches: tuple[int, ...] = (1, 8, 32)
    tuned: tuple[int, int] = (16, 128)
    """Rows and tokens of a fine-tuning step."""


QUICK = Size(batches=(1, 8), written=32, tuned=(8, 128))
TRIAL = Size(32, 2, 2, 100, 100, 4, (16,), (1, 2), (2, 8))
"""To see that everything runs."""


def encoding(size: Size, dropout: float = 0.0) -> Encoding:
    """BERT-base, or as wide and deep as asked."""
    return Encoding(
        width=size.width,
        heads=size.heads,
        layers=size.layers,
        hidden=4 * size.width,
        context=512,
        dropout=dropout,
        attention_dropout=dropout,
    )


def hugging_bert(size: Size, kind: str, *, classes: int = 0, dropout: float = 0.0) -> nn.Module:
    """transformers' BERT of the same size, with this kind of attention."""
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    config = BertConfig(
        vocab_size=size.words,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.width,
        max_position_embeddings=512,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    config._attn_implementation, config.num_labels = kind, max(2, classes)
    model: nn.Module = (
        BertForSequenceClassification(config)
        if classes
        else BertModel(config, add_pooling_layer=False)
    )
    return model


def texts(size: Size, rows: int, length: int) -> Batch:
    """Random texts; all but the first a little shorter than the longest."""
    lengths = torch.randint(max(1, length * 3 // 4), length + 1, (rows,))
    lengths[0] = length
    return {"tokens": torch.randint(size.words, (rows, length)), "lengths": lengths}


def given(batch: Batch) -> dict[str, Tensor]:
    """The same as transformers calls it."""
    tokens, lengths = batch["tokens"], batch["lengths"]
    mask = (torch.arange(tokens.shape[1]) < lengths[:, None]).long()
    return {"input_ids": tokens, "attention_mask": mask}


def encoding_works(size: Size, batch: Batch, recorded: bool) -> dict[str, Work]:
    """A forward pass of ours and of theirs; recorded, one layer of ours and all of theirs."""
    ours = BERT(BERT.Config(encoder=encoding(size), words=False), size.words).eval()
    site = f"encoder.{min(3, size.layers - 1)}.*"

    @torch.inference_mode()
    def our_work() -> None:
        if recorded:
            with record(ours, sites=site):
                ours(batch)
        else:
            ours(batch)

    works: dict[str, Work] = {"ours": our_work}
    if missing("transformers"):
        return works
    theirs = hugging_bert(size, "eager" if recorded else "sdpa").eval()

    @torch.inference_mode()
    def their_work() -> None:
        theirs(**given(batch), output_attentions=recorded)

    return {**works, "transformers eager" if recorded else "transformers sdpa": their_work}


def encoders(repeats: int, size: Size, *, recorded: bool) -> None:
    """Texts per second of BERT."""
    rows = []
    for length in size.lengths:
        for count in size.batches:
            works = encoding_works(size, texts(size, count, length), recorded)
            seconds = medians(works, repeats, warmup=1)
            rows += told(seconds, count, (length, count))
    what = (
        "one layer of ours recorded, all of theirs with output_attentions (goal: 1.25 at 512)"
        if recorded
        else "without recording (goal: 1)"
    )
    show(
        f"BERT of {size.layers} x {size.width}, forward, {what}",
        ["tokens", "batch", "peer", "ours texts/s", "peer texts/s", "ratio"],
        rows,
    )


def told(
    seconds: dict[str, float], items: float, before: tuple[object, ...]
) -> list[tuple[object, ...]]:
    """A row for each peer: rates, and theirs by ours."""
    return [
        (
            *before,
            peer,
            f"{items / seconds['ours']:,.1f}",
            f"{items / spent:,.1f}",
            f"{spent / seconds['ours']:.2f}",
        )
        for peer, spent in seconds.items()
        if peer != "ours"
    ]


def forward(repeats: int, size: Size) -> None:
    """BERT as it is."""
    encoders(repeats, size, recorded=False)


def recording(repeats: int, size: Size) -> None:
    """BERT, looked into."""
    encoders(repeats, size, recorded=True)


def hugging_generation(size: Size, prompts: Tensor) -> Work:
    """transformers' generate with its cache."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=size.tokens,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = GPT2LMHeadModel(config).eval()

    @torch.inference_mode()
    def work() -> object:
        return model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=size.written,
            min_new_tokens=size.written,
            do_sample=False,
        )

    return work


def ctranslate_generation(folder: Path, prompts: Tensor, kind: str, written: int) -> Work:
    """CTranslate2 on as many threads."""
    import ctranslate2

    runner = ctranslate2.Generator(
        str(folder), compute_type=kind, inter_threads=1, intra_threads=torch.get_num_threads()
    )
    named = [[f"t{token}" for token in row] for row in prompts.tolist()]

    def work() -> object:
        return runner.generate_batch(
            named,
            min_length=written,
            max_length=written,
            sampling_topk=1,
            include_prompt_in_result=False,
        )

    return work


def generation(repeats: int, size: Size) -> None:
    """Greedy tokens per second of GPT-2, from a prompt of 16 tokens."""
    config = GPT.Config(
        width=size.width,
        heads=size.heads,
        layers=size.layers,
        context=1024,
        activation="gelu_tanh",
    )
    ours = GPT(config, vocabulary=size.tokens).eval()
    int8 = copy.deepcopy(ours)
    quantise(int8, "int8")
    asked = Request(policy=Greedy(), max_tokens=size.written)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        there = not missing("ctranslate2")
        if there:
            names = [f"t{number}" for number in range(size.tokens)]
            export(ours, Path(folder), words=names, specials={"unk": 0, "bos": 0, "eos": 0})
        for batch in (1, 8):
            prompts = torch.randint(1, size.tokens, (batch, 16))
            works: dict[str, Work] = {
                "ours": partial(generate, ours, prompts.tolist(), asked),
                "ours int8": partial(generate, int8, prompts.tolist(), asked),
            }
            if not missing("transformers"):
                works["transformers"] = hugging_generation(size, prompts)
            for kind in ("float32", "int8") if there else ():
                works[f"CTranslate2 {kind}"] = ctranslate_generation(
                    Path(folder), prompts, kind, size.written
                )
            seconds = medians(works, repeats, warmup=1)
            rows += [
                (
                    batch,
                    name,
                    f"{batch * size.written / spent:,.1f}",
                    f"{spent / seconds['ours']:.2f}",
                    f"{spent / seconds['ours int8']:.2f}",
                )
                for name, spent in seconds.items()
            ]
    show(
        f"GPT-2 of {size.layers} x {size.width} generates {size.written} tokens (goals: float32 1 "
        "by either peer; int8 3 by transformers, 0.8 by CTranslate2 int8)",
        ["batch", "who", "tokens/s", "ours by it", "ours int8 by it"],
        rows,
    )


def update(model: nn.Module, scores: Callable[[], Tensor], labels: Tensor) -> Work:
    """One step of fine-tuning, with the same optimiser and clipping for all."""
    optimiser = torch.optim.AdamW(model.train().parameters(), 3e-5, fused=True)

    def work() -> None:
        F.cross_entropy(scores(), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return work


def tuning(repeats: int, size: Size) -> None:
    """Steps per second of a classifier on BERT."""
    rows, length = size.tuned
    batch, labels = texts(size, rows, length), torch.randint(3, (rows,))
    config = BERTClassifier.Config(encoder=encoding(size, 0.1))
    ours = BERTClassifier(config, size.words, 3)
    works = {"ours": update(ours, partial(ours, batch), labels)}
    if not missing("transformers"):
        theirs = hugging_bert(size, "sdpa", classes=3, dropout=0.1)
        works["transformers"] = update(theirs, lambda: theirs(**given(batch)).logits, labels)
    seconds = medians(works, repeats, warmup=1)
    show(
        f"Fine-tuning BERT of {size.layers} x {size.width}, {rows} rows of {length} (goal: 1.1)",
        ["peer", "ours steps/s", "peer steps/s", "ratio"],
        told(seconds, 1, ()),
    )


PARTS: dict[str, Callable[[int, Size], None]] = {
    "forward": forward,
    "record": recording,
    "generate": generation,
    "tune": tuning,
}


def main() -> None:
    """All of it, or a part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--trial", action="store_true", help="tiny models: only that it runs")
    parser.add_argument("--only", choices=PARTS)
    chosen = parser.parse_args()
    size = TRIAL if chosen.trial else QUICK if chosen.quick else Size()
    steady_allocation()
    torch.manual_seed(0)
    print(machine())
    for name, part in PARTS.items():
        if chosen.only in (None, name):
            part(1 if chosen.trial else 3 if chosen.quick else 7, size)


if __name__ == "__main__":
    main()
