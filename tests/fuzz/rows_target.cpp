// SPDX-License-Identifier: Apache-2.0
// Fuzz target for training data: rows in files of every kind, records in rows, images in archives,
// and the index of prepared data.
#include <optional>

#include "fuzz_target.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/dataset/prepared_data.hpp"
#include "runtime/dataset/record_format.hpp"
#include "runtime/dataset/row_files.hpp"

namespace maestro::fuzz {
namespace {

void use(Row& row, std::optional<RecordFormat>& format, const std::filesystem::path& file, ImagesOfRows images) {
  if (!row.json) return;
  if (!format) {
    Result<RecordFormat> made = format_of_row(row, "", images);
    if (!accepted(made)) return;
    format = *std::move(made);
  }
  const Result<nlohmann::json> value = parse_json(row.content, row.where);
  if (!accepted(value)) return;
  const Result<Record> record = format->read(*value, row.content, std::move(row.media));
  if (!accepted(record)) return;
  require(format->is_chat() == !record->messages.empty(), "conversations have messages");
  require(record->images.size() == record->image_messages.size(), "images are in messages");
  for (const RowImage& image : record->images) {
    if (!image.content.empty() || image.member) accepted(find_image(image, {}, file));
    if (image.member && image.member->position) accepted(read_tar_image(file, *image.member->position));
  }
}

void read(const std::filesystem::path& file) {
  const Result<RowFileKind> kind = kind_of_rows(file);
  if (!accepted(kind)) return;
  require(accepted(check_kind_of_rows(file, *kind)) || *kind == RowFileKind::binary || *kind == RowFileKind::wide_text,
          "a file is refused by its kind");
  for (const ImagesOfRows images : {ImagesOfRows::refused, ImagesOfRows::placed, ImagesOfRows::spaced}) {
    std::optional<RecordFormat> format;
    const RowSink sink = [&](Row&& row) { use(row, format, file, images); };
    accepts([&] {
      if (*kind != RowFileKind::parquet)
        accepted(read_rows(file, *kind, sink, images != ImagesOfRows::refused ? Media(all_media).first(1) : Media()));
    });
  }
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string_view bytes = fuzz::text_of(data, size);
  for (const char* name : {"rows", "rows.jsonl", "rows.json"}) fuzz::read(fuzz::scratch().write(name, bytes));
  static_cast<void>(fuzz::scratch().write(prepared_index_file, bytes));
  fuzz::accepted(read_prepared_index(fuzz::scratch().path()));
  return 0;
}
