// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/time_text.hpp"

#include <array>
#include <cstdio>

#include "runtime/parquet/format.hpp"

namespace maestro::parquet {
namespace {

constexpr std::int64_t day_seconds = 86'400;

/// Appends digits of `value` with zeros in front up to `digits`.
void append_digits(std::int64_t value, int digits, std::string& out) {
  std::array<char, 24> text{};
  const int size = std::snprintf(text.data(), text.size(), "%0*lld", digits, static_cast<long long>(value));
  out.append(text.data(), static_cast<std::size_t>(size));
}

struct Division {
  std::int64_t whole;  // rounded down
  std::int64_t rest;   // not negative
};

Division divided(std::int64_t value, std::int64_t unit) {
  const std::int64_t rest = value % unit;
  return rest < 0 ? Division{value / unit - 1, rest + unit} : Division{value / unit, rest};
}

struct Ticks {
  std::int64_t per_second;
  int digits;
};

Ticks ticks_of(TimeUnit unit) {
  if (unit == TimeUnit::ms) return {1'000, 3};
  return unit == TimeUnit::us ? Ticks{1'000'000, 6} : Ticks{1'000'000'000, 9};
}

/// Appends hours, minutes, seconds, and a fraction of `digits`.
void append_clock(std::int64_t second, std::int64_t fraction, int digits, std::string& out) {
  append_digits(second / 3'600, 2, out);
  out += ':';
  append_digits(second / 60 % 60, 2, out);
  out += ':';
  append_digits(second % 60, 2, out);
  out += '.';
  append_digits(fraction, digits, out);
}

void append_moment(std::int64_t second, std::int64_t fraction, int digits, std::string& out) {
  const Division split = divided(second, day_seconds);
  append_date(split.whole, out);
  out += ' ';
  append_clock(split.rest, fraction, digits, out);
}

}  // namespace

void append_date(std::int64_t day, std::string& out) {
  // Years begin in March, so that a leap day is the last of its year; an era has 400 years.
  constexpr std::int64_t era_days = 146'097, first_march = 719'468;  // days from 0000-03-01 to 1970-01-01
  day += first_march;
  const std::int64_t era = (day >= 0 ? day : day - era_days + 1) / era_days;
  const std::int64_t in_era = day - era * era_days;
  const std::int64_t year = (in_era - in_era / 1'460 + in_era / 36'524 - in_era / 146'096) / 365;
  const std::int64_t in_year = in_era - (365 * year + year / 4 - year / 100);
  const std::int64_t month = (5 * in_year + 2) / 153;
  const std::int64_t day_of_month = in_year - (153 * month + 2) / 5 + 1;
  const std::int64_t civil_month = month < 10 ? month + 3 : month - 9;
  append_digits(year + era * 400 + (civil_month <= 2 ? 1 : 0), 4, out);
  out += '-';
  append_digits(civil_month, 2, out);
  out += '-';
  append_digits(day_of_month, 2, out);
}

void append_timestamp(std::int64_t value, TimeUnit unit, std::string& out) {
  const Ticks ticks = ticks_of(unit);
  const Division split = divided(value, ticks.per_second);
  append_moment(split.whole, split.rest, ticks.digits, out);
}

void append_julian(std::int64_t of_day, std::int64_t julian_day, std::string& out) {
  constexpr std::int64_t julian_day_of_1970 = 2'440'588, nanoseconds = 1'000'000'000;
  const std::int64_t day = julian_day - julian_day_of_1970;
  const Division split = divided(of_day, nanoseconds);
  append_moment(day * day_seconds + split.whole, split.rest, 9, out);
}

void append_time(std::int64_t value, TimeUnit unit, std::string& out) {
  const Ticks ticks = ticks_of(unit);
  if (value < 0 || value / ticks.per_second >= day_seconds) {
    damaged("time " + std::to_string(value) + " is not within a day");
  }
  append_clock(value / ticks.per_second, value % ticks.per_second, ticks.digits, out);
}

}  // namespace maestro::parquet
