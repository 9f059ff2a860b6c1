// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/iso_time.hpp"

#include <algorithm>
#include <charconv>
#include <ctime>

namespace maestro {

namespace {

void put(IsoTimeText& text, std::size_t at, std::size_t digits, std::int64_t number) {
  for (std::size_t digit = digits; digit > 0; --digit, number /= 10) {
    text[at + digit - 1] = static_cast<char>('0' + number % 10);
  }
}

}  // namespace

IsoTimeText iso_time_text(std::chrono::system_clock::time_point time) noexcept {
  namespace chrono = std::chrono;
  const auto day = chrono::floor<chrono::days>(time);
  const chrono::year_month_day date(day);
  const chrono::hh_mm_ss clock(chrono::floor<chrono::milliseconds>(time - day));
  IsoTimeText text{"0000-00-00T00:00:00.000Z"};
  put(text, 0, 4, static_cast<int>(date.year()));
  put(text, 5, 2, static_cast<unsigned>(date.month()));
  put(text, 8, 2, static_cast<unsigned>(date.day()));
  put(text, 11, 2, clock.hours().count());
  put(text, 14, 2, clock.minutes().count());
  put(text, 17, 2, clock.seconds().count());
  put(text, 20, 3, clock.subseconds().count());
  return text;
}

std::string iso_time(std::chrono::system_clock::time_point time) {
  return iso_time_text(time).data();
}

std::optional<std::chrono::sys_days> parse_iso_day(std::string_view text) {
  const auto number = [&](std::size_t at, std::size_t digits) {
    unsigned value = 0;
    (void)std::from_chars(text.data() + at, text.data() + at + digits, value);
    return value;
  };
  constexpr std::string_view shape = "0000-00-00";
  const auto fits = [](char c, char expected) { return expected == '-' ? c == '-' : c >= '0' && c <= '9'; };
  if (!std::ranges::equal(text, shape, fits)) return std::nullopt;
  const std::chrono::year_month_day day(std::chrono::year(static_cast<int>(number(0, 4))),
                                        std::chrono::month(number(5, 2)), std::chrono::day(number(8, 2)));
  constexpr std::chrono::year last_year(2261);  // limit of a clock in nanoseconds
  if (!day.ok() || day.year() > last_year) return std::nullopt;
  return std::chrono::sys_days(day);
}

std::string iso_day(std::chrono::sys_days day) {
  return iso_time(day).substr(0, 10);
}

std::chrono::sys_days local_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  (void)::localtime_r(&now, &local);
  return std::chrono::year_month_day(std::chrono::year(local.tm_year + 1900),
                                     std::chrono::month(static_cast<unsigned>(local.tm_mon + 1)),
                                     std::chrono::day(static_cast<unsigned>(local.tm_mday)));
}

}  // namespace maestro
