"""The service as an ASGI application: routes, and what they answer when something is wrong."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from manifind.errors import DamagedError, InvalidInputError, UnreadableImageError
from manifind.index import Index
from manifind.serve.errors import ServiceError, error_response, first_sentence, service_error
from manifind.serve.guard import Guard
from manifind.serve.resources import Resources
from manifind.serve.responses import ErrorResponse
from manifind.serve.routes import photos, search, sets, system
from manifind.serve.service import Service
from manifind.serve.settings import Settings
from manifind.version import VERSION

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": what}
    for status, what in {
        400: "The request cannot be read.",
        401: "The token is missing.",
        403: "Another site's page asks, or the photo lies outside the collection.",
        404: "There is no such photo.",
        405: "The address does not take this method.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The body is of another kind than the route takes.",
        421: "The service does not go by this name.",
        422: "What was asked for cannot be answered; the sentence says why.",
        431: "The head of the request is too large.",
        503: "There is too much to do; Retry-After says when to come back.",
        504: "The answer took too long and was given up.",
    }.items()
}


def create_app(index: Index, settings: Settings | None = None, resources: Resources | None = None) -> FastAPI:
    """Return the service of an index.

    Parameters
    ----------
    index : Index
    settings : Settings, optional
    resources : Resources, optional
        What a service before this one leaves to it: uploads, above all. Whoever made it stops it.
    """
    settings = settings or Settings()
    shared = resources or Resources(settings)
    service = Service(index, shared)

    @asynccontextmanager
    async def alive(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()
        if resources is None:
            shared.stop()

    app = FastAPI(
        title="manifind",
        version=VERSION,
        description="Finds every photo of a collection that contains this object, however small.",
        lifespan=alive,
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
        redirect_slashes=False,
    )
    app.state.service = service
    for subject in (search, photos, sets, system):
        subject.add(app, service)
    if settings.mcp:
        from manifind.serve import mcp_server  # an extra

        app.router.routes.append(Route(mcp_server.PATH, mcp_server.Endpoint(service), methods=["POST"]))
    add_error_handlers(app)
    app.add_middleware(Guard, settings=settings, metrics=shared.metrics)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def add_error_handlers(app: FastAPI) -> None:
    """Tell every error as one sentence."""

    @app.exception_handler(ServiceError)
    @app.exception_handler(InvalidInputError)
    @app.exception_handler(UnreadableImageError)
    @app.exception_handler(DamagedError)
    @app.exception_handler(Exception)
    async def told(_: Request, error: Exception) -> Response:
        problem = service_error(error)
        return error_response(problem.status, problem.sentence, problem.headers, problem.code)

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValidationError)
    async def invalid(_: Request, error: RequestValidationError | ValidationError) -> Response:
        return error_response(422, first_sentence(error.errors()))

    @app.exception_handler(ClientDisconnect)
    async def left(_: Request, __: ClientDisconnect) -> Response:
        return error_response(499, "The client has left.")

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        sentences = {404: "There is nothing at this address.", 405: "The address does not take this method."}
        sentence = sentences.get(error.status_code, f"{str(error.detail).rstrip('.')}.")
        return error_response(error.status_code, sentence, dict(error.headers or {}))
