"""The tools of a service over the Model Context Protocol: on standard input and output, or at ``/mcp`` of the service.

Over HTTP each request stands alone: there is no session, and nothing is kept between two. The checks of the service
come first there (its name, the token, other sites, sizes). Needs the extra ``manifind[mcp]``.
"""

import asyncio
import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from manifind.errors import MissingExtraError
from manifind.index import Index
from manifind.serve.errors import first_sentence, service_error
from manifind.serve.resources import Resources
from manifind.serve.service import Service
from manifind.serve.settings import Settings
from manifind.serve.tools import Answer, Tools
from manifind.version import VERSION

try:
    from mcp import types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
except ImportError as error:
    raise MissingExtraError("agents need one more package; pip install 'manifind[mcp]'.") from error

PATH = "/mcp"
INSTRUCTIONS = (
    "manifind finds every photo of a collection that contains an object, however small. Search by a photo and a box "
    "round the object; look at results before you trust them: those with the grade verified are right nearly always, "
    "the others often. Boxes are x0, y0, x1, y1 in pixels of the upright photo."
)
Context = ServerRequestContext[Any, Any]


def create_server(service: Service, folders: Sequence[Path] = ()) -> Server[Any]:
    """Return the tools of a service as a server of the protocol; `folders` are those of `Tools`."""
    tools = Tools(service, folders).tools
    listed = [
        types.Tool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.parameters.model_json_schema(),
            annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        )
        for tool in tools.values()
    ]

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(_: Context, call: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.get(call.name)
        if tool is None:
            return _refusal(f"There is no tool named {call.name[:100]!r}; there are {', '.join(tools)}.")
        try:
            asked = tool.parameters.model_validate(call.arguments or {})
            answer = await service.resources.within_limits(tool.run(asked), _never())
        except ValidationError as error:
            return _refusal(first_sentence(error.errors()))
        except Exception as error:
            return _refusal(service_error(error).sentence)
        return _result(answer)

    return Server(
        "manifind",
        version=VERSION,
        title=f"manifind: {service.name}",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


class Endpoint:
    """The application that answers at `PATH` of a service; no file is read for an agent there."""

    def __init__(self, service: Service) -> None:
        self._server = create_server(service)
        self._max_bytes = service.settings.upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        manager = StreamableHTTPSessionManager(
            self._server, json_response=True, stateless=True, max_request_body_size=self._max_bytes
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)


def serve_stdio(index: Index, folders: Sequence[Path] = (), settings: Settings | None = None) -> None:
    """Answer an agent on standard input and output until it leaves.

    Parameters
    ----------
    index : Index
    folders : sequence of Path
        Folders whose files the agent may search with.
    settings : Settings, optional
    """
    asyncio.run(_serve_stdio(index, [folder.resolve(strict=True) for folder in folders], settings or Settings()))


async def _serve_stdio(index: Index, folders: Sequence[Path], settings: Settings) -> None:
    resources = Resources(settings)
    service = Service(index, resources)
    await service.start()
    try:
        server = create_server(service, folders)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        await service.stop()
        resources.stop()


async def _never() -> None:
    await asyncio.Event().wait()


def _result(answer: Answer) -> types.CallToolResult:
    text = types.TextContent(type="text", text=json.dumps(answer.data, ensure_ascii=False))
    if answer.jpeg is None:
        return types.CallToolResult(content=[text], structured_content=answer.data)
    picture = types.ImageContent(
        type="image", data=base64.b64encode(answer.jpeg).decode("ascii"), mime_type="image/jpeg"
    )
    return types.CallToolResult(content=[text, picture])


def _refusal(sentence: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=sentence)], is_error=True)
