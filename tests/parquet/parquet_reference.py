# SPDX-License-Identifier: Apache-2.0
"""Rows of Parquet files as pyarrow reads them, in the JSON of runtime/parquet/value_text.hpp. Needs pyarrow."""

import datetime
import decimal
import math
import struct
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def float_text(value, code):
    """Returns the shortest text of a number in the struct format `code`; outside of 1e-6 to 1e10 with an exponent."""
    if not math.isfinite(value):
        return str(value)
    packed = struct.pack(code, value)
    texts = (f"{value:.{count}e}" for count in range(18))
    digits = next(text for text in texts if struct.pack(code, float(text)) == packed)
    mantissa, exponent = digits.split("e")
    if value == 0:
        return mantissa.split(".")[0]
    if -6 <= int(exponent) < 10:
        return f"{decimal.Decimal(digits):f}"
    return f"{mantissa}e{int(exponent):+}" if int(exponent) > 0 else f"{mantissa}e{int(exponent)}"


def clock_text(ticks, unit):
    digits = DIGITS[unit]
    seconds, fraction = divmod(ticks, 10**digits)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:0{digits}}"


def moment_text(scalar):
    unit = scalar.type.unit
    day, ticks = divmod(scalar.value, 86400 * 10 ** DIGITS[unit])
    date = datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
    return f"{date.isoformat()} {clock_text(ticks, unit)}" + ("Z" if scalar.type.tz else "")


def is_number(kind):
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def json_of_list(scalar):
    if is_number(scalar.type.value_type):
        return "(numbers)" if len(scalar.values) else []
    return [json_of(element) for element in scalar.values]


def json_of_number(scalar):
    kind, value = scalar.type, scalar.as_py()
    if pa.types.is_float64(kind):
        return value if math.isfinite(value) else None
    if pa.types.is_floating(kind):
        return float_text(float(value), "f" if pa.types.is_float32(kind) else "d")
    return value if kind in (pa.int32(), pa.int64()) else str(value)


def json_of(scalar):
    """Returns the JSON value of a pyarrow scalar."""
    kind, types = scalar.type, pa.types
    if not scalar.is_valid or types.is_null(kind):
        return None
    if isinstance(kind, pa.UuidType):
        return str(uuid.UUID(bytes=scalar.value.as_py()))
    if isinstance(kind, pa.BaseExtensionType):
        return json_of(scalar.value)
    if types.is_dictionary(kind):
        return json_of(scalar.dictionary[scalar.index.as_py()])
    if types.is_struct(kind):
        return {kind.field(at).name: json_of(scalar[at]) for at in range(kind.num_fields)}
    if types.is_map(kind):
        return [json_of(entry) for entry in scalar.values]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return json_of_list(scalar)
    if types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return scalar.as_py()
    if is_number(kind):
        return json_of_number(scalar)
    if types.is_timestamp(kind):
        return moment_text(scalar)
    if types.is_time(kind):
        return clock_text(scalar.value, kind.unit)
    if types.is_date(kind):
        return scalar.as_py().isoformat()
    if types.is_duration(kind):
        return scalar.value
    return str(scalar.as_py()) if types.is_decimal(kind) else "(binary)"


def rows_of(file):
    """Returns the rows of a file as JSON values."""
    table = pq.read_table(file)
    columns = {name: [json_of(value) for value in table.column(name)] for name in table.column_names}
    return [{name: values[at] for name, values in columns.items()} for at in range(table.num_rows)]
