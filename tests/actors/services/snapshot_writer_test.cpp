// SPDX-License-Identifier: Apache-2.0
#include "actors/services/snapshot_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

/// A section with a parameter of 16 values.
class Plain final : public Section {
 public:
  explicit Plain(DType moments = DType::f32) {
    parameters_.add({"w", Shape{4, 4}, true, [](std::span<float> values) { std::ranges::fill(values, 0.0f); }});
    parameters_.allocate(true, host_memory(), InitialValues::drawn, moments);
  }
  [[nodiscard]] Ports ports() const override { return {}; }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& /*tape*/, const Inputs& /*inputs*/, Outputs& /*outputs*/) override {}
  [[nodiscard]] Cost cost(const SampleShape& /*sample*/) const override { return {}; }
  [[nodiscard]] std::vector<StateEntry> state() override { return {{"w", parameters_.find("w")}}; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 private:
  Parameters parameters_;
};

class SnapshotWriterTest : public ::testing::Test {
 protected:
  /// Returns whether the writer is busy() during `work`'s report.
  bool busy_in_report(const std::function<void()>& work) {
    std::promise<bool> seen;
    const auto look = [&] { seen.set_value(writer_.busy()); };
    writer_.run(
        [&]() -> SnapshotWriter::Report {
          EXPECT_TRUE(writer_.busy());
          work();
          return look;
        },
        [&](const std::string&) { look(); });
    return seen.get_future().get();
  }

  TempFolder folder_;
  SnapshotWriter writer_{CheckpointStore(folder_.path())};
};

TEST_F(SnapshotWriterTest, the_receiver_of_a_report_never_reads_its_work_as_under_way) {
  EXPECT_FALSE(writer_.busy());
  EXPECT_FALSE(busy_in_report([] {}));
  EXPECT_FALSE(busy_in_report([] { throw std::runtime_error("the disk is full"); }));
}

TEST_F(SnapshotWriterTest, an_exception_of_the_work_is_reported_as_one_line) {
  std::promise<std::string> line;
  writer_.run([]() -> SnapshotWriter::Report { throw std::runtime_error("the disk is full"); },
              [&](const std::string& problem) { line.set_value(problem); });
  EXPECT_EQ(line.get_future().get(), "the disk is full");
}

void store(SnapshotWriter& writer, StepId step, Plain& section, SectionSnapshot into = {}) {
  Section* const alone[] = {&section};
  SectionSnapshot snapshot = take_snapshot(alone, "plain", std::move(into)).value_or_throw();
  std::promise<Result<std::vector<FileRecord>>> written;
  const std::filesystem::path staging = writer.store().begin(step).value_or_throw();
  writer.write(staging, std::move(snapshot), [&](auto files) { written.set_value(std::move(files)); });
  Manifest manifest;
  manifest.step = step.value();
  manifest.files = written.get_future().get().value_or_throw();
  ASSERT_TRUE(writer.store().commit(staging, manifest).ok());
}

/// Writes a checkpoint of `section` and reads it back; compares both.
void expect_round_trip(SnapshotWriter& writer, StepId step, Plain& section, SectionSnapshot into = {}) {
  store(writer, step, section, std::move(into));
  Plain restored;
  const Status done = restore_snapshot(restored, writer.store().latest().value_or_throw(), "plain");
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(restored.parameters().updates(), section.parameters().updates());
  for (const ParameterBuffer which :
       {ParameterBuffer::values, ParameterBuffer::first_moments, ParameterBuffer::second_moments}) {
    EXPECT_TRUE(std::ranges::equal(restored.parameters().buffer(which).span<float>(),
                                   section.parameters().buffer(which).span<float>()));
  }
}

void fill(Plain& section, ParameterBuffer which, float first) {
  std::ranges::generate(section.parameters().buffer(which).span<float>(),
                        [value = first]() mutable { return value++; });
}

void fill(Plain& section, float first) {
  fill(section, ParameterBuffer::values, first);
  fill(section, ParameterBuffer::first_moments, 2 * first);
  fill(section, ParameterBuffer::second_moments, 3 * first);
}

TEST_F(SnapshotWriterTest, a_section_gets_its_values_its_moments_and_its_updates_back) {
  Plain section;
  fill(section, 100);
  section.parameters().set_updates(7);
  expect_round_trip(writer_, StepId(3), section);
  EXPECT_EQ(writer_.spare("plain", {}).values.memory.size(), 0u) << "nothing is kept";
}

TEST_F(SnapshotWriterTest, a_section_that_gets_only_its_values_back_has_no_updates_and_zero_moments) {  // TS-1
  Plain section, restored;
  fill(section, 100);
  section.parameters().set_updates(7);
  store(writer_, StepId(3), section);
  const auto latest = writer_.store().latest().value_or_throw();
  ASSERT_TRUE(restore_snapshot(restored, latest, "plain", RestoredState::values).ok());
  EXPECT_TRUE(std::ranges::equal(restored.parameters().values(), section.parameters().values()));
  EXPECT_EQ(restored.parameters().updates(), 0);
  for (const ParameterBuffer which : {ParameterBuffer::first_moments, ParameterBuffer::second_moments}) {
    for (const float value : restored.parameters().buffer(which).span<float>()) EXPECT_EQ(value, 0);
  }
}

std::vector<float> second_moments_of(Plain& section) {
  const Tensor moments = section.parameters().second_moments();
  if (moments.dtype() == DType::bf16) return {moments.span<bfloat16>().begin(), moments.span<bfloat16>().end()};
  return {moments.span<float>().begin(), moments.span<float>().end()};
}

TEST_F(SnapshotWriterTest, moments_are_stored_in_their_dtype_and_go_into_either) {
  Plain wide;
  fill(wide, 100.03125F);  // second moments from 300.09375 on, which bf16 cannot hold
  Plain narrow(DType::bf16);
  store(writer_, StepId(1), wide);
  const std::filesystem::path of_wide = writer_.store().latest().value_or_throw();
  restore_snapshot(narrow, of_wide, "plain").or_throw();
  std::vector<float> rounded;
  for (const float value : second_moments_of(wide)) rounded.push_back(static_cast<float>(bfloat16(value)));
  EXPECT_EQ(second_moments_of(narrow), rounded);
  EXPECT_NE(second_moments_of(narrow), second_moments_of(wide));

  store(writer_, StepId(2), narrow);
  const std::filesystem::path of_narrow = writer_.store().latest().value_or_throw();
  const auto bytes = [](const std::filesystem::path& checkpoint) {
    return std::filesystem::file_size(checkpoint / "plain" / "optimizer.safetensors");
  };
  EXPECT_EQ(bytes(of_wide) - bytes(of_narrow), 2 * 16 * 2U) << "two moments of 16 elements in half the bytes";
  Plain again(DType::bf16), widened;
  restore_snapshot(again, of_narrow, "plain").or_throw();
  restore_snapshot(widened, of_narrow, "plain").or_throw();
  EXPECT_EQ(second_moments_of(again), rounded);
  EXPECT_EQ(second_moments_of(widened), rounded);
}

TEST_F(SnapshotWriterTest, memory_of_a_written_snapshot_serves_the_next) {
  SnapshotWriter writer(CheckpointStore(folder_.path()), true);
  Plain section;
  fill(section, 100);
  expect_round_trip(writer, StepId(1), section);
  fill(section, 500);
  section.parameters().set_updates(9);
  SectionSnapshot spare = writer.spare("plain", {});
  const std::byte* memory = spare.first_moments.memory.data();
  ASSERT_NE(memory, nullptr);
  expect_round_trip(writer, StepId(2), section, std::move(spare));
  EXPECT_EQ(writer.spare("plain", {}).first_moments.memory.data(), memory);
  EXPECT_EQ(writer.spare("plain", {}).first_moments.memory.data(), nullptr) << "it was taken";
  EXPECT_EQ(writer.spare("plain", {1, 2}).values.memory.data(), nullptr) << "of another stage";
}

}  // namespace
}  // namespace maestro
