// SPDX-License-Identifier: Apache-2.0
// `maestro new section|plug-in|app NAME`: a folder to begin with.
#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "actors/served/served_type.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/help/template_files.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/printable_text.hpp"
#include "runtime/core/result.hpp"
#include "runtime/observe/output_file.hpp"
#include "sections/registry.hpp"

namespace maestro {

namespace {

struct NewArguments {
  std::string kind;
  std::string name;
  std::filesystem::path folder;
};

namespace fs = std::filesystem;

constexpr std::size_t longest_name = 40;

void check_name(const std::string& name) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  const bool letter_first = !name.empty() && name.front() >= 'a' && name.front() <= 'z';
  if (!letter_first || name.size() > longest_name || !std::ranges::all_of(name, fits)) {
    throw JobError("new: '" + printable(name) + "' is not a valid name: use up to " + std::to_string(longest_name) +
                   " of a-z, 0-9 and _, starting with a letter, such as gated_bigram");
  }
  const auto types = program_sections().list();
  if (std::ranges::find(types, name, &SectionRegistry::Listing::type) != types.end()) {
    throw JobError("new: maestro has a section type '" + name + "'; choose another name");
  }
}

/// Returns "GatedBigram" of "gated_bigram".
std::string class_name(const std::string& name) {
  std::string result;
  bool begins = true;
  for (const char c : name) {
    if (c != '_') result += begins && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    begins = c == '_';
  }
  return result;
}

std::string replaced(std::string text, std::string_view word, const std::string& value) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + value.size())) {
    text.replace(at, word.size(), value);
  }
  return text;
}

int run_new(const NewArguments& arguments, Console& console) {
  check_name(arguments.name);
  const fs::path folder = arguments.folder.empty() ? fs::path(arguments.name) : arguments.folder;
  const std::string kind =
      arguments.kind == "section" ? "plug-in" : arguments.kind;  // a section type comes in a plug-in
  std::vector<std::pair<fs::path, std::string>> files;
  for (const TemplateFile& file : template_files()) {
    if (file.kind != kind) continue;
    std::string text = replaced(std::string(file.text), "@NAME@", arguments.name);
    text = replaced(replaced(std::move(text), "@CLASS@", class_name(arguments.name)), "@VERSION@", MAESTRO_VERSION);
    files.emplace_back(folder / replaced(std::string(file.path), "NAME", arguments.name), std::move(text));
  }
  for (const auto& [path, text] : files) {
    std::error_code failed;
    if (fs::symlink_status(path, failed).type() == fs::file_type::not_found) continue;
    throw JobError("new: " + printable(path.string()) + " exists; nothing was written");
  }
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw JobError("new: cannot make the folder " + printable(folder.string()) + ": " + failed.message());
  for (const auto& [path, text] : files) write_output(path, text).or_throw();
  std::string made;
  for (const auto& [path, text] : files) made += "\n  " + printable_line(path.string());
  console.text(arguments.kind + " " + arguments.name + ":" + made);
  return 0;
}

}  // namespace

void add_new(Commands& commands) {
  const auto [command, arguments] =
      commands.add("new", "write a folder that begins a section type, a plug-in or an app", run_new);
  command
      .add_option("kind", arguments.kind, "section or plug-in: C++, tests and a job; app: a job of existing sections")
      ->required()
      ->check(CLI::IsMember({"section", "plug-in", "app"}));
  command.add_option("name", arguments.name, "its name, such as gated_bigram")->required();
  command.add_option("--into", arguments.folder, "the folder (default: NAME in this folder)");
}

}  // namespace maestro
