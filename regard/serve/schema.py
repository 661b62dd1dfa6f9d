"""Schema: requests and answers, as JSON and as the OpenAPI file has them.

`/v1` is OpenAI's form. Of fields that this server does not support, only the value that has no
effect is allowed, so that a client's defaults pass and no other value is silently ignored.
"""

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from regard.serve.served_run import Change

_MOST_INT = 2**63 - 1


class RequestBody(BaseModel):
    """A request: no unknown keys, no numbers as strings, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


_Model = Annotated[
    str, Field(max_length=200, description="The name of a run, as /v1/models has it.")
]
_Seed = Annotated[int, Field(ge=-_MOST_INT, le=_MOST_INT)]
_Token = Annotated[int, Field(ge=0, le=2**31)]
_Heads = Annotated[list[Annotated[int, Field(ge=0, le=4096)]], Field(max_length=256)]
_Site = Annotated[str, Field(max_length=200, description="A glob of names of attention sites.")]


class StreamOptions(RequestBody):
    """What else a stream is to say."""

    include_usage: bool = False


class Completion(RequestBody):
    """POST /v1/completions."""

    model: _Model
    prompt: str | list[str] | list[_Token] | list[list[_Token]] = Field(
        "", description="A text, some texts, or their tokens. Of nothing, anything may begin."
    )
    max_tokens: int | None = Field(
        16, ge=0, le=1_000_000, description="With 0 and echo, the prompt is scored."
    )
    temperature: float | None = Field(1.0, ge=0, le=100, description="0 is the likeliest token.")
    top_p: float | None = Field(1.0, gt=0, le=1)
    n: int | None = Field(1, ge=1, le=128, description="How many texts for each prompt; at most 4.")
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = False
    stop: str | list[str] | None = Field(None, max_length=1000)
    seed: _Seed | None = None
    user: str | None = Field(None, max_length=1000)
    top_k: int = Field(0, ge=0, le=1_000_000, description="Draw from so many tokens; 0 is all.")
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=100)
    best_of: Literal[1] | None = None
    suffix: Literal[""] | None = None
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    logit_bias: dict[str, float] | None = Field(None, max_length=0)


_Kind = Annotated[
    str, Field(max_length=40, description="Of input: image, sound, ...; else what the run takes.")
]


class Part(RequestBody):
    """One of several inputs that belong together."""

    kind: _Kind
    input: str


class Translate(RequestBody):
    """POST /api/translate."""

    model: _Model
    text: str | list[str] | None = Field(
        None, description="A line, or several; the translation of an empty line is empty."
    )
    input: str | list[str] | list[list[Part]] | None = Field(
        None, description="Instead of text: a file in base 64, or several; or parts, see predict."
    )
    kind: _Kind | None = None
    beam: int | None = Field(None, ge=1, le=16, description="Hypotheses; else the recipe's.")
    n: int = Field(1, ge=1, le=16, description="Translations of each line, at most the beam.")

    @model_validator(mode="after")
    def _one_input(self) -> "Translate":
        return _require_one(self)


Given = TypeVar("Given", "Translate", "InputRequest")


def _require_one(given: Given) -> Given:
    """The request, if it has a text or an input, and not both."""
    if (given.text is None) == (given.input is None):
        raise ValueError("give either text or input")
    if given.text is not None and given.kind is not None:
        raise ValueError("kind is that of input; a text has none")
    return given


class InputRequest(RequestBody):
    """An input for a run: POST /api/predict."""

    model: _Model
    text: str | None = None
    input: str | list[Part] | None = Field(
        None, description="Instead of text: a file in base 64, or the parts of several inputs."
    )
    kind: _Kind | None = None

    @model_validator(mode="after")
    def _one_input(self) -> "InputRequest":
        return _require_one(self)


class AttentionEdit(RequestBody):
    """One change of attention weights."""

    site: _Site
    how: Literal["off", "uniform", "permuted", "row"] = Field(
        description="All zero, all equal, shuffled, or `weights` in row `query`."
    )
    heads: _Heads | None = Field(None, description="By number; else all of them.")
    seed: _Seed = 0
    query: int = Field(0, ge=0, le=1_000_000)
    weights: list[Annotated[float, Field(ge=0, le=1e6)]] = Field([], max_length=10_000)

    def change(self) -> Change:
        """As runs take it."""
        return Change(
            site=self.site,
            how=self.how,
            heads=None if self.heads is None else tuple(self.heads),
            seed=self.seed,
            query=self.query,
            weights=tuple(self.weights),
        )


class Intervene(InputRequest):
    """POST /api/intervene."""

    edits: list[AttentionEdit] = Field(max_length=64)


class Attention(InputRequest):
    """POST /api/attention."""

    sites: _Site | None = None
    heads: _Heads | None = None
    form: Literal["packed", "plain"] = Field(
        "packed", description="As the page reads it, small and rounded; or numbers as they are."
    )
    edits: list[AttentionEdit] = Field(
        [], max_length=64, description="The weights are those of the model with these edits."
    )


class ErrorObject(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """Every answer that is not what was asked for."""

    error: ErrorObject


class ModelObject(BaseModel):
    """A run, as OpenAI lists models."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "regard"


class ModelList(BaseModel):
    """All runs."""

    object: Literal["list"] = "list"
    data: list[ModelObject]


class Logprobs(BaseModel):
    """How likely the model held each token of a text."""

    tokens: list[str]
    token_logprobs: list[float | None]
    """The first token of a prompt has none."""
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One text."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    """How much was read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionObject(BaseModel):
    """All texts of a request; in a stream, some of them or parts."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class Embed(RequestBody):
    """POST /v1/embeddings."""

    model: _Model
    input: str | list[str] = Field(description="A text, or several.")
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = Field(None, max_length=1000)
    dimensions: None = None


class EmbeddingObject(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str
    """Numbers; or as base 64, little-endian numbers of 32 bits."""


class EmbeddingUsage(BaseModel):
    """How much was read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The vectors of all texts."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingUsage


class TranslationObject(BaseModel):
    """What became of one line."""

    text: str
    score: float | None
    others: list[str]
    """The next best, if they were asked for."""
    truncated: bool
    """Was the line longer than the model reads, so that its end was left out?"""


class Translations(BaseModel):
    """One for each line."""

    model: str
    translations: list[TranslationObject]


class ChoiceObject(BaseModel):
    """One possible outcome and its probability."""

    text: str
    probability: float


class PredictionObject(BaseModel):
    """What a model predicts for an input; fields that a task does not use are empty."""

    tokens: list[str]
    text: str | None
    choices: list[ChoiceObject]
    labels: list[str]
    truncated: bool
    """Was the input longer than the model reads, so that its end was left out?"""


class Intervened(BaseModel):
    """What a model predicts as it is, and with changed attention weights."""

    before: PredictionObject
    after: PredictionObject


class RunObject(BaseModel):
    """A run, and what can be done with it."""

    name: str
    task: str
    model: str
    title: str
    trained: bool
    takes: list[str]
    """The kinds of input."""
    writes: bool
    translates: bool
    sites: list[str]
    context: int | None
    example: str
    """An input to try it with; "" if it has none."""


class Runs(BaseModel):
    """All runs."""

    runs: list[RunObject]


class Curves(BaseModel):
    """How a training went so far: points of each curve."""

    run: str
    trained: bool
    curves: dict[str, list[tuple[int, float]]]


class Status(BaseModel):
    """How the server is."""

    status: str
