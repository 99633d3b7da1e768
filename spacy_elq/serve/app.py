"""The server: routes, and what happens to what goes wrong."""

import asyncio
import gc
import hmac
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, AsyncIterator, Awaitable, Dict, List, Optional, Sequence, TypeVar

from fastapi import Body, Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles

from ..errors import ELQError
from ..util import set_threads
from . import schemas
from .batching import Batcher, QueueFull
from .limits import BodyLimit, Watch
from .log import log
from .metrics import Metrics
from .published import to_published
from .service import Answer, Ask, LinkService
from .settings import NOT_STARTED, TOKEN, ServeSettings

T = TypeVar("T")

PAGE = Path(__file__).parent / "page"
# candidates that the published service gives for a mention
_PUBLISHED_CANDIDATES = 10
_RETRY = {"Retry-After": "1"}
# what the log says where nobody reads the answer
_GONE = 499
# the page needs nothing from anywhere else, and nobody may frame it
_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_ERRORS: Dict[Any, Dict[str, Any]] = {
    status: {"model": schemas.ErrorAnswer, "description": description}
    for status, description in {
        400: "Not valid for this pipeline",
        413: "Too large",
        422: "Not what is described here",
        503: "Too busy: try again after `Retry-After` seconds",
    }.items()
}
# it is read whatever type it says it has, so FastAPI does not know of it
_QUESTION_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": schemas.QuestionBody.model_json_schema()}},
    }
}
_WRITE_ERRORS = {
    **_ERRORS,
    401: {"model": schemas.ErrorAnswer, "description": "The token is missing or wrong"},
    403: {"model": schemas.ErrorAnswer, "description": "The server is not writable"},
}


class Server:
    """What the routes share: the service, its threads, the queue."""

    def __init__(self, settings: ServeSettings, service: LinkService) -> None:
        """Make what the routes share.

        settings (ServeSettings): The settings.
        service (LinkService): The pipeline.
        """
        self.settings = settings
        self.service = service
        self.metrics = Metrics()
        self.is_ready = False
        self.linking = ThreadPoolExecutor(1, thread_name_prefix="elq-link")
        self.writing = ThreadPoolExecutor(1, thread_name_prefix="elq-write")
        self.batcher = Batcher(
            service.link,
            self.linking,
            size=settings.batch_size,
            wait=settings.batch_wait,
            limit=settings.max_queue,
            on_batch=self._count_batch,
        )

    def _count_batch(self, size: int) -> None:
        self.metrics.batches.observe(size)
        self.metrics.queue.set(len(self.batcher))

    async def link(self, request: Request, asks: Sequence[Ask]) -> List[Answer]:
        """RETURNS (List[Answer]): The answers for texts, linked together with those of other requests."""
        self.check_texts([ask.text for ask in asks])
        self.note(request, asks)
        try:
            answers = await self.wait(request, self.batcher.link(asks))
        except QueueFull:
            raise HTTPException(503, "Too many texts wait already. Try again later.", _RETRY) from None
        self.metrics.links.inc(sum(len(answer.links or ()) for answer in answers))
        self.metrics.failures.inc(sum(answer.links is None for answer in answers))
        return answers

    async def compute(self, request: Request, ask: Ask, work: Any, *args: Any) -> Any:
        """RETURNS (Any): What a function returns that computes, in the thread that links."""
        self.check_texts([ask.text])
        self.note(request, [ask])
        loop = asyncio.get_running_loop()
        return await self.wait(request, loop.run_in_executor(self.linking, work, ask, *args))

    async def wait(self, request: Request, work: Awaitable[T]) -> T:
        """Wait for work, but not longer than a request may take, and not if the client has gone.

        RAISES (HTTPException): If it took too long.
        """
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(_wait_until_gone(request))
        try:
            await asyncio.wait(
                {task, leaving}, timeout=self.settings.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if leaving.done() and not task.done():
                raise HTTPException(_GONE, "The client has gone.")
            if not task.done():
                raise HTTPException(503, f"Not done within {self.settings.timeout:g} seconds.", _RETRY)
            return task.result()
        finally:
            task.cancel()
            leaving.cancel()

    def check_texts(self, texts: Sequence[str]) -> None:
        """Check number and size of texts.

        RAISES (HTTPException): If there are too many, or one is too long.
        """
        most, longest = self.settings.max_texts, max(map(len, texts), default=0)
        if len(texts) > most:
            raise HTTPException(
                413, f"{len(texts)} texts in a request, at most {most}. Send fewer at a time."
            )
        if longest > self.settings.max_characters:
            limit = self.settings.max_characters
            raise HTTPException(413, f"A text of {longest} characters, at most {limit}. Send parts of it.")

    def note(self, request: Request, asks: Sequence[Ask]) -> None:
        """Leave for the log what was asked; the texts only if that is wanted."""
        said: Dict[str, Any] = {"texts": len(asks)}
        if self.settings.log_texts:
            said["asked"] = [ask.text for ask in asks]
        request.state.log = said


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def create_worker() -> FastAPI:
    """Make the server in a worker process: the environment has its settings.

    RETURNS (FastAPI): The app.
    """
    try:
        return create_app(ServeSettings.from_environment())
    except Exception as err:
        log(str(err) if isinstance(err, (ELQError, OSError)) else "failed", level=40, exc_info=err)
        # uvicorn takes it for the end of all workers: they would all fail
        raise SystemExit(NOT_STARTED) from None


def create_app(settings: ServeSettings, service: Optional[LinkService] = None) -> FastAPI:
    """Make the server.

    settings (ServeSettings): The settings.
    service (Optional[LinkService]): The pipeline; by default that of the settings is loaded.
    RETURNS (FastAPI): The app.
    """
    set_threads(settings.threads)
    server = Server(settings, service or LinkService.load(settings.pipeline))
    # what is loaded stays: to look through it for garbage now and then would stop all requests meanwhile
    gc.collect()
    gc.freeze()
    server.metrics.describe(server.service.describe())

    @asynccontextmanager
    async def live(app: FastAPI) -> AsyncIterator[None]:
        server.batcher.start()
        server.is_ready = True
        log("ready", pipeline=settings.pipeline)
        yield
        server.is_ready = False
        await server.batcher.stop()
        log("stopped")

    app = FastAPI(
        title="spacy-elq",
        version=version("spacy-elq"),
        description="Finds the entities that texts mention, and links them to a catalogue.",
        lifespan=live,
        docs_url=None,
        redoc_url=None,
    )
    app.state.server = server
    _add_links(app, server)
    _add_catalogue(app, server)
    _add_operations(app, server)
    _add_page(app)
    _add_errors(app)
    app.add_middleware(BodyLimit, limit=settings.max_body, error=partial(HTTPException, 413))
    app.add_middleware(Watch, metrics=server.metrics)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.origins), allow_methods=["*"], allow_headers=["*"]
        )
    return app


def _to_ask(text: str, options: schemas.LinkOptions) -> Ask:
    within = options.within.model_dump(exclude_none=True) if options.within is not None else None
    return Ask(text, options.threshold, options.alternatives, within or None)


# ---------------------------------------------------------------------- links


def _add_links(app: FastAPI, server: Server) -> None:
    @app.post("/link", response_model=schemas.LinkAnswer, responses=_ERRORS, tags=["links"])
    async def link(request: Request, body: schemas.LinkRequest) -> Any:
        """Link one text or many."""
        texts = [body.text] if isinstance(body.text, str) else body.text
        answers = await server.link(request, [_to_ask(text, body) for text in texts])
        results = [
            {"text": text, "links": answer.links or [], "error": answer.error}
            for text, answer in zip(texts, answers, strict=True)
        ]
        # as it is: to check it against the model would take as long as all else here
        return JSONResponse({"results": results})

    @app.post("/candidates", response_model=schemas.CandidatesAnswer, responses=_ERRORS, tags=["links"])
    async def candidates(request: Request, body: schemas.CandidatesRequest) -> Any:
        """The candidates of a mention whose boundaries are given."""
        work = server.service.candidates
        (start, end), found = await server.compute(
            request, _to_ask(body.text, body), work, body.start, body.end
        )
        return {"start": start, "end": end, "mention": body.text[start:end], "candidates": found}

    @app.post("/explain", response_model=schemas.ExplainAnswer, responses=_ERRORS, tags=["links"])
    async def explain(request: Request, body: schemas.ExplainRequest) -> Any:
        """Why a text has the links it has: its likely mentions, and the parts of their scores."""
        found = await server.compute(request, _to_ask(body.text, body), server.service.explain)
        return {"text": body.text, "mentions": found}

    @app.post("/entity_linking", responses=_ERRORS, tags=["links"], openapi_extra=_QUESTION_BODY)
    async def entity_linking(
        request: Request,
        body: Annotated[Dict[str, Any], Depends(_read_question)],
    ) -> Dict[str, Any]:
        """Link a question as the service around the published ELQ does: `{"question": …}`, with or without
        a content type.
        """
        question = body["question"]
        (answer,) = await server.link(request, [Ask(question, alternatives=_PUBLISHED_CANDIDATES)])
        if answer.links is None:
            raise HTTPException(400, f"The question could not be linked: {answer.error}")
        ids = list({c["id"] for found in answer.links for c in found["alternatives"]})
        entities, positions = await run_in_threadpool(server.service.look_up, ids)
        return to_published(
            question, answer.links, entities, ids=server.settings.published_ids, positions=positions
        )


async def _read_question(request: Request) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The body, whatever type it says it has."""
    try:
        body = schemas.QuestionBody.model_validate_json(await request.body())
    except ValueError:
        raise HTTPException(422, 'Expected {"question": "…"}') from None
    return {"question": body.question}


# ---------------------------------------------------------------------- the catalogue


def _add_catalogue(app: FastAPI, server: Server) -> None:
    service = server.service

    @app.get("/entities", response_model=schemas.EntitiesAnswer, responses=_ERRORS, tags=["catalogue"])
    async def find_entities(
        name: Annotated[str, Query(min_length=1, max_length=1_000, description="A title or another name")],
        label: Annotated[
            Optional[List[str]], Query(description="Only entities with one of these labels")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=100, description="At most so many")] = 20,
    ) -> Any:
        """Entities by name, most popular first."""
        within = {"labels": label} if label else None
        found = await run_in_threadpool(service.find_entities, name, within=within, limit=limit)
        return {"entities": found}

    @app.get(
        "/entities/{id_:path}",
        responses={**_ERRORS, 404: {"model": schemas.ErrorAnswer, "description": "There is none"}},
        tags=["catalogue"],
    )
    async def get_entity(id_: str) -> Dict[str, Any]:
        """An entity by its id."""
        found = await run_in_threadpool(service.get_entity, id_)
        if found is None:
            raise HTTPException(404, "There is no entity with this id.")
        return found

    async def check_token(authorization: Annotated[Optional[str], Header()] = None) -> None:
        if not server.settings.writable:
            raise HTTPException(
                403, "The catalogue cannot be changed here. Start the server with --writable."
            )
        expected = f"Bearer {os.environ.get(TOKEN, '')}".encode()
        if not hmac.compare_digest((authorization or "").encode("utf8", "replace"), expected):
            raise HTTPException(401, "Expected: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})

    async def write(request: Request, work: Any, what: Any) -> Any:
        loop = asyncio.get_running_loop()
        # a transaction that has begun is finished, also if its client has gone
        done = await server.wait(request, asyncio.shield(loop.run_in_executor(server.writing, work, what)))
        server.metrics.count_entities(await run_in_threadpool(service.describe))
        return done

    @app.put(
        "/entities",
        response_model=schemas.AddedAnswer,
        responses=_WRITE_ERRORS,
        tags=["catalogue"],
        dependencies=[Depends(check_token)],
    )
    async def put_entities(request: Request, body: schemas.EntitiesBody) -> Any:
        """Add entities, or replace those whose ids are there, in one transaction. The next text is linked to
        them, by every worker.
        """
        records = [entity.model_dump(exclude_unset=True) for entity in body.entities]
        return await write(request, service.put_entities, records)

    @app.delete(
        "/entities",
        response_model=schemas.RemovedAnswer,
        responses=_WRITE_ERRORS,
        tags=["catalogue"],
        dependencies=[Depends(check_token)],
    )
    async def remove_entities(request: Request, body: Annotated[schemas.IdsBody, Body()]) -> Any:
        """Remove entities, in one transaction. Unknown ids are ignored."""
        return await write(request, service.remove_entities, body.ids)


# ---------------------------------------------------------------------- operations


def _add_operations(app: FastAPI, server: Server) -> None:
    @app.get("/health", tags=["operations"])
    async def health() -> Dict[str, str]:
        """Whether the process lives."""
        return {"status": "ok"}

    @app.get("/ready", responses={503: {"model": schemas.ErrorAnswer}}, tags=["operations"])
    async def ready() -> Dict[str, str]:
        """Whether it takes texts."""
        if not server.is_ready or len(server.batcher) >= server.settings.max_queue:
            raise HTTPException(503, "Not ready.", _RETRY)
        return {"status": "ready"}

    @app.get("/info", tags=["operations"])
    async def info() -> Dict[str, Any]:
        """The pipeline and its catalogue."""
        described = await run_in_threadpool(server.service.describe)
        return {**described, "writable": server.settings.writable}

    @app.get("/metrics", response_class=Response, tags=["operations"])
    async def metrics() -> Response:
        """Counters of all workers, as Prometheus reads them."""
        server.metrics.queue.set(len(server.batcher))
        text = await run_in_threadpool(server.metrics.render)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=_PAGE_HEADERS)

    app.mount("/page", _PageFiles(directory=PAGE), name="page")


class _PageFiles(StaticFiles):
    """The files of the page: a browser asks whether they have changed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """RETURNS (Response): A file with the headers of the page."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(_PAGE_HEADERS)
        return response


# ---------------------------------------------------------------------- what goes wrong


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(ELQError)
    async def refuse(request: Request, err: ELQError) -> JSONResponse:
        return JSONResponse({"detail": _printable(str(err))}, 400)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, err: RequestValidationError) -> JSONResponse:
        # without what was sent: it can be large, and it may not be text
        problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in err.errors()]
        return JSONResponse({"detail": _printable("; ".join(problems))}, 422)

    @app.exception_handler(Exception)
    async def fail(request: Request, err: Exception) -> JSONResponse:
        log("failed", level=40, exc_info=err)
        return JSONResponse({"detail": "Something went wrong on the server. Its log says where."}, 500)


def _printable(text: str) -> str:
    """RETURNS (str): A text that can be sent: without halves of surrogate pairs."""
    return text.encode("utf8", "replace").decode("utf8")
