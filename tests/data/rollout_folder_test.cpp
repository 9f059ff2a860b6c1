// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/rollout_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/files/safetensors.hpp"
#include "temp_folder.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::int64_t vocabulary = 40;
constexpr std::uint64_t large_seed = ~std::uint64_t{0} - 5;

class RolloutFolderTest : public ::testing::Test {
 protected:
  static RecordedRollout rollout() {
    return {StepId(12),
            StepId(11),
            {{1, large_seed, true, {{3, 4}, {5, 6, 39}, {-0.5F, -1.25F, -0.0F}}},
             {4, 7, false, {{8}, {9}, {-2.0F}}},
             {5, 8, true, {{8, 8, 8}, {10, 11}, {-3.0F, -4.0F}}}}};
  }
  static std::vector<ExpectedSample> expected(const RecordedRollout& rollout) {
    std::vector<ExpectedSample> wanted;
    for (const RecordedSample& each : rollout.samples) wanted.push_back({each.number, each.sample.prompt, 3});
    return wanted;
  }
  [[nodiscard]] std::string refusal(const std::vector<ExpectedSample>& wanted, StepId step = StepId(12),
                                    std::int64_t tokens = vocabulary) const {
    const auto read = folder_.read(step, wanted, tokens);
    return read ? "" : read.error().message;
  }
  [[nodiscard]] fs::path file() const { return folder_.path() / "00000012.safetensors"; }
  [[nodiscard]] std::string bytes() const {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  TempFolder temp_;
  RolloutFolder folder_{temp_.path() / "run" / "record" / "rollouts"};
  RecordedRollout kept_ = rollout();
};

TEST_F(RolloutFolderTest, samples_are_read_as_they_were_written) {  // QR-2
  folder_.write(kept_).or_throw();
  EXPECT_EQ(folder_.read(StepId(12), expected(kept_), vocabulary).value_or_throw(), kept_);
  const std::string before = bytes();
  folder_.write(rollout()).or_throw();
  EXPECT_EQ(bytes(), before);
}

TEST_F(RolloutFolderTest, a_run_is_found_by_its_folder_or_by_that_of_the_samples) {
  EXPECT_THAT(RolloutFolder::find(temp_.path() / "run").error().message, HasSubstr("run lacks recorded samples"));
  folder_.write(kept_).or_throw();
  EXPECT_EQ(RolloutFolder::find(temp_.path() / "run").value_or_throw().path(), folder_.path());
  EXPECT_EQ(RolloutFolder::find(folder_.path()).value_or_throw().path(), folder_.path());
}

TEST_F(RolloutFolderTest, samples_that_do_not_fit_are_refused_by_name) {  // QR-3
  folder_.write(kept_).or_throw();
  EXPECT_THAT(refusal({}, StepId(13)), HasSubstr("lacks the samples of step 13: 00000013.safetensors is missing"));

  std::vector<ExpectedSample> wanted = expected(kept_);
  const std::vector<std::int32_t> other{8, 8, 7};
  wanted[2].prompt = other;
  EXPECT_THAT(refusal(wanted), HasSubstr("00000012.safetensors: step 12, sample 5 has another prompt"));

  wanted = expected(kept_);
  wanted[0].most_tokens = 2;
  EXPECT_THAT(refusal(wanted), HasSubstr("step 12, sample 1 has a continuation of 3 tokens, and this job allows 2"));

  wanted = expected(kept_);
  EXPECT_THAT(refusal(wanted, StepId(12), 39), HasSubstr("sample 1 has token 39, and the data have 39 tokens"));

  wanted.erase(wanted.begin() + 1);
  EXPECT_THAT(refusal(wanted), HasSubstr("step 12, sample 4 is one that this job reads from the data"));
  wanted.pop_back();
  wanted.push_back({4, kept_.samples[1].sample.prompt, 3});
  EXPECT_THAT(refusal(wanted), HasSubstr("step 12, sample 5 is one that this job reads from the data"));

  wanted = expected(kept_);
  wanted.insert(wanted.begin() + 1, {2, kept_.samples[1].sample.prompt, 3});
  EXPECT_THAT(refusal(wanted), HasSubstr("step 12, sample 2 is missing"));
  wanted = expected(kept_);
  wanted.push_back({6, kept_.samples[1].sample.prompt, 3});
  EXPECT_THAT(refusal(wanted), HasSubstr("step 12, sample 6 is missing"));
}

TEST_F(RolloutFolderTest, a_damaged_file_is_refused) {
  const std::vector<ExpectedSample> wanted = expected(kept_);
  folder_.write(kept_).or_throw();
  const std::string whole = bytes();
  const std::vector<std::size_t> sizes{0, 7, whole.size() / 2, whole.size() - 1};
  for (const std::size_t size : sizes) {
    std::ofstream(file(), std::ios::binary) << whole.substr(0, size);
    EXPECT_THAT(refusal(wanted), HasSubstr("00000012.safetensors")) << size;
  }
  std::ofstream(file(), std::ios::binary) << whole;
  fs::rename(file(), folder_.path() / "00000013.safetensors");
  EXPECT_THAT(refusal(wanted, StepId(13)), HasSubstr("it has the samples of step 12"));

  RecordedRollout wrong = kept_;
  wrong.samples[0].sample.log_probabilities.pop_back();
  folder_.write(wrong).or_throw();
  EXPECT_THAT(refusal(wanted), HasSubstr("its lengths do not add up to its tokens"));
  wrong = kept_;
  std::swap(wrong.samples[0], wrong.samples[1]);
  folder_.write(wrong).or_throw();
  EXPECT_THAT(refusal(wanted), HasSubstr("its numbers do not rise"));
  const std::vector<std::int32_t> one{1};
  write_safetensors(file(), {{"numbers", {one.data(), DType::i32, Shape{1}}}}).value_or_throw();
  EXPECT_THAT(refusal(wanted), HasSubstr("this program does not read its format"));
}

TEST_F(RolloutFolderTest, a_file_that_was_not_finished_is_not_there) {  // QR-1
  // The folder after a kill while the file was written: a hidden temporary file (AF-1).
  fs::create_directories(folder_.path());
  std::ofstream(folder_.path() / ".00000012.safetensors.1234.tmp") << "half";
  EXPECT_FALSE(folder_.has(StepId(12)));
  EXPECT_THAT(refusal(expected(kept_)), HasSubstr("lacks the samples of step 12"));
  EXPECT_FALSE(RolloutFolder::find(folder_.path()).ok());
}

}  // namespace
}  // namespace maestro
