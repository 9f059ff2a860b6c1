// SPDX-License-Identifier: Apache-2.0
#include "actors/services/snapshot_writer.hpp"

#include <gtest/gtest.h>

#include <future>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

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

}  // namespace
}  // namespace maestro
