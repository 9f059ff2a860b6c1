// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/teacher/teacher_records.hpp"

#include <algorithm>
#include <cstdio>

#include "runtime/core/json_value.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/files/atomic_file.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::uint64_t format_version = 1;
constexpr std::uint64_t most_samples = std::uint64_t{1} << 40;

RecordedShard shard_of(const JsonValue& object, std::size_t number) {
  RecordedShard shard;
  shard.file = object.at("file").text();
  if (shard.file != shard_name(number)) object.at("file").expected(shard_name(number));
  shard.rows = object.at("rows").count(most_samples);
  shard.entries = object.at("entries").count(most_samples);
  shard.bytes = object.at("bytes").count(most_samples);
  shard.rest = object.at("rest").number();
  shard.checksum = object.at("xxh3_128").text();
  return shard;
}

TeacherRecords records_of(const JsonValue& object) {
  if (object.at("format_version").count(most_samples) > format_version) {
    object.at("format_version")
        .refuse("is newer than this program, which reads up to " + std::to_string(format_version));
  }
  TeacherRecords records;
  records.k = object.at("k").whole_number(0, INT32_MAX);
  records.p = object.at("p").number();
  records.vocabulary = object.at("vocabulary").whole_number(0, INT32_MAX);
  records.teacher = object.at("teacher").texts_by_key();
  records.data = object.at("data").texts_by_key();
  records.training_samples = object.at("training_samples").count(most_samples);
  records.validation_samples = object.at("validation_samples").count(most_samples);
  records.shard_samples = object.at("shard_samples").count(most_samples);
  if (records.k < 1 || records.k > records.vocabulary || records.shard_samples < 1) {
    object.fail("k, vocabulary or shard_samples is out of range");
  }
  for (const JsonValue& shard : object.at("shards").items()) {
    records.shards.push_back(shard_of(shard, records.shards.size()));
  }
  if (records.shards.size() > records.shard_count()) object.at("shards").fail("more shards than the samples fill");
  return records;
}

/// Returns a text about the first name whose values differ, or that only one map has; empty: none.
std::string first_difference(const std::map<std::string, std::string>& stored,
                             const std::map<std::string, std::string>& wanted, const std::string& other) {
  for (const auto& [name, was] : stored) {
    const auto is = wanted.find(name);
    if (is == wanted.end()) return name + " is " + printable(was) + ", but " + other + " has none";
    if (is->second != was) return name + " is " + printable(was) + ", but " + other + " has " + printable(is->second);
  }
  for (const auto& [name, is] : wanted) {
    if (!stored.contains(name)) return name + " is not stated, but " + other + " has " + printable(is);
  }
  return "";
}

std::string number_difference(const char* name, double was, double is) {
  char text[96];
  std::snprintf(text, sizeof text, "%s is %.10g, but this job has %.10g", name, was, is);
  return was == is ? "" : text;
}

}  // namespace

TeacherRecords::Samples TeacherRecords::samples_of(std::uint64_t shard) const {
  const std::uint64_t first = std::min(shard * shard_samples, samples());
  return {first, std::min(shard_samples, samples() - first)};
}

std::string shard_name(std::uint64_t shard) {
  char name[48];
  std::snprintf(name, sizeof name, "teacher-%05llu.safetensors", static_cast<unsigned long long>(shard));
  return name;
}

std::string data_difference(const TeacherRecords& records, const DataFingerprint& corpus) {
  // Values that a person can compare come first, the checksum of everything last.
  DataFingerprint stored = records.data;
  DataFingerprint wanted = corpus;
  const bool same_content = stored["content"] == wanted["content"];
  stored.erase("content");
  wanted.erase("content");
  const std::string named = first_difference(stored, wanted, "the corpus");
  if (!named.empty()) return named;
  return same_content ? "" : "the content of the data differs";
}

std::string difference(const TeacherRecords& stored, const TeacherRecords& wanted) {
  const std::string data = data_difference(stored, wanted.data);
  if (!data.empty()) return data;
  const std::string teacher = first_difference(stored.teacher, wanted.teacher, "this teacher");
  if (!teacher.empty()) return teacher;
  const auto as_number = [](auto value) { return static_cast<double>(value); };
  std::string settings = number_difference("--top-k", as_number(stored.k), as_number(wanted.k));
  if (settings.empty()) settings = number_difference("--top-p", stored.p, wanted.p);
  if (settings.empty()) {
    settings = number_difference("--shard-samples", as_number(stored.shard_samples), as_number(wanted.shard_samples));
  }
  return settings;
}

std::string records_text(const TeacherRecords& records) {
  json shards = json::array();
  for (const RecordedShard& shard : records.shards) {
    shards.push_back({{"file", shard.file},
                      {"rows", shard.rows},
                      {"entries", shard.entries},
                      {"bytes", shard.bytes},
                      {"rest", shard.rest},
                      {"xxh3_128", shard.checksum}});
  }
  const json object = {{"format_version", format_version},
                       {"k", records.k},
                       {"p", records.p},
                       {"vocabulary", records.vocabulary},
                       {"teacher", records.teacher},
                       {"data", records.data},
                       {"training_samples", records.training_samples},
                       {"validation_samples", records.validation_samples},
                       {"shard_samples", records.shard_samples},
                       {"shards", std::move(shards)}};
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<TeacherRecords> parse_records(std::string_view text, std::string_view where) {
  return read_json(text, std::string(where), ErrorCode::corrupt, records_of);
}

Result<TeacherRecords> load_records(const fs::path& folder) {
  const fs::path file = folder / teacher_records_file;
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  return parse_records(*text, file.string());
}

Status save_records(const TeacherRecords& records, const fs::path& folder) {
  const auto written = write_file(folder / teacher_records_file, records_text(records));
  return written ? Status() : Status(written.error());
}

}  // namespace maestro
