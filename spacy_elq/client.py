"""Ask a server that `spacy elq serve` has started: `ElqClient`, and `AsyncElqClient` for asyncio."""

import asyncio
import os
import time
from collections import deque
from operator import itemgetter
from typing import (
    Any,
    Callable,
    ClassVar,
    Deque,
    Dict,
    Generator,
    Iterable,
    List,
    Mapping,
    Optional,
    Tuple,
    TypeVar,
    Union,
)
from urllib.parse import quote

from .catalogue import check_conditions, check_entities, entity_to_dict
from .errors import ELQError, Errors, Rule, check_settings, whole_number
from .files import describe
from .types import Entity

T = TypeVar("T")
# what has to be sent: it yields requests and pauses, is given answers, and returns what they say
Plan = Generator[Any, Any, T]

DEFAULT_URL = "http://127.0.0.1:8000"
RULES: Dict[str, Rule] = {
    "url": (
        lambda x: isinstance(x, str) and x.startswith(("http://", "https://")),
        f'the address of a server, such as "{DEFAULT_URL}"',
    ),
    "timeout": (lambda x: x > 0, "a number above 0"),
    "retries": whole_number(0),
}
_TOO_LARGE = 413
# a worker was killed behind a proxy; the queue is full
_BUSY = (502, 503)
# seconds; every pause is twice as long as the one before
_FIRST_PAUSE = 0.25
_ENTITIES_AT_ONCE = 64
_IDS_AT_ONCE = 1_000


class Client:
    """What both clients do, but for the sending."""

    # the class of httpx that sends
    _sender: ClassVar[str]

    def __init__(
        self, url: str = DEFAULT_URL, *, token: Optional[str] = None, timeout: float = 30.0, retries: int = 3
    ) -> None:
        """Make a client. It connects when it is first used.

        url (str): Address of the server.
        token (Optional[str]): What allows `put` and `remove`: SPACY_ELQ_TOKEN of the server.
        timeout (float): Seconds to wait for an answer.
        retries (int): How often a request is sent again if the server cannot be reached or is busy.
        """
        self.url = url
        self.timeout = timeout
        self.retries = retries
        check_settings(type(self).__name__, self, RULES)
        self._token = token
        # the process that connected, and its connections
        self._opened: Tuple[int, Any] = (0, None)

    def __getstate__(self) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): What is pickled: connections are not."""
        return {**vars(self), "_opened": (0, None)}

    # ------------------------------------------------------------------ what can be asked

    def link(
        self,
        texts: Union[str, Iterable[str]],
        *,
        threshold: Optional[float] = None,
        alternatives: int = 3,
        within: Optional[Mapping[str, Any]] = None,
        batch_size: int = 64,
    ) -> Any:
        """Link one text or many.

        texts (Union[str, Iterable[str]]): A text, or several.
        threshold (Optional[float]): Minimum score of a link, or None for that of the server's pipeline.
        alternatives (int): Candidates of each link, the linked entity first.
        within (Optional[Mapping[str, Any]]): The part of the catalogue that counts, such as
            {"labels": ["PERSON"], "tags": ["shop-7"]}.
        batch_size (int): Texts per request, at most.
        RETURNS (List): The links of a text, {"start": …, "end": …, "mention": …, "id": …, "title": …,
            "label": …, "score": …, "alternatives": […]} with offsets in characters; of several texts, a list
            of those for each.
        RAISES (ELQError): If a text could not be linked; `results` tells more.
        """
        options = _options(threshold, alternatives, within)
        return self._run(self._link(texts, options, batch_size))

    def results(
        self,
        texts: Iterable[str],
        *,
        threshold: Optional[float] = None,
        alternatives: int = 3,
        within: Optional[Mapping[str, Any]] = None,
        batch_size: int = 64,
    ) -> Any:
        """Link texts of which some may fail. Arguments are those of `link`.

        RETURNS (List[Dict[str, Any]]): For each text, {"text": …, "links": […], "error": …}. The error is
            what went wrong with that text, or None.
        """
        options = _options(threshold, alternatives, within)
        return self._run(self._results(_to_list(texts), options, batch_size))

    def candidates(
        self,
        text: str,
        start: int,
        end: int,
        *,
        alternatives: int = 10,
        within: Optional[Mapping[str, Any]] = None,
    ) -> Any:
        """Find the candidates of a mention.

        start, end (int): Its characters, half-open.
        alternatives (int): How many candidates, at most.
        within (Optional[Mapping[str, Any]]): The part of the catalogue that counts; see `link`.
        RETURNS (List[Dict[str, Any]]): {"id": …, "title": …, "label": …, "score": …}, best first.
        """
        body = {"text": text, "start": start, "end": end, **_options(None, alternatives, within)}
        return self._run(self._ask("POST", "/candidates", itemgetter("candidates"), json=body))

    def explain(
        self, text: str, *, threshold: Optional[float] = None, within: Optional[Mapping[str, Any]] = None
    ) -> Any:
        """Say why a text has the links it has.

        threshold, within (Optional[float], Optional[Mapping[str, Any]]): See `link`.
        RETURNS (List[Dict[str, Any]]): The likely mentions and the parts of their scores.
        """
        body = {"text": text, **_options(threshold, None, within)}
        return self._run(self._ask("POST", "/explain", itemgetter("mentions"), json=body))

    def entity(self, id_: str) -> Any:
        """Look up an entity.

        RETURNS (Dict[str, Any]): Its record.
        RAISES (KeyError): If there is none with this id.
        """
        return self._run(self._entity(id_))

    def find(self, name: str, *, labels: Optional[Iterable[str]] = None, limit: int = 20) -> Any:
        """Find entities by name: those that have it or, if there are none, a similar spelling.

        labels (Optional[Iterable[str]]): Only entities with one of these labels.
        limit (int): At most so many.
        RETURNS (List[Dict[str, Any]]): Their records, most popular first.
        """
        params = {"name": name, "limit": limit, "label": _to_list(labels or ())}
        return self._run(self._ask("GET", "/entities", itemgetter("entities"), params=params))

    def put(self, entities: Iterable[Union[Entity, Mapping[str, Any]]]) -> Any:
        """Add entities, or replace those whose ids are there. If one of them is not valid, none is sent. Each
        request is one transaction, of up to 64 entities.

        entities (Iterable[Union[Entity, Mapping[str, Any]]]): Entities, or records of the catalogue.
        RETURNS (Dict[str, int]): How many were {"added": …, "replaced": …}.
        """
        return self._run(self._put(entities))

    def remove(self, ids: Iterable[str]) -> Any:
        """Remove entities. Each request is one transaction, of up to 1000 ids.

        ids (Iterable[str]): Their ids; unknown ones are ignored.
        RETURNS (int): How many there were.
        """
        return self._run(self._remove(_to_list(ids)))

    def info(self) -> Any:
        """RETURNS (Dict[str, Any]): The server's pipeline and its catalogue."""
        return self._run(self._ask("GET", "/info", dict))

    def is_ready(self) -> Any:
        """RETURNS (bool): Whether the server takes texts at the moment. This is asked once."""
        return self._run(self._is_ready())

    # ------------------------------------------------------------------ what is sent for it

    def _run(self, plan: Plan[Any]) -> Any:
        """RETURNS (Any): What a plan returns, or something to wait for that does."""
        raise NotImplementedError

    def _link(self, texts: Union[str, Iterable[str]], options: Dict[str, Any], size: int) -> Plan[List]:
        results = yield from self._results(_to_list(texts), options, size)
        links = [read_links(result, self.url) for result in results]
        return links[0] if isinstance(texts, str) else links

    def _results(self, texts: List[str], options: Dict[str, Any], size: int) -> Plan[List[Dict[str, Any]]]:
        def read(part: List[str], answer: Any) -> List[Dict[str, Any]]:
            if answer.status_code == _TOO_LARGE:
                return [{"text": part[0], "links": [], "error": _detail(answer)}]
            return self._read(answer, itemgetter("results"))

        request = ("POST", "/link", "text")
        return (yield from self._send_parts(texts, read, request=request, size=size, options=options))

    def _entity(self, id_: str) -> Plan[Dict[str, Any]]:
        # "." would be taken for a folder
        path = quote(id_, safe="").replace(".", "%2E")
        answer = yield from self._send("GET", f"/entities/{path}")
        if answer.status_code == 404:
            raise KeyError(id_)
        return self._read(answer, dict)

    def _put(self, entities: Iterable[Union[Entity, Mapping[str, Any]]]) -> Plan[Dict[str, int]]:
        def read(part: List[Any], answer: Any) -> List[Tuple[int, int]]:
            return [self._read(answer, itemgetter("added", "replaced"))]

        records = [entity_to_dict(entity) for entity in check_entities(entities)]
        request = ("PUT", "/entities", "entities")
        counts = yield from self._send_parts(records, read, request=request, size=_ENTITIES_AT_ONCE)
        return {"added": sum(new for new, _ in counts), "replaced": sum(old for _, old in counts)}

    def _remove(self, ids: List[str]) -> Plan[int]:
        def read(part: List[Any], answer: Any) -> List[int]:
            return [self._read(answer, itemgetter("removed"))]

        request = ("DELETE", "/entities", "ids")
        return sum((yield from self._send_parts(ids, read, request=request, size=_IDS_AT_ONCE)))

    def _is_ready(self) -> Plan[bool]:
        answer = yield self._http.build_request("GET", "/ready")
        return not isinstance(answer, Exception) and answer.status_code == 200

    def _ask(self, method: str, path: str, take: Callable[[Any], T], **content: Any) -> Plan[T]:
        """RETURNS (T): What is taken from the answer to a request."""
        return self._read((yield from self._send(method, path, **content)), take)

    def _send_parts(
        self,
        items: List[Any],
        read: Callable[[List[Any], Any], List[T]],
        *,
        request: Tuple[str, str, str],
        size: int,
        options: Mapping[str, Any] = {},
    ) -> Plan[List[T]]:
        """Send items, `size` at a time, or fewer where those are too large for the server.

        read (Callable): From items and the answer to them to what is returned.
        request (Tuple[str, str, str]): Method, path, and the field that has the items.
        options (Mapping[str, Any]): The other fields.
        """
        method, path, field = request
        waiting: Deque[List[Any]] = deque(items[i : i + size] for i in range(0, len(items), size))
        found: List[T] = []
        while waiting:
            part = waiting.popleft()
            answer = yield from self._send(method, path, json={field: part, **options})
            if answer.status_code == _TOO_LARGE and len(part) > 1:
                middle = len(part) // 2
                waiting.extendleft([part[middle:], part[:middle]])
            else:
                found += read(part, answer)
        return found

    def _send(self, method: str, path: str, **content: Any) -> Plan[Any]:
        """Send a request until it is answered. All may be repeated.

        RETURNS (Any): The answer, whatever it says.
        RAISES (ELQError): If there is none.
        """
        request = self._http.build_request(method, path, **content)
        if self._token is not None and method in ("PUT", "DELETE"):
            request.headers["Authorization"] = f"Bearer {self._token}"
        for attempt in range(self.retries + 1):
            answer = yield request
            pause = self._pause(answer, attempt)
            if pause is None or attempt == self.retries:
                break
            yield pause
        if isinstance(answer, Exception):
            raise ELQError(Errors.E205.format(url=self.url, problem=describe(answer))) from answer
        return answer

    def _pause(self, answer: Any, attempt: int) -> Optional[float]:
        """RETURNS (Optional[float]): Seconds until a request is sent again, or None if it is not."""
        httpx, pause = _import_httpx(), _FIRST_PAUSE * 2**attempt
        if isinstance(answer, Exception):
            broken = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout)
            return pause if isinstance(answer, broken) else None
        if answer.status_code not in _BUSY:
            return None
        wanted = answer.headers.get("Retry-After", "")
        return max(pause, min(float(wanted), self.timeout)) if wanted.isdecimal() else pause

    def _read(self, answer: Any, take: Callable[[Any], T]) -> T:
        """RETURNS (T): What is taken from an answer.

        RAISES (ELQError): If the server refused, or it is another kind of server.
        """
        try:
            if answer.is_success:
                return take(answer.json())
        except (ValueError, KeyError, TypeError):
            pass
        status = answer.status_code
        raise ELQError(Errors.E206.format(url=self.url, status=status, detail=_detail(answer)))

    # ------------------------------------------------------------------ connections

    @property
    def _http(self) -> Any:
        """RETURNS (Any): The connections of this process: a forked one must not use those of its parent."""
        process, http = self._opened
        if process != os.getpid():
            httpx = _import_httpx()
            try:
                http = getattr(httpx, self._sender)(base_url=self.url, timeout=self.timeout)
            except httpx.InvalidURL as err:
                raise ELQError(Errors.E205.format(url=self.url, problem=describe(err))) from err
            self._opened = (os.getpid(), http)
        return http

    def _take_http(self) -> Any:
        """RETURNS (Any): The connections of this process, to be closed, or None."""
        (process, http), self._opened = self._opened, (0, None)
        return http if process == os.getpid() else None


class ElqClient(Client):
    """Asks a server that `spacy elq serve` has started: `ElqClient().link("who is the president of france")`.
    Threads may share it.
    """

    _sender = "Client"

    def __enter__(self) -> "ElqClient":
        """RETURNS (ElqClient): The client, which is closed at the end of the block."""
        return self

    def __exit__(self, *args: Any) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections. The next request makes new ones."""
        http = self._take_http()
        if http is not None:
            http.close()

    def _run(self, plan: Plan[T]) -> T:
        is_done, step = _advance(plan, None)
        while not is_done:
            is_done, step = _advance(plan, self._do(step))
        return step

    def _do(self, step: Any) -> Any:
        if isinstance(step, float):
            return time.sleep(step)
        try:
            return self._http.send(step)
        except _import_httpx().RequestError as err:
            return err


class AsyncElqClient(Client):
    """`ElqClient` for asyncio: `await AsyncElqClient().link("who is the president of france")`. All methods
    are awaited.
    """

    _sender = "AsyncClient"

    async def __aenter__(self) -> "AsyncElqClient":
        """RETURNS (AsyncElqClient): The client, which is closed at the end of the block."""
        return self

    async def __aexit__(self, *args: Any) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections. The next request makes new ones."""
        http = self._take_http()
        if http is not None:
            await http.aclose()

    async def _run(self, plan: Plan[T]) -> T:
        is_done, step = _advance(plan, None)
        while not is_done:
            is_done, step = _advance(plan, await self._do(step))
        return step

    async def _do(self, step: Any) -> Any:
        if isinstance(step, float):
            return await asyncio.sleep(step)
        try:
            return await self._http.send(step)
        except _import_httpx().RequestError as err:
            return err


def _import_httpx() -> Any:
    """RETURNS (Any): The library, which is needed when something is sent.

    RAISES (ELQError): If it is not installed.
    """
    try:
        import httpx
    except ImportError:
        raise ELQError(Errors.E208) from None
    return httpx


def read_links(result: Mapping[str, Any], url: str) -> List[Dict[str, Any]]:
    """RETURNS (List[Dict[str, Any]]): The links of a text.

    result (Mapping[str, Any]): What the server says of it.
    url (str): Address of the server.
    RAISES (ELQError): If it could not be linked.
    """
    if result["error"] is not None:
        text, problem = _shorten(result["text"], 80), result["error"]
        raise ELQError(Errors.E207.format(url=url, text=text, problem=problem))
    return result["links"]


def _advance(plan: Plan[Any], answer: Any) -> Tuple[bool, Any]:
    """RETURNS (Tuple[bool, Any]): Whether a plan is done, and its result or else what to do next."""
    try:
        return False, plan.send(answer)
    except StopIteration as done:
        return True, done.value


def _to_list(texts: Union[str, Iterable[str]]) -> List[str]:
    """RETURNS (List[str]): Texts in a list, also a single one."""
    return [texts] if isinstance(texts, str) else list(texts)


def _options(
    threshold: Optional[float], alternatives: Optional[int], within: Optional[Mapping[str, Any]]
) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The options that are given, as requests have them."""
    conditions = {kind: list(values) for kind, values in check_conditions(within)}
    options = {"threshold": threshold, "alternatives": alternatives, "within": conditions or None}
    return {key: value for key, value in options.items() if value is not None}


def _detail(answer: Any) -> str:
    """RETURNS (str): What an answer says is wrong."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return _shorten(answer.text, 200) or answer.reason_phrase


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + " …"
