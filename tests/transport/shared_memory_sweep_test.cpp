#include "transport/shared_memory_sweep.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/transport/peer_process.hpp"

namespace maestro::testing {
namespace {

// A folder of its own for one test.
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

// Above the kernel's largest process number (2^22), so no process ever has it.
constexpr pid_t no_process = 100000000;

TEST(SharedMemorySweep, removes_what_a_killed_process_left) {
  unsetenv("MAESTRO_PROVIDER");
  PeerProcess process("shm", 4096);
  const pid_t pid = process.pid();
  const std::string name = std::to_string(pid) + ":0:0";
  process.kill_now();
  ASSERT_TRUE(std::filesystem::exists("/dev/shm/" + name)) << "libfabric names its segments in another way";
  const pid_t dead[] = {pid};
  const auto removed = sweep_shared_memory(dead);
  ASSERT_TRUE(removed.ok()) << removed.error().message;
  EXPECT_EQ(*removed, std::vector<std::string>{name});
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/" + name));
  EXPECT_TRUE(sweep_shared_memory(dead)->empty());
}

TEST(SharedMemorySweep, leaves_the_segments_of_a_living_process_alone) {
  const TempFolder folder;
  const std::string name = std::to_string(getpid()) + ":0:0";
  folder.touch(name);
  const pid_t alive[] = {getpid()};
  EXPECT_TRUE(sweep_shared_memory(alive, folder.path())->empty());
  EXPECT_TRUE(folder.has(name));
}

TEST(SharedMemorySweep, removes_only_what_bears_a_given_number_and_libfabrics_form) {
  const TempFolder folder;
  const auto pid = std::to_string(no_process);
  for (const auto* ending : {":0:0", ":1:2", ":0:0_17", ":0", ":x:0", "", ":0:0.txt"}) folder.touch(pid + ending);
  folder.touch(std::to_string(no_process + 1) + ":0:0");
  folder.touch("sem." + pid + ":0:0");
  const pid_t dead[] = {no_process};
  const auto removed = sweep_shared_memory(dead, folder.path());
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(*removed, (std::vector<std::string>{pid + ":0:0", pid + ":0:0_17", pid + ":1:2"}));
  EXPECT_TRUE(folder.has(std::to_string(no_process + 1) + ":0:0"));
  EXPECT_TRUE(folder.has(pid + ":0:0.txt"));
}

TEST(SharedMemorySweep, a_zombie_counts_as_dead) {
  const TempFolder folder;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(0);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);  // dead, and not yet reaped
  const std::string name = std::to_string(child) + ":0:0";
  folder.touch(name);
  const pid_t dead[] = {child};
  EXPECT_EQ(*sweep_shared_memory(dead, folder.path()), std::vector<std::string>{name});
  waitpid(child, nullptr, 0);
}

TEST(SharedMemorySweep, a_leaving_process_removes_its_own_segments_and_no_others) {
  const TempFolder folder;
  const std::string own = std::to_string(getpid()) + ":0:0";
  const std::string other = std::to_string(no_process) + ":0:0";
  folder.touch(own);
  folder.touch(other);
  EXPECT_EQ(*sweep_own_shared_memory(folder.path()), std::vector<std::string>{own});
  EXPECT_TRUE(folder.has(other));
}

TEST(SharedMemorySweep, a_folder_that_cannot_be_read_is_an_error) {
  const auto result = sweep_shared_memory({}, "/no/such/folder");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("/no/such/folder"), std::string::npos);
}

}  // namespace
}  // namespace maestro::testing
