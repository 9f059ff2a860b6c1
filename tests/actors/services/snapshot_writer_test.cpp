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

TEST_F(SnapshotWriterTest, a_section_gets_its_values_its_moments_and_its_updates_back) {
  Plain section;
  const auto fill = [&](ParameterBuffer which, float first) {
    std::ranges::generate(section.parameters().buffer(which), [value = first]() mutable { return value++; });
  };
  fill(ParameterBuffer::values, 100);
  fill(ParameterBuffer::first_moments, 200);
  fill(ParameterBuffer::second_moments, 300);
  section.parameters().set_updates(7);
  Section* const alone[] = {&section};
  SectionSnapshot snapshot = take_snapshot(alone, "plain").value_or_throw();
  std::promise<Result<std::vector<FileRecord>>> written;
  const std::filesystem::path staging = writer_.store().begin(StepId(3)).value_or_throw();
  writer_.write(staging, std::move(snapshot), [&](auto files) { written.set_value(std::move(files)); });
  Manifest manifest;
  manifest.step = 3;
  manifest.files = written.get_future().get().value_or_throw();
  ASSERT_TRUE(writer_.store().commit(staging, manifest).ok());

  Plain restored;
  const Status done = restore_snapshot(restored, writer_.store().latest().value_or_throw(), "plain");
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(restored.parameters().updates(), 7);
  for (const ParameterBuffer which :
       {ParameterBuffer::values, ParameterBuffer::first_moments, ParameterBuffer::second_moments}) {
    EXPECT_TRUE(std::ranges::equal(restored.parameters().buffer(which), section.parameters().buffer(which)));
  }
}

}  // namespace
}  // namespace maestro
