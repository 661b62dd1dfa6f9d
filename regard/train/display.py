"""Display: what a person sees of a training, a bar on a terminal and plain lines elsewhere."""

import sys
from typing import Protocol, TextIO, runtime_checkable


@runtime_checkable
class Display(Protocol):
    """What a person sees of a training."""

    def begin(self, update: int, updates: int | None) -> None:
        """Training starts, or goes on, after this update."""
        ...

    def tick(self, update: int) -> None:
        """An update was taken."""
        ...

    def show(self, text: str, *, passing: bool = False) -> None:
        """Something to read; what is passing may be overwritten by the next of its kind."""
        ...

    def end(self) -> None:
        """Training is over."""
        ...


class Lines:
    """Plain lines, for files and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    def begin(self, update: int, updates: int | None) -> None:
        """Nothing to set up."""

    def tick(self, update: int) -> None:
        """No line for every single update."""

    def show(self, text: str, *, passing: bool = False) -> None:
        """One line."""
        print(text, file=self.stream, flush=True)

    def end(self) -> None:
        """Nothing to take down."""


class Bar:
    """A progress bar with the newest figures beside it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.progress = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(file=stream or sys.stderr),
        )
        self.task = self.progress.add_task("", total=None)

    def begin(self, update: int, updates: int | None) -> None:
        """Draw the bar where training starts."""
        self.progress.update(self.task, completed=update, total=updates)
        self.progress.start()

    def tick(self, update: int) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=update)

    def show(self, text: str, *, passing: bool = False) -> None:
        """Beside the bar if passing, above it otherwise."""
        if passing:
            self.progress.update(self.task, description=text)
        else:
            self.progress.console.print(text, markup=False, highlight=False)

    def end(self) -> None:
        """Leave the bar as it stands."""
        self.progress.stop()


class Silent:
    """Nothing: for processes that do not lead."""

    def begin(self, update: int, updates: int | None) -> None:
        """Nothing."""

    def tick(self, update: int) -> None:
        """Nothing."""

    def show(self, text: str, *, passing: bool = False) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


def display_for(stream: TextIO | None = None) -> Display:
    """A bar on a terminal, lines elsewhere."""
    stream = stream or sys.stderr
    return Bar(stream) if stream.isatty() else Lines(stream)
