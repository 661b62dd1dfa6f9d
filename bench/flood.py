"""A flood of the heaviest requests that a server allows, from this machine.

`python -m bench.flood [--seconds 30]` trains tiny runs, serves them in another process, and asks as
much of it as its limits allow: long lines at beam 16, whole contexts of texts, attention of long
texts; meanwhile a short request for another run, again and again. Prints the memory of the server
above idle, the latency of the short requests, and how often each status came.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx

TRANSLATOR = """
task = "translate"
[about]
title = "Dates"
paper = "nobody"
minutes = 0.1
[data]
generate = { name = "dates", train = 200, validation = 10, test = 10 }
tokeniser = "char"
batch = 32
scores = []
[model]
kind = "transformer"
width = 64
heads = 4
hidden = 128
encoder_layers = 2
decoder_layers = 2
[train]
updates = 2
optimiser = { name = "adam", lr = 1e-3 }
"""
WRITER = """
task = "language_model"
[about]
title = "Text"
paper = "nobody"
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
context = 1024
[train]
updates = 2
optimiser = { name = "adamw", lr = 1e-3 }
"""
RECIPES = {
    "translator": TRANSLATOR,
    "writer": WRITER,
    "other": WRITER.replace("context = 1024", "context = 64"),
}
LINE = "the 3rd of May, 1998, or 3. Mai 98 "
PROMPT = (LINE * 40)[:1000]
HEAVY: tuple[tuple[str, dict[str, object]], ...] = (
    ("/api/translate", {"model": "translator", "text": [(LINE * 120)[:4000]] * 2, "beam": 16}),
    ("/api/translate", {"model": "translator", "text": [(LINE * 4)[:120]] * 64, "beam": 16}),
    ("/v1/completions", {"model": "writer", "prompt": [PROMPT] * 16, "n": 4, "max_tokens": 24}),
    ("/v1/completions", {"model": "writer", "prompt": "a", "n": 4, "max_tokens": 1000}),
    ("/api/attention", {"model": "writer", "text": PROMPT}),
    (
        "/v1/completions",
        {"model": "writer", "prompt": PROMPT, "max_tokens": 0, "echo": True, "logprobs": 5},
    ),
)
"""The heaviest requests: paths and bodies."""
SHORT = {"model": "other", "prompt": "to", "max_tokens": 4, "temperature": 0}


def measure(seconds: float, clients: int) -> dict[str, object]:
    """Serve, flood, and what came of it."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "regard", "serve", "--port", "0", *_runs(Path(place))]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = re.search(r"http://[^ ]+", server.stdout.readline())
            assert url is not None
            return flood(url[0], server.pid, seconds, clients)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def _runs(place: Path) -> list[str]:
    """Folders of runs that were trained for a moment."""
    from regard.runs.recipe import parse_recipe
    from regard.runs.run import create

    (place / "text.txt").write_text((LINE + "\n") * 200)
    for name, text in RECIPES.items():
        create(parse_recipe(text, name), place / name, place, "cpu").train()
    return [str(place / name) for name in RECIPES]


def flood(url: str, pid: int, seconds: float, clients: int) -> dict[str, object]:
    """Heavy requests by so many clients, and short ones beside them."""
    while httpx.get(f"{url}/ready").status_code != 200:
        time.sleep(0.1)
    for _ in range(3):
        httpx.post(f"{url}/v1/completions", json=SHORT, timeout=60)
    idle, end = _memory(pid, "VmRSS"), time.monotonic() + seconds
    statuses: Counter[str] = Counter()

    def ask(number: int) -> None:
        while time.monotonic() < end:
            path, body = HEAVY[number % len(HEAVY)]
            try:
                status = httpx.post(url + path, json=body, timeout=90).status_code
                statuses[f"{path} {status}"] += 1
                time.sleep(0.2 if status == 429 else 0.0)
            except httpx.HTTPError as error:
                statuses[type(error).__name__] += 1
            number += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for each in threads:
        each.start()
    waits, refused = list[float](), 0
    while time.monotonic() < end:
        begun = time.monotonic()
        if httpx.post(f"{url}/v1/completions", json=SHORT, timeout=90).status_code == 200:
            waits.append(time.monotonic() - begun)
        else:
            refused += 1
        time.sleep(0.1)
    for each in threads:
        each.join()
    waits.sort()
    return {
        "clients": clients,
        "cores": os.cpu_count(),
        "idle_mb": idle // 10**6,
        "peak_above_idle_mb": (_memory(pid, "VmHWM") - idle) // 10**6,
        "short_requests": len(waits),
        "short_refused": refused,
        "short_median_s": round(waits[len(waits) // 2], 3) if waits else None,
        "short_worst_s": round(waits[-1], 3) if waits else None,
        "statuses": dict(sorted(statuses.items())),
    }


def _memory(pid: int, name: str) -> int:
    """Bytes of a process: now (VmRSS), or the most so far (VmHWM)."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=24)
    given = parser.parse_args()
    print(json.dumps(measure(given.seconds, given.clients), indent=1))
