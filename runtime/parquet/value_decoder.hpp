// SPDX-License-Identifier: Apache-2.0
// The values of a page (Encodings.md). Every value is a range of bytes, as PLAIN would store it: little-endian numbers,
// 12 bytes of INT96, a byte 0 or 1 of BOOLEAN, and byte arrays without their length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/parquet/format.hpp"

namespace maestro::parquet {

/// A column's physical type.
struct ValueType {
  PhysicalType type = PhysicalType::boolean;
  std::size_t fixed_bytes = 0;  ///< size of each value, if the type is fixed_bytes

  /// Returns the bytes of a value; 0 if each has its own size, or for booleans less than one.
  [[nodiscard]] std::size_t width() const;
};

class ValueDecoder {
 public:
  ValueDecoder() = default;
  ValueDecoder(const ValueDecoder&) = delete;
  ValueDecoder& operator=(const ValueDecoder&) = delete;
  virtual ~ValueDecoder() = default;
  /// Returns the next value, valid until the next call and while the page's bytes exist. Throws JobError (corrupt).
  virtual std::string_view next() = 0;
};

/// The values of a dictionary page. The page's bytes have to outlive it.
class Dictionary {
 public:
  Dictionary() = default;
  /// Throws JobError (corrupt) if the page has fewer than `values` values.
  Dictionary(std::string_view page, std::int32_t values, ValueType type);
  [[nodiscard]] std::string_view at(std::uint32_t index) const;

 private:
  std::string_view page_;
  std::size_t width_ = 0;
  std::size_t values_ = 0;
  std::vector<std::uint32_t> offsets_;  // byte arrays: where their lengths are
};

/// Returns a decoder of `bytes`. `dictionary` is null if the column has none. Throws JobError: corrupt, or
/// invalid_argument for an encoding that the type does not have.
[[nodiscard]] std::unique_ptr<ValueDecoder> make_value_decoder(Encoding encoding, std::string_view bytes,
                                                               ValueType type, const Dictionary* dictionary);

}  // namespace maestro::parquet
