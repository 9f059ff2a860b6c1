// SPDX-License-Identifier: Apache-2.0
// Measured prices of a machine's calls, in a file.
//
// PB-1 (round trip): read_profile() of a file of write_profile() gives the same price for every measured call, to the
//       nanosecond.
// PB-2 (strict): a key that is unknown, missing, of another type or out of range is an error that names the file and
//       the path in it.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "runtime/rehearsal/call_prices.hpp"

namespace maestro {

/// The shares of a GPU that are measured.
inline constexpr std::array<double, 3> measured_shares{0.25, 0.5, 0.75};

/// Prices of the processors of a machine, or of its GPUs.
struct MachinePrices {
  std::string build;                                     ///< build_id() of the program that measured
  std::string device = "cpu";                            ///< or the model of the GPUs
  std::int64_t devices = 0;                              ///< that were at work at once
  CallPrices alone;                                      ///< the other devices idle
  CallPrices busy;                                       ///< all devices at work
  std::array<CallPrices, measured_shares.size()> parts;  ///< on a share of a GPU, the rest idle; empty: not measured
  /// Sets the model of GPUs, whose memory is their own.
  void set_gpus(std::string model);
};

/// Parses the text of a file, which messages call `name`.
[[nodiscard]] Result<MachinePrices> parse_profile(std::string_view text, const std::string& name);
[[nodiscard]] std::string profile_text(const MachinePrices& prices);

/// Reads a JSON file of at most 64 MiB.
[[nodiscard]] Result<MachinePrices> read_profile(const std::filesystem::path& path);
[[nodiscard]] Status write_profile(const MachinePrices& prices, const std::filesystem::path& path);

}  // namespace maestro
