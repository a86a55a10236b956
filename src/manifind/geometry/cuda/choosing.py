"""Which keypoints of many photos get descriptors, chosen on the device: the same as `extraction.spread` chooses."""

import torch

from manifind.types import Tensor


def spread(of: Tensor, cell: Tensor, strengths: Tensor, pictures: int, most: int, cells: int) -> Tensor:
    """Return (pictures, most) places of points; −1 where a picture has no more.

    They begin with the strongest of each cell, then comes the second of each, and so on. A point whose strength is not
    above zero is none.

    Parameters
    ----------
    of : (m,) tensor
        The picture of each point.
    cell : (m,) tensor
        The cell that each point lies in.
    strengths : (m,) tensor
    pictures, most, cells : int
        How many pictures there are, how many points of each are taken, and how many cells a picture has.
    """
    device = of.device
    numbers = torch.arange(len(of), device=device)
    # What is no point belongs to a picture after the last.
    of = torch.where(strengths > 0, of.long(), pictures)
    order = torch.sort(-strengths, stable=True).indices
    order = order[torch.sort(of[order], stable=True).indices]
    of, cell = of[order], cell[order].long()
    turn = _places(of * cells + cell, (pictures + 1) * cells, numbers)
    rank = _places(of, pictures + 1, numbers, after=turn)
    taken = (rank < most) & (of < pictures)
    slots = torch.full((pictures * most + 1,), -1, dtype=torch.int64, device=device)
    slots[torch.where(taken, of * most + rank, pictures * most)] = order
    return slots[:-1].view(pictures, most)


def _places(groups: Tensor, count: int, numbers: Tensor, after: Tensor = None) -> Tensor:
    """Return the place of each in its group: in the order given, or those first for which `after` is less."""
    key = groups if after is None else groups * (len(groups) + 1) + after
    first = torch.sort(key, stable=True).indices
    ordered = groups[first]
    starts = torch.searchsorted(ordered, torch.arange(count, device=groups.device))
    places = torch.empty_like(numbers)
    places[first] = numbers - starts[ordered]
    return places
