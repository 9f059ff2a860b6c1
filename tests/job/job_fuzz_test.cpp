// SPDX-License-Identifier: Apache-2.0
// For any bytes, parsing returns a document or throws a JobError with a single line.
#include <gtest/gtest.h>

#include <random>

#include "runtime/core/result.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"

namespace maestro {
namespace {

constexpr std::string_view sample = R"([train]
steps = 100
clip = "global"
out = 'runs/a'
[student]
lr = 3.5e-4 # a comment
devices = ["cpu:0", "cpu:1"]
nested = { a = 1, "b c" = [1, 2, [3]] }
when = 2024-06-11T10:00:00Z
text = """
two
lines"""
)";

void read_all(const JobDocument& document) {
  const auto root = document.root();
  (void)root.keys();
  (void)read_train(root.table("train"));
  (void)read_section(root.table("student"), "student");
  document.finish();
}

/// Returns 1 for a document, 0 for a JobError; any other exception fails the test.
int parse_and_read(const std::string& text, const std::vector<std::string>& overrides) {
  bool parsed = false;
  try {
    const auto document = JobDocument::parse(text, "job.toml", overrides);
    parsed = true;
    EXPECT_EQ(JobDocument::parse(document.to_toml(), "again.toml").settings(), document.settings());
    read_all(document);
  } catch (const JobError& error) {
    const std::string line = error.what();
    EXPECT_FALSE(line.empty());
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  }
  return parsed ? 1 : 0;
}

TEST(JobFuzz, random_bytes_give_a_document_or_a_job_error) {
  constexpr std::uint64_t seed = 7;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string text(random() % 64, '\0');
    for (char& c : text) c = static_cast<char>(random() & 0xff);
    parse_and_read(text, {});
  }
}

TEST(JobFuzz, random_toml_characters_give_a_document_or_a_job_error) {
  constexpr std::uint64_t seed = 8;
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr std::string_view letters = "[]{}=.,\"'#\n\r\t \\_-+0123eExinfau:TZ";
  std::mt19937_64 random(seed);
  int documents = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string text(random() % 24, '\0');
    for (char& c : text) c = letters[random() % letters.size()];
    documents += parse_and_read(text, {text, "train." + text});
    documents += parse_and_read(text, {});
  }
  EXPECT_GT(documents, 0);
}

TEST(JobFuzz, a_damaged_job_gives_a_document_or_a_job_error) {
  constexpr std::uint64_t seed = 9;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int documents = 0, errors = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text(sample);
    for (auto edits = 1 + random() % 4; edits > 0; --edits) {
      const auto at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random() & 0xff);
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
      }
    }
    (parse_and_read(text, {}) != 0 ? documents : errors)++;
  }
  EXPECT_GT(documents, 0);
  EXPECT_GT(errors, 0);
}

TEST(JobFuzz, deep_nesting_within_a_line_is_refused) {
  std::string dotted = "a";
  while (dotted.size() < 120) dotted += ".a";
  EXPECT_EQ(parse_and_read("[" + dotted + "]\n", {}), 1);
  EXPECT_EQ(parse_and_read("", {dotted + "=1"}), 1);
  while (dotted.size() < 8000) dotted += ".a";
  EXPECT_EQ(parse_and_read("[" + dotted + "]\n", {}), 0);
  EXPECT_EQ(parse_and_read("", {dotted + "=1"}), 0);
  EXPECT_EQ(parse_and_read("x = " + std::string(8000, '['), {}), 0);
  EXPECT_EQ(parse_and_read("", {"x=" + std::string(8000, '[')}), 1);
}

}  // namespace
}  // namespace maestro
