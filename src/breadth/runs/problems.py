"""Problems: stable ids from prompts, and a sink that keeps each problem's text once however many rollouts it has."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from breadth.runs.schema import PROBLEM_SCHEMA
from breadth.runs.writer import COMPRESSION, problem_columns


def problem_id(prompt: str) -> str:
    """Return a stable id of a prompt: 12 characters (72 bits of BLAKE2b), short enough that DuckDB compares it in place."""
    return urlsafe_b64encode(blake2b(prompt.encode("utf-8", errors="surrogatepass"), digest_size=9).digest()).decode("ascii")


class ProblemSink:
    """Streams problems into one Parquet file, each once; memory grows with ids only, not with text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Where the file goes."""
        self._seen: set[str] = set()
        self._writer: pq.ParquetWriter | None = None

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, table: pa.Table) -> None:
        """Add the problems of a batch that are new."""
        import pyarrow.compute as pc  # slow to load, and most logs hold no rollouts

        problems = table.column("problem")
        fresh = [problem for problem in problems.unique().to_pylist() if problem not in self._seen]
        if not fresh:
            return
        self._seen.update(fresh)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.path, PROBLEM_SCHEMA, compression=COMPRESSION)
        first = pc.index_in(pa.array(fresh, pa.string()), value_set=problems)
        self._writer.write_table(problem_columns(table).take(first))

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
