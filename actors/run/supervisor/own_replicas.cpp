// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/own_replicas.hpp"

#include <algorithm>
#include <iterator>

namespace maestro {

void OwnReplicas::watch(const std::vector<OwnActor>& actors) {
  for (const OwnActor& own : actors) {
    labels_[own.actor.address()] = own.label;
    run_.self->monitor(own.actor);
  }
}

const std::string* OwnReplicas::find(const caf::actor_addr& actor) const {
  const auto found = labels_.find(actor);
  return found == labels_.end() ? nullptr : &found->second;
}

void OwnReplicas::move(const MovePlacements& order) {
  const std::vector<bool> repeatable = run_.options.graph->repeatable();
  taken_ = {order.epoch, run_.options.process, {}, {}};
  answers_due_ = 0;
  const auto failed = [this](const caf::error& problem) { cannot_move(run_.self->home_system().render(problem)); };
  for (const ReplicaAddress& replica : run_.local.info.replicas) {
    if (repeatable[replica.section.value()]) {
      retired_.insert(replica.actor.address());
      send_to(run_.self, replica.actor, Retire{});
      continue;
    }
    ++answers_due_;
    run_.self->request(replica.actor, caf::infinite, RenewInputs{order.epoch})
        .then(
            [this](const InputsRenewed& renewed) {
              std::ranges::copy(renewed.arrivals, std::back_inserter(taken_.arrivals));
              moved(renewed.address);
            },
            failed);
  }
  std::vector<OwnActor> begun;
  try {
    begun = run_.options.placements.host->take(order);
  } catch (const std::exception&) {
    cannot_move(describe(std::current_exception()));
  }
  watch(begun);
  for (const OwnActor& own : begun) {
    ++answers_due_;
    run_.self->request(own.actor, caf::infinite, AddressRequest{})
        .then([this](const ReplicaAddress& address) { moved(address); }, failed);
  }
  answer_if_complete();
}

void OwnReplicas::moved(const ReplicaAddress& address) {
  taken_.replicas.push_back(address);
  --answers_due_;
  answer_if_complete();
}

void OwnReplicas::answer_if_complete() {
  if (answers_due_ == 0) send_to(run_.self, run_.root, taken_);
}

void OwnReplicas::go_on(const PlacementsMoved& moved) {
  const std::vector<bool> repeatable = run_.options.graph->repeatable();
  const caf::message begins = caf::make_message(moved.directory);
  const caf::message goes_on = caf::make_message(moved);
  for (const ReplicaAddress& replica : run_.local.info.replicas) {
    send_to(run_.self, replica.actor, repeatable[replica.section.value()] ? begins : goes_on);
  }
}

void OwnReplicas::cannot_move(const std::string& problem) const {
  run_.fail(run_.own_name() + " cannot take the placements of a lost process: " + problem, run_.prints(), true);
}

void OwnReplicas::clear() {
  labels_.clear();
  taken_ = PlacementsTaken();
}

}  // namespace maestro
