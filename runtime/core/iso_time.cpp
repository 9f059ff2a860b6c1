// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/iso_time.hpp"

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

}  // namespace maestro
