// SPDX-License-Identifier: Apache-2.0
// Formats figures of a run for Prometheus. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "actors/run/coordinator/control_messages.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

namespace control {
class Status;  // generated, see control.thrift
}  // namespace control

/// Figures of the process that serves them, process 0.
struct ProcessFigures {
  std::string version;
  std::string instruction_set;
  std::map<std::string, double> memory_bytes;  ///< peak by device; "host": resident memory
  std::uint64_t rma_bytes = 0;                 ///< bytes written to other processes
  std::uint64_t left_out_before = 0;           ///< samples that were left out when the data were prepared
};

/// Returns the figures in text exposition format 0.0.4, without figures that do not exist yet. `status`: status of
/// `run`.
[[nodiscard]] std::string metrics_text(const control::Status& status, const RunStatus& run, const SectionGraph& graph,
                                       const ProcessFigures& process);

/// Returns the step in ".../step-00000123"; 0 for any other path.
[[nodiscard]] std::uint64_t step_of_checkpoint(const std::string& path);

}  // namespace maestro
