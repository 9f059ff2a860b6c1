// SPDX-License-Identifier: Apache-2.0
// Reads rows of Parquet files by the module libmaestro_parquet.so, if it was built.
#pragma once

#include <filesystem>

#include "runtime/core/result.hpp"
#include "runtime/dataset/row_files.hpp"

namespace maestro {

/// Passes the rows of a Parquet file to `sink`, as JSON. Lists of numbers and binary values become the words
/// "(numbers)" and "(binary)". MAESTRO_PARQUET_LIBRARY names the module; by default it is next to the program or in
/// ../lib/maestro. Errors: no module, with the way to get it; a damaged file, with row group and row.
[[nodiscard]] Status read_parquet(const std::filesystem::path& file, const RowSink& sink);

}  // namespace maestro
