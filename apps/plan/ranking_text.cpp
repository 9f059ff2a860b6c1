// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/ranking_text.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "runtime/core/printable.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/observe/padded.hpp"
#include "runtime/page/markup.hpp"

namespace maestro {

namespace {

std::string heading(const RankingReport& report) {
  const LayoutRanking& ranking = report.ranking;
  return report.title + ": " + std::to_string(ranking.priced) + " layouts of sections, " +
         std::to_string(ranking.compared) + " of the job, " + std::to_string(ranking.rehearsed) +
         " rehearsed. Times: " + percent(ranking.best.front().sources.measured_share()) +
         " measured, the rest estimated.";
}

std::vector<std::string> table_of(const RankingReport& report) {
  const LayoutRanking& ranking = report.ranking;
  const std::optional<TriedLayouts>& tried = report.tried;
  std::vector<std::vector<std::string>> rows{{" #", "step ms", "samples/s", "MiB"}};
  if (tried) rows[0].emplace_back("tried ms");
  for (const auto& [name, layout] : ranking.best.front().sections) rows[0].push_back(name);
  for (std::size_t at = 0; at < std::min(report.top, ranking.best.size()); ++at) {
    const RankedLayout& ranked = ranking.best[at];
    const double rate = static_cast<double>(report.global_batch) / ranked.step_ms * 1e3;
    std::vector<std::string> row{(at < 9 ? " " : "") + std::to_string(at + 1), fixed(ranked.step_ms, 1), fixed(rate, 1),
                                 fixed(ranked.bytes / (1 << 20), 0)};
    if (tried) row.push_back(at < tried->step_ms.size() ? fixed(tried->step_ms[at], 1) : "");
    for (const auto& [name, layout] : ranked.sections) row.push_back(placed_text(ranked, name));
    rows.push_back(std::move(row));
  }
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (std::size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], row[at].size() + 2);
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t at = 0; at < row.size(); ++at) line += padded(row[at], widths[at]);
    lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return lines;
}

std::string critical_text(const RankedLayout& best) {
  const auto busiest = std::ranges::max_element(
      best.shares, {}, [](const auto& entry) { return entry.second.passes + entry.second.step_ends; });
  std::string waits;
  for (const auto& [reason, share] : busiest->second.waits) {
    if (share >= 0.005) waits += (waits.empty() ? "" : ", ") + reason + " " + percent(share);
  }
  return "critical  " + busiest->first + " is in passes " + percent(busiest->second.passes) +
         " of the time and at step ends " + percent(busiest->second.step_ends) + "; it waits for " +
         (waits.empty() ? "nothing" : waits);
}

/// Returns lines with a generator's time, and the samples that it follows from.
std::vector<std::string> generator_lines(const RankingReport& report) {
  const RankedLayout& best = report.ranking.best.front();
  const std::string samples =
      std::to_string(report.made.size()) + " of " + fixed(mean_completion(report.made), 1) + " tokens, " +
      (report.lengths.empty() ? "the most they may have; --lengths RUN takes a run's" : "as in " + report.lengths);
  return {"rollout   " + fixed(best.rollout_ms, 1) + " ms; " + report.generator + " is at work " +
              percent(best.generator_ms / best.step_ms) + " of the time",
          "samples   " + samples};
}

std::string rivals_text(const LayoutRanking& ranking) {
  std::string reasons;
  std::set<std::string> seen;  // keys: each with its best other value
  for (const Alternative& other : ranking.alternatives) {
    if (!seen.insert(other.change.substr(0, other.change.find(' '))).second) continue;
    reasons += (reasons.empty() ? "" : "; ") + other.change + ": " +
               signed_percent(other.step_ms / ranking.best.front().step_ms - 1);
  }
  return reasons;
}

}  // namespace

double mean_completion(const std::vector<MadeLengths>& made) {
  double tokens = 0;
  for (const MadeLengths& each : made) tokens += static_cast<double>(each.completion);
  return tokens / static_cast<double>(made.size());
}

std::vector<std::string> ranking_lines(const RankingReport& report) {
  const LayoutRanking& ranking = report.ranking;
  const RankedLayout& best = ranking.best.front();
  std::vector<std::string> lines{heading(report)};
  if (!report.stage.empty()) lines.push_back(report.stage);
  const std::vector<std::string> table = table_of(report);
  lines.insert(lines.end(), table.begin(), table.end());
  lines.push_back("bound     no layout of these can do a step in less than " + fixed(ranking.least_bound_ms, 1) +
                  " ms; the choice is " + percent(best.step_ms / ranking.least_bound_ms - 1) + " above");
  lines.push_back(critical_text(best));
  if (!report.made.empty()) {
    const std::vector<std::string> more = generator_lines(report);
    lines.insert(lines.end(), more.begin(), more.end());
  }
  if (const std::string reasons = rivals_text(ranking); !reasons.empty()) lines.push_back("why not   " + reasons);
  if (ranking.filled > 0) {
    lines.push_back("share     not tried: without it the sections reach " + percent(ranking.filled) +
                    " of the GPU's best rates, more than on shares of the GPU");
  }
  lines.push_back("stable    best choice while pass times stay within: " + certainty_text(report.certain));
  for (const std::string& setting : best.more) lines.push_back("run       " + setting);
  if (ranking.refused > 0) {
    lines.push_back("refused   " + std::to_string(ranking.refused) + " layouts, the first: " + ranking.first_refusal);
  }
  if (report.tried) {
    lines.push_back("tried     the same layout differed by " + percent(report.tried->spread) + " between rounds");
  }
  for (std::string& line : lines) line = printable(line);
  return lines;
}

std::string layout_text(const SectionLayout& layout) {
  std::string text;
  const auto add = [&](const std::string& words) { text += (text.empty() ? "" : " ") + words; };
  if (layout.replicas > 1) add(std::to_string(layout.replicas) + " x");
  if (layout.micro_batch <= most_samples_of_a_step) add("m" + std::to_string(layout.micro_batch));  // else by tokens
  if (layout.tensor > 1) add("tensor " + std::to_string(layout.tensor));
  if (layout.context > 1) add("context " + std::to_string(layout.context));
  if (layout.expert > 1) add("expert " + std::to_string(layout.expert));
  if (layout.pipeline > 1) add("pipeline " + std::to_string(layout.pipeline));
  if (layout.chunks > 1) add("chunks " + std::to_string(layout.chunks));
  if (layout.zero) add("zero");
  return text;
}

std::string signed_percent(double share) {
  return (share >= 0 ? "+" : "") + percent(share);
}

std::string placed_text(const RankedLayout& ranked, const std::string& section) {
  SectionLayout layout = ranked.sections.at(section);
  std::string text;
  if (const auto mix = ranked.mixes.find(section); mix != ranked.mixes.end()) {
    layout.replicas = layout.context = 1;
    std::string contexts;
    for (const std::int64_t context : mix->second) {
      contexts += (contexts.empty() ? "" : ", ") + std::to_string(context);
    }
    text = with_runs("context [" + contexts + "]") + " ";
  }
  text += layout_text(layout);
  text += (text.empty() ? "" : " ") + ranked.kind + ":";
  const std::vector<int>& devices = ranked.devices.at(section);
  for (std::size_t at = 0; at < devices.size(); ++at) text += (at == 0 ? "" : ",") + std::to_string(devices[at]);
  const auto share = ranked.shares_of_devices.find(section);
  return share == ranked.shares_of_devices.end() ? text : text + " share " + number_text(share->second);
}

std::string with_runs(const std::string& setting) {
  const std::size_t begin = setting.find('[');
  if (begin == std::string::npos) return setting;
  std::string text = setting.substr(0, begin + 1);
  std::istringstream list(setting.substr(begin + 1, setting.size() - begin - 2));
  std::string before;
  std::size_t count = 0;
  for (std::string item; true;) {
    const bool more = static_cast<bool>(std::getline(list >> std::ws, item, ','));
    if (count > 0 && (!more || item != before)) {
      text += (text.back() == '[' ? "" : ", ") + std::to_string(count) + " x " + before;
      count = 0;
    }
    if (!more) return text + "]";
    before = item;
    ++count;
  }
}

std::string certainty_text(const std::vector<Certainty>& certainties) {
  std::string text;
  for (const Certainty& of : certainties) {
    text += (text.empty() ? "" : ", ") + of.section + " " + fixed(of.least, 2) + " to " + fixed(of.most, 2);
  }
  return text;
}

}  // namespace maestro
