// SPDX-License-Identifier: Apache-2.0
#include "actors/messages/wait_text.hpp"

namespace maestro {

namespace {

/// Returns "section 'student' replica 0, 2".
std::string peers_text(const WaitingFor& waiting, const SectionGraph& graph) {
  std::string text = "section '" + graph.node(waiting.peer).name + "'";
  for (std::size_t at = 0; at < waiting.peers.size(); ++at) {
    text += (at == 0 ? " replica " : ", ") + std::to_string(waiting.peers[at].value());
  }
  return text;
}

}  // namespace

std::string wait_text(const WaitingFor& waiting, const SectionGraph& graph) {
  const std::string step = "step " + std::to_string(waiting.step.value());
  switch (waiting.kind) {
    case WaitKind::nothing:
    case WaitKind::work:
      return {};
    case WaitKind::input:
    case WaitKind::gradient:
      return (waiting.kind == WaitKind::gradient ? "the gradient of " : "") + waiting.port + " from " +
             peers_text(waiting, graph) + ", sample " + std::to_string(waiting.sample) + ", " + step;
    case WaitKind::credit:
      return "a free slot of " + peers_text(waiting, graph) + " for " + step;
    case WaitKind::buffer:
      return "a send buffer still in use by its receivers, " + step;
    case WaitKind::phase:
      return "the other lanes in its phase, " + step;
    case WaitKind::reduction:
      return "gradients of the other replicas, " + step;
    case WaitKind::norm:
      return "the gradient norms of the other sections, " + step;
    case WaitKind::parameters:
      return "the parameters of the other replicas, " + step;
    case WaitKind::moments:
      return "the optimizer state of the other replicas, " + step;
    case WaitKind::version:
      return "the weights before " + step + " from " + peers_text(waiting, graph);
    case WaitKind::prompts:
      return "prompts to continue";
    case WaitKind::turn:
      return "its turn on a shared device, " + step;
  }
  return {};
}

std::string name_of(WaitKind kind) {
  static constexpr const char* names[] = {"nothing",   "work", "input",      "gradient", "credit",  "buffer",  "phase",
                                          "reduction", "norm", "parameters", "moments",  "version", "prompts", "turn"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace maestro
