// SPDX-License-Identifier: Apache-2.0
#include "apps/vlm/run_figures.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/page/markup.hpp"

namespace maestro {

namespace {

using Json = nlohmann::json;

/// Returns the number at a path such as /validation/ce; 0 for an absent value or a value of another type.
double number_at(const Json& report, const char* path) {
  const Json::json_pointer pointer(path);
  return report.contains(pointer) && report.at(pointer).is_number() ? report.at(pointer).get<double>() : 0.0;
}

std::vector<TimelineLane> lanes_of(const Json& plan) {
  std::vector<TimelineLane> lanes;
  for (const Json& lane : plan.at("lanes")) {
    if (lane.at("mode") == "source") continue;
    const auto section = lane.at("section").get<std::string>();
    std::string place = lane.at("device").get<std::string>();
    if (plan.at("processes") > 1) place += " of process " + std::to_string(lane.at("process").get<std::int64_t>());
    lanes.push_back({section, section + "/" + std::to_string(lane.at("replica").get<std::int64_t>()), place});
  }
  return lanes;
}

void read_scheduling(const Json& rows, RunFigures& figures) {
  double makespan = 0, bound = 0;
  std::map<std::string, double> busy;
  for (const Json& row : rows) {
    makespan += number_at(row, "/makespan_ms");
    bound += number_at(row, "/lower_bound_ms");
    for (const auto& [section, share] : row.at("utilization").items()) busy[section] += share.get<double>();
  }
  if (bound > 0) figures.makespan_over_bound = makespan / bound;
  for (const TimelineLane& lane : figures.lanes) {
    const auto found = busy.find(lane.section);
    if (found == busy.end()) continue;
    figures.utilization.emplace_back(lane.section, found->second / static_cast<double>(rows.size()));
    busy.erase(found);
  }
}

RunFigures figures_of(const Json& report, const std::string& model) {
  RunFigures figures;
  figures.steps = report.at("last_step").get<std::int64_t>();
  figures.exact_match = number_at(report, "/validation/exact_match");
  figures.validation_ce = number_at(report, "/validation/ce");
  figures.samples_per_s = number_at(report, "/throughput/samples_per_s");
  figures.train_seconds = number_at(report, "/throughput/train_seconds");
  figures.max_rss_mb = number_at(report, "/max_rss_mb");
  const Json& plan = report.at("plan");
  figures.corpus = plan.at("corpus").get<std::string>();
  figures.policy = plan.at("policy").get<std::string>();
  figures.lanes = lanes_of(plan);
  for (const Json& row : report.at("steps")) {
    if (row.at("section") != model || !row.contains("loss") || !row.at("loss").is_number()) continue;
    figures.training.add(row.at("step").get<std::uint64_t>(), row.at("loss").get<double>());
  }
  if (figures.validation_ce > 0) {
    figures.validation.push_back(
        {static_cast<double>(figures.steps), figures.validation_ce,
         "validation after step " + std::to_string(figures.steps) + ": " + shortened(figures.validation_ce)});
  }
  if (report.contains("scheduling")) read_scheduling(report.at("scheduling"), figures);
  return figures;
}

}  // namespace

Result<RunFigures> read_run_figures(const std::filesystem::path& report, const std::string& model) {
  std::ifstream file(report, std::ios::binary);
  if (!file) return Error{ErrorCode::not_found, "cannot read the report " + report.string()};
  try {
    return figures_of(Json::parse(file), model);
  } catch (const Json::exception& problem) {
    return Error{ErrorCode::corrupt, report.string() + " is not a report of maestro: " + problem.what()};
  }
}

}  // namespace maestro
