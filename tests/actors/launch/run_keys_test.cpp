// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/run_keys.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;

TEST(RunKeys, travel_in_one_line_and_arrive_whole) {
  const RunKeys made = RunKeys::make({"127.0.0.1"});
  const std::string line = pack(made.keys());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const RunKeys arrived = RunKeys::unpack(line);
  EXPECT_EQ(arrived.keys().token, made.keys().token);
  EXPECT_NE(arrived.keys().folder, made.keys().folder);
  EXPECT_NO_THROW((void)load_key_set(arrived.keys().folder));
}

TEST(RunKeys, are_their_users_alone_and_go_with_the_run) {  // EK-1
  fs::path folder;
  {
    const RunKeys made = RunKeys::make({});
    folder = made.keys().folder;
    EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
    EXPECT_EQ(fs::status(made.keys().key).permissions() & fs::perms::others_all, fs::perms::none);
  }
  EXPECT_FALSE(fs::exists(folder));
}

TEST(RunKeys, that_came_damaged_are_refused) {
  EXPECT_THROW((void)RunKeys::unpack("Welcome to host b!"), JobError);
  EXPECT_THROW((void)RunKeys::unpack("{\"token\": \"x\"}"), JobError);
}

TEST(RunKeys, names_in_the_line_cannot_leave_the_folder) {
  const fs::path outside = fs::temp_directory_path() / ("maestro-run-keys-outside-" + std::to_string(getpid()));
  fs::remove(outside);
  EXPECT_THROW((void)RunKeys::unpack(R"({"../../../../../../../)" + outside.string() + R"(": "x"})"), JobError);
  EXPECT_FALSE(fs::exists(outside));
}

}  // namespace
}  // namespace maestro
