// SPDX-License-Identifier: Apache-2.0
// `maestro help [KEY]`: the reference of job files.
#include <algorithm>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/help/job_reference.hpp"
#include "apps/maestro/run/plug_in_option.hpp"
#include "runtime/core/result.hpp"
#include "runtime/observe/padded.hpp"

namespace maestro {

namespace {

struct HelpArguments {
  PlugInChoice plug_ins;
  std::string key;
  bool markdown = false;
};

std::string key_text(const std::string& name, const JobKey& key) {
  std::string text = name + ": " + key.help + "\n  type     " + key.type + "\n  default  " + key.fallback;
  if (!key.allowed.empty()) text += (key.type == "choice" ? "\n  choices  " : "\n  range    ") + key.allowed;
  if (!key.unit.empty()) text += "\n  unit     " + key.unit;
  return text;
}

std::string tables_text(const JobReference& reference) {
  std::string text = "Tables of a job file. `maestro help TABLE` lists keys, `maestro help TABLE.KEY` describes a key.";
  for (const KeyGroup& group : reference.groups()) {
    text += "\n  " + padded(group.name, 25) + group.purpose;
  }
  text += "\nSections of the apps, each with a table of its name";
  for (const ReferenceSection& section : reference.sections()) {
    text += "\n  " + padded(section.name, 25) + "app " + section.app + ", type " + section.type;
  }
  return text;
}

std::string capitalized(std::string text) {
  if (text.front() >= 'a' && text.front() <= 'z') text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text;
}

std::string markdown(const JobReference& reference) {
  std::string text;
  for (const KeyGroup& group : reference.groups()) {
    if (group.keys.empty()) continue;
    text += "\n### " + capitalized(group.heading) + "\n\n" + capitalized(group.purpose) + ".\n\n";
    text += "| key | type | default | values | unit | meaning |\n|---|---|---|---|---|---|\n";
    for (const JobKey& key : group.keys) {
      text += "| `" + key.name + "` | " + key.type + " | `" + key.fallback + "` | " + key.allowed + " | " + key.unit +
              " | " + key.help + " |\n";
    }
  }
  text.pop_back();
  return text;
}

int run_help(const HelpArguments& arguments, Console& console) {
  const JobReference reference(types_with(arguments.plug_ins.files).sections);
  if (arguments.markdown) {
    console.text(markdown(reference));
    return 0;
  }
  if (arguments.key.empty()) {
    console.text(tables_text(reference));
    return 0;
  }
  if (const JobKey* key = reference.find(arguments.key)) {
    console.text(key_text(arguments.key, *key));
    return 0;
  }
  const auto groups = reference.groups_of(arguments.key);
  if (groups.empty()) throw JobError(reference.unknown(arguments.key));
  for (const KeyGroup* group : groups) {
    if (!group->keys.empty()) console.text(group_text(*group));
  }
  return 0;
}

}  // namespace

void add_help(Commands& commands) {
  const auto [command, arguments] = commands.add("help", "describe the keys of job files", run_help);
  command.add_option("key", arguments.key, "a key (train.steps, student.lr) or a table; none: all tables");
  add_plug_in_options(command, arguments.plug_ins);
  command.add_flag("--markdown", arguments.markdown, "print the full reference for docs/job-file.md")->group("");
}

}  // namespace maestro
