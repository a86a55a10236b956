"""The HTTP service and the page in the browser.

`create_app` makes the service of an opened index, an ASGI application; `serve` runs it. The page is plain modules in
``page/``; everything it does goes through the same API that ``/openapi.json`` describes.

::

    request ──▶ views extracted in threads ──▶ queries gathered ──▶ one batched solve ──▶ answers

Needs the extra ``manifind[serve]``.
"""

from manifind.errors import MissingExtraError

try:
    import fastapi as _fastapi  # noqa: F401
    import prometheus_client as _prometheus_client  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ImportError as error:
    raise MissingExtraError("the web page needs more packages; pip install 'manifind[serve]'.") from error

from manifind.serve.app import create_app
from manifind.serve.resources import Settings
from manifind.serve.run import is_loopback, serve

__all__ = ["Settings", "create_app", "is_loopback", "serve"]
