// SPDX-License-Identifier: Apache-2.0
// Random slips in names of real keys: each is refused at its place, with a name at least as near as the intended key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/core/nearest_name.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/model/decoder_config.hpp"
#include "tests/job/job_error.hpp"

namespace maestro {
namespace {

const std::vector<std::string> student_keys{
    "replicas",   "micro_batch", "devices",      "precision",    "weights",    "max_in_flight", "lr",
    "min_lr",     "schedule",    "warmup_steps", "weight_decay", "beta1",      "beta2",         "epsilon",
    "clip_norm",  "family",      "layers",       "width",        "heads",      "kv_heads",      "ffn",
    "vocabulary", "positions",   "tied",         "init_std",     "rope_theta", "norm_epsilon"};

void read_student(const JobDocument& document) {
  const auto student = document.root().table("student");
  (void)read_section(student, "student");
  (void)read_decoder(student);
  document.finish();
}

/// Applies an insertion, a deletion, a substitution or a swap of neighbours.
std::string slip(std::string name, std::mt19937_64& random) {
  const auto at = random() % name.size();
  const char letter = static_cast<char>('a' + random() % 26);
  switch (random() % 4) {
    case 0:
      name.insert(at, 1, letter);
      break;
    case 1:
      name.erase(at, 1);
      break;
    case 2:
      name[at] = letter;
      break;
    default:
      std::swap(name[at], name[at == 0 ? name.size() - 1 : at - 1]);
  }
  return name;
}

TEST(JobMisspelling, every_slip_in_a_section_key_is_refused_with_a_nearest_name) {
  constexpr std::uint64_t seed = 20240611;
  std::mt19937_64 random(seed);
  int meant_one_named = 0, slips = 0;
  for (int round = 0; round < 1000; ++round) {
    const auto& meant = student_keys[random() % student_keys.size()];
    const auto wrong = slip(meant, random);
    if (wrong.empty() || std::find(student_keys.begin(), student_keys.end(), wrong) != student_keys.end()) continue;
    const auto document = JobDocument::parse("[student]\nreplicas = 1\n" + wrong + " = 1\n", "job.toml");
    // `replicas` comes first, so that a slip in it does not name a key twice.
    const auto error = job_error_of([&] { read_student(document); });
    ASSERT_THAT(error, testing::StartsWith("job.toml:3: student." + wrong + ": unknown key; "))
        << "seed " << seed << " round " << round;
    const auto quote = error.find("did you mean '");
    if (quote == std::string::npos) {
      // Only a two-letter name can change so much in one slip.
      ASSERT_LE(std::min(meant.size(), wrong.size()), 2u) << error;
      continue;
    }
    const auto named = error.substr(quote + 14, error.rfind('\'') - quote - 14);
    ASSERT_LE(edit_distance(wrong, named), edit_distance(wrong, meant)) << error;
    ++slips;
    meant_one_named += named == meant ? 1 : 0;
  }
  EXPECT_GT(slips, 800);
  // A tie may rarely select another key (beta1, beta2).
  EXPECT_GT(meant_one_named, slips * 9 / 10);
}

TEST(JobMisspelling, the_keys_spelt_right_are_all_known) {
  for (const auto& key : student_keys) {
    const auto document = JobDocument::parse("[student]\n" + key + " = []\n", "job.toml");
    EXPECT_THAT(job_error_of([&] { read_student(document); }), testing::Not(testing::HasSubstr("unknown"))) << key;
  }
}

}  // namespace
}  // namespace maestro
