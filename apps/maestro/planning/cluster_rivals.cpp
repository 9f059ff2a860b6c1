// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/planning/cluster_rivals.hpp"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/plan/ranking_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/page/markup.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_printed = 3;  // rivals

std::string more_text(const RivalDivision& rival) {
  return signed_percent(rival.more) + (rival.rehearsed ? "" : " at least");
}

}  // namespace

void print_rivals(const ClusterChoice& chosen) {
  std::string others;
  for (std::size_t at = 0; at < std::min(chosen.rivals.size(), most_printed); ++at) {
    const RivalDivision& rival = chosen.rivals[at];
    others += (others.empty() ? "" : "; ") + printable(rival.text) + ": " + more_text(rival);
  }
  if (!others.empty()) PrintedLine() << "why not   " << others;
  if (chosen.certainties.empty()) return;
  PrintedLine() << "stable    best choice while pass times stay within: " << certainty_text(chosen.certainties);
}

void add_rivals(const ClusterChoice& chosen, nlohmann::ordered_json& answer) {
  auto& rivals = answer["rivals"] = nlohmann::ordered_json::array();
  for (const RivalDivision& rival : chosen.rivals) {
    rivals.push_back(
        {{"division", rival.text}, {"step_ms", rival.step_ms}, {"rehearsed", rival.rehearsed}, {"more", rival.more}});
  }
  auto& sure = answer["sure"] = nlohmann::ordered_json::object();
  for (const Certainty& of : chosen.certainties) sure[of.section] = {of.least, of.most};
}

std::vector<PageTable> rival_tables(const ClusterChoice& chosen) {
  std::vector<PageTable> tables;
  if (!chosen.rivals.empty()) {
    PageTable& others = tables.emplace_back(PageTable{"Other divisions", "", {"division", "step ms", "more"}, {}});
    for (const RivalDivision& rival : chosen.rivals) {
      others.rows.push_back({{rival.text}, {fixed(rival.step_ms, 1)}, {more_text(rival)}});
    }
  }
  if (!chosen.certainties.empty()) {
    PageTable& sure = tables.emplace_back(PageTable{"Stability",
                                                    "The choice stays within a hundredth of the other divisions while "
                                                    "a section's passes take these multiples of their times.",
                                                    {"section", "from", "to"},
                                                    {}});
    for (const Certainty& of : chosen.certainties) {
      sure.rows.push_back({{of.section}, {fixed(of.least, 2)}, {fixed(of.most, 2)}});
    }
  }
  return tables;
}

}  // namespace maestro
