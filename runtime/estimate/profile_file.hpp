// SPDX-License-Identifier: Apache-2.0
// Measured prices of a machine's calls, in a file.
//
// PB-1 (round trip): read_profile() of a file of write_profile() gives the same price for every measured call, to the
//       nanosecond.
// PB-2 (strict): a key that is unknown, missing, of another type or out of range is an error that names the file and
//       the path in it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "runtime/estimate/call_prices.hpp"

namespace maestro {

/// Prices of the processors of a machine.
struct MachinePrices {
  std::string build;         ///< build_id() of the program that measured
  std::int64_t devices = 0;  ///< that were at work at once
  CallPrices alone;          ///< the other devices idle
  CallPrices busy;           ///< all devices at work
};

/// Parses the text of a file, which messages call `name`.
[[nodiscard]] Result<MachinePrices> parse_profile(std::string_view text, const std::string& name);
[[nodiscard]] std::string profile_text(const MachinePrices& prices);

/// Reads a JSON file of at most 64 MiB.
[[nodiscard]] Result<MachinePrices> read_profile(const std::filesystem::path& path);
[[nodiscard]] Status write_profile(const MachinePrices& prices, const std::filesystem::path& path);

}  // namespace maestro
