// SPDX-License-Identifier: Apache-2.0
// The cost of different layouts in neighbouring sections. Prints a JSON object per line.
//
// "reshard_plan", per pair of layouts and direction, from a step that a run's planner makes:
//   over_least      moved bytes / least bytes that any plan can move: 1 is the goal
//   pieces, piece_* contiguous rows with a single sender and receiver; each is a header and a payload on the wire
//   resharding_us   median time to plan the pieces of this edge; planning_us: time to plan the step, once
// "reshard_move", per pair, direction and transport: moving these bytes
//   gb_per_s        10^9 bytes a second; memcpy_gb_per_s: a copy of as many bytes, in turn with it; ratio: of the two
//   copied_share    share of the bytes that the receiver gathered in the same process; 0: they are read in place,
//                   without a bandwidth
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "benchmarks/reshard/edge_transfer.hpp"

namespace maestro::bench {
namespace {

using nlohmann::json;

constexpr const char* in_process_name = "hand-over";

const std::vector<LayoutPair>& layout_pairs() {
  static const std::vector<LayoutPair> pairs{
      {"DP 1 to 4", {1, {}, 6}, {4, {}, 6}},          {"DP 3 to 2", {3, {}, 4}, {2, {}, 4}},
      {"TP 2 to 1", {1, {2, 1}, 6}, {1, {}, 6}},      {"CP 2 to TP 2", {1, {1, 2}, 6}, {1, {2, 1}, 6}},
      {"micro-batch 8 to 3", {1, {}, 8}, {1, {}, 3}}, {"all together", {3, {2, 2}, 8}, {2, {1, 3}, 3}},
  };
  return pairs;
}

json described(const SectionLayout& section) {
  return {{"dp", section.replicas},
          {"tp", section.layout.tensor},
          {"cp", section.layout.context},
          {"micro_batch", section.micro_batch}};
}

json named(const char* benchmark, const EdgeStep& step) {
  return {{"benchmark", benchmark},
          {"pair", step.pair.name},
          {"tensors", step.channel.gradient() ? "gradients" : "activations"}};
}

void say_plan(const EdgeStep& step) {
  std::vector<std::int64_t> rows;
  for (const PieceOut& piece : step.pieces()) rows.push_back(piece.rows);
  std::ranges::sort(rows);
  std::int64_t moved = 0;
  for (const std::int64_t count : rows) moved += count;
  const auto kib = [&](std::int64_t count) {
    return static_cast<double>(count) / 1024 * static_cast<double>(step.row_bytes());
  };
  const auto row_bytes = static_cast<std::int64_t>(step.row_bytes());
  json line = named("reshard_plan", step);
  line["from"] = described(step.channel.gradient() ? step.pair.to : step.pair.from);
  line["to"] = described(step.channel.gradient() ? step.pair.from : step.pair.to);
  line["bytes"] = moved * row_bytes;
  line["least_bytes"] = step.least_rows * row_bytes;
  line["over_least"] = static_cast<double>(moved) / static_cast<double>(step.least_rows);
  line["pieces"] = rows.size();
  line["piece_kib_least"] = kib(rows.front());
  line["piece_kib_median"] = kib(rows[rows.size() / 2]);
  line["piece_kib_most"] = kib(rows.back());
  line["resharding_us"] = step.resharding_us;
  line["planning_us"] = step.planning_us;
  const StepTraffic traffic = traffic_of(step);
  line["step_bytes"] = traffic.bytes;
  line["step_pieces"] = traffic.pieces;
  std::cout << line.dump() << std::endl;
}

void say_transfer(const EdgeStep& step, const std::string& way, const TransferFigures& figures) {
  std::int64_t rows = 0;
  for (const PieceOut& piece : step.pieces()) rows += piece.rows;
  const double bytes = static_cast<double>(rows) * static_cast<double>(step.row_bytes());
  json line = named("reshard_move", step);
  line["way"] = way;
  line["step_us"] = figures.step_us;
  line["memcpy_us"] = figures.memcpy_us;
  if (way == in_process_name) line["copied_share"] = figures.copied_share;
  if (way != in_process_name || figures.copied_share > 0) {
    line["gb_per_s"] = bytes / figures.step_us * 1e-3;
    line["memcpy_gb_per_s"] = bytes / figures.memcpy_us * 1e-3;
    line["ratio"] = figures.ratio;
  }
  std::cout << line.dump() << std::endl;
}

struct Arguments {
  StepSize size;
  TransferOptions transfer;
  std::vector<std::string> ways{in_process_name, "shm", "tcp"};
  std::vector<std::string> pairs;
  std::vector<std::int64_t> from;
  std::vector<std::int64_t> to;
  bool plan_only = false;
};

void measure(const LayoutPair& pair, Direction direction, const Arguments& arguments) {
  const EdgeStep step = plan_edge_step(pair, arguments.size, direction);
  say_plan(step);
  if (arguments.plan_only) return;
  for (const std::string& way : arguments.ways) {
    say_transfer(step, way,
                 way == in_process_name ? in_process(step, arguments.transfer)
                                        : write_between_processes(step, way, arguments.transfer));
  }
}

SectionLayout layout_of(const std::vector<std::int64_t>& numbers) {
  return {numbers[0], {numbers[1], numbers[2]}, numbers[3]};
}

std::vector<LayoutPair> wanted_pairs(const Arguments& arguments) {
  if (!arguments.from.empty()) return {{"given", layout_of(arguments.from), layout_of(arguments.to)}};
  std::vector<LayoutPair> pairs = layout_pairs();
  if (arguments.pairs.empty()) return pairs;
  std::erase_if(pairs, [&](const LayoutPair& pair) {
    return std::ranges::find(arguments.pairs, pair.name) == arguments.pairs.end();
  });
  return pairs;
}

int run(int argc, char** argv) {
  Arguments arguments;
  std::vector<std::string> names;
  for (const LayoutPair& pair : layout_pairs()) names.push_back(pair.name);
  std::size_t chunk_kib = arguments.transfer.chunk_bytes / 1024;
  CLI::App app("Measures edges between sections of different layouts");
  app.add_option("--pairs", arguments.pairs, "Of these alone")->check(CLI::IsMember(names));
  const auto layout_option = [&app](const char* name, std::vector<std::int64_t>& numbers, const char* what) {
    return app.add_option(name, numbers, what)->delimiter(',')->expected(4)->check(CLI::Range(1, 64));
  };
  CLI::Option* from = layout_option("--from", arguments.from, "One pair of your own: DP,TP,CP,micro-batch");
  from->needs(layout_option("--to", arguments.to, "Its consumer")->needs(from));
  app.add_option("--ways", arguments.ways, "hand-over, or providers as in job files")->capture_default_str();
  app.add_option("--samples", arguments.size.samples, "Of a step")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}));
  app.add_option("--least-tokens", arguments.size.least_tokens, "Of a sample")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65535}));
  app.add_option("--tokens", arguments.size.most_tokens, "Of a sample at most")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65535}));
  app.add_option("--columns", arguments.size.columns, "Floats of a row")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  app.add_option("--chunk-kib", chunk_kib, "Largest single write")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20));
  app.add_option("--repetitions", arguments.transfer.repetitions, "Timed steps")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--plan-only", arguments.plan_only, "Move nothing");
  CLI11_PARSE(app, argc, argv);
  if (arguments.size.least_tokens > arguments.size.most_tokens) {
    throw JobError("--least-tokens is above --tokens; lengths are drawn between the two");
  }
  arguments.transfer.chunk_bytes = chunk_kib * 1024;
  for (const LayoutPair& pair : wanted_pairs(arguments)) {
    for (const Direction direction : directions) measure(pair, direction, arguments);
  }
  return 0;
}

}  // namespace
}  // namespace maestro::bench

int main(int argc, char** argv) {
  try {
    return maestro::bench::run(argc, argv);
  } catch (const maestro::JobError& error) {
    std::cerr << "bench_reshard: " << error.what() << "\n";
    return 1;
  }
}
