// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/planned_job_text.hpp"

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>

#include "runtime/core/result.hpp"
#include "runtime/job/job_document.hpp"

namespace maestro {

namespace {

std::string key_of_line(const std::string& line) {
  const auto equals = line.find('=');
  if (equals == std::string::npos) return {};
  std::string key = line.substr(0, equals);
  std::erase(key, ' ');
  return key;
}

/// Breaks a long list over lines, as the length of a job's lines is limited.
std::string in_lines(const std::string& value) {
  constexpr std::size_t longest = 1000;
  if (value.size() <= longest || value.front() != '[') return value;
  std::string text;
  std::size_t begin = 0;
  for (auto comma = value.find(", ", longest); comma != std::string::npos; comma = value.find(", ", begin + longest)) {
    text += value.substr(begin, comma + 1 - begin) + "\n ";
    begin = comma + 1;
  }
  return text + value.substr(begin);
}

/// Lines of a job file by table.
class JobLines {
 public:
  explicit JobLines(const std::string& text) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
  }

  /// Replaces the line of a key, or adds one at the end of its table.
  void set(const std::string& table, const std::string& key, const std::string& value) {
    const std::string line = key + " = " + value;
    auto begin = lines_.begin();
    if (!table.empty()) {
      begin = std::ranges::find(lines_, "[" + table + "]");
      if (begin == lines_.end()) {
        if (!lines_.empty() && !lines_.back().empty()) lines_.emplace_back();
        lines_.push_back("[" + table + "]");
        lines_.push_back(line);
        return;
      }
      ++begin;
    }
    const auto end = std::find_if(begin, lines_.end(), [](const std::string& each) { return each.starts_with("["); });
    const auto found = std::find_if(begin, end, [&](const std::string& each) { return key_of_line(each) == key; });
    if (found != end) {
      const auto behind = std::find_if(found + 1, end, [](const std::string& each) { return !each.starts_with(" "); });
      const bool several_lines = found->ends_with(",");
      *found = line;
      if (several_lines) lines_.erase(found + 1, behind);
    } else {
      const auto last = std::find_if(std::reverse_iterator(end), std::reverse_iterator(begin),
                                     [](const std::string& each) { return !each.empty(); });
      lines_.insert(last.base(), line);
    }
  }

  /// Removes a table with its inner tables, and top-level keys that write it in other ways.
  void remove(const std::string& table) {
    std::string at;  // the table of the line
    std::erase_if(lines_, [&](const std::string& line) {
      if (line.starts_with("[")) at = line.substr(1, line.find(']') - 1);
      const std::string key = at.empty() ? key_of_line(line) : at;
      return key == table || key.starts_with(table + ".");
    });
  }

  [[nodiscard]] std::string text() const {
    std::string all;
    for (const std::string& line : lines_) all += line + "\n";
    return all;
  }

 private:
  std::vector<std::string> lines_;
};

bool is_of_plan(const std::pair<const std::string, std::string>& setting) {
  return setting.first == "plan" || setting.first.starts_with("plan.");
}

}  // namespace

std::string job_text_without_plan(const std::string& text) {
  const JobDocument job = JobDocument::parse(text, "the job");
  std::map<std::string, std::string> wanted = job.settings();
  if (std::erase_if(wanted, is_of_plan) == 0) return text;
  for (const std::string& written : {text, job.to_toml()}) {
    JobLines lines(written);
    lines.remove("plan");
    try {
      if (JobDocument::parse(lines.text(), "the job").settings() == wanted) return lines.text();
    } catch (const JobError&) {
      // A value over several lines.
    }
  }
  throw JobError("[plan] of the job cannot be replaced as it is written; remove it");
}

std::vector<std::string> settings_of(const PlanConfig& plan) {
  const auto number = [](double value) {
    std::ostringstream text;
    text << std::setprecision(6) << value;
    return text.str();
  };
  std::vector<std::string> settings{"plan.predicted_step_ms=" + number(plan.predicted_step_ms)};
  if (plan.objective == PlanObjective::extra) {
    std::string names;
    for (const std::string& name : plan.keep) names += (names.empty() ? "\"" : ", \"") + name + '"';
    settings.emplace_back("plan.objective=\"extra\"");
    settings.push_back("plan.keep=[" + names + "]");
    settings.push_back("plan.stall=" + number(plan.stall));
  } else {
    settings.emplace_back(plan.objective == PlanObjective::money ? "plan.objective=\"money\""
                                                                 : "plan.objective=\"time\"");
  }
  if (plan.headroom > 0) settings.push_back("plan.headroom=" + number(plan.headroom));
  for (const auto& [section, ms] : plan.predicted_passes_ms) {
    settings.push_back("plan.predicted_passes_ms." + section + "=" + number(ms));
  }
  return settings;
}

std::string job_text_with(const std::string& text, const std::vector<std::string>& settings,
                          const std::vector<std::string>& header) {
  const JobDocument wanted = JobDocument::parse(text, "the job", settings);
  const std::map<std::string, std::string> before = JobDocument::parse(text, "the job").settings();
  const std::map<std::string, std::string> after = wanted.settings();
  JobLines lines(text);
  for (const std::string& setting : settings) {
    const std::string key = setting.substr(0, setting.find('='));
    const auto now = after.find(key);
    const auto old = before.find(key);
    if (now == after.end() || (old != before.end() && old->second == now->second)) continue;
    const auto dot = key.rfind('.');
    const bool top = dot == std::string::npos;
    lines.set(top ? "" : key.substr(0, dot), top ? key : key.substr(dot + 1), in_lines(now->second));
  }
  std::string comment;
  for (const std::string& line : header) comment += "# " + line + "\n";
  try {
    if (JobDocument::parse(lines.text(), "the job").settings() == after) return comment + lines.text();
  } catch (const JobError&) {
    // A value over several lines, or a table written in another way.
  }
  return comment + wanted.to_toml() + "\n";
}

}  // namespace maestro
