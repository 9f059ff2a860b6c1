// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/delta_decoder.hpp"

#include <algorithm>
#include <cstring>

namespace maestro::parquet {

DeltaIntegers::DeltaIntegers(std::string_view bytes) : bytes_(bytes) {
  constexpr std::uint64_t largest_block = std::uint64_t{1} << 24;  // values; writers use 128 or 1,024
  const std::uint64_t block_values = bytes_.varint();
  miniblocks_ = bytes_.varint();
  left_ = bytes_.varint();
  value_ = static_cast<std::uint64_t>(bytes_.zigzag());
  if (miniblocks_ == 0 || block_values == 0 || block_values > largest_block || block_values % miniblocks_ != 0) {
    damaged("a header of DELTA_BINARY_PACKED has impossible block sizes");
  }
  miniblock_values_ = block_values / miniblocks_;
  if (miniblock_values_ % 8 != 0) damaged("a miniblock of DELTA_BINARY_PACKED ends inside a byte");
}

void DeltaIntegers::start_block() {
  least_delta_ = static_cast<std::uint64_t>(bytes_.zigzag());
  widths_ = bytes_.take(miniblocks_);
}

void DeltaIntegers::start_miniblock() {
  if (widths_.empty()) start_block();
  width_ = static_cast<std::uint8_t>(widths_.front());
  widths_.remove_prefix(1);
  if (width_ > 64) damaged("a miniblock of DELTA_BINARY_PACKED has values of more than 64 bits");
  in_miniblock_ = miniblock_values_;
  // The last miniblock may lack the bytes of values that do not exist.
  packed_ = bytes_.take(std::min<std::uint64_t>(miniblock_values_ / 8 * width_, bytes_.left().size()));
  bit_ = 0;
}

std::uint64_t DeltaIntegers::unpack() {
  const std::uint64_t first = bit_ / 8;
  const unsigned shift = bit_ % 8;
  bit_ += width_;
  if (width_ == 0) return 0;
  if ((bit_ + 7) / 8 > packed_.size()) damaged("a miniblock of DELTA_BINARY_PACKED ends early");
  std::uint64_t low = 0;
  const std::string_view bytes = packed_.substr(first, 9);
  std::memcpy(&low, bytes.data(), std::min<std::size_t>(bytes.size(), sizeof low));
  low >>= shift;
  if (shift + width_ > 64) low |= std::uint64_t{static_cast<std::uint8_t>(bytes[8])} << (64 - shift);
  return width_ == 64 ? low : low & ((std::uint64_t{1} << width_) - 1);
}

std::int64_t DeltaIntegers::next() {
  if (left_ == 0) damaged("DELTA_BINARY_PACKED has fewer values than its page");
  --left_;
  if (begun_) {
    if (in_miniblock_ == 0) start_miniblock();
    --in_miniblock_;
    value_ += least_delta_ + unpack();
  }
  begun_ = true;
  return static_cast<std::int64_t>(value_);
}

std::string_view DeltaIntegers::bytes_after(std::string_view bytes) {
  DeltaIntegers integers(bytes);
  std::uint64_t deltas = integers.left_ == 0 ? 0 : integers.left_ - 1;
  while (deltas > 0) {
    integers.start_miniblock();
    if (deltas > std::uint64_t{1} << 32) damaged("DELTA_BINARY_PACKED has more values than a page");
    deltas -= std::min(deltas, integers.miniblock_values_);
  }
  return integers.bytes_.left();
}

std::string_view DeltaIntegerDecoder::next() {
  value_ = integers_.next();
  return {reinterpret_cast<const char*>(&value_), width_};
}

std::string_view DeltaLengthDecoder::next() {
  const std::int64_t length = lengths_.next();
  if (length < 0) damaged("a byte array has a negative length");
  return bytes_.take(static_cast<std::uint64_t>(length));
}

std::string_view DeltaBytesDecoder::next() {
  const std::int64_t shared = prefixes_.next();
  if (shared < 0 || static_cast<std::uint64_t>(shared) > value_.size()) {
    damaged("a byte array shares more bytes than the value before has");
  }
  value_.resize(static_cast<std::size_t>(shared));
  value_ += suffixes_.next();
  if (width_ != 0 && value_.size() != width_) damaged("a value does not have its type's size");
  return value_;
}

}  // namespace maestro::parquet
