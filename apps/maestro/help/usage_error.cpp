// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/help/usage_error.hpp"

#include <algorithm>

#include "runtime/core/nearest_name.hpp"

namespace maestro {

namespace {

std::string meant(const std::string& word, const std::vector<std::string>& known) {
  const auto nearest = nearest_name(word, known);
  return nearest ? "; did you mean '" + *nearest + "'?" : std::string();
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string wrong_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  const auto word =
      std::find_if(arguments.begin(), arguments.end(), [](const auto& a) { return a.rfind('-', 0) != 0; });
  if (word == arguments.end()) return "give a command: " + joined(commands) + "; maestro --help explains them";
  if (*word == "resume") return "maestro resume was renamed: maestro continue";
  return "unknown command '" + *word + "'" + meant(*word, commands) + " (commands: " + joined(commands) + ")";
}

std::string wrong_option(const CLI::App& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options()) options.push_back(option->get_name());
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (name.rfind('-', 0) != 0 || std::find(options.begin(), options.end(), name) != options.end()) continue;
    return "maestro " + command.get_name() + ": unknown option " + name + meant(name, options);
  }
  return {};
}

/// Returns the required options and arguments that were not given, each with its description.
std::string missing_options(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_required() || !option->empty()) continue;
    text += (text.empty() ? "" : ", ") + option->get_name() + " (" + option->get_description() + ")";
  }
  return text;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::string usage_error(const CLI::App& app, const CLI::ParseError& problem,
                        const std::vector<std::string>& arguments) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) return wrong_command(app, arguments);
  const CLI::App& command = *chosen.front();
  if (dynamic_cast<const CLI::ExtrasError*>(&problem) != nullptr) {
    if (const std::string option = wrong_option(command, arguments); !option.empty()) return option;
  }
  const std::string missing = missing_options(command);
  const std::string elsewhere = command.get_name() == "plan" ? "; maestro show-plan shows the plan of a run" : "";
  const bool lacks = dynamic_cast<const CLI::RequiredError*>(&problem) != nullptr && !missing.empty();
  return "maestro " + command.get_name() + ": " +
         (lacks ? "missing " + missing + elsewhere : one_line(problem.what())) + "; maestro " + command.get_name() +
         " --help lists the options";
}

}  // namespace maestro
