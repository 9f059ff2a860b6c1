// SPDX-License-Identifier: Apache-2.0
// Decompression of pages (Compression.md).
#pragma once

#include <span>
#include <string_view>

#include "runtime/parquet/format.hpp"

namespace maestro::parquet {

/// Decompresses `stored` into exactly `page`. The codec LZ4 is read in Hadoop's frames, and as a plain block, which
/// some writers stored under that name. Throws JobError (corrupt) with the codec's name if the bytes are damaged or
/// their size differs. Thread safe.
void decompress(Codec codec, std::string_view stored, std::span<char> page);

}  // namespace maestro::parquet
