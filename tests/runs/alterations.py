"""Altered run and checkpoint folders, opened and used one after the other in this process.

`python -m tests.runs.alterations COUNT SEED FOLDER...` copies each folder, changes something in the
copy, opens it and uses it for a moment. It has 3 GB of addresses at most, and prints one line of
JSON: how often each end came, and everything that must not happen: a traceback, more than a
gigabyte above the beginning, more than ten seconds, a file outside of the folder that was opened.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOM = 1_000_000_000
SECONDS = 10.0
ELSEWHERE = (
    os.getcwd(),
    sys.prefix,
    sys.base_prefix,
    "/usr",
    "/sys",
    "/proc/self/status",
    tempfile.gettempdir(),
)
"""Where Python and its libraries may open files besides; altered folders are made elsewhere."""
HIDDEN = "the content of a file outside"

Draw = random.Random
Alteration = Callable[[Path, Draw], object]


def _file(folder: Path, draw: Draw, *suffixes: str) -> Path:
    """One of the files of a folder; never a link, through which others would be written to."""
    files = sorted(path for path in folder.iterdir() if _regular(path))
    return draw.choice([each for each in files if each.suffix in (suffixes or SUFFIXES)] or files)


def _regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 10**7


SUFFIXES = (".json", ".toml", ".safetensors", ".spm", ".txt")


def flip(folder: Path, draw: Draw) -> None:
    """Some bits of a file."""
    path = _file(folder, draw)
    data = bytearray(path.read_bytes() or b"\0")
    for _ in range(draw.choice((1, 1, 8, 100))):
        place = draw.randrange(8 * len(data))
        data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)


def cut(folder: Path, draw: Draw) -> None:
    """The end of a file."""
    path = _file(folder, draw)
    path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size + 1)])


def remove(folder: Path, draw: Draw) -> None:
    """A whole file."""
    _file(folder, draw).unlink()


def link(folder: Path, draw: Draw) -> None:
    """A link to a device or a file outside, in place of a file."""
    path = _file(folder, draw)
    path.unlink()
    outside = folder.parent.parent / "outside.txt"
    path.symlink_to(draw.choice(("/dev/zero", outside, "../../outside.txt")))


def pipe(folder: Path, draw: Draw) -> None:
    """A pipe that nobody writes to."""
    path = _file(folder, draw)
    path.unlink()
    os.mkfifo(path)


def nest(folder: Path, draw: Draw) -> None:
    """Brackets."""
    path, depth = _file(folder, draw, ".json", ".toml"), draw.choice((70, 990, 200_000))
    path.write_text(draw.choice(("[", '{"a":', "a = [", "[[a]]\n", "a." * 500)) * depth)


def lengthen(folder: Path, draw: Draw) -> None:
    """A hole of a terabyte at the end of a file."""
    path = _file(folder, draw)
    with path.open("r+b") as file:
        file.truncate(draw.choice((10**8, 10**10, 10**12)))


VALUES: tuple[object, ...] = (
    *(0, -1, 3, 7, 10**4, 10**5, 10**9, 10**18, 2**64, 1e308, -0.5, None, True, "", "x" * 1000),
    *([], {}, [1] * 100, {"a": {}}, "NaN", "../../outside.txt", "../outside.txt", "/dev/zero"),
)


def value(folder: Path, draw: Draw) -> None:
    """A value of a JSON file."""
    path = _file(folder, draw, ".json")
    try:
        held = json.loads(path.read_text())
    except (ValueError, OSError, RecursionError):
        return
    places: list[tuple[dict[str, object] | list[object], object]] = []
    todo = [held]
    while todo and len(places) < 5000:
        here = todo.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here))
        for key in keys:
            places.append((here, key))
            if isinstance(here[key], dict | list):
                todo.append(here[key])
    if places:
        where, key = draw.choice(places)
        where[key] = draw.choice(VALUES)  # type: ignore[index,call-overload]
    path.write_text(json.dumps(held))


def setting(folder: Path, draw: Draw) -> None:
    """A value of recipe.toml."""
    path = folder / "recipe.toml"
    if not _regular(path):
        value(folder, draw)
        return
    lines = path.read_text().split("\n")
    places = [n for n, line in enumerate(lines) if " = " in line]
    number = draw.choice(places)
    new = draw.choice(
        (0, -1, 17, 10**5, 10**9, 10**18, 1e300, '"x"', "true", "[]", "'../outside.txt'")
    )
    lines[number] = f"{lines[number].partition(' = ')[0]} = {new}"
    path.write_text("\n".join(lines))


def normalisers(folder: Path, draw: Draw) -> None:
    """A chain that doubles a text again and again."""
    path = folder / "tokenizer.json"
    if _regular(path):
        held = json.loads(path.read_text())
        step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
        part, inner = draw.choice((("normalizer", "normalizers"), ("decoder", "decoders")))
        held[part] = {"type": "Sequence", inner: [step] * draw.choice((30, 50, 1000))}
        path.write_text(json.dumps(held))


ALTERATIONS: tuple[Alteration, ...] = (
    *(flip, cut, remove, link, pipe, nest, lengthen, value, value, value),
    *(setting, setting, setting, normalisers),
)


def use(folder: Path) -> None:
    """Open a folder and do with it what its model can."""
    from regard.core.inputs import Text
    from regard.decode import GenerationRequest, Greedy
    from regard.runs.pretrained import from_pretrained
    from regard.runs.run import load
    from regard.tasks.abilities import Generates, Predicts, Translates

    run = (
        load(folder, "cpu")
        if (folder / "recipe.toml").exists()
        else from_pretrained(folder, device="cpu")
    )
    if isinstance(run.task, Generates):
        list(run.generate("a", GenerationRequest(policy=Greedy(), max_tokens=3)))
    elif isinstance(run.task, Translates):
        run.task.translate(run.model, [Text("a b")])
    elif isinstance(run.task, Predicts):
        run.predict([Text("a b")])


def main(count: int, seed: int, folders: list[Path], place: Path) -> dict[str, object]:
    """Alter and use folders; what came of it."""
    from regard.core.errors import UserError

    opened: list[str] = []
    watching = False
    allowed: list[str] = []

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "open" and isinstance(arguments[0], str | bytes | Path):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not path.startswith(tuple(allowed)):
                opened.append(path)

    def interrupt(number: int, frame: object) -> None:
        raise TimeoutError("it hangs")

    sys.addaudithook(watch)
    signal.signal(signal.SIGALRM, interrupt)
    (place / "outside.txt").write_text(HIDDEN)
    for folder in folders:
        use(folder)
    base = _resident()
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    slowest, largest = 0.0, 0
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        altered = place / "altered" / "folder"
        shutil.rmtree(altered.parent, ignore_errors=True)
        shutil.copytree(draw.choice(folders), altered)
        if draw.random() < 0.7:  # as strangers would, who leave no digests
            (altered / "digests.json").unlink(missing_ok=True)
        how = [draw.choice(ALTERATIONS) for _ in range(draw.choice((1, 1, 2)))]
        name = f"{number}: {' and '.join(each.__name__ for each in how)}"
        for each in how:
            try:
                each(altered, draw)
            except (OSError, ValueError, IndexError, RecursionError, MemoryError):
                # it was altered already
                continue
        allowed[:] = [str(altered), *ELSEWHERE]
        opened.clear()
        before, begun = _resident(), time.perf_counter()
        watching = True
        signal.alarm(3 * int(SECONDS))
        try:
            use(altered)
            ends["used"] += 1
        except UserError as error:
            ends["refused"] += 1
            if "\n" in str(error).strip() and "recipe.toml" not in str(error):
                wrong.append(f"{name}: several lines: {error}")
            if HIDDEN in str(error):
                wrong.append(f"{name}: shows what is outside")
        except BaseException:
            wrong.append(f"{name}: {traceback.format_exc()[-600:]}")
        signal.alarm(0)
        watching = False
        seconds = time.perf_counter() - begun
        largest, slowest = max(largest, _resident() - before), max(slowest, seconds)
        if seconds > SECONDS:
            wrong.append(f"{name}: {seconds:.1f} seconds")
        if _resident() - before > ROOM:
            wrong.append(f"{name}: {_resident() - before:,} bytes")
        if opened:
            wrong.append(f"{name}: opened {opened[:3]}")
    return {
        "ends": ends,
        "wrong": wrong,
        "slowest": slowest,
        "largest": largest,
        "base": base,
        "peak": _peak(),
    }


def _resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _peak() -> int:
    """The most bytes it had in memory; rusage would count those of the process that started it."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    count, seed, place, *folders = sys.argv[1:]
    found = main(int(count), int(seed), [Path(each) for each in folders], Path(place))
    print(json.dumps(found))
