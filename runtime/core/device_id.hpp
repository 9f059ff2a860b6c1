// SPDX-License-Identifier: Apache-2.0
// The device of a replica's rank.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

struct DeviceId {
  enum class Kind : std::uint8_t {
    host,     ///< CPU without a fixed core, for sources
    cpu,      ///< a core, or one of several devices on it
    cuda,     ///< a GPU of the host
    emulated  ///< passes are timed waits
  };
  Kind kind = Kind::host;
  int index = 0;             ///< number of the core, GPU or emulated device, or of the section's rank
  std::string section = {};  ///< emulated device of a single rank: its section
  bool numbered = false;     ///< emulated device that the job names and sections may share

  friend auto operator<=>(const DeviceId&, const DeviceId&) = default;
  [[nodiscard]] bool is_cuda() const { return kind == Kind::cuda; }
};

/// Returns the device that "cpu:K", "cuda:K" or "emulated:K" names, with at most four digits in K, nine for an emulated
/// device; nothing if the name has another form.
[[nodiscard]] std::optional<DeviceId> parse_device(std::string_view name);

/// Returns "host", "cpu:K", "cuda:K", "emulated:K", "emulated:section/rank", or "emulated" without section and number.
[[nodiscard]] std::string text_of(const DeviceId& device);
[[nodiscard]] std::vector<std::string> texts_of(const std::vector<DeviceId>& devices);

}  // namespace maestro
