"""Boxes that are proposed for a point of a photo: what a tap on it means."""

import io
from typing import Annotated

import numpy as np
from fastapi import FastAPI, Query, Request
from PIL import Image
from pydantic import Field

from manifind.features.box_proposals import propose_boxes
from manifind.serve.responses import ResponseModel
from manifind.serve.routes import checked_view, while_connected
from manifind.serve.schemas import LONGEST_KEY, UPLOAD, ViewRequest
from manifind.serve.service import Service
from manifind.types import Box

SIDE = 320
"""The picture that boxes are proposed on: a page has it already."""
COST = 3_000_000
"""Boxes are proposed in the time in which about so many pixels are drawn."""

Place = Annotated[float, Query(ge=0, allow_inf_nan=False, description="In pixels of the upright photo.")]


class BoxesResponse(ResponseModel):
    """Boxes round what lies at a point."""

    boxes: list[Box] = Field(description="The likeliest, then a larger and a smaller one where there are any.")


def add(app: FastAPI, service: Service) -> None:
    """Add the proposals of boxes."""

    @app.get("/api/boxes", tags=["search"])
    async def boxes(
        http: Request,
        x: Place,
        y: Place,
        key: Annotated[str | None, Query(max_length=LONGEST_KEY)] = None,
        upload: Annotated[str | None, Query(pattern=UPLOAD)] = None,
    ) -> BoxesResponse:
        """Propose boxes round what lies at a point of a photo. Nothing is searched."""
        view = checked_view(key=key, upload=upload, box=None)
        return BoxesResponse(boxes=await while_connected(service, http, _propose(service, view, x, y)))


async def _propose(service: Service, view: ViewRequest, x: float, y: float) -> list[Box]:
    snapshot, thumbnails = service.snapshot, service.thumbnails
    if view.upload is not None:
        upload = service.photo_store.upload(view.upload)
        width, height = upload.width, upload.height
    else:
        record = service.photo_store.record(snapshot, str(view.key))
        width, height = record.width, record.height
    _, jpeg = await thumbnails.jpeg(snapshot, view, SIDE)

    def propose() -> list[Box]:
        pixels = np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))
        across, down = width / pixels.shape[1], height / pixels.shape[0]
        return [
            (round(x0 * across, 1), round(y0 * down, 1), round(x1 * across, 1), round(y1 * down, 1))
            for x0, y0, x1, y1 in propose_boxes(pixels, x / across, y / down)
        ]

    return await thumbnails.draw.submit(COST, propose)
