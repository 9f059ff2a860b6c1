// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/progress.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace maestro {
namespace {

// Weight that a step keeps after each later step: after 14 steps half is left.
constexpr double decay_per_step = 0.95;

template <class... Args>
std::string formatted(const char* format, Args... args) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), format, args...);
  return text.data();
}

std::string speed_text(double samples_per_s) {
  return formatted(samples_per_s < 10 ? "%.2f samples/s" : "%.0f samples/s", samples_per_s);
}

}  // namespace

std::string format_progress(const Progress& progress) {
  const auto total = std::to_string(progress.total);
  std::string line = formatted("step %*lld/", static_cast<int>(total.size()), static_cast<long long>(progress.step));
  line += total;
  if (progress.loss) line += formatted("  loss %.4f", *progress.loss);
  for (const auto& [name, value] : progress.parts) line += "  " + name + formatted(" %.4f", value);
  if (progress.samples_per_s) line += "  " + speed_text(*progress.samples_per_s);
  if (progress.seconds_left) line += "  " + format_duration(*progress.seconds_left) + " left";
  return line;
}

std::string format_figures(const std::map<std::string, double>& figures) {
  std::string text;
  const auto add = [&text](const std::string& name, double value) {
    text += (text.empty() ? "" : ", ") + name + formatted(" %.4f", value);
  };
  const auto loss = figures.find("loss");
  if (loss != figures.end()) add(loss->first, loss->second);
  for (auto figure = figures.begin(); figure != figures.end(); ++figure) {
    if (figure != loss) add(figure->first, figure->second);
  }
  return text;
}

std::string format_duration(double seconds) {
  constexpr double longest = 1e9;
  if (!(seconds >= 0 && seconds < longest)) return "?";
  const long long all = std::llround(seconds);
  const long long days = all / 86400, hours = all / 3600 % 24, minutes = all / 60 % 60, rest = all % 60;
  if (days > 0) return formatted("%lldd%02lldh", days, hours);
  if (hours > 0) return formatted("%lldh%02lldm", hours, minutes);
  if (minutes > 0) return formatted("%lldm%02llds", minutes, rest);
  return formatted("%llds", rest);
}

std::string truncated(std::string_view line, std::size_t columns) {
  std::size_t characters = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool starts_character = (static_cast<unsigned char>(line[i]) & 0xc0u) != 0x80u;
    if (starts_character && ++characters > columns) return std::string(line.substr(0, i));
  }
  return std::string(line);
}

ProgressMeter::ProgressMeter(std::int64_t done, std::int64_t total, std::int64_t samples_per_step, SteadyTime start)
    : step_(done), total_(total), samples_per_step_(samples_per_step), time_(start) {}

Progress ProgressMeter::finished(std::int64_t step, std::optional<double> loss, SteadyTime now) {
  if (step > step_) {
    const auto steps = static_cast<double>(step - step_);
    const double kept = std::pow(decay_per_step, steps);
    weighted_steps_ = weighted_steps_ * kept + steps;
    weighted_seconds_ = weighted_seconds_ * kept + std::chrono::duration<double>(now - time_).count();
    step_ = step;
    time_ = now;
  }
  Progress progress{step_, total_, loss, std::nullopt, std::nullopt};
  if (weighted_steps_ > 0 && weighted_seconds_ > 0) {
    const double steps_per_s = weighted_steps_ / weighted_seconds_;
    progress.samples_per_s = steps_per_s * static_cast<double>(samples_per_step_);
    progress.seconds_left = static_cast<double>(total_ - step_) / steps_per_s;
  }
  return progress;
}

}  // namespace maestro
