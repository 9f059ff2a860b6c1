// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/run_membership.hpp"

#include <algorithm>
#include <utility>

namespace maestro {

RunMembership::RunMembership(ProcessId process, std::vector<std::uint32_t> hosts, std::size_t joining)
    : process_(process), hosts_(std::move(hosts)) {
  for (std::size_t other = hosts_.size() - joining; other < hosts_.size(); ++other) {
    if (other != process.value()) miss(ProcessId(static_cast<std::uint32_t>(other)));
  }
}

Tally RunMembership::record(Milestone milestone, ProcessId process) {
  if (phase_ == RunPhase::ended || !counts(milestone, process)) return Tally::ignored;
  if (!reached_[static_cast<std::size_t>(milestone)].insert(process).second) return Tally::ignored;
  if (!complete(milestone)) return Tally::counted;
  if (milestone == Milestone::pinged && phase_ != RunPhase::connecting) return Tally::counted;  // see listed()
  if (milestone == Milestone::ready) advance(RunPhase::running);
  if (milestone == Milestone::summarised) advance(RunPhase::ended);
  return Tally::last;
}

Tally RunMembership::listed() {
  if (phase_ != RunPhase::gathering) return Tally::ignored;
  advance(RunPhase::connecting);
  return complete(Milestone::pinged) ? Tally::last : Tally::counted;
}

bool RunMembership::wired() {
  if (phase_ >= RunPhase::wiring) return false;
  advance(RunPhase::wiring);
  return true;
}

bool RunMembership::finish() {
  if (phase_ == RunPhase::finishing || phase_ == RunPhase::ended) return false;
  advance(RunPhase::finishing);
  return true;
}

bool RunMembership::fail() {
  if (phase_ >= RunPhase::settling) return false;
  advance(RunPhase::ended);
  return true;
}

bool RunMembership::child_ended(ProcessId child, std::string how) {
  how_ended_[child] = std::move(how);
  return phase_ < RunPhase::running;
}

LossVerdict RunMembership::lost(ProcessId process) {
  if (phase_ >= RunPhase::settling || has_left(process)) return LossVerdict::ignored;
  const bool peer = !is_root() && process != ProcessId(0);
  if (phase_ == RunPhase::finishing) {
    if (peer || reached(Milestone::summarised).contains(process)) return LossVerdict::ignored;
    if (!is_root()) {
      advance(RunPhase::ended);
      return LossVerdict::run_over;
    }
  }
  if (peer) return LossVerdict::peer;
  advance(RunPhase::settling);
  loss_ = process;
  return LossVerdict::noted;
}

bool RunMembership::leave(ProcessId process) {
  if (phase_ != (is_root() ? RunPhase::running : RunPhase::wiring)) return false;
  left_.insert(process);
  for (std::set<ProcessId>& of_milestone : reached_) of_milestone.erase(process);
  return true;
}

bool RunMembership::settle() {
  if (phase_ != RunPhase::settling) return false;
  advance(RunPhase::ended);
  return true;
}

bool RunMembership::on_this_host(ProcessId process) const {
  return hosts_.at(process.value()) == hosts_.at(process_.value());
}

bool RunMembership::prints() const {
  for (ProcessId lower(0); lower < process_; lower = ProcessId(lower.value() + 1)) {
    if (on_this_host(lower) && lower != loss_ && !has_left(lower)) return false;
  }
  return true;
}

std::optional<std::string> RunMembership::how_ended(ProcessId child) const {
  const auto found = how_ended_.find(child);
  return found == how_ended_.end() ? std::nullopt : std::optional(found->second);
}

std::size_t RunMembership::awaited(Milestone milestone) const {
  if (milestone != Milestone::pinged) return processes();
  return is_root() ? 0 : processes() - 2;
}

bool RunMembership::counts(Milestone milestone, ProcessId process) const {
  if (process.value() >= hosts_.size() || has_left(process)) return false;
  return milestone != Milestone::pinged || (!is_root() && process != ProcessId(0) && process != process_);
}

void RunMembership::advance(RunPhase to) {
  phase_ = std::max(phase_, to);
}

}  // namespace maestro
