// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/value_decoder.hpp"

#include <array>

#include "runtime/parquet/byte_reader.hpp"
#include "runtime/parquet/delta_decoder.hpp"
#include "runtime/parquet/run_decoder.hpp"

namespace maestro::parquet {

std::size_t ValueType::width() const {
  constexpr std::array<std::size_t, 8> widths{0, 4, 8, 12, 4, 8, 0, 0};
  return type == PhysicalType::fixed_bytes ? fixed_bytes : widths[static_cast<std::size_t>(type)];
}

Dictionary::Dictionary(std::string_view page, std::int32_t values, ValueType type)
    : page_(page), width_(type.width()), values_(static_cast<std::size_t>(values)) {
  if (type.type == PhysicalType::boolean) unsupported("a dictionary of booleans is not read");
  constexpr std::size_t length_bytes = 4;
  if (values_ > page.size() / (width_ == 0 ? length_bytes : width_)) damaged("the dictionary ends early");
  if (width_ != 0) return;
  offsets_.reserve(values_);
  ByteReader bytes(page);
  for (std::size_t at = 0; at < values_; ++at) {
    offsets_.push_back(static_cast<std::uint32_t>(page.size() - bytes.left().size()));
    bytes.take(bytes.u32());
  }
}

std::string_view Dictionary::at(std::uint32_t index) const {
  if (index >= values_)
    damaged("a value has number " + std::to_string(index) + " of its dictionary, which has " + std::to_string(values_));
  if (width_ != 0) return page_.substr(index * width_, width_);
  ByteReader bytes(page_.substr(offsets_[index]));
  return bytes.take(bytes.u32());
}

namespace {

constexpr std::string_view booleans("\0\1", 2);

class PlainDecoder final : public ValueDecoder {
 public:
  PlainDecoder(std::string_view bytes, std::size_t width) : bytes_(bytes), width_(width) {}
  std::string_view next() override { return bytes_.take(width_ != 0 ? width_ : bytes_.u32()); }

 private:
  ByteReader bytes_;
  std::size_t width_;
};

class PlainBooleanDecoder final : public ValueDecoder {
 public:
  explicit PlainBooleanDecoder(std::string_view bytes) : bytes_(bytes) {}
  std::string_view next() override {
    if (bit_ / 8 >= bytes_.size()) damaged("the booleans end early");
    const auto byte = static_cast<std::uint8_t>(bytes_[bit_ / 8]);
    return booleans.substr(byte >> (bit_++ % 8) & 1u, 1);
  }

 private:
  std::string_view bytes_;
  std::size_t bit_ = 0;
};

/// Booleans in RLE: the runs' size, then the runs.
class RunBooleanDecoder final : public ValueDecoder {
 public:
  explicit RunBooleanDecoder(std::string_view bytes) {
    ByteReader reader(bytes);
    runs_ = RunDecoder(reader.take(reader.u32()), 1);
  }
  std::string_view next() override { return booleans.substr(runs_.next(), 1); }

 private:
  RunDecoder runs_;
};

/// Indices of a dictionary: their width in bits, then runs.
class DictionaryDecoder final : public ValueDecoder {
 public:
  DictionaryDecoder(std::string_view bytes, const Dictionary& dictionary) : dictionary_(dictionary) {
    if (!bytes.empty()) indices_ = RunDecoder(bytes.substr(1), static_cast<std::uint8_t>(bytes[0]));
  }
  std::string_view next() override { return dictionary_.at(indices_.next()); }

 private:
  const Dictionary& dictionary_;
  RunDecoder indices_;
};

/// BYTE_STREAM_SPLIT: the first byte of all values, then the second of all, and so on.
class SplitDecoder final : public ValueDecoder {
 public:
  SplitDecoder(std::string_view bytes, std::size_t width)
      : bytes_(bytes), values_(bytes.size() / width), value_(width, '\0') {
    if (bytes.size() % width != 0) damaged("BYTE_STREAM_SPLIT has an incomplete value");
  }
  std::string_view next() override {
    if (at_ == values_) damaged("BYTE_STREAM_SPLIT has fewer values than its page");
    for (std::size_t byte = 0; byte < value_.size(); ++byte) value_[byte] = bytes_[byte * values_ + at_];
    ++at_;
    return value_;
  }

 private:
  std::string_view bytes_;
  std::size_t values_;
  std::size_t at_ = 0;
  std::string value_;
};

[[noreturn]] void refuse(const char* encoding) {
  unsupported(std::string("encoding ") + encoding + " is not defined for the column's type");
}

}  // namespace

std::unique_ptr<ValueDecoder> make_value_decoder(Encoding encoding, std::string_view bytes, ValueType type,
                                                 const Dictionary* dictionary) {
  const bool is_boolean = type.type == PhysicalType::boolean;
  const bool is_bytes = type.type == PhysicalType::byte_array;
  if (bytes.empty()) return std::make_unique<PlainDecoder>(bytes, 1);  // a page of nulls may also lack a header
  switch (encoding) {
    case Encoding::plain:
      if (is_boolean) return std::make_unique<PlainBooleanDecoder>(bytes);
      return std::make_unique<PlainDecoder>(bytes, type.width());
    case Encoding::plain_dictionary:
    case Encoding::rle_dictionary:
      if (dictionary == nullptr) damaged("the page needs a dictionary, and the column has none");
      return std::make_unique<DictionaryDecoder>(bytes, *dictionary);
    case Encoding::rle:
      if (!is_boolean) refuse("RLE");
      return std::make_unique<RunBooleanDecoder>(bytes);
    case Encoding::delta_binary_packed:
      if (type.type != PhysicalType::int32 && type.type != PhysicalType::int64) refuse("DELTA_BINARY_PACKED");
      return std::make_unique<DeltaIntegerDecoder>(bytes, type.width());
    case Encoding::delta_length_byte_array:
      if (!is_bytes) refuse("DELTA_LENGTH_BYTE_ARRAY");
      return std::make_unique<DeltaLengthDecoder>(bytes);
    case Encoding::delta_byte_array:
      if (!is_bytes && type.type != PhysicalType::fixed_bytes) refuse("DELTA_BYTE_ARRAY");
      return std::make_unique<DeltaBytesDecoder>(bytes, type.width());
    case Encoding::byte_stream_split:
      if (is_boolean || is_bytes) refuse("BYTE_STREAM_SPLIT");
      return std::make_unique<SplitDecoder>(bytes, type.width());
    case Encoding::bit_packed:
      refuse("BIT_PACKED");
  }
  unsupported("encoding number " + std::to_string(static_cast<int>(encoding)) + " is not known");
}

}  // namespace maestro::parquet
