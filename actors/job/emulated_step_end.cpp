// SPDX-License-Identifier: Apache-2.0
#include "actors/job/emulated_step_end.hpp"

namespace maestro {

EmulatedStepEnd emulated_step_end(const ResolvedJob& plan, SectionId section) {
  constexpr double bytes_per_ms_of_a_gb_s = 1e6;
  const GraphNode& node = plan.graph.node(section);
  if (!node.trained()) return {};
  EmulatedStepEnd end{0, plan.emulation.step_ms};
  if (plan.emulation.reduce_gb_s > 0) {
    const WireFormats wire = wire_formats(node.gradient_wire, plan.sections[section.value()].config.zero);
    const double bytes = static_cast<double>(plan.held[section.value()].all) * wire_bytes_per_element(wire);
    const auto replicas = static_cast<double>(node.replicas);
    const double moved = bytes * 2 * (replicas - 1) / replicas;
    end.sum_ms = moved / (plan.emulation.reduce_gb_s * bytes_per_ms_of_a_gb_s);
  }
  return end;
}

}  // namespace maestro
