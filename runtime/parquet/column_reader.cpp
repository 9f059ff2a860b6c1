// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/column_reader.hpp"

#include <algorithm>
#include <bit>

#include "runtime/parquet/byte_reader.hpp"

namespace maestro::parquet {
namespace {

/// Takes the levels that precede the values in a data page (version 1).
LevelDecoder levels_before(ByteReader& bytes, unsigned most, Encoding encoding, std::uint64_t values) {
  if (most == 0) return {};
  if (encoding == Encoding::rle) return {bytes.take(bytes.u32()), most, encoding};
  if (encoding != Encoding::bit_packed) unsupported("levels are in an encoding other than RLE and BIT_PACKED");
  const std::uint64_t bits = values * static_cast<unsigned>(std::bit_width(most));
  return {bytes.take((bits + 7) / 8), most, encoding};
}

}  // namespace

void ColumnReader::open_levels(const Page& page) {
  if (page.header.kind == PageKind::data_v2) {
    repetitions_ = LevelDecoder(page.repetition, type_.repetition, Encoding::rle);
    definitions_ = LevelDecoder(page.definition, type_.definition, Encoding::rle);
    content_ = page.content;
    return;
  }
  ByteReader bytes(page.content);
  repetitions_ = levels_before(bytes, type_.repetition, page.header.repetition_encoding, in_page_);
  definitions_ = levels_before(bytes, type_.definition, page.header.definition_encoding, in_page_);
  content_ = bytes.left();
}

void ColumnReader::open_dictionary(const Page& page) {
  if (dictionary_ || pages_.pages() > 0) damaged("a dictionary page is not the column's first page");
  if (page.header.encoding != Encoding::plain && page.header.encoding != Encoding::plain_dictionary) {
    unsupported("a dictionary is in an encoding other than PLAIN");
  }
  if (type_.wanted) dictionary_ = std::make_unique<Dictionary>(page.content, page.header.values, type_.value);
}

void ColumnReader::open_page() {
  while (in_page_ == 0) {
    const Page page = pages_.next();
    if (page.header.kind == PageKind::dictionary) {
      open_dictionary(page);
      continue;
    }
    in_page_ = static_cast<std::uint64_t>(page.header.values);
    if (page.header.values > left_) damaged("the pages have more values than their column");
    left_ -= page.header.values;
    open_levels(page);
    if (type_.wanted) values_ = make_value_decoder(page.header.encoding, content_, type_.value, dictionary_.get());
  }
}

void ColumnReader::next() {
  if (in_page_ == 0) {
    definition_ = repetition_ = 0;
    ended_ = left_ == 0;
    if (ended_) return;
    open_page();
  }
  --in_page_;
  repetition_ = repetitions_.next();
  definition_ = definitions_.next();
}

void ColumnReader::next_below(unsigned repetition) {
  do {
    // Entries in runs of both levels have the levels of the current entry.
    if (repetition_ >= repetition) {
      const std::uint64_t same = std::min({repetitions_.repeats(), definitions_.repeats(), in_page_});
      repetitions_.skip(same);
      definitions_.skip(same);
      in_page_ -= same;
    }
    next();
  } while (!ended_ && repetition_ >= repetition);
}

}  // namespace maestro::parquet
