# SPDX-License-Identifier: Apache-2.0
"""Tables with every type and shape that the reader knows, and ways to write them by pyarrow."""

import datetime
import decimal
import uuid

import pyarrow as pa

CODECS = ("NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI")
INTEGERS = ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"]
TEXTS = ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "PLAIN"]
FLOATS = ["BYTE_STREAM_SPLIT", "PLAIN"]


def cycled(values, count):
    return [values[at % len(values)] for at in range(count)]


def numbers(count):
    """A table with a column of each number type; every fifth value is null."""
    def some(least, most):
        return [None if at % 5 == 3 else (most, least, 0, 1, at % 7)[at % 5] for at in range(count)]
    columns = {"flag": pa.array([None if at % 5 == 3 else at % 3 == 0 for at in range(count)])}
    for bits in (8, 16, 32, 64):
        columns[f"i{bits}"] = pa.array(some(-2**(bits - 1), 2**(bits - 1) - 1), getattr(pa, f"int{bits}")())
        columns[f"u{bits}"] = pa.array(some(0, 2**bits - 1), getattr(pa, f"uint{bits}")())
    columns["slow"] = pa.array([at * at - 3 * at for at in range(count)], pa.int64())
    fractions = [0.5, -2.0, None, 1.5, 0.0, 1e10, float("inf"), float("nan"), 3.25]
    columns["f32"] = pa.array(cycled(fractions, count), pa.float32())
    columns["f64"] = pa.array(cycled(fractions, count), pa.float64())
    columns["f16"] = pa.array(cycled([0.5, None, -2.0, 65504.0], count)).cast(pa.float16())
    return pa.table(columns)


def texts(count):
    """A table with byte columns: few distinct values, and many."""
    words = ["", "plain", "a \"quoted\"\n line\\", "\u65e5\u672c\U0001f600", "\x01\x1f\x7f", None]
    addresses = [f"https://example.org/{at // 10}/{at * 7919 % 1009}" for at in range(count)]
    return pa.table({
        "few": pa.array(cycled(words, count)),
        "many": pa.array([None if at % 11 == 5 else address for at, address in enumerate(addresses)]),
        "bytes": pa.array(cycled([b"\0\xff", None, b""], count), pa.binary()),
        "fixed": pa.array(cycled([b"abcd", None, b"\xff" * 4], count), pa.binary(4)),
        "json": pa.array(cycled(['{"a": [1]}', None], count)).cast(pa.json_()),
        "uuid": pa.array(cycled([uuid.UUID(int=2**127 + 77).bytes, None], count), pa.uuid()),
        "nothing": pa.nulls(count)})


def moments(count):
    """A table with dates, times and decimals."""
    seconds = cycled([0, -1, 1_577_934_245, None, 1_000_000_000, -2_000_000_000], count)
    columns = {"date": pa.array(cycled([datetime.date(1969, 12, 31), None, datetime.date(2024, 2, 29),
                                        datetime.date(1, 1, 1), datetime.date(9999, 12, 31)], count))}
    for unit, ticks in (("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)):
        values = pa.array([None if at is None else at * ticks + abs(at) % ticks for at in seconds], pa.int64())
        columns[f"local_{unit}"] = values.cast(pa.timestamp(unit))
        columns[f"utc_{unit}"] = values.cast(pa.timestamp(unit, "UTC"))
    columns["t_ms"] = pa.array(cycled([0, 86_399_999, None], count), pa.time32("ms"))
    columns["t_us"] = pa.array(cycled([0, 86_399_999_999, None], count), pa.time64("us"))
    columns["t_ns"] = pa.array(cycled([0, 86_399_999_999_999, None], count), pa.time64("ns"))
    cents = [decimal.Decimal("123.45"), decimal.Decimal("-0.05"), None, decimal.Decimal("0.00")]
    small = [decimal.Decimal("1.2E-11"), decimal.Decimal("-99999999.123456789012"), None]
    columns["d5"] = pa.array(cycled(cents, count), pa.decimal128(5, 2))
    columns["d20"] = pa.array(cycled(small, count), pa.decimal128(20, 12))
    columns["d60"] = pa.array(cycled(small, count), pa.decimal256(60, 12))
    return pa.table(columns)


def nested(count):
    """A table with lists, structs and maps within one another; nulls and empty lists are on every level."""
    turns = [[{"role": "user", "content": "Hello"}, {"role": "assistant", "content": None}], [], None,
             [None, {"role": None, "content": "\u00e9"}]]
    deep = [[[["a", None], []], None, []], None, [], [[None, ["b"]]]]
    box = [{"in": {"list": [1, 2], "text": "x"}, "flag": True}, None, {"in": None, "flag": None},
           {"in": {"list": None, "text": None}, "flag": False}]
    pairs = [[("a", 1), ("b", None)], None, []]
    images = [{"bytes": b"\x89PNG", "path": "a.png"}, {"bytes": None, "path": None}, None]
    return pa.table({
        "messages": pa.array(cycled(turns, count)),
        "deep": pa.array(cycled(deep, count), pa.list_(pa.list_(pa.list_(pa.string())))),
        "box": pa.array(cycled(box, count)),
        "map": pa.array(cycled(pairs, count), pa.map_(pa.string(), pa.int64())),
        "embedding": pa.array(cycled([[0.5] * 9, None, [], [1.5, None]], count), pa.list_(pa.float32())),
        "fixed": pa.array(cycled([[1, 2, 3], None], count), pa.list_(pa.int16(), 3)),
        "flags": pa.array(cycled([[True, None, False], [], None], count), pa.list_(pa.bool_())),
        "image": pa.array(cycled(images, count))})


TABLES = {"numbers": numbers, "texts": texts, "moments": moments, "nested": nested}


def encodings(table, choice):
    """Returns pyarrow's column_encoding: for each column the `choice`-th encoding of its type, or {}."""
    def kinds(name, kind):
        if pa.types.is_boolean(kind):
            return [(name, ["RLE", "PLAIN"])]
        if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
            return [(name, INTEGERS)]
        if pa.types.is_floating(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind):
            return [(name, FLOATS)]
        return [(name, TEXTS)] if pa.types.is_string(kind) or pa.types.is_binary(kind) else []
    found = dict(entry for field in table.schema for entry in kinds(field.name, field.type))
    return {name: names[choice % len(names)] for name, names in found.items()}


def ways(table):
    """Yields (name, options of pyarrow.parquet.write_table) of every codec, page version and encoding."""
    for at, codec in enumerate(CODECS):
        for version in ("1.0", "2.0"):
            common = {"compression": codec, "data_page_version": version, "write_page_checksum": at % 2 == 0}
            yield f"{codec}-{version}-dictionary", common
            small = {"data_page_size": 100, "write_batch_size": 8, "row_group_size": 33}
            yield f"{codec}-{version}-small", common | small
            for choice in range(3):
                yield f"{codec}-{version}-{choice}", common | {"use_dictionary": False,
                                                              "column_encoding": encodings(table, choice)}
    yield "int96", {"use_deprecated_int96_timestamps": True}
    yield "without-schema", {"store_schema": False}
    yield "version-1.0", {"version": "1.0", "coerce_timestamps": "us", "allow_truncated_timestamps": True}
    yield "two-levels", {"use_compliant_nested_type": False}
