// SPDX-License-Identifier: Apache-2.0
// Dates and times as text, in the proleptic Gregorian calendar.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/parquet/metadata.hpp"

namespace maestro::parquet {

/// Appends a day since 1970-01-01, as "2020-01-02".
void append_date(std::int64_t day, std::string& out);
/// Appends a time since 1970-01-01, as "2020-01-02 03:04:05.678", with the digits of its unit.
void append_timestamp(std::int64_t value, TimeUnit unit, std::string& out);
/// Appends a time of day, as "03:04:05.678". Throws JobError (corrupt) for a time outside of a day.
void append_time(std::int64_t value, TimeUnit unit, std::string& out);
/// Appends nanoseconds of a Julian day, as append_timestamp().
void append_julian(std::int64_t of_day, std::int64_t julian_day, std::string& out);

}  // namespace maestro::parquet
