// SPDX-License-Identifier: Apache-2.0
// Times as text, as ISO 8601 has them.
#pragma once

#include <array>
#include <chrono>
#include <string>

namespace maestro {

/// "2026-11-24T12:30:00.123Z" with a terminating zero.
using IsoTimeText = std::array<char, 25>;

/// Returns the UTC time to the millisecond. Allocates nothing: a signal handler may call it.
[[nodiscard]] IsoTimeText iso_time_text(std::chrono::system_clock::time_point time) noexcept;
/// Likewise, as a string.
[[nodiscard]] std::string iso_time(std::chrono::system_clock::time_point time);

}  // namespace maestro
