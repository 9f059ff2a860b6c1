// SPDX-License-Identifier: Apache-2.0
// Decides whether a device's work is worth a recorded graph. A graph saves the host's time for individual calls; it
// costs a recording, and memory. Pure.
//
// GP-1 (measured choice): work is issued plainly the first time, when libraries choose algorithms and allocate, and
//       once more to be timed, unless `least_issue_time` is zero. It is recorded the next time if the host took that
//       long or longer and no less than half of the device's time for it; else it is issued plainly from then on.
// GP-2 (failed recordings): work whose recording failed once is issued plainly from then on.
// GP-3 (bounded cache): at most `most_graphs` graphs are kept; the least recently used graph is dropped first, and its
//       work is issued plainly from then on. For work without a graph, at most `most_keys` keys are remembered.
// GP-4 (places given up): a place whose work was issued plainly `most_plain` times in a row is not looked at any more.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace maestro {

using GraphKey = std::uint64_t;

/// Use of graphs: never, if they pay by GP-1 (measured choice), or for everything that repeats.
enum class GraphUse : std::uint8_t { never, where_they_pay, always };
/// Returns the use with a name in jobs: "never", "auto", "always"; nothing for other names.
[[nodiscard]] std::optional<GraphUse> graph_use(std::string_view name);

struct GraphPolicyOptions {
  std::size_t most_graphs = 64;
  std::size_t most_keys = 4096;
  /// Shortest host time for which work is recorded: launching a graph itself takes some microseconds.
  std::chrono::microseconds least_issue_time{40};
  /// Limit of GP-4: micro-batches in flight and input addresses make several keys per place, each needing three runs.
  std::size_t most_plain = 96;
};
[[nodiscard]] GraphPolicyOptions graph_options(GraphUse use);

enum class GraphAction : std::uint8_t { plain, record, replay };

/// Not thread-safe.
class GraphPolicy {
 public:
  explicit GraphPolicy(const GraphPolicyOptions& options = {}) : options_(options) {}
  /// Decides how the work `key`, which is about to run, is issued.
  [[nodiscard]] GraphAction next(GraphKey key);
  /// Returns whether timed() would decide about the work.
  [[nodiscard]] bool wants_times(GraphKey key) const;
  /// Records that the work was issued plainly.
  void issued(GraphKey key);
  /// Takes the host's time for the work, and the device's time from the first call's work to the end of the last.
  void timed(GraphKey key, std::chrono::nanoseconds host, std::chrono::nanoseconds device);
  /// Records that the work was recorded and is kept. Returns the key whose graph must be dropped for it, if any.
  [[nodiscard]] std::optional<GraphKey> recorded(GraphKey key);
  void failed(GraphKey key);
  [[nodiscard]] std::size_t graphs() const { return graphs_; }

 private:
  enum class State : std::uint8_t { fresh, seen, worth, kept, plain };
  struct Work {
    State state = State::fresh;
    std::uint64_t used = 0;
  };
  [[nodiscard]] std::optional<GraphKey> evict(GraphKey keep);

  GraphPolicyOptions options_;
  std::unordered_map<GraphKey, Work> work_;
  std::size_t graphs_ = 0;
  std::uint64_t clock_ = 0;
};

/// Places that are worth searching for work that repeats (GP-4). Not thread-safe.
class RepeatingPlaces {
 public:
  explicit RepeatingPlaces(std::size_t most_plain) : most_plain_(most_plain) {}
  [[nodiscard]] bool worth_a_look(std::uint64_t place) const;
  /// Takes the last decision for the place's work.
  void ran(std::uint64_t place, GraphAction action);

 private:
  std::size_t most_plain_;
  std::unordered_map<std::uint64_t, std::size_t> plain_;  // runs in a row, by place
};

}  // namespace maestro
