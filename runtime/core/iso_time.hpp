// SPDX-License-Identifier: Apache-2.0
// Times as text in ISO 8601.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace maestro {

/// "2026-11-24T12:30:00.123Z" with a terminating zero.
using IsoTimeText = std::array<char, 25>;

/// Returns the UTC time to the millisecond. Allocates nothing: a signal handler may call it.
[[nodiscard]] IsoTimeText iso_time_text(std::chrono::system_clock::time_point time) noexcept;
/// Returns the same as a string.
[[nodiscard]] std::string iso_time(std::chrono::system_clock::time_point time);

/// Returns the day that a text such as 2026-01-31 names; nothing for another text, a day that does not exist, or a day
/// after 2261.
[[nodiscard]] std::optional<std::chrono::sys_days> parse_iso_day(std::string_view text);
/// Returns "2026-01-31".
[[nodiscard]] std::string iso_day(std::chrono::sys_days day);
/// Returns the day in the local time zone.
[[nodiscard]] std::chrono::sys_days local_day();

}  // namespace maestro
