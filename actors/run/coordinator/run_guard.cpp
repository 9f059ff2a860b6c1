// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/run_guard.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <string_view>

#include "runtime/core/json_value.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {

namespace {

using Kind = SpikeFinding::Kind;

constexpr std::array<std::string_view, 5> kind_names{"began", "ended", "lasts", "not_finite", "huge_norm"};

std::string rounded(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

std::optional<double> value_of(const StepRow& row, const std::string& metric) {
  const auto found = row.metrics.find(metric);
  return found == row.metrics.end() ? std::nullopt : std::optional(found->second);
}

bool is_skipped(const StepRow& row) {
  return row.metrics.contains(skipped_metric);
}

/// Returns the rows of a step's line, with NaN for null, which stands for a value that was not finite.
std::vector<StepRow> rows_of(const JsonValue& line) {
  std::vector<StepRow> rows;
  for (const auto& [section, metrics] : line.at("sections").members()) {
    StepRow& row = rows.emplace_back(StepRow{section, StepId(line.at("step").count()), {}});
    for (const auto& [name, value] : metrics.members()) {
      row.metrics[name] = value.null() ? std::numeric_limits<double>::quiet_NaN() : value.number();
    }
  }
  return rows;
}

}  // namespace

bool GuardFinding::lasts() const {
  return found.kind == Kind::lasts || found.kind == Kind::not_finite;
}

std::string text_of(const GuardFinding& finding) {
  const SpikeFinding& found = finding.found;
  const std::string place = "step " + std::to_string(found.step) + ", section '" + finding.section + "': ";
  const std::string value = rounded(found.value), usual = rounded(found.usual);
  const std::string spike = "the spike of the loss that began at step " + std::to_string(found.began);
  switch (found.kind) {
    case Kind::began:
      return place + "a spike of the loss begins: " + value + ", usual is " + usual;
    case Kind::ended:
      return place + spike + " has ended: " + value + ", its highest value was " + rounded(found.highest);
    case Kind::lasts:
      return place + spike + " lasts: " + value + ", usual was " + usual;
    case Kind::not_finite:
      return place + "the loss or the gradient norm is not finite: " + value;
    case Kind::huge_norm:
      break;
  }
  return place + "the gradient norm is huge: " + value + ", usual is " + usual;
}

EventFields fields_of(const GuardFinding& finding) {
  const SpikeFinding& found = finding.found;
  return {{"what", kind_names[static_cast<std::size_t>(found.kind)]},
          {"section", finding.section},
          {"step", found.step},
          {"began", found.began},
          {"value", found.value},
          {"usual", found.usual},
          {"highest", found.highest}};
}

std::string text_of(const RefusedNorm& refused, StepId step) {
  return "step " + std::to_string(step.value()) + " is skipped: the gradient norm of section '" + refused.section +
         "' is " + rounded(refused.norm) + (refused.usual ? ", usual is " + rounded(*refused.usual) : "");
}

EventFields fields_of(const RefusedNorm& refused, StepId step) {
  EventFields fields{{"section", refused.section}, {"step", step.value()}, {"value", refused.norm}};
  if (refused.usual) fields.emplace_back("usual", *refused.usual);
  return fields;
}

RunGuard::RunGuard(const GuardConfig& config, std::map<std::string, double> clip_norms)
    : config_(config),
      clip_norms_(std::move(clip_norms)),
      rules_{static_cast<std::size_t>(config.window), config.z, config.rise,
             static_cast<std::uint64_t>(config.patience), config.norm},
      gate_(rules_) {}

std::optional<RefusedNorm> RunGuard::refuse(const SectionNorms& norms) {
  return config_.action == GuardAction::skip ? gate_.judge(norms) : std::nullopt;
}

bool RunGuard::refuses_for_too_long() const {
  return gate_.refused_in_a_row() >= rules_.patience;
}

std::vector<GuardFinding> RunGuard::judge(const std::vector<StepRow>& rows) {
  std::vector<GuardFinding> findings;
  if (std::ranges::any_of(rows, is_skipped)) return findings;
  for (const StepRow& row : rows) {
    SpikeRules rules = rules_;
    if (const auto clip = clip_norms_.find(row.section); clip != clip_norms_.end()) rules.least_huge = clip->second;
    SpikeJudge& judge = judges_.try_emplace(row.section, rules).first->second;
    for (const SpikeFinding& found : judge.judge(row.step.value(), value_of(row, "loss"), value_of(row, "grad_norm"))) {
      findings.push_back({row.section, found});
    }
  }
  return findings;
}

void RunGuard::learn(const std::vector<StepRow>& rows) {
  SectionNorms norms;
  for (const StepRow& row : rows) {
    if (const std::optional<double> norm = value_of(row, "grad_norm")) norms.emplace(row.section, *norm);
  }
  gate_.learn(norms, std::ranges::any_of(rows, is_skipped));
  for (GuardFinding& finding : judge(rows)) {
    if (finding.lasts() && config_.action == GuardAction::rollback) unanswered_ = std::move(finding);
  }
}

Status RunGuard::learn_recorded(const std::filesystem::path& steps, std::uint64_t last) {
  const auto most = static_cast<std::size_t>(config_.window + config_.patience);
  const Result<std::vector<std::string>> lines = read_record_end(steps, most, last);
  if (!lines) return lines.error();
  for (const std::string& text : *lines) {
    const Result<std::vector<StepRow>> rows = read_json(text, steps.string(), ErrorCode::corrupt, rows_of);
    if (!rows) return rows.error();
    learn(*rows);
  }
  return {};
}

}  // namespace maestro
