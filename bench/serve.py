"""A server under load, on this machine's own address and within bounds.

    python -m bench.serve              (some minutes on a quiet machine)
    python -m bench.serve --quick      (a small form of each part)

The server is a process of its own with a small GPT; the clients are plain sockets of this process,
so they share the machine with it. Each row has what was measured, the goal, and whether it holds.
"""

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

RECIPE = """
task = "language_model"
[about]
title = "A small GPT to load"
paper = "Radford et al. 2019"
minutes = 0.1
[data]
train = "text.txt"
tokeniser = "char"
batch = 4
window = 32
order = "random"
steps = 2
[model]
kind = "gpt"
width = 128
heads = 4
layers = 4
context = 256
[train]
updates = 1
optimiser = { name = "adamw", lr = 1e-3 }
"""
TEXT = "to be or not to be that is the question whether tis nobler in the mind to suffer\n" * 80


@dataclass(frozen=True)
class Place:
    """Where a server listens, and which process it is."""

    host: str
    port: int
    model: str
    pid: int | None = None


@dataclass(frozen=True)
class Row:
    """One thing that was measured."""

    name: str
    value: str
    goal: str
    holds: bool


@dataclass(frozen=True)
class Reply:
    """An answer: its status, all its bytes, and how long it took."""

    status: int
    body: bytes
    seconds: float


async def ask(place: Place, method: str, path: str, body: object = None) -> Reply:
    """One request over a connection of its own."""
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection(place.host, place.port)
    try:
        writer.write(request(place, method, path, body))
        await writer.drain()
        data = await reader.read()
    finally:
        writer.close()
    head, _, rest = data.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1]) if head else 0
    return Reply(status, rest, time.perf_counter() - begun)


def request(place: Place, method: str, path: str, body: object) -> bytes:
    """Its bytes; the server is to close the connection after the answer."""
    data = b"" if body is None else json.dumps(body).encode()
    head = [
        f"{method} {path} HTTP/1.1",
        f"Host: {place.host}:{place.port}",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    ]
    return "\r\n".join([*head, "", ""]).encode() + data


def completion(place: Place, seed: int, tokens: int, *, stream: bool = False) -> object:
    """The body of a request for a text."""
    prompt = TEXT[seed % 40 : seed % 40 + 4 + seed % 13]
    return {
        "model": place.model,
        "prompt": prompt,
        "max_tokens": tokens,
        "seed": seed,
        "stream": stream,
    }


async def gauge(place: Place, name: str) -> float:
    """A number of /metrics."""
    reply = await ask(place, "GET", "/metrics")
    found = re.search(rf"^{name} (\S+)$", reply.body.decode(), re.MULTILINE)
    assert found, name
    return float(found[1])


async def cancelled(place: Place, *, clients: int, requests: int, tokens: int) -> list[Row]:
    """Many clients, half of whose requests they give up at random moments."""
    draw, statuses, left = random.Random(0), Counter[int](), iter(range(requests))
    typical = (await ask(place, "POST", "/v1/completions", completion(place, 0, tokens))).seconds
    resident: list[int] = []

    async def client() -> None:
        for number in left:
            stream = number % 3 == 0
            asked = completion(place, number, tokens, stream=stream)
            asking = asyncio.ensure_future(ask(place, "POST", "/v1/completions", asked))
            if number % 2:
                patience = draw.uniform(0, typical * clients / 8)
                await asyncio.wait((asking,), timeout=patience)
                if not asking.done():
                    asking.cancel()
                    statuses[0] += 1
                    continue
            statuses[(await asking).status] += 1
            if place.pid is not None and number % max(1, requests // 20) == 0:
                resident.append(resident_bytes(place.pid))

    await asyncio.gather(*(client() for _ in range(clients)))
    begun = time.perf_counter()
    while await busy(place):
        if time.perf_counter() - begun > 10:
            break
        await asyncio.sleep(0.02)
    idle = time.perf_counter() - begun
    failed = sum(count for status, count in statuses.items() if status >= 500)
    shown = ", ".join(f"{status or 'given up'}: {n}" for status, n in sorted(statuses.items()))
    rows = [
        Row(f"{requests:,} requests of {clients} clients", shown, "no 5xx", failed == 0),
        Row("until nothing is in flight", f"{idle:.2f} s", "1 s", idle <= 1),
    ]
    if len(resident) >= 8:
        before = statistics.median(resident[len(resident) // 4 : len(resident) // 2])
        drift = statistics.median(resident[-3:]) / before - 1
        rows.append(Row("memory since the first quarter", f"{drift:+.2%}", "2 %", drift < 0.02))
    return rows


async def busy(place: Place) -> bool:
    """Is anything in flight besides this question?"""
    names = ("regard_queued", "regard_writing")
    if any([await gauge(place, name) for name in names]):
        return True
    return await gauge(place, "regard_in_flight") > 1


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def together(place: Place, *, texts: int, tokens: int) -> list[Row]:
    """Texts written at the same time against the same texts one after another."""
    asked = [completion(place, seed, tokens) for seed in range(texts)]
    for each in asked[:2]:
        await ask(place, "POST", "/v1/completions", each)
    begun = time.perf_counter()
    alone = [await ask(place, "POST", "/v1/completions", each) for each in asked]
    one_by_one = time.perf_counter() - begun
    steps, written = await gauge(place, "regard_steps_total"), texts * tokens
    begun = time.perf_counter()
    both = await asyncio.gather(*(ask(place, "POST", "/v1/completions", each) for each in asked))
    at_once = time.perf_counter() - begun
    steps = await gauge(place, "regard_steps_total") - steps
    same = sum(text_of(a) == text_of(b) for a, b in zip(alone, both, strict=True))
    ratio = one_by_one / at_once
    return [
        Row(f"{texts} generations at once", f"{ratio:.1f} x", "4 x", ratio >= 4),
        Row("tokens to a step", f"{written / steps:.1f}", f"{texts / 2:g}", written / steps > 2),
        Row("the same texts as alone", f"{same} of {texts}", str(texts), same == texts),
    ]


def text_of(reply: Reply) -> str:
    """What was written."""
    return str(json.loads(reply.body)["choices"][0]["text"])


async def healthy(place: Place, *, clients: int, seconds: float, tokens: int) -> list[Row]:
    """/health while ten times as much is asked for as the server can do.

    What it can do is measured first, by as many clients as find room. The flood is a process of its
    own, so that what is measured is the server and not the crowd.
    """
    asked = 10 * await able(place, clients, seconds / 4, tokens)
    flooding = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.serve", "--flood"),
        json.dumps([place.host, place.port, place.model, asked, seconds, tokens]),
        stdout=asyncio.subprocess.PIPE,
    )
    times: list[float] = []
    await asyncio.sleep(min(1.0, seconds / 4))  # until they are there
    while flooding.returncode is None:
        reply = await ask(place, "GET", "/health")
        assert reply.status == 200
        times.append(reply.seconds)
        await asyncio.sleep(0.02)
    said, _ = await flooding.communicate()
    statuses = {int(status): count for status, count in json.loads(said).items()}
    slowest = sorted(times)[int(len(times) * 0.99)]
    failed = sum(count for status, count in statuses.items() if status >= 500)
    shown = ", ".join(f"{status or 'lost'}: {n}" for status, n in sorted(statuses.items()))
    return [
        Row(f"/health, 99 % of {len(times)}", f"{slowest * 1e3:.0f} ms", "100 ms", slowest < 0.1),
        Row(f"{asked:.0f} requests a second meanwhile", shown, "no 5xx", failed == 0),
    ]


async def able(place: Place, clients: int, seconds: float, tokens: int) -> float:
    """How many requests a second are answered when so many clients, for whom there is room, ask."""
    begun, done = time.perf_counter(), 0

    async def client(number: int) -> None:
        nonlocal done
        while time.perf_counter() < begun + seconds:
            reply = await ask(place, "POST", "/v1/completions", completion(place, number, tokens))
            done += reply.status == 200

    await asyncio.gather(*(client(number) for number in range(clients)))
    return done / (time.perf_counter() - begun)


async def flood(place: Place, rate: float, seconds: float, tokens: int) -> Counter[int]:
    """How often which answer came to so many requests a second, whatever became of those before."""
    statuses, going = Counter[int](), set[asyncio.Task[None]]()

    async def client(number: int) -> None:
        asking = ask(place, "POST", "/v1/completions", completion(place, number, tokens))
        try:
            statuses[(await asyncio.wait_for(asking, 30)).status] += 1
        except (OSError, TimeoutError):
            statuses[0] += 1

    begun = time.perf_counter()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
        task = asyncio.create_task(client(number))
        going.add(task)
        task.add_done_callback(going.discard)
    await asyncio.gather(*going)
    return statuses


async def slow(place: Place, *, sockets: int, within: float, requests: int) -> list[Row]:
    """Sockets that send a byte a second, and what others notice of them."""

    async def usual() -> float:
        replies = []
        for number in range(requests):
            asked = completion(place, number, 4)
            replies.append((await ask(place, "POST", "/v1/completions", asked)).seconds)
        return statistics.median(replies)

    async def crawl() -> float:
        begun = time.perf_counter()
        reader, writer = await asyncio.open_connection(place.host, place.port)
        closed = asyncio.ensure_future(reader.read())
        for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 60:
            writer.write(bytes([byte]))
            await asyncio.wait((closed,), timeout=1)
            if closed.done():
                break
        writer.close()
        return time.perf_counter() - begun

    await usual()
    idle = await usual()
    crawling = [asyncio.ensure_future(crawl()) for _ in range(sockets)]
    await asyncio.sleep(0.5)
    loaded = await usual()
    longest = max(await asyncio.gather(*crawling))
    return [
        Row(
            f"{sockets} slow sockets closed", f"{longest:.1f} s", f"{within:g} s", longest < within
        ),
        Row("others meanwhile", f"{loaded / idle:.2f} x", "2 x of idle", loaded < 2 * idle),
    ]


@contextmanager
def serving() -> Iterator[Place]:
    """A server in a process of its own, with a small GPT that was made for it."""
    from regard.runs.recipe import parse_recipe
    from regard.runs.run import create

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_text(TEXT)
        os.environ["REGARD_CACHE"] = str(folder / "cache")
        create(parse_recipe(RECIPE, "bench"), folder / "small", folder, "cpu").train()
        command = [sys.executable, "-m", "regard", "serve", str(folder / "small"), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            line = process.stdout.readline()
            port = int(line.split("http://127.0.0.1:")[1].split()[0])
            try:
                yield Place("127.0.0.1", port, "small", process.pid)
            finally:
                process.terminate()
                process.wait(90)


Part = Callable[[Place], Coroutine[object, object, list[Row]]]

QUICK: dict[str, Part] = {
    "together": lambda place: together(place, texts=16, tokens=48),
    "cancelled": lambda place: cancelled(place, clients=16, requests=400, tokens=8),
    "slow": lambda place: slow(place, sockets=50, within=10, requests=20),
    "healthy": lambda place: healthy(place, clients=64, seconds=5, tokens=32),
}
WHOLE: dict[str, Part] = {
    "together": lambda place: together(place, texts=16, tokens=128),
    "cancelled": lambda place: cancelled(place, clients=64, requests=10_000, tokens=16),
    "slow": lambda place: slow(place, sockets=500, within=10, requests=50),
    "healthy": lambda place: healthy(place, clients=96, seconds=30, tokens=64),
}
"""Every part at its full size; for 128 texts there is room: 64 are written, 64 wait."""


def main() -> None:
    """Run the parts and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small form of each part")
    parser.add_argument("--only", choices=list(WHOLE), help="one part")
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.flood:
        host, port, model, rate, seconds, tokens = json.loads(given.flood)
        found = asyncio.run(flood(Place(host, port, model), rate, seconds, tokens))
        print(json.dumps(found))
        return
    parts = QUICK if given.quick else WHOLE
    with serving() as place:
        print(f"{'':44}{'measured':>34}  goal")
        for name, part in parts.items():
            if given.only in (None, name):
                for row in asyncio.run(part(place)):
                    holds = "" if row.holds else "   MISSED"
                    print(f"{row.name:44}{row.value:>34}  {row.goal}{holds}", flush=True)


if __name__ == "__main__":
    main()
