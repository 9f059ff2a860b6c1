// SPDX-License-Identifier: Apache-2.0
// Moves of placements in a simulated job.
#include <algorithm>

#include "tests/actors/job/simulated_job.hpp"

namespace maestro::testing {

void SimulatedJob::begin_move() {
  if (!mover_) {
    mover_ = bench_.stand_in(
        [this](const ReplicaAddress& address) {
          move_->addresses[{address.section, address.replica}] = address;
        },
        [this](const InputsRenewed& renewed) {
          move_->addresses[{renewed.address.section, renewed.address.replica}] = renewed.address;
          std::ranges::copy(renewed.arrivals, std::back_inserter(move_->arrivals));
        });
  }
  move_ = decltype(move_)::value_type{};  // clang 14 cannot emplace() a nested class
  ++moves_;
  const Epoch epoch(static_cast<std::uint32_t>(moves_) + 1);
  bench_.send(coordinator_, PlacementsLost{"a loss"});
  for (std::size_t at = 0; at < replicas_.size(); ++at) {
    ReplicaSpec& spec = specs_[at];
    if (!graph_.repeatable()[spec.section.value()]) {
      caf::send_as(mover_, replicas_[at], RenewInputs{epoch});
      continue;
    }
    bench_.send(replicas_[at], Retire{});
    spec.epoch = epoch;
    spec.again = true;
    replicas_[at] = bench_.spawn<SectionReplica>(ReplicaSpec(spec));
    caf::send_as(mover_, replicas_[at], AddressRequest{});
  }
}

void SimulatedJob::continue_move() {
  const auto send = [this](bool repeatable, const auto& message) {
    for (std::size_t at = 0; at < replicas_.size(); ++at) {
      if (graph_.repeatable()[specs_[at].section.value()] == repeatable) bench_.send(replicas_[at], message);
    }
  };
  switch (move_->next) {
    case Move::Next::gather:
      if (move_->addresses.size() < replicas_.size()) return;
      hello_.replicas.clear();
      for (const auto& [key, address] : move_->addresses) hello_.replicas.push_back(address);
      move_->directory.processes.push_back(hello_);
      move_->directory.coordinator = coordinator_;
      move_->next = Move::Next::connect_keepers;
      return;
    case Move::Next::connect_keepers:
      send(false, PlacementsMoved{Epoch(static_cast<std::uint32_t>(moves_) + 1), move_->directory});
      move_->next = Move::Next::connect_movers;
      return;
    case Move::Next::connect_movers:
      send(true, move_->directory);
      move_->next = Move::Next::begin_again;
      return;
    case Move::Next::begin_again:
      bench_.send(coordinator_, BeginAgain{"", move_->directory, move_->arrivals});
      move_.reset();
      return;
  }
}

}  // namespace maestro::testing
