// SPDX-License-Identifier: Apache-2.0
#include "actors/services/snapshot_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

/// Has a parameter of 16 values.
class Plain final : public Section {
 public:
  Plain() {
    parameters_.add({"w", Shape{4, 4}, true, [](std::span<float> values) { std::ranges::fill(values, 0.0f); }});
    parameters_.allocate(true);
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

class SnapshotWriterTest : public testing::Test {
 protected:
  /// Result of busy() while the report of `work` ran.
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

/// Writes a checkpoint of `section` and reads it back; compares both.
void expect_round_trip(SnapshotWriter& writer, StepId step, Plain& section, SectionSnapshot into = {}) {
  Section* const alone[] = {&section};
  SectionSnapshot snapshot = take_snapshot(alone, "plain", std::move(into)).value_or_throw();
  std::promise<Result<std::vector<FileRecord>>> written;
  const std::filesystem::path staging = writer.store().begin(step).value_or_throw();
  writer.write(staging, std::move(snapshot), [&](auto files) { written.set_value(std::move(files)); });
  Manifest manifest;
  manifest.step = step.value();
  manifest.files = written.get_future().get().value_or_throw();
  ASSERT_TRUE(writer.store().commit(staging, manifest).ok());

  Plain restored;
  const Status done = restore_snapshot(restored, writer.store().latest().value_or_throw(), "plain");
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(restored.parameters().updates(), section.parameters().updates());
  for (const ParameterBuffer which :
       {ParameterBuffer::values, ParameterBuffer::first_moments, ParameterBuffer::second_moments}) {
    EXPECT_TRUE(std::ranges::equal(restored.parameters().buffer(which), section.parameters().buffer(which)));
  }
}

void fill(Plain& section, ParameterBuffer which, float first) {
  std::ranges::generate(section.parameters().buffer(which), [value = first]() mutable { return value++; });
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
