// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/launcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "runtime/core/result.hpp"
#include "tests/actors/launch/no_threads.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string output_of(const std::string& line) {
  FILE* stream = popen(line.c_str(), "r");
  std::string text;
  for (int c = 0; (c = std::fgetc(stream)) != EOF;) text += static_cast<char>(c);
  EXPECT_EQ(pclose(stream), 0) << line;
  return text;
}

/// A folder with a program that takes the place of ssh.
class RemoteStart : public ::testing::Test {
 protected:
  RemoteStart() {
    std::string pattern = (fs::temp_directory_path() / "maestro-launcher-test-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~RemoteStart() override { fs::remove_all(folder_); }

  [[nodiscard]] RemoteShell shell(const std::string& script) const {
    const fs::path file = folder_ / "login";
    std::ofstream(file) << "#!/bin/sh\n" << script;
    fs::permissions(file, fs::perms::owner_all);
    return {{file.string()}, "the secret"};
  }
  /// Starts rank 1 on "node7", waits until it ends, and returns how.
  std::string how_it_ends(const RemoteShell& shell) {
    std::mutex mutex;
    std::condition_variable changed;
    std::string ended;
    const auto on_end = [&](ProcessId process, const std::string& how) {
      const std::lock_guard lock(mutex);
      ended = std::to_string(process.value()) + ": " + how;
      changed.notify_all();
    };
    Launcher launcher(on_end, {}, [this](const std::string& host, const std::string& line) {
      relayed_ += host + ": " + line + "\n";  // no lock: a single thread, which has ended when the launcher has
      return "text of " + line;
    });
    launcher.start({"train", "job.toml"}, {{1, "node7", {"MAESTRO_RANK=1"}}}, shell);
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return !ended.empty(); }));
    return ended;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path folder_;
  std::string relayed_;
};

TEST(RemoteShellWords, ssh_never_asks_and_does_not_wait_long) {
  EXPECT_THAT(remote_shell_words(""), ElementsAre("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"));
  EXPECT_THAT(remote_shell_words("/usr/bin/ssh -p 2222"),
              ElementsAre("/usr/bin/ssh", "-p", "2222", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"));
  EXPECT_THAT(remote_shell_words("/opt/login -q"), ElementsAre("/opt/login", "-q"));
}

TEST(RemoteCommand, words_arrive_as_they_are) {
  const std::vector<std::string> words = {"printf", "%s|", "a b", "it's", "$HOME", "\"x\" `y`", "--set", "a=\"b\""};
  EXPECT_EQ(output_of(remote_command("/", {"X=1 2"}, words)), "a b|it's|$HOME|\"x\" `y`|--set|a=\"b\"|");
  EXPECT_EQ(output_of(remote_command("/tmp", {"X=1 2"}, {"sh", "-c", "printf %s \"$X $PWD\""})), "1 2 /tmp");
}

TEST_F(RemoteStart, gets_its_host_its_command_and_the_secret_by_its_input_alone) {  // LA-2
  const std::string place = folder_.string();
  EXPECT_EQ(how_it_ends(shell("echo \"$1\" > " + place + "/host; echo \"$2\" > " + place + "/command; head -n 1 > " +
                              place + "/input\n")),
            "1: exit status 0");
  EXPECT_EQ(read("host"), "node7\n");
  EXPECT_EQ(read("input"), "the secret\n");
  EXPECT_THAT(read("command"), HasSubstr("'MAESTRO_RANK=1'"));
  EXPECT_THAT(read("command"), HasSubstr("'train' 'job.toml'"));
  EXPECT_THAT(read("command"), ::testing::Not(HasSubstr("secret")));
}

TEST_F(RemoteStart, says_what_the_shell_said_last_when_it_fails) {  // LA-3
  EXPECT_EQ(how_it_ends(shell("echo first >&2; echo 'connect to host node7: No route to host' >&2; exit 255\n")),
            "1: exit status 255 (text of connect to host node7: No route to host)");
  EXPECT_EQ(relayed_, "node7: first\nnode7: connect to host node7: No route to host\n");
}

TEST_F(RemoteStart, by_a_shell_that_ends_without_reading_its_input_is_no_signal_for_us) {  // LA-3
  RemoteShell deaf = shell("exec <&-; exit 3\n");
  deaf.secrets = std::string(1 << 20, 'x');  // more than a pipe holds: the shell ends before all is written
  EXPECT_EQ(how_it_ends(deaf), "1: exit status 3");
}

TEST_F(RemoteStart, by_a_program_that_is_not_there_names_it_and_the_remedy) {
  Launcher launcher({});
  try {
    launcher.start({}, {{1, "node7", {}}}, {{(folder_ / "nothing").string()}, ""});
    FAIL() << "it was started";
  } catch (const JobError& error) {
    EXPECT_THAT(error.what(), HasSubstr("on host node7"));
    EXPECT_THAT(error.what(), HasSubstr("--ssh"));
  }
}

TEST_F(RemoteStart, does_not_outlive_the_launcher) {  // LA-1
  Launcher launcher({});
  launcher.start({}, {{1, "node7", {}}}, shell("exec sleep 1000\n"));
  std::int64_t child = 0;
  const std::string self = std::to_string(getpid());
  ASSERT_TRUE(std::ifstream("/proc/" + self + "/task/" + self + "/children") >> child);
  launcher.end_all(std::chrono::milliseconds(0));
  EXPECT_FALSE(fs::exists("/proc/" + std::to_string(child)));
  EXPECT_FALSE(launcher.all_clean());
}

/// Children 1 and 2, which run until they are killed.
class Forgiven : public RemoteStart {
 protected:
  void start(Launcher& launcher) const {
    launcher.start({"train"}, {{1, "node7", {}}, {2, "node7", {}}}, shell("exec sleep 1000\n"));
  }
};

TEST_F(Forgiven, children_do_not_count_however_they_end) {
  Launcher launcher({});
  start(launcher);
  launcher.forgive(ProcessId(1));
  EXPECT_TRUE(launcher.is_forgiven(ProcessId(1)));
  launcher.end(ProcessId(1), std::chrono::milliseconds(0));
  EXPECT_TRUE(launcher.all_clean());
  launcher.end(ProcessId(2), std::chrono::milliseconds(0));
  EXPECT_FALSE(launcher.all_clean());
}

TEST_F(Forgiven, children_alone_are_killed) {
  Launcher launcher({});
  start(launcher);
  launcher.forgive(ProcessId(2));
  launcher.kill_forgiven();
  launcher.end(ProcessId(2), std::chrono::hours(1));
  EXPECT_TRUE(launcher.all_clean()) << "process 1 runs";
}

TEST_F(Forgiven, children_count_again_when_the_run_relies_on_their_replacements) {
  Launcher launcher({});
  start(launcher);
  launcher.forgive(ProcessId(1));
  launcher.end(ProcessId(1), std::chrono::milliseconds(0));
  launcher.start({"train"}, {{1, "node7", {}}}, shell("exec sleep 1000\n"));
  launcher.rely_on(ProcessId(1));
  EXPECT_FALSE(launcher.is_forgiven(ProcessId(1)));
  EXPECT_TRUE(launcher.all_clean()) << "how its predecessor ended is forgotten";
  launcher.end(ProcessId(1), std::chrono::milliseconds(0));
  EXPECT_FALSE(launcher.all_clean());
}

TEST_F(Forgiven, children_of_an_earlier_start_do_not_count_in_the_next) {
  Launcher launcher({});
  start(launcher);
  launcher.end_others({ProcessId(2)}, std::chrono::milliseconds(0));
  EXPECT_EQ(launcher.running(), std::set<ProcessId>{ProcessId(2)});
  EXPECT_EQ(launcher.ended_pids().size(), 1U);
  EXPECT_EQ(launcher.pids().size(), 2U);
  EXPECT_TRUE(launcher.all_clean());
  launcher.end(ProcessId(2), std::chrono::milliseconds(0));
  EXPECT_FALSE(launcher.all_clean());
}

TEST_F(Forgiven, children_have_ended_for_the_caller_when_their_end_was_reported) {
  std::atomic<int> reported = 0;
  Launcher launcher([&](ProcessId, const std::string&) { ++reported; });
  start(launcher);
  launcher.end(ProcessId(1), std::chrono::milliseconds(0));
  EXPECT_EQ(reported, 1);
}

TEST(Launcher, has_no_process_that_no_thread_watches) {
  Launcher launcher({});
  const NoThreads none;
  EXPECT_THROW(launcher.start({"--help"}, {{1, "", {}}}, {}), JobError);
  EXPECT_TRUE(launcher.running().empty()) << "its end would be awaited for ever";
}

}  // namespace
}  // namespace maestro
