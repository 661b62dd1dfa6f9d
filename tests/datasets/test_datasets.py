"""The table of datasets, and each dataset made from small archives in its authors' layout."""

import gzip
import io
import json
import lzma
import os
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy
import pytest
from PIL import Image
from typer.testing import CliRunner

from regard.cli import app
from regard.core.errors import UserError
from regard.datasets import PublicDataset, command_to_get, public_dataset, public_datasets
from regard.datasets.convert import CONVERTERS
from regard.datasets.get import SOURCE_FILE, check_dataset, get_dataset
from regard.datasets.write import open_content, unpacked_digest
from regard.runs.recipe import shipped_recipes

ROOT = os.environ.get("REGARD_DATA", "")
needs_data = pytest.mark.skipif(not ROOT, reason="REGARD_DATA names no folder with the originals")

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def data_files(value: object) -> Iterator[str]:
    """Every file of the data folder that a recipe's `[data]` names."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key not in ("origin", "generate"):
                yield from data_files(each)
    elif isinstance(value, list):
        for each in value:
            yield from data_files(each)
    elif isinstance(value, str) and "/" in value:
        yield value


def test_every_file_of_every_recipe_can_be_had_by_name() -> None:
    count = 0
    for name, text in shipped_recipes().items():
        for path in data_files(tomllib.loads(text)["data"]):
            folder, _, inside = path.partition("/")
            made = public_dataset(folder).paths
            assert any(inside == each or inside.startswith(f"{each}/") for each in made), name
            count += 1
    assert count > 50


def test_the_table_is_sound() -> None:
    assert len(public_datasets()) > 30
    for dataset in public_datasets().values():
        names = [each.name for each in dataset.original]
        assert len(set(names)) == len(names), dataset.name
        assert len(set(dataset.paths)) == len(dataset.paths) > 0
        assert not dataset.converter or dataset.converter in CONVERTERS
        for path in (*dataset.paths, *names):
            assert not path.startswith("/")
            assert ".." not in path
        for original in dataset.original:
            for url in original.urls:
                assert urlsplit(url).scheme in ("http", "https"), url
            insecure = any(url.startswith("http:") for url in original.urls)
            checked = original.sha256 or any(each.sha256 for each in dataset.file)
            assert not insecure or checked or "first download is trusted" in dataset.note


def test_what_is_not_verified_is_stated() -> None:
    for dataset in public_datasets().values():
        rows = [*dataset.file, *dataset.folder, *dataset.pack]
        known = all(each.sha256 for each in dataset.original)
        if dataset.is_downloadable and not known and not (rows and all(r.sha256 for r in rows)):
            assert "trusted" in dataset.note, dataset.name


def pack_zip(path: Path, contents: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in contents.items():
            made.writestr(name, content)


def pack_tar(path: Path, contents: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as made:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))


def small(name: str, **changes: object) -> PublicDataset:
    """A dataset without the digests of the real one, for small originals."""
    dataset = public_dataset(name)
    clear = {"sha256": None, "bytes": None}
    return dataset.model_copy(
        update={
            "original": tuple(each.model_copy(update=clear) for each in dataset.original),
            "file": tuple(each.model_copy(update={"sha256": None}) for each in dataset.file),
            "folder": tuple(
                each.model_copy(update={"sha256": None} | changes) for each in dataset.folder
            ),
            "pack": tuple(
                each.model_copy(update={"sha256": None} | changes) for each in dataset.pack
            ),
        }
    )


def test_imdb_becomes_rows_in_order_of_their_number(tmp_path: Path) -> None:
    reviews = {
        f"aclImdb/{split}/{label}/{number}_{rating}.txt": f"{split} {label}\t{number}".encode()
        for split in ("train", "test")
        for label, rating in (("pos", 9), ("neg", 2))
        for number in (0, 2, 10)
    }
    extra = {"aclImdb/README": b"about", "aclImdb/train/unsup/0_0.txt": b"none"}
    pack_tar(tmp_path / "aclImdb_v1.tar.gz", reviews | extra)
    get_dataset(small("imdb"), tmp_path, given=tmp_path / "aclImdb_v1.tar.gz")
    with lzma.open(tmp_path / "imdb" / "imdb.train.tsv.xz", "rt") as file:
        rows = file.read().splitlines()
    assert rows[:3] == ["0\t2\t0\ttrain neg 0", "1\t9\t0\ttrain pos 0", "0\t2\t2\ttrain neg 2"]
    assert len(rows) == 6


def test_babi_is_a_folder_for_each_size(tmp_path: Path) -> None:
    contents = {
        f"tasks_1-20_v1-2/{size}/qa{n}_x_{split}.txt": f"{size} {n} {split}".encode()
        for size in ("en", "en-10k", "hn")
        for n in range(1, 21)
        for split in ("train", "test")
    }
    pack_tar(tmp_path / "tasks_1-20_v1-2.tar.gz", contents | {"tasks_1-20_v1-2/README": b""})
    states = get_dataset(small("babi"), tmp_path, given=tmp_path)
    assert [each.state for each in states] == ["as downloaded"] * 2
    assert len(list((tmp_path / "babi").rglob("*.txt"))) == 80
    assert (tmp_path / "babi" / "en-10k" / "qa1_x_train.txt").read_text() == "en-10k 1 train"
    (tmp_path / "babi" / "en" / "qa1_x_train.txt").write_text("altered")
    assert check_dataset(small("babi"), tmp_path)[0].state == "differs"
    with pytest.raises(UserError, match=r"is not what babi has there.*--overwrite"):
        get_dataset(small("babi"), tmp_path, given=tmp_path)
    states = get_dataset(small("babi"), tmp_path, given=tmp_path, overwrite=True)
    assert [each.state for each in states] == ["as downloaded"] * 2


def test_an4_becomes_ogg_and_tables(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="pip install 'regard[speech]'")
    contents: dict[str, bytes] = {}
    for split, names in (("train", ("an1-fash-b", "an2-fash-b")), ("test", ("cen1-mjgm-b",))):
        paths = [f"an4_clstk/fash/{name}" for name in names]
        lines = [f"<s> YES GO </s> ({name})" for name in names]
        contents[f"an4-b567/etc/an4_{split}.fileids"] = "\n".join(paths).encode()
        contents[f"an4-b567/etc/an4_{split}.transcription"] = "\n".join(lines).encode()
        for path in paths:
            wave = io.BytesIO()
            soundfile.write(wave, numpy.zeros(8000, "float32"), 16_000, format="WAV")
            contents[f"an4-b567/wav/{path}.wav"] = wave.getvalue()
    pack_zip(tmp_path / "an4.zip", contents)
    get_dataset(small("an4"), tmp_path, given=tmp_path)
    rows = (tmp_path / "an4" / "train.tsv").read_text().splitlines()
    assert rows[0] == "an4_clstk/fash/an1-fash-b.ogg\t0.500\tYES GO"
    with zipfile.ZipFile(tmp_path / "an4" / "audio.zip") as made:
        assert len(made.namelist()) == 3
        wave, rate = soundfile.read(io.BytesIO(made.read("an4_clstk/fash/cen1-mjgm-b.ogg")))
    assert (len(wave), rate) == (8000, 16_000)


def test_flickr8k_keeps_the_captions_of_the_splits(tmp_path: Path) -> None:
    captions = "a.jpg#0\tOne .\nb.jpg#0\tTwo .\nc.jpg#0\tThree .\nextra.jpg.1#0\tNo .\n"
    lists = {f"Flickr_8k.{s}Images.txt": f"{n}.jpg\n".encode() for s, n in zip(
        ("train", "dev", "test"), "abc", strict=True)}  # fmt: skip
    pack_zip(
        tmp_path / "Flickr8k_text.zip",
        {"Flickr8k.token.txt": captions.encode(), "__MACOSX/._x.txt": b"\xff"} | lists,
    )
    get_dataset(small("flickr8k"), tmp_path, given=tmp_path)
    with gzip.open(tmp_path / "flickr8k" / "Flickr8k.token.txt.gz", "rt") as file:
        assert file.read() == captions[: captions.index("extra")]
    image = io.BytesIO()
    Image.new("RGB", (500, 300), "red").save(image, "JPEG")
    pack_zip(tmp_path / "Flickr8k_Dataset.zip", {"Flicker8k_Dataset/a.jpg": image.getvalue()})
    get_dataset(small("flickr8k-160"), tmp_path, given=tmp_path)
    with zipfile.ZipFile(tmp_path / "flickr8k-160" / "images160.zip") as made:
        assert Image.open(io.BytesIO(made.read("a.webp"))).size == (160, 160)


def test_handwriting_becomes_offsets(tmp_path: Path) -> None:
    def line(*strokes: list[tuple[int, int]]) -> bytes:
        inside = "".join(
            "<Stroke>"
            + "".join(f'<Point x="{x}" y="{y}" time="1"/>' for x, y in each)
            + "</Stroke>"
            for each in strokes
        )
        return f"<Session><StrokeSet>{inside}</StrokeSet></Session>".encode()

    pack_tar(
        tmp_path / "lineStrokes-all.tar.gz",
        {
            "lineStrokes/a01/a01-000/a01-000u-01.xml": line([(10, 20), (13, 19)], [(50, 20)]),
            "lineStrokes/a01/a01-000/a01-000u-02.xml": line([(1, 1)]),
            "lineStrokes/a01/a01-000/a01-000u-09.xml": line([(1, 1)]),
        },
    )
    text = b"OCR:\n\nA MOVE\n\nCSR:\n\nA MOVE  to\nstop\n"
    pack_tar(tmp_path / "ascii-all.tar.gz", {"ascii/a01/a01-000/a01-000u.txt": text})
    for name in ("trainset", "testset_t", "testset_f"):
        (tmp_path / f"{name}.txt").write_text("")
    (tmp_path / "testset_v.txt").write_text("a01-000u\n")
    get_dataset(small("iam-ondb"), tmp_path, given=tmp_path)
    rows = (tmp_path / "iam-ondb" / "lines.tsv").read_text()
    assert rows == "a01-000u-01\tval1\t3\tA MOVE to\na01-000u-02\tval1\t1\tstop\n"
    with numpy.load(tmp_path / "iam-ondb" / "strokes.npz") as strokes:
        assert strokes["dx"].tolist() == [0, 3, 37, 0]
        assert strokes["dy"].tolist() == [0, -1, 1, 0]
        assert numpy.unpackbits(strokes["up"])[:4].tolist() == [0, 1, 1, 1]
        assert strokes["offsets"].tolist() == [0, 3, 4]
    with pytest.raises(UserError, match="given on request only, at https"):
        get_dataset(small("iam-ondb"), tmp_path / "elsewhere")


def test_packs_take_what_they_name(tmp_path: Path) -> None:
    contents = {
        f"POP909-Dataset-master/POP909/{n:03}/{n:03}.mid": f"song {n}".encode() for n in (1, 2)
    }
    other = {
        "POP909-Dataset-master/POP909/001/versions/001-v1.mid": b"no",
        "POP909-Dataset-master/POP909/001/beat_midi.txt": b"no",
    }
    pack_zip(tmp_path / "POP909-Dataset.zip", contents | other)
    get_dataset(small("pop909", files=2), tmp_path, given=tmp_path)
    with tarfile.open(tmp_path / "pop909" / "POP909-midi.tar.xz") as made:
        assert made.getnames() == ["POP909/001/001.mid", "POP909/002/002.mid"]
    with pytest.raises(UserError, match=r"has 2 files for POP909-midi.tar.xz instead of 909"):
        get_dataset(small("pop909"), tmp_path / "other", given=tmp_path)


def test_first_lines_and_bytes_are_kept(tmp_path: Path) -> None:
    lines = "".join(f"word{n} 0.1\n" for n in range(40_000))
    pack_zip(tmp_path / "glove.6B.zip", {"glove.6B.50d.txt": lines.encode(), "other": b""})
    get_dataset(small("glove-6b-50d"), tmp_path, given=tmp_path)
    with gzip.open(tmp_path / "glove-6b-50d" / "glove.6B.50d.30k.txt.gz", "rt") as file:
        assert file.read() == "".join(f"word{n} 0.1\n" for n in range(30_000))
    pack_zip(tmp_path / "enwik8.zip", {"enwik8": bytes(9_999_999)})
    with pytest.raises(UserError, match="ends 1 bytes before the 10,000,000"):
        get_dataset(small("enwik8-10mb"), tmp_path, given=tmp_path)
    assert not (tmp_path / "enwik8-10mb").exists()


def test_ag_news_joins_title_and_description(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text('"3","A ""title""","and,\nmore"\n')
    get_dataset(small("ag-news"), tmp_path, given=tmp_path)
    with lzma.open(tmp_path / "ag-news" / "test.tsv.xz", "rt") as file:
        assert file.read() == '3\tA "title" and, more\n'


def test_wrong_originals_leave_nothing(tmp_path: Path) -> None:
    contents = {f"conll2000/{split}.txt": b"not the corpus" for split in ("train", "test")}
    pack_zip(tmp_path / "conll2000.zip", contents)
    with pytest.raises(UserError, match=r"conll2000: train.txt.gz has the digest [0-9a-f]{64};"):
        get_dataset(public_dataset("conll2000"), tmp_path, given=tmp_path)
    (tmp_path / "input.txt").write_text("To be")
    with pytest.raises(UserError, match="has 5 bytes where 1,115,394 are expected"):
        get_dataset(public_dataset("tinyshakespeare"), tmp_path, given=tmp_path)
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {"conll2000.zip", "input.txt", ".downloads"}


def test_own_files_of_unknown_digest_stay(tmp_path: Path) -> None:
    (tmp_path / "ag-news").mkdir()
    (tmp_path / "ag-news" / "train.tsv.xz").write_bytes(lzma.compress(b"1\tmine\n"))
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text('"3","a","b"\n')
    get_dataset(small("ag-news"), tmp_path, given=tmp_path)
    assert lzma.decompress((tmp_path / "ag-news" / "train.tsv.xz").read_bytes()) == b"1\tmine\n"
    assert (tmp_path / "ag-news" / "test.tsv.xz").exists()
    assert [each.state for each in check_dataset(small("ag-news"), tmp_path)] == [
        "as downloaded",
        "as downloaded",
    ]


def real_conll2000(folder: Path) -> None:
    contents = {}
    for split in ("train", "test"):
        with gzip.open(f"{ROOT}/conll2000/{split}.txt.gz") as file:
            contents[f"conll2000/{split}.txt"] = file.read()
    pack_zip(folder / "conll2000.zip", contents)


def real_movie_reviews(folder: Path) -> None:
    with tarfile.open(f"{ROOT}/movie-reviews-v2/movie_reviews.tar.xz") as held:
        contents = {each.name: held.extractfile(each).read() for each in held if each.isfile()}
    pack_zip(folder / "movie_reviews.zip", contents)


def real_enja(folder: Path) -> None:
    for language in ("en", "ja"):
        for split in ("dev", "test"):
            with gzip.open(f"{ROOT}/small_parallel_enja/{split}.{language}.gz") as file:
                (folder / f"{split}.{language}").write_bytes(file.read())
        with gzip.open(f"{ROOT}/small_parallel_enja/train.{language}.gz") as file:
            lines = file.readlines()
        for part in range(5):
            piece = lines[part * 10_000 : (part + 1) * 10_000]
            (folder / f"train.{language}.{part:03}").write_bytes(b"".join(piece))


def real_copies(name: str) -> Callable[[Path], None]:
    """Originals that are files of ours, decompressed where they are compressed."""

    def make(folder: Path) -> None:
        for each in public_dataset(name).file:
            assert isinstance(each.original, str)
            path = Path(ROOT) / name / each.path
            if each.original.endswith(".gz") and each.path.endswith(".xz"):
                content = gzip.compress(lzma.decompress(path.read_bytes()), 1)
            elif each.original.endswith(".gz"):
                content = path.read_bytes()
            else:
                with open_content(path) as file:
                    content = file.read()
            (folder / each.original).write_bytes(content)

    return make


REAL: dict[str, Callable[[Path], None]] = {
    "conll2000": real_conll2000,
    "movie-reviews-v2": real_movie_reviews,
    "small_parallel_enja": real_enja,
    **{
        name: real_copies(name)
        for name in ("tinyshakespeare", "ptb", "sst", "conll2003", "jsb-chorales", "multi30k")
    },
}


@needs_data
@pytest.mark.parametrize("name", REAL)
def test_real_originals_become_the_files_that_figures_are_of(name: str, tmp_path: Path) -> None:
    REAL[name](tmp_path)
    states = get_dataset(public_dataset(name), tmp_path, given=tmp_path)
    assert {each.state for each in states} == {"as published"}
    for path in public_dataset(name).paths:
        if not path.endswith(".tar.xz"):
            assert unpacked_digest(tmp_path / name / path) == unpacked_digest(
                Path(ROOT) / name / path
            )
    kept = json.loads((tmp_path / name / SOURCE_FILE).read_text())
    assert set(kept["files"]) == set(public_dataset(name).paths)


def test_the_verbs(tmp_path: Path) -> None:
    run = CliRunner().invoke
    listed = run(app, ["data", "list", "--json", "--data", str(tmp_path)]).output.splitlines()
    rows = {row["name"]: row for row in map(json.loads, listed)}
    assert rows["imdb"]["bytes"] == 84_125_825
    assert "imdb-bert" in rows["imdb"]["recipes"]
    shown = run(app, ["data", "list", "--data", str(tmp_path)]).output
    assert "tinyshakespeare" in shown
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text('"3","a","b"\n')
    words = ["data", "get", "ag-news", "--data", str(tmp_path), "--from", str(tmp_path)]
    assert f"as downloaded  {tmp_path}/ag-news/train.tsv.xz" in run(app, words).output
    checked = run(app, ["data", "check", "--data", str(tmp_path)])
    assert checked.exit_code == 0
    (tmp_path / "ag-news" / "test.tsv.xz").write_bytes(lzma.compress(b"altered"))
    checked = run(app, ["data", "check", "ag-news", "--data", str(tmp_path)])
    assert checked.exit_code == 1
    assert "differs" in checked.output
    with pytest.raises(UserError, match="did you mean 'imdb'"):
        run(app, ["data", "get", "imbd"], catch_exceptions=False)


def test_a_recipe_without_its_data_names_the_command(tmp_path: Path) -> None:
    words = ["train", "imdb-bert-short", "--data", str(tmp_path), "--runs", str(tmp_path / "runs")]
    with pytest.raises(UserError, match=r"regard data get imdb$"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert command_to_get("glove-6b-50d/x.txt") == "regard data get glove-6b-50d"


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    shown = page.split("<!-- regard data list -->\n")[1].split("<!-- end -->")[0].strip()
    made = CliRunner().invoke(app, ["data", "list", "--markdown"]).output.strip()
    assert shown == made, "write it anew: regard data list --markdown"
