// SPDX-License-Identifier: Apache-2.0
#include "runtime/record/run_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/data/temp_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class RunListTest : public testing::Test {
 protected:
  RunListTest() { setenv("XDG_STATE_HOME", (temporary_.path() / "state").c_str(), 1); }
  ~RunListTest() override {
    former_.empty() ? unsetenv("XDG_STATE_HOME") : setenv("XDG_STATE_HOME", former_.c_str(), 1);
  }

  [[nodiscard]] fs::path list() const { return temporary_.path() / "state/maestro/runs"; }
  /// Lists a run in a folder that it makes.
  void run(const std::string& name, const std::string& started) {
    fs::create_directories(temporary_.path() / name);
    list_run({temporary_.path() / name, "job " + name, started}).or_throw();
  }
  [[nodiscard]] std::vector<std::string> jobs() const {
    std::vector<std::string> out;
    for (const ListedRun& each : listed_runs()) out.push_back(each.job);
    return out;
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(list()), fs::directory_iterator()));
  }

  std::string former_ = std::getenv("XDG_STATE_HOME") == nullptr ? "" : std::getenv("XDG_STATE_HOME");
  TempFolder temporary_;
};

TEST_F(RunListTest, has_the_last_run_of_each_folder_and_the_latest_first) {
  EXPECT_TRUE(listed_runs().empty());
  run("a", "2026-11-24T12:00:00.000Z");
  run("b", "2026-11-24T13:00:00.000Z");
  EXPECT_THAT(jobs(), ElementsAre("job b", "job a"));
  list_run({temporary_.path() / "b/../a", "again", "2026-11-24T14:00:00.000Z"}).or_throw();
  EXPECT_THAT(jobs(), ElementsAre("again", "job b"));
  EXPECT_EQ(listed_runs()[0].folder, fs::canonical(temporary_.path() / "a"));
  EXPECT_EQ(listed_runs()[0].started, "2026-11-24T14:00:00.000Z");
  EXPECT_EQ(fs::status(list().parent_path()).permissions(), fs::perms::owner_all);
}

TEST_F(RunListTest, forgets_folders_that_are_gone_at_the_next_run_RR1) {  // RR-1
  run("a", "2026-11-24T12:00:00.000Z");
  fs::remove(temporary_.path() / "a");
  EXPECT_TRUE(listed_runs().empty());
  EXPECT_EQ(files(), 1U);
  run("b", "2026-11-24T13:00:00.000Z");
  EXPECT_EQ(files(), 1U);
}

TEST_F(RunListTest, keeps_the_latest_thousand_RR1) {  // RR-1
  run("a", "2026-11-24T12:00:00.000Z");
  const fs::path folder = fs::canonical(temporary_.path() / "a");
  for (std::size_t at = 0; at < most_listed_runs; ++at) {
    std::ofstream(list() / (std::to_string(at) + ".json"))
        << R"({"folder":")" << folder.string() << R"(","job":"old","started":"2026-11-24T11:00:00.000Z"})";
  }
  run("b", "2026-11-24T13:00:00.000Z");
  EXPECT_EQ(files(), most_listed_runs);
  EXPECT_THAT(std::vector(jobs()).at(0), "job b");
  EXPECT_THAT(std::vector(jobs()).at(1), "job a");
}

TEST_F(RunListTest, leaves_out_what_it_cannot_read_RR2) {  // RR-2
  run("a", "2026-11-24T12:00:00.000Z");
  for (const char* const text : {"", "{", "[1]", R"({"folder": 3})"}) std::ofstream(list() / "x.json") << text;
  std::ofstream(list() / "y.json") << std::string(1 << 20, ' ');
  EXPECT_THAT(jobs(), ElementsAre("job a"));
}

TEST_F(RunListTest, follows_a_run_that_is_moved_aside) {
  run("a", "2026-11-24T12:00:00.000Z");
  fs::create_directories(temporary_.path() / "a.1");
  move_listed_run(temporary_.path() / "a", temporary_.path() / "a.1").or_throw();
  run("a", "2026-11-24T13:00:00.000Z");
  EXPECT_EQ(listed_runs()[1].folder, fs::canonical(temporary_.path() / "a.1"));
  EXPECT_EQ(listed_runs()[1].job, "job a");
  EXPECT_TRUE(move_listed_run(temporary_.path() / "none", temporary_.path() / "a.1").ok());
}

TEST_F(RunListTest, names_a_place_that_cannot_be_written) {
  std::ofstream(temporary_.path() / "state") << "a file";
  const Status listed = list_run({temporary_.path(), "a", "2026-11-24T12:00:00.000Z"});
  ASSERT_FALSE(listed.ok());
  EXPECT_THAT(listed.error().message, AllOf(HasSubstr(list().parent_path().string()), IsOneLine()));
}

}  // namespace
}  // namespace maestro
