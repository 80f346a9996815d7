"""Array types of the package, and checks of arrays on the way in: shape, type, finite values."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from breadth.base.errors import MeasureError

FloatArray: TypeAlias = npt.NDArray[np.float64]
"""Numbers in double precision."""
BoolArray: TypeAlias = npt.NDArray[np.bool_]
"""Yes-or-no values."""
IntArray: TypeAlias = npt.NDArray[np.int64]
"""Counts, classes and positions."""


def as_floats(values: npt.ArrayLike, name: str) -> FloatArray:
    """Read values as float64 of any shape, NaN and infinity allowed; refuse text and ragged lists."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MeasureError(
            f"{name} cannot be read as numbers: {error}.", f"Give {name} as a rectangular array of numbers."
        ) from error


def as_finite(values: npt.ArrayLike, name: str, *, ndim: int = 1) -> FloatArray:
    """Read values as float64, refusing text, another shape, an empty array, NaN and infinity by name and number."""
    array = as_floats(values, name)
    if array.ndim != ndim:
        raise MeasureError(
            f"{name} has {array.ndim} dimensions of shape {array.shape}; {ndim} needed.",
            f"Give {name} as a {ndim}-D array.",
        )
    if array.size == 0:
        raise MeasureError(f"{name} is empty.", "Give at least one value.")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise MeasureError(
            f"{bad} of {array.size} values of {name} are NaN or infinite.",
            f"Drop or repair them first: {name} must hold finite numbers.",
        )
    return array


def as_counts(values: npt.ArrayLike, name: str) -> FloatArray:
    """Read counts: finite, not negative, whole numbers (kept as float64, exact below 2**53)."""
    array = as_finite(values, name)
    bad = int(np.count_nonzero((array < 0) | (array != np.floor(array))))
    if bad:
        raise MeasureError(
            f"{bad} of {array.size} values of {name} are negative or not whole.", f"Give {name} as counts."
        )
    return array


def as_booleans(values: npt.ArrayLike, name: str) -> BoolArray:
    """Read outcomes: booleans, or numbers that are all 0 or 1."""
    array = as_finite(values, name)
    bad = int(np.count_nonzero((array != 0) & (array != 1)))
    if bad:
        raise MeasureError(
            f"{bad} of {array.size} values of {name} are neither 0 nor 1.", f"Give {name} as right (1) or wrong (0)."
        )
    return np.asarray(array == 1)


def check_same_length(**arrays: npt.NDArray[Any]) -> int:
    """Check that the named arrays have equally many rows, and say how many."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise MeasureError(f"Lengths differ: {got}.", "Give one entry of each for every row, in the same order.")
    return next(iter(lengths.values()))


def as_integers(values: ArrayLike, name: str) -> IntArray:
    """Return ``values`` as integers; refuse NaN, fractions and anything that is not a number. Keeps the shape."""
    array = np.asarray(values)
    if array.dtype.kind in "iub":
        return array.astype(np.int64)
    if (
        array.dtype.kind == "f"
        and np.all(np.isfinite(array))
        and np.all(array == np.floor(array))
        and np.all(np.abs(array) < 2**53)
    ):
        return array.astype(np.int64)
    raise MeasureError(
        f"{name} must be whole numbers; got {array.dtype} such as {array.ravel()[:3].tolist()}.",
        f"Give counts for {name}.",
    )


def as_answer_classes(classes: ArrayLike) -> IntArray:
    """Read answer classes, refusing anything but whole numbers from -1 (no parsable answer) up."""
    labels = np.asarray(classes)
    if labels.size and (labels.dtype.kind not in "iu" or labels.min() < -1):
        raise MeasureError(
            f"Answer classes are {labels.dtype}, the smallest {labels.min()}; need whole numbers from -1 (no parsable"
            " answer) up.",
            "Make them with answer_classes.",
        )
    return labels.astype(np.int64)
