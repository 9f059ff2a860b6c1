// SPDX-License-Identifier: Apache-2.0
// Fuzz target for Parquet files: footer, pages, levels, values and rows.
#include "fuzz_target.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/parquet/parquet_file.hpp"

namespace maestro::fuzz {
namespace {

constexpr int most_rows = 2'000;            // a file of few bytes can have billions, which are all null
constexpr std::size_t most_json = 1 << 20;  // bytes

void read(const std::filesystem::path& path, bool images) {
  const auto file = ParquetFile::open(path, images);
  if (!accepted(file)) return;
  std::size_t bytes = 0;
  for (int row = 0; row < most_rows && bytes < most_json; ++row) {
    const Result<bool> more = (*file)->next();
    if (!accepted(more) || !*more) return;
    bytes += (*file)->row().json.size();
    for (const std::string& blob : (*file)->take_blobs()) bytes += blob.size();
    if (bytes < most_json) require(parse_json((*file)->row().json, "row").ok(), "a row is JSON", (*file)->row().json);
  }
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::filesystem::path file = fuzz::scratch().write("f.parquet", fuzz::text_of(data, size));
  for (const bool images : {false, true}) fuzz::read(file, images);
  return 0;
}
