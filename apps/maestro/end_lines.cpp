// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/end_lines.hpp"

#include <algorithm>
#include <cstdio>

#include "runtime/state/hf_export.hpp"

namespace maestro {

namespace {

constexpr std::size_t name_columns = 20;

std::string entry(const std::string& name, const std::string& text) {
  const std::size_t gap = name_columns - std::min(name.size(), name_columns - 2);
  return "  " + name + std::string(gap, ' ') + text;
}

std::string figures_text(const std::map<std::string, double>& figures) {
  std::string text;
  for (const auto& [name, value] : figures) {
    char number[32];
    std::snprintf(number, sizeof number, "%.4f", value);
    text += (text.empty() ? "" : ", ") + name + " " + number;
  }
  return text;
}

}  // namespace

std::string memory_text(double used_mb, double estimated_mb) {
  char text[64];
  std::snprintf(text, sizeof text, "%.0f MB, estimated %.0f MB", used_mb, estimated_mb);
  return text;
}

void print_models(const std::map<std::string, std::string>& folders, Console& console) {
  if (!folders.empty()) console.note("models");
  for (const auto& [section, folder] : folders) {
    console.note(entry(section, folder));
    const auto load = load_expression(folder);
    if (load) console.note(entry("", "load it: " + *load));
  }
}

void print_weights(const RunResult& result, Console& console) {
  if (!result.models.empty()) return print_models(result.models, console);
  for (const auto& [section, folder] : result.weights) console.note(entry("weights", folder));
}

void print_end(const RunResult& result, Console& console) {
  if (!result.validation.empty()) console.note("validation");
  for (const auto& [section, figures] : result.validation) console.note(entry(section, figures_text(figures)));
  if (result.estimated_mb > 0) {  // of rank 0
    console.note("memory");
    console.note(entry("peak", memory_text(result.max_rss_mb, result.estimated_mb)));
  }
  print_models(result.models, console);
  if (result.checkpoint.empty()) return;
  console.note("files");
  console.note(entry("checkpoint", result.checkpoint));
}

}  // namespace maestro
