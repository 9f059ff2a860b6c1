// SPDX-License-Identifier: Apache-2.0
// The actor between the network and the other actors of a process: connects peers when the directory arrives, and
// reports failed writes. It delays a failed write, because the death of the peer, which CAF reports to the supervisor,
// explains the failure better.
#pragma once

#include <chrono>

#include "actors/messages/message_types.hpp"
#include "actors/messages/run_actor.hpp"
#include "actors/services/network.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

class TransportBridge : public RunActor {
 public:
  /// `grace`: delay of a failed write, for a report of a lost peer. The network outlives the actor system.
  TransportBridge(caf::actor_config& config, Network* network, const SectionGraph* graph, caf::actor supervisor,
                  std::chrono::milliseconds grace);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.transport_bridge"; }

 private:
  [[nodiscard]] std::string where() const override { return "transport"; }
  void connect(const Directory& directory);

  Network* network_;
  const SectionGraph* graph_;
  std::chrono::milliseconds grace_;
};

}  // namespace maestro
