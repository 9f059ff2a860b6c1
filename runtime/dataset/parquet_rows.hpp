// SPDX-License-Identifier: Apache-2.0
// Rows of Parquet files (runtime/parquet) as rows of training data.
#pragma once

#include <filesystem>

#include "runtime/core/result.hpp"
#include "runtime/dataset/row_files.hpp"

namespace maestro {

/// Passes the rows of a Parquet file to `sink`, in order, as JSON (value_text.hpp gives the form of each type). Lists
/// of numbers become the word "(numbers)"; with `images`, the bytes of images are the row's blobs. Errors name the
/// file, row group, row, column and page.
[[nodiscard]] Status read_parquet(const std::filesystem::path& file, const RowSink& sink, bool images);

}  // namespace maestro
