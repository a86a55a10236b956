"""What the service says of itself: what it serves, how far it is, whether it is alive, and its measurements."""

from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

from manifind.serve.answering import Answering
from manifind.serve.problems import Problem
from manifind.serve.routes.requests import text_body, while_connected
from manifind.serve.schemas import BuildingAnswer, CollectionsAnswer, HealthAnswer


def add(app: FastAPI, service: Answering) -> None:
    """Add what the service says of itself."""

    @app.get("/api/info", tags=["service"], response_model=dict[str, Any])
    async def info(http: Request) -> Response:
        """Tell counts, parameters and the health of the graph."""
        return JSONResponse(await while_connected(service, http, service.info()))

    @app.get("/api/collections", tags=["service"], response_model=CollectionsAnswer)
    async def collections() -> Response:
        """List the collections of the service; where there are several, their names begin all keys and folders."""
        told = [
            {"name": one.name, "photos": len(one.now.catalogue), "generation": one.now.number} for one in service.homes
        ]
        return JSONResponse({"collections": told, "several": len(told) > 1})

    @app.get("/api/building", tags=["service"], response_model=BuildingAnswer)
    async def building() -> Response:
        """Tell how far the index is, while it is made and what is there so far is searched."""
        return JSONResponse(service.common.building())

    @app.get("/api/health", tags=["service"], response_model=HealthAnswer)
    async def health() -> Response:
        """Say that the service is alive."""
        return JSONResponse({"status": "ok"})

    @app.get("/api/ready", tags=["service"], response_model=HealthAnswer)
    async def ready() -> Response:
        """Say whether the network is loaded and queries can be answered."""
        service.check()
        if not service.ready:
            raise Problem(503, "The service is still loading; try again in a second.", {"Retry-After": "1"})
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", tags=["service"], response_class=Response, responses=text_body("text/plain"))
    async def metrics() -> Response:
        """Tell Prometheus latencies by stage, batch sizes and the queue."""
        return Response(service.common.metrics.text(), media_type="text/plain; version=0.0.4")
