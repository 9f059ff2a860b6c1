// SPDX-License-Identifier: Apache-2.0
// The flushes to disk that CK-2 and AF-1 require: their order among the other operations, and the effect of a failed
// flush.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "runtime/checkpoint/checkpoint_folders.hpp"
#include "tests/checkpoint/flush_watch.hpp"
#include "tests/checkpoint/section_fixture.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

TEST(Durability, a_file_that_cannot_be_flushed_is_an_error_and_replaces_nothing) {  // AF-1
  const TempFolder folder;
  const fs::path target = folder.write("a.txt", "old");
  const FlushWatch watch([](const fs::path& flushed) { return fs::is_directory(flushed) ? 0 : EIO; });
  const Result<WrittenFile> written = write_file(target, "new");
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message, AllOf(HasSubstr(target.string()), HasSubstr("Input/output error")));
  EXPECT_EQ(contents_of(target), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Durability, a_folder_that_cannot_be_flushed_is_an_error_unless_its_filesystem_has_no_such_flush) {
  const TempFolder folder;
  const fs::path target = folder.path() / "a.txt";
  for (const int failure : {EIO, EINVAL}) {
    const FlushWatch watch([&](const fs::path& flushed) { return fs::is_directory(flushed) ? failure : 0; });
    EXPECT_EQ(write_file(target, "new").ok(), failure == EINVAL);
    EXPECT_EQ(write_checkpoint(CheckpointStore(folder.path()), 5).ok(), failure == EINVAL);
  }
}

/// Operations and flushes, in order, when step 20 is committed after step 10.
class Commit : public testing::Test {
 protected:
  Commit() {
    CheckpointStoreOptions options;
    options.keep = 1;
    options.after = [this](std::string_view operation) { events_.emplace_back(operation); };
    const CheckpointStore store(root(), options);
    EXPECT_TRUE(write_checkpoint(store, 10).ok());
    events_.clear();
    const FlushWatch watch([this](const fs::path& flushed) {
      events_.push_back("flush of " + flushed.lexically_relative(root()).string());
      return 0;
    });
    EXPECT_TRUE(write_checkpoint(store, 20).ok());
  }
  [[nodiscard]] fs::path root() const { return folder_.path(); }
  /// Returns the event after the first `event`.
  [[nodiscard]] std::string after(const std::string& event) const {
    const auto found = std::ranges::find(events_, event);
    return found == events_.end() || found + 1 == events_.end() ? "nothing" : *(found + 1);
  }

  TempFolder folder_;
  std::vector<std::string> events_;
};

TEST_F(Commit, the_new_name_is_flushed_before_an_older_checkpoint_is_touched) {  // CK-2
  EXPECT_EQ(after("rename to step-00000020"), "flush of .");
}

TEST_F(Commit, the_name_of_a_removed_checkpoint_is_flushed_before_its_files_go) {  // CK-1
  const std::string removed = checkpoint_folder_name(10, CheckpointKind::removed);
  EXPECT_EQ(after("rename to " + removed), "flush of .");
}

TEST_F(Commit, every_file_is_flushed_before_its_rename_and_its_folder_after_it) {  // CK-2
  const std::string staging = checkpoint_folder_name(20, CheckpointKind::staging);
  for (const char* name : {"checkpoint.json", "model.safetensors.index.json"}) {
    const auto renamed = std::ranges::find(events_, std::string("rename ") + name);
    ASSERT_NE(renamed, events_.end());
    ASSERT_EQ(*(renamed - 1), std::string("flush ") + name);
    EXPECT_THAT(*(renamed - 2), AllOf(HasSubstr("flush of " + staging), HasSubstr(name)));
    EXPECT_THAT(*(renamed + 1), HasSubstr("flush of " + staging));
  }
}

TEST_F(Commit, the_folders_of_sections_are_flushed_before_the_manifest_names_them) {  // CK-2
  const std::string staging = checkpoint_folder_name(20, CheckpointKind::staging);
  const auto manifest = std::ranges::find(events_, "create checkpoint.json");
  const auto last_section = std::find(std::reverse_iterator(manifest), events_.rend(), "create section").base();
  EXPECT_NE(std::find(last_section, manifest, "flush of " + staging), manifest);
}

}  // namespace
}  // namespace maestro
