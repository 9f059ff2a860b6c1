// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/max_rss.hpp"

#include <sys/resource.h>

#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace maestro {
namespace {

constexpr double bytes_per_kib = 1024.0;
constexpr double bytes_per_mb = 1e6;

/// Parses "VmHWM:  1234 kB"; 0 if the kernel does not report `field`.
double kib_of(std::string_view field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    double kib = 0;
    if (word == field && status >> kib) return kib;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

}  // namespace

double max_rss_mb() {
  // Preferred to getrusage, whose maximum survives exec and would include the launcher's memory.
  double kib = kib_of("VmHWM:");
  if (kib <= 0) {
    rusage usage{};
    if (::getrusage(RUSAGE_SELF, &usage) == 0) kib = static_cast<double>(usage.ru_maxrss);
  }
  return kib * bytes_per_kib / bytes_per_mb;
}

void begin_max_rss() {
  std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): resets only VmHWM
}

double rss_mb() {
  return kib_of("VmRSS:") * bytes_per_kib / bytes_per_mb;
}

}  // namespace maestro
