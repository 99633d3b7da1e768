"""The component `elq_remote`: a server links the texts, so the process needs no model and no index."""

from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from spacy import util
from spacy.pipeline.pipe import Pipe
from spacy.tokens import Doc

from ..catalogue import Conditions, check_conditions
from ..client import DEFAULT_URL, RULES, ElqClient, read_links
from ..errors import Rule, whole_number
from ..types import Alternative, Link
from .annotate import WITHIN, write_links
from .settings import LINKER_RULES, HasSettings

# the server gives no more
_ALTERNATIVES = 100


class ELQRemote(HasSettings, Pipe):
    """Sets the entities that a server finds and links, as `elq_linker` does in the server's process."""

    rules: ClassVar[Dict[str, Rule]] = {
        **RULES,
        "threshold": (lambda x: x is None or 0.0 <= x <= 1.0, "null, or a number from 0 to 1"),
        "alternatives": (
            lambda x: isinstance(x, Integral) and 0 <= int(x) <= _ALTERNATIVES,
            f"a whole number from 0 to {_ALTERNATIVES}",
        ),
        "batch_size": whole_number(1),
        "existing_ents": LINKER_RULES["existing_ents"],
    }

    def __init__(
        self,
        name: str = "elq_remote",
        *,
        url: str = DEFAULT_URL,
        threshold: Optional[float] = None,
        alternatives: int = 10,
        batch_size: int = 64,
        timeout: float = 30.0,
        retries: int = 3,
        existing_ents: str = "overwrite",
    ) -> None:
        """Make the component. It connects when it is first used. For the settings see `make_elq_remote`."""
        self.name = name
        self.url = url
        self.threshold = threshold
        self.alternatives = alternatives
        self.batch_size = batch_size
        self.timeout = timeout
        self.retries = retries
        self.existing_ents = existing_ents
        self.remember_config()
        self._client: Optional[ElqClient] = None

    @property
    def client(self) -> ElqClient:
        """RETURNS (ElqClient): What asks the server, with the present settings."""
        settings: Dict[str, Any] = {"url": self.url, "timeout": self.timeout, "retries": self.retries}
        if self._client is None or settings != {key: getattr(self._client, key) for key in settings}:
            self._client = ElqClient(**settings)
        return self._client

    # ------------------------------------------------------------------ prediction

    def __call__(self, doc: Doc) -> Doc:
        """RETURNS (Doc): The doc with its links."""
        self.set_annotations([doc], self.predict([doc]))
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Link a stream of docs, a request at a time. The error handler is given the docs that fail: all of a
        request if the server cannot be asked, else those whose texts it cannot link.

        YIELDS (Doc): The other docs in order.
        """
        error_handler = self.get_error_handler()
        for docs in util.minibatch(stream, size=min(batch_size, self.batch_size)):
            try:
                results = self._ask(docs)
            except Exception as err:
                error_handler(self.name, self, docs, err)
                continue
            for doc, result in zip(docs, results, strict=True):
                try:
                    self.set_annotations([doc], [self._to_links(doc, result)])
                except Exception as err:
                    error_handler(self.name, self, [doc], err)
                else:
                    yield doc

    def predict(self, docs: Iterable[Doc]) -> List[List[Link]]:
        """Let the server find and link the mentions of a batch, without changing the docs.

        docs (Iterable[Doc]): The docs.
        RETURNS (List[List[Link]]): Per doc, the links by position.
        """
        docs = list(docs)
        return [self._to_links(doc, result) for doc, result in zip(docs, self._ask(docs), strict=True)]

    def set_annotations(self, docs: Iterable[Doc], links: List[List[Link]]) -> None:
        """Write links to the docs: entities, scores, titles and alternatives.

        docs (Iterable[Doc]): The docs.
        links (List[List[Link]]): What `predict` returned for them.
        """
        write_links(docs, links, existing_ents=self.existing_ents)

    def _ask(self, docs: Sequence[Doc]) -> List[Mapping[str, Any]]:
        """RETURNS (List[Mapping[str, Any]]): What the server says of each doc. Docs for which the same part
        of the catalogue counts are sent together.
        """
        groups: Dict[Conditions, List[int]] = {}
        for i, doc in enumerate(docs):
            groups.setdefault(check_conditions(getattr(doc._, WITHIN)), []).append(i)
        results: Dict[int, Mapping[str, Any]] = {}
        for within, own in groups.items():
            found = self.client.results(
                [docs[i].text for i in own],
                threshold=self.threshold,
                alternatives=self.alternatives,
                within=dict(within),
                batch_size=self.batch_size,
            )
            results.update(zip(own, found, strict=True))
        return [results[i] for i in range(len(docs))]

    def _to_links(self, doc: Doc, result: Mapping[str, Any]) -> List[Link]:
        """RETURNS (List[Link]): The links of a doc. Its tokens may be others than those of the server: a link
        gets all that it touches, unless an earlier one has them.
        """
        links: List[Link] = []
        for record in read_links(result, self.url):
            span = doc.char_span(record["start"], record["end"], alignment_mode="expand")
            if span is not None and not (links and span.start < links[-1].end):
                links.append(_make_link(span.start, span.end, record, catalogue=self.url))
        return links

    # ------------------------------------------------------------------ on disk

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Write nothing: all is in the config of the pipeline.

        path (Union[str, Path]): The folder.
        exclude (Iterable[str]): Fields to leave out.
        """
        self.warn_unsaved()


def _make_link(start: int, end: int, record: Mapping[str, Any], *, catalogue: str) -> Link:
    alternatives = [
        Alternative(own["id"], own["title"], own["score"], own["label"]) for own in record["alternatives"]
    ]
    return Link(
        start=start,
        end=end,
        entity_id=record["id"],
        title=record["title"],
        label=record["label"],
        score=record["score"],
        alternatives=alternatives,
        catalogue=catalogue,
    )
