// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/number_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "runtime/parquet/format.hpp"

namespace maestro::parquet {
namespace {

template <class Float>
void append_shortest(Float value, std::string& out) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    return;
  }
  std::array<char, 32> text{};
  const char* end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific).ptr;
  std::string_view rest(text.data(), static_cast<std::size_t>(end - text.data()));
  if (rest.starts_with('-')) {
    out += '-';
    rest.remove_prefix(1);
  }
  const std::size_t mark = rest.find('e');
  std::string digits(1, rest[0]);
  if (mark > 2) digits += rest.substr(2, mark - 2);
  int exponent = 0;
  const std::size_t sign = rest[mark + 1] == '+' ? 1 : 0;
  std::from_chars(rest.data() + mark + 1 + sign, rest.data() + rest.size(), exponent);
  if (value == 0) {
    out += '0';
  } else if (exponent < -6 || exponent >= 10) {
    out += digits[0];
    if (digits.size() > 1) (out += '.') += digits.substr(1);
    (out += exponent < 0 ? "e" : "e+") += std::to_string(exponent);
  } else if (exponent < 0) {
    ((out += "0.").append(static_cast<std::size_t>(-exponent - 1), '0')) += digits;
  } else {
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    out += digits.substr(0, whole);
    if (digits.size() > whole) (out += '.') += digits.substr(whole);
  }
}

/// Returns the decimal digits of a positive big-endian number.
std::string digits_of(std::vector<std::uint8_t> number) {
  std::string digits;
  while (std::ranges::any_of(number, [](std::uint8_t byte) { return byte != 0; })) {
    unsigned rest = 0;
    for (std::uint8_t& byte : number) {
      rest = rest << 8 | byte;
      byte = static_cast<std::uint8_t>(rest / 10);
      rest %= 10;
    }
    digits += static_cast<char>('0' + rest);
  }
  std::ranges::reverse(digits);
  return digits.empty() ? "0" : digits;
}

/// Appends the digits of a decimal with `scale` of them after the point; small numbers with an exponent.
void append_scaled(const std::string& digits, std::int32_t scale, std::string& out) {
  const auto count = static_cast<std::int32_t>(digits.size());
  const std::int32_t exponent = count - 1 - scale;
  if (scale == 0) {
    out += digits;
  } else if (scale < 0 || exponent < -6) {
    out += digits[0];
    if (count > 1) (out += '.') += digits.substr(1);
    (out += exponent < 0 ? "E" : "E+") += std::to_string(exponent);
  } else if (count > scale) {
    const auto whole = static_cast<std::size_t>(count - scale);
    ((out += digits.substr(0, whole)) += '.') += digits.substr(whole);
  } else {
    (out += "0.").append(static_cast<std::size_t>(scale - count), '0') += digits;
  }
}

}  // namespace

void append_float(float value, std::string& out) {
  append_shortest(value, out);
}

void append_float(double value, std::string& out) {
  append_shortest(value, out);
}

double half_of(std::uint16_t bits) {
  constexpr int mantissa_bits = 10, bias = 15;
  const int exponent = bits >> mantissa_bits & 31;
  const int mantissa = bits & 1'023;
  double value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else {
    const int whole = exponent == 0 ? mantissa : mantissa + 1'024;
    value = std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

void append_decimal(std::int32_t scale, std::string_view big_endian, std::string& out) {
  constexpr std::size_t most_bytes = 64;
  if (big_endian.size() > most_bytes) damaged("a decimal has more than 512 bits");
  std::vector<std::uint8_t> number(big_endian.begin(), big_endian.end());
  if (!number.empty() && number[0] >= 0x80) {
    out += '-';
    bool carry = true;
    for (std::size_t at = number.size(); at-- > 0;) {
      number[at] = static_cast<std::uint8_t>(~number[at] + (carry ? 1 : 0));
      carry = carry && number[at] == 0;
    }
  }
  append_scaled(digits_of(std::move(number)), scale, out);
}

}  // namespace maestro::parquet
