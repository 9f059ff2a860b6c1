// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/result_figures.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "runtime/core/printable.hpp"
#include "runtime/page/markup.hpp"

namespace maestro {

namespace {

/// Figures of a section with the step that they are from.
struct SectionResult {
  std::map<std::string, double> metrics;
  std::string at;  ///< "validation after step 300"

  [[nodiscard]] bool has(const std::string& metric) const { return metrics.contains(metric); }
};
using Results = std::map<std::string, SectionResult>;  // by section

Results last_validations(const std::vector<RunValidation>& validations) {
  Results results;
  for (const RunValidation& validation : validations) {
    results[validation.section] = {validation.metrics, "validation after step " + std::to_string(validation.step)};
  }
  return results;
}

Results last_steps(const std::vector<RunCurve>& curves) {
  Results results;
  for (const RunCurve& curve : curves) {
    if (curve.points.empty()) continue;
    SectionResult& result = results[curve.section];
    result.metrics[curve.metric] = curve.last.value;
    result.at = "training, step " + std::to_string(curve.last.step);
  }
  return results;
}

PageFigure figure(const std::string& name, double value, const std::string& remark, int digits) {
  if (!std::isfinite(value)) return {name, "not a number", remark, "null"};
  return {name, fixed(value, digits), remark, number_text(value)};
}

constexpr int digits_of_ce = 4;

std::string nats_at(const SectionResult& result) {
  return "cross-entropy, nats per token; " + result.at;
}

/// Returns the comparison of a distillation; nothing without a section that learns from a teacher.
std::vector<PageFigure> comparison(const Results& results) {
  std::vector<PageFigure> students, plain;
  std::optional<PageFigure> teacher;
  double distilled_ce = 0, plain_ce = 0;
  for (const auto& [section, result] : results) {
    if (!result.has("ce") || result.has("exact_match")) continue;
    const double ce = result.metrics.at("ce");
    if (!result.has("kl") && !result.has("teacher_ce")) {
      plain.push_back(figure(section + ", without teacher", plain_ce = ce, nats_at(result), digits_of_ce));
      continue;
    }
    students.push_back(figure(section + ", distilled", distilled_ce = ce, nats_at(result), digits_of_ce));
    if (result.has("teacher_ce"))
      teacher = figure("teacher", result.metrics.at("teacher_ce"), nats_at(result), digits_of_ce);
  }
  if (students.empty()) return {};
  std::vector<PageFigure> figures;
  if (teacher) figures.push_back(*teacher);
  figures.insert(figures.end(), students.begin(), students.end());
  figures.insert(figures.end(), plain.begin(), plain.end());
  if (students.size() == 1 && plain.size() == 1) {
    PageFigure& gain = figures.emplace_back(
        figure("gain of distillation", plain_ce - distilled_ce,
               "cross-entropy without teacher minus distilled; above 0: distillation helps", digits_of_ce));
    if (plain_ce >= distilled_ce) gain.value = "+" + gain.value;
  }
  return figures;
}

std::vector<PageFigure> accuracies(const Results& results) {
  std::vector<PageFigure> figures;
  for (const auto& [section, result] : results) {
    if (!result.has("exact_match")) continue;
    const double share = result.metrics.at("exact_match");
    figures.push_back(
        {section + " accuracy", percent(share), "answers right to the letter; " + result.at, number_text(share)});
    if (!result.has("ce")) continue;
    figures.push_back(figure(section + " cross-entropy", result.metrics.at("ce"), nats_at(result), digits_of_ce));
  }
  return figures;
}

}  // namespace

std::vector<PageFigure> result_figures(const std::vector<RunValidation>& validations,
                                       const std::vector<RunCurve>& curves) {
  const Results validated = last_validations(validations), trained = last_steps(curves);
  for (auto figures : {comparison(validated), accuracies(validated)}) {
    if (!figures.empty()) return figures;
  }
  std::vector<PageFigure> figures = comparison(trained);
  for (PageFigure& of_training : figures) of_training.name += " (training)";
  if (!figures.empty()) return figures;
  for (const auto& [section, result] : trained) {
    if (!result.has("loss")) continue;
    const double loss = result.metrics.at("loss");
    figures.push_back({section + " loss", shortened(loss), result.at, number_text(loss)});
  }
  return figures;
}

}  // namespace maestro
