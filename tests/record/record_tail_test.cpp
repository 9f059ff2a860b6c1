// SPDX-License-Identifier: Apache-2.0
#include "runtime/record/record_tail.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RecordTailTest : public testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(file_, std::ios::binary) << text; }
  void append(const std::string& text) const { std::ofstream(file_, std::ios::binary | std::ios::app) << text; }
  /// Returns all lines since the last restart.
  const std::vector<std::string>& read() {
    tail_
        .read(
            [&](std::string_view line) {
              lines_.emplace_back(line);
              return Status();
            },
            [&] {
              lines_.clear();
              ++restarts_;
            })
        .or_throw();
    return lines_;
  }

  TempFolder folder_;
  std::filesystem::path file_ = folder_.path() / "steps.jsonl";
  RecordTail tail_{file_};
  std::vector<std::string> lines_;
  int restarts_ = 0;
};

TEST_F(RecordTailTest, takes_whole_lines_only_and_each_once) {  // TL-1
  write("");
  EXPECT_THAT(read(), IsEmpty());
  append("one\ntw");
  EXPECT_THAT(read(), ElementsAre("one"));
  append("o");
  EXPECT_THAT(read(), ElementsAre("one"));
  append("\nthree\n");
  EXPECT_THAT(read(), ElementsAre("one", "two", "three"));
  EXPECT_THAT(read(), ElementsAre("one", "two", "three"));
  EXPECT_EQ(restarts_, 0);
}

TEST_F(RecordTailTest, begins_anew_after_a_cut) {  // TL-1
  write("1\n2\n3\n");
  read();
  write("1\n");
  EXPECT_THAT(read(), ElementsAre("1"));
  EXPECT_EQ(restarts_, 1);
  write("1\nb\nc\nd\n");
  EXPECT_THAT(read(), ElementsAre("1", "b", "c", "d"));
  EXPECT_EQ(restarts_, 1) << "grown only";
  write("1\nb\nc\nD\nE\n");
  EXPECT_THAT(read(), ElementsAre("1", "b", "c", "D", "E")) << "cut and longer than before";
  EXPECT_EQ(restarts_, 2);
  write("");
  EXPECT_THAT(read(), IsEmpty());
}

TEST_F(RecordTailTest, reads_lines_across_its_chunks) {
  const std::string longest(3'000'000, 'x');
  write("short\n" + longest + "\nend\n" + longest);
  const auto& lines = read();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1], longest);
  EXPECT_EQ(lines[2], "end");
  append("\n");
  EXPECT_EQ(read().size(), 4u);
}

TEST_F(RecordTailTest, names_a_file_that_is_not_there_and_passes_errors_on) {
  const Status missing = tail_.read([](std::string_view) { return Status(); }, [] {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("steps.jsonl"));
  write("1\n2\n");
  const Status refused = tail_.read([](std::string_view) { return Error{ErrorCode::corrupt, "no such line"}; }, [] {});
  EXPECT_EQ(refused.error().message, "no such line");
}

}  // namespace
}  // namespace maestro
