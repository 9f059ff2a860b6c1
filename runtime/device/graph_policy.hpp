// Which work of a device is worth a recorded graph. A graph saves the time in which the host issues calls one by one;
// it costs a recording, and memory. Pure.
//
// GP-1: work is issued plainly the first time, when libraries choose algorithms and allocate, and once more to be
//       timed, unless `least_issue_time` is zero; if it took long enough it is recorded the next time.
// GP-2: work whose recording failed once is issued plainly from then on.
// GP-3: at most `most_graphs` graphs are kept; the one that was used longest ago goes first. Of work that has none, at
//       most `most_keys` keys are remembered.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

namespace maestro {

using GraphKey = std::uint64_t;

struct GraphPolicyOptions {
  std::size_t most_graphs = 64;
  std::size_t most_keys = 4096;
  /// Work that the host issues faster is not recorded: a launch of a graph itself takes some microseconds.
  std::chrono::microseconds least_issue_time{40};
};

enum class GraphAction : std::uint8_t { plain, record, replay };

/// Not thread-safe.
class GraphPolicy {
 public:
  explicit GraphPolicy(const GraphPolicyOptions& options = {}) : options_(options) {}
  /// What to do with the work `key`, which is about to run.
  [[nodiscard]] GraphAction next(GraphKey key);
  /// It was issued plainly, in so long.
  void issued(GraphKey key, std::chrono::nanoseconds host_time);
  /// It was recorded and is kept. Returns the key whose graph has to go for it, if any.
  [[nodiscard]] std::optional<GraphKey> recorded(GraphKey key);
  void failed(GraphKey key);
  [[nodiscard]] std::size_t graphs() const { return graphs_; }

 private:
  enum class State : std::uint8_t { fresh, seen, worth, kept, refused };
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

}  // namespace maestro
