// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/run/plug_in_option.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "actors/served/served_type.hpp"
#include "apps/maestro/run/bundled_apps.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "sections/plug_in/plug_in_library.hpp"

namespace maestro {

namespace {
constexpr const char* option = "--plugin";
}

namespace fs = std::filesystem;

void add_plug_in_options(CLI::App& command, PlugInChoice& choice) {
  command.add_option(option, choice.files, "load this plug-in; may be repeated")
      ->allow_extra_args(false)
      ->type_name("FILE");
  command.add_flag("--no-plugins", choice.none_named, "load no plug-in because a job, a record or a trace names it");
}

PlugInTypes types_with(const std::vector<std::string>& files) {
  PlugInTypes types{program_sections(), {}, {}};
  try {
    for (const std::string& file : files) {
      PlugInLibrary(file).add_to({types.sections, types.corpora, types.observers});
    }
  } catch (const JobError& problem) {
    throw JobError(std::string(option) + ": " + problem.what(), problem.code());
  }
  return types;
}

std::vector<std::string> plug_in_settings(const JobDocument& job, const PlugInChoice& choice, NamedPlugIns named) {
  std::vector<std::string> all = read_plug_ins(job.root());
  const bool as_named = named == NamedPlugIns::loaded && !choice.none_named;
  if (choice.files.empty() && (all.empty() || as_named)) return {};
  if (choice.none_named) {
    all.clear();
  } else if (named == NamedPlugIns::asked_for) {
    const auto given = [&](const std::string& file) {  // it may have moved since
      return std::ranges::any_of(choice.files,
                                 [&](const fs::path& other) { return other.filename() == fs::path(file).filename(); });
    };
    for (const std::string& file : std::exchange(all, {})) {
      if (given(file)) continue;
      const std::string shown = printable(file);
      job.root().fail("plugins", shown + " is not loaded, because it would run with your rights: give " + option + " " +
                                     shown + " if you trust it, or --no-plugins to go on without it");
    }
  }
  (void)types_with(choice.files);  // for errors that name the option
  for (const std::string& file : choice.files) {
    if (std::ranges::find(all, file) == all.end()) all.push_back(file);
  }
  std::string list;
  for (const std::string& file : all) list += (list.empty() ? "" : ", ") + quoted(file);
  return {"plugins=[" + list + "]"};
}

}  // namespace maestro
