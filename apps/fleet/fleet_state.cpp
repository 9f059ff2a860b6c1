// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/fleet_state.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "apps/fleet/job_pairs.hpp"

namespace maestro {

double FleetState::Running::left_alone_s(double now_s) const {
  const double worked_s = std::max(0.0, now_s - works_from_s);
  return std::max(0.0, works_from_s - now_s) + std::max(0.0, left_steps - worked_s / step_s) * option->step_s;
}

FleetState::FleetState(const FleetCluster& cluster, const std::vector<FleetCurve>& curves,
                       const std::vector<FleetJob>& jobs, const FleetOptions& options)
    : cluster_(cluster), curves_(curves), jobs_(jobs), options_(options), states_(jobs.size()) {
  for (const FleetPool& pool : cluster.pools) pools_.emplace_back(pool.hosts, pool.devices_of_host);
  result_.device_s.resize(cluster.pools.size());
  for (const FleetJob& job : jobs) result_.jobs.push_back({.job = job});
}

bool FleetState::advance() {
  double next_s = std::numeric_limits<double>::infinity();
  if (arrived_ < jobs_.size()) next_s = jobs_[arrived_].arrival_s;
  for (const std::size_t job : running_) next_s = std::min(next_s, states_[job].end_s);
  if (next_s == std::numeric_limits<double>::infinity()) {
    if (!waiting_.empty()) throw std::logic_error("simulate_fleet: jobs are waiting, but none is running");
    return false;
  }
  now_s_ = next_s;
  const std::vector<std::size_t> before = running_;
  for (const std::size_t job : before) {
    if (states_[job].end_s <= now_s_) end(job);
  }
  for (; arrived_ < jobs_.size() && jobs_[arrived_].arrival_s <= now_s_; ++arrived_) waiting_.push_back(arrived_);
  return true;
}

/// Subtracts the steps since the last change.
void FleetState::settle(Running& running) const {
  const double worked_s = now_s_ - running.works_from_s;
  if (worked_s <= 0) return;
  running.left_steps = std::max(0.0, running.left_steps - worked_s / running.step_s);
  running.works_from_s = now_s_;
}

/// Opens the next span of a settled job whose last span is closed.
void FleetState::set_pace(std::size_t job) {
  Running& running = states_[job];
  const std::optional<std::size_t> partner = running.guest ? running.guest : running.owner;
  const double slower = partner ? slow_down(running.option->busy, states_[*partner].option->busy) : 1;
  running.step_s = running.option->step_s * slower;
  running.end_s = running.works_from_s + running.left_steps * running.step_s;
  running.span = {.job = job,
                  .pool = running.option->pool,
                  .devices = running.option->devices,
                  .from_s = now_s_,
                  .works_from_s = running.works_from_s,
                  .step_s = running.step_s,
                  .guest = running.owner.has_value()};
}

void FleetState::close(Running& running) {
  FleetSpan& span = running.span;
  span.to_s = now_s_;
  if (!span.guest) result_.device_s[span.pool] += static_cast<double>(span.devices) * (span.to_s - span.from_s);
  if (span.to_s > span.from_s) result_.spans.push_back(span);
}

void FleetState::note_placement(const Running& running) {
  ++result_.placements;
  if (pools_[running.option->pool].spread(running.places)) ++result_.spread_placements;
}

void FleetState::begin(std::size_t job, const FleetOption& option) {
  std::erase(waiting_, job);
  running_.insert(std::ranges::lower_bound(running_, job), job);
  states_[job] = {.option = &option, .left_steps = static_cast<double>(jobs_[job].steps), .works_from_s = now_s_};
  result_.jobs[job].start_s = now_s_;
}

void FleetState::start(std::size_t job, const FleetOption& option) {
  begin(job, option);
  Running& running = states_[job];
  pool_of(running).take(option.devices, running.places);
  note_placement(running);
  set_pace(job);
}

void FleetState::share(std::size_t guest, std::size_t owner, const FleetOption& option) {
  begin(guest, option);
  Running& below = states_[owner];
  settle(below);
  close(below);
  HostPlaces of_owner = below.places;
  states_[guest].places = split_off(of_owner, option.devices);
  states_[guest].owner = owner;
  below.guest = guest;
  for (const std::size_t job : {guest, owner}) {
    result_.jobs[job].packed = true;
    set_pace(job);
  }
}

void FleetState::move(const std::vector<std::pair<std::size_t, const FleetOption*>>& moves) {
  for (const auto& [job, option] : moves) {
    Running& running = states_[job];
    settle(running);
    close(running);
    const bool stays = running.option->pool == option->pool;
    const std::int64_t fewer = running.option->devices - (stays ? option->devices : 0);
    if (fewer > 0) pool_of(running).give_back(split_off(running.places, fewer));
  }
  for (const auto& [job, option] : moves) {
    Running& running = states_[job];
    const bool stays = running.option->pool == option->pool;
    const std::int64_t more = option->devices - (stays ? running.option->devices : 0);
    running.option = option;
    if (more > 0) pool_of(running).take(more, running.places);
    running.works_from_s = now_s_ + options_.move_s;
    ++result_.jobs[job].moves;
    note_placement(running);
    set_pace(job);
  }
}

/// Ends a job. Its partner continues without sharing; a guest keeps its devices when the owner returns the others.
void FleetState::end(std::size_t job) {
  Running& running = states_[job];
  close(running);
  std::erase(running_, job);
  result_.jobs[job].end_s = now_s_;
  const std::optional<std::size_t> partner = running.guest ? running.guest : running.owner;
  if (running.owner) {
    states_[*running.owner].guest.reset();
  } else {
    if (running.guest) {
      for (const auto& [host, devices] : states_[*running.guest].places) running.places[host] -= devices;
      states_[*running.guest].owner.reset();
    }
    pool_of(running).give_back(running.places);
  }
  if (!partner) return;
  settle(states_[*partner]);
  close(states_[*partner]);
  set_pace(*partner);
}

std::vector<std::pair<double, std::int64_t>> FleetState::free_from(std::size_t pool) const {
  std::vector<std::pair<double, std::int64_t>> times;
  for (const std::size_t job : running_) {
    const Running& running = states_[job];
    if (running.option->pool != pool || running.owner) continue;
    std::int64_t devices = running.option->devices;
    if (running.guest && states_[*running.guest].end_s > running.end_s) {
      const Running& guest = states_[*running.guest];
      times.emplace_back(guest.end_s, guest.option->devices);
      devices -= guest.option->devices;
    }
    times.emplace_back(running.end_s, devices);
  }
  std::ranges::sort(times);
  std::int64_t free_devices = free(pool);
  for (auto& [time, devices] : times) devices = free_devices += devices;
  return times;
}

double FleetState::wait_for(std::size_t pool, std::int64_t devices) const {
  if (free(pool) >= devices) return 0;
  for (const auto& [time_s, free_devices] : free_from(pool)) {
    if (free_devices >= devices) return time_s - now_s_;
  }
  throw std::logic_error("simulate_fleet: more devices than the pool has");
}

FleetResult FleetState::result() {
  for (const FleetJobResult& job : result_.jobs) result_.makespan_s = std::max(result_.makespan_s, job.end_s);
  if (!jobs_.empty()) result_.makespan_s -= jobs_.front().arrival_s;
  return std::move(result_);
}

}  // namespace maestro
