// SPDX-License-Identifier: Apache-2.0
// Fractions as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace maestro::parquet {

/// Appends the shortest text that reads back as the same value; outside of 1e-6 to 1e10 with an exponent ("1e+10"), and
/// "nan", "inf" and "-inf".
void append_float(float value, std::string& out);
void append_float(double value, std::string& out);
/// Returns the value of an IEEE 754 number of 16 bits.
[[nodiscard]] double half_of(std::uint16_t bits);
/// Appends a decimal with `scale` digits after its point; a small one with an exponent ("1.2E-11"). Its digits are an
/// integer of two's complement, big-endian. Throws JobError (corrupt) for one of more than 512 bits.
void append_decimal(std::int32_t scale, std::string_view big_endian, std::string& out);

}  // namespace maestro::parquet
