// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/planning/ranking_page.hpp"

#include <algorithm>

#include "apps/plan/ranking_text.hpp"
#include "runtime/page/markup.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_rows = 20;
constexpr double mib = 1 << 20;

PageTable ranking_table(const LayoutRanking& ranking) {
  PageTable table{"Best layouts", "", {"", "step ms", "MiB"}, {}};
  for (const auto& [section, layout] : ranking.best.front().sections) table.columns.push_back(section);
  for (std::size_t at = 0; at < std::min(ranking.best.size(), most_rows); ++at) {
    const RankedLayout& ranked = ranking.best[at];
    std::vector<TableCell> row{{std::to_string(at + 1)}, {fixed(ranked.step_ms, 1)}, {fixed(ranked.bytes / mib, 0)}};
    for (const auto& [section, layout] : ranked.sections) {
      row.push_back({placed_text(ranked, section)});
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

PlanPage ranking_page(const std::string& title, const LayoutRanking& ranking, const RankedLayout& best,
                      std::int64_t global_batch, Timeline timeline) {
  PlanPage page;
  page.title = title;
  page.timeline = std::move(timeline);
  page.remark = percent(best.sources.measured_share()) + " of the times are measured, the rest is estimated.";
  page.figures = {{"step", fixed(best.step_ms, 1) + " ms", "rehearsed"},
                  {"samples a second", fixed(static_cast<double>(global_batch) / best.step_ms * 1e3, 1), ""},
                  {"bound", fixed(ranking.least_bound_ms, 1) + " ms",
                   "the step is " + percent(best.step_ms / ranking.least_bound_ms - 1) + " above"},
                  {"memory", fixed(best.bytes / mib, 0) + " MiB", "of all sections, estimated"}};
  for (const auto& [section, layout] : best.sections) {
    page.times.push_back(time_row(section, mean_shares(best.shares, section), page.timeline));
  }
  page.tables.push_back(ranking_table(ranking));
  PageTable& others = page.tables.emplace_back(PageTable{
      "Why not", "Another value of a single key, all else as chosen.", {"change", "step ms", "difference"}, {}});
  for (const Alternative& other : ranking.alternatives) {
    others.rows.push_back({{other.change},
                           {fixed(other.step_ms, 1)},
                           {signed_percent(other.step_ms / ranking.best.front().step_ms - 1)}});
  }
  return page;
}

}  // namespace maestro
