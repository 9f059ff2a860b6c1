// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/cell_allocation.hpp"

#include <stdexcept>

namespace maestro {

namespace {

/// A job's option with the largest gain.
struct Best {
  std::size_t option = 0;
  double gain = 0;  // increase of the rate per added device; 0: no option fits
};

class Greedy {
 public:
  Greedy(std::span<const AllocatedJob> jobs, std::vector<std::int64_t> free)
      : jobs_(jobs), free_(std::move(free)), best_(jobs.size()) {
    chosen_.options.resize(jobs.size());
    for (std::size_t job = 0; job < jobs.size(); ++job) {
      chosen_.options[job] = jobs[job].least;
      if (!jobs[job].least) continue;
      const FleetOption& option = jobs[job].curve->options[*jobs[job].least];
      free_[option.pool] -= option.devices;
      if (free_[option.pool] < 0) throw std::logic_error("allocate_cells: least options beyond the free devices");
    }
  }

  CellAllocation run() {
    for (std::size_t job = 0; job < jobs_.size(); ++job) find_best(job);
    while (const std::optional<std::size_t> next = most_gain()) {
      const bool freed = take(*next);
      for (std::size_t job = 0; job < jobs_.size(); ++job) {
        if (freed || job == *next || !fits(job, best_[job].option)) find_best(job);
      }
    }
    for (std::size_t job = 0; job < jobs_.size(); ++job) chosen_.rates += rate(job);
    return std::move(chosen_);
  }

 private:
  [[nodiscard]] const FleetOption* now(std::size_t job) const {
    return chosen_.options[job] ? &jobs_[job].curve->options[*chosen_.options[job]] : nullptr;
  }
  [[nodiscard]] double rate(std::size_t job) const {
    const FleetOption* option = now(job);
    return option == nullptr ? 0 : jobs_[job].curve->rate(*option);
  }
  /// Returns how many devices an option adds to the job's devices.
  [[nodiscard]] std::int64_t added(std::size_t job, const FleetOption& option) const {
    const FleetOption* before = now(job);
    return option.devices - (before != nullptr && before->pool == option.pool ? before->devices : 0);
  }
  [[nodiscard]] bool fits(std::size_t job, std::size_t option) const {
    const FleetOption& wanted = jobs_[job].curve->options[option];
    return added(job, wanted) <= free_[wanted.pool];
  }

  void find_best(std::size_t job) {
    best_[job] = {};
    if (jobs_[job].pinned) return;
    const double before = rate(job);
    const std::vector<FleetOption>& options = jobs_[job].curve->options;
    for (std::size_t option = 0; option < options.size(); ++option) {
      const double more = jobs_[job].curve->rate(options[option]) - before;
      if (more <= 0 || !fits(job, option)) continue;
      const double gain = more / static_cast<double>(added(job, options[option]));
      if (gain > best_[job].gain) best_[job] = {option, gain};
    }
  }

  [[nodiscard]] std::optional<std::size_t> most_gain() const {
    std::optional<std::size_t> most;
    for (std::size_t job = 0; job < best_.size(); ++job) {
      if (best_[job].gain > (most ? best_[*most].gain : 0)) most = job;
    }
    return most;
  }

  /// Returns whether devices of another pool have become free.
  bool take(std::size_t job) {
    const FleetOption* before = now(job);
    const FleetOption& after = jobs_[job].curve->options[best_[job].option];
    const bool leaves = before != nullptr && before->pool != after.pool;
    free_[after.pool] -= added(job, after);
    if (leaves) free_[before->pool] += before->devices;
    chosen_.options[job] = best_[job].option;
    return leaves;
  }

  std::span<const AllocatedJob> jobs_;
  std::vector<std::int64_t> free_;  // by pool
  std::vector<Best> best_;          // by job
  CellAllocation chosen_;
};

}  // namespace

CellAllocation allocate_cells(std::span<const AllocatedJob> jobs, std::vector<std::int64_t> free) {
  return Greedy(jobs, std::move(free)).run();
}

}  // namespace maestro
