// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/recorded_teacher.hpp"

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

/// Refuses records that were made from other data than the corpus.
void check_data(const JobTable& table, const TeacherRecords& records, const Corpus& corpus) {
  const std::string difference = data_difference(records, corpus.fingerprint());
  if (difference.empty()) return;
  table.fail("path",
             "these records are of other data: " + difference +
                 "; use the data and the tokenizer that they were made with, or make records of this data with " +
                 "`maestro teach`");
}

}  // namespace

std::string read_records_path(const JobTable& table) {
  return table.text("path", "", {"recorded_teacher: the folder that `maestro teach` wrote"});
}

RecordedTeacher::Options RecordedTeacher::Options::read(const JobTable& table, const Corpus* corpus) {
  Options options;
  options.path = read_records_path(table);
  const bool verify =
      table.flag("verify", true, {"recorded_teacher: compare all shards with their checksums at the start"});
  if (options.path.empty()) {
    if (corpus == nullptr) return options;
    throw JobError(table.name() + ".path is not given; name the folder that `maestro teach` wrote");
  }
  const Result<TeacherRecords> records = load_records(options.path);
  if (!records) table.fail("path", records.error().message);
  if (corpus != nullptr) check_data(table, *records, *corpus);
  Result<TeacherShards> shards =
      TeacherShards::open(options.path, verify ? TeacherShards::Check::content : TeacherShards::Check::structure);
  if (!shards) table.fail("path", shards.error().message);
  options.shards = std::make_shared<const TeacherShards>(*std::move(shards));
  return options;
}

RecordedTeacher::RecordedTeacher(const SectionContext& context, const Options& options) : options_(options) {
  if (options.shards == nullptr && !context.meta) {
    throw JobError(context.name + ".path is not given; name the folder that `maestro teach` wrote");
  }
  if (context.for_cuda || !context.memory().host()) {
    throw JobError(context.name + ": a recorded teacher is read by CPUs; leave devices out");
  }
}

Ports RecordedTeacher::ports() const {
  const std::int64_t k = options_.shards == nullptr ? 0 : options_.shards->records().k;
  Ports ports;
  ports.inputs = {{"tokens", DType::i32, 1, false, false}};
  ports.outputs = {{"top_values", DType::f32, k, false, false},
                   {"top_indices", DType::i32, k, false, false},
                   {"rest", DType::f32, 1, false, false}};
  return ports;
}

void RecordedTeacher::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Split split = inputs.pass() == Pass::train ? Split::train : Split::validation;
  const std::int64_t rows = inputs.layout().rows();
  const std::int64_t k = options_.shards->records().k;
  Var values = tape.output({rows, k}, DType::f32, false);
  Var indices = tape.output({rows, k}, DType::i32, false);
  Var rest = tape.output({rows, 1}, DType::f32, false);
  for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
    const std::int64_t first = inputs.layout().offsets[at];
    const std::int64_t count = inputs.layout().offsets[at + 1] - first;
    const RecordedRows sample{values.value().row_slice(first, count).span<float>(),
                              indices.value().row_slice(first, count).span<std::int32_t>(),
                              rest.value().row_slice(first, count).span<float>()};
    options_.shards->read(split, inputs.samples()[at], sample).or_throw();
  }
  outputs.set("top_values", std::move(values));
  outputs.set("top_indices", std::move(indices));
  outputs.set("rest", std::move(rest));
}

Cost RecordedTeacher::cost(const SampleShape& sample) const {
  // Reading is not arithmetic; an operation per entry gives plans a nonzero cost.
  return {static_cast<double>(sample.tokens * options_.shards->records().k), 0};
}

std::string RecordedTeacher::description() const {
  const TeacherRecords& records = options_.shards->records();
  std::string text =
      options_.path + ": top " + std::to_string(records.k) + " of " + std::to_string(records.vocabulary) + " tokens";
  if (records.p < 1) text += " up to p = " + std::to_string(records.p);
  return text + ", " + std::to_string(records.samples()) + " samples in " + std::to_string(records.shard_count()) +
         (records.shard_count() == 1 ? " shard" : " shards");
}

}  // namespace maestro
