"""Progress of a training for people: a bar on a terminal, plain lines elsewhere."""

import sys
from typing import Protocol, TextIO, runtime_checkable

_BAR_WIDTH = 20
"""Of the bar, in columns of the terminal."""


@runtime_checkable
class Display(Protocol):
    """Shows the progress of a training."""

    def begin(self, update: int, updates: int | None) -> None:
        """The training starts or resumes after this update."""
        ...

    def tick(self, update: int) -> None:
        """An update was taken."""
        ...

    def show(self, text: str, *, transient: bool = False) -> None:
        """Show a text; a transient one may be overwritten by the next."""
        ...

    def end(self) -> None:
        """The training is over."""
        ...


class LineDisplay:
    """Plain lines, for files and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    def begin(self, update: int, updates: int | None) -> None:
        """Does nothing."""

    def tick(self, update: int) -> None:
        """Does nothing: there is no line for every update."""

    def show(self, text: str, *, transient: bool = False) -> None:
        """Print one line."""
        print(text, file=self.stream, flush=True)

    def end(self) -> None:
        """Does nothing."""


class BarDisplay:
    """A progress bar with the latest values beside it, as many as the terminal has room for."""

    def __init__(self, stream: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.table import Column

        # Columns share the width of the terminal, so those that must stay do not wrap or shrink.
        bar, count = Column(min_width=_BAR_WIDTH), Column(no_wrap=True)
        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self.progress = Progress(
            BarColumn(bar_width=_BAR_WIDTH, table_column=bar),
            MofNCompleteColumn(table_column=count),
            TextColumn("{task.description}", markup=False, table_column=rest),
            console=Console(file=stream or sys.stderr),
            expand=True,
        )
        self.task = self.progress.add_task("", total=None)

    def begin(self, update: int, updates: int | None) -> None:
        """Draw the bar at the first update."""
        self.progress.update(self.task, completed=update, total=updates)
        self.progress.start()

    def tick(self, update: int) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=update)

    def show(self, text: str, *, transient: bool = False) -> None:
        """Show a text beside the bar if transient, above it otherwise."""
        if transient:
            self.progress.update(self.task, description=text)
        else:
            self.progress.console.print(text, markup=False, highlight=False)

    def end(self) -> None:
        """Stop the bar."""
        self.progress.stop()


class SilentDisplay:
    """Shows nothing, for all processes but the main one."""

    def begin(self, update: int, updates: int | None) -> None:
        """Nothing."""

    def tick(self, update: int) -> None:
        """Nothing."""

    def show(self, text: str, *, transient: bool = False) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


def display_for(stream: TextIO | None = None) -> Display:
    """A bar if the stream is a terminal, plain lines otherwise."""
    stream = stream or sys.stderr
    return BarDisplay(stream) if stream.isatty() else LineDisplay(stream)
