// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/help/job_reference.hpp"

#include <algorithm>

#include "actors/process/graph_app.hpp"
#include "actors/served/served_type.hpp"
#include "apps/maestro/run/bundled_apps.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/job/plan_reader.hpp"
#include "runtime/job/training_stages.hpp"
#include "runtime/model/decoder_config.hpp"
#include "runtime/observe/padded.hpp"
#include "sections/decoder/foreign_tokens.hpp"
#include "sections/plug_in/plug_in_library.hpp"

namespace maestro {

namespace {

constexpr const char* top_level = "top level";

JobDocument smallest() {
  return JobDocument::parse(smallest_job, "job.toml");
}

/// Returns the keys of a table, in the order of reading.
std::vector<JobKey> keys_of(const JobDocument& document, std::string_view table) {
  std::vector<JobKey> keys = document.keys();
  std::erase_if(keys, [&](const JobKey& key) { return key.table != table; });
  return keys;
}

bool holds(const std::vector<JobKey>& keys, std::string_view name) {
  return std::ranges::find(keys, name, &JobKey::name) != keys.end();
}

bool holds_all(const std::vector<JobKey>& keys, const std::vector<JobKey>& names) {
  return std::ranges::all_of(names, [&](const JobKey& key) { return holds(keys, key.name); });
}

void remove(std::vector<JobKey>& keys, const std::vector<JobKey>& names) {
  std::erase_if(keys, [&](const JobKey& key) { return holds(names, key.name); });
}

const JobKey* find_in(const std::vector<const KeyGroup*>& groups, std::string_view name) {
  for (const KeyGroup* group : groups) {
    const auto found = std::ranges::find(group->keys, name, &JobKey::name);
    if (found != group->keys.end()) return &*found;
  }
  return nullptr;
}

}  // namespace

std::string group_text(const KeyGroup& group) {
  std::string text = group.heading + ": " + group.purpose;
  for (const JobKey& key : group.keys) {
    text += "\n  " + padded(key.name, 21) + padded(key.fallback, 14) + key.help;
  }
  return text;
}

JobReference::JobReference(const SectionRegistry& registry) {
  add_tables();
  add_section_groups(registry);
  add_bundled_sections();
}

void JobReference::add_tables() {
  const JobDocument document = smallest();
  const JobTable root = document.root();
  (void)read_name(root);
  (void)read_app(root);
  (void)read_edges(root);
  (void)read_plug_ins(root);
  (void)ObserverRegistry().read(root);
  (void)read_train(root.table("train"));
  TrainingStages::read_keys(root.table("stages"));
  (void)read_data(root.table("data"));
  (void)read_schedule(root.table("schedule"));
  (void)read_guard(root.table("guard"));
  (void)read_transport(root.table("transport"));
  (void)read_emulation(root.table("emulation"));
  (void)read_plan(root.table("plan"));
  const std::pair<const char*, const char*> purposes[] = {
      {"train", "steps, checkpoints, validation, time limits"},
      {"stages", "parts of the run that train different sections, one after the other"},
      {"data", "the corpus"},
      {"data.mix.NAME", "a source of a mixture, with kind = \"prepared\""},
      {"schedule", "place and order of micro-batches"},
      {"guard", "loss spikes"},
      {"transport", "transfers, and the addresses of processes"},
      {"emulation", "emulated devices"},
      {"plan", "the choice of layouts by `maestro plan`, which writes this table, and its predictions"},
  };
  groups_.push_back({top_level, "top level", "keys `name`, `app`, `edges` and `plugins`, and table `observers`",
                     keys_of(document, "")});
  for (const auto& [table, purpose] : purposes) {
    const bool list = std::string_view(table) == "stages";
    const std::string heading = list ? "[[stages]]" : "[" + std::string(table) + "]";
    groups_.push_back({table, heading, purpose, keys_of(document, table)});
  }
}

void JobReference::add_section_groups(const SectionRegistry& registry) {
  const JobDocument document = smallest();
  const JobTable root = document.root();
  (void)read_type(root.table("section"), "");
  (void)read_section(root.table("section"), "section", {}, Training::none);
  (void)read_section(root.table("trained"), "trained");
  (void)read_decoder(root.table("shape"));
  check_tokens(root.table("shape"), 0, {});
  const std::vector<JobKey> every = keys_of(document, "section");
  std::vector<JobKey> trained = keys_of(document, "trained"), decoder = keys_of(document, "shape");
  remove(trained, every);
  remove(decoder, every);

  std::vector<KeyGroup> own;
  std::string decoders;
  for (const auto& [type, description, plug_in] : registry.list()) {
    try {
      (void)registry.build(type, {type, root.table(type), root, {}});
    } catch (const JobError&) {  // a key without a default: later keys are not read
      if (plug_in.empty()) throw;
    }
    std::vector<JobKey> keys = keys_of(document, type);
    remove(keys, every);
    types_[type] = {type};
    if (holds_all(keys, decoder)) {
      remove(keys, decoder);
      types_[type].emplace_back("decoder");
      decoders += (decoders.empty() ? "" : ", ") + type;
    }
    types_[type].insert(types_[type].end(), {"section", "optimizer"});
    own.push_back({type, "type " + type, description, std::move(keys)});
  }
  groups_.push_back({"section", "every section", "keys of every section, in its table such as [student]", every});
  std::vector<JobKey> moving = keys_of(document, "section.replicas");
  const auto differ = std::ranges::stable_partition(
      moving, [](const JobKey& key) { return key.name != "count" && key.name != "context"; });
  std::vector<JobKey> differing(differ.begin(), differ.end());
  moving.erase(differ.begin(), differ.end());
  groups_.push_back({"replicas", "replicas that move",
                     "keys of a frozen section's table, replicas = {least = 1, most = 4}", std::move(moving)});
  groups_.push_back({"mix", "replicas that differ",
                     "keys of the tables in a section's list, replicas = [{context = 4}, {count = 2, context = 1}]",
                     std::move(differing)});
  groups_.push_back({"optimizer", "trained sections", "keys of trained sections, in the same table", trained});
  groups_.push_back(
      {"lora", "adapters", "keys of a trained decoder's table, lora = {rank = 16}", keys_of(document, "trained.lora")});
  groups_.push_back({"decoder", "decoders", "keys of the types " + decoders, decoder});
  groups_.insert(groups_.end(), own.begin(), own.end());
}

void JobReference::add_bundled_sections() {
  Console silent(standard_streams());  // an App that is only composed writes nothing
  for (const BundledApp& bundled : bundled_apps()) {
    if (bundled.of_job_file) continue;
    RunOptions options;
    options.check_only = true;
    App app(smallest(), options, silent);
    bundled.compose(app);
    for (const auto& [name, type] : app.section_types()) sections_.push_back({name, bundled.name, type});
  }
}

std::vector<const KeyGroup*> JobReference::groups_of(std::string_view table) const {
  std::vector<std::string> names{std::string(table)};
  for (const char* inner : {"lora", "replicas"}) {  // tables inside a section's table
    if (table.ends_with("." + std::string(inner))) names = {inner};
  }
  if (names.front() == "replicas" && names.front() != table) names.emplace_back("mix");
  if (const auto type = types_.find(table); type != types_.end()) names = type->second;
  for (const ReferenceSection& section : sections_) {
    if (section.name != table) continue;
    if (names.front() == table) names.clear();
    const std::vector<std::string>& groups = types_.find(section.type)->second;
    names.insert(names.end(), groups.begin(), groups.end());
  }
  std::vector<const KeyGroup*> found;
  for (const KeyGroup& group : groups_) {
    if (std::ranges::find(names, group.name) != names.end()) found.push_back(&group);
  }
  return found;
}

const JobKey* JobReference::find(std::string_view key) const {
  const std::size_t dot = key.rfind('.');
  if (dot == std::string_view::npos) return find_in(groups_of(top_level), key);
  return find_in(groups_of(key.substr(0, dot)), key.substr(dot + 1));
}

std::vector<std::string> JobReference::tables() const {
  std::vector<std::string> names;
  for (const ReferenceSection& section : sections_) names.push_back(section.name);
  for (const KeyGroup& group : groups_) names.push_back(group.name);
  return names;
}

std::vector<std::string> JobReference::section_types() const {
  std::vector<std::string> names;
  for (const auto& [type, groups] : types_) names.push_back(type);
  return names;
}

std::vector<std::string> JobReference::keys() const {
  std::vector<std::string> keys;
  for (const std::string& table : tables()) {
    for (const KeyGroup* group : groups_of(table)) {
      for (const JobKey& key : group->keys) keys.push_back(table == top_level ? key.name : table + "." + key.name);
    }
  }
  return keys;
}

std::string JobReference::unknown(const std::string& wanted) const {
  std::vector<std::string> names = tables();
  const std::vector<std::string> keys = this->keys();
  const auto suffix = std::ranges::find_if(keys, [&](const std::string& key) { return key.ends_with("." + wanted); });
  if (suffix != keys.end()) return "unknown key '" + wanted + "'; did you mean '" + *suffix + "'?";
  names.insert(names.end(), keys.begin(), keys.end());
  const auto nearest = nearest_name(wanted, names);
  return "unknown key '" + wanted + "'" +
         (nearest ? "; did you mean '" + *nearest + "'?" : "; maestro help lists the tables");
}

}  // namespace maestro
