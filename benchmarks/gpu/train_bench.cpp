// SPDX-License-Identifier: Apache-2.0
// Trains a decoder on random tokens, without actors, and prints a JSON object: times of steps, memory, losses.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "benchmarks/gpu/bench_training.hpp"
#include "runtime/core/result.hpp"

namespace maestro::bench {
namespace {

struct Settings : TrainingSettings {
  std::string device = "cuda:0";
  std::string graphs = "auto";  ///< value of train.cuda_graphs
  std::int64_t timed = 20;      ///< steps after the warm-up steps
  std::int64_t warmup = 5;
};

constexpr const char* usage =
    "usage: train_bench [--device cuda:0|cpu] [--model NAME] [--precision bf16|fp32] [--batch N] [--sequence N]\n"
    "                   [--micro-batches N] [--steps N] [--warmup N] [--clip NORM] [--graphs auto|always|never]\n";

Settings read(int count, char** words) {
  Settings settings;
  const std::map<std::string, std::string*> texts{{"--device", &settings.device},
                                                  {"--model", &settings.model},
                                                  {"--precision", &settings.precision},
                                                  {"--graphs", &settings.graphs}};
  const std::map<std::string, std::int64_t*> numbers{{"--batch", &settings.batch},
                                                     {"--sequence", &settings.sequence},
                                                     {"--micro-batches", &settings.micro_batches},
                                                     {"--steps", &settings.timed},
                                                     {"--warmup", &settings.warmup}};
  for (int at = 1; at < count; at += 2) {
    const std::string name = words[at];
    if (at + 1 == count) throw JobError(name + " needs a value\n" + usage);
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = words[at + 1];
    } else if (const auto number = numbers.find(name); number != numbers.end()) {
      *number->second = std::max(1LL, std::atoll(words[at + 1]));
    } else if (name == "--clip") {
      settings.clip = std::atof(words[at + 1]);
    } else {
      throw JobError("there is no " + name + "\n" + usage);
    }
  }
  if (!graph_use(settings.graphs)) throw JobError("--graphs " + settings.graphs + ": use auto, always or never");
  if (settings.batch % settings.micro_batches != 0) throw JobError("--micro-batches divides --batch");
  settings.steps = settings.warmup + settings.timed;
  return settings;
}

nlohmann::json report_of(const Settings& settings, const Training& training, const BenchDevice& device) {
  const auto timed = static_cast<std::ptrdiff_t>(settings.timed);
  std::vector<double> times(training.step_ms().end() - timed, training.step_ms().end());
  std::ranges::sort(times);
  const double mean = std::reduce(times.begin(), times.end()) / static_cast<double>(times.size());
  const auto tokens = static_cast<double>(settings.batch * settings.sequence);
  return {{"program", "maestro"},
          {"model", settings.model},
          {"device", settings.device},
          {"precision", settings.precision},
          {"graphs", settings.graphs},
          {"batch", settings.batch},
          {"sequence", settings.sequence},
          {"micro_batches", settings.micro_batches},
          {"parameters", training.parameters()},
          {"step_ms", mean},
          {"step_ms_median", times[times.size() / 2]},
          {"step_ms_all", times},
          {"tokens_per_s", 1000 * tokens / mean},
          {"flops_per_step", training.flops_per_step()},
          {"memory_mib", device.memory_mib()},
          {"losses", training.losses()}};
}

}  // namespace
}  // namespace maestro::bench

int main(int count, char** words) {
  try {
    const maestro::bench::Settings settings = maestro::bench::read(count, words);
    maestro::bench::BenchDevice device(settings.device, 1, maestro::Priority::critical, false,
                                       maestro::graph_use(settings.graphs).value());
    maestro::bench::Training training(settings, device);
    training.run();
    std::cout << maestro::bench::report_of(settings, training, device).dump() << '\n';
    return 0;
  } catch (const std::exception& failed) {
    std::cerr << "train_bench: " << failed.what() << '\n';
    return 1;
  }
}
