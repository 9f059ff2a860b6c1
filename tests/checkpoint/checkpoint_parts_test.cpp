// SPDX-License-Identifier: Apache-2.0
// Sections whose tensors several writers put into one folder, as pipeline stages do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <latch>
#include <thread>

#include "runtime/checkpoint/section_digest.hpp"
#include "tests/checkpoint/section_fixture.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t step = 7;

/// A staged checkpoint of section "deep", written part by part.
class CheckpointParts : public testing::Test {
 protected:
  std::vector<FileRecord> write(const SectionState& state) {
    auto records = store_.write_section(staging_, "deep", state);
    EXPECT_TRUE(records.ok()) << records.error().message;
    return records ? *records : std::vector<FileRecord>();
  }
  std::vector<FileRecord> write(StatePart part) {
    SmallSection section(step, part);
    return write(section.state());
  }
  void stage(const std::vector<FileRecord>& records) {
    manifest_.files.insert(manifest_.files.end(), records.begin(), records.end());
  }
  void stage_all(std::uint32_t count) {
    for (std::uint32_t index = 0; index < count; ++index) stage(write(StatePart{index, count}));
  }
  /// Keeps the files, but removes their records from the manifest.
  void forget(const std::string& file) {
    std::erase_if(manifest_.files, [&](const FileRecord& record) { return record.path == "deep/" + file; });
  }
  Status commit() { return store_.commit(staging_, manifest_); }
  /// Commits parts that must be refused, and checks that reading them is refused, too. Returns the message.
  std::string refusal() {
    const Status committed = commit();
    EXPECT_FALSE(committed.ok());
    EXPECT_EQ(committed.error().code, ErrorCode::corrupt);
    EXPECT_FALSE(store_.latest().ok());
    const auto forced = write_file(staging_ / manifest_file, manifest_text(manifest_));
    EXPECT_TRUE(forced.ok());
    const auto read = read_section(staging_, "deep");
    EXPECT_FALSE(read.ok());
    EXPECT_EQ("cannot commit: " + read.error().message, committed.error().message);
    EXPECT_THAT(committed.error().message, AllOf(HasSubstr("section deep"), IsOneLine()));
    return committed.error().message;
  }
  [[nodiscard]] std::vector<std::string> files_of(const fs::path& checkpoint) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(checkpoint / "deep")) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  TempFolder folder_;
  CheckpointStore store_{folder_.path()};
  fs::path staging_ = store_.begin(StepId(step)).value_or_throw();
  Manifest manifest_ = [] {
    Manifest manifest;
    manifest.step = step;
    return manifest;
  }();
};

std::vector<NamedTensor> by_name(std::vector<NamedTensor> tensors) {
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  return tensors;
}

void expect_same(const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& expected) {
  const auto left = by_name(found), right = by_name(expected);
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t at = 0; at < left.size(); ++at) {
    EXPECT_EQ(left[at].name, right[at].name);
    ASSERT_EQ(left[at].tensor.shape(), right[at].tensor.shape());
    EXPECT_EQ(std::memcmp(left[at].tensor.raw(), right[at].tensor.raw(), right[at].tensor.bytes()), 0);
  }
}

TEST_F(CheckpointParts, have_the_digest_of_the_whole_section) {  // DX-1
  std::vector<SmallSection> parts;
  SectionState whole;
  for (std::uint32_t index = 0; index < 2; ++index) parts.emplace_back(step, StatePart{index, 2});
  for (SmallSection& part : parts) {
    const SectionState state = part.state();
    stage(write(state));
    whole.config = state.config;
    whole.optimizer_step = state.optimizer_step;
    whole.parameters.insert(whole.parameters.begin(), state.parameters.begin(), state.parameters.end());
    whole.optimizer.insert(whole.optimizer.begin(), state.optimizer.begin(), state.optimizer.end());
  }
  ASSERT_TRUE(commit().ok());
  const auto in_parts = section_digests(store_.latest().value_or_throw()).value_or_throw();
  const auto digest_of = [&](const SectionState& state) {
    staging_ = store_.begin(StepId(step)).value_or_throw();
    manifest_.files = write(state);
    EXPECT_TRUE(commit().ok());
    return section_digests(store_.latest().value_or_throw()).value_or_throw().at("deep");
  };
  EXPECT_EQ(digest_of(whole), in_parts.at("deep"));
  parts.front().flip_a_bit();
  EXPECT_NE(digest_of(whole), in_parts.at("deep")) << "one bit of a moment differs";
  parts.front().flip_a_bit();
  std::swap(whole.parameters.front().name, whole.parameters.back().name);
  EXPECT_NE(digest_of(whole), in_parts.at("deep")) << "two tensors have changed places";
}

TEST_F(CheckpointParts, read_back_as_one_section_bit_for_bit_SF1) {  // SF-1
  for (const std::uint32_t count : {2u, 3u}) {
    SCOPED_TRACE(std::to_string(count) + " parts");
    staging_ = store_.begin(StepId(step)).value_or_throw();
    manifest_.files.clear();
    std::vector<SmallSection> parts;
    SectionState expected;
    for (std::uint32_t index = 0; index < count; ++index) parts.emplace_back(step, StatePart{index, count});
    for (SmallSection& part : parts) {
      const SectionState state = part.state();
      stage(write(state));
      expected.parameters.insert(expected.parameters.end(), state.parameters.begin(), state.parameters.end());
      expected.optimizer.insert(expected.optimizer.end(), state.optimizer.begin(), state.optimizer.end());
    }
    const Status committed = commit();
    ASSERT_TRUE(committed.ok()) << committed.error().message;
    const fs::path checkpoint = store_.latest().value_or_throw();
    ASSERT_TRUE(verify_checkpoint(checkpoint).ok());
    auto read = read_section(checkpoint, "deep");
    ASSERT_TRUE(read.ok()) << read.error().message;
    const StoredSection stored = *std::move(read);
    EXPECT_EQ(stored.state.config, parts.front().state().config);
    EXPECT_EQ(stored.state.optimizer_step, step);
    EXPECT_EQ(stored.state.part, StatePart{});
    EXPECT_EQ(stored.model.size(), count);
    EXPECT_EQ(stored.optimizer.size(), count);
    expect_same(stored.state.parameters, expected.parameters);
    expect_same(stored.state.optimizer, expected.optimizer);
  }
}

TEST_F(CheckpointParts, have_the_names_of_hugging_face_shards_with_one_config) {
  stage_all(3);
  ASSERT_TRUE(commit().ok());
  EXPECT_THAT(files_of(store_.latest().value_or_throw()),
              ElementsAre("config.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors", "model.safetensors.index.json",
                          "optimizer-00001-of-00003.safetensors", "optimizer-00002-of-00003.safetensors",
                          "optimizer-00003-of-00003.safetensors"));
}

TEST_F(CheckpointParts, a_section_of_one_part_has_the_three_files_of_a_whole_one_and_no_index) {
  stage_all(1);
  ASSERT_TRUE(commit().ok());
  const fs::path checkpoint = store_.latest().value_or_throw();
  EXPECT_THAT(files_of(checkpoint), ElementsAre("config.json", "model.safetensors", "optimizer.safetensors"));
  EXPECT_EQ(load_checkpoint(checkpoint).value_or_throw().files, manifest_.files);
}

TEST_F(CheckpointParts, the_index_tells_every_tensors_file_and_the_bytes_of_all) {
  SmallSection first(step, {0, 2}), second(step, {1, 2});
  SectionState state = first.state();
  state.parameters.push_back({"wte.weight", state.parameters.front().tensor});
  stage(write(state));
  state = second.state();
  state.parameters.push_back({"a.bias", state.parameters.front().tensor});
  stage(write(state));
  ASSERT_TRUE(commit().ok());
  const fs::path checkpoint = store_.latest().value_or_throw();
  EXPECT_EQ(contents_of(checkpoint / "deep/model.safetensors.index.json"), R"({
  "metadata": {
    "total_size": 64
  },
  "weight_map": {
    "a.bias": "model-00002-of-00002.safetensors",
    "h.0.weight": "model-00001-of-00002.safetensors",
    "h.1.weight": "model-00002-of-00002.safetensors",
    "wte.weight": "model-00001-of-00002.safetensors"
  }
}
)");
  const Manifest manifest = load_checkpoint(checkpoint).value_or_throw();
  EXPECT_EQ(manifest.files.size(), manifest_.files.size() + 1);
  EXPECT_EQ(manifest.files.back().path, "deep/model.safetensors.index.json");
}

TEST_F(CheckpointParts, the_index_is_durable_before_the_manifest_and_after_every_part_CK1) {  // CK-1
  std::vector<std::string> operations;
  const CheckpointStoreOptions options{
      .after = [&](std::string_view operation) { operations.emplace_back(operation); }};
  ASSERT_TRUE(write_checkpoint(CheckpointStore(folder_.path(), options), step).ok());
  const auto position = [&](const std::string& operation) {
    EXPECT_EQ(std::ranges::count(operations, operation), 1) << operation;
    return std::ranges::find(operations, operation) - operations.begin();
  };
  EXPECT_LT(position("rename optimizer-00002-of-00002.safetensors"), position("create model.safetensors.index.json"));
  EXPECT_LT(position("flush model.safetensors.index.json"), position("rename model.safetensors.index.json"));
  EXPECT_LT(position("rename model.safetensors.index.json"), position("create checkpoint.json"));
}

TEST_F(CheckpointParts, may_be_written_at_once) {
  constexpr std::uint32_t count = 8;
  std::vector<std::vector<FileRecord>> records(count);
  std::latch start(count);
  std::vector<std::thread> writers;
  for (std::uint32_t index = 0; index < count; ++index) {
    writers.emplace_back([&, index] {
      start.arrive_and_wait();
      records[index] = write(StatePart{index, count});
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (std::uint32_t index = count; index-- > 0;) stage(records[index]);  // in any order
  const Status committed = commit();
  ASSERT_TRUE(committed.ok()) << committed.error().message;
  const auto stored = read_section(store_.latest().value_or_throw(), "deep").value_or_throw();
  ASSERT_EQ(stored.state.parameters.size(), count);
  EXPECT_EQ(stored.state.parameters.back().name, "h.7.weight");
}

TEST_F(CheckpointParts, a_part_without_tensors_is_a_part_all_the_same) {
  stage(write(StatePart{0, 2}));
  SectionState empty;
  empty.optimizer_step = step;
  empty.part = {1, 2};
  stage(write(empty));
  ASSERT_TRUE(commit().ok());
  const fs::path checkpoint = store_.latest().value_or_throw();
  EXPECT_EQ(read_section(checkpoint, "deep").value_or_throw().state.parameters.size(), 1u);
  EXPECT_THAT(contents_of(checkpoint / "deep/model.safetensors.index.json"), testing::Not(HasSubstr("00002-of")));
}

TEST_F(CheckpointParts, a_second_checkpoint_in_other_parts_leaves_no_file_of_the_first) {
  stage_all(3);
  ASSERT_TRUE(commit().ok());
  staging_ = store_.begin(StepId(step)).value_or_throw();
  manifest_.files.clear();
  stage_all(1);
  ASSERT_TRUE(commit().ok());
  EXPECT_THAT(files_of(store_.latest().value_or_throw()),
              ElementsAre("config.json", "model.safetensors", "optimizer.safetensors"));
}

TEST_F(CheckpointParts, a_missing_part_is_named_SF1) {  // SF-1
  const char* const parts[] = {"1 of 3, model-00001", "2 of 3, model-00002", "3 of 3, model-00003"};
  for (std::uint32_t missing = 0; missing < 3; ++missing) {
    manifest_.files.clear();
    for (std::uint32_t index = 0; index < 3; ++index) {
      if (index != missing) stage(write(StatePart{index, 3}));
    }
    EXPECT_THAT(refusal(), HasSubstr("lacks part " + std::string(parts[missing]) + "-of-00003.safetensors"));
  }
}

TEST_F(CheckpointParts, a_missing_optimizer_file_is_named_SF1) {  // SF-1
  stage_all(2);
  forget("optimizer-00002-of-00002.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("lacks part 2 of 2, optimizer-00002-of-00002.safetensors"));
  forget("optimizer-00001-of-00002.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("lacks optimizer.safetensors or its parts"));
}

TEST_F(CheckpointParts, files_that_were_not_written_together_are_refused_SF1) {  // SF-1
  stage(write(StatePart{0, 2}));
  stage(write(StatePart{1, 3}));
  EXPECT_THAT(refusal(), HasSubstr("both model-00001-of-00002.safetensors and model-00002-of-00003.safetensors"));
  manifest_.files.clear();
  stage_all(2);
  stage(write(StatePart{}));
  EXPECT_THAT(refusal(), HasSubstr("both model.safetensors and model-00002-of-00002.safetensors"));
  manifest_.files.clear();
  stage_all(2);
  stage(write(StatePart{}));
  forget("model.safetensors");
  forget("optimizer-00001-of-00002.safetensors");
  forget("optimizer-00002-of-00002.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("2 model and 1 optimizer files"));
}

TEST_F(CheckpointParts, a_part_reported_twice_is_named_SF1) {  // SF-1
  stage_all(2);
  const auto again = write(StatePart{1, 2});
  stage(again);
  EXPECT_THAT(refusal(), HasSubstr("two records of model-00002-of-00002.safetensors"));
}

TEST_F(CheckpointParts, a_tensor_in_two_parts_is_named_with_both_SF2) {  // SF-2
  SmallSection first(step, {0, 3}), second(step, {1, 3}), third(step, {2, 3});
  stage(write(first.state()));
  stage(write(second.state()));
  SectionState state = third.state();
  state.parameters.push_back({"h.0.weight", state.parameters.front().tensor});
  stage(write(state));
  EXPECT_THAT(refusal(), HasSubstr("tensor h.0.weight in two parts, model-00001-of-00003.safetensors and "
                                   "model-00003-of-00003.safetensors"));
  manifest_.files.clear();
  stage(write(first.state()));
  stage(write(second.state()));
  state = third.state();
  state.optimizer.push_back({"exp_avg.h.1.weight", state.optimizer.front().tensor});
  stage(write(state));
  EXPECT_THAT(refusal(), HasSubstr("tensor exp_avg.h.1.weight in two parts, optimizer-00002-of-00003.safetensors and "
                                   "optimizer-00003-of-00003.safetensors"));
}

TEST_F(CheckpointParts, of_different_steps_are_refused_naming_the_files_SF2) {  // SF-2
  stage(write(StatePart{0, 2}));
  SmallSection second(step, {1, 2});
  SectionState state = second.state();
  state.optimizer_step = step + 1;
  stage(write(state));
  EXPECT_THAT(refusal(), HasSubstr("optimizer-00001-of-00002.safetensors has optimizer_step 7, "
                                   "optimizer-00002-of-00002.safetensors has 8"));
}

TEST_F(CheckpointParts, damage_to_any_file_is_found_and_named) {
  stage_all(2);
  ASSERT_TRUE(commit().ok());
  const fs::path checkpoint = store_.latest().value_or_throw();
  std::string model = contents_of(checkpoint / "deep/model-00002-of-00002.safetensors");
  model.back() = static_cast<char>(model.back() ^ 1);
  folder_.write(checkpoint / "deep/model-00002-of-00002.safetensors", model);
  fs::resize_file(checkpoint / "deep/optimizer-00001-of-00002.safetensors", 9);
  fs::remove(checkpoint / "deep/model.safetensors.index.json");
  const auto named = AllOf(HasSubstr("deep/model-00002-of-00002.safetensors was altered"),
                           HasSubstr("deep/optimizer-00001-of-00002.safetensors has 9 bytes"),
                           HasSubstr("deep/model.safetensors.index.json is missing"), IsOneLine());
  EXPECT_THAT(verify_checkpoint(checkpoint).error().message, named);
  EXPECT_THAT(read_section(checkpoint, "deep").error().message, named);
}

TEST_F(CheckpointParts, that_cannot_be_are_refused) {
  for (const StatePart part : {StatePart{1, 1}, StatePart{0, 0}, StatePart{3, 2}, StatePart{0, 100000}}) {
    SectionState state;
    state.part = part;
    const auto records = store_.write_section(staging_, "deep", state);
    ASSERT_FALSE(records.ok()) << part.index << " of " << part.count;
    EXPECT_EQ(records.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(records.error().message,
                AllOf(HasSubstr("section deep"), HasSubstr(" of " + std::to_string(part.count)), IsOneLine()));
  }
}

TEST_F(CheckpointParts, a_file_in_place_of_the_sections_folder_is_named) {
  folder_.write(staging_ / "deep", "");
  SmallSection section(step, {1, 2});
  const auto records = store_.write_section(staging_, "deep", section.state());
  ASSERT_FALSE(records.ok());
  EXPECT_THAT(records.error().message, AllOf(HasSubstr("cannot create folder"), HasSubstr("/deep"), IsOneLine()));
}

}  // namespace
}  // namespace maestro
