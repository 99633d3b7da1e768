"""What `/metrics` says, in Prometheus' text format, summed over all workers."""

import os
import tempfile
from typing import Any, Mapping

# where the workers leave their counts for each other
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def share_metrics() -> "tempfile.TemporaryDirectory[str]":
    """Make the folder where workers leave their counts; it lives as long as what is returned."""
    folder = tempfile.TemporaryDirectory(prefix="spacy-elq-metrics-")
    os.environ[_FOLDER] = folder.name
    return folder


class Metrics:
    """The counters of a worker."""

    def __init__(self) -> None:
        """Make the counters."""
        # reads the folder's name when it is imported
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._registry = own = CollectorRegistry()
        self.requests = Counter("elq_requests", "Requests", ["method", "path", "status"], registry=own)
        self.latency = Histogram(
            "elq_request_seconds", "Time of a request", ["path"], buckets=_LATENCIES, registry=own
        )
        self.batches = Histogram(
            "elq_batch_texts", "Texts that were linked together", buckets=_SIZES, registry=own
        )
        self.links = Counter("elq_links", "Links", registry=own)
        self.failures = Counter("elq_failed_texts", "Texts that could not be linked", registry=own)
        self.queue = Gauge(
            "elq_queue_texts", "Texts that wait to be linked", multiprocess_mode="livesum", registry=own
        )
        self.info = Gauge(
            "elq_info",
            "The pipeline, its version, and the stamp of its index at the start",
            ["pipeline", "version", "index"],
            multiprocess_mode="livemax",
            registry=own,
        )
        self.entities = Gauge(
            "elq_entities", "Entities in the index", multiprocess_mode="livemostrecent", registry=own
        )
        self.changes = Gauge(
            "elq_index_changes",
            "Entities that were changed since the files of the index were made",
            multiprocess_mode="livemostrecent",
            registry=own,
        )

    def describe(self, description: Mapping[str, Any]) -> None:
        """Say which pipeline and index are in use.

        description (Mapping[str, Any]): What `LinkService.describe` returned.
        """
        stamp = description["stamp"] or {}
        self.info.labels(description["pipeline"], description["version"], stamp.get("catalogue", "")).set(1)
        self.count_entities(description)

    def count_entities(self, description: Mapping[str, Any]) -> None:
        """Say what is in the index now.

        description (Mapping[str, Any]): What `LinkService.describe` returned.
        """
        self.entities.set(description["entities"] or 0)
        self.changes.set(description["changes"] or 0)

    def render(self) -> bytes:
        """RETURNS (bytes): The text."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        if not os.environ.get(_FOLDER):
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        return generate_latest(registry)
