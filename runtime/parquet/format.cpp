// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/format.hpp"

#include <array>

namespace maestro::parquet {

std::string name_of(Codec codec) {
  constexpr std::array names{"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"};
  return names[static_cast<std::size_t>(codec)];
}

void damaged(const std::string& reason) {
  throw JobError(reason, ErrorCode::corrupt);
}

void unsupported(const std::string& reason) {
  throw JobError(reason, ErrorCode::invalid_argument);
}

}  // namespace maestro::parquet
