"""The pages of a Parquet column as they are: a footer may say anything, but pages are what is unpacked into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from breadth.base.catalogue import LazyModule

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = LazyModule("pyarrow")

MAX_RATIOS = {"UNCOMPRESSED": 1, "SNAPPY": 32, "LZ4": 256, "LZ4_RAW": 256, "GZIP": 1100}
"""How many times as large as its file a page can become by codec; others have no limit worth the name."""
FIRST_READ_BYTES = 512
"""Bytes read of a page's header at first; few are longer."""
MAX_HEADER_BYTES = 16 << 20
"""Bytes of a header at most, as in Arrow."""
MAX_DEPTH = 8
"""Levels of a header; the format has three."""
DICTIONARY_PAGE = 2
DELTA_BYTE_ARRAY = 7


class PageSizes(NamedTuple):
    """What the pages of one column chunk say."""

    encoded: int
    """Bytes of all pages, decompressed."""
    largest: int
    """Bytes of the dictionary and the largest other page, which are in memory together."""
    values: int
    """Values in them, nulls and empty lists included."""
    has_dictionary: bool
    """Whether values may refer to a dictionary."""
    shares_prefixes: bool
    """Whether texts may repeat the beginning of the text before them."""


def footer_sizes(column: pq.ColumnChunkMetaData) -> PageSizes:
    """Return what the footer says of a column chunk."""
    size = column.total_uncompressed_size
    return PageSizes(size, size, column.num_values, column.has_dictionary_page, "DELTA_BYTE_ARRAY" in column.encodings)


def max_unpacked_bytes(column: pq.ColumnChunkMetaData) -> float:
    """Return the bytes that a column chunk can become at most, by its codec alone."""
    return float(column.total_compressed_size * MAX_RATIOS.get(column.compression, float("inf")))


def read_page_sizes(file: IO[bytes], column: pq.ColumnChunkMetaData) -> PageSizes:
    """Read the header of every page that a reader of the column reads; ValueError where there is none."""
    encoded = values = dictionary = largest = 0
    has_dictionary = shares_prefixes = False
    for page in read_pages(file, column):
        encoded += page.memory_bytes
        if page.header.get(1) == DICTIONARY_PAGE:
            has_dictionary = True
            dictionary = max(dictionary, page.memory_bytes)
        else:
            largest = max(largest, page.memory_bytes)
            values += page.values
            shares_prefixes |= page.fields.get(4 if 8 in page.header else 2) == DELTA_BYTE_ARRAY
    return PageSizes(encoded, dictionary + largest, values, has_dictionary, shares_prefixes)


class ColumnPage(NamedTuple):
    """One page of a column chunk, by its header."""

    header: dict[int, Any]
    """Fields of the header by Thrift's numbers."""
    fields: dict[int, Any]
    """Fields of its part for this kind of page."""
    place: int
    """Byte of the file behind the header, where its content begins."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of its content, decompressed."""
        return int(self.header.get(2, -1))

    @property
    def disk_bytes(self) -> int:
        """Bytes of its content in the file."""
        return int(self.header.get(3, -1))

    @property
    def values(self) -> int:
        """Values in it, nulls and empty lists included."""
        return int(self.fields.get(1, 0))


def read_pages(file: IO[bytes], column: pq.ColumnChunkMetaData) -> Iterator[ColumnPage]:
    """Yield the pages that a reader of the column reads; ValueError where a header is none."""
    place = column.data_page_offset
    if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < place:
        place = column.dictionary_page_offset
    end = place + column.total_compressed_size
    values = 0
    while values < column.num_values and place < end:
        header, size = read_header(file, place)
        fields: dict[int, Any] = next((header[field] for field in (5, 7, 8) if isinstance(header.get(field), dict)), {})
        page = ColumnPage(header, fields, place + size)
        if min(page.memory_bytes, page.disk_bytes, page.values) < 0 or page.place + page.disk_bytes > end:
            raise ValueError(f"the page at byte {place} is larger than its column")
        yield page
        values += page.values if header.get(1) != DICTIONARY_PAGE else 0
        place = page.place + page.disk_bytes


def read_header(file: IO[bytes], place: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a page's header, and its size."""
    for size in (FIRST_READ_BYTES, MAX_HEADER_BYTES):
        file.seek(place)
        reader = ThriftReader(file.read(size))
        try:
            return reader.read_struct(), reader.place
        except IndexError:
            continue
    raise ValueError(f"the page at byte {place} has no whole header")


LEVEL_CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "ZSTD": "zstd", "BROTLI": "brotli", "LZ4": "lz4_raw"}
"""Arrow's name of each codec a page of lists may be packed with."""
LEVEL_BLOCK_BYTES = 1 << 20
"""Bytes of levels that are unpacked at a time; each becomes eight."""


class RowLengths:
    """Counts the values of each row of a list column, by the levels that say where a row begins."""

    def __init__(self, width: int) -> None:
        self.width = width
        """Bits of a level."""
        self.current = 0
        """Values of the row being read so far."""
        self.longest = 0
        """Values of the longest row so far."""

    def add_levels(self, levels: bytes, values: int) -> None:
        """Read the levels of so many values, runs of one level or of packed ones."""
        reader = ThriftReader(levels)
        while values > 0 and reader.place < len(levels):
            head = reader.read_varint()
            size = (head >> 1) * self.width if head & 1 else (self.width + 7) // 8
            run = levels[reader.place : reader.place + size]
            reader.place += size
            count = min(values, (head >> 1) * (8 if head & 1 else 1))
            values -= count
            if head & 1:
                self.add_packed(run, count)
            elif any(run):
                self.current += count
            elif count:
                self.longest = max(self.longest, self.current)
                self.current = 1
        self.longest = max(self.longest, self.current)

    def add_packed(self, packed: bytes, values: int) -> None:
        """Read levels of a few bits each; a row begins where the level is 0."""
        block = LEVEL_BLOCK_BYTES * self.width
        for place in range(0, len(packed), block):
            bits = np.unpackbits(np.frombuffer(packed[place : place + block], np.uint8), bitorder="little")
            levels = bits.reshape(-1, self.width).max(axis=1)[:values]
            values -= len(levels)
            starts = np.flatnonzero(levels == 0)
            if len(starts):
                self.longest = max(self.longest, self.current + int(starts[0]), int(np.diff(starts).max(initial=0)))
                self.current = len(levels) - int(starts[-1])
            else:
                self.current += len(levels)


def longest_row(file: IO[bytes], column: pq.ColumnChunkMetaData, max_level: int) -> int:
    """Return how many values of a list column its longest row has; ValueError where its pages cannot be unpacked."""
    lengths = RowLengths(max_level.bit_length())
    for page in read_pages(file, column):
        if page.header.get(1) == DICTIONARY_PAGE:
            continue
        file.seek(page.place)
        body = file.read(page.disk_bytes)
        if 8 in page.header:  # the levels are in front, not packed, and the header has their size
            levels = body[: max(0, page.fields.get(6, 0))]
        else:
            body = unpack_page(body, column.compression, page.memory_bytes)
            levels = body[4 : 4 + int.from_bytes(body[:4], "little")]
        lengths.add_levels(levels, page.values)
    return lengths.longest


def unpack_page(packed: bytes, codec: str, size: int) -> bytes:
    """Unpack a page of a size that is known; ValueError for a codec that we cannot read."""
    if codec == "UNCOMPRESSED":
        return packed
    if codec not in LEVEL_CODECS:
        raise ValueError(f"its lists are packed by {codec}, which we cannot unpack in parts")
    return bytes(pa.decompress(packed, decompressed_size=size, codec=LEVEL_CODECS[codec], asbytes=True))


class ThriftReader:
    """Reads structs in Thrift's compact protocol as tables of numbers; texts are skipped."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        """The bytes."""
        self.place = 0
        """How many were read."""

    def read_varint(self) -> int:
        """Read a number of seven bits per byte."""
        number = shift = 0
        while True:
            byte = self.data[self.place]
            self.place += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("a number in a page's header has no end")

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        """Read the fields up to the end of the struct."""
        if depth > MAX_DEPTH:
            raise ValueError("a page's header is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while (head := self.data[self.place]) != 0:
            self.place += 1
            number = number + (head >> 4) if head >> 4 else self.read_zigzag()
            fields[number] = self.read_value(head & 0xF, depth)
        self.place += 1
        return fields

    def read_zigzag(self) -> int:
        """Read a number with a sign."""
        number = self.read_varint()
        return (number >> 1) ^ -(number & 1)

    def read_value(self, kind: int, depth: int) -> Any:
        """Read one value; None for a text."""
        if kind in (1, 2):  # true, false
            return kind == 1
        if kind in (4, 5, 6):  # whole numbers
            return self.read_zigzag()
        if kind == 12:
            return self.read_struct(depth + 1)
        if kind not in (3, 7, 8):
            raise ValueError(f"a page's header has a field of the unknown type {kind}")
        size = {3: 1, 7: 8}.get(kind) or self.read_varint()  # of a byte, a double, a text
        self.place += size
        if self.place > len(self.data):
            raise IndexError
        return None
