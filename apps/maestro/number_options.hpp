// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>

namespace maestro {

/// Returns a check for an integer in decimal digits from `least` to `most`. CLI11's check reads 010 as eight, replaces
/// a number beyond 64 bits with the largest, and refuses words with the bounds of a double.
[[nodiscard]] CLI::Validator whole_number(std::int64_t least,
                                          std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// Returns a check for a seed: an integer in decimal digits from 0 to 2^64 - 1.
[[nodiscard]] CLI::Validator seed_number();

/// Returns a check for a decimal number from `least` to `most`, both finite.
[[nodiscard]] CLI::Validator decimal_number(double least, double most);

}  // namespace maestro
