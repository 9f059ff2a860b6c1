// SPDX-License-Identifier: Apache-2.0
// A test's time zone.
#pragma once

#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>

namespace maestro {

/// 26 hours apart, so the day always differs.
constexpr const char* earliest_zone = "AAA-14";
constexpr const char* latest_zone = "BBB+12";

/// Sets the local time zone, and restores it at the end.
class TimeZone {
 public:
  explicit TimeZone(const char* zone) {
    if (const char* former = std::getenv("TZ")) former_ = former;
    set(zone);
  }
  ~TimeZone() { set(former_ ? former_->c_str() : nullptr); }
  TimeZone(const TimeZone&) = delete;
  TimeZone& operator=(const TimeZone&) = delete;

 private:
  static void set(const char* zone) {
    if (zone != nullptr) {
      ::setenv("TZ", zone, 1);
    } else {
      ::unsetenv("TZ");
    }
    ::tzset();
  }
  std::optional<std::string> former_;
};

}  // namespace maestro
