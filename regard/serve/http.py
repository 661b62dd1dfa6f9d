"""HTTP: the routes, from a request to a job of the engine and back.

`application` gives them behind their guard. OpenAPI's description of them all is /openapi.json.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from regard.core.errors import UserError
from regard.core.inputs import kind_name
from regard.core.protocols import Bounded, Stepper
from regard.look.log_curves import training_curves
from regard.serve import schema, work
from regard.serve.completions import collected, prepared, streamed
from regard.serve.engine import Engine
from regard.serve.errors import Refused, whole
from regard.serve.guard import App, Doors, Guard
from regard.serve.job import Asking, Gone, Job
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.served_run import Served, find
from regard.serve.static_files import static_files
from regard.tasks.abilities import Generates, Translates

_Answer = TypeVar("_Answer")
_Question = TypeVar("_Question")

_ERRORS: dict[int | str, dict[str, object]] = {
    status: {"model": schema.Error, "description": HTTPStatus(status).phrase}
    for status in (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503)
}
"""What any route may answer instead."""

_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'nonce-{nonce}'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Of the page: nothing that does not come from here, no script that stands in the text."""


def application(
    engine: Engine, limits: Limits, doors: Doors, metrics: Metrics, version: str = "0"
) -> App:
    """All routes, guarded; `version` is what the OpenAPI file says."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        await asyncio.to_thread(engine.stop)

    app = FastAPI(
        title="regard",
        version=version,
        summary="Attention models: predictions, and the attention behind them.",
        docs_url=None,  # these load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        responses=_ERRORS,
        generate_unique_id_function=lambda route: route.name,
    )
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(UserError, _user_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Gone, _left)
    app.add_exception_handler(Exception, _failed)
    _add_openai(app, engine, limits)
    _add_questions(app, engine, limits)
    _add_runs(app, engine)
    _add_status(app, engine, metrics)
    _add_page(app)
    return Guard(app, doors, limits, metrics, engine.check_room)


def _add_openai(app: FastAPI, engine: Engine, limits: Limits) -> None:
    """What OpenAI's clients ask for."""

    @app.get("/v1/models", response_model=schema.ModelList)
    async def models() -> Response:
        """All runs that are served."""
        return answer({"object": "list", "data": [_listed(each) for each in engine.runs.values()]})

    @app.get("/v1/models/{model}", response_model=schema.ModelObject)
    async def model(model: str) -> Response:
        """One run."""
        return answer(_listed(find(engine.runs, model)))

    @app.post("/v1/completions", response_model=schema.CompletionObject)
    async def completions(asked: schema.Completion, request: Request) -> Response:
        """Continuations of a prompt; with `stream`, as events while they are generated."""
        run = find(engine.runs, asked.model)
        made = await _aside(asked.prompt, partial(prepared, run, asked, limits))
        job, completed, scoring = made.job, made.completed, made.scoring
        if scoring is not None:
            engine.submit(scoring)
            scores = await _waited(engine, scoring, request, asyncio.wrap_future(scoring.answer))
            completed.add_scores(scoring.question, scores)
        if job is not None:
            engine.submit(job)
        if asked.stream:
            usage = asked.stream_options is not None and asked.stream_options.include_usage
            return Events(streamed(job, completed, usage), engine, job)
        if job is None:
            return answer(await collected(job, completed))
        return answer(await _waited(engine, job, request, collected(job, completed)))

    @app.post("/v1/embeddings", response_model=schema.EmbeddingList)
    async def embeddings(asked: schema.Embed, request: Request) -> Response:
        """A vector for each text, pooled as the folder of the run has it."""
        run = find(engine.runs, asked.model)
        job = await _aside(asked.input, partial(work.embedding, run, asked, limits))
        engine.submit(job)
        found = await _waited(engine, job, request, asyncio.wrap_future(job.answer))
        return answer(found)


def _add_questions(app: FastAPI, engine: Engine, limits: Limits) -> None:
    """Translations, predictions, attention, interventions."""

    async def asked_of(
        request: Request,
        asked: schema.InputRequest | schema.Translate,
        job: Callable[[Served], Asking[_Question, _Answer]],
    ) -> _Answer:
        run = find(engine.runs, asked.model)
        made = await _aside(asked.text or asked.input or "", partial(job, run))
        engine.submit(made)
        return await _waited(engine, made, request, asyncio.wrap_future(made.answer))

    @app.post("/api/translate", response_model=schema.Translations)
    async def translate(asked: schema.Translate, request: Request) -> Response:
        """Lines translated; those of several requests are searched together."""
        found = await asked_of(request, asked, lambda run: work.translating(run, asked, limits))
        return answer({"model": asked.model, "translations": found})

    @app.post("/api/predict", response_model=schema.PredictionObject)
    async def predict(asked: schema.InputRequest, request: Request) -> Response:
        """A prediction for an input: the next token, a translation, a class."""
        found = await asked_of(request, asked, lambda run: work.predicting(run, asked, limits))
        return answer(found)

    @app.post("/api/intervene", response_model=schema.Intervened)
    async def intervene(asked: schema.Intervene, request: Request) -> Response:
        """What a model predicts as it is, and with changed attention weights."""
        before, after = await asked_of(
            request, asked, lambda run: work.intervening(run, asked, limits)
        )
        return answer({"before": before, "after": after})

    @app.post("/api/attention", response_model=dict[str, object])
    async def attention(asked: schema.Attention, request: Request) -> Response:
        """The attention weights of a model for an input."""
        run = find(engine.runs, asked.model)
        job = await _aside(asked.text or "", partial(work.showing, run, asked, limits))
        engine.submit(job)
        try:
            found = await _result(request, asyncio.wrap_future(job.answer))
            made = await asyncio.to_thread(work.attention_form, found, asked.form)
        except BaseException:
            engine.leave(job)
            raise
        return LargeAnswer(made, engine, job)


def _add_runs(app: FastAPI, engine: Engine) -> None:
    """What is served, and how its training goes."""

    @app.get("/api/runs", response_model=schema.Runs)
    async def runs() -> Response:
        """Every run, and what can be done with it."""
        return answer({"runs": [_described(run) for run in engine.runs.values()]})

    @app.get("/api/runs/{name}/curves", response_model=schema.Curves)
    async def run_curves(name: str) -> Response:
        """The curves of a training, which may still go on."""
        run = find(engine.runs, name)
        found = await asyncio.to_thread(training_curves, run.folder)
        return answer({"run": name, "trained": run.model is not None, "curves": found})


def _add_status(app: FastAPI, engine: Engine, metrics: Metrics) -> None:
    """How the server is."""

    @app.get("/health", response_model=schema.Status)
    async def health() -> Response:
        """Is it alive? The one route that needs no key."""
        return answer({"status": "ok"})

    @app.get("/ready", response_model=schema.Status)
    async def ready() -> Response:
        """Does it take requests?"""
        if engine.draining or not engine.warm:
            why = "is about to stop" if engine.draining else "has just begun"
            raise Refused(503, f"the server {why}", code="not_ready", retry_after=5)
        return answer({"status": "ready"})

    @app.get("/metrics", response_class=PlainTextResponse)
    async def measured() -> Response:
        """What it did so far, as Prometheus reads it."""
        gauges = {"regard_queued": engine.queued, "regard_writing": engine.writing}
        return PlainTextResponse(metrics.text(gauges), media_type="text/plain; version=0.0.4")


def _add_page(app: FastAPI) -> None:
    """The studio and what it is made of."""
    table = static_files()

    def page(name: str) -> Response:
        nonce = secrets.token_urlsafe(16)
        made = table[name].data.replace(b"{nonce}", nonce.encode())
        headers = {"content-security-policy": _POLICY.format(nonce=nonce)}
        return Response(made, media_type="text/html; charset=utf-8", headers=headers)

    @app.get("/", include_in_schema=False)
    async def studio() -> Response:
        return page("studio.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page("docs.html")

    @app.get("/static/{path:path}", include_in_schema=False)
    async def static(path: str, request: Request) -> Response:
        if path not in table or path.endswith(".html"):
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such file")
        file = table[path]
        headers = {"etag": file.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(file.data, media_type=file.kind, headers=headers)


_SHORT = 2000
"""Characters that are tokenised faster than another thread starts."""


async def _aside(text: str | Sequence[object], work: Callable[[], _Answer]) -> _Answer:
    """Work that takes as long as the text is: in another thread unless that is short."""
    short = isinstance(text, str) and len(text) <= _SHORT
    return work() if short else await asyncio.to_thread(work)


async def _waited(
    engine: Engine, job: Job, request: Request, result: Awaitable[_Answer]
) -> _Answer:
    """What comes of a job; if the client leaves first, nothing more is computed."""
    try:
        return await _result(request, result)
    finally:
        engine.leave(job)


async def _result(request: Request, result: Awaitable[_Answer]) -> _Answer:
    """A result; if the client leaves first, `Gone` is raised."""
    working = asyncio.ensure_future(result)
    gone = asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        working.cancel()
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Events(Response):
    """A stream of events that ends when the client leaves."""

    def __init__(self, events: AsyncIterator[str], engine: Engine, job: Job | None) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self._events, self._engine, self._job = events, engine, job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        sending = asyncio.ensure_future(self._sent(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            if self._job is not None:
                self._engine.leave(self._job)
            sending.cancel()
            gone.cancel()

    async def _sent(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for each in self._events:
            await send({"type": "http.response.body", "body": each.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class LargeAnswer(Response):
    """JSON that is so large that the engine counts how many are in memory."""

    def __init__(self, made: str | bytes, engine: Engine, job: Job) -> None:
        super().__init__(made, media_type="application/json")
        self._engine, self._job = engine, job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._engine.leave(self._job)


def answer(made: object) -> Response:
    """An object as JSON, in ASCII."""
    text = json.dumps(made, allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")


def _listed(run: Served) -> dict[str, object]:
    """A run as OpenAI lists models."""
    try:
        created = int(run.folder.stat().st_mtime)
    except OSError:
        created = 0
    return {"id": run.name, "object": "model", "created": created, "owned_by": "regard"}


def _described(run: Served) -> dict[str, object]:
    """A run, and what can be done with it."""
    steps = isinstance(run.model, Stepper)
    return {
        "name": run.name,
        "task": run.task,
        "model": run.kind,
        "title": whole(run.title),
        "trained": run.model is not None,
        "takes": [kind_name(kind) for kind in run.opened.takes],
        "writes": steps and isinstance(run.opened, Generates),
        "translates": steps and isinstance(run.opened, Translates),
        "sites": list(run.sites),
        "context": run.model.context_limit if isinstance(run.model, Bounded) else None,
        "example": whole(run.example),
    }


async def _refused(request: Request, error: Exception) -> Response:
    """The error of a refusal; where OpenAI's clients expect 400 for a wrong value, it is 400."""
    assert isinstance(error, Refused)
    status = error.status
    if status == HTTPStatus.UNPROCESSABLE_ENTITY and request.url.path.startswith("/v1/"):
        status = HTTPStatus.BAD_REQUEST
    return JSONResponse(error.body(), status, error.headers())


async def _user_error(request: Request, error: Exception) -> Response:
    """What a user can put right."""
    return await _refused(request, Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)))


async def _invalid(request: Request, error: Exception) -> Response:
    """A body that is not what the schema says."""
    assert isinstance(error, RequestValidationError)
    first: dict[str, object] = dict(error.errors()[0])
    loc = first.get("loc", ())
    assert isinstance(loc, Sequence)
    place = ".".join(str(each) for each in loc if each not in ("body", "query", "path"))
    message = f"{place}: {first['msg']}" if place else str(first["msg"])
    made = Refused(422, message[:1000], code=str(first["type"]), param=whole(place)[:200] or None)
    return await _refused(request, made)


async def _http_error(request: Request, error: Exception) -> Response:
    """A path that does not exist, or a method that it does not have: the routes that exist."""
    assert isinstance(error, HTTPException)
    message, code = str(error.detail), None
    if error.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        path, code = request.url.path[:100], "unknown_route"
        message = f"{request.method} {path} does not exist; there are {_routes_of(request.app)}"
    made = Refused(error.status_code, message, code=code)
    return JSONResponse(made.body(), error.status_code, dict(error.headers or {}))


def _routes_of(app: FastAPI) -> str:
    """Every method and path of an API, for people."""
    paths: dict[str, dict[str, object]] = app.openapi()["paths"]
    return ", ".join(f"{method.upper()} {path}" for path, each in paths.items() for method in each)


async def _left(request: Request, error: Exception) -> Response:
    """The client is gone: nobody reads this."""
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _failed(request: Request, error: Exception) -> Response:
    """Our own mistake: the log says more than the client is told."""
    return await _refused(request, Refused(500, "the server failed; its log says more"))
