// SPDX-License-Identifier: Apache-2.0
// Reads little-endian integers, variable-length integers (ULEB128, zigzag) and byte ranges in order.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "runtime/parquet/format.hpp"

namespace maestro::parquet {

/// A position in bytes that it does not own. Throws JobError (corrupt) if a read needs more bytes than are left.
class ByteReader {
 public:
  ByteReader() = default;
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  [[nodiscard]] std::string_view left() const { return left_; }
  std::string_view take(std::uint64_t count) {
    if (count > left_.size()) damaged("the bytes end inside of a value");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  std::uint32_t u32() {
    std::uint32_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    damaged("an integer has more than 64 bits");
  }
  std::int64_t zigzag() {
    const std::uint64_t value = varint();
    return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }

 private:
  std::string_view left_;
};

}  // namespace maestro::parquet
