"""How large the page is, how soon it is there, and how evenly it moves.

    python -m bench.page                 (a minute or two)
    python -m bench.page --only 2048

Pages of random weights are opened from disk in Chromium with the network off: 12 layers of 12 heads
over 512 tokens, causal and not, sharp (logits of deviation 3) and blurred (deviation 1), and one
head over 2,048. The page is dragged and zoomed with every frame; the time from frame to frame is
what a person sees, and `work` the part of it that is ours. Needs a quiet machine.
"""

import argparse
import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from playwright.sync_api import Page, sync_playwright

from regard.look import Payload, save_page

CHROMIUM = "/usr/bin/chromium"
FRAMES = 240

MOVING = """async (frames) => {
  await regard.set({ view: "matrix" });
  const view = regard.view();
  const next = () => new Promise(requestAnimationFrame);
  const times = [], work = [];
  for (let wait = 0; wait < 10; wait += 1) await next();
  let before = await next();
  for (let frame = 0; frame < frames; frame += 1) {
    const begun = performance.now();
    if (frame % 80 < 40) view.pan(9 * Math.cos(frame / 9), 9 * Math.sin(frame / 9));
    else view.zoom(frame % 80 < 60 ? 1.2 : 1 / 1.2);
    view.draw();
    work.push(performance.now() - begun);
    const now = await next();
    times.push(now - before);
    before = now;
  }
  return [times, work];
}"""

FIRST = """async () => {
  await regard.ready;
  await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.getEntriesByName("regard drawn")[0].startTime;
}"""

THUMBS = """async () => {
  const begun = performance.now();
  await regard.set({ view: "heads" });
  while (document.querySelector(".rg-thumb canvas:not(.rg-painted)")) {
    await new Promise(requestAnimationFrame);
  }
  return performance.now() - begun;
}"""


def weights(heads: int, tokens: int, spread: float, causal: bool) -> torch.Tensor:
    """Softmax of random logits, `[H,T,T]`."""
    scores = spread * torch.randn(heads, tokens, tokens)
    if causal:
        above = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(above, float("-inf"))
    return scores.softmax(-1)


def written(
    path: Path, layers: int, heads: int, tokens: int, spread: float, causal: bool
) -> tuple[float, float]:
    """Make a page: its megabytes, and the seconds it took."""
    torch.manual_seed(0)
    words = [f"word{place}" for place in range(tokens)]
    seen = [
        Payload.of(weights(heads, tokens, spread, causal), words, words, site=f"layers.{layer}",
                   kind="self")
        for layer in range(layers)
    ]  # fmt: skip
    begun = time.perf_counter()
    save_page(seen, path, title=f"{layers} x {heads} x {tokens}")
    return path.stat().st_size / 1e6, time.perf_counter() - begun


def opened(page: Page, path: Path) -> float:
    """Seconds from the start of the navigation to the frame after the first drawing."""
    page.goto(path.as_uri())
    return float(page.evaluate(FIRST)) / 1000


def percentile(times: list[float], part: float) -> float:
    """The time that this part of them stays below."""
    return sorted(times)[min(int(part * len(times)), len(times) - 1)]


PAGES: dict[str, tuple[int, int, int, float, bool]] = {
    "12 x 12 x 512, causal, sharp": (12, 12, 512, 3.0, True),
    "12 x 12 x 512, causal, blurred": (12, 12, 512, 1.0, True),
    "12 x 12 x 512, sharp": (12, 12, 512, 3.0, False),
    "12 x 12 x 512, blurred": (12, 12, 512, 1.0, False),
    "1 x 1 x 2048, causal": (1, 1, 2048, 2.0, True),
    "1 x 1 x 2048": (1, 1, 2048, 2.0, False),
}


def main() -> None:
    """Print a row for each page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the names of pages to measure")
    asked = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    names = [
        "page",
        "levels",
        "MB",
        "made s",
        "open s",
        "thumbs s",
        "frame ms",
        "p95",
        "work ms",
        "p95",
    ]
    print("| " + " | ".join(names) + " |\n|" + " --- |" * len(names))
    with TemporaryDirectory() as folder, sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        for name, shape in PAGES.items():
            if asked.only not in name:
                continue
            path = Path(folder) / "page.html"
            size, made = written(path, *shape)
            page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True)
            seconds = opened(page, path)
            thumbs = float(page.evaluate(THUMBS)) / 1000
            times, work = page.evaluate(MOVING, FRAMES)
            levels = page.evaluate("regard.sites().flatMap((site) => site.levels)")
            row = [
                min(levels),
                size,
                made,
                seconds,
                thumbs,
                statistics.median(times),
                percentile(times, 0.95),
            ]
            row += [statistics.median(work), percentile(work, 0.95)]
            print(f"| {name} | " + " | ".join(f"{each:.4g}" for each in row) + " |", flush=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
