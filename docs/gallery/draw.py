"""The pictures of the lecture room, made by the commands of its steps from trained runs.

    python docs/gallery/draw.py                       # trains what is missing in runs/, draws all
    python docs/gallery/draw.py --folder /tmp/work    # with runs and pictures of the commands there
    python docs/gallery/draw.py alignment heads       # some of them

A picture is exactly what the step's own command draws. A page (.html) is photographed by a headless
Chromium.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from regard.lectures import LectureStep, gallery_page, lecture_steps, lectures_page, picture_name

HERE = Path(__file__).parent
WIDEST = 1400
"""Pixels: larger pictures are made smaller, so that the pages load quickly."""


def execute(command: str, folder: Path) -> None:
    """Run a command of a step in a folder, with this Python."""
    regard = f'regard() {{ {shlex.quote(sys.executable)} -m regard "$@"; }}'
    print(command, flush=True)
    subprocess.run(["bash", "-c", f"{regard}\n{command}"], cwd=folder, check=True)  # noqa: S603, S607


def run_of(command: str) -> str:
    """The run that a training leaves: its name, else its recipe's."""
    words = shlex.split(command)
    return words[words.index("--name") + 1] if "--name" in words else words[2]


def draw_step(step: LectureStep, folder: Path) -> Path:
    """Train what a step needs, draw its picture, and put it beside this file."""
    for command in step.train:
        if not (folder / "runs" / run_of(command) / "metrics.json").exists():
            execute(command, folder)
    execute(step.draw, folder)
    made, target = folder / step.picture, HERE / picture_name(step)
    if made.suffix == ".html":
        photograph(made, target)
    else:
        shutil.copy(made, target)
    shrink(target)
    return target


def photograph(page: Path, target: Path) -> None:
    """A picture of the top of a page."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1000, "height": 1200})
        shown.goto(page.resolve().as_uri())
        shown.wait_for_timeout(500)
        shown.screenshot(path=str(target))
        browser.close()


def shrink(path: Path) -> None:
    """Fewer pixels and colours, for small files."""
    from PIL import Image

    with Image.open(path) as image:
        image.load()
        small = image.convert("RGB")
    if small.width > WIDEST:
        small = small.resize((WIDEST, small.height * WIDEST // small.width))
    small.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Draw all pictures, or those that are named, and write both pages."""
    options = argparse.ArgumentParser(description="Draw the pictures of the lecture room.")
    options.add_argument("names", nargs="*", help="pictures, without .png; else all")
    options.add_argument("--folder", type=Path, default=Path.cwd(), help="where runs/ is")
    given = options.parse_args()
    os.environ.setdefault("REGARD_DATA", str(Path.cwd()))
    failed = []
    for step in lecture_steps():
        if given.names and picture_name(step).removesuffix(".png") not in given.names:
            continue
        try:
            print(f"-> {draw_step(step, given.folder)}", flush=True)
        except (subprocess.CalledProcessError, OSError) as problem:
            failed.append(f"{step.title}: {problem}")
    (HERE.parent / "lectures.md").write_text(lectures_page())
    (HERE.parent / "gallery.md").write_text(gallery_page())
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
