// SPDX-License-Identifier: Apache-2.0
// `maestro runs`: the runs of this user, live and past.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/watch/control_options.hpp"
#include "apps/maestro/watch/known_runs.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/observe/padded.hpp"

namespace maestro {

namespace {

using Json = nlohmann::ordered_json;

struct RunsArguments {
  bool json = false;
};

Json or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

std::string json_line(const KnownRun& run, const RunState& state) {
  Json line;
  line["folder"] = or_null(run.folder.string());
  line["job"] = run.job;
  line["state"] = state.word;
  line["live"] = run.live;
  line["step"] = state.step;
  line["steps"] = state.steps == 0 ? Json() : Json(state.steps);
  line["losses"] = Json::object();
  for (const auto& [section, loss] : state.losses) line["losses"][section] = std::isfinite(loss) ? Json(loss) : Json();
  line["started"] = or_null(run.started);
  line["control"] = or_null(run.address);
  line["error"] = or_null(state.reason);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Returns "student 0.5797, plain 1.6038".
std::string losses_text(const RunState& state) {
  std::string text;
  for (const auto& [section, loss] : state.losses) {
    char value[32];
    std::snprintf(value, sizeof value, "%.4f", loss);
    text += (text.empty() ? "" : ", ") + printable(section) + " " + value;
  }
  return text.empty() ? "-" : text;
}

/// Returns "2026-11-24 12:30 UTC".
std::string start_text(const std::string& started) {
  constexpr std::size_t day = 10, minutes = 16;
  if (started.size() < minutes) return "-";
  return started.substr(0, day) + " " + started.substr(day + 1, minutes - day - 1) + " UTC";
}

std::string columns_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], row[at].size() + 2);
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t at = 0; at + 1 < row.size(); ++at) line += padded(row[at], widths[at]);
    text += (text.empty() ? "" : "\n") + line + row.back();
  }
  return text;
}

int run_runs(const RunsArguments& arguments, Console& console) {
  return call_run(console, [&] {
    const std::vector<KnownRun> runs = known_runs();
    std::vector<std::vector<std::string>> rows{{"folder", "job", "started", "loss", "state"}};
    for (const KnownRun& run : runs) {
      const RunState state = state_of(run);
      if (arguments.json) {
        console.answer(json_line(run, state));
      } else {
        const std::string folder = run.folder.empty() ? run.address : folder_text(run);
        rows.push_back({printable(folder, folder.size()), printable(run.job), start_text(run.started),
                        losses_text(state), state_text(state)});
      }
    }
    if (arguments.json) return;
    runs.empty() ? console.note("no runs of this user are known") : console.text(columns_of(rows));
  });
}

}  // namespace

void add_runs(Commands& commands) {
  const auto [command, arguments] = commands.add("runs", "list the runs of this user, live and past", run_runs);
  command.add_flag("--json", arguments.json, "print a line of JSON for each run");
}

}  // namespace maestro
