// SPDX-License-Identifier: Apache-2.0
// The file with the measured call prices of a machine.
//
// PB-1 (round trip): read_profile() of a file that write_profile() wrote returns the same price for every measured
//       call, to the nanosecond.
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

/// The measured GPU shares.
inline constexpr std::array<double, 3> measured_shares{0.25, 0.5, 0.75};

/// Prices for a machine's CPUs, or for its GPUs.
struct MachinePrices {
  std::string build;           ///< build_id() of the measuring program
  std::string device = "cpu";  ///< "cpu", or the model of the GPUs
  std::int64_t devices = 0;    ///< devices that worked at the same time
  CallPrices alone;            ///< prices with all other devices idle
  CallPrices busy;             ///< prices with all devices at work
  std::array<CallPrices, measured_shares.size()>
      parts;  ///< prices on a share of a GPU, with the rest idle; empty: not measured
  /// Sets the model of GPUs, which have separate memories.
  void set_gpus(std::string model);
};

/// Parses the text of a file; `name` stands for the file in messages.
[[nodiscard]] Result<MachinePrices> parse_profile(std::string_view text, const std::string& name);
[[nodiscard]] std::string profile_text(const MachinePrices& prices);

/// Reads a JSON file of at most 64 MiB.
[[nodiscard]] Result<MachinePrices> read_profile(const std::filesystem::path& path);
[[nodiscard]] Status write_profile(const MachinePrices& prices, const std::filesystem::path& path);

}  // namespace maestro
