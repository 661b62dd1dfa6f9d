"""The lecture room: the story of attention in steps, one TOML file each in `steps/`.

A step has an equation, the file of the package that computes it, commands that take minutes, the
picture that comes out of trained weights, and an exercise. A new step is a new file; its `number`
is its place. `regard lectures --markdown` makes docs/lectures.md from them, and `make gallery` runs
their commands and keeps their pictures.

>>> [step.title for step in lecture_steps()][:2]
['The bottleneck', 'Alignment']
"""

import tomllib
from functools import cache
from importlib import resources

from pydantic import PositiveFloat

from regard.core.config import Config, parse


class LectureStep(Config):
    """One step of the story."""

    number: float
    """Its place: a step between 3 and 4 may be 3.5."""
    title: str
    paper: str
    """Where it was published."""
    question: str
    """The question that the step answers, and the answer in some sentences."""
    equation: str
    """In LaTeX."""
    file: str
    """The file of the package that computes it."""
    train: tuple[str, ...] = ()
    """Commands that leave a run folder in runs/."""
    minutes: PositiveFloat
    """What they take on two CPU cores."""
    draw: str
    """The command that draws the picture, after those above."""
    picture: str
    """The file that it writes; a page (.html) is photographed."""
    caption: str
    """What the picture shows."""
    exercise: str
    """Something to try that the page does not answer."""


@cache
def lecture_steps() -> tuple[LectureStep, ...]:
    """Every step, in order."""
    folder = resources.files("regard.lectures").joinpath("steps")
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    steps = [
        parse(LectureStep, tomllib.loads(file.read_text(encoding="utf-8")), at=file.name)
        for file in files
    ]
    return tuple(sorted(steps, key=lambda step: step.number))


def lectures_page() -> str:
    """The page of the lecture room, in Markdown."""
    steps = lecture_steps()
    rows = [f"{place}. [{step.title}](#{_anchor(step)})" for place, step in enumerate(steps, 1)]
    return "\n".join([*_INTRODUCTION, *rows, "", *(_section(step) for step in steps)])


def gallery_page() -> str:
    """The page of all pictures of the lectures, in Markdown."""
    figures = [
        f'<figure markdown="1">\n[![{step.caption}](gallery/{picture_name(step)})]'
        f"(lectures.md#{_anchor(step)})\n<figcaption>{step.title}. {step.caption}</figcaption>\n"
        "</figure>"
        for step in lecture_steps()
    ]
    return "\n".join(
        [*_GALLERY, '<div class="gallery" markdown="1">', "", *figures, "", "</div>", ""]
    )


def picture_name(step: LectureStep) -> str:
    """The file of a step's picture in docs/gallery.

    >>> picture_name(lecture_steps()[0])
    'bottleneck.png'
    """
    return step.picture.rpartition(".")[0] + ".png"


def _anchor(step: LectureStep) -> str:
    return "-".join(step.title.lower().split())


def _section(step: LectureStep) -> str:
    commands = "\n".join((*step.train, step.draw))
    return f"""## {step.title}

{step.question}

$$
{step.equation}
$$

*{step.paper}.* In the package: `{step.file}`.

```sh
{commands}
```

About {step.minutes:g} minutes on two CPU cores.

![{step.caption}](gallery/{picture_name(step)})

{step.caption}

**Exercise.** {step.exercise}
"""


_INTRODUCTION = (
    "# The lecture room",
    "",
    "The story of attention in the order in which it is taught. Each step has its equation, the",
    "file that computes it, commands that take minutes on a laptop, the picture that comes out of",
    "the trained weights, and an exercise. `regard lectures` shows the steps in a terminal, and",
    "`make gallery` runs all commands and draws all pictures anew ([gallery](gallery.md)).",
    "Data that a step needs are downloaded by name: `regard data get RECIPE` ([data](data.md)).",
    "",
)

_GALLERY = (
    "# Gallery",
    "",
    "Every picture of the [lecture room](lectures.md). Each one is drawn from the weights of a",
    "model trained by the commands of its step: `make gallery` does all of it.",
    "",
)
