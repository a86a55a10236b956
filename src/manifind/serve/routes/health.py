"""What the service says of itself: what it serves, how far it is, whether it is alive, and its measurements."""

from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from manifind.serve.errors import ServiceError
from manifind.serve.routes.requests import text_body, while_connected
from manifind.serve.schemas import BuildingResponse, CollectionResponse, HealthResponse
from manifind.serve.service import Service


def add(app: FastAPI, service: Service) -> None:
    """Add what the service says of itself."""

    @app.get("/api/info", tags=["service"], response_model=dict[str, Any])
    async def info(http: Request) -> Any:
        """Tell counts, parameters and the health of the graph."""
        return await while_connected(service, http, service.info())

    @app.get("/api/collection", tags=["service"], response_model=CollectionResponse)
    async def collection() -> Any:
        """Return the name of the collection and how many photos can be searched."""
        snapshot = service.snapshot
        counts = {"photos": len(snapshot.catalogue), "generation": snapshot.number}
        return {"name": service.name, **counts}

    @app.get("/api/building", tags=["service"], response_model=BuildingResponse)
    async def building() -> Any:
        """Tell how far the index is, while it is made and what is there so far is searched."""
        return service.resources.building()

    @app.get("/api/health", tags=["service"], response_model=HealthResponse)
    async def health() -> Any:
        """Say that the service is alive."""
        return {"status": "ok"}

    @app.get("/api/ready", tags=["service"], response_model=HealthResponse)
    async def ready() -> Any:
        """Say whether the network is loaded and queries can be answered."""
        service.check()
        if not service.ready:
            raise ServiceError(503, "The service is still loading; try again in a second.", {"Retry-After": "1"})
        return {"status": "ok"}

    @app.get("/metrics", tags=["service"], response_class=Response, responses=text_body("text/plain"))
    async def metrics() -> Response:
        """Tell Prometheus latencies by stage, batch sizes and the queue."""
        return Response(service.resources.metrics.text(), media_type="text/plain; version=0.0.4")
