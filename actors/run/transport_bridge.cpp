// SPDX-License-Identifier: Apache-2.0
#include "actors/run/transport_bridge.hpp"

#include "actors/run/supervisor.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

TransportBridge::TransportBridge(caf::actor_config& config, Network* network, const SectionGraph* graph,
                                 caf::actor supervisor, std::chrono::milliseconds grace)
    : RunActor(config, std::move(supervisor)), network_(network), graph_(graph), grace_(grace) {}

caf::behavior TransportBridge::make_behavior() {
  return {
      [this](const Directory& directory) { connect(directory); },
      [this](const TransferBroken& broken) { delayed_send(this, grace_, Failure{broken.message}); },
      [this](const Failure& failure) { tell(this, supervisor(), failure); },
  };
}

void TransportBridge::connect(const Directory& directory) {
  try {
    for (const ProcessInfo& process : directory.processes) {
      network_->connect(process.rank, process.endpoint, process_label(process, *graph_));
    }
    tell(this, supervisor(), BridgeReady{});
  } catch (const JobError& problem) {
    report(problem.what());
  }
}

}  // namespace maestro
