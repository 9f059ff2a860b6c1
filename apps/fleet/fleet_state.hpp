// SPDX-License-Identifier: Apache-2.0
// Private to simulate_fleet(): a cluster's jobs at a time, and the changes that policies make.
//
// FQ-1 (one pace): between changes a job takes steps at a constant pace; a change closes its span and opens another.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "apps/fleet/fleet_simulation.hpp"
#include "apps/fleet/host_pool.hpp"

namespace maestro {

class FleetState {
 public:
  struct Running {
    const FleetOption* option = nullptr;
    double left_steps = 0;    // steps left at works_from_s
    double works_from_s = 0;  // not before the end of a move
    double step_s = 0;        // time of a step, with the slow-down by a partner
    double end_s = 0;
    std::optional<std::size_t> guest{};
    std::optional<std::size_t> owner{};  // job that owns a guest's devices
    HostPlaces places{};
    FleetSpan span{};
    [[nodiscard]] bool shares() const { return guest || owner; }
    /// Returns the seconds left if the job did not share its devices.
    [[nodiscard]] double left_alone_s(double now_s) const;
  };

  FleetState(const FleetCluster& cluster, const std::vector<FleetCurve>& curves, const std::vector<FleetJob>& jobs,
             const FleetOptions& options);

  [[nodiscard]] const FleetCurve& curve(std::size_t job) const { return curves_[jobs_[job].kind]; }
  [[nodiscard]] const FleetJob& job(std::size_t job) const { return jobs_[job]; }
  [[nodiscard]] const FleetOptions& options() const { return options_; }
  [[nodiscard]] const FleetCluster& cluster() const { return cluster_; }
  [[nodiscard]] double now_s() const { return now_s_; }
  [[nodiscard]] std::int64_t free(std::size_t pool) const { return pools_[pool].free(); }
  [[nodiscard]] const std::vector<std::size_t>& waiting() const { return waiting_; }  ///< ordered by arrival
  [[nodiscard]] const std::vector<std::size_t>& running() const { return running_; }  ///< ordered by arrival
  [[nodiscard]] const Running& state(std::size_t job) const { return states_[job]; }

  /// Advances to the next arrivals or ends, and applies them. Returns false when all jobs have ended.
  bool advance();
  void start(std::size_t job, const FleetOption& option);
  /// Starts a waiting job on a running job's devices.
  void share(std::size_t guest, std::size_t owner, const FleetOption& option);
  /// Moves running jobs to other options. All leave their devices before any continues.
  void move(const std::vector<std::pair<std::size_t, const FleetOption*>>& moves);
  /// Returns the seconds until `devices` are free if no job starts meanwhile.
  [[nodiscard]] double wait_for(std::size_t pool, std::int64_t devices) const;
  /// Returns the times at which running jobs release devices, in order, each with the number of devices free from then.
  [[nodiscard]] std::vector<std::pair<double, std::int64_t>> free_from(std::size_t pool) const;
  /// Returns the result, after the last job has ended.
  [[nodiscard]] FleetResult result();

 private:
  [[nodiscard]] HostPool& pool_of(const Running& running) { return pools_[running.option->pool]; }
  void begin(std::size_t job, const FleetOption& option);
  void settle(Running& running) const;
  void set_pace(std::size_t job);
  void close(Running& running);
  void note_placement(const Running& running);
  void end(std::size_t job);

  const FleetCluster& cluster_;
  const std::vector<FleetCurve>& curves_;
  const std::vector<FleetJob>& jobs_;
  FleetOptions options_;
  std::vector<HostPool> pools_;
  std::vector<Running> states_;  // by job
  std::vector<std::size_t> waiting_;
  std::vector<std::size_t> running_;
  std::size_t arrived_ = 0;
  double now_s_ = 0;
  FleetResult result_;
};

}  // namespace maestro
