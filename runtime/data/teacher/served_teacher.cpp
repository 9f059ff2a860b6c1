// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/teacher/served_teacher.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/core/json_text.hpp"
#include "runtime/dataset/file_kind.hpp"
#include "runtime/ops/distillation_options.hpp"

namespace maestro {

using nlohmann::json;

namespace {

constexpr double most_log_probability = 1e-3;  // a server's rounding may result in a little more than 0

struct Entry {
  std::int32_t token = 0;
  double logprob = 0;
};
using TeacherRow = std::vector<Entry>;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw JobError(where + ": " + what);
}

/// Returns the text without the numbers that Python writes but JSON lacks: -Infinity, the logarithm of 0, becomes
/// -1e308. Refuses NaN and Infinity, which are not log-probabilities.
std::string with_infinities(std::string_view text, const std::string& where) {
  constexpr std::string_view infinity = "Infinity", least = "-1e308", not_a_number = "NaN";
  std::string json;
  json.reserve(text.size());
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const std::string_view rest = text.substr(at);
    if (quoted && c == '\\' && rest.size() > 1) {
      json += c;
      json += text[++at];
      continue;
    }
    if (c == '"') quoted = !quoted;
    if (!quoted && c == '-' && rest.substr(1).starts_with(infinity)) {
      json += least;
      at += infinity.size();
      continue;
    }
    for (const std::string_view word : {not_a_number, infinity}) {
      if (!quoted && rest.starts_with(word))
        refuse(where, "has " + std::string(word) + ", which is not a log-probability");
    }
    json += c;
  }
  return json;
}

/// The line that is being read.
struct Line {
  std::string where;
  std::int64_t vocabulary = 0;

  /// Returns the value of a key in the answer or else in its only choice; null if both lack the key.
  [[nodiscard]] const json* find(const json& answer, const char* key) const {
    const auto found = answer.find(key);
    if (found != answer.end() && !found->is_null()) return &*found;
    const auto choices = answer.find("choices");
    if (choices == answer.end() || choices->is_null()) return nullptr;
    if (!choices->is_array() || choices->size() != 1 || !choices->front().is_object()) {
      refuse(where, "has choices that are not a list of a single object; a line answers a single prompt");
    }
    const auto inside = choices->front().find(key);
    return inside == choices->front().end() || inside->is_null() ? nullptr : &*inside;
  }
  [[nodiscard]] const json& list(const json& answer, const char* key) const {
    const json* found = find(answer, key);
    if (found != nullptr && found->is_array()) return *found;
    if (answer.contains("error")) refuse(where, "is a server error: " + shown(answer["error"]));
    refuse(where, std::string("lacks the list \"") + key + "\"" +
                      (answer.contains("choices") ? ", also in choices[0]; ask the server for prompt_logprobs" : ""));
  }
  /// Refuses a temperature other than 1: records hold the teacher's unscaled distribution.
  void check_temperature(const json& answer) const {
    const json* found = find(answer, "temperature");
    if (found == nullptr || *found == 1) return;
    refuse(where,
           "states temperature " + shown(*found) +
               "; records hold log-probabilities of temperature 1: ask the server for these, or remove the key " +
               "if it did not change them");
  }
  [[nodiscard]] std::int32_t token(std::int64_t value) const {
    if (value >= 0 && value < vocabulary) return static_cast<std::int32_t>(value);
    refuse(where,
           "names token " + std::to_string(value) + ", but the corpus' ids are 0 to " + std::to_string(vocabulary - 1));
  }
  [[nodiscard]] std::int32_t token(const json& value) const {
    if (!value.is_number_integer()) refuse(where, "has " + shown(value) + " instead of a token id");
    return token(value.get<std::int64_t>());
  }
  [[nodiscard]] double logprob(const json& value) const {
    if (!value.is_number() || value.get<double>() > most_log_probability) {
      refuse(where, "has " + shown(value) + " instead of a log-probability");
    }
    return value.get<double>();
  }
  [[nodiscard]] TeacherRow row(const json& tokens, const json& logprobs) const {
    if (!tokens.is_array() || !logprobs.is_array() || tokens.size() != logprobs.size()) {
      refuse(where, "has a row whose top_ids and logprobs are not lists of the same length");
    }
    TeacherRow row;
    for (std::size_t at = 0; at < tokens.size(); ++at) row.push_back({token(tokens[at]), logprob(logprobs[at])});
    return row;
  }
  [[nodiscard]] TeacherRow row(const json& served) const {
    if (!served.is_object()) refuse(where, "has " + shown(served) + " in prompt_logprobs instead of an object");
    TeacherRow row;
    for (const auto& [key, value] : served.items()) {
      std::int64_t id = 0;
      const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (failure != std::errc() || end != key.data() + key.size()) {
        refuse(where, "has " + shown(json(key)) + " in prompt_logprobs instead of a token id");
      }
      const auto found = value.is_object() ? value.find("logprob") : value.end();
      if (!value.is_object() || found == value.end()) refuse(where, "has an entry without \"logprob\"");
      row.push_back({token(id), logprob(*found)});
    }
    return row;
  }
  [[nodiscard]] bool is_served(const json& answer) const {
    return find(answer, "prompt_logprobs") != nullptr || answer.contains("choices");
  }
  /// Returns the rows of an object of either form, by position.
  [[nodiscard]] std::vector<TeacherRow> rows(const json& object) const {
    std::vector<TeacherRow> rows;
    if (is_served(object)) {
      const json& served = list(object, "prompt_logprobs");
      if (served.empty() || !served[0].is_null()) refuse(where, "has prompt_logprobs that do not begin with null");
      for (std::size_t at = 1; at < served.size(); ++at) rows.push_back(row(served[at]));
      return rows;
    }
    const json& tokens = list(object, "top_ids");
    const json& logprobs = list(object, "logprobs");
    if (tokens.size() != logprobs.size()) refuse(where, "has top_ids and logprobs of different lengths");
    for (std::size_t at = 0; at < tokens.size(); ++at) rows.push_back(row(tokens[at], logprobs[at]));
    return rows;
  }
};

/// Sorts a row, likeliest first, and adds its first k entries.
void add(const std::string& where, TeacherRow row, std::int64_t k, ShardRows& rows) {
  std::ranges::sort(row, [](const Entry& a, const Entry& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
  });
  std::vector<float> values;
  std::vector<std::int32_t> tokens;
  double named = 0;
  for (const Entry& entry : row) {
    if (static_cast<std::int64_t>(tokens.size()) == k) break;
    values.push_back(static_cast<float>(std::min(entry.logprob, 0.0)));
    tokens.push_back(entry.token);
    named += std::exp(std::min(entry.logprob, 0.0));
  }
  std::vector<std::int32_t> sorted = tokens;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) refuse(where, "has a row that names a token twice");
  const double rest = named < 1 ? std::log1p(-named) : double{least_log_probability};
  rows.add(values, tokens, static_cast<float>(rest));
}

}  // namespace

ServedTeacher::ServedTeacher(std::filesystem::path file, std::shared_ptr<const Corpus> corpus)
    : file_(std::move(file)),
      corpus_(std::move(corpus)),
      bytes_(TextStreamBuffer::open(file_).value_or_throw()),
      in_(bytes_.get()) {
  check_is_json(file_, "a teacher's answers").or_throw();
}

void ServedTeacher::next_line() {
  ++line_;
  if (std::getline(in_, text_)) return;
  bytes_->error().or_throw();
  throw JobError(file_.string() + " ends after " + std::to_string(line_ - 1) +
                 " lines; it must have a line for each sample of the training split, then of the validation split");
}

ShardRows ServedTeacher::rows(const TeacherRecords& records, TeacherRecords::Samples samples) {
  ShardRows rows(records.k, records.p);
  while (line_ < samples.first) next_line();
  for (std::uint64_t number = samples.first; number < samples.first + samples.count; ++number) {
    next_line();
    add_sample(records, number, rows);
  }
  return rows;
}

void ServedTeacher::add_sample(const TeacherRecords& records, std::uint64_t number, ShardRows& rows) const {
  const bool train = number < records.training_samples;
  const SampleId sample(train ? number : number - records.training_samples);
  const Split split = train ? Split::train : Split::validation;
  const auto positions = static_cast<std::size_t>(corpus_->length(split, sample));
  std::vector<std::int32_t> tokens(positions), targets(positions);
  corpus_->read(split, sample, tokens, targets);
  const Line line{where(), records.vocabulary};
  const json object = parse_json(with_infinities(text_, line.where), line.where).value_or_throw();
  if (!object.is_object()) refuse(line.where, "is not a JSON object");
  line.check_temperature(object);
  const json& ids = line.list(object, line.is_served(object) ? "prompt_token_ids" : "ids");
  tokens.push_back(targets.back());
  const std::string of_sample =
      "sample " + std::to_string(sample.value()) + " of the " + (train ? "training" : "validation") + " split";
  if (ids.size() != positions && ids.size() != positions + 1) {
    refuse(line.where, "has " + std::to_string(ids.size()) + " ids, but " + of_sample + " has " +
                           std::to_string(positions) + " tokens; lines must be in the order of the samples");
  }
  for (std::size_t at = 0; at < ids.size(); ++at) {
    const std::int32_t id = line.token(ids[at]);
    if (id == tokens[at] || tokens[at] == ignored_target) continue;
    refuse(line.where, "position " + std::to_string(at) + " has token " + std::to_string(id) + ", but " + of_sample +
                           " has " + std::to_string(tokens[at]) + "; lines must be in the order of the samples");
  }
  const std::vector<TeacherRow> given = line.rows(object);
  if (given.size() != positions && given.size() + 1 != positions) {
    refuse(line.where, "has " + std::to_string(given.size()) + " rows of log-probabilities for " +
                           std::to_string(positions) + " positions");
  }
  rows.begin_sample();
  for (const TeacherRow& row : given) add(line.where, row, records.k, rows);
  if (given.size() < positions) rows.add({}, {}, 0);
}

void ServedTeacher::finish(const TeacherRecords& records) {
  while (line_ < records.samples()) next_line();
  std::string more;
  while (std::getline(in_, more)) {
    if (more.empty()) continue;
    throw JobError(file_.string() + ":" + std::to_string(line_ + 1) + ": the job has " + std::to_string(line_) +
                   " samples; lines must be in the order of the samples, one for each");
  }
}

}  // namespace maestro
