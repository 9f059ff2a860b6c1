// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint_archive.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "runtime/checkpoint/checkpoint_folders.hpp"
#include "runtime/files/safetensors.hpp"
#include "tests/checkpoint/section_fixture.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const RunIdentity this_run{"00000000000000aa", "job", ""};
const RunIdentity other_run{"00000000000000bb", "job", ""};

class CheckpointArchiveTest : public testing::Test {
 protected:
  fs::path write(std::uint64_t step, std::uint64_t contents, const RunIdentity& run = this_run) {
    write_checkpoint(store_, step, contents, run).or_throw();
    return checkpoints_ / checkpoint_folder_name(step, CheckpointKind::complete);
  }
  [[nodiscard]] static std::uint64_t contents_of(const fs::path& checkpoint) {
    verify_checkpoint(checkpoint).or_throw();
    EXPECT_EQ(read_section(checkpoint, "deep").value_or_throw().state.optimizer_step,
              load_checkpoint(checkpoint).value_or_throw().data_position);
    return load_checkpoint(checkpoint).value_or_throw().data_position;
  }

  TempFolder folder_;
  fs::path checkpoints_ = folder_.path() / "checkpoints";
  CheckpointStore store_{checkpoints_, {.keep = 1}};
  CheckpointArchive archive_{folder_.path() / archive_folder};
};

TEST_F(CheckpointArchiveTest, keeps_a_whole_checkpoint_as_links) {  // AC-2
  const fs::path original = write(3, 30);
  const auto nodes = [](const fs::path& checkpoint) {
    return fs::hard_link_count(checkpoint / "student" / "optimizer.safetensors");
  };
  const fs::path kept = archive_.keep(original, ArchiveForm::full).value_or_throw();
  EXPECT_EQ(kept, folder_.path() / "archive" / "step-00000003");
  EXPECT_EQ(nodes(kept), 2U);
  write(4, 40);  // removes step 3
  EXPECT_FALSE(fs::exists(original));
  EXPECT_EQ(contents_of(kept), 30U);
  EXPECT_EQ(nodes(kept), 1U);
}

TEST_F(CheckpointArchiveTest, replaces_the_same_step_of_the_run_only) {
  const fs::path kept = archive_.keep(write(3, 30), ArchiveForm::full).value_or_throw();
  archive_.keep(write(3, 31), ArchiveForm::full).value_or_throw();
  EXPECT_EQ(contents_of(kept), 31U);
  const CheckpointStore others(folder_.path() / "others");
  write_checkpoint(others, 3, 32, other_run).or_throw();
  for (const ArchiveForm form : {ArchiveForm::full, ArchiveForm::bf16}) {
    const auto refused = archive_.keep(others.root() / "step-00000003", form);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("archive/step-00000003 belongs to another run"));
  }
  EXPECT_EQ(contents_of(kept), 31U);
}

TEST_F(CheckpointArchiveTest, keeps_weights_alone_as_bf16) {
  const fs::path kept = archive_.keep(write(3, 30), ArchiveForm::bf16).value_or_throw();
  const SafetensorsFile file = SafetensorsFile::open(kept / "student" / "model.safetensors").value_or_throw();
  const ConstTensor weights = file.tensor("h.weight").value_or_throw();
  EXPECT_EQ(weights.dtype(), DType::bf16);
  EXPECT_FALSE(fs::exists(kept / "student" / "optimizer.safetensors"));
  EXPECT_TRUE(fs::exists(kept / "deep" / "config.json"));
  EXPECT_FALSE(load_checkpoint(kept));
  archive_.keep(write(3, 31), ArchiveForm::bf16).value_or_throw();
  const CheckpointStore others(folder_.path() / "others");
  write_checkpoint(others, 3, 32, other_run).or_throw();
  EXPECT_FALSE(archive_.keep(others.root() / "step-00000003", ArchiveForm::bf16));
}

/// Keeps a checkpoint in a child process that exits, without any clean-up, after `operations` operations. Returns
/// whether it completed.
bool keep_and_crash(const fs::path& root, const fs::path& checkpoint, ArchiveForm form, int operations) {
  const pid_t child = fork();
  if (child == 0) {
    const CheckpointArchive archive(root, [&](std::string_view) {
      if (--operations == 0) _exit(3);
    });
    _exit(archive.keep(checkpoint, form) ? 0 : 4);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 4);
  return WEXITSTATUS(status) == 0;
}

TEST_F(CheckpointArchiveTest, holds_no_half_checkpoint_after_a_crash) {  // AC-1
  for (const ArchiveForm form : {ArchiveForm::full, ArchiveForm::bf16}) {
    const fs::path root = archive_.root() / std::to_string(static_cast<int>(form));
    const CheckpointArchive archive(root);
    const fs::path old = write(3, 30);
    const fs::path kept = archive.keep(old, form).value_or_throw();
    const auto is_whole = [&] {
      const fs::path replaced = root / "step-00000003.old";
      const fs::path found = fs::exists(kept) ? kept : replaced;
      if (form == ArchiveForm::full) return contents_of(found) >= 30;
      return read_run_identity(found / run_file).ok() && fs::exists(found / "deep" / "config.json");
    };
    const fs::path newer = write(3, 31);
    int crashes = 0;
    while (!keep_and_crash(root, newer, form, crashes + 1)) {
      EXPECT_TRUE(is_whole()) << "after operation " << crashes + 1;
      ++crashes;
      ASSERT_LT(crashes, 100);
    }
    EXPECT_GT(crashes, 4);
    EXPECT_TRUE(is_whole());
    archive.keep(write(5, 50), form).value_or_throw();
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(root)) names.insert(entry.path().filename());
    EXPECT_THAT(names, testing::ElementsAre("step-00000003", "step-00000005")) << "leftovers stay";
  }
}

TEST_F(CheckpointArchiveTest, the_newest_checkpoint_before_a_step_is_found) {
  const fs::path roots[] = {checkpoints_, archive_.root(), folder_.path() / "nowhere"};
  const auto any = [](const Manifest&) { return true; };
  for (const std::uint64_t step : {3U, 6U, 9U}) archive_.keep(write(step, step), ArchiveForm::full).value_or_throw();
  EXPECT_EQ(checkpoint_before(roots, this_run.id, 7, any), archive_.root() / "step-00000006");
  EXPECT_EQ(checkpoint_before(roots, this_run.id, 3, any), std::nullopt);
  EXPECT_EQ(checkpoint_before(roots, other_run.id, 100, any), std::nullopt);
  write(6, 61);  // repeated, in a later commit
  EXPECT_EQ(checkpoint_before(roots, this_run.id, 7, any), checkpoints_ / "step-00000006");
  const auto first_time = [](const Manifest& manifest) { return manifest.data_position != 61; };
  EXPECT_EQ(checkpoint_before(roots, this_run.id, 7, first_time), archive_.root() / "step-00000006");
}

TEST_F(CheckpointArchiveTest, a_branch_is_the_newest_with_the_same_state) {
  const fs::path base = archive_.keep(write(3, 30), ArchiveForm::full).value_or_throw();
  write(9, 90);
  const auto change = [](Manifest& manifest) { manifest.cursor = {{1, 0}, {5, 50}}; };
  const fs::path branch = branch_checkpoint(base, CheckpointStore(checkpoints_, {.keep = 2}), change).value_or_throw();
  EXPECT_EQ(latest_checkpoint(checkpoints_, this_run.id).value_or_throw(), branch);
  EXPECT_EQ(contents_of(branch), 30U);
  EXPECT_EQ(load_checkpoint(branch).value_or_throw().cursor.size(), 2U);
  EXPECT_TRUE(load_checkpoint(base).value_or_throw().cursor.empty());
  EXPECT_TRUE(fs::exists(checkpoints_ / "step-00000009"));
  EXPECT_TRUE(branch_checkpoint(branch, store_, [](Manifest&) {}).ok()) << "in its own place";
  EXPECT_EQ(contents_of(branch), 30U);
}

}  // namespace
}  // namespace maestro
