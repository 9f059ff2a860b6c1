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

/// Bars side by side in a row.
struct BarRow {
  struct Part {
    double share = 0;  ///< share of the row's width
    std::string kind;  ///< class of the style sheet
    std::string title;
  };
  std::string name;
  std::vector<Part> parts;
  std::string remark;  ///< text after the bars; may be empty
};

/// A division of the devices, with its step time and its price of a million samples.
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

/// Returns how a section uses its time, in its timeline colour.
[[nodiscard]] BarRow time_row(const std::string& section, const SectionShares& shares, const Timeline& timeline);

/// Returns the passes of some lanes in two steady steps: the first replicas of each section and stage.
[[nodiscard]] Timeline timeline_of(const Rehearsed& rehearsed, const SectionGraph& graph);

}  // namespace maestro
