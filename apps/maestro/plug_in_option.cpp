// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/plug_in_option.hpp"

#include <algorithm>

#include "actors/served/served_type.hpp"
#include "apps/maestro/bundled_apps.hpp"
#include "runtime/core/result.hpp"
#include "sections/plug_in/plug_in_library.hpp"

namespace maestro {

namespace {
constexpr const char* option = "--plugin";
}

void add_plug_in_option(CLI::App& command, std::vector<std::string>& files) {
  command.add_option(option, files, "load a plug-in beside those of the job's key `plugins`; may be repeated")
      ->allow_extra_args(false)
      ->type_name("FILE");
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

std::string plug_ins_setting(const JobDocument& job, const std::vector<std::string>& files) {
  std::vector<std::string> all = read_plug_ins(job.root());
  for (const std::string& file : files) {
    if (std::ranges::find(all, file) == all.end()) all.push_back(file);
  }
  std::string list;
  for (const std::string& file : all) list += (list.empty() ? "" : ", ") + quoted(file);
  return "plugins=[" + list + "]";
}

}  // namespace maestro
