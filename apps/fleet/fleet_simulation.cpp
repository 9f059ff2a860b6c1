// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/fleet_simulation.hpp"

#include <algorithm>

#include "apps/fleet/cell_allocation.hpp"
#include "apps/fleet/fleet_state.hpp"
#include "apps/fleet/job_pairs.hpp"

namespace maestro {

namespace {

/// Starts the waiting jobs of a pool for which there are devices, in the order of arrival. After the first job without
/// enough devices (the head), starts only jobs that end before the head can start or that leave its devices free.
void start_in_order(FleetState& state, std::size_t pool) {
  bool blocked = false;
  double head_starts_s = 0;
  std::int64_t spare = 0;  // devices that the head does not need when it starts
  const std::vector<std::size_t> waiting = state.waiting();
  for (const std::size_t job : waiting) {
    const FleetOption& option = state.curve(job).fixed;
    if (option.pool != pool) continue;
    if (option.devices > state.free(pool)) {
      if (blocked) continue;
      blocked = true;
      for (const auto& [time_s, devices] : state.free_from(pool)) {
        if (devices < option.devices) continue;
        head_starts_s = time_s;
        spare = devices - option.devices;
        break;
      }
      continue;
    }
    if (blocked) {
      const double end_s = state.now_s() + static_cast<double>(state.job(job).steps) * option.step_s;
      if (end_s > head_starts_s && option.devices > spare) continue;
      if (end_s > head_starts_s) spare -= option.devices;
    }
    state.start(job, option);
  }
}

/// The jobs and the choice of their cells.
class Reallocation {
 public:
  explicit Reallocation(FleetState& state) : state_(state) {
    for (std::size_t pool = 0; pool < state.cluster().pools.size(); ++pool) free_.push_back(state.free(pool));
    for (const std::size_t job : state.running()) {
      if (!state.state(job).shares()) add_running(job);
    }
    for (const std::size_t job : state.waiting()) {
      jobs_.push_back(job);
      claims_.push_back({.curve = &state.curve(job)});
      current_.emplace_back();
    }
  }

  void run() {
    CellAllocation chosen = allocate_cells(claims_, free_);
    for (bool again = true; again;) {  // every round pins a job, or is the last
      again = false;
      for (std::size_t at = 0; at < jobs_.size(); ++at) {
        if (!moves(at, chosen)) continue;
        const AllocatedJob before = claims_[at];
        claims_[at].least = current_[at];
        claims_[at].pinned = true;
        CellAllocation without = allocate_cells(claims_, free_);
        if (pays(at, chosen, without)) {
          claims_[at] = before;
        } else {
          chosen = std::move(without);
          again = true;
        }
      }
    }
    carry_out(chosen);
  }

 private:
  /// Adds a running job; it may get the first option on its pool or any faster option.
  void add_running(std::size_t job) {
    const FleetOption& option = *state_.state(job).option;
    const std::vector<FleetOption>& options = state_.curve(job).options;
    std::optional<std::size_t> least;
    std::optional<std::size_t> current;
    for (std::size_t at = 0; at < options.size(); ++at) {
      if (!least && options[at].pool == option.pool) least = at;
      if (&options[at] == &option) current = at;
    }
    jobs_.push_back(job);
    claims_.push_back({.curve = &state_.curve(job), .least = least});
    current_.push_back(current);
    free_[option.pool] += option.devices;
  }

  [[nodiscard]] bool moves(std::size_t at, const CellAllocation& chosen) const {
    return current_[at] && !claims_[at].pinned && chosen.options[at] != current_[at];
  }

  /// Returns whether a job's move gains all jobs more over the job's remaining time than the job loses by the move.
  [[nodiscard]] bool pays(std::size_t at, const CellAllocation& with, const CellAllocation& without) const {
    const FleetCurve& curve = *claims_[at].curve;
    const double left_s = state_.state(jobs_[at]).left_alone_s(state_.now_s());
    const double lost = state_.options().move_s * curve.rate(curve.options[*with.options[at]]);
    return (with.rates - without.rates) * left_s > lost;
  }

  void carry_out(const CellAllocation& chosen) {
    std::vector<std::pair<std::size_t, const FleetOption*>> moved;
    for (std::size_t at = 0; at < jobs_.size(); ++at) {
      if (moves(at, chosen)) moved.emplace_back(jobs_[at], &claims_[at].curve->options[*chosen.options[at]]);
    }
    state_.move(moved);
    for (std::size_t at = 0; at < jobs_.size(); ++at) {
      if (!current_[at] && chosen.options[at]) state_.start(jobs_[at], claims_[at].curve->options[*chosen.options[at]]);
    }
  }

  FleetState& state_;
  std::vector<std::int64_t> free_;  // by pool, with the devices of the running jobs here
  std::vector<std::size_t> jobs_;
  std::vector<AllocatedJob> claims_;
  std::vector<std::optional<std::size_t>> current_;  // options of running jobs, by job
};

/// Returns the layout that a waiting job can have on a running job's devices; null: none.
const FleetOption* layout_beside(const FleetState& state, std::size_t job, const FleetOption& running) {
  const FleetCurve& curve = state.curve(job);
  const auto fits = [&](const FleetOption& option) {
    return option.pool == running.pool && option.devices <= running.devices;
  };
  if (state.options().policy == FleetPolicy::fixed) return fits(curve.fixed) ? &curve.fixed : nullptr;
  const FleetOption* most = nullptr;
  for (const FleetOption& option : curve.options) {
    if (fits(option)) most = &option;
  }
  return most;
}

/// Returns the number of devices that would do a job's work in its fixed layout.
double work_of(const FleetCurve& curve, const FleetOption& option) {
  return static_cast<double>(curve.fixed.devices) * curve.rate(option);
}

double gain_of(const FleetState& state, std::size_t waiting, std::size_t owner) {
  const FleetState::Running& running = state.state(owner);
  const FleetOption* option = layout_beside(state, waiting, *running.option);
  if (option == nullptr) return 0;
  const double alone = work_of(state.curve(owner), *running.option);
  const double together = alone + work_of(state.curve(waiting), *option);
  if (together <= alone * slow_down(option->busy, running.option->busy)) return 0;
  const double memory = state.options().headroom * state.cluster().pools[option->pool].memory_bytes;
  if (memory > 0 && option->bytes + running.option->bytes > memory) return 0;
  return gain_s({.busy_waiting = option->busy,
                 .busy_running = running.option->busy,
                 .left_of_waiting_s = static_cast<double>(state.job(waiting).steps) * option->step_s,
                 .left_of_running_s = running.left_alone_s(state.now_s()),
                 .wait_s = state.wait_for(option->pool, option->devices)});
}

void pack(FleetState& state) {
  std::vector<std::size_t> alone;
  for (const std::size_t job : state.running()) {
    if (!state.state(job).shares()) alone.push_back(job);
  }
  const std::vector<std::size_t> waiting = state.waiting();
  std::vector<std::vector<double>> gains(waiting.size());
  for (std::size_t row = 0; row < waiting.size(); ++row) {
    for (const std::size_t job : alone) gains[row].push_back(gain_of(state, waiting[row], job));
  }
  const auto pairs = best_pairs(gains);
  for (std::size_t row = 0; row < waiting.size(); ++row) {
    if (!pairs[row]) continue;
    const std::size_t owner = alone[*pairs[row]];
    state.share(waiting[row], owner, *layout_beside(state, waiting[row], *state.state(owner).option));
  }
}

}  // namespace

FleetResult simulate_fleet(const FleetCluster& cluster, const std::vector<FleetCurve>& curves,
                           const std::vector<FleetJob>& jobs, const FleetOptions& options) {
  FleetState state(cluster, curves, jobs, options);
  while (state.advance()) {
    if (options.policy == FleetPolicy::cells) {
      Reallocation(state).run();
    } else {
      for (std::size_t pool = 0; pool < cluster.pools.size(); ++pool) start_in_order(state, pool);
    }
    if (options.pack) pack(state);
  }
  return state.result();
}

}  // namespace maestro
