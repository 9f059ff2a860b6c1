// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/run_tables.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/core/printable.hpp"
#include "runtime/page/markup.hpp"
#include "runtime/page/recorded_lanes.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_rows = 200;  // in a table (PW-1)

TableCell figure(double value) {
  if (!std::isfinite(value)) return {"not a number", "null"};
  return {shortened(value), number_text(value)};
}

TableCell at_step(const RunCurve::Value& value) {
  return {shortened(value.value) + " (step " + std::to_string(value.step) + ")", number_text(value.value)};
}

TableCell step_cell(std::uint64_t step) {
  return {std::to_string(step), std::to_string(step)};
}

/// Removes the first rows of a table that is too long, and states their number in the remark.
PageTable shortened(PageTable table, std::uint64_t earlier = 0) {
  if (table.rows.size() > most_rows) {
    earlier += table.rows.size() - most_rows;
    table.rows.erase(table.rows.begin(), table.rows.end() - most_rows);
  }
  if (earlier > 0) {
    table.remark += (table.remark.empty() ? "" : " ") + std::string("The newest ") + std::to_string(table.rows.size()) +
                    "; " + std::to_string(earlier) + " before them are left out.";
  }
  return table;
}

PageTable figures_table(const RunPage& page) {
  PageTable table{"Figures",
                  "Of the training steps; all values are on record.",
                  {"section", "figure", "first", "last", "lowest", "highest"},
                  {}};
  for (const auto* curves : {&page.curves, &page.busy, &page.times}) {
    for (const RunCurve& curve : *curves) {
      std::vector<TableCell> row{{curve.section.empty() ? "run" : curve.section}, {curve.metric}};
      if (curve.points.empty()) {
        row.resize(6, {"not a number", "null"});
      } else {
        row.insert(row.end(), {figure(curve.first.value), figure(curve.last.value), at_step(curve.lowest),
                               at_step(curve.highest)});
      }
      if (curve.not_numbers > 0) row[1].text += ", not a number at " + std::to_string(curve.not_numbers) + " steps";
      table.rows.push_back(std::move(row));
    }
  }
  if (table.rows.empty()) table.remark.clear();
  return table;
}

TableCell share(double part, double whole) {
  return {percent(part / whole), number_text(part / whole)};
}

PageTable devices_table(const RunPage& page) {
  PageTable table{
      "Devices",
      "Share of all steps' time that the device's lanes spent in passes and at step ends, and each lane's share.",
      {"device", "busy", "lanes"},
      {}};
  struct Use {
    double share = 0;
    std::string lanes;
  };
  std::map<std::string, Use> devices;
  for (const TimelineLane& placed : lanes_of(page.lanes)) {
    const auto lane = std::ranges::find(page.lane_times, placed.track, &RunLane::name);
    const LaneSpan total = lane == page.lane_times.end() ? LaneSpan() : lane->total();
    if (total.total_ms() <= 0) continue;
    const double busy = (total.busy_ms + total.step_end_ms) / total.total_ms();
    for (const std::string& name : devices_of(placed)) {
      Use& use = devices[name];
      use.share += busy;
      use.lanes += (use.lanes.empty() ? "" : ", ") + placed.track + " " + percent(busy);
    }
  }
  for (const auto& [name, use] : devices) table.rows.push_back({{name}, share(use.share, 1), {use.lanes}});
  if (table.rows.empty()) table.remark.clear();
  return shortened(std::move(table));
}

PageTable waits_table(const RunPage& page) {
  PageTable table{
      "Waits by lane",
      "Shares of each lane's time over all steps, without validations. Busy: passes. End of steps: gradient sums, "
      "the optimizer. Waits for the device: it works for other lanes." +
          old_step_ends_remark(page),
      {"lane", "busy", "end of steps", "waits for the device", "other waits", "most for"},
      {}};
  for (const RunLane& lane : page.lane_times) {
    const LaneSpan total = lane.total();
    const double ms = total.total_ms();
    if (ms <= 0) continue;
    table.rows.push_back({{lane.name},
                          share(total.busy_ms, ms),
                          share(total.step_end_ms, ms),
                          share(total.device_ms(), ms),
                          share(total.waited_ms(), ms),
                          {waits_text(total)}});
  }
  if (table.rows.empty()) table.remark.clear();
  return table;
}

PageTable spikes_table(const RunPage& page) {
  PageTable table{"Spikes",
                  "As the guard of the run found them ([guard] of the job).",
                  {"step", "section", "what", "value", "usual before"},
                  {}};
  for (const RunSpike& spike : page.spikes) {
    table.rows.push_back(
        {step_cell(spike.step), {spike.section}, {spike.what}, figure(spike.value), figure(spike.usual)});
  }
  if (page.curves.empty()) table.remark.clear();
  if (!page.curves.empty() && page.spikes.empty()) table.remark = "None. " + table.remark;
  return shortened(std::move(table), page.earlier_spikes);
}

PageTable validations_table(const RunPage& page) {
  PageTable table{"Validations", "", {"step", "section"}, {}};
  std::vector<std::string> metrics;
  for (const RunValidation& validation : page.validations) {
    for (const auto& [metric, value] : validation.metrics) {
      if (std::ranges::find(metrics, metric) == metrics.end()) metrics.push_back(metric);
    }
  }
  std::ranges::sort(metrics);
  table.columns.insert(table.columns.end(), metrics.begin(), metrics.end());
  for (const RunValidation& validation : page.validations) {
    std::vector<TableCell> row{step_cell(validation.step), {validation.section}};
    for (const std::string& metric : metrics) {
      const auto value = validation.metrics.find(metric);
      row.push_back(value == validation.metrics.end() ? TableCell{"-"} : figure(value->second));
    }
    table.rows.push_back(std::move(row));
  }
  return shortened(std::move(table));
}

PageTable texts_table(const RunPage& page) {
  PageTable table{"What the models write", page.texts_remark, {"prompt", "section", "step", "continuation"}, {}};
  for (const RunText& text : page.texts) {
    table.rows.push_back({{text.prompt}, {text.section}, step_cell(text.step), {text.text}});
  }
  return shortened(std::move(table));
}

PageTable lengths_table(const RunPage& page) {
  PageTable table{"Lengths of made samples",
                  "Tokens of the continuations that the run learned from, over all steps.",
                  {"tokens", "samples", "share"},
                  {}};
  const std::vector<double>& counts = page.made.lengths;
  double all = 0;
  for (const double count : counts) all += count;
  std::uint64_t last = 0;
  for (std::size_t bin = 0; bin < counts.size(); ++bin) {
    const std::uint64_t first = last + 1;
    last = page.made.most_tokens * (bin + 1) / counts.size();
    if (counts[bin] == 0) continue;
    const std::string lengths =
        first == last ? std::to_string(last) : std::to_string(first) + " to " + std::to_string(last);
    table.rows.push_back({{lengths}, figure(counts[bin]), share(counts[bin], all)});
  }
  if (table.rows.empty()) table.remark.clear();
  return table;
}

PageTable made_table(const RunPage& page) {
  PageTable table{"Made samples",
                  "Some that the last validations followed. Version: the step before which the trained section had the "
                  "weights that made the sample. `maestro generate` with these weights and the seed repeats it.",
                  {"step", "prompt", "continuation", "end", "tokens", "version", "seed"},
                  {}};
  for (const ShownSample& sample : page.made.samples) {
    table.rows.push_back({step_cell(sample.step),
                          {sample.prompt},
                          {sample.text},
                          {sample.finish},
                          step_cell(sample.tokens),
                          step_cell(sample.version),
                          {sample.seed}});
  }
  if (table.rows.empty()) table.remark.clear();
  return table;
}

PageTable events_table(const RunPage& page) {
  PageTable table{"Events", "", {"time", "event", ""}, {}};
  for (const RunEvent& event : page.events) table.rows.push_back({{event.time}, {event.name}, {event.text}});
  return shortened(std::move(table));
}

std::string joined(const std::vector<std::string>& parts, std::string_view before, std::string_view between,
                   std::string_view after) {
  std::string out(before);
  for (std::size_t at = 0; at < parts.size(); ++at) out += (at == 0 ? "" : std::string(between)) + parts[at];
  return out + std::string(after);
}

}  // namespace

std::vector<PageTable> tables_of(const RunPage& page) {
  PageTable layout{"Layout", "", {"lane"}, {}}, data{"Data", "", {"name", "value"}, {}};
  for (const std::string& lane : page.lanes) layout.rows.push_back({{lane}});
  for (const auto& [name, value] : page.data) data.rows.push_back({{name}, {value}});
  std::vector<PageTable> tables{figures_table(page),     devices_table(page), waits_table(page), spikes_table(page),
                                validations_table(page), lengths_table(page), made_table(page),  texts_table(page),
                                events_table(page),      shortened(layout),   shortened(data)};
  std::erase_if(tables, [](const PageTable& table) { return table.rows.empty() && table.remark.empty(); });
  return tables;
}

std::string html_of(const PageTable& table) {
  std::string out = "<h2>" + escaped(table.title) + "</h2>\n";
  if (!table.remark.empty()) out += "<p class=\"faint\">" + escaped(table.remark) + "</p>\n";
  if (table.rows.empty()) return out;
  out += "<div class=\"rows\"><table data-table=\"" + escaped(table.title) + "\">\n";
  const bool headed = std::ranges::any_of(table.columns, [](const std::string& name) { return !name.empty(); });
  if (headed) {
    out += "<thead><tr>";
    for (const std::string& name : table.columns) out += "<th>" + escaped(name) + "</th>";
    out += "</tr></thead>\n";
  }
  out += "<tbody>\n";
  for (const std::vector<TableCell>& row : table.rows) {
    out += "<tr>";
    for (const TableCell& cell : row) {
      out += cell.exact.empty() ? "<td>" : "<td class=\"figure\" data-value=\"" + escaped(cell.exact) + "\">";
      out += escaped(cell.text) + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string in_markdown(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&' || c == '<' || c == '>') {
      out += escaped(std::string_view(&c, 1));
    } else if (c == '\n' || c == '\r') {
      out += ' ';
    } else {
      if (std::string_view("|\\`*_[#").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string markdown_of(const PageTable& table) {
  std::vector<std::string> cells;
  for (const std::string& name : table.columns) cells.push_back(in_markdown(name));
  std::string out = "## " + table.title + "\n\n";
  if (!table.remark.empty()) out += table.remark + "\n\n";
  out +=
      joined(cells, "| ", " | ", " |\n") + joined(std::vector<std::string>(cells.size(), "---"), "| ", " | ", " |\n");
  for (const std::vector<TableCell>& row : table.rows) {
    cells.clear();
    for (const TableCell& cell : row) cells.push_back(in_markdown(cell.text));
    if (table.rows.empty()) return out;
    out += joined(cells, "| ", " | ", " |\n");
  }
  return out + "\n";
}

}  // namespace maestro
