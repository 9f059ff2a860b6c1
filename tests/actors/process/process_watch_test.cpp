// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "actors/control/control_place.hpp"
#include "actors/launch/launcher.hpp"
#include "actors/launch/parent_watch.hpp"
#include "actors/launch/run_keys.hpp"
#include "actors/rpc/runtime_folder.hpp"
#include "actors/rpc/socket_address.hpp"
#include "runtime/core/process_identity.hpp"
#include "tests/observe/temporary_folder.hpp"

namespace maestro {
namespace {

using namespace std::chrono_literals;

constexpr auto watch_patience = 30s;

/// Runs `action` in a child process and returns its output. The child has been reaped by then.
std::string in_another_process(const std::function<std::string()>& action) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string text = action();
    (void)!write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char c = 0;
  while (read(ends[0], &c, 1) == 1) text += c;
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  return text;
}

TEST(ProcessIdentity, tells_dead_processes_of_this_boot_from_all_others) {
  const std::string own = identity_text(own_identity());
  EXPECT_FALSE(is_of_dead_process(own));
  const std::string dead = in_another_process([] { return identity_text(own_identity()); });
  EXPECT_NE(dead, own);
  EXPECT_TRUE(is_of_dead_process(dead)) << dead;
  EXPECT_TRUE(is_of_dead_process(dead + "-abc")) << dead;
  EXPECT_FALSE(is_of_dead_process("0" + dead)) << "of another boot or host";
  EXPECT_FALSE(is_of_dead_process("abcdef"));
  EXPECT_TRUE(is_of_dead_process(own.substr(0, own.rfind('-')) + "-1")) << "an earlier process of this number";
}

TEST(RunKeysOfTheDead, are_swept_and_those_of_the_living_stay) {
  const std::string dead = in_another_process([] {
    const auto* keys = new RunKeys(RunKeys::make({}));  // never destroyed, as if the process was killed
    return keys->keys().folder.string();
  });
  ASSERT_TRUE(std::filesystem::exists(dead)) << dead;
  const RunKeys own = RunKeys::make({});
  sweep_run_keys();
  EXPECT_FALSE(std::filesystem::exists(dead)) << dead;
  EXPECT_TRUE(std::filesystem::exists(own.keys().folder));
}

class RuntimeFolder : public TemporaryFolder {
 protected:
  RuntimeFolder() { setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1); }
  ~RuntimeFolder() override { unsetenv("XDG_RUNTIME_DIR"); }
};

TEST_F(RuntimeFolder, loses_sockets_of_the_dead) {
  const auto socket = [](const std::string& name) {
    SocketAddress address;
    address.path = runtime_folder() / name;
    return address;
  };
  const auto made_an_hour_ago = [](const SocketAddress& address) {
    std::filesystem::last_write_time(address.path, std::filesystem::file_time_type::clock::now() - 1h);
  };
  SocketAddress alive = socket("1.sock");
  const FileDescriptor listener = listen_at(alive);
  made_an_hour_ago(alive);
  SocketAddress young = socket("2.peers");
  listen_at(young).reset();
  std::vector<SocketAddress> left = {socket("3.sock"), socket("4.rendezvous"), socket("5.peers")};
  for (SocketAddress& each : left) {
    listen_at(each).reset();
    made_an_hour_ago(each);
  }
  sweep_runtime_folder();
  EXPECT_TRUE(std::filesystem::exists(alive.path));
  EXPECT_TRUE(std::filesystem::exists(young.path));
  for (const SocketAddress& each : left) EXPECT_FALSE(std::filesystem::exists(each.path)) << each.path;
}

TEST(ParentWatch, sees_that_the_other_end_of_its_input_is_closed) {  // RW-1
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  std::promise<std::string> lost;
  ParentWatch watch(0, ends[0], [&](const std::string& how) { lost.set_value(how); });
  auto how = lost.get_future();
  EXPECT_EQ(how.wait_for(0s), std::future_status::timeout);
  close(ends[1]);
  ASSERT_EQ(how.wait_for(watch_patience), std::future_status::ready);
  EXPECT_EQ(how.get(), "ended");
  close(ends[0]);
}

TEST(ParentWatch, sees_that_its_parent_has_ended_before_it_looked) {  // RW-1
  std::promise<std::string> lost;
  ParentWatch watch(getpid(), -1, [&](const std::string& how) { lost.set_value(how); });  // not its parent
  auto how = lost.get_future();
  ASSERT_EQ(how.wait_for(watch_patience), std::future_status::ready);
  EXPECT_EQ(how.get(), "ended");
}

TEST(ParentWatch, calls_nobody_after_its_end) {  // RW-2
  for (int at = 0; at < 20; ++at) {
    ParentWatch watch(getppid(), -1, [](const std::string& how) { FAIL() << how; });
  }
}

}  // namespace
}  // namespace maestro
