// SPDX-License-Identifier: Apache-2.0
// Times the reading of samples from prepared data: bench_data FOLDER SEQUENCE SECONDS. Reads samples in a run's order,
// on one thread. Prints a JSON line.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/data/text/prepared_corpus.hpp"

namespace maestro {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double resident_mb() {
  std::ifstream in("/proc/self/statm");
  double size = 0, pages = 0;
  in >> size >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

int run(const char* folder, std::int64_t sequence, double seconds) {
  DataConfig config;
  config.sequence = sequence;
  const auto opening = std::chrono::steady_clock::now();
  const PreparedCorpus corpus(folder, config);
  const double opened = seconds_since(opening);
  const Sampler sampler(1, corpus.sources());
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(corpus.max_length())), targets(tokens.size());
  std::uint64_t samples = 0, positions = 0, checksum = 0;
  const auto begin = std::chrono::steady_clock::now();
  double most = resident_mb();
  while (seconds_since(begin) < seconds) {
    for (int i = 0; i < 64; ++i) {
      const SampleId sample = sampler.at(samples++);
      corpus.read(Split::train, sample, tokens, targets);
      positions += static_cast<std::uint64_t>(corpus.length(Split::train, sample));
      checksum += static_cast<std::uint64_t>(tokens[0]);
    }
    most = std::max(most, resident_mb());
  }
  const double taken = seconds_since(begin);
  const nlohmann::ordered_json row = {{"open_ms", 1000 * opened},
                                      {"samples", corpus.samples(Split::train)},
                                      {"samples_per_s", static_cast<double>(samples) / taken},
                                      {"tokens_per_s", static_cast<double>(positions) / taken},
                                      {"resident_mb", most},
                                      {"checksum", checksum}};
  std::printf("%s\n", row.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace maestro

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw maestro::JobError("usage: bench_data FOLDER SEQUENCE SECONDS");
    return maestro::run(argv[1], std::atoll(argv[2]), std::atof(argv[3]));
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_data: %s\n", problem.what());
    return 2;
  }
}
