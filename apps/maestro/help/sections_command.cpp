// SPDX-License-Identifier: Apache-2.0
// `maestro sections [NAME]`: the section types that job files may name.
#include <algorithm>

#include "actors/served/served_type.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/help/job_reference.hpp"
#include "apps/maestro/help/section_ports.hpp"
#include "apps/maestro/run/plug_in_option.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/observe/padded.hpp"

namespace maestro {

namespace {

struct SectionsArguments {
  std::string type;
  PlugInChoice plug_ins;
};

std::string types_text(const std::vector<SectionRegistry::Listing>& types,
                       const std::vector<CorpusRegistry::Listing>& corpora,
                       const std::vector<ObserverRegistry::Listing>& observers) {
  std::string text = "Section types. `maestro sections NAME` lists a type's ports and keys.";
  for (const auto& [type, description, plug_in] : types) {
    text += "\n  " + padded(type, 25) + description + (plug_in.empty() ? "" : " (" + plug_in + ")");
  }
  if (!corpora.empty()) text += "\nCorpora of plug-ins, for `data.kind`.";
  for (const auto& [kind, description, plug_in] : corpora) {
    text += "\n  " + padded(kind, 25) + description + " (" + plug_in + ")";
  }
  if (!observers.empty()) text += "\nObservers of plug-ins, for tables [observers.NAME].";
  for (const auto& [name, description, plug_in] : observers) {
    text += "\n  " + padded(name, 25) + description + " (" + plug_in + ")";
  }
  return text;
}

/// Returns "fp32 x 256 (width), tokens, differentiable".
std::string shape_text(const TypePort& at) {
  std::string keys;
  for (const std::string& key : at.keys) keys += (keys.empty() ? " (" : ", ") + key;
  if (!keys.empty()) keys += ")";
  const Port& port = at.port;
  const std::string columns = port.columns > 0 ? std::to_string(port.columns) + keys : "columns of its files";
  return std::string(name_of(port.dtype)) + " x " + columns + ", " + std::string(name_of(port.axis)) +
         (port.differentiable ? ", differentiable" : "") + (port.optional ? ", optional" : "");
}

std::string ports_text(const std::vector<TypePorts>& all) {
  std::string text = "ports: dtype x columns by the defaults (and the keys that set them), axis of the rows";
  for (const auto& [setting, ports] : all) {
    if (!setting.empty()) text += "\n  with " + setting;
    for (const TypePort& at : ports) {
      text += "\n  " + padded(at.input ? "input" : "output", 8) + padded(at.port.name, 21) + shape_text(at);
    }
  }
  return text;
}

int run_sections(const SectionsArguments& arguments, Console& console) {
  const auto [registry, corpora, observers] = types_with(arguments.plug_ins.files);
  const std::vector<SectionRegistry::Listing> types = registry.list();
  if (arguments.type.empty()) {
    console.text(types_text(types, corpora.list(), observers.list()));
    return 0;
  }
  std::vector<std::string> names;
  for (const SectionRegistry::Listing& type : types) names.push_back(type.type);
  const auto found = std::ranges::find(types, arguments.type, &SectionRegistry::Listing::type);
  if (found == types.end()) {
    const auto nearest = nearest_name(arguments.type, names);
    throw JobError("unknown section type '" + printable(arguments.type) + "'; " +
                   (nearest ? "did you mean '" + *nearest + "'?" : "maestro sections lists them"));
  }
  const JobReference reference(registry);
  console.note(found->type + ": " + found->description);
  console.text(ports_text(ports_of_type(registry, reference, arguments.type)));
  for (const KeyGroup* group : reference.groups_of(arguments.type)) {
    if (!group->keys.empty()) console.text(group_text(*group));
  }
  return 0;
}

}  // namespace

void add_sections(Commands& commands) {
  const auto [command, arguments] =
      commands.add("sections", "list the section types, or the ports and keys of a type", run_sections);
  command.add_option("type", arguments.type, "a section type; none: all");
  add_plug_in_options(command, arguments.plug_ins);
}

}  // namespace maestro
