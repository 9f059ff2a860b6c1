// SPDX-License-Identifier: Apache-2.0
// Fuzz target for a teacher's records: teacher.json, and rows from a server, over a small corpus.
#include <memory>

#include "fuzz_target.hpp"
#include "runtime/data/synthetic/synthetic_corpus.hpp"
#include "runtime/data/teacher/served_teacher.hpp"

namespace maestro::fuzz {
namespace {

void read_records(std::string_view text) {
  const Result<TeacherRecords> records = parse_records(text, "teacher.json");
  if (!accepted(records)) return;
  const std::string written = records_text(*records);
  const Result<TeacherRecords> again = parse_records(written, "teacher.json");
  require(again.ok(), "records that were written are records", again.ok() ? "" : again.error().message);
  require(records_text(*again) == written, "records read back equal");
  require(difference(*again, *records).empty(), "records are those of the same job");
}

void read_rows(const std::filesystem::path& file) {
  static const auto corpus = std::make_shared<SyntheticCorpus>(
      SyntheticOptions{.sequence = 3, .vocabulary = 50, .train_samples = 1, .validation_samples = 1});
  TeacherRecords records;
  records.k = 2;
  records.vocabulary = 50;
  records.training_samples = records.validation_samples = 1;
  records.shard_samples = 2;
  accepts([&] {
    ServedTeacher served(file, corpus);
    ShardRows rows = served.rows(records, records.samples_of(0));
    served.finish(records);
    const Result<RecordedShard> shard = rows.write(scratch().path(), 0);
    require(shard.ok(), "accepted rows can be written", shard.ok() ? "" : shard.error().message);
    require(shard->rows == 6, "accepted rows are all rows of the samples");
  });
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::read_records(text);
  fuzz::read_rows(fuzz::scratch().write("rows.jsonl", text));
  return 0;
}
