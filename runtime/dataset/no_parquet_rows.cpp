// SPDX-License-Identifier: Apache-2.0
// read_parquet() in a build without the reader of Parquet files.
#include "runtime/core/printable.hpp"
#include "runtime/dataset/parquet_rows.hpp"

namespace maestro {

Status read_parquet(const std::filesystem::path& file, const RowSink& /*sink*/, bool /*images*/) {
  return Error{ErrorCode::unavailable, printable(file.string()) +
                                           " is a Parquet file, and this build, which is for tests of GPUs "
                                           "(MAESTRO_ACTORS=OFF), lacks their reader"};
}

}  // namespace maestro
