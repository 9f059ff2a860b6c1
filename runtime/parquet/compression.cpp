// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/compression.hpp"

#include <brotli/decode.h>
#include <lz4.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <cstring>

namespace maestro::parquet {
namespace {

bool from_snappy(std::string_view stored, std::span<char> page) {
  std::size_t bytes = 0;
  return snappy::GetUncompressedLength(stored.data(), stored.size(), &bytes) && bytes == page.size() &&
         snappy::RawUncompress(stored.data(), stored.size(), page.data());
}

/// Reads one or more gzip or zlib streams.
bool from_gzip(std::string_view stored, std::span<char> page) {
  constexpr int either_header = MAX_WBITS + 32;
  z_stream stream{};
  if (inflateInit2(&stream, either_header) != Z_OK) return false;
  // The interface lacks const.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(stored.data()));
  stream.avail_in = static_cast<uInt>(stored.size());
  stream.next_out = reinterpret_cast<Bytef*>(page.data());
  stream.avail_out = static_cast<uInt>(page.size());
  int status = inflate(&stream, Z_FINISH);
  while (status == Z_STREAM_END && stream.avail_in > 0 && inflateReset(&stream) == Z_OK) {
    status = inflate(&stream, Z_FINISH);
  }
  const bool complete = status == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return complete;
}

bool from_zstd(std::string_view stored, std::span<char> page) {
  return ZSTD_decompress(page.data(), page.size(), stored.data(), stored.size()) == page.size();
}

bool from_brotli(std::string_view stored, std::span<char> page) {
  std::size_t bytes = page.size();
  return BrotliDecoderDecompress(stored.size(), reinterpret_cast<const std::uint8_t*>(stored.data()), &bytes,
                                 reinterpret_cast<std::uint8_t*>(page.data())) == BROTLI_DECODER_RESULT_SUCCESS &&
         bytes == page.size();
}

/// Decompresses a block, and returns whether it has exactly the size of `page`.
bool from_lz4_block(std::string_view stored, std::span<char> page) {
  const int bytes =
      LZ4_decompress_safe(stored.data(), page.data(), static_cast<int>(stored.size()), static_cast<int>(page.size()));
  return bytes >= 0 && static_cast<std::size_t>(bytes) == page.size();
}

std::size_t big_endian(std::string_view bytes) {
  std::size_t value = 0;
  for (std::size_t at = 0; at < 4; ++at) value = value << 8 | static_cast<std::uint8_t>(bytes[at]);
  return value;
}

/// Reads Hadoop's frames: the sizes of a block (decompressed, stored) in front of each block.
bool from_hadoop_frames(std::string_view stored, std::span<char> page) {
  constexpr std::size_t sizes = 8;
  while (stored.size() >= sizes) {
    const std::size_t block = big_endian(stored);
    const std::size_t stored_block = big_endian(stored.substr(4));
    stored.remove_prefix(sizes);
    if (stored_block > stored.size() || block > page.size()) return false;
    if (!from_lz4_block(stored.substr(0, stored_block), page.first(block))) return false;
    stored.remove_prefix(stored_block);
    page = page.subspan(block);
  }
  return stored.empty() && page.empty();
}

bool copied(std::string_view stored, std::span<char> page) {
  if (stored.size() != page.size()) return false;
  std::memcpy(page.data(), stored.data(), page.size());
  return true;
}

bool decompressed(Codec codec, std::string_view stored, std::span<char> page) {
  switch (codec) {
    case Codec::uncompressed:
      return copied(stored, page);
    case Codec::snappy:
      return from_snappy(stored, page);
    case Codec::gzip:
      return from_gzip(stored, page);
    case Codec::zstd:
      return from_zstd(stored, page);
    case Codec::brotli:
      return from_brotli(stored, page);
    case Codec::lz4_raw:
      return from_lz4_block(stored, page);
    case Codec::lz4_hadoop:
      return from_hadoop_frames(stored, page) || from_lz4_block(stored, page);
    case Codec::lzo:
      break;
  }
  return false;
}

}  // namespace

void decompress(Codec codec, std::string_view stored, std::span<char> page) {
  if (page.empty()) return;  // a page of nulls: some writers store nothing, others an empty stream
  if (!decompressed(codec, stored, page)) {
    damaged("its " + name_of(codec) + " bytes are damaged, or do not have the page's size");
  }
}

}  // namespace maestro::parquet
