// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/teacher/teacher_records.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/data/synthetic/synthetic_corpus.hpp"
#include "runtime/data/teacher/teacher_writer.hpp"
#include "runtime/ops/distillation_options.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

constexpr std::int64_t positions = 3;

TeacherRecords records_of(std::int64_t k = 2, double p = 1) {
  TeacherRecords records;
  records.k = k;
  records.p = p;
  records.vocabulary = 300;
  records.teacher = {{"model", "a model"}, {"weights", "1234"}};
  records.data = {{"vocabulary", "300"}, {"data.sequence", "3"}, {"content", "abcd"}};
  records.training_samples = 5;
  records.validation_samples = 2;
  records.shard_samples = 3;
  return records;
}

/// Returns rows that differ by sample: entry i in row r of sample s is token s + r + i.
ShardRows rows_of(const TeacherRecords& records, std::uint64_t shard) {
  ShardRows rows(records.k, records.p);
  const auto samples = records.samples_of(shard);
  for (std::uint64_t sample = samples.first; sample < samples.first + samples.count; ++sample) {
    rows.begin_sample();
    for (std::int64_t row = 0; row < positions; ++row) {
      std::vector<float> values;
      std::vector<std::int32_t> indices;
      for (std::int64_t i = 0; i < records.k; ++i) {
        values.push_back(-0.75F - static_cast<float>(i));
        indices.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(sample) + row + i));
      }
      rows.add(values, indices, -2.5F);
    }
  }
  return rows;
}

/// Writes up to `most` shards. Returns the shards that this call made.
std::vector<std::uint64_t> write(const fs::path& folder, const TeacherRecords& records, std::size_t most = 99) {
  std::vector<std::uint64_t> made;
  ShardMaker maker;
  maker.rows = [&](const TeacherRecords& of, std::uint64_t shard) -> std::optional<ShardRows> {
    if (made.size() == most) return std::nullopt;
    made.push_back(shard);
    return rows_of(of, shard);
  };
  maker.finished = [](const TeacherRecords&, std::uint64_t, bool) {};
  (void)write_shards(folder, records, maker);
  return made;
}

struct Sample {
  std::vector<float> values, rest;
  std::vector<std::int32_t> indices;
};
Sample sample_of(const TeacherShards& shards, Split split, std::uint64_t id) {
  const auto k = static_cast<std::size_t>(shards.records().k);
  Sample sample{std::vector<float>(positions * k), std::vector<float>(positions),
                std::vector<std::int32_t>(positions * k)};
  shards.read(split, SampleId(id), {sample.values, sample.indices, sample.rest}).or_throw();
  return sample;
}

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const JobError& error) {
    return error.what();
  }
  return "accepted";
}

std::string opening(const fs::path& folder, TeacherShards::Check check = TeacherShards::Check::content) {
  const auto opened = TeacherShards::open(folder, check);
  return opened ? "opened" : opened.error().message;
}

TEST(TeacherRecords, samples_come_back_by_split_and_id) {  // OF-1
  const TempFolder folder;
  EXPECT_EQ(write(folder.path(), records_of()), (std::vector<std::uint64_t>{0, 1, 2}));
  const TeacherShards shards = TeacherShards::open(folder.path(), TeacherShards::Check::content).value_or_throw();
  for (const std::uint64_t id : {4, 0, 2, 3, 1}) {
    const Sample sample = sample_of(shards, Split::train, id);
    const auto first = static_cast<std::int32_t>(id);
    EXPECT_EQ(sample.indices,
              (std::vector<std::int32_t>{first, first + 1, first + 1, first + 2, first + 2, first + 3}));
    EXPECT_EQ(sample.values[0], -0.75F);
    EXPECT_EQ(sample.values[1], -1.75F);
    EXPECT_EQ(sample.rest, (std::vector<float>(3, -2.5F)));
  }
  EXPECT_EQ(sample_of(shards, Split::validation, 1).indices[0], 6);  // the seventh sample
  Sample none{std::vector<float>(6), std::vector<float>(3), std::vector<std::int32_t>(6)};
  EXPECT_FALSE(shards.read(Split::validation, SampleId(2), {none.values, none.indices, none.rest}).ok());
  none.rest.resize(2);
  EXPECT_THAT(shards.read(Split::train, SampleId(1), {none.values, none.indices, none.rest}).error().message,
              HasSubstr("has 3 rows of sample 1, but the corpus has 2 positions"));
}

TEST(TeacherRecords, more_entries_than_a_byte_counts_are_held_too) {
  const TempFolder folder;
  write(folder.path(), records_of(290));
  const TeacherShards shards = TeacherShards::open(folder.path(), TeacherShards::Check::content).value_or_throw();
  const Sample sample = sample_of(shards, Split::train, 4);
  EXPECT_EQ(sample.indices[290 + 289], 4 + 1 + 289);
  EXPECT_EQ(sample.values[200], least_log_probability);  // -200.75 is below it
}

TEST(TeacherRecords, a_row_keeps_the_fewest_entries_that_reach_p) {
  const TempFolder folder;
  TeacherRecords records = records_of(3, 0.8);
  records.training_samples = 1;
  records.validation_samples = 0;
  ShardMaker maker;
  maker.rows = [](const TeacherRecords& of, std::uint64_t) {
    ShardRows rows(of.k, of.p);
    rows.begin_sample();
    const std::int32_t tokens[] = {7, 8, 9};
    const auto add = [&](float a, float b, float c, float rest) {
      const float values[] = {std::log(a), std::log(b), std::log(c)};
      rows.add(values, tokens, std::log(rest));
    };
    add(0.9F, 0.05F, 0.03F, 0.02F);  // only the first
    add(0.5F, 0.31F, 0.1F, 0.09F);   // the first two
    add(0.3F, 0.2F, 0.1F, 0.4F);     // all of them; they do not reach p
    return rows;
  };
  maker.finished = [](const TeacherRecords&, std::uint64_t, bool) {};
  const TeacherRecords written = write_shards(folder.path(), records, maker);
  EXPECT_EQ(written.shards[0].entries, 6U);
  EXPECT_NEAR(written.shards[0].rest, 0.1 + 0.19 + 0.4, 1e-6);
  const TeacherShards shards = TeacherShards::open(folder.path(), TeacherShards::Check::content).value_or_throw();
  const Sample sample = sample_of(shards, Split::train, 0);
  EXPECT_EQ(sample.indices, (std::vector<std::int32_t>{7, -1, -1, 7, 8, -1, 7, 8, 9}));
  EXPECT_EQ(sample.values[1], least_log_probability);
  EXPECT_NEAR(std::exp(sample.rest[0]), 0.1, 1e-3);
  EXPECT_NEAR(std::exp(sample.rest[1]), 0.19, 1e-3);
  EXPECT_NEAR(std::exp(sample.rest[2]), 0.4, 1e-3);
}

TEST(TeacherRecords, a_stopped_run_continues_with_the_bytes_of_an_undisturbed_one) {  // OF-2
  const TempFolder whole, stopped;
  write(whole.path(), records_of());
  EXPECT_EQ(write(stopped.path(), records_of(), 1), (std::vector<std::uint64_t>{0}));
  EXPECT_THAT(opening(stopped.path()), HasSubstr("has 1 of 3 shards: teacher-00001.safetensors is not there yet"));
  // As after a kill: a shard is written, but not listed.
  fs::copy_file(whole.path() / "teacher-00001.safetensors", stopped.path() / "teacher-00001.safetensors");
  EXPECT_EQ(write(stopped.path(), records_of()), (std::vector<std::uint64_t>{1, 2}));
  for (const char* file :
       {"teacher-00000.safetensors", "teacher-00001.safetensors", "teacher-00002.safetensors", "teacher.json"}) {
    EXPECT_EQ(content(whole.path() / file), content(stopped.path() / file)) << file;
  }
  EXPECT_TRUE(write(stopped.path(), records_of()).empty());
  // Only missing or damaged shards in the middle are written again.
  fs::remove(stopped.path() / "teacher-00001.safetensors");
  EXPECT_EQ(write(stopped.path(), records_of()), (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(opening(stopped.path()), "opened");
}

TEST(TeacherRecords, a_folder_has_a_single_writer_which_removes_what_a_killed_one_left) {
  const TempFolder folder;
  folder.write(".teacher-00001.safetensors.77.0", "x");
  folder.write(".teacher.json.77.0", "x");
  folder.write(".other", "x");
  std::string second;
  ShardMaker maker;
  maker.rows = [&](const TeacherRecords& of, std::uint64_t shard) {
    if (shard == 0) second = refusal([&] { write(folder.path(), records_of()); });
    return rows_of(of, shard);
  };
  maker.finished = [](const TeacherRecords&, std::uint64_t, bool) {};
  EXPECT_TRUE(write_shards(folder.path(), records_of(), maker).complete());
  EXPECT_THAT(second, HasSubstr("cannot write records: " + folder.path().string() + " is in use by job 'teach'"));
  EXPECT_FALSE(fs::exists(folder.path() / ".teacher-00001.safetensors.77.0"));
  EXPECT_FALSE(fs::exists(folder.path() / ".teacher.json.77.0"));
  EXPECT_TRUE(fs::exists(folder.path() / ".other"));
  EXPECT_TRUE(write(folder.path(), records_of()).empty());  // the lock is free again
}

TEST(TeacherRecords, a_folder_of_another_job_is_refused_with_the_difference) {  // OF-3
  const TempFolder folder;
  write(folder.path(), records_of());
  const auto against = [&](auto change) {
    TeacherRecords other = records_of();
    change(other);
    return refusal([&] { write(folder.path(), other); });
  };
  using R = TeacherRecords;
  EXPECT_THAT(against([](R& r) { r.k = 4; }), HasSubstr("records of another job: --top-k is 2, but this job has 4"));
  EXPECT_THAT(against([](R& r) { r.p = 0.5; }), HasSubstr("--top-p is 1, but this job has 0.5"));
  EXPECT_THAT(against([](R& r) { r.shard_samples = 9; }), HasSubstr("--shard-samples is 3, but this job has 9"));
  EXPECT_THAT(against([](R& r) { r.data["data.sequence"] = "4"; }),
              HasSubstr("data.sequence is 3, but the corpus has 4"));
  EXPECT_THAT(against([](R& r) { r.data["content"] = "x"; }), HasSubstr("the content of the data differs"));
  EXPECT_THAT(against([](R& r) { r.teacher["weights"] = "5"; }), HasSubstr("weights is 1234, but this teacher has 5"));
  EXPECT_EQ(against([](R&) {}), "accepted");
  folder.write("teacher.json", "{");
  EXPECT_THAT(against([](R&) {}), HasSubstr("remove the folder's records"));
}

TEST(TeacherRecords, damage_and_gaps_are_named_with_the_file) {  // OF-3
  const TempFolder folder;
  write(folder.path(), records_of());
  const fs::path shard = folder.path() / "teacher-00001.safetensors";
  const std::string bytes = content(shard);
  std::string altered = bytes;
  altered.back() = static_cast<char>(altered.back() ^ 1);
  folder.write("teacher-00001.safetensors", altered);
  EXPECT_THAT(opening(folder.path()),
              AllOf(HasSubstr("teacher-00001.safetensors is damaged: its checksum"), HasSubstr("maestro teach")));
  folder.write("teacher-00001.safetensors", bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(opening(folder.path(), TeacherShards::Check::structure), HasSubstr("bytes, but teacher.json states"));
  fs::remove(shard);
  EXPECT_THAT(opening(folder.path()), HasSubstr("teacher-00001.safetensors is missing"));
  EXPECT_THAT(opening(folder.path() / "nowhere"), HasSubstr("teacher.json"));
}

TEST(TeacherRecords, their_text_reads_back_and_unsound_text_is_refused) {
  TeacherRecords records = records_of();
  records.shards.push_back({"teacher-00000.safetensors", 9, 18, 400, 0.1, "ff"});
  const std::string text = records_text(records);
  const TeacherRecords again = parse_records(text, "teacher.json").value_or_throw();
  EXPECT_EQ(records_text(again), text);
  EXPECT_EQ(again.shards[0].rest, 0.1);
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    const auto parsed = parse_records(changed, "teacher.json");
    return parsed ? "accepted" : parsed.error().message;
  };
  EXPECT_THAT(error("\"k\": 2", "\"k\": 0"), HasSubstr("out of range"));
  EXPECT_THAT(error("\"k\": 2", "\"k\": -2"), HasSubstr("k: expected a whole number from 0 to 2147483647, got -2"));
  EXPECT_THAT(error("\"k\": 2", "\"k\": 301"), HasSubstr("out of range"));
  EXPECT_THAT(error("\"shard_samples\": 3", "\"shard_samples\": 0"), HasSubstr("out of range"));
  EXPECT_THAT(error("teacher-00000", "../../x"), HasSubstr("expected teacher-00000.safetensors, got"));
  EXPECT_THAT(error("\"format_version\": 1", "\"format_version\": 2"), HasSubstr("newer than this program"));
  EXPECT_THAT(error("\"rows\"", "\"rose\""), HasSubstr("shards[0].rows is missing"));
}

TEST(TeacherRecords, other_data_are_named_before_their_checksum) {
  const SyntheticCorpus corpus({.sequence = 8, .vocabulary = 16, .train_samples = 4, .validation_samples = 2});
  TeacherRecords records = records_of();
  records.data = corpus.fingerprint();
  EXPECT_EQ(data_difference(records, corpus.fingerprint()), "");
  records.data["seed"] = "7";
  EXPECT_THAT(data_difference(records, corpus.fingerprint()), HasSubstr("seed is 7, but the corpus has 1"));
}

}  // namespace
}  // namespace maestro
