// SPDX-License-Identifier: Apache-2.0
// The page of a plan: figures, the uses of each section's time, memory, time against cost, and the rehearsed passes of
// two steps, in a single file that loads nothing. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/page/page_parts.hpp"
#include "runtime/page/run_tables.hpp"
#include "runtime/rehearsal/rehearsed_shares.hpp"

namespace maestro {

/// A row of bars, side by side.
struct BarRow {
  struct Part {
    double share = 0;  ///< of the row's width
    std::string kind;  ///< class of the style sheet
    std::string title;
  };
  std::string name;
  std::vector<Part> parts;
  std::string remark;  ///< behind the bars; may be empty
};

/// A division of the devices: time of a step, and price of a million samples.
struct PricedTime {
  double step_ms = 0;
  double price = 0;
  std::string title;
};

struct PlanPage {
  std::string title;
  std::string remark;
  std::vector<PageFigure> figures;
  std::vector<PageTable> tables;
  std::vector<BarRow> times;
  std::vector<BarRow> memory;
  std::vector<PricedTime> front;
  Timeline timeline;
};

[[nodiscard]] std::string page_of(const PlanPage& page);

/// Returns the uses of a section's time, in its colour of the timeline.
[[nodiscard]] BarRow time_row(const std::string& section, const SectionShares& shares, const Timeline& timeline);

/// Returns the passes of two steady steps, of some lanes: the first replicas of each section and stage.
[[nodiscard]] Timeline timeline_of(const Rehearsed& rehearsed, const SectionGraph& graph);

}  // namespace maestro
