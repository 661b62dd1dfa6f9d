"""The data of captioning: which images and captions, which features, and the words of captions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.data import Tokeniser
from regard.data.bucket import EMPTY_ROW, next_token_collate
from regard.data.image.captions import Captioned, chosen, read_captions, read_names
from regard.data.image.files import ImageFiles, open_images
from regard.data.image.lite0 import Layer
from regard.tasks.task import FileOrShare, Split, found
from regard.tasks.translation_data import Searching

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_Score = Literal["bleu1", "bleu2", "bleu3", "bleu4", "rouge_l", "cider"]


class Captions(Config):
    """The `[data]` table of a recipe: which images and captions, how read, how measured."""

    captions: str
    """A file of captions: Flickr's, TSV, JSONL, COCO's JSON or Karpathy's, perhaps .gz."""
    images: str
    """A folder of images, or a .zip file of them."""
    train: str | None = None
    """A list of the images to learn from, a name a line; without it, all that are in no other."""
    validation: FileOrShare = 0.1
    """A list of images, or the share of the training images to keep for it."""
    test: str | None = None
    """A list of images."""
    missing: Literal["refuse", "skip"] = "refuse"
    """What to do with captions whose image is not there."""
    origin: str = ""
    """Where a user gets these files; named when they are missing."""
    layer: Layer = "head"
    """Which features of the frozen network: head (7 x 7 places of 1280), blocks (7 x 7 of 320) or
    middle (14 x 14 of 112)."""
    weights: str | None = None
    """A file of EfficientNet-Lite0's weights; without it, those of the package."""
    vocabulary: PositiveInt | None = None
    """The most words there may be."""
    min_frequency: PositiveInt = 5
    """A rarer word is unknown."""
    max_length: PositiveInt = 40
    """Longer captions are not learnt from."""
    batch: PositiveInt = 64
    evaluate_batch: PositiveInt = 64
    scores: tuple[_Score, ...] = ("bleu1", "bleu2", "bleu3", "bleu4", "rouge_l", "cider")
    """What captions of a split are compared by."""
    search: Searching = Field(
        default=Searching(width=5, length_penalty="average", alpha=0.7, max_length=30,
                          max_per_source=0.0)
    )  # fmt: skip
    """How captions are searched for."""
    seed: int = 0


def caption_words(text: str) -> list[str]:
    """The words of a caption, in lower case, without punctuation.

    >>> caption_words("A dog's ball , on the T-shirt .")
    ['a', "dog's", 'ball', 'on', 'the', 't-shirt']
    """
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class CaptionFiles:
    """The captions of each split, and the images."""

    images: ImageFiles
    splits: dict[Split, tuple[Captioned, ...]]
    skipped: int = 0
    """Images that are not there, if these are skipped."""

    @property
    def names(self) -> list[str]:
        """Every image once, in a fixed order: that of the features."""
        return sorted({each.image for some in self.splits.values() for each in some})


def open_captions(data: Captions, folder: Path) -> CaptionFiles:
    """Read the captions and the lists, and check that every image is there."""
    path = found(folder, data.captions, data.origin)
    images = open_images(found(folder, data.images, data.origin))
    every = read_captions(path)
    missing = [each for each in every if each.image not in images]
    if missing and data.missing == "refuse":
        raise UserError(
            f"{missing[0].where}: the image {missing[0].image!r} is not in {images.path}, nor are "
            f'{len(missing) - 1:,} others of {len(every):,}; set data.missing = "skip" to do '
            "without them"
        )
    gone = {each.image for each in missing}
    kept = [each for each in every if each.image not in gone]
    if not kept:
        raise UserError(f"{path}: none of the {len(every):,} images is in {images.path}")

    def listed(name: str) -> tuple[Captioned, ...]:
        file = found(folder, name, data.origin)
        return tuple(chosen(kept, [each for each in read_names(file) if each not in gone], file))

    splits: dict[Split, tuple[Captioned, ...]] = {}
    if data.test is not None:
        splits["test"] = listed(data.test)
    if isinstance(data.validation, str):
        splits["validation"] = listed(data.validation)
    used = {each.image for some in splits.values() for each in some}
    if data.train is None:
        rest = tuple(each for each in kept if each.image not in used)
    else:
        rest = listed(data.train)
    if isinstance(data.validation, float):
        rest, splits["validation"] = _apart(rest, data.validation, data.seed)
    splits["train"] = rest
    for name, some in splits.items():
        if not some:
            raise UserError(f"{path}: there are no images in the {name} split")
    return CaptionFiles(images, splits, len(missing))


def _apart(
    every: Sequence[Captioned], share: float, seed: int
) -> tuple[tuple[Captioned, ...], tuple[Captioned, ...]]:
    """The images to learn from, and a share of them drawn by the seed."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(every), generator=generator).tolist()
    count = max(1, round(share * len(every)))
    held = set(order[:count])
    return (
        tuple(each for place, each in enumerate(every) if place not in held),
        tuple(every[place] for place in sorted(held)),
    )


class CaptionNumbers:
    """The captions of a split as numbers, each with the features of its image."""

    def __init__(
        self,
        captions: Sequence[Captioned],
        features: Float[Tensor, "B N C"],
        places: dict[str, int],
        tokeniser: Tokeniser,
        longest: int | None,
    ) -> None:
        self.features = features
        sentences, images = [], []
        for caption, image in _each(captions):
            words = caption_words(caption)
            if longest is not None and len(words) > longest:
                continue
            numbers = tokeniser.encode(" ".join(words))
            sentences.append([tokeniser.bos, *numbers, tokeniser.eos])
            images.append(places[image])
        self.sentences = sentences
        self.images: Int[Tensor, "S"] = torch.tensor(images, dtype=torch.int64)
        self._collate = next_token_collate(sentences, tokeniser.pad)

    @property
    def lengths(self) -> list[int]:
        """The number of steps of each caption."""
        return [len(each) - 1 for each in self.sentences]

    def gather(self, numbers: Int[Tensor, "B"]) -> Batch:
        """A batch; the features are read from their file."""
        rows = self.images[numbers.clamp_min(0)]
        patches = self.features[rows].float()
        there = (numbers != EMPTY_ROW)[:, None, None]
        return {"patches": patches * there, **self._collate(numbers)}


def _each(captions: Sequence[Captioned]) -> Iterator[tuple[str, str]]:
    return ((text, each.image) for each in captions for text in each.captions)
