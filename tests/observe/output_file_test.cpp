// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/output_file.hpp"

#include <gmock/gmock.h>

#include "tests/observe/temporary_folder.hpp"

namespace maestro {
namespace {

using testing::HasSubstr;
using OutputFileTest = TemporaryFolder;

TEST_F(OutputFileTest, a_committed_file_holds_every_byte) {
  std::string bytes;
  for (int i = 0; i < 300000; ++i) bytes += static_cast<char>(i * 31);
  ASSERT_TRUE(write_output(folder_ / "f", bytes).ok());
  EXPECT_EQ(contents_of(folder_ / "f"), bytes);
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(OutputFileTest, appends_arrive_in_order) {
  auto file = OutputFile::create(folder_ / "f");
  ASSERT_TRUE(file.ok());
  std::string all;
  for (int i = 0; i < 20000; ++i) {
    const auto piece = std::to_string(i) + '\n';
    all += piece;
    ASSERT_TRUE(file->append(piece).ok());
  }
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(contents_of(folder_ / "f"), all);
}

TEST_F(OutputFileTest, until_the_commit_the_old_file_stands) {
  ASSERT_TRUE(write_output(folder_ / "f", "old").ok());
  {
    auto file = OutputFile::create(folder_ / "f");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->append("new").ok());
    EXPECT_EQ(contents_of(folder_ / "f"), "old");
  }
  EXPECT_EQ(contents_of(folder_ / "f"), "old");
  EXPECT_EQ(files_in_folder(), 1u) << "an abandoned file leaves its unfinished part behind";
}

TEST_F(OutputFileTest, makes_missing_folders) {
  ASSERT_TRUE(write_output(folder_ / "a" / "b" / "f", "x").ok());
  EXPECT_EQ(contents_of(folder_ / "a" / "b" / "f"), "x");
}

TEST_F(OutputFileTest, an_error_names_path_and_reason) {
  ASSERT_TRUE(write_output(folder_ / "file", "x").ok());
  const auto below_a_file = write_output(folder_ / "file" / "f", "x");
  ASSERT_FALSE(below_a_file.ok());
  EXPECT_THAT(below_a_file.error().message, HasSubstr("cannot write " + (folder_ / "file" / "f").string() + ": "));
  EXPECT_THAT(below_a_file.error().message, HasSubstr("Not a directory"));

  std::filesystem::create_directories(folder_ / "taken" / "inside");
  const auto onto_a_folder = write_output(folder_ / "taken", "x");
  ASSERT_FALSE(onto_a_folder.ok());
  EXPECT_THAT(onto_a_folder.error().message, HasSubstr("cannot write " + (folder_ / "taken").string() + ": "));
  EXPECT_EQ(files_in_folder(), 2u);
}

}  // namespace
}  // namespace maestro
