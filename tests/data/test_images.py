"""Images by name, captions in every format, EfficientNet-Lite0, and features in a mapped file."""

import gzip
import json
import zipfile
from pathlib import Path

import numpy
import pytest
import torch
import torch.nn.functional as F
from PIL import Image as Pillow

from regard.core.errors import UserError
from regard.data.image import features
from regard.data.image.captions import chosen, read_captions
from regard.data.image.features import cached_features, features_of, scaled
from regard.data.image.files import open_images
from regard.data.image.lite0 import CHANNELS, Lite0, SameConvolution, load_lite0, same_padding
from regard.data.image.lite0 import _package_file as package_file


def picture(path: Path, colour: tuple[int, int, int] = (200, 30, 60)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.new("RGB", (20, 10), colour).save(path)


@pytest.fixture(scope="module")
def network() -> Lite0:
    return load_lite0()


def literal(x: torch.Tensor, layer: SameConvolution) -> torch.Tensor:
    """TensorFlow's "same" convolution, output by output."""
    weight, stride = layer.weight, layer.stride
    _, _, height, width = x.shape
    kernel = weight.shape[2]
    rows, columns = -(-height // stride), -(-width // stride)
    top = max((rows - 1) * stride + kernel - height, 0) // 2
    left = max((columns - 1) * stride + kernel - width, 0) // 2
    out = torch.zeros(1, weight.shape[0], rows, columns, dtype=x.dtype)
    for row in range(rows):
        for column in range(columns):
            total = layer.bias.clone()
            for y in range(kernel):
                for z in range(kernel):
                    at, beside = row * stride + y - top, column * stride + z - left
                    if 0 <= at < height and 0 <= beside < width:
                        seen = x[0, :, at, beside]
                        if layer.groups == 1:
                            total = total + weight[:, :, y, z] @ seen
                        else:
                            total = total + weight[:, 0, y, z] * seen
            out[0, :, row, column] = total
    return out


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [(7, 8), (8, 5)])
def test_padding_is_that_of_tensorflow(
    side: tuple[int, int], stride: int, kernel: int, apart: bool
) -> None:
    layer = SameConvolution(3, 3 if apart else 4, kernel, stride, apart=apart).double()
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(1, 3, *side, dtype=torch.float64)
    torch.testing.assert_close(layer(x), literal(x, layer), atol=1e-12, rtol=1e-12)


def test_an_even_side_is_padded_more_at_its_end() -> None:
    assert same_padding(224, 3, 2) == (0, 1)
    assert same_padding(28, 5, 2) == (1, 2)


def test_features_are_those_of_the_published_weights(network: Lite0) -> None:
    """The same network with its normalisations apart, written down block by block."""
    held = torch.load(package_file(), weights_only=True)

    def layer(x: torch.Tensor, name: str, norm: str, stride: int, groups: int) -> torch.Tensor:
        weight = held[f"{name}.weight"]
        kernel = weight.shape[2]
        down, right = (same_padding(side, kernel, stride) for side in x.shape[2:])
        x = F.conv2d(F.pad(x, (*right, *down)), weight, None, stride, groups=groups)
        stats = [
            held[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        ]
        return F.batch_norm(x, *stats, eps=1e-3)

    pixels = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    x = F.relu6(layer((pixels.float() - 127) / 128, "_conv_stem", "_bn0", 2, 1))
    strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1]
    for number, stride in enumerate(strides):
        name, before = f"_blocks.{number}", x
        if number:
            x = F.relu6(layer(x, f"{name}._expand_conv", f"{name}._bn0", 1, 1))
        x = F.relu6(layer(x, f"{name}._depthwise_conv", f"{name}._bn1", stride, x.shape[1]))
        x = layer(x, f"{name}._project_conv", f"{name}._bn2", 1, 1)
        x = x + before if stride == 1 and x.shape == before.shape else x
        if number == 10:
            torch.testing.assert_close(network(pixels, "middle"), x, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(network(pixels, "blocks"), x, atol=1e-4, rtol=1e-4)
    x = F.relu6(layer(x, "_conv_head", "_bn1", 1, 1))
    torch.testing.assert_close(network(pixels, "head"), x, atol=1e-4, rtol=1e-4)


def test_a_file_of_other_weights_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(UserError, match="is this EfficientNet-Lite0"):
        load_lite0(tmp_path / "other.pth")
    (tmp_path / "none.pth").write_bytes(b"no weights")
    with pytest.raises(UserError, match="not a state dict that can be read"):
        load_lite0(tmp_path / "none.pth")
    with pytest.raises(UserError, match="no such file"):
        load_lite0(tmp_path / "missing.pth")


def test_images_are_found_whatever_their_folder_and_ending(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "deep" / "cat.png")
    found = open_images(tmp_path / "images")
    assert "cat.jpg" in found
    assert found.read("cat.webp").pixels.shape == (3, 10, 20)
    with pytest.raises(UserError, match=r"there is no image 'cats.jpg'; did you mean cat"):
        found.read("cats.jpg")
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        archive.write(tmp_path / "images" / "deep" / "cat.png", "a/cat.png")
        archive.writestr("notes.txt", "no image")
    assert torch.equal(
        open_images(tmp_path / "images.zip").read("cat").pixels, found.read("cat").pixels
    )


def test_what_holds_no_images_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.zip").write_bytes(b"PK no archive")
    with pytest.raises(UserError, match=r"not a .zip file"):
        open_images(tmp_path / "bad.zip")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="there are no images"):
        open_images(tmp_path / "empty")
    with pytest.raises(UserError, match="no such folder"):
        open_images(tmp_path / "nowhere")
    picture(tmp_path / "twice" / "a" / "x.png")
    picture(tmp_path / "twice" / "b" / "x.jpg")
    with pytest.raises(UserError, match="two images have the same name"):
        open_images(tmp_path / "twice")


FORMS = {
    "flickr.txt": "x.jpg#0\ta cat\nx.jpg#1\tone  cat\ny.jpg#0\ta dog\n",
    "captions.tsv": "x.jpg\ta cat\nx.jpg\tone cat\n\ny.jpg\ta dog\n",
    "captions.jsonl": '{"image": "x.jpg", "captions": ["a cat", "one cat"]}\n'
    '{"image": "y.jpg", "caption": "a dog"}\n',
    "coco.json": json.dumps(
        {
            "images": [{"id": 7, "file_name": "x.jpg"}, {"id": 9, "file_name": "y.jpg"}],
            "annotations": [
                {"image_id": 7, "caption": "a cat"},
                {"image_id": 7, "caption": "one cat"},
                {"image_id": 9, "caption": "a dog"},
            ],
        }
    ),
    "karpathy.json": json.dumps(
        {
            "images": [
                {
                    "filename": "x.jpg",
                    "split": "train",
                    "sentences": [{"raw": "a cat"}, {"raw": "one cat"}],
                },
                {"filename": "y.jpg", "split": "train", "sentences": [{"raw": "a dog"}]},
                {"filename": "z.jpg", "split": "test", "sentences": [{"raw": "a cow"}]},
            ]
        }
    ),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("packed", [False, True])
def test_captions_in_every_form(name: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / (f"{name}.gz" if packed else name)
    data = FORMS[name].encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    found = read_captions(path, split="train")
    assert [(each.image, each.captions) for each in found] == [
        ("x.jpg", ("a cat", "one cat")),
        ("y.jpg", ("a dog",)),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "x.jpg\ta cat\nno tab\n", "a.tsv:2: expected the name of an image, a tab"),
        ("a.tsv", "x.jpg\t \n", "a.tsv:1: the caption of 'x.jpg' is empty"),
        ("a.jsonl", "{\n", "a.jsonl:1: not JSON"),
        ("a.jsonl", '{"image": 3}\n', "a.jsonl:1: expected"),
        ("a.jsonl", '{"image": "x", "captions": [3]}\n', "must be a text, not int"),
        ("a.json", "[" * 100_000, "neither COCO's captions nor Karpathy's"),
        ("a.json", '{"images": [{}]}', "neither COCO's captions nor Karpathy's"),
    ],
)
def test_broken_captions_are_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        read_captions(tmp_path / name)


def test_a_list_with_an_image_that_has_no_caption(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x.jpg\ta cat\n")
    captions = read_captions(tmp_path / "a.tsv")
    with pytest.raises(UserError, match=r"1 of 2 images have no caption, the first is 'y.jpg'"):
        chosen(captions, ["x.jpg", "y.jpg"], tmp_path / "list.txt")


def test_features_are_computed_once_and_resumed(
    tmp_path: Path, network: Lite0, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number}.png" for number in range(5)]
    for number, name in enumerate(names):
        picture(tmp_path / "images" / name, (50 * number, 90, 10))
    files = open_images(tmp_path / "images")
    monkeypatch.setattr(features, "_PIECE", 2)
    seen: list[int] = []

    def interrupted(done: int, of: int) -> None:
        seen.append(done)
        if done == 4:
            raise KeyboardInterrupt

    given = {"side": 32, "folder": tmp_path / "cache"}
    with pytest.raises(KeyboardInterrupt):
        cached_features(network, files, names, "blocks", progress=interrupted, **given)
    again: list[int] = []
    table = cached_features(
        network, files, names, "blocks", progress=lambda done, of: again.append(done), **given
    )
    assert (seen, again) == ([2, 4], [5])
    images = [files.read(name) for name in names]
    expected = features_of(network, images, "blocks", 32)
    assert table.shape == (5, 1, CHANNELS["blocks"])
    torch.testing.assert_close(table.float(), expected, atol=2e-2, rtol=2e-3)  # half precision
    third: list[int] = []
    cached_features(network, files, names, "blocks", progress=lambda a, b: third.append(a), **given)
    assert third == []
    picture(tmp_path / "images" / "0.png", (1, 2, 3))  # another image, another file
    fresh = cached_features(network, open_images(tmp_path / "images"), names, "blocks", **given)
    assert not torch.equal(fresh[0], table[0])


def test_grey_images_and_any_proportions_are_read(network: Lite0) -> None:
    grey = Pillow.fromarray(numpy.full((30, 7), 128, dtype=numpy.uint8))
    from regard.core.inputs import Image

    pixels = torch.from_numpy(numpy.asarray(grey).copy())[None]
    assert scaled(Image(pixels), 32).shape == (3, 32, 32)
