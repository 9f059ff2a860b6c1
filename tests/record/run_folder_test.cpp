// SPDX-License-Identifier: Apache-2.0
#include "runtime/record/run_folder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "tests/checkpoint/section_fixture.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

const RunIdentity real{"00000000000000a1", "real", "2026-11-22 14:30:00 UTC"};
const RunIdentity later{"00000000000000b2", "later", "2026-11-22 15:30:00 UTC"};

class RunFolderTest : public testing::Test {
 protected:
  void write(std::uint64_t step, const RunIdentity& run) {
    ASSERT_TRUE(write_checkpoint(CheckpointStore(out_ / "checkpoints"), step, step, run).ok());
  }

  TempFolder temporary_;
  fs::path out_ = temporary_.path() / "runs" / "x";
  RunFolder folder_{out_};
};

TEST_F(RunFolderTest, is_locked_by_one_run_at_a_time_and_the_second_learns_by_which_RF1) {  // RF-1
  {
    const Result<RunLock> lock = folder_.lock("real");
    ASSERT_TRUE(lock.ok()) << lock.error().message;
    ASSERT_TRUE(lock->holds());
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    const auto names_it = AllOf(HasSubstr("train.out: " + out_.string() + " is in use by job 'real'"),
                                HasSubstr("process " + std::to_string(getpid())), HasSubstr(host), IsOneLine());
    EXPECT_THAT(folder_.lock("second").error().message, names_it);
    EXPECT_THAT(folder_.check_free().error().message, names_it);
    EXPECT_THAT(folder_.lock("third").error().message, names_it) << "a refused run leaves the holder's name";
  }
  EXPECT_TRUE(folder_.check_free().ok());
  EXPECT_TRUE(folder_.lock("second").ok()) << "what the first has written does not hold";
}

TEST_F(RunFolderTest, names_the_process_that_holds_it_and_the_address_of_its_service) {
  EXPECT_FALSE(folder_.holder().has_value());
  {
    const RunLock lock = folder_.lock("real").value_or_throw();
    ASSERT_TRUE(folder_.holder().has_value());
    EXPECT_EQ(folder_.holder()->job, "real");
    EXPECT_EQ(folder_.holder()->process, std::to_string(getpid()));
    EXPECT_EQ(folder_.holder()->address, "");
    lock.note_address("unix:/a/longer/one.sock");
    lock.note_address("unix:/a.sock");
    EXPECT_EQ(folder_.holder()->address, "unix:/a.sock");
    EXPECT_EQ(folder_.holder()->job, "real");
  }
  EXPECT_FALSE(folder_.holder().has_value()) << "the file alone does not hold the folder";
  const RunLock next = folder_.lock("next").value_or_throw();
  EXPECT_EQ(folder_.holder()->address, "");
}

TEST_F(RunFolderTest, a_check_of_another_process_neither_refuses_a_run_nor_looks_like_one) {
  folder_.lock("real").value_or_throw();
  const fs::path file = out_ / ".lock";
  const FileDescriptor checks(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(checks.get(), LOCK_SH | LOCK_NB), 0);
  EXPECT_TRUE(folder_.check_free().ok());
  std::jthread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // of a check whose process gets no core
    flock(checks.get(), LOCK_UN);
  });
  EXPECT_TRUE(folder_.lock("next").ok());
}

TEST_F(RunFolderTest, is_free_when_the_process_that_locked_it_is_dead_RF1) {  // RF-1
  const pid_t child = fork();
  if (child == 0) {
    const Result<RunLock> lock = folder_.lock("real");
    (void)!lock.ok();
    _exit(lock.ok() && !folder_.check_free().ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(folder_.lock("second").ok());
}

TEST_F(RunFolderTest, what_stands_in_the_lock_file_is_shown_in_one_line) {
  const RunLock lock = folder_.lock("a\nb").value_or_throw();
  EXPECT_THAT(folder_.lock("c").error().message, AllOf(HasSubstr("job 'a?b'"), IsOneLine()));
  temporary_.write("runs/x/.lock", "");
  EXPECT_THAT(folder_.lock("c").error().message, AllOf(HasSubstr("in use by another run"), IsOneLine()));
}

TEST_F(RunFolderTest, looking_makes_nothing) {
  EXPECT_TRUE(folder_.check_free().ok());
  EXPECT_TRUE(folder_.check_holds_only(real.id, false).ok());
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(RunFolderTest, with_another_runs_checkpoints_is_refused_with_the_three_ways_on_RF2) {  // RF-2
  write(5, real);
  write(9, real);
  EXPECT_TRUE(folder_.check_holds_only(real.id, true).ok());
  const std::string out = out_.string();
  EXPECT_THAT(folder_.check_holds_only(later.id, false).error().message,
              AllOf(HasSubstr("train.out: " + out + " holds a run of job 'real' (step 9)"),
                    HasSubstr("--resume " + out), HasSubstr("--fresh moves it to " + out + ".1"), IsOneLine()));
  EXPECT_THAT(folder_.check_holds_only(later.id, true).error().message,
              AllOf(HasSubstr("holds a run of job 'real' (step 9)"), HasSubstr("another folder"), IsOneLine()));
}

TEST_F(RunFolderTest, with_the_models_of_another_run_and_no_checkpoints_is_refused_and_set_aside_RF2) {  // RF-2
  temporary_.write("runs/x/models/student/model.safetensors", "weights");
  EXPECT_THAT(folder_.check_holds_only(later.id, false).error().message,
              AllOf(HasSubstr("holds the models of a run"), HasSubstr("--fresh moves it to"), IsOneLine()));
  ASSERT_TRUE(folder_.record(real).ok());
  EXPECT_TRUE(folder_.check_holds_only(real.id, true).ok()) << "its own";
  EXPECT_FALSE(folder_.check_holds_only(later.id, true).ok());
  ASSERT_TRUE(folder_.set_aside().value_or_throw());
  EXPECT_EQ(contents_of(out_.string() + ".1/models/student/model.safetensors"), "weights");
  EXPECT_TRUE(folder_.check_holds_only(later.id, false).ok());
}

TEST_F(RunFolderTest, checkpoints_without_id_are_another_runs_and_damaged_ones_are_the_resumed_runs_RF2) {  // RF-2
  write(7, {});
  EXPECT_THAT(folder_.check_holds_only(real.id, false).error().message, HasSubstr("holds a run (step 7)"));
  EXPECT_TRUE(folder_.check_holds_only("", true).ok());
  temporary_.write("runs/x/checkpoints/step-00000007/checkpoint.json", "{");
  EXPECT_FALSE(folder_.check_holds_only(real.id, false).ok());
  EXPECT_TRUE(folder_.check_holds_only(real.id, true).ok());
}

TEST_F(RunFolderTest, is_set_aside_whole_and_under_a_name_of_its_own_RF3) {  // RF-3
  EXPECT_EQ(folder_.set_aside().value_or_throw(), std::nullopt) << "nothing is there";
  write(9, real);
  ASSERT_TRUE(folder_.record(real).ok());
  temporary_.write("runs/x/report.json", "{}");
  temporary_.write("runs/x/scenes/train.json", "[]");
  temporary_.write("runs/x.1/mine", "kept");
  EXPECT_THAT(folder_.check_holds_only(later.id, false).error().message, HasSubstr("x.2"));
  const fs::path aside = folder_.set_aside().value_or_throw().value();
  EXPECT_EQ(aside, out_.string() + ".2");
  EXPECT_EQ(read_run_identity(aside / "run.json").value_or_throw(), real);
  EXPECT_TRUE(verify_checkpoint(aside / "checkpoints" / "step-00000009").ok());
  EXPECT_TRUE(fs::exists(aside / "report.json"));
  EXPECT_TRUE(fs::exists(out_ / "scenes" / "train.json")) << "no part of the run";
  EXPECT_EQ(contents_of(out_.string() + ".1/mine"), "kept");
  EXPECT_TRUE(folder_.check_holds_only(later.id, false).ok());
}

TEST_F(RunFolderTest, is_set_aside_beside_itself_however_it_is_written) {
  for (const std::string& given : {out_.string() + "/", out_.string() + "/.", (out_ / "checkpoints/..").string()}) {
    write(9, real);
    const fs::path aside = RunFolder(given).set_aside().value_or_throw().value();
    EXPECT_EQ(aside.parent_path(), out_.parent_path()) << given;
    EXPECT_TRUE(aside.filename().string().starts_with("x.")) << given;
  }
}

TEST_F(RunFolderTest, is_set_aside_beside_itself_where_it_is_the_folder_above) {
  write(9, real);
  const fs::path before = fs::current_path();
  fs::current_path(out_ / "checkpoints");
  Result<std::optional<fs::path>> aside = RunFolder("..").set_aside();
  fs::current_path(before);
  EXPECT_EQ(std::move(aside).value_or_throw().value(), fs::path(out_.string() + ".1"));
}

TEST(RunIdentity, of_every_new_run_is_another) {
  std::set<std::string> ids;
  for (int run = 0; run < 100; ++run) {
    const RunIdentity made = new_run("real");
    EXPECT_TRUE(is_run_id(made.id)) << made.id;
    EXPECT_EQ(made.job, "real");
    EXPECT_FALSE(made.started.empty());
    ids.insert(made.id);
  }
  EXPECT_EQ(ids.size(), 100u);
}

}  // namespace
}  // namespace maestro
