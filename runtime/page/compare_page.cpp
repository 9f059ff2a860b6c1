// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/compare_page.hpp"

#include <algorithm>
#include <map>

#include "runtime/core/utf8.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/page/markup.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_points = 600;    // in a curve
constexpr std::size_t page_points = 18000;  // in all curves, about (PW-1)

std::vector<std::string> names_of(const std::vector<ComparedRun>& runs, const std::string& before) {
  std::vector<std::string> names{before};
  for (const ComparedRun& run : runs) names.push_back(run.name);
  return names;
}

/// Adds the texts of `more` that `all` lacks, in their order.
void add_new(std::vector<std::string>& all, const std::vector<std::string>& more) {
  for (const std::string& text : more) {
    if (std::ranges::find(all, text) == all.end()) all.push_back(text);
  }
}

PageTable runs_table(const std::vector<ComparedRun>& runs) {
  PageTable table{"Runs", "", {"run", "job", "state"}, {}};
  for (const ComparedRun& run : runs) table.rows.push_back({{run.name}, {run.page.title}, {state_line(run.page)}});
  return table;
}

PageTable figures_table(const std::vector<ComparedRun>& runs) {
  PageTable table{
      "Figures", "The last of each run; the runs may have different lengths.", names_of(runs, "figure"), {}};
  std::vector<std::string> figures;
  for (const ComparedRun& run : runs) {
    std::vector<std::string> of_run;
    for (const PageFigure& figure : run.page.figures) of_run.push_back(figure.name);
    add_new(figures, of_run);
  }
  for (const std::string& name : figures) {
    std::vector<TableCell> row{{name}};
    for (const ComparedRun& run : runs) {
      const auto found = std::ranges::find(run.page.figures, name, &PageFigure::name);
      row.push_back(found == run.page.figures.end() ? TableCell{"-"} : TableCell{found->value, found->exact});
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

PageTable settings_table(const std::vector<ComparedRun>& runs) {
  PageTable table{"Settings that differ", "", names_of(runs, "key"), {}};
  for (const DifferingSetting& setting : differing_settings(runs)) {
    std::vector<TableCell> row{{setting.key}};
    for (const std::string& value : setting.values) row.push_back({value.empty() ? "-" : value});
    table.rows.push_back(std::move(row));
  }
  table.remark = table.rows.empty() ? "None." : "A dash: the job does not set the key, which then has its default.";
  return table;
}

/// Draws the curves of all runs, a chart for each metric of each section.
class ComparedCurves {
 public:
  explicit ComparedCurves(const std::vector<ComparedRun>& runs) : runs_(runs) {
    std::size_t curves = 1;
    for (const ComparedRun& run : runs) {
      add_new(sections_, sections_of(run.page));
      add_new(metrics_, metrics_of(run.page));
      curves += run.page.curves.size() + run.page.busy.size() + 1;
    }
    points_ = std::clamp<std::size_t>(page_points / curves, 60, most_points);
  }

  [[nodiscard]] std::string drawn() const {
    std::string out;
    for (const std::string& metric : metrics_) {
      for (const std::string& section : sections_) out += chart(section, metric, &RunPage::curves);
    }
    for (const std::string& section : sections_) out += chart(section, "busy", &RunPage::busy);
    return out + chart("", "step_ms", &RunPage::times);
  }

 private:
  [[nodiscard]] std::string chart(const std::string& section, const std::string& metric,
                                  std::vector<RunCurve> RunPage::*curves) const {
    CurveChart chart;
    chart.label = section.empty() ? "step time, ms" : section + " " + metric;
    chart.linear = metric == "lr";
    chart.shares = metric == "busy";
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      const RunPage& page = runs_[run].page;
      ChartLine line{runs_[run].name, run, {}, validation_dots(page, section, metric)};
      for (const RunCurve& curve : page.*curves) {
        if (curve.section == section && curve.metric == metric) line.points = thinned(curve.points, points_);
      }
      for (ChartDot& dot : line.dots) dot.title = runs_[run].name + ": " + dot.title;
      if (!line.points.empty() || !line.dots.empty()) chart.lines.push_back(std::move(line));
    }
    return plot_part(chart.label, curve_chart(chart));
  }

  const std::vector<ComparedRun>& runs_;
  std::vector<std::string> sections_, metrics_;
  std::size_t points_ = most_points;
};

}  // namespace

std::vector<DifferingSetting> differing_settings(const std::vector<ComparedRun>& runs) {
  std::map<std::string, std::vector<std::string>> settings;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (const auto& [key, value] : JobDocument::parse(runs[run].page.job, runs[run].name).settings()) {
      settings[key].resize(runs.size());
      settings[key][run] = value;
    }
  }
  std::vector<DifferingSetting> differing;
  for (auto& [key, values] : settings) {
    if (std::ranges::count(values, values.front()) != std::ssize(values)) differing.push_back({key, std::move(values)});
  }
  return differing;
}

std::vector<PageTable> tables_of(const std::vector<ComparedRun>& runs) {
  return {runs_table(runs), figures_table(runs), settings_table(runs)};
}

std::string page_of(const std::vector<ComparedRun>& runs) {
  std::string body = "<h1>Comparison of " + std::to_string(runs.size()) + " runs</h1>\n", legend;
  for (const PageTable& table : tables_of(runs)) body += html_of(table);
  for (std::size_t run = 0; run < runs.size(); ++run) legend += line_entry(run, runs[run].name);
  const std::string drawn = ComparedCurves(runs).drawn();
  if (!drawn.empty()) {
    body +=
        plots_part({"Curves",
                    "By step, a colour for each run. A line is the moving mean; the fainter line has all values, an "
                    "area their range if there are more than the chart has room for. A dot is a validation."},
                   drawn, legend);
  }
  return html_page("Comparison of runs", repaired_utf8(body));
}

}  // namespace maestro
