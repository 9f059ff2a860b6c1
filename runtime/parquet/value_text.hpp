// SPDX-License-Identifier: Apache-2.0
// Values as JSON (LogicalTypes.md):
//   numbers of 32 and 64 bits (signed), DOUBLE, BOOLEAN     number, true or false; NaN and infinity are null
//   STRING, JSON, ENUM                                      text
//   other integers, FLOAT, FLOAT16, DECIMAL                 text: "12", "0.5", "1e+10", "123.45"
//   DATE, TIME, TIMESTAMP, INT96, UUID                      text: "2020-01-02", "03:04:05.678", "2020-01-02
//   03:04:05.678"
//                                                           ("Z" follows if the time is adjusted to UTC)
//   other bytes                                             "(binary)"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/parquet/metadata.hpp"

namespace maestro::parquet {

/// How the values of a column become text.
struct ValueForm {
  enum class Kind : std::uint8_t {
    binary,
    text,
    boolean,
    number,         ///< signed integer of 32 or 64 bits
    quoted_number,  ///< other integers
    float64,
    float32,
    float16,
    decimal,
    date,
    time,
    timestamp,
    int96,
    uuid,
  };
  Kind kind = Kind::binary;
  std::int32_t scale = 0;  ///< digits of a decimal after its point
  TimeUnit unit = TimeUnit::ns;
  bool utc = false;
  int bits = 0;  ///< width of a quoted number
  bool is_signed = true;

  /// Returns whether lists of such values are written as "(numbers)".
  [[nodiscard]] bool is_number() const;
};

/// Returns the form of a column. Throws JobError (invalid_argument) if its physical type cannot have its meaning.
[[nodiscard]] ValueForm form_of(const SchemaElement& element);

/// Appends a value (bytes as of ValueDecoder) as JSON. Throws JobError (corrupt) for a text that is not UTF-8.
void append_value(const ValueForm& form, std::string_view bytes, std::string& json);
/// Appends a text as JSON. Throws JobError (corrupt) if it is not UTF-8.
void append_text(std::string_view text, std::string& json);

}  // namespace maestro::parquet
