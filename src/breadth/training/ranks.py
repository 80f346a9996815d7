"""Communication between the processes of one run: gather and sum over ranks; a single process gets its own values."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if is_distributed() else 1


def rank() -> int:
    """Return this process's rank."""
    return dist.get_rank() if is_distributed() else 0


def gather_objects(thing: Any) -> list[Any]:
    """Return every rank's object, in rank order, on every rank."""
    if world_size() == 1:
        return [thing]
    gathered: list[Any] = [None] * world_size()
    dist.all_gather_object(gathered, thing)
    return gathered


def gather_rows(values: Tensor) -> Tensor:
    """Return every rank's (rows, ...) tensor as one, in rank order; a second dimension is zero-padded to the widest."""
    if world_size() == 1:
        return values
    shapes = gather_objects(tuple(values.shape))
    rows, width = max(shape[0] for shape in shapes), max(shape[1] if len(shape) > 1 else 1 for shape in shapes)
    padded = values.new_zeros((rows, width) if values.ndim == 2 else (rows,))
    if values.ndim == 2:
        padded[: values.shape[0], : values.shape[1]] = values
    else:
        padded[: values.shape[0]] = values
    sent = padded.to(torch.uint8) if padded.dtype is torch.bool else padded
    gathered = [torch.empty_like(sent) for _ in shapes]
    dist.all_gather(gathered, sent.contiguous())
    return torch.cat([part[: shape[0]].to(values.dtype) for part, shape in zip(gathered, shapes, strict=True)])


def add_over_ranks(values: Tensor) -> Tensor:
    """Return the sum of every rank's tensor."""
    if world_size() == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total


def is_distributed() -> bool:
    """Whether torch.distributed runs."""
    return bool(dist.is_available() and dist.is_initialized())
