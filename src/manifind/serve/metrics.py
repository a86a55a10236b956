"""What the service tells Prometheus: latency by stage, batch sizes, the queue, answers by status."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
STAGES = ("read", "describe", "wait", "solve", "picture", "explain", "extract", "verify", "points")


class Metrics:
    """The measurements of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._stages = Histogram(
            "manifind_stage_seconds", "Time a stage takes.", ["stage"], buckets=SECONDS, registry=self.registry
        )
        for name in STAGES:
            self._stages.labels(name)
        self.requests = Histogram(
            "manifind_request_seconds", "Time to answer.", ["route", "status"], buckets=SECONDS, registry=self.registry
        )
        self.batch = Histogram(
            "manifind_batch_queries",
            "Queries solved together.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self.registry,
        )
        self.queue = Gauge("manifind_queue_queries", "Queries that wait for the solver.", registry=self.registry)
        self.busy = Gauge("manifind_searches_under_way", "Searches being answered.", registry=self.registry)
        self.refused = Counter("manifind_refused_total", "Searches answered 503.", registry=self.registry)
        self.shed = Counter(
            "manifind_shed_total", "Work answered 503 at a stage's door.", ["stage"], registry=self.registry
        )
        self.given_up = Counter(
            "manifind_given_up_total", "Searches whose client left or time ran out.", ["why"], registry=self.registry
        )
        self.unverified = Counter(
            "manifind_unverified_total", "Answers that geometry had no time for.", registry=self.registry
        )
        self.generation = Gauge(
            "manifind_generation", "The index's generation that is served.", ["collection"], registry=self.registry
        )
        self.event_loop = Info("manifind_event_loop", "What the service runs on.", registry=self.registry)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._stages.labels(name).observe(time.perf_counter() - start)

    def text(self) -> bytes:
        """Return everything in Prometheus's format."""
        return generate_latest(self.registry)
