// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/help/job_schema.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/maestro/run/bundled_apps.hpp"

namespace maestro {

namespace {

using Json = nlohmann::ordered_json;

Json reference_to(const std::string& definition) {
  return {{"$ref", "#/definitions/" + definition}};
}

/// Adds the bounds of a number.
void add_range(Json& schema, const NumberRange& range) {
  const auto bound = [&](const char* closed, const char* open, bool is_open, double value) {
    if (!std::isfinite(value)) return;
    const bool whole = value == std::trunc(value) && std::abs(value) < 1e15;
    schema[is_open ? open : closed] = whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
  };
  bound("minimum", "exclusiveMinimum", range.min_open, range.min);
  bound("maximum", "exclusiveMaximum", range.max_open, range.max);
}

Json value_schema(const JobKey& key, const std::string& type) {
  constexpr std::string_view list = "list of ";
  if (type.starts_with(list)) {
    const std::string element = type.substr(list.size(), type.size() - list.size() - 1);
    return {{"type", "array"}, {"items", value_schema(key, element)}};
  }
  if (const std::size_t between = type.find(" or "); between != std::string::npos && type != "true or false") {
    return {{"anyOf", {value_schema(key, type.substr(0, between)), value_schema(key, type.substr(between + 4))}}};
  }
  if (type == "choice") return {{"enum", key.choices}};
  if (type == "true or false") return {{"type", "boolean"}};
  if (type == "text") return {{"type", "string"}};
  if (type == "pair") {
    return {{"type", "array"}, {"items", {{"type", "number"}}}, {"minItems", 2}, {"maxItems", 2}};
  }
  if (type == "table") return {{"type", "object"}};
  Json schema{{"type", type}};
  add_range(schema, key.range);
  return schema;
}

class SchemaMaker {
 public:
  explicit SchemaMaker(const JobReference& reference) : reference_(reference) {}

  [[nodiscard]] Json whole() {
    std::vector<std::string> apps;
    Json choices = Json::array();
    for (const BundledApp& app : bundled_apps()) {
      apps.emplace_back(app.name);
      choices.push_back({{"if", {{"properties", {{"app", {{"const", app.name}}}}}}}, {"then", job_of(app)}});
    }
    return {{"$schema", "http://json-schema.org/draft-07/schema#"},
            {"title", "job file of maestro"},
            {"type", "object"},
            {"required", {"app"}},
            {"properties", {{"app", {{"enum", apps}}}}},
            {"allOf", std::move(choices)},
            {"definitions", std::move(definitions_)}};
  }

 private:
  [[nodiscard]] Json schema_of(const JobKey& key) {
    Json schema = value_schema(key, key.type);
    if (key.name == "replicas") {
      const Json list{{"type", "array"}, {"items", table("mix", {"mix"})}, {"minItems", 1}};
      schema = {{"anyOf", {schema, table("replicas", {"replicas"}), list}}};
    }
    if (key.name == "observers") {
      schema["additionalProperties"] = {{"type", "object"}};  // plug-ins' tables
    } else if (key.name == "predicted_passes_ms" || (key.name == "lr" && key.type == "table")) {
      schema["additionalProperties"] = {{"type", "number"}, {"minimum", 0}};  // by section
    } else if (key.type == "table") {
      schema = table(key.name, {key.name});
    }
    schema["description"] = key.help + (key.unit.empty() ? "" : " [" + key.unit + "]");
    const Json fallback = Json::parse(key.fallback, nullptr, false);
    if (!fallback.is_discarded()) schema["default"] = fallback;
    return schema;
  }

  /// Returns a reference to a table's definition with the keys of these groups.
  [[nodiscard]] Json table(const std::string& name, const std::vector<std::string>& groups) {
    if (!defined_.insert(name).second) return reference_to(name);
    Json properties = Json::object();
    for (const std::string& group : groups) {
      for (const KeyGroup* found : reference_.groups_of(group)) {
        for (const JobKey& key : found->keys) properties[key.name] = schema_of(key);
      }
    }
    if (name == "data") {
      properties["mix"] = {{"type", "object"},
                           {"additionalProperties", table("data.mix.NAME", {"data.mix.NAME"})},
                           {"description", "sources of a mixture, by name"}};
    }
    definitions_[name] = {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
    return reference_to(name);
  }

  /// Returns a section's schema, with the keys of the type that it names, else of the app's type.
  [[nodiscard]] Json section(const ReferenceSection& section) {
    const std::vector<std::string> types = reference_.section_types();
    Json schema = table("type " + section.type, {section.type});
    for (const std::string& type : types) {
      if (type == section.type) continue;
      const Json named{{"required", {"type"}}, {"properties", {{"type", {{"const", type}}}}}};
      schema = {{"if", named}, {"then", table("type " + type, {type})}, {"else", std::move(schema)}};
    }
    return {{"properties", {{"type", {{"enum", types}}}}}, {"allOf", {std::move(schema)}}};
  }

  /// Returns the schema of a section whose key `type` names any type.
  [[nodiscard]] Json typed_section() {
    Json schema = section({"", "", reference_.section_types().front()});
    schema["required"] = {"type"};
    return schema;
  }

  [[nodiscard]] Json job_of(const BundledApp& app) {
    Json properties = Json::object();
    Json further = false;
    for (const KeyGroup& group : reference_.groups()) {
      if (group.heading == "top level") {
        for (const JobKey& key : group.keys) {
          if (key.name != "edges" || app.of_job_file) properties[key.name] = schema_of(key);
        }
      } else if (group.heading == "[" + group.name + "]" && group.name.find('.') == std::string::npos) {
        properties[group.name] = table(group.name, {group.name});
      } else if (group.heading == "[[" + group.name + "]]") {
        properties[group.name] = {{"type", "array"}, {"items", table(group.name, {group.name})}};
      }
    }
    for (const ReferenceSection& each : reference_.sections()) {
      if (each.app != app.name) continue;
      properties[each.name] = section(each);
      const JobKey* names = reference_.find(each.name + ".teacher");
      if (names != nullptr)
        further = section(*std::ranges::find(reference_.sections(), "teacher", &ReferenceSection::name));
    }
    if (app.of_job_file) {
      return {
          {"required", {"edges"}}, {"properties", std::move(properties)}, {"additionalProperties", typed_section()}};
    }
    // Sections that a key of another section names: a student's teachers.
    return {{"properties", std::move(properties)}, {"additionalProperties", std::move(further)}};
  }

  const JobReference& reference_;
  Json definitions_ = Json::object();
  std::set<std::string> defined_;
};

}  // namespace

nlohmann::ordered_json job_schema(const JobReference& reference) {
  return SchemaMaker(reference).whole();
}

}  // namespace maestro
