// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/run_decoder.hpp"

#include <algorithm>
#include <bit>

namespace maestro::parquet {

RunDecoder::RunDecoder(std::string_view bytes, unsigned width) : bytes_(bytes), width_(width) {
  if (width > 32) damaged("values of " + std::to_string(width) + " bits; at most 32 are valid");
}

void RunDecoder::start_run() {
  while (left_ == 0) {
    const std::uint64_t header = bytes_.varint();
    const std::uint64_t count = header >> 1;
    if (count > std::uint64_t{1} << 32) damaged("a run is longer than a page");
    packed_ = (header & 1) != 0;
    if (packed_) {
      left_ = count * 8;
      in_group_ = 8;
      // The last run of a page may lack the bytes of values that do not exist.
      packed_bytes_ = bytes_.take(std::min<std::uint64_t>(count * width_, bytes_.left().size()));
      continue;
    }
    left_ = count;
    value_ = 0;
    const std::string_view value = bytes_.take((width_ + 7) / 8);
    std::memcpy(&value_, value.data(), value.size());
    if (width_ < 32 && value_ >> width_ != 0) damaged("a run's value has more bits than its type");
  }
}

void RunDecoder::unpack_group() {
  if (packed_bytes_.empty() && width_ > 0) damaged("a run of packed values ends early");
  std::array<char, 40> bytes{};  // 8 values of up to 32 bits, and a word that may be read after them
  const std::size_t count = std::min<std::size_t>(packed_bytes_.size(), width_);
  std::memcpy(bytes.data(), packed_bytes_.data(), count);
  packed_bytes_.remove_prefix(count);
  const std::uint64_t mask = (std::uint64_t{1} << width_) - 1;
  for (std::size_t at = 0; at < group_.size(); ++at) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at * width_ / 8, sizeof word);
    group_[at] = static_cast<std::uint32_t>((word >> (at * width_ % 8)) & mask);
  }
  in_group_ = 0;
}

LevelDecoder::LevelDecoder(std::string_view bytes, unsigned most, Encoding encoding) : most_(most) {
  if (encoding == Encoding::bit_packed) {
    bit_packed_ = true;
    packed_ = bytes;
  } else {
    runs_ = RunDecoder(bytes, static_cast<unsigned>(std::bit_width(most)));
  }
}

std::uint32_t LevelDecoder::next_packed() {
  std::uint32_t level = 0;
  for (int bits = std::bit_width(most_); bits > 0; --bits, ++bit_) {
    if (bit_ / 8 >= packed_.size()) damaged("the levels end early");
    const auto byte = static_cast<std::uint8_t>(packed_[bit_ / 8]);
    level = level << 1 | ((byte >> (7 - bit_ % 8)) & 1u);
  }
  return level;
}

}  // namespace maestro::parquet
