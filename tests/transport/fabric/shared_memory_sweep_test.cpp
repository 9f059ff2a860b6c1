// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/shared_memory_sweep.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/transport/fabric/peer_process.hpp"

namespace maestro::testing {
namespace {

// A temporary folder for each test.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "sweep-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  void touch(const std::string& name) const { std::ofstream(path_ / name) << "x"; }
  [[nodiscard]] bool has(const std::string& name) const { return std::filesystem::exists(path_ / name); }
  [[nodiscard]] std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Above the kernel's largest process number (2^22), so no process can have it.
constexpr std::uint64_t no_process = 100000000;

// The fields of a name that this process would use.
struct Fields {
  std::uint64_t pid_namespace = 0, pid = 0, started = 0;

  Fields() {
    const std::string name = new_shared_memory_name();
    std::uint64_t serial = 0;
    if (std::sscanf(name.c_str(), "maestro-%lu-%lu-%lu-%lu", &pid_namespace, &pid, &started, &serial) != 4) {
      ADD_FAILURE() << "unknown form of name: " << name;
    }
  }
  [[nodiscard]] std::string name(const std::string& ending = ":0") const {
    return "maestro-" + std::to_string(pid_namespace) + '-' + std::to_string(pid) + '-' + std::to_string(started) +
           "-0:" + std::to_string(getuid()) + ending;
  }
};

std::vector<std::string> segments_of(pid_t pid) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("maestro-") && name.find('-' + std::to_string(pid) + '-') != std::string::npos) {
      found.push_back(name);
    }
  }
  return found;
}

TEST(SharedMemorySweep, names_never_repeat) {
  EXPECT_NE(new_shared_memory_name(), new_shared_memory_name());
  EXPECT_EQ(Fields().pid, static_cast<std::uint64_t>(getpid()));
  EXPECT_GT(Fields().started, 0U);
}

TEST(SharedMemorySweep, removes_what_a_killed_process_left) {
  unsetenv("MAESTRO_PROVIDER");
  PeerProcess process("shm", 4096);
  const pid_t pid = process.pid();
  EXPECT_EQ(segments_of(pid).size(), 1U) << "libfabric does not take the name it is given";
  process.kill_now();  // from now on, any process of this user that opens an endpoint removes the segment
  const auto removed = sweep_shared_memory();
  ASSERT_TRUE(removed.ok()) << removed.error().message;
  EXPECT_TRUE(segments_of(pid).empty());
}

TEST(SharedMemorySweep, removes_a_folder_of_a_dead_process_with_all_that_is_in_it) {
  const TempFolder folder;
  Fields dead;
  dead.pid = no_process;
  std::filesystem::create_directories(folder.path() + "/" + dead.name() + "/step-00000001");
  folder.touch(dead.name() + "/step-00000001/part");
  EXPECT_EQ(sweep_shared_memory(folder.path())->size(), 1U);
  EXPECT_FALSE(folder.has(dead.name()));
}

TEST(SharedMemorySweep, opening_an_endpoint_removes_what_a_killed_process_left) {
  unsetenv("MAESTRO_PROVIDER");
  PeerProcess killed("shm", 4096);
  const pid_t pid = killed.pid();
  killed.kill_now();
  const PeerProcess next("shm", 4096);
  EXPECT_TRUE(segments_of(pid).empty());
}

TEST(SharedMemorySweep, leaves_the_segments_of_a_living_process_alone) {
  const TempFolder folder;
  const std::string name = Fields().name();
  folder.touch(name);
  EXPECT_TRUE(sweep_shared_memory(folder.path())->empty());
  EXPECT_TRUE(folder.has(name));
}

TEST(SharedMemorySweep, a_process_with_the_number_of_a_dead_one_does_not_keep_its_segments) {
  const TempFolder folder;
  Fields earlier;
  earlier.started -= 1;
  folder.touch(earlier.name());
  EXPECT_EQ(*sweep_shared_memory(folder.path()), std::vector<std::string>{earlier.name()});
}

TEST(SharedMemorySweep, removes_what_nobody_holds_in_another_pid_namespace) {
  const TempFolder folder;
  Fields elsewhere;
  elsewhere.pid_namespace += 1;
  const std::string abandoned = elsewhere.name(":0"), used = elsewhere.name(":1"), young = elsewhere.name(":2");
  std::vector<FileDescriptor> held;
  for (const std::string& name : {abandoned, used, young}) {
    folder.touch(name);
    const std::filesystem::path path = folder.path() + "/" + name;
    if (name == used) held.push_back(hold_shared_memory(path));
    if (name == young) continue;
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(2));
  }
  EXPECT_EQ(*sweep_shared_memory(folder.path()), std::vector<std::string>{abandoned});
  held.clear();
  EXPECT_EQ(*sweep_shared_memory(folder.path()), std::vector<std::string>{used});
}

TEST(SharedMemorySweep, leaves_young_segments_of_other_pid_namespaces_and_other_users_alone) {
  const TempFolder folder;
  Fields elsewhere;
  elsewhere.pid = no_process;
  elsewhere.pid_namespace += 1;
  folder.touch(elsewhere.name());
  const std::string other_user = "maestro-" + std::to_string(Fields().pid_namespace) + '-' +
                                 std::to_string(no_process) + "-1-0:" + std::to_string(getuid() + 1) + ":0";
  folder.touch(other_user);
  EXPECT_TRUE(sweep_shared_memory(folder.path())->empty());
  EXPECT_TRUE(folder.has(elsewhere.name()));
  EXPECT_TRUE(folder.has(other_user));
}

TEST(SharedMemorySweep, removes_only_names_of_its_own_form) {
  const TempFolder folder;
  Fields dead;
  dead.pid = no_process;
  for (const auto* ending : {":0", ":2", ":0_17", ":x", ":0.txt"}) folder.touch(dead.name(ending));
  const std::string foreign = std::to_string(no_process) + ":0:0";  // another program's, named by libfabric
  folder.touch(foreign);
  folder.touch("maestro-");
  folder.touch("maestro-1-2");
  const auto removed = sweep_shared_memory(folder.path());
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(*removed, (std::vector<std::string>{dead.name(":0"), dead.name(":0_17"), dead.name(":2")}));
  EXPECT_TRUE(folder.has(foreign));
  EXPECT_TRUE(folder.has(dead.name(":0.txt")));
}

TEST(SharedMemorySweep, a_zombie_counts_as_dead) {
  const TempFolder folder;
  int name_pipe[2];
  ASSERT_EQ(pipe(name_pipe), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string name = new_shared_memory_name();
    _exit(write(name_pipe[1], name.data(), name.size()) == static_cast<ssize_t>(name.size()) ? 0 : 1);
  }
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);  // dead and not yet reaped
  char text[256];
  const ssize_t size = read(name_pipe[0], text, sizeof text);
  ASSERT_GT(size, 0);
  const std::string name = std::string(text, static_cast<std::size_t>(size)) + ":" + std::to_string(getuid()) + ":0";
  folder.touch(name);
  EXPECT_EQ(*sweep_shared_memory(folder.path()), std::vector<std::string>{name});
  waitpid(child, nullptr, 0);
  close(name_pipe[0]);
  close(name_pipe[1]);
}

TEST(SharedMemorySweep, a_leaving_process_removes_its_own_segments_and_no_others) {
  const TempFolder folder;
  const std::string own = Fields().name();
  Fields stranger;
  stranger.pid = no_process;
  folder.touch(own);
  folder.touch(stranger.name());
  EXPECT_EQ(*sweep_own_shared_memory(folder.path()), std::vector<std::string>{own});
  EXPECT_TRUE(folder.has(stranger.name()));
}

TEST(SharedMemorySweep, a_folder_that_cannot_be_read_is_an_error) {
  const auto result = sweep_shared_memory("/no/such/folder");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("/no/such/folder"), std::string::npos);
}

}  // namespace
}  // namespace maestro::testing
