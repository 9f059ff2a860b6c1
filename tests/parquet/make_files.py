#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the small files of parquet_file_test.cpp and the fuzz target: make_files.py [FOLDER].

TABLE.jsonl has the rows of the files TABLE-*.parquet. Needs pyarrow, polars, duckdb and fastparquet (with pandas). The
files in the repository were written by their versions 26.0, 2.1, 2.0 and 2026.9.
"""

import json
import sys
from pathlib import Path

import duckdb
import fastparquet
import pandas
import polars
import pyarrow.parquet as pq
from parquet_reference import rows_of
from parquet_tables import TABLES, encodings

ROWS = 14
WAYS = (("NONE", "1.0", None, {"data_page_size": 40, "write_batch_size": 2, "row_group_size": 9}),
        ("SNAPPY", "1.0", None, {}), ("ZSTD", "2.0", 0, {"write_page_checksum": True}), ("GZIP", "1.0", 1, {}),
        ("LZ4", "2.0", 2, {}), ("BROTLI", "2.0", None, {}))


def write_rows(folder, name, file):
    lines = [json.dumps(row, ensure_ascii=False) for row in rows_of(file)]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "files"
    for name, make in TABLES.items():
        table = make(ROWS)
        for codec, version, choice, options in WAYS:
            if choice is not None:
                options = options | {"use_dictionary": False, "column_encoding": encodings(table, choice)}
            file = folder / f"{name}-{codec.lower()}.parquet"
            pq.write_table(table, file, compression=codec, data_page_version=version, store_schema=False,
                           write_statistics=False, **options)
        write_rows(folder, name, file)
    plain = {"text": ["one", None, "\u00e9\n"], "number": [1, 2, 3], "half": [0.5, None, -1.5],
             "flag": [True, False, True]}
    polars.DataFrame(plain).write_parquet(folder / "writers-polars.parquet", statistics=False)
    frame = pandas.DataFrame(plain)
    duckdb.register("source", polars.DataFrame(plain).to_arrow())
    duckdb.sql(f"COPY (FROM source) TO '{folder}/writers-duckdb.parquet' (FORMAT parquet, PARQUET_VERSION V2)")
    fastparquet.write(str(folder / "writers-fastparquet.parquet"), frame, object_encoding={"text": "utf8"}, stats=False)
    write_rows(folder, "writers", folder / "writers-polars.parquet")


if __name__ == "__main__":
    main()
