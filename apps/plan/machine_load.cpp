// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/machine_load.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double least_share = 0.9;

double thread_cpu_seconds() {
  std::timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Returns CPU time per wall time of this thread, busy for at least `time`.
double busy_share(std::chrono::milliseconds time) {
  const auto begin = Clock::now();
  const double cpu_before = thread_cpu_seconds();
  auto now = begin;
  while (now - begin < time) now = Clock::now();
  return (thread_cpu_seconds() - cpu_before) / std::chrono::duration<double>(now - begin).count();
}

}  // namespace

MachineLoad measure_load(int threads, std::chrono::milliseconds time) {
  MachineLoad load;
  std::ifstream file("/proc/loadavg");  // read first: the busy threads count, too
  load.runnable = read_load_average(std::string(std::istreambuf_iterator<char>(file), {}));
  std::vector<double> shares(static_cast<std::size_t>(std::max(threads, 1)));
  {
    std::vector<std::jthread> busy;
    for (double& share : shares) busy.emplace_back([&share, time] { share = busy_share(time); });
  }
  load.core_share = 0;
  for (const double share : shares) load.core_share += share / static_cast<double>(shares.size());
  return load;
}

std::optional<double> read_load_average(std::string_view text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end == text.data() + text.size() || *end != ' ' || value < 0) return std::nullopt;
  return value;
}

bool allows_measuring(const MachineLoad& load) {
  return load.core_share >= least_share;
}

std::string load_warning(const MachineLoad& load, int cores) {
  if (allows_measuring(load)) return {};
  const auto percent = static_cast<int>(std::floor(100 * load.core_share));
  const std::string average =
      load.runnable ? " (load average " + number_text(*load.runnable) + " on " + std::to_string(cores) + " cores)" : "";
  return "other processes load this machine: a busy thread gets " + std::to_string(percent) + "% of a core" + average +
         ", so the times measured now are of no use; measure on an idle machine";
}

}  // namespace maestro
