// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/value_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/core/printable.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/parquet/number_text.hpp"
#include "runtime/parquet/time_text.hpp"

namespace maestro::parquet {
namespace {

using Kind = ValueForm::Kind;

template <class Number>
Number number_of(std::string_view bytes) {
  Number value{};
  std::memcpy(&value, bytes.data(), std::min(sizeof value, bytes.size()));
  return value;
}

std::int64_t integer_of(std::string_view bytes) {
  return bytes.size() == sizeof(std::int32_t) ? number_of<std::int32_t>(bytes) : number_of<std::int64_t>(bytes);
}

void append_decimal_of(const ValueForm& form, std::string_view bytes, std::string& out) {
  std::string big_endian(bytes);
  if (form.bits != 0) std::ranges::reverse(big_endian);  // an integer of 32 or 64 bits
  append_decimal(form.scale, big_endian, out);
}

/// Appends INT96: nanoseconds of a day, and its Julian day.
void append_int96(std::string_view bytes, std::string& out) {
  append_julian(number_of<std::int64_t>(bytes), number_of<std::int32_t>(bytes.substr(8)), out);
}

void append_uuid(std::string_view bytes, std::string& out) {
  constexpr std::string_view digits = "0123456789abcdef";
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (at == 4 || at == 6 || at == 8 || at == 10) out += '-';
    const auto byte = static_cast<std::uint8_t>(bytes[at]);
    (out += digits[byte >> 4]) += digits[byte & 15];
  }
}

void append_quoted_number(const ValueForm& form, std::string_view bytes, std::string& out) {
  const std::int64_t value = integer_of(bytes);
  const int unused = 64 - form.bits;
  if (form.is_signed) {
    out += std::to_string(static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << unused) >> unused);
  } else {
    out += std::to_string(static_cast<std::uint64_t>(value) << unused >> unused);
  }
}

void append_integer(std::int64_t value, std::string& json) {
  std::array<char, 24> text{};
  json.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
}

/// Appends a value of a kind that becomes text, without quotes.
void append_words(const ValueForm& form, std::string_view bytes, std::string& out) {
  switch (form.kind) {
    case Kind::quoted_number:
      return append_quoted_number(form, bytes, out);
    case Kind::float32:
      return append_float(number_of<float>(bytes), out);
    case Kind::float16:
      return append_float(half_of(number_of<std::uint16_t>(bytes)), out);
    case Kind::decimal:
      return append_decimal_of(form, bytes, out);
    case Kind::date:
      return append_date(integer_of(bytes), out);
    case Kind::time:
      return append_time(integer_of(bytes), form.unit, out);
    case Kind::timestamp:
      append_timestamp(integer_of(bytes), form.unit, out);
      if (form.utc) out += 'Z';
      return;
    case Kind::int96:
      return append_int96(bytes, out);
    case Kind::uuid:
      return append_uuid(bytes, out);
    default:
      out += "(binary)";
  }
}

/// Returns the form of a physical type without a meaning.
ValueForm plain_form(PhysicalType type) {
  constexpr std::array kinds{Kind::boolean, Kind::number,  Kind::number, Kind::int96,
                             Kind::float32, Kind::float64, Kind::binary, Kind::binary};
  ValueForm form;
  form.kind = kinds[static_cast<std::size_t>(type)];
  return form;
}

Kind integer_kind(const SchemaElement& element) {
  const int bits = element.type == PhysicalType::int32 ? 32 : 64;
  return element.is_signed && element.integer_bits == bits ? Kind::number : Kind::quoted_number;
}

/// Returns whether a column of this type and size can have the meaning.
bool fits(const SchemaElement& element) {
  const PhysicalType type = *element.type;
  const bool is_fixed = type == PhysicalType::fixed_bytes;
  const bool is_integer = type == PhysicalType::int32 || type == PhysicalType::int64;
  switch (element.meaning) {
    case Meaning::text:
      return type == PhysicalType::byte_array || is_fixed;
    case Meaning::decimal:
      return is_integer || is_fixed || type == PhysicalType::byte_array;
    case Meaning::date:
      return type == PhysicalType::int32;
    case Meaning::integer: {
      const int bits = element.integer_bits;
      const int most = type == PhysicalType::int32 ? 32 : 64;
      return is_integer && (bits == 8 || bits == 16 || bits == 32 || bits == 64) && bits <= most;
    }
    case Meaning::time:
    case Meaning::timestamp:
      return is_integer;
    case Meaning::uuid:
      return is_fixed && element.type_bytes == 16;
    case Meaning::float16:
      return is_fixed && element.type_bytes == 2;
    case Meaning::none:
      return true;
    case Meaning::map:
    case Meaning::list:
      return false;
  }
  return false;
}

}  // namespace

bool ValueForm::is_number() const {
  return kind == Kind::number || kind == Kind::quoted_number || kind == Kind::float64 || kind == Kind::float32 ||
         kind == Kind::float16;
}

ValueForm form_of(const SchemaElement& element) {
  const std::string column = "column \"" + printable(element.name) + "\"";
  if (element.type == PhysicalType::fixed_bytes && element.type_bytes <= 0) damaged(column + " has values of no size");
  if (!fits(element)) unsupported(column + " has a logical type that its physical type cannot have");
  ValueForm form = plain_form(*element.type);
  constexpr std::array kinds{Kind::binary,        Kind::text, Kind::binary, Kind::binary,
                             Kind::decimal,       Kind::date, Kind::time,   Kind::timestamp,
                             Kind::quoted_number, Kind::uuid, Kind::float16};
  if (element.meaning == Meaning::none) return form;
  form.kind = kinds[static_cast<std::size_t>(element.meaning)];
  form.scale = element.scale;
  form.unit = element.unit;
  form.utc = element.utc;
  form.is_signed = element.is_signed;
  form.bits = element.integer_bits;
  if (form.kind == Kind::quoted_number) form.kind = integer_kind(element);
  const bool is_integer = element.type == PhysicalType::int32 || element.type == PhysicalType::int64;
  if (form.kind == Kind::decimal) form.bits = is_integer ? 64 : 0;
  constexpr std::int32_t most_digits = 155;  // of 512 bits
  if (form.scale < 0 || form.scale > most_digits) damaged(column + " has a scale of " + std::to_string(form.scale));
  return form;
}

void append_text(std::string_view text, std::string& json) {
  const std::size_t valid = valid_utf8_prefix(text);
  if (valid != text.size()) damaged("a text is not UTF-8 from byte " + std::to_string(valid) + " on");
  json += '"';
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<std::uint8_t>(text[at]);
    if (byte >= ' ' && byte != '"' && byte != '\\') continue;
    json.append(text, begin, at - begin);
    begin = at + 1;
    constexpr std::string_view named = "\"\\\b\f\n\r\t", names = "\"\\bfnrt";
    const std::size_t name = named.find(text[at]);
    json += '\\';
    if (name != named.npos) {
      json += names[name];
    } else {
      std::array<char, 8> code{};
      json.append(code.data(), static_cast<std::size_t>(std::snprintf(code.data(), code.size(), "u%04x", byte)));
    }
  }
  json.append(text, begin);
  json += '"';
}

void append_value(const ValueForm& form, std::string_view bytes, std::string& json) {
  switch (form.kind) {
    case Kind::text:
      return append_text(bytes, json);
    case Kind::boolean:
      json += bytes[0] != 0 ? "true" : "false";
      return;
    case Kind::number:
      return append_integer(integer_of(bytes), json);
    case Kind::float64:
      json += nlohmann::json(number_of<double>(bytes)).dump();
      return;
    default:
      json += '"';
      append_words(form, bytes, json);
      json += '"';
  }
}

}  // namespace maestro::parquet
