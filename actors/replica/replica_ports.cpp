// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_ports.hpp"

namespace maestro {

ReplicaPorts::ReplicaPorts(const ReplicaPortsOptions& options, Network& network, PortEvents events)
    : options_(options),
      sizes_(*options.graph, {options.section, options.replica}, options.largest, options.limits),
      client_(network.next_client()),
      inputs_(options_, sizes_, network),
      outputs_(options_, sizes_, network, client_, std::move(events)) {}

void ReplicaPorts::connect(const Directory& directory, Outbox outbox) {
  inputs_.connect(directory, outbox.credit);
  outputs_.connect(directory, std::move(outbox));
}

void ReplicaPorts::leave() {
  outputs_.leave();
  inputs_.leave();
}

}  // namespace maestro
