// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/help/shell_completion.hpp"

#include <algorithm>
#include <string_view>

namespace maestro {

namespace {

/// Returns the text for use between single quotes of a shell.
std::string quoted_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out;
}

template <class Items, class Text>
std::string joined(const Items& items, const Text& text) {
  std::string out;
  for (const auto& item : items) out += (out.empty() ? "" : " ") + text(item);
  return out;
}

std::string names_of_commands(const CompletedProgram& program) {
  return joined(program.commands, [](const CompletedCommand& command) { return command.name; });
}

std::string keys_with_equals(const CompletedProgram& program) {
  return joined(program.keys, [](const std::string& key) { return key + "="; });
}

std::string bash_script(const CompletedProgram& program) {
  const std::string function = "_" + program.name;
  std::string out = "# bash completion for " + program.name + "\n" + function +
                    "() {\n  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options=\n"
                    "  COMPREPLY=()\n"
                    "  if [[ $COMP_CWORD == 1 ]]; then\n"
                    "    COMPREPLY=($(compgen -W '" +
                    names_of_commands(program) +
                    " --help --version' -- \"$word\"))\n    return\n  fi\n"
                    "  if [[ $before == --set ]]; then\n"
                    "    compopt -o nospace\n    COMPREPLY=($(compgen -W '" +
                    keys_with_equals(program) +
                    "' -- \"$word\"))\n    return\n  fi\n"
                    "  case ${COMP_WORDS[1]} in\n";
  for (const CompletedCommand& command : program.commands) {
    out += "    " + command.name + ") options='" +
           joined(command.options, [](const CompletedOption& option) { return option.name; });
    if (command.name == "help") out += " " + joined(program.keys, [](const std::string& key) { return key; });
    out += "' ;;\n";
  }
  return out +
         "  esac\n"
         "  if [[ $word == -* || ${COMP_WORDS[1]} == help ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
         "  fi\n"
         "}\ncomplete -o default -F " +
         function + " " + program.name + "\n";
}

/// Returns the text for use in a specification of zsh's _arguments or _describe.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : quoted_text(text)) {
    if (c == '[' || c == ']' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_script(const CompletedProgram& program) {
  const std::string function = "_" + program.name;
  std::string out = "#compdef " + program.name + "\n" + function + "() {\n  local -a commands keys\n  commands=(\n";
  for (const CompletedCommand& command : program.commands) {
    out += "    '" + command.name + ":" + zsh_text(command.help) + "'\n";
  }
  out += "  )\n  keys=(" + keys_with_equals(program) +
         ")\n"
         "  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
         "  if [[ $words[CURRENT-1] == --set ]]; then\n    compadd -S '' -- $keys\n    return\n  fi\n"
         "  case $words[2] in\n";
  for (const CompletedCommand& command : program.commands) {
    out += "    " + command.name + ")\n      _arguments";
    for (const CompletedOption& option : command.options) {
      out += " \\\n        '*" + option.name + "[" + zsh_text(option.help) + "]" +
             (option.takes_value ? ":value:_files" : "") + "'";
    }
    out += command.name == "help" ? " \\\n        \"*:key:(${keys%=})\"" : " \\\n        '*:file:_files'";
    out += "\n      ;;\n";
  }
  return out + "  esac\n}\n" + function + " \"$@\"\n";
}

std::string fish_script(const CompletedProgram& program) {
  const std::string start = "complete -c " + program.name;
  std::string out = "# fish completion for " + program.name + "\n";
  for (const CompletedCommand& command : program.commands) {
    out += start + " -n __fish_use_subcommand -f -a " + command.name + " -d '" + quoted_text(command.help) + "'\n";
    const std::string within = start + " -n '__fish_seen_subcommand_from " + command.name + "'";
    for (const CompletedOption& option : command.options) {
      out += within + " -l " + option.name.substr(2) + (option.takes_value ? " -r" : "");
      if (option.name == "--set") out += " -a '" + keys_with_equals(program) + "'";
      out += " -d '" + quoted_text(option.help) + "'\n";
    }
    if (command.name != "help") continue;
    out += within + " -f -a '" + joined(program.keys, [](const std::string& key) { return key; }) + "'\n";
  }
  return out;
}

}  // namespace

std::string completion_script(const CompletedProgram& program, const std::string& shell) {
  if (shell == "zsh") return zsh_script(program);
  return shell == "fish" ? fish_script(program) : bash_script(program);
}

}  // namespace maestro
