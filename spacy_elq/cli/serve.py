"""`spacy elq serve`."""

from typing import List, Optional

import typer

from ._util import command


@command("serve")
def serve_cli(
    pipeline: str = typer.Argument(
        ..., help="Trained pipeline: a folder, or the name of an installed package"
    ),
    host: str = typer.Option("127.0.0.1", "--host", help="Address to listen on; 0.0.0.0 for all"),
    port: int = typer.Option(8000, "--port", help="Port to listen on"),
    workers: int = typer.Option(1, "--workers", "-w", min=1, help="Processes; they share the index"),
    threads: int = typer.Option(1, "--threads", min=1, help="Threads per process"),
    writable: bool = typer.Option(
        False, "--writable", help="Let entities be added and removed with the token in SPACY_ELQ_TOKEN"
    ),
    batch_size: int = typer.Option(64, "--batch-size", "-b", help="Texts that are linked together"),
    batch_wait: float = typer.Option(0.0, "--batch-wait", help="Seconds that a text waits for others"),
    max_body: int = typer.Option(1_000_000, "--max-body", help="Bytes of a request"),
    max_texts: int = typer.Option(256, "--max-texts", help="Texts in a request"),
    max_characters: int = typer.Option(5_000, "--max-characters", help="Characters of a text"),
    max_queue: int = typer.Option(1_024, "--max-queue", help="Texts that may wait"),
    timeout: float = typer.Option(30.0, "--timeout", help="Seconds until a request is given up"),
    published_ids: str = typer.Option(
        "id",
        "--published-ids",
        help='Ids in answers of /entity_linking: "id" for the catalogue\'s, or an id system: wikidata, freebase',
    ),
    origin: Optional[List[str]] = typer.Option(
        None, "--origin", help="Web page of another host that may use the server (CORS); can be repeated"
    ),
    log_texts: bool = typer.Option(False, "--log-texts", help="Also log the texts"),
) -> None:
    """Serve a pipeline over HTTP, with a page to try it at /.

        python -m spacy elq serve models/elq --port 8000
        curl 127.0.0.1:8000/link --json '{"text": "who is the president of france"}'

    /openapi.json describes all requests. Logs are JSON lines on stderr. SIGTERM finishes what is under way.
    """
    from ..serve.run import serve
    from ..serve.settings import ServeSettings

    settings = ServeSettings(
        pipeline=pipeline,
        batch_size=batch_size,
        batch_wait=batch_wait,
        max_body=max_body,
        max_texts=max_texts,
        max_characters=max_characters,
        max_queue=max_queue,
        timeout=timeout,
        writable=writable,
        log_texts=log_texts,
        published_ids=published_ids,
        origins=tuple(origin or ()),
        threads=threads,
    )
    serve(settings, host=host, port=port, workers=workers)
