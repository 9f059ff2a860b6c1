// SPDX-License-Identifier: Apache-2.0
// Stops a process after each filesystem operation in turn, and reads the checkpoints in another process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/checkpoint/checkpoint_folders.hpp"
#include "tests/checkpoint/section_fixture.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;

constexpr int finished = 0;
constexpr int crashed = 3;
constexpr int failed = 4;

/// Writes the checkpoint in a child process that exits, without any clean-up, after `operations` operations.
int write_and_crash(const fs::path& root, std::uint64_t step, std::uint64_t contents, int operations) {
  const pid_t child = fork();
  if (child == 0) {
    int left = operations;
    CheckpointStoreOptions options;
    options.after = [&](std::string_view) {
      if (--left == 0) _exit(crashed);
    };
    // keep = 1: removing the previous checkpoint too early would lose everything.
    options.keep = 1;
    const Status written = write_checkpoint(CheckpointStore(root, options), step, contents);
    _exit(written ? finished : failed);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/// Checks all of the newest checkpoint and returns its content.
std::uint64_t latest_contents(const fs::path& root) {
  const Result<fs::path> latest = latest_checkpoint(root);
  if (!latest) {
    ADD_FAILURE() << latest.error().message;
    return 0;
  }
  const Status sound = verify_checkpoint(*latest);
  EXPECT_TRUE(sound.ok()) << sound.error().message;
  const std::uint64_t contents = load_checkpoint(*latest).value_or_throw().data_position;
  for (const char* section : {"student", "deep"}) {
    const auto stored = read_section(*latest, section);
    EXPECT_TRUE(stored.ok() && stored->state.optimizer_step == contents) << section;
  }
  EXPECT_TRUE(fs::exists(*latest / "deep" / "model.safetensors.index.json"));
  return contents;
}

struct CrashCase {
  const char* name;
  std::uint64_t old_step;
  std::uint64_t new_step;
};
void PrintTo(const CrashCase& one, std::ostream* out) {
  *out << one.name;
}

class CheckpointCrash : public testing::TestWithParam<CrashCase> {};

TEST_P(CheckpointCrash, after_any_operation_the_old_or_the_new_checkpoint_loads_CK1_CK2_CK4) {  // CK-1, CK-2, CK-4
  constexpr std::uint64_t old_contents = 1000, new_contents = 2000;
  int operations = 0;
  std::vector<std::uint64_t> found;
  for (int exit_code = crashed; exit_code == crashed;) {
    const TempFolder folder;
    ASSERT_EQ(write_and_crash(folder.path(), GetParam().old_step, old_contents, 1 << 20), finished);
    ++operations;
    SCOPED_TRACE("stopped after operation " + std::to_string(operations));
    exit_code = write_and_crash(folder.path(), GetParam().new_step, new_contents, operations);
    ASSERT_NE(exit_code, failed);
    found.push_back(latest_contents(folder.path()));
    ASSERT_THAT(found.back(), testing::AnyOf(old_contents, new_contents));

    // The run resumes as if undisturbed, and the next commit removes the crash's leftovers.
    const CheckpointStore store(folder.path(), {.keep = 1, .after = {}});
    const Status written = write_checkpoint(store, 30, 3000);
    ASSERT_TRUE(written.ok()) << written.error().message;
    ASSERT_EQ(latest_contents(folder.path()), 3000u);
    const auto left = list_checkpoint_folders(folder.path()).value_or_throw();
    ASSERT_EQ(left.size(), 1u) << "beside " << left.front().path;
  }
  EXPECT_GT(operations, 20);
  EXPECT_EQ(found.front(), old_contents);
  EXPECT_EQ(found.back(), new_contents);
  EXPECT_TRUE(std::ranges::is_sorted(found)) << "a later stop found an older checkpoint";
}

INSTANTIATE_TEST_SUITE_P(Steps, CheckpointCrash,
                         testing::Values(CrashCase{"next_step", 10, 20}, CrashCase{"same_step_again", 20, 20},
                                         CrashCase{"earlier_step_after_resuming", 25, 20}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace maestro
