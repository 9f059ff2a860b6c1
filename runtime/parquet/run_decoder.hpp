// SPDX-License-Identifier: Apache-2.0
// Small integers: levels, dictionary indices and booleans (Encodings.md, "RLE / Bit-Packing Hybrid" and the deprecated
// "Bit-packed").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/parquet/byte_reader.hpp"

namespace maestro::parquet {

/// Runs of equal values and of bit-packed values. The bytes have to outlive the decoder. Throws JobError (corrupt).
class RunDecoder {
 public:
  RunDecoder() = default;
  /// Each value has `width` bits, 0 to 32.
  RunDecoder(std::string_view bytes, unsigned width);

  std::uint32_t next() {
    if (left_ == 0) start_run();
    --left_;
    if (!packed_) return value_;
    if (in_group_ == 8) unpack_group();
    return group_[in_group_++];
  }
  /// Returns how many of the next values equal the last one for certain.
  [[nodiscard]] std::uint64_t repeats() const { return packed_ ? 0 : left_; }
  /// Passes over values within repeats().
  void skip(std::uint64_t count) { left_ -= count; }

 private:
  void start_run();
  void unpack_group();

  ByteReader bytes_;
  std::string_view packed_bytes_;
  unsigned width_ = 0;
  bool packed_ = false;
  std::uint64_t left_ = 0;  // values of the run
  std::uint32_t value_ = 0;
  std::size_t in_group_ = 0;
  std::array<std::uint32_t, 8> group_{};
};

/// Repetition or definition levels of a page, checked against their maximum.
class LevelDecoder {
 public:
  /// Levels that are all 0.
  LevelDecoder() = default;
  LevelDecoder(std::string_view bytes, unsigned most, Encoding encoding);

  std::uint32_t next() {
    if (most_ == 0) return 0;
    const std::uint32_t level = bit_packed_ ? next_packed() : runs_.next();
    if (level > most_) damaged("a level is above its maximum");
    return level;
  }
  [[nodiscard]] std::uint64_t repeats() const { return most_ == 0 ? ~std::uint64_t{0} : runs_.repeats(); }
  void skip(std::uint64_t count) {
    if (most_ != 0) runs_.skip(count);
  }

 private:
  std::uint32_t next_packed();

  RunDecoder runs_;
  unsigned most_ = 0;
  bool bit_packed_ = false;
  std::string_view packed_;  // for the deprecated encoding: most significant bit first
  std::uint64_t bit_ = 0;
};

}  // namespace maestro::parquet
