// SPDX-License-Identifier: Apache-2.0
// The reasons for waits of lanes in a rehearsal: "input from teacher", "gradient from student", "other replicas",
// "buffer", "device", "work", "runtime"; of a generator "prompts or weights". Each is stored once: equal reasons have
// equal addresses.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/graph/section_graph.hpp"

namespace maestro {

class WaitReasons {
 public:
  explicit WaitReasons(const SectionGraph& graph) {
    for (const GraphNode& node : graph.nodes())
      tensors_.push_back({"input from " + node.name, "gradient from " + node.name});
  }
  WaitReasons(const WaitReasons&) = delete;
  WaitReasons& operator=(const WaitReasons&) = delete;

  [[nodiscard]] const std::string& tensor_of(SectionId sender, Direction direction) const {
    return tensors_[sender.value()][static_cast<std::size_t>(direction)];
  }
  const std::string none;
  const std::string buffer = "buffer";
  const std::string device = "device";
  const std::string replicas = "other replicas";
  const std::string runtime = "runtime";
  const std::string work = "work";
  const std::string rollout = "prompts or weights";

 private:
  std::vector<std::array<std::string, 2>> tensors_;  // reasons by section and direction
};

}  // namespace maestro
