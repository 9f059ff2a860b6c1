#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows of Parquet files of four writers, in every encoding and compression, are the rows that pyarrow reads.

The environment variable MAESTRO_PRINT_PARQUET names the program print_parquet_rows. Tests need pyarrow; a test of
another writer (polars, duckdb, fastparquet) also needs that package, and is skipped without it.
"""

import importlib
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

try:
    import pyarrow.parquet as pq
    from parquet_reference import rows_of
    from parquet_tables import TABLES, ways
except ImportError:
    pq = None

ROWS = 100


def package(name):
    """Imports a package, or skips the test."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise unittest.SkipTest(f"{name} is not installed") from None


@unittest.skipIf(pq is None, "pyarrow is not installed")
class FilesOfWriters(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.files = []

    def file(self, name):
        self.files.append(self.folder / f"{len(self.files):03}-{name}.parquet")
        return self.files[-1]

    def compare(self, least):
        """Compares the rows of all files, `least` or more, with pyarrow's."""
        self.assertGreaterEqual(len(self.files), least)
        for file in self.files:
            finished = subprocess.run([os.environ["MAESTRO_PRINT_PARQUET"], file], capture_output=True, timeout=60)
            self.assertEqual(finished.returncode, 0, f"{file.name}: {finished.stderr.decode()}")
            read = [json.loads(line) for line in finished.stdout.decode().split("\n") if line]
            wanted = rows_of(file)
            self.assertEqual(len(read), len(wanted), file.name)
            for number, (row, reference) in enumerate(zip(read, wanted)):
                self.assertEqual(row, reference, f"{file.name}: row {number}")

    def test_pyarrow(self):
        for name, make in TABLES.items():
            table = make(ROWS)
            for way, options in ways(table):
                pq.write_table(table, self.file(f"{name}-{way}"), **options)
            pq.write_table(table.slice(0, 0), self.file(f"{name}-empty"))
        self.compare(len(TABLES) * 60)

    def test_polars(self):
        polars = package("polars")
        for name, make in TABLES.items():
            kept = [field.name for field in make(1).schema if field.name not in ("f16", "d60", "uuid", "json", "map")]
            frame = polars.from_arrow(make(ROWS).select(kept))
            for codec in ("uncompressed", "snappy", "gzip", "zstd", "lz4", "brotli"):
                frame.write_parquet(self.file(f"{name}-{codec}"), compression=codec)
                frame.write_parquet(self.file(f"{name}-{codec}-small"), compression=codec, data_page_size=50,
                                    row_group_size=30)
        self.compare(len(TABLES) * 12)

    def test_duckdb(self):
        duckdb = package("duckdb")
        for name, make in TABLES.items():
            # DuckDB writes levels of null arrays that pyarrow, too, refuses ("fixed" of nested).
            left_out = ("f16", "d60", "nothing", "json") + (("fixed",) if name == "nested" else ())
            kept = [field.name for field in make(1).schema if field.name not in left_out]
            duckdb.register("source", make(ROWS).select(kept))
            for codec in ("uncompressed", "snappy", "gzip", "zstd", "lz4_raw", "brotli"):
                for version in ("V1", "V2"):
                    file = self.file(f"{name}-{codec}-{version}")
                    duckdb.sql(f"COPY (FROM source) TO '{file}' (FORMAT parquet, COMPRESSION {codec}, "
                               f"PARQUET_VERSION {version})")
        self.compare(len(TABLES) * 12)

    def test_fastparquet(self):
        fastparquet = package("fastparquet")
        pandas = package("pandas")
        frame = pandas.DataFrame({
            "text": [f"row {at} \u00e9" if at % 4 else None for at in range(ROWS)],
            "kind": pandas.Categorical([("a", "b")[at % 2] for at in range(ROWS)]),
            "number": [at * at for at in range(ROWS)],
            "small": pandas.array([at % 100 for at in range(ROWS)], dtype="int8"),
            "half": [at / 2 for at in range(ROWS)], "flag": [at % 3 == 0 for at in range(ROWS)],
            "maybe": pandas.array([at if at % 3 else None for at in range(ROWS)], dtype="Int64"),
            "when": pandas.date_range("2020-01-01", periods=ROWS, freq="7h")})
        for codec in ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4_RAW", "BROTLI"):
            for times in ("int64", "int96"):
                fastparquet.write(str(self.file(f"{codec}-{times}")), frame, compression=codec, times=times,
                                  object_encoding="utf8", row_group_offsets=[0, 40])
        self.compare(12)


if __name__ == "__main__":
    unittest.main()
