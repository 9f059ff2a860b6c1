// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job_document.hpp"

#include <algorithm>
#include <sstream>
#include <system_error>

#include "runtime/core/input_file.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/job_state.hpp"
#include "runtime/job/toml_text.hpp"

namespace maestro {
namespace {

constexpr std::size_t largest_document = std::size_t{1} << 20;
// A dotted key opens a table per dot, and tables are freed recursively: a bounded line bounds the depth of the stack.
constexpr std::size_t longest_line = 8192;
// Every nested table holds the path of its keys: memory grows with the square of the depth.
constexpr int most_levels = 64;

std::string file_beside(const std::filesystem::path& path) {
  std::vector<std::string> names;
  std::error_code ignored;  // an unreadable folder gives no suggestion
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  for (std::filesystem::directory_iterator it(folder, ignored), end; !ignored && it != end; it.increment(ignored)) {
    if (it->path().extension() == ".toml") names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const auto near = nearest_name(path.filename().string(), names);
  return near ? "; did you mean '" + (path.parent_path() / *near).string() + "'?" : "";
}

std::string read_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw JobError(printable(path.string()) + ": a folder, not a job file; name the .toml file inside it");
  }
  Result<std::string> text = read_text(path, largest_document);
  if (text) return *std::move(text);
  const bool missing = text.error().code == ErrorCode::not_found;
  throw JobError(text.error().message + (missing ? file_beside(path) : ""), text.error().code);
}

void check_size(std::string_view text, const std::string& name) {
  if (text.size() > largest_document) throw JobError(name + ": larger than 1 MiB; is this a job file?");
  std::size_t line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const auto end = std::min(text.find('\n', begin), text.size());
    if (end - begin > longest_line) {
      throw JobError(name + ":" + std::to_string(line) + ": line longer than " + std::to_string(longest_line) +
                     " bytes; break it up");
    }
    begin = end + 1;
  }
}

void check_depth(const toml::node& node, const std::string& name, int level = 0) {
  if (level > most_levels) throw JobError(name + ": tables and lists are nested deeper than 64 levels");
  if (const toml::table* table = node.as_table()) {
    for (const auto& [key, value] : *table) check_depth(value, name, level + 1);
  } else if (const toml::array* list = node.as_array()) {
    for (const toml::node& value : *list) check_depth(value, name, level + 1);
  }
}

/// Returns a value as TOML in one line. Only long lists have line breaks; breaks inside strings are escaped.
std::string one_line(const toml::node& node) {
  if (const auto* number = node.as_floating_point()) return number_text(number->get());
  std::ostringstream value;
  value << toml::toml_formatter(node, toml::format_flags::none);
  std::string text;
  for (const char c : value.str()) {
    const bool blank = c == '\n' || c == ' ';
    if (!blank || !text.ends_with(' ')) text += blank ? ' ' : c;
  }
  return text;
}

void add_settings(const toml::table& table, const JobPath& path, std::map<std::string, std::string>& settings) {
  for (const auto& [key, node] : table) {
    JobPath full = path;
    full.emplace_back(key.str());
    if (const toml::table* inner = node.as_table()) {
      add_settings(*inner, full, settings);
      continue;
    }
    settings[label_of(full)] = one_line(node);
  }
}

}  // namespace

JobDocument JobDocument::load(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  return parse(read_file(path), path.string(), overrides);
}

JobDocument JobDocument::parse(std::string text, std::string name, const std::vector<std::string>& overrides) {
  auto state = std::make_shared<JobState>();
  state->name = printable(name);
  check_size(text, state->name);
  state->root = parse_toml(text, state->name);
  JobDocument document(std::move(state));
  for (const auto& setting : overrides) document.override_with(setting);
  check_depth(document.state_->root, document.state_->name);
  return document;
}

void JobDocument::override_with(const std::string& setting) {
  check_size(setting, "--set " + printable(setting));
  apply_override(*state_, setting);
  check_depth(state_->root, state_->name);
}

JobDocument::JobDocument(std::shared_ptr<JobState> state) : state_(std::move(state)) {}

JobDocument JobDocument::copy() const {
  return JobDocument(std::make_shared<JobState>(*state_));
}

JobTable JobDocument::root() const {
  return JobTable(state_, {});
}

void JobDocument::finish() const {
  root().finish();
}

std::string JobDocument::to_toml() const {
  return toml_text(state_->root);
}

std::vector<JobKey> JobDocument::keys() const {
  return state_->declared;
}

std::map<std::string, std::string> JobDocument::settings() const {
  std::map<std::string, std::string> settings;
  add_settings(state_->root, {}, settings);
  return settings;
}

}  // namespace maestro
