// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/parquet_rows.hpp"

#include <memory>
#include <string>

#include "runtime/parquet/parquet_file.hpp"

namespace maestro {

Status read_parquet(const std::filesystem::path& file, const RowSink& sink, bool images) {
  const Result<std::unique_ptr<ParquetFile>> opened = ParquetFile::open(file, images);
  if (!opened) return opened.error();
  ParquetFile& parquet = **opened;
  for (;;) {
    const Result<bool> more = parquet.next();
    if (!more) return more.error();
    if (!*more) return {};
    const ParquetRow row = parquet.row();
    sink({file.string() + ": row group " + std::to_string(row.row_group) + ", row " + std::to_string(row.row),
          std::string(row.json),
          true,
          false,
          false,
          {parquet.take_blobs(), {}}});
  }
}

}  // namespace maestro
