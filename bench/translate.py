"""Translators side by side: ours, transformers, torch.nn.Transformer, CTranslate2, tutorials.

    python -m bench.translate                 (about ten minutes on a quiet machine)
    python -m bench.translate --quick         (fewer repeats)
    python -m bench.translate --base          (Transformer-base too; takes much longer)
    python -m bench.translate --only decode   (or train, record, recurrent)

Each line is a ratio of medians of interleaved repeats, each contender in a process of its own:
above 1 means ours is faster. Peers that decode have our weights, the same sentences and as many
tokens to write. What is not installed is left out, and that is said.

Training is an update with the same fused Adam and clipping; batches are as a bucketed corpus deals
them out, of about 4,096 target tokens, some of it padding. Decoding on several workers is compared
with CTranslate2 on as many, each of one thread, and with transformers on as many threads.
"""

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.apart import Contender, medians_apart, steadily
from bench.measure import Work, machine, missing, paired_ratio, rates, show
from bench.peers import EOS, PAD, TorchTransformer, ctranslate, marian, ours
from bench.recurrent import recurrent
from regard.attention import record
from regard.core.allocation import keep_freed_memory
from regard.core.padding import IGNORE
from regard.core.protocols import Batch
from regard.decode import Beam, decode, search
from regard.models.translation.transformer import Transformer

SIZES = {"tiny": (128, 4, 4, 256), "base": (512, 6, 8, 2048)}
"""Width, layers on each side, heads and units of the feed-forward layers."""

WORDS, TOKENS, WRITTEN = 10_000, 4096, 24
"""The Transformers' vocabulary, target tokens to a batch, and tokens that are written of each."""


def transformer(size: str, dropout: float = 0.1) -> Transformer:
    """Ours, with weights that make it write something else than what it read last."""
    torch.manual_seed(0)
    model = ours(*SIZES[size], vocabulary=WORDS, dropout=dropout)
    nn.init.normal_(model.decoder[-1].get_parameter("around_feedforward.norm.weight"))
    return model


def bucketed() -> list[Batch]:
    """Three batches as they come of a corpus of sentences of 5 to 30 tokens, sorted by length."""
    torch.manual_seed(0)
    lengths = torch.randint(5, 29, (20_000,))
    both = torch.stack((lengths, (lengths + torch.randint(-3, 4, lengths.shape)).clamp(4, 30)), 1)
    both = both[both.amax(1).argsort()]
    batches: list[Batch] = []
    for share in (0.25, 0.5, 0.75):
        first = int(share * len(both))
        rows = TOKENS // int(both[first].max())
        source, target = both[first : first + rows].unbind(1)
        real = torch.arange(int(target.max())) < target[:, None]  # [B,T]
        words = torch.randint(4, WORDS, (2, *real.shape))
        batches.append(
            {
                "source": padded(source),
                "source_lengths": source,
                "tokens": torch.where(real, words[0], PAD),
                "targets": torch.where(real, words[1], IGNORE),
            }
        )
    return batches


def padded(lengths: Tensor) -> Tensor:
    """Random sentences of these lengths; the last token of each ends it."""
    places = torch.arange(int(lengths.max()))
    words = torch.randint(4, WORDS, (len(lengths), len(places)))
    words[places == lengths[:, None] - 1] = EOS
    return torch.where(places < lengths[:, None], words, PAD)


Losses = Callable[[Batch], Tensor]


def updates(model: nn.Module, loss_of: Losses, batches: list[Batch]) -> Work:
    """An update for each batch."""
    optimiser = torch.optim.Adam(model.train().parameters(), 1e-4, fused=True)

    def work() -> None:
        for batch in batches:
            loss_of(batch).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()

    return work


def smoothed(logits: Tensor, batch: Batch) -> Tensor:
    """The usual loss over a table of logits."""
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), label_smoothing=0.1)


def our_training(size: str) -> Work:
    """Updates of ours."""
    model = transformer(size)

    def loss_of(batch: Batch) -> Tensor:
        prediction = model(batch)
        total: Tensor = prediction.nll(batch["targets"], smoothing=0.1, excluded=PAD)
        return total / (batch["targets"] != IGNORE).sum()

    return updates(model, loss_of, bucketed())


def bare_training(size: str) -> Work:
    """Updates of torch.nn.Transformer."""
    model = TorchTransformer(transformer(size))
    return updates(model, lambda batch: smoothed(model(batch), batch), bucketed())


def hugging_training(size: str) -> Work:
    """Updates of transformers' Marian."""
    model = marian(transformer(size))

    def loss_of(batch: Batch) -> Tensor:
        source = batch["source"]
        given = {"input_ids": source, "attention_mask": (source != PAD).long()}
        return smoothed(model(**given, decoder_input_ids=batch["tokens"]).logits, batch)

    return updates(model, loss_of, bucketed())


def training(repeats: int, sizes: list[str], workers: int) -> None:
    """Target tokens per second of an update."""
    rows: list[tuple[object, ...]] = []
    count = sum(int((batch["targets"] != IGNORE).sum()) for batch in bucketed())
    for size in sizes:
        contenders: dict[str, Contender] = {
            "ours": steadily(our_training, size),
            "torch.nn.Transformer": partial(bare_training, size),
        }
        if not missing("transformers"):
            contenders["transformers Marian"] = partial(hugging_training, size)
        rows += rates(medians_apart(contenders, repeats), count, (size,))
    show(
        f"Training a Transformer, {torch.get_num_threads()} threads (goal: 1.3 on tiny)",
        ["size", "peer", "ours tokens/s", "peer tokens/s", "ratio"],
        rows,
    )


def beam_of(width: int) -> Beam:
    """A search that writes so many tokens, the last of them the end."""
    most = WRITTEN - 1
    return Beam(width=width, min_length=most, max_length=most, max_per_source=0, scores=width > 1)


def sources(count: int) -> Tensor:
    """Sentences of 8 to 24 tokens, the longest first."""
    torch.manual_seed(1)
    return padded(torch.randint(8, 25, (count,)).sort(descending=True).values)


def decoded(model: Transformer, source: Tensor, width: int, batch: int) -> None:
    """All sentences, so many at once."""
    lengths = (source != PAD).sum(1)

    def read(numbers: object) -> Batch:
        some = torch.tensor(numbers)
        longest = int(lengths[some].max())
        return {"source": source[some, :longest], "source_lengths": lengths[some]}

    decode(model, read, lengths.tolist(), beam_of(width), max_rows=batch * width)


def serve(asked: Connection, size: str) -> None:
    """A process of one thread, which decodes what it is asked to."""
    torch.set_num_threads(1)
    keep_freed_memory()
    model = transformer(size).eval()
    asked.send("ready")
    while (question := asked.recv()) is not None:
        source, width, batch = question
        decoded(model, torch.tensor(source), width, batch)
        asked.send("done")


def our_decoding(size: str, sentences: int, width: int, batch: int, workers: int) -> Work:
    """Ours, on so many processes; by itself if there is to be one."""
    source = sources(sentences)
    if workers == 1:
        return partial(decoded, transformer(size).eval(), source, width, batch)
    spawning = multiprocessing.get_context("spawn")
    pipes = []
    for _ in range(workers):
        mine, theirs = spawning.Pipe()
        spawning.Process(target=serve, args=(theirs, size), daemon=True).start()
        pipes.append(mine)
    for pipe in pipes:
        pipe.recv()

    def work() -> None:
        for number, pipe in enumerate(pipes):
            pipe.send((source[number::workers].tolist(), width, batch))
        for pipe in pipes:
            pipe.recv()

    return work


def hugging_decoding(size: str, sentences: int, width: int, batch: int) -> Work:
    """transformers' generate, a batch after the other."""
    theirs, source = marian(transformer(size).eval()).eval(), sources(sentences)

    @torch.inference_mode()
    def work() -> None:
        for some in source.split(batch):
            cut = some[:, : int((some != PAD).sum(1).max())]
            theirs.generate(  # type: ignore[operator]
                input_ids=cut,
                attention_mask=(cut != PAD).long(),
                min_new_tokens=WRITTEN,
                max_new_tokens=WRITTEN,
                do_sample=False,
                num_beams=width,
            )

    return work


def ctranslate_decoding(
    size: str, sentences: int, width: int, batch: int, workers: int, folder: Path
) -> Work:
    """CTranslate2 in float32, on as many workers of one thread."""
    import ctranslate2

    source = sources(sentences)
    if not (folder / "model.bin").exists():
        ctranslate(transformer(size).eval(), folder)
    translator = ctranslate2.Translator(
        str(folder), compute_type="float32", inter_threads=workers, intra_threads=1
    )
    named = [[f"t{token}" for token in row if token != PAD] for row in source.tolist()]

    def work() -> object:
        return translator.translate_batch(
            named,
            beam_size=width,
            min_decoding_length=WRITTEN,
            max_decoding_length=WRITTEN,
            max_batch_size=batch,
        )

    return work


def decoding(repeats: int, sizes: list[str], workers: int) -> None:
    """Target tokens per second, greedy and with a beam of 5, in batches of 32 and 1."""
    rows: list[tuple[object, ...]] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            for batch, width in ((32, 1), (32, 5), (1, 1), (1, 5)):
                count = workers if batch > 1 else 1
                sentences = 2 * batch * count if batch > 1 else 4
                asked = (size, sentences, width, batch)
                contenders = {"ours": steadily(our_decoding, *asked, count)}
                if not missing("transformers"):
                    contenders["transformers"] = partial(hugging_decoding, *asked)
                if not missing("ctranslate2"):
                    contenders["CTranslate2"] = partial(
                        ctranslate_decoding, *asked, count, Path(folder)
                    )
                seconds = medians_apart(contenders, repeats)
                rows += rates(seconds, sentences * WRITTEN, (size, batch, width))
    show(
        f"Decoding, {workers} workers of one thread (transformers, and one sentence: "
        f"{torch.get_num_threads()} threads); goals: by transformers 2.5 on tiny, 1.4 on base, 3 "
        "for one sentence on tiny; by CTranslate2 0.8 in batches of 32",
        ["size", "batch", "beam", "peer", "ours tokens/s", "peer tokens/s", "ratio"],
        rows,
    )


def heard(model: Transformer, work: Work) -> None:
    """A search of which all alignments are recorded."""
    with record(model, "*.cross"):
        work()


def recording(repeats: int, sizes: list[str], workers: int) -> None:
    """A beam search with and without its alignments."""
    rows = []
    for size in sizes:
        model, source = transformer(size).eval(), sources(32)
        batch = {"source": source, "source_lengths": (source != PAD).sum(1)}
        for width in (1, 5):
            plain = partial(search, model, batch, beam_of(width))
            ratio = paired_ratio(plain, partial(heard, model, plain), repeats)
            rows.append((size, width, f"{100 * (ratio - 1):.0f} %"))
    show(
        "What recording all alignments adds to a search of 32 sentences (goal: at most 10 %)",
        ["size", "beam", "added"],
        rows,
    )


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--base", action="store_true")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parts = {"train": training, "decode": decoding, "record": recording, "recurrent": recurrent}
    parser.add_argument("--only", choices=parts)
    chosen = parser.parse_args()
    repeats = 3 if chosen.quick else 9
    keep_freed_memory()
    torch.manual_seed(0)
    print(machine())
    for name, part in parts.items():
        if chosen.only in (None, name):
            part(repeats, ["tiny", "base"] if chosen.base else ["tiny"], chosen.workers)


if __name__ == "__main__":
    main()
