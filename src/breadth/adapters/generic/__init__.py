"""Any JSONL, CSV, JSON or Parquet of rows: recognised by obvious names, or read by a mapping."""
