// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/help/section_ports.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "actors/served/served_type.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro {

namespace {

/// A section to build.
struct Sample {
  const SectionRegistry* registry = nullptr;
  std::string type;                   ///< also the name of its table
  std::vector<std::string> settings;  ///< "decoder_lm.width=512"
  bool trained = true;
};

/// Returns nothing for settings that do not fit.
std::optional<Ports> ports_of(const Sample& sample) {
  try {
    const JobDocument document = JobDocument::parse(smallest_job, "job.toml", sample.settings);
    const JobTable root = document.root();
    const cpu::CpuOperatorTable ops;
    SectionContext context;
    context.name = sample.type;
    context.trained = sample.trained;
    context.meta = true;
    context.ops = &ops;
    return sample.registry->build(sample.type, {sample.type, root.table(sample.type), root, {}})(context)->ports();
  } catch (const JobError&) {
    return std::nullopt;
  }
}

std::vector<TypePort> listed(const Ports& ports) {
  std::vector<TypePort> out;
  for (const Port& port : ports.inputs) out.push_back({port, true, {}});
  for (const Port& port : ports.outputs) out.push_back({port, false, {}});
  return out;
}

const TypePort* find(const std::vector<TypePort>& ports, const TypePort& wanted) {
  const auto found = std::ranges::find_if(
      ports, [&](const TypePort& at) { return at.input == wanted.input && at.port.name == wanted.port.name; });
  return found == ports.end() ? nullptr : &*found;
}

/// Returns the keys of a type's groups, without the keys of every section.
std::vector<JobKey> own_keys(const JobReference& reference, const std::string& type) {
  std::vector<JobKey> keys;
  for (const KeyGroup* group : reference.groups_of(type)) {
    if (group->name == "section" || group->name == "optimizer") continue;
    keys.insert(keys.end(), group->keys.begin(), group->keys.end());
  }
  return keys;
}

/// Adds the key to each port whose columns change with the key's value.
void add_key(Sample sample, const JobKey& key, const std::string& name, std::vector<TypePort>& ports) {
  constexpr std::int64_t where_absent = 1536;  // not a default size of any model
  const std::int64_t value = std::atoll(key.fallback.c_str());
  const bool own = name.find('.') == std::string::npos;
  sample.settings.push_back((own ? sample.type + "." : "") + name + "=" +
                            std::to_string(value > 0 ? 2 * value : where_absent));
  const std::optional<Ports> found = ports_of(sample);
  if (!found) return;
  const std::vector<TypePort> others = listed(*found);
  for (TypePort& port : ports) {
    const TypePort* other = find(others, port);
    if (other != nullptr && other->port.columns != port.port.columns) port.keys.push_back(name);
  }
}

void add_keys(const JobReference& reference, const Sample& sample, std::vector<TypePort>& ports) {
  for (const JobKey& key : own_keys(reference, sample.type)) {
    if (key.type == "integer") add_key(sample, key, key.name, ports);
  }
  std::vector<TypePort> by_neighbours = ports;
  for (const char* name : {"teacher.width", "teacher.vocabulary", "vision.width", "decoder.width"}) {
    if (const JobKey* key = reference.find(name)) add_key(sample, *key, name, by_neighbours);
  }
  for (std::size_t at = 0; at < ports.size(); ++at) {
    if (ports[at].keys.empty()) ports[at].keys = by_neighbours[at].keys;
  }
}

/// Returns the ports that a choice adds to the default ports. If a trained section cannot have it, tries a frozen one.
std::optional<TypePorts> further_ports(const JobReference& reference, const std::vector<TypePort>& plain, Sample sample,
                                       const std::string& setting) {
  std::optional<Ports> chosen = ports_of(sample);
  if (!chosen) {
    sample.trained = false;
    chosen = ports_of(sample);
  }
  if (!chosen) return std::nullopt;
  TypePorts further{setting + (sample.trained ? "" : ", frozen"), listed(*chosen)};
  std::erase_if(further.ports, [&](const TypePort& port) { return find(plain, port) != nullptr; });
  if (further.ports.empty()) return std::nullopt;
  add_keys(reference, sample, further.ports);
  return further;
}

}  // namespace

std::vector<TypePorts> ports_of_type(const SectionRegistry& registry, const JobReference& reference,
                                     const std::string& type) {
  const std::optional<Ports> plain = ports_of({&registry, type, {}});
  if (!plain) return {};
  std::vector<TypePorts> all{{"", listed(*plain)}};
  add_keys(reference, {&registry, type, {}}, all.front().ports);
  for (const JobKey& key : own_keys(reference, type)) {
    if (key.type != "choice") continue;
    for (const std::string& choice : key.choices) {
      const std::string value = "\"" + choice + "\"";
      auto further = further_ports(reference, all.front().ports,
                                   {&registry, type, {type + "." + key.name + "=" + value}}, key.name + " = " + value);
      if (further) all.push_back(*std::move(further));
    }
  }
  return all;
}

}  // namespace maestro
