// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "actors/control/control_text.hpp"
#include "actors/control/control_types.h"

namespace maestro {
namespace {

using Json = nlohmann::ordered_json;

/// Returns a value's name in lower case. (The generated operator<< writes the name of the enumeration.)
template <class Value>
std::string lower_name(const std::map<int, const char*>& names, Value value) {
  const auto found = names.find(static_cast<int>(value));
  std::string name = found == names.end() ? std::to_string(static_cast<int>(value)) : found->second;
  std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return name;
}

Json wait_json(const control::Wait& wait) {
  Json json{{"kind", lower_name(control::_WaitKind_VALUES_TO_NAMES, wait.kind)},
            {"section", wait.section},
            {"replicas", wait.replicas},
            {"step", wait.step},
            {"processes", wait.processes},
            {"text", wait.text}};
  if (wait.__isset.sample) json["sample"] = wait.sample;
  return json;
}

Json section_json(const control::SectionFigures& section) {
  Json json{{"name", section.name},
            {"replicas", section.replicas},
            {"trained", section.trained},
            {"step", section.step},
            {"metrics", section.metrics}};
  if (section.__isset.busy) json["busy"] = section.busy;
  return json;
}

Json replica_json(const control::ReplicaFigures& replica) {
  Json json{{"section", replica.section},
            {"replica", replica.replica},
            {"process", replica.process},
            {"host", replica.host},
            {"pid", replica.pid},
            {"devices", replica.devices},
            {"state", lower_name(control::_ReplicaState_VALUES_TO_NAMES, replica.state)},
            {"doing", replica.doing},
            {"step", replica.step}};
  if (replica.__isset.micro_batch) json["micro_batch"] = replica.micro_batch;
  if (replica.__isset.wait) json["wait"] = wait_json(replica.wait);
  if (replica.__isset.busy) json["busy"] = replica.busy;
  return json;
}

Json device_json(const control::DeviceFigures& device) {
  return {{"process", device.process}, {"host", device.host}, {"device", device.device}, {"busy", device.busy}};
}

template <class Items, class Shown>
Json list_json(const Items& items, Shown&& shown) {
  Json json = Json::array();
  for (const auto& item : items) json.push_back(shown(item));
  return json;
}

Json planned_json(const control::PlannedSection& section) {
  return {{"name", section.name},
          {"mode", section.mode},
          {"trained", section.trained},
          {"tensor", section.tensor},
          {"context", section.context},
          {"stage", section.stage},
          {"stages", section.stages},
          {"micro_batch", section.micro_batch},
          {"max_in_flight", section.max_in_flight},
          {"precision", section.precision},
          {"replicas", list_json(section.replicas, [](const control::PlannedReplica& replica) {
             return Json{{"replica", replica.replica},
                         {"process", replica.process},
                         {"host", replica.host},
                         {"devices", replica.devices}};
           })}};
}

Json edge_json(const control::PlannedEdge& edge) {
  return {{"from_section", edge.from_section},
          {"from_port", edge.from_port},
          {"to_section", edge.to_section},
          {"to_port", edge.to_port},
          {"gradient", edge.gradient},
          {"columns", edge.columns},
          {"dtype", edge.dtype}};
}

}  // namespace

std::string json_text(const control::Status& status) {
  Json json{{"state", lower_name(control::_State_VALUES_TO_NAMES, status.state)},
            {"job", status.job},
            {"step", status.step},
            {"steps", status.steps},
            {"epoch", status.epoch},
            {"elapsed_s", status.elapsed_s},
            {"samples_per_s", status.samples_per_s},
            {"samples_trained", status.samples_trained},
            {"tokens_trained", status.tokens_trained}};
  if (status.__isset.loss) json["loss"] = status.loss;
  if (!status.stage.empty()) json["stage"] = status.stage;
  json["units"] = list_json(status.units, [](const control::Unit& unit) {
    return Json{{"kind", lower_name(control::_UnitKind_VALUES_TO_NAMES, unit.kind)}, {"step", unit.step}};
  });
  json["sections"] = list_json(status.sections, section_json);
  json["replicas"] = list_json(status.replicas, replica_json);
  json["devices"] = list_json(status.devices, device_json);
  if (status.__isset.step_ms) json["step_ms"] = status.step_ms;
  if (status.__isset.step_time_over_bound) json["step_time_over_bound"] = status.step_time_over_bound;
  if (status.__isset.stops_after) json["stops_after"] = status.stops_after;
  json["checkpoint"] = status.checkpoint;
  json["recoveries"] = status.recoveries;
  return json.dump();
}

std::string json_text(const control::Plan& plan) {
  Json json{{"job", plan.job},
            {"policy", plan.policy},
            {"slots", plan.slots},
            {"global_batch", plan.global_batch},
            {"sections", list_json(plan.sections, planned_json)},
            {"edges", list_json(plan.edges, edge_json)},
            {"step", plan.step}};
  if (plan.__isset.planned_ms) json["planned_ms"] = plan.planned_ms;
  if (plan.__isset.lower_bound_ms) json["lower_bound_ms"] = plan.lower_bound_ms;
  json["effective_job"] = plan.effective_job;
  return json.dump();
}

std::string json_text(const control::Checkpoint& checkpoint) {
  return Json{{"step", checkpoint.step}, {"path", checkpoint.path}}.dump();
}

std::string json_text(const control::Standing& standing) {
  return Json{{"state", lower_name(control::_State_VALUES_TO_NAMES, standing.state)}, {"step", standing.step}}.dump();
}

std::string json_text(const MetricsRow& row) {
  return Json{{"section", row.section},
              {"step", row.step},
              {"kind", row.validation ? "validation" : "train"},
              {"metrics", row.metrics}}
      .dump();
}

std::string json_text(const control::Leaving& leaving) {
  return Json{{"process", leaving.process}, {"text", leaving.text}}.dump();
}

}  // namespace maestro
