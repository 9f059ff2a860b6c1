// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/page_reader.hpp"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "runtime/parquet/compression.hpp"

namespace maestro::parquet {

std::span<char> PageBuffer::resize(std::size_t bytes) {
  if (bytes > capacity_) {
    bytes_.reset();
    bytes_ = std::make_unique_for_overwrite<char[]>(bytes);  // NOLINT(modernize-avoid-c-arrays)
    capacity_ = bytes;
  }
  return {bytes_.get(), bytes};
}

PageHeader PageReader::next_header() {
  constexpr std::size_t usual_header = 4096;  // a header with the first and last value of its page
  const std::uint64_t left = chunk_.end - position_;
  for (std::size_t bytes = usual_header;; bytes *= 8) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, left));
    const std::string head = read_at(file_.descriptor, file_.path, position_, count).value_or_throw();
    if (std::optional<PageHeader> header = read_page_header(head)) return *header;
    if (count == left || bytes >= longest_header || head.size() < count) damaged("a page's header ends early");
  }
}

void PageReader::read_stored(const PageHeader& header) {
  if (header.stored_bytes > chunk_.end - position_) damaged("the page ends after its column");
  stored_ = read_at(file_.descriptor, file_.path, position_, header.stored_bytes).value_or_throw();
  if (stored_.size() != header.stored_bytes) damaged("the file ends inside of the page");
  position_ += header.stored_bytes;
  if (!header.crc) return;
  const auto* bytes = reinterpret_cast<const Bytef*>(stored_.data());
  if (crc32(0, bytes, static_cast<uInt>(stored_.size())) != *header.crc) {
    damaged("the page's checksum (CRC) does not match its bytes");
  }
}

Page PageReader::decompressed(const PageHeader& header) {
  Page made;
  made.header = header;
  std::string_view stored = stored_;
  const bool v2 = header.kind == PageKind::data_v2;
  const std::size_t levels = v2 ? header.repetition_bytes + header.definition_bytes : 0;
  if (levels > stored.size() || levels > header.page_bytes) damaged("the levels are longer than their page");
  made.repetition = stored.substr(0, v2 ? header.repetition_bytes : 0);
  made.definition = stored.substr(made.repetition.size(), levels - made.repetition.size());
  stored.remove_prefix(levels);
  const Codec codec = v2 && !header.compressed ? Codec::uncompressed : chunk_.codec;
  const std::size_t bytes = header.page_bytes - levels;
  if (codec == Codec::uncompressed && header.kind != PageKind::dictionary) {
    if (stored.size() != bytes) damaged("the page's two sizes differ, and it is not compressed");
    made.content = stored;
    return made;
  }
  const std::span<char> page = (header.kind == PageKind::dictionary ? dictionary_ : page_).resize(bytes);
  decompress(codec, stored, page);
  made.content = {page.data(), page.size()};
  return made;
}

Page PageReader::next() {
  for (;;) {
    if (position_ >= chunk_.end) damaged("the column ends before its last value");
    const PageHeader header = next_header();
    position_ += header.bytes;
    if (header.kind == PageKind::index) {
      position_ += std::min<std::uint64_t>(header.stored_bytes, chunk_.end - position_);
      continue;
    }
    if (header.kind != PageKind::dictionary) ++pages_;
    read_stored(header);
    return decompressed(header);
  }
}

}  // namespace maestro::parquet
