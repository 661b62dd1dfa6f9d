"""BERT-base and GPT-2 small side by side: ours, transformers, CTranslate2.

    python -m bench.pretrained                  (about half an hour on a quiet machine)
    python -m bench.pretrained --quick          (small batches, fewer repeats)
    python -m bench.pretrained --only generate  (or forward, record, tune)

Weights are random: what is timed does not depend on them. Each line is a ratio of medians of
interleaved repeats, each contender in a process of its own: above 1 means ours is faster. What is
not installed is left out, and that is said.
"""

import argparse
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.apart import medians_apart, steadily
from bench.measure import Work, machine, missing, rates, show
from regard.attention import record
from regard.core.protocols import Batch
from regard.decode import GenerationRequest, Greedy, generate
from regard.export.ctranslate2 import export_ctranslate2
from regard.layers.quantise import quantise_model
from regard.models.language.gpt import GPT
from regard.models.text.bert import BERT, Encoding
from regard.models.text.bert_classifier import BERTClassifier
from regard.outputs.classes import Classes


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
    """Random texts, the same for all; all but the first a little shorter than the longest."""
    torch.manual_seed(0)
    lengths = torch.randint(max(1, length * 3 // 4), length + 1, (rows,))
    lengths[0] = length
    return {"tokens": torch.randint(size.words, (rows, length)), "lengths": lengths}


def given(batch: Batch) -> dict[str, Tensor]:
    """The same as transformers calls it."""
    tokens, lengths = batch["tokens"], batch["lengths"]
    mask = (torch.arange(tokens.shape[1]) < lengths[:, None]).long()
    return {"input_ids": tokens, "attention_mask": mask}


def our_forward(size: Size, rows: int, length: int, recorded: bool) -> Work:
    """A forward pass of our BERT, with one layer recorded or none."""
    model = BERT(BERT.Config(encoder=encoding(size), words=False), size.words).eval()
    batch, site = texts(size, rows, length), f"encoder.{min(3, size.layers - 1)}.*"

    @torch.inference_mode()
    def work() -> None:
        with record(model, sites=site) if recorded else nullcontext():
            model(batch)

    return work


def hugging_forward(size: Size, rows: int, length: int, recorded: bool) -> Work:
    """A forward pass of transformers' BERT, with the weights of all layers or none."""
    model = hugging_bert(size, "eager" if recorded else "sdpa").eval()
    batch = given(texts(size, rows, length))

    @torch.inference_mode()
    def work() -> None:
        model(**batch, output_attentions=recorded)

    return work


def encoders(repeats: int, size: Size, *, recorded: bool) -> None:
    """Texts per second of BERT."""
    rows = []
    for length in size.lengths:
        for count in size.batches:
            asked = (size, count, length, recorded)
            contenders = {"ours": steadily(our_forward, *asked)}
            if not missing("transformers"):
                kind = "eager" if recorded else "sdpa"
                contenders[f"transformers {kind}"] = partial(hugging_forward, *asked)
            rows += rates(medians_apart(contenders, repeats), count, (length, count))
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


def forward(repeats: int, size: Size) -> None:
    """BERT as it is."""
    encoders(repeats, size, recorded=False)


def recording(repeats: int, size: Size) -> None:
    """BERT, looked into."""
    encoders(repeats, size, recorded=True)


def prompts(size: Size, batch: int) -> Tensor:
    """What generation begins with, the same for all."""
    torch.manual_seed(0)
    return torch.randint(1, size.tokens, (batch, 16))


def our_gpt(size: Size) -> GPT:
    """GPT-2 small, or as wide and deep as asked."""
    config = GPT.Config(
        width=size.width,
        heads=size.heads,
        layers=size.layers,
        context=1024,
        activation="gelu_tanh",
    )
    return GPT(config, vocabulary=size.tokens).eval()


def our_generation(size: Size, batch: int, weights: str) -> Work:
    """Ours, with such weights."""
    model = our_gpt(size)
    quantise_model(model, weights)
    asked = GenerationRequest(policy=Greedy(), max_tokens=size.written)
    return partial(generate, model, prompts(size, batch).tolist(), asked)


def hugging_generation(size: Size, batch: int) -> Work:
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
    model, begun = GPT2LMHeadModel(config).eval(), prompts(size, batch)

    @torch.inference_mode()
    def work() -> object:
        return model.generate(
            begun,
            attention_mask=torch.ones_like(begun),
            max_new_tokens=size.written,
            min_new_tokens=size.written,
            do_sample=False,
        )

    return work


def ctranslate_generation(size: Size, batch: int, kind: str, folder: Path) -> Work:
    """CTranslate2 on as many threads."""
    import ctranslate2

    runner = ctranslate2.Generator(
        str(folder), compute_type=kind, inter_threads=1, intra_threads=torch.get_num_threads()
    )
    named = [[f"t{token}" for token in row] for row in prompts(size, batch).tolist()]

    def work() -> object:
        return runner.generate_batch(
            named,
            min_length=size.written,
            max_length=size.written,
            sampling_topk=1,
            include_prompt_in_result=False,
        )

    return work


def generation(repeats: int, size: Size) -> None:
    """Greedy tokens per second of GPT-2, from a prompt of 16 tokens."""
    rows: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        kinds = () if missing("ctranslate2") else ("float32", "int8")
        if kinds:
            names = [f"t{number}" for number in range(size.tokens)]
            marks = {"unk": 0, "bos": 0, "eos": 0}
            export_ctranslate2(our_gpt(size), Path(folder), words=names, specials=marks)
        for batch in (1, 8):
            contenders = {
                "ours": steadily(our_generation, size, batch, "float32"),
                "ours int8": steadily(our_generation, size, batch, "int8"),
            }
            if not missing("transformers"):
                contenders["transformers"] = partial(hugging_generation, size, batch)
            for kind in kinds:
                contenders[f"CTranslate2 {kind}"] = partial(
                    ctranslate_generation, size, batch, kind, Path(folder)
                )
            seconds = medians_apart(contenders, repeats)
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


def our_tuning(size: Size) -> Work:
    """A step of fine-tuning a classifier on our BERT."""
    model = BERTClassifier(BERTClassifier.Config(encoder=encoding(size, 0.1)), size.words, 3)
    batch = texts(size, *size.tuned)
    return update(model, lambda: Classes.of(model, batch).logits, size.tuned[0])


def hugging_tuning(size: Size) -> Work:
    """A step of fine-tuning transformers' classifier."""
    model, batch = hugging_bert(size, "sdpa", classes=3, dropout=0.1), texts(size, *size.tuned)
    return update(model, lambda: model(**given(batch)).logits, size.tuned[0])


def update(model: nn.Module, scores: Callable[[], Tensor], rows: int) -> Work:
    """One step of fine-tuning, with the same optimiser and clipping for all."""
    optimiser = torch.optim.AdamW(model.train().parameters(), 3e-5, fused=True)
    labels = torch.randint(3, (rows,))

    def work() -> None:
        F.cross_entropy(scores(), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return work


def tuning(repeats: int, size: Size) -> None:
    """Steps per second of a classifier on BERT."""
    contenders = {"ours": steadily(our_tuning, size)}
    if not missing("transformers"):
        contenders["transformers"] = partial(hugging_tuning, size)
    rows, length = size.tuned
    show(
        f"Fine-tuning BERT of {size.layers} x {size.width}, {rows} rows of {length} (goal: 1.1)",
        ["peer", "ours steps/s", "peer steps/s", "ratio"],
        rates(medians_apart(contenders, repeats), 1),
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
    parser.add_argument("--batches", type=int, nargs="+", help="texts at once, for BERT's passes")
    chosen = parser.parse_args()
    size = TRIAL if chosen.trial else QUICK if chosen.quick else Size()
    if chosen.batches:
        size = replace(size, batches=tuple(chosen.batches))
    print(machine())
    for name, part in PARTS.items():
        if chosen.only in (None, name):
            part(1 if chosen.trial else 3 if chosen.quick else 7, size)


if __name__ == "__main__":
    main()
