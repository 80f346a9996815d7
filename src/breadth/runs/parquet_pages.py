"""The pages of a Parquet column as they are: a footer may say anything, but pages are what is unpacked into memory."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow.parquet as pq

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


def codec_size_limit(column: pq.ColumnChunkMetaData) -> float:
    """Return the bytes that a column chunk can become at most, by its codec alone."""
    return column.total_compressed_size * MAX_RATIOS.get(column.compression, float("inf"))


def read_page_sizes(file: IO[bytes], column: pq.ColumnChunkMetaData) -> PageSizes:
    """Read the header of every page that a reader of the column reads; ValueError where there is none."""
    place = column.data_page_offset
    if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < place:
        place = column.dictionary_page_offset
    end = place + column.total_compressed_size
    encoded = values = dictionary = largest = 0
    has_dictionary = shares_prefixes = False
    while values < column.num_values and place < end:
        header, size = read_header(file, place)
        unpacked, packed = header.get(2, -1), header.get(3, -1)
        page = next((header[field] for field in (5, 7, 8) if isinstance(header.get(field), dict)), {})
        if min(unpacked, packed, page.get(1, 0)) < 0 or place + size + packed > end:
            raise ValueError(f"the page at byte {place} is larger than its column")
        encoded += unpacked
        if header.get(1) == DICTIONARY_PAGE:
            has_dictionary = True
            dictionary = max(dictionary, unpacked)
        else:
            largest = max(largest, unpacked)
            values += page.get(1, 0)
            shares_prefixes |= page.get(4 if 8 in header else 2) == DELTA_BYTE_ARRAY
        place += size + packed
    return PageSizes(encoded, dictionary + largest, values, has_dictionary, shares_prefixes)


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
