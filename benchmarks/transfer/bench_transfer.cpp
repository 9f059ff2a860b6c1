// SPDX-License-Identifier: Apache-2.0
// Bandwidth and latency of the transport between two processes and inside a process, next to memcpy.
//
// Prints a JSON line for each provider, mode and size:
//   bandwidth_gbs         10^9 bytes a second, `window` writes in flight, until the last is in the target's memory
//   half_round_trip_us    half of the median time of a write and its answer
//   memcpy_gbs            a single thread copying as many bytes between two buffers
//   idle_core_percent     CPU time of an idle endpoint (in a line without a size)
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "benchmarks/transfer/transfer_station.hpp"

namespace maestro::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t window = 4;
constexpr std::size_t largest_region = std::size_t{256} << 20;

struct Load {
  std::size_t bytes = 0;
  int round_trips = 0;
  int transfers = 0;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Returns a load with enough repetitions to take some tenths of a second.
Load load_of(std::size_t bytes) {
  const auto transfers = std::clamp<std::size_t>((std::size_t{1} << 30) / bytes, 2 * window, 20000);
  return {bytes, static_cast<int>(std::clamp<std::size_t>(transfers, 20, 2000)), static_cast<int>(transfers)};
}

// Runs the echoing end: answers each round trip, then receives the stream and confirms it with a write.
void echo(TransferStation& station, const Load& load) {
  for (int i = 0; i < load.round_trips; ++i) {
    station.await_remote(static_cast<std::uint64_t>(i) + 1);
    station.write(0, load.bytes);
  }
  station.await_remote(static_cast<std::uint64_t>(load.round_trips + load.transfers));
  station.write(0, 1);
  station.await_done(station.written());
}

double measure_half_round_trip_us(TransferStation& station, const Load& load) {
  std::vector<double> times;
  for (int i = 0; i < load.round_trips; ++i) {
    const auto start = Clock::now();
    station.write(0, load.bytes);
    station.await_remote(static_cast<std::uint64_t>(i) + 1);
    times.push_back(seconds_since(start) * 1e6 / 2);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

double measure_bandwidth_gbs(TransferStation& station, const Load& load) {
  station.await_done(station.written());
  const auto before = station.written();
  const auto start = Clock::now();
  for (int i = 0; i < load.transfers; ++i) {
    const auto sent = static_cast<std::uint64_t>(i);
    if (sent >= window) station.await_done(before + sent - window + 1);
    station.write((sent % window) * load.bytes, load.bytes);
  }
  station.await_remote(static_cast<std::uint64_t>(load.round_trips) + 1);
  return static_cast<double>(load.bytes) * load.transfers / seconds_since(start) * 1e-9;
}

double measure_memcpy_gbs(const Load& load) {
  std::vector<std::byte> from(load.bytes * window, std::byte{1});
  std::vector<std::byte> to(load.bytes * window);
  const auto start = Clock::now();
  for (int i = 0; i < load.transfers; ++i) {
    const auto offset = static_cast<std::size_t>(i) % window * load.bytes;
    std::memcpy(to.data() + offset, from.data() + offset, load.bytes);
    asm volatile("" : : "r"(to.data()) : "memory");  // the copy must happen
  }
  return static_cast<double>(load.bytes) * load.transfers / seconds_since(start) * 1e-9;
}

void report(TransferStation& station, const char* mode, const Load& load) {
  nlohmann::json line;
  line["provider"] = station.provider();
  line["mode"] = mode;
  line["bytes"] = load.bytes;
  line["half_round_trip_us"] = measure_half_round_trip_us(station, load);
  line["bandwidth_gbs"] = measure_bandwidth_gbs(station, load);
  line["memcpy_gbs"] = measure_memcpy_gbs(load);
  line["note"] = "medians of " + std::to_string(load.round_trips) + " round trips; " + std::to_string(load.transfers) +
                 " writes, " + std::to_string(window) + " in flight; " +
                 std::to_string(std::thread::hardware_concurrency()) + " cores";
  std::cout << line.dump() << std::endl;
}

// Measures two endpoints in the same process.
void run_loopback(const std::string& provider, const Load& load) {
  TransferStation far(provider, load.bytes * window);
  TransferStation near(provider, load.bytes * window);
  near.meet(far.introduce());
  far.meet(near.introduce());
  std::thread echoing([&] { echo(far, load); });
  report(near, "loopback", load);
  echoing.join();
}

int run_echo_process(const std::string& provider, std::size_t bytes) {
  TransferStation station(provider, bytes * window);
  std::cout << station.introduce() << std::endl;
  Introduction peer;
  if (!(std::cin >> peer)) return 1;
  station.meet(peer);
  echo(station, load_of(bytes));
  return 0;
}

// This program, started again as the echoing end.
class EchoProcess {
 public:
  EchoProcess(const std::string& provider, std::size_t bytes) {
    int to_child[2];
    int from_child[2];
    if (pipe(to_child) != 0 || pipe(from_child) != 0) throw JobError("cannot make pipes", ErrorCode::unavailable);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to_child[0], STDIN_FILENO);
      dup2(from_child[1], STDOUT_FILENO);
      for (int file : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(file);
      const auto size = std::to_string(bytes);
      execl("/proc/self/exe", "bench_transfer", "--echo", "--provider", provider.c_str(), "--bytes", size.c_str(),
            static_cast<char*>(nullptr));
      _exit(127);
    }
    close(to_child[0]);
    close(from_child[1]);
    commands_ = fdopen(to_child[1], "w");
    answers_ = fdopen(from_child[0], "r");
  }
  ~EchoProcess() {
    std::fclose(commands_);
    std::fclose(answers_);
    waitpid(pid_, nullptr, 0);
  }
  EchoProcess(const EchoProcess&) = delete;
  EchoProcess& operator=(const EchoProcess&) = delete;

  Introduction exchange(const Introduction& mine) {
    std::ostringstream line;
    line << mine << '\n';
    std::fputs(line.str().c_str(), commands_);
    std::fflush(commands_);
    std::string text;
    for (int letter = std::fgetc(answers_); letter != EOF && letter != '\n'; letter = std::fgetc(answers_)) {
      text += static_cast<char>(letter);
    }
    Introduction theirs;
    if (!(std::istringstream(text) >> theirs)) throw JobError("the echoing process did not start");
    return theirs;
  }

 private:
  pid_t pid_ = -1;
  std::FILE* commands_ = nullptr;
  std::FILE* answers_ = nullptr;
};

void run_two_processes(const std::string& provider, const Load& load) {
  TransferStation station(provider, load.bytes * window);
  EchoProcess process(provider, load.bytes);
  station.meet(process.exchange(station.introduce()));
  report(station, "two processes", load);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void run_idle(const std::string& provider) {
  TransferStation station(provider, 4096);
  const auto before = cpu_seconds();
  const auto start = Clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(2));  // measures the endpoint's CPU time meanwhile
  nlohmann::json line;
  line["provider"] = station.provider();
  line["mode"] = "idle";
  line["idle_core_percent"] = 100 * (cpu_seconds() - before) / seconds_since(start);
  line["note"] = "CPU time of the process while its only endpoint waits for 2 s";
  std::cout << line.dump() << std::endl;
}

int run(int argc, char** argv) {
  CLI::App app("Measures the transport");
  std::vector<std::string> providers{"shm", "tcp"};
  std::vector<std::size_t> sizes{8, 4096, 65536, 1 << 20, 8 << 20};
  bool is_echo = false;
  app.add_option("--provider", providers, "Providers, as in job files")->capture_default_str();
  app.add_option("--bytes", sizes, "Bytes per write")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, largest_region / window));
  app.add_flag("--echo", is_echo, "Be the second process (started by the first)")->group("");
  CLI11_PARSE(app, argc, argv);
  if (is_echo) return run_echo_process(providers.front(), sizes.front());
  for (const auto& provider : providers) {
    run_idle(provider);
    for (auto bytes : sizes) {
      run_loopback(provider, load_of(bytes));
      run_two_processes(provider, load_of(bytes));
    }
  }
  return 0;
}

}  // namespace
}  // namespace maestro::bench

int main(int argc, char** argv) {
  try {
    return maestro::bench::run(argc, argv);
  } catch (const maestro::JobError& error) {
    std::cerr << "bench_transfer: " << error.what() << "\n";
    return 1;
  }
}
