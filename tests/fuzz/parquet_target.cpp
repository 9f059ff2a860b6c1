// SPDX-License-Identifier: Apache-2.0
// Fuzz target for Parquet files: footer, pages, levels, values and rows.
#include "fuzz_target.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/parquet/parquet_file.hpp"

namespace maestro::fuzz {
namespace {

constexpr int most_rows = 2'000;            // a file of few bytes can have billions, which are all null
constexpr std::size_t most_json = 1 << 20;  // bytes

void read(const std::filesystem::path& path) {
  const auto file = ParquetFile::open(path);
  if (!accepted(file)) return;
  std::size_t bytes = 0;
  for (int row = 0; row < most_rows && bytes < most_json; ++row) {
    const Result<bool> more = (*file)->next();
    if (!accepted(more) || !*more) return;
    bytes += (*file)->row().json.size();
    if (bytes < most_json) require(parse_json((*file)->row().json, "row").ok(), "a row is JSON", (*file)->row().json);
  }
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  fuzz::read(fuzz::scratch().write("f.parquet", fuzz::text_of(data, size)));
  return 0;
}
