"""Folders of other projects: config.json and the files of weights, read and written.

Weights are safetensors, whole or in shards with an index; or pytorch_model.bin, read by torch
without running anything that stands in it. Whatever is torn, missing or not what it says it is is a
UserError of one line.

Modules built without drawing weights that are to be replaced: at once, and even of no memory.

>>> with torch.device("meta"), SkipInitialisation():
...     layer = torch.nn.Linear(10**6, 10**6)
>>> layer.weight.shape
torch.Size([1000000, 1000000])
"""

import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.core.atomic import replace_atomically
from regard.core.errors import UserError
from regard.core.folder import read_json, read_json_object, regular_file, safetensors_file

CONFIG_FILE = "config.json"
_WHOLE = ("model.safetensors", "pytorch_model.bin")
"""Files that hold all weights; the first that is there is read."""
_INDEX = ".index.json"
"""How the file ends that says which shard holds which tensor."""
_WRITTEN = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json")
"""Names of files of weights that are written here."""
SHARD_BYTES = 5 * 2**30
"""Of weights in one file, unless the caller says default."""
_LARGEST = 2**24
"""Of any size in a config: what is larger is a mistake or an attack."""
MOST_LAYERS = 4096
_LONGEST_NAME = 200
_HALVES = frozenset(map(chr, range(0xD800, 0xE000)))
"""Half characters, which JSON can spell and no file can hold."""


@dataclass(frozen=True)
class ConfigValues:
    """The values of a config.json, each asked for by name and kind."""

    path: Path
    values: Mapping[str, object]

    def has(self, name: str) -> bool:
        """Is it there, and not null?"""
        return self.values.get(name) is not None

    def integer(
        self, name: str, default: int | None = None, *, least: int = 0, most: int = _LARGEST
    ) -> int:
        """A whole number from `least` to `most`."""
        found = self._given(name, default)
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise self.wrong(name, found, f"a whole number from {least} to {most}")
        return found

    def number(self, name: str, default: float | None = None) -> float:
        """Any number that is finite and not negative."""
        found = self._given(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.wrong(name, found, "a number")
        if not 0 <= found < float("inf"):
            raise self.wrong(name, found, "a number of at least 0")
        return float(found)

    def boolean(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        found = self._given(name, default)
        if not isinstance(found, bool):
            raise self.wrong(name, found, "true or false")
        return found

    def string(self, name: str, default: str | None = None) -> str:
        """A text."""
        found = self._given(name, default)
        if not isinstance(found, str) or len(found) > _LONGEST_NAME:
            raise self.wrong(name, found, f"a text of at most {_LONGEST_NAME} letters")
        return found

    def strings(self, name: str) -> tuple[str, ...]:
        """Some texts; none if nothing is said."""
        found = self.values.get(name) or []
        if not isinstance(found, list) or not all(
            isinstance(each, str) and len(each) <= _LONGEST_NAME for each in found
        ):
            raise self.wrong(name, found, "a list of texts")
        return tuple(str(each) for each in found)

    def labels(self) -> tuple[str, ...]:
        """The classes of `id2label` in their order; `LABEL_0` and so on if there are none."""
        found = self.values.get("id2label")
        if found is None:
            count = self.integer("num_labels", 2, least=1, most=2**20)
            return tuple(f"LABEL_{number}" for number in range(count))
        numbers = [str(each) for each in range(len(found))] if isinstance(found, dict) else []
        if not isinstance(found, dict) or not found or set(found) != set(numbers):
            raise self.wrong("id2label", found, "classes by their numbers from 0")
        names = [found[number] for number in numbers]
        if not all(isinstance(each, str | int) and _HALVES.isdisjoint(str(each)) for each in names):
            raise self.wrong("id2label", found, "classes by names that are texts")
        labels = tuple(str(each) for each in names)
        count = self.integer("num_labels", len(labels), least=1, most=2**20)
        if count != len(labels):  # transformers then forgets the names
            return tuple(f"LABEL_{number}" for number in range(count))
        twice = [label for label, count in Counter(labels).items() if count > 1]
        if twice:
            raise UserError(
                f"{self.path}: id2label has two classes of the name {short_json(twice[0])}, which "
                "could not be told apart; give each a name of its own"
            )
        return labels

    def renamed(self, aliases: Mapping[str, str]) -> "ConfigValues":
        """With settings under one name; two names with different values are refused."""
        values = dict(self.values)
        for other, name in aliases.items():
            if other not in values:
                continue
            if name in values and values[name] != values[other]:
                raise UserError(
                    f"{self.path}: {name}={short_json(values[name])} and "
                    f"{other}={short_json(values[other])} are one setting under two names; remove "
                    "the one that is wrong"
                )
            values[name] = values[other]
        return ConfigValues(self.path, values)

    def require(self, name: str, *allowed: object) -> None:
        """Refuse a setting that changes the model in a way that is not known here.

        The first that is allowed is what it means to say nothing.
        """
        found = self.values.get(name, allowed[0])
        if found not in allowed:
            known = " or ".join(json.dumps(each) for each in allowed)
            raise UserError(
                f"{self.path}: {name}={short_json(found)} is not known here, only {known}"
            )

    def _given(self, name: str, default: object) -> object:
        found = self.values.get(name)
        if found is None and default is None:
            raise UserError(f"{self.path}: {name} is missing")
        return default if found is None else found

    def wrong(self, name: str, found: object, wanted: str) -> UserError:
        """The error of a value that cannot be."""
        return UserError(f"{self.path}: {name}={short_json(found)} must be {wanted}")


def read_config(folder: Path) -> ConfigValues:
    """config.json of a folder."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder")
    path = folder / CONFIG_FILE
    if not path.exists():
        raise UserError(f"{folder}: this is no checkpoint folder (it has no {CONFIG_FILE})")
    return ConfigValues(path, read_json_object(path))


def read_json_list(path: Path) -> list[object]:
    """The list in a JSON file."""
    found = read_json(path)
    if not isinstance(found, list):
        raise UserError(f"{path}: is no JSON list")
    return found


def read_optional_json(path: Path) -> dict[str, object]:
    """The same of a file that folders may do without; nothing then."""
    return read_json_object(path) if path.exists() else {}


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder by their names there."""
    for name in _WHOLE:
        if (folder / name).exists():
            return _read_file(folder / name)
        index = folder / f"{name}{_INDEX}"
        if index.exists():
            return _read_shards(index)
    other = sorted(each.name for each in folder.iterdir() if each.suffix in _OTHERS)
    hint = f"; {', '.join(other)} cannot be read here" if other else ""
    raise UserError(f"{folder}: there are no weights: neither {' nor '.join(_WHOLE)}{hint}")


_OTHERS = {".h5", ".msgpack", ".ot", ".pt", ".ckpt", ".onnx", ".gguf"}
"""How files of weights end that are of other programs."""


def _read_shards(index: Path) -> dict[str, Tensor]:
    """The tensors of all shards that an index names."""
    held = read_json_object(index).get("weight_map")
    if not isinstance(held, dict) or not held:
        raise UserError(f"{index}: has no weight_map")
    found: dict[str, Tensor] = {}
    for name in sorted({str(each) for each in held.values()}):
        if Path(name).name != name or name in ("", "..") or len(name) > _LONGEST_NAME:
            raise UserError(
                f"{index}: names the file {short_json(name)}, which is none of this folder"
            )
        path = index.with_name(name)
        if not path.exists():
            raise UserError(f"{path}: this shard is missing; {index.name} names it")
        found |= _read_file(path)
    absent = [name for name in held if name not in found]
    if absent:
        raise UserError(f"{index}: no shard holds {list_names(absent)}")
    return found


def _read_file(path: Path) -> dict[str, Tensor]:
    """The tensors of one file."""
    with _reading_errors(path):
        if path.suffix == ".safetensors":
            return load_file(safetensors_file(path))
        _check_archive(regular_file(path), path)
        # Nothing but tensors and plain containers is built: whatever would run code is refused.
        found = torch.load(regular_file(path), map_location="cpu", weights_only=True)
    if not isinstance(found, dict):
        raise UserError(f"{path}: holds a {type(found).__name__}, not tensors by name")
    for name, each in found.items():
        if not isinstance(name, str) or not isinstance(each, Tensor):
            raise UserError(f"{path}: {name!r} is a {type(each).__name__}, not a tensor")
        if each.layout != torch.strided or each.is_quantized:
            raise UserError(f"{path}: {name} is no plain tensor; save the model without packing")
        if each.is_meta:
            raise UserError(f"{path}: {name} has a shape and no numbers; save the model whole")
        if each.nbytes > each.untyped_storage().nbytes():
            raise UserError(
                f"{path}: {name} has {each.nbytes:,} bytes by its shape, and the file holds "
                f"{each.untyped_storage().nbytes():,} of them; save it as a contiguous tensor"
            )
    return found


def _check_archive(found: Path, path: Path) -> None:
    """Raise if the parts of a file of torch are larger than the file: they are never compressed."""
    if not zipfile.is_zipfile(found):
        return
    with zipfile.ZipFile(found) as archive:
        unpacked = sum(each.file_size for each in archive.infolist())
    if unpacked > found.stat().st_size:
        raise UserError(
            f"{path}: would unpack to {unpacked:,} bytes, more than it has; torch does not "
            "compress weights"
        )


@contextmanager
def _reading_errors(path: Path) -> Iterator[None]:
    """What goes wrong in reading a file, in one line that names it.

    Files that are not what they seem make the libraries raise errors of a dozen kinds.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except SafetensorError as problem:
        raise UserError(
            f"{path}: is not a whole safetensors file ({first_line(problem)}); get it once more"
        ) from None
    except Exception as problem:
        raise UserError(
            f"{path}: cannot be read as weights alone, and nothing of it was run "
            f"({_reason(problem)})"
        ) from None


def _reason(problem: Exception) -> str:
    """Why torch did not read a file, without its advice to run what stands in it nevertheless."""
    told = str(problem)
    asked = re.search(r"GLOBAL (\S+)", told)
    if asked is not None:
        return f"it asks for {asked[1]}, which is no weight: do not trust it"
    if "weights_only" in told:
        found = re.search(r"Unsupported \w+ \S+", told)
        return "it holds what is no weight" + (f": {found[0]}" if found else "")
    return first_line(problem)


def write_folder(
    folder: Path,
    files: Mapping[str, Mapping[str, object]],
    tensors: Mapping[str, Tensor],
    *,
    shard_bytes: int = SHARD_BYTES,
) -> list[Path]:
    """Write JSON files and weights, in shards with an index where they are more than one holds.

    Weights come first and config.json last: a folder that has one is whole. Weights that an earlier
    export left there are removed, since readers would take them for these.
    """
    groups = _shards(tensors, shard_bytes)
    stem, ending = _WHOLE[0].split(".")
    names = [
        _WHOLE[0] if len(groups) == 1 else f"{stem}-{n:05}-of-{len(groups):05}.{ending}"
        for n in range(1, len(groups) + 1)
    ]
    for name, group in zip(names, groups, strict=True):
        with replace_atomically(folder / name) as file:
            file.write(save(group, metadata={"format": "pt"}))
    for old in sorted(folder.iterdir()):
        if _WRITTEN.fullmatch(old.name) and old.name not in names:
            old.unlink()
    every = dict(files)
    if len(groups) > 1:
        total = sum(each.nbytes for each in tensors.values())
        places = {key: name for name, group in zip(names, groups, strict=True) for key in group}
        index: dict[str, object] = {"metadata": {"total_size": total}, "weight_map": places}
        every = {f"{_WHOLE[0]}{_INDEX}": index, **every}
    for name in sorted(every, key=lambda each: each == CONFIG_FILE):
        with replace_atomically(folder / name) as file:
            file.write((json.dumps(every[name], indent=2, ensure_ascii=False) + "\n").encode())
    return [folder / name for name in (*names, *every)]


def _shards(tensors: Mapping[str, Tensor], most: int) -> list[dict[str, Tensor]]:
    """Tensors in groups of at most so many bytes; one that is larger has a group of its own.

    >>> [list(group) for group in _shards({"a": torch.ones(2), "b": torch.ones(1)}, 8)]
    [['a'], ['b']]
    """
    groups: list[dict[str, Tensor]] = [{}]
    held = 0
    for name, each in tensors.items():
        if groups[-1] and held + each.nbytes > most:
            groups.append({})
            held = 0
        groups[-1][name] = each.contiguous()
        held += each.nbytes
    return groups


def short_json(value: object) -> str:
    """A value as JSON writes it, or the beginning of it."""
    text = json.dumps(value, default=str)
    return text if len(text) < 60 else text[:56] + " ..."


def first_line(problem: object, longest: int = 200) -> str:
    """The first line of an error that may be pages long."""
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return lines[0][:longest]


def list_names(names: Sequence[str], shown: int = 3) -> str:
    """The first few of some names.

    >>> list_names(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


_DRAWS = (
    "normal_",
    "uniform_",
    "trunc_normal_",
    "xavier_normal_",
    "xavier_uniform_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "orthogonal_",
    "sparse_",
)
"""What fills a tensor by chance: the names are the same in torch.nn.init and on tensors."""


class SkipInitialisation(TorchFunctionMode):
    """Within it, tensors that would be filled by chance are left as they are."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Everything but drawing, as always."""
        given = dict(kwargs or {})
        if getattr(func, "__name__", "") in _DRAWS:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


class ShapesOnly(SkipInitialisation):
    """The same on the meta device, where `arange` would import 800 modules to compute nothing."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Everything but drawing and counting, as always."""
        numbers = [each for each in args if isinstance(each, int)]
        if func is torch.arange and 0 < len(numbers) == len(args):
            given = {"dtype": torch.int64, **(kwargs or {})}
            return super().__torch_function__(torch.empty, types, (len(range(*numbers)),), given)
        return super().__torch_function__(func, types, args, kwargs)
