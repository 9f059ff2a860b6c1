// SPDX-License-Identifier: Apache-2.0
// Encodings of differences (Encodings.md, "Delta Encoding", "Delta-length byte array", "Delta Strings").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/parquet/byte_reader.hpp"
#include "runtime/parquet/value_decoder.hpp"

namespace maestro::parquet {

/// Integers of DELTA_BINARY_PACKED, modulo 2^64. The bytes have to outlive it. Throws JobError (corrupt).
class DeltaIntegers {
 public:
  explicit DeltaIntegers(std::string_view bytes);
  std::int64_t next();
  /// Passes over all integers and returns the bytes after them.
  [[nodiscard]] static std::string_view bytes_after(std::string_view bytes);

 private:
  void start_block();
  void start_miniblock();
  std::uint64_t unpack();

  ByteReader bytes_;
  std::uint64_t miniblocks_ = 0;        // of a block
  std::uint64_t miniblock_values_ = 0;  // of a miniblock
  std::uint64_t left_ = 0;              // integers after the current one
  std::uint64_t value_ = 0;
  bool begun_ = false;
  std::uint64_t least_delta_ = 0;
  std::string_view widths_;         // bits of the block's miniblocks that are left
  std::uint64_t in_miniblock_ = 0;  // values left in the miniblock
  unsigned width_ = 0;
  std::string_view packed_;
  std::uint64_t bit_ = 0;
};

/// DELTA_BINARY_PACKED as values of 4 or 8 bytes.
class DeltaIntegerDecoder final : public ValueDecoder {
 public:
  DeltaIntegerDecoder(std::string_view bytes, std::size_t width) : integers_(bytes), width_(width) {}
  std::string_view next() override;

 private:
  DeltaIntegers integers_;
  std::size_t width_;
  std::int64_t value_ = 0;
};

/// DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes.
class DeltaLengthDecoder final : public ValueDecoder {
 public:
  explicit DeltaLengthDecoder(std::string_view bytes) : lengths_(bytes), bytes_(DeltaIntegers::bytes_after(bytes)) {}
  std::string_view next() override;

 private:
  DeltaIntegers lengths_;
  ByteReader bytes_;
};

/// DELTA_BYTE_ARRAY: how many bytes each value shares with the start of the value before, and the rest of the value.
class DeltaBytesDecoder final : public ValueDecoder {
 public:
  /// Values have `width` bytes; 0: any number.
  DeltaBytesDecoder(std::string_view bytes, std::size_t width)
      : prefixes_(bytes), suffixes_(DeltaIntegers::bytes_after(bytes)), width_(width) {}
  std::string_view next() override;

 private:
  DeltaIntegers prefixes_;
  DeltaLengthDecoder suffixes_;
  std::size_t width_;
  std::string value_;
};

}  // namespace maestro::parquet
