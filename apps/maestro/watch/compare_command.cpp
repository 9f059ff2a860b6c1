// SPDX-License-Identifier: Apache-2.0
// `maestro compare RUN RUN ...`: the outcome of runs, the settings that differ, and a page with their curves.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/maestro/commands.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/observe/output_file.hpp"
#include "runtime/observe/padded.hpp"
#include "runtime/page/compare_page.hpp"
#include "runtime/page/run_reader.hpp"
#include "runtime/record/run_folder.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct CompareArguments {
  std::vector<fs::path> runs;
  fs::path page;  ///< empty: not written
  bool json = false;
};

std::vector<ComparedRun> read_runs(const std::vector<fs::path>& folders) {
  if (folders.size() < 2 || folders.size() > most_compared) {
    throw JobError(
        "compare: give 2 to " + std::to_string(most_compared) + " runs, not " + std::to_string(folders.size()),
        ErrorCode::invalid_argument);
  }
  std::vector<ComparedRun> runs;
  for (const fs::path& folder : folders) {
    const std::string name = printable(folder.lexically_normal().string());
    if (std::ranges::find(runs, name, &ComparedRun::name) != runs.end()) {
      throw JobError("compare: " + name + " is given twice", ErrorCode::invalid_argument);
    }
    runs.push_back({name, read_run_page(folder).value_or_throw()});
    RunPage& page = runs.back().page;
    if (page.state == RecordedState::under_way && RunFolder(folder).check_free()) page.state = RecordedState::cut_off;
  }
  return runs;
}

std::vector<std::string> texts_of(const std::vector<TableCell>& row) {
  std::vector<std::string> texts;
  for (const TableCell& cell : row) texts.push_back(printable(cell.text));
  return texts;
}

/// Returns the table below its title, with columns of equal width.
std::string text_of(const PageTable& table) {
  if (table.rows.empty()) return table.title + ": " + table.remark;
  std::vector<std::vector<std::string>> rows{table.columns};
  for (const std::vector<TableCell>& row : table.rows) rows.push_back(texts_of(row));
  std::vector<std::size_t> widths(table.columns.size());
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], row[at].size() + 2);
  }
  std::string out = table.title;
  for (const std::vector<std::string>& row : rows) {
    out += "\n  ";
    for (std::size_t at = 0; at < row.size(); ++at) {
      out += at + 1 == row.size() ? row[at] : padded(row[at], widths[at]);
    }
  }
  return out;
}

Json json_of(const std::vector<ComparedRun>& runs) {
  Json json{{"runs", Json::array()}, {"settings", Json::object()}};
  for (const ComparedRun& run : runs) {
    Json figures = Json::object();
    for (const PageFigure& figure : run.page.figures) {
      figures[figure.name] = figure.exact.empty() ? Json(figure.value) : Json::parse(figure.exact);
    }
    json["runs"].push_back(
        {{"run", run.name}, {"job", run.page.title}, {"state", state_line(run.page)}, {"figures", figures}});
  }
  for (const DifferingSetting& setting : differing_settings(runs)) {
    for (const std::string& value : setting.values) {
      json["settings"][setting.key].push_back(value.empty() ? Json() : Json(value));
    }
  }
  return json;
}

int run_compare(const CompareArguments& arguments, Console& console) {
  const std::vector<ComparedRun> runs = read_runs(arguments.runs);
  if (!arguments.page.empty()) write_output(arguments.page, page_of(runs)).or_throw();
  if (arguments.json) {
    console.answer(json_of(runs).dump(-1, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  for (const PageTable& table : tables_of(runs)) console.text(text_of(table));
  if (!arguments.page.empty()) console.note("page: " + printable(arguments.page.string()));
  return 0;
}

}  // namespace

void add_compare(Commands& commands) {
  const auto [command, arguments] =
      commands.add("compare", "compare runs: outcome, settings that differ, curves", run_compare);
  command.add_option("runs", arguments.runs, "the runs' folders, train.out: two or more")->required();
  command.add_option("--page", arguments.page, "write a page with their curves over each other here");
  command.add_flag("--json", arguments.json, "print the comparison as a line of JSON");
}

}  // namespace maestro
