// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/teacher/served_teacher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "runtime/data/synthetic/synthetic_corpus.hpp"
#include "runtime/ops/distillation_options.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using testing::HasSubstr;

constexpr std::size_t positions = 3;

std::shared_ptr<const Corpus> corpus() {
  return std::make_shared<SyntheticCorpus>(
      SyntheticOptions{.sequence = 3, .vocabulary = 50, .train_samples = 2, .validation_samples = 1});
}

TeacherRecords records() {
  TeacherRecords records;
  records.k = 2;
  records.vocabulary = 50;
  records.training_samples = 2;
  records.validation_samples = 1;
  records.shard_samples = 3;
  return records;
}

/// Returns the tokens of the records' n-th sample, followed by its last target.
std::vector<std::int32_t> ids(std::uint64_t number) {
  std::vector<std::int32_t> tokens(positions), targets(positions);
  corpus()->read(number < 2 ? Split::train : Split::validation, SampleId(number % 2), tokens, targets);
  tokens.push_back(targets.back());
  return tokens;
}

std::string list(const std::vector<std::int32_t>& values) {
  std::string text;
  for (const std::int32_t value : values) text += (text.empty() ? "[" : ", ") + std::to_string(value);
  return text + "]";
}

/// Returns a line whose rows have tokens 1 to 3 with probabilities 0.5, 0.25 and 0.125, in another order.
std::string plain_line(std::uint64_t number, std::size_t rows = positions) {
  std::string tokens, logprobs;
  for (std::size_t row = 0; row < rows; ++row) {
    tokens += (row == 0 ? "" : ", ") + std::string("[2, 1, 3]");
    logprobs += (row == 0 ? "" : ", ") + std::string("[-1.3862943611, -0.6931471806, -2.0794415417]");
  }
  return R"({"ids": )" + list(ids(number)) + R"(, "top_ids": [)" + tokens + R"(], "logprobs": [)" + logprobs + "]}\n";
}

/// Returns the same line in vLLM's format, without the last target and so without the last row.
std::string served_line(std::uint64_t number) {
  std::vector<std::int32_t> tokens = ids(number);
  tokens.pop_back();
  std::string rows = "null";
  for (std::size_t row = 0; row + 1 < positions; ++row) {
    rows += R"(, {"2": {"logprob": -1.3862943611, "rank": 2, "decoded_token": "b"}, "1": {"logprob": -0.6931471806},)"
            R"( "3": {"logprob": -2.0794415417}})";
  }
  return R"({"prompt_token_ids": )" + list(tokens) + R"(, "prompt_logprobs": [)" + rows + "]}\n";
}

struct Sample {
  std::vector<float> values = std::vector<float>(2 * positions), rest = std::vector<float>(positions);
  std::vector<std::int32_t> indices = std::vector<std::int32_t>(2 * positions);
};

/// Reads all samples of `text` and writes them as a shard. Returns the second training sample.
Sample second_of(const std::string& text) {
  const TempFolder folder;
  ServedTeacher served(folder.write("rows.jsonl", text), corpus());
  TeacherRecords made = records();
  made.shards.push_back(served.rows(made, made.samples_of(0)).write(folder.path(), 0).value_or_throw());
  served.finish(made);
  save_records(made, folder.path()).or_throw();
  const TeacherShards shards = TeacherShards::open(folder.path(), TeacherShards::Check::content).value_or_throw();
  Sample sample;
  shards.read(Split::train, SampleId(1), {sample.values, sample.indices, sample.rest}).or_throw();
  return sample;
}

std::string refusal(const std::string& text) {
  try {
    (void)second_of(text);
  } catch (const JobError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ServedTeacher, rows_of_both_forms_are_recorded_likeliest_first) {
  const Sample plain = second_of(plain_line(0) + plain_line(1) + plain_line(2));
  EXPECT_EQ(plain.indices, (std::vector<std::int32_t>{1, 2, 1, 2, 1, 2}));
  for (std::size_t row = 0; row < positions; ++row) {
    EXPECT_NEAR(std::exp(plain.values[2 * row]), 0.5, 1e-3);
    EXPECT_NEAR(std::exp(plain.values[2 * row + 1]), 0.25, 1e-3);
    EXPECT_NEAR(std::exp(plain.rest[row]), 0.25, 1e-3);  // the rest includes the third entry
  }
  const Sample served = second_of(served_line(0) + served_line(1) + served_line(2));
  EXPECT_EQ(served.indices, (std::vector<std::int32_t>{1, 2, 1, 2, -1, -1}));
  EXPECT_EQ(served.values[0], plain.values[0]);
  EXPECT_EQ(served.rest[1], plain.rest[1]);
  EXPECT_EQ(served.rest[2], 0);  // this row lacks entries: the rest has all of the probability
}

TEST(ServedTeacher, ids_that_are_not_the_jobs_are_refused_by_line_and_position) {  // SA-1
  const std::string lines[] = {plain_line(0), plain_line(1), plain_line(2)};
  EXPECT_EQ(refusal(lines[0] + lines[1] + lines[2]), "accepted");
  std::vector<std::int32_t> other = ids(1);
  other[2] = (other[2] + 1) % 50;
  std::string changed = lines[1];
  changed.replace(changed.find('['), changed.find(']') - changed.find('[') + 1, list(other));
  const std::string wanted = "rows.jsonl:2: position 2 has token " + std::to_string(other[2]) +
                             ", but sample 1 of the training split has " + std::to_string(ids(1)[2]);
  EXPECT_THAT(refusal(lines[0] + changed + lines[2]), HasSubstr(wanted));
  EXPECT_THAT(refusal(lines[0] + lines[2] + lines[1]), HasSubstr("rows.jsonl:2: position "));
}

TEST(ServedTeacher, lines_without_the_form_are_refused_by_name) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string line = plain_line(0);
    line.replace(line.find(from), from.size(), to);
    return refusal(line + plain_line(1) + plain_line(2));
  };
  EXPECT_THAT(with("{", "["), HasSubstr("rows.jsonl:1"));
  EXPECT_THAT(with("\"ids\"", "\"id\""), HasSubstr("rows.jsonl:1: lacks the list \"ids\""));
  EXPECT_THAT(with("top_ids", "top"), HasSubstr("lacks the list \"top_ids\""));
  EXPECT_THAT(with("[2, 1, 3]", "[2, 1]"), HasSubstr("not lists of the same length"));
  EXPECT_THAT(with("[2, 1, 3]", "[2, 1, 50]"), HasSubstr("names token 50, but the corpus' ids are 0 to 49"));
  EXPECT_THAT(with("[2, 1, 3]", "[2, 1, 1]"), HasSubstr("accepted"));  // the third entry is not kept
  EXPECT_THAT(with("[2, 1, 3]", "[1, 1, 3]"), HasSubstr("names a token twice"));
  EXPECT_THAT(with("-0.6931471806", "0.5"), HasSubstr("has 0.5 instead of a log-probability"));
  EXPECT_THAT(with("-0.6931471806", "\"x\""), HasSubstr("instead of a log-probability"));
  EXPECT_THAT(refusal(plain_line(0, 1) + plain_line(1) + plain_line(2)),
              HasSubstr("has 1 rows of log-probabilities for 3 positions"));
  std::string served = served_line(0);
  served.replace(served.find("null"), 4, "{}");
  EXPECT_THAT(refusal(served), HasSubstr("prompt_logprobs that do not begin with null"));
}

TEST(ServedTeacher, a_file_may_begin_with_a_mark_and_must_be_json) {
  const std::string lines = plain_line(0) + plain_line(1) + plain_line(2);
  EXPECT_EQ(refusal("\xef\xbb\xbf" + lines), "accepted");
  EXPECT_THAT(refusal("PAR1" + lines), HasSubstr("rows.jsonl is Parquet, and a teacher's answers are read from JSON"));
}

/// Returns served_line() within an object, between `before` and `after`.
std::string wrapped(std::uint64_t number, const std::string& before, const std::string& after) {
  std::string line = served_line(number);
  line.pop_back();
  return before + line.substr(1, line.size() - 2) + after + "\n";
}

TEST(ServedTeacher, a_whole_answer_is_read_from_its_only_choice) {
  const Sample plain = second_of(served_line(0) + served_line(1) + served_line(2));
  const Sample whole = second_of(
      served_line(0) + wrapped(1, R"({"id": "c", "choices": [{"index": 0, "text": "", )", "}], \"usage\": {}}") +
      wrapped(2, R"({"choices": [{"message": {"content": "Infinity \" NaN -Infinity"}}], )", "}"));
  EXPECT_EQ(whole.indices, plain.indices);
  EXPECT_EQ(whole.values, plain.values);
  EXPECT_EQ(whole.rest, plain.rest);
  const auto refused = [](const std::string& line) { return refusal(line + served_line(1) + served_line(2)); };
  EXPECT_THAT(refused(wrapped(0, R"({"choices": [{}, {)", "}]}")), HasSubstr("a line answers a single prompt"));
  EXPECT_THAT(refused(R"({"choices": [{"index": 0, "text": "a"}]})"
                      "\n"),
              HasSubstr("rows.jsonl:1: lacks the list \"prompt_token_ids\", also in choices[0]"));
  EXPECT_THAT(refused(R"({"error": {"message": "too long"}})"
                      "\n"),
              HasSubstr(R"(rows.jsonl:1: is a server error: {"message":"too long"})"));
}

TEST(ServedTeacher, minus_infinity_is_probability_0_and_other_numbers_that_json_lacks_are_refused) {
  const auto with = [](const char* value) {
    std::string line = plain_line(1);
    for (std::size_t at = 0; (at = line.find("-1.3862943611", at)) != std::string::npos;) line.replace(at, 13, value);
    return line;
  };
  const Sample sample = second_of(plain_line(0) + with("-Infinity") + plain_line(2));
  EXPECT_EQ(sample.indices, (std::vector<std::int32_t>{1, 3, 1, 3, 1, 3}));  // token 2 has probability 0
  for (const float rest : sample.rest) EXPECT_NEAR(std::exp(rest), 0.375, 1e-3);
  EXPECT_THAT(refusal(plain_line(0) + with("NaN") + plain_line(2)),
              HasSubstr("rows.jsonl:2: has NaN, which is not a log-probability"));
  EXPECT_THAT(refusal(plain_line(0) + with("Infinity") + plain_line(2)), HasSubstr("rows.jsonl:2: has Infinity"));
  EXPECT_THAT(refusal(plain_line(0) + with("-Inf") + plain_line(2)), HasSubstr("rows.jsonl:2"));
}

TEST(ServedTeacher, rows_of_another_temperature_are_refused) {
  const auto stating = [](const char* value) {
    return refusal(wrapped(0, "{", std::string(R"(, "temperature": )") + value + "}") + served_line(1) +
                   served_line(2));
  };
  EXPECT_EQ(stating("1"), "accepted");
  EXPECT_EQ(stating("1.0"), "accepted");
  EXPECT_EQ(stating("null"), "accepted");
  for (const char* value : {"2.0", "0", "\"1\""}) {
    EXPECT_THAT(stating(value), HasSubstr(std::string("rows.jsonl:1: states temperature ") + value));
  }
}

TEST(ServedTeacher, a_line_too_few_or_too_many_is_refused) {
  EXPECT_THAT(refusal(plain_line(0) + plain_line(1)), HasSubstr("rows.jsonl ends after 2 lines"));
  EXPECT_THAT(refusal(plain_line(0) + plain_line(1) + plain_line(2) + "\n" + plain_line(2)),
              HasSubstr("rows.jsonl:4: the job has 3 samples"));
}

}  // namespace
}  // namespace maestro
