"""What happened, on disk: a run is a folder of Parquet and JSONL, read through DuckDB."""
