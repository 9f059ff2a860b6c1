// SPDX-License-Identifier: Apache-2.0
#include "sections/section.hpp"

#include <algorithm>
#include <stdexcept>

namespace maestro {

namespace {

template <class Values>
auto find_port(const Values& values, std::string_view port) {
  return std::find_if(values.begin(), values.end(), [&](const auto& entry) { return entry.first == port; });
}

}  // namespace

std::vector<RankGroup> rank_groups(const Layout& layout) {
  std::vector<RankGroup> groups;
  const auto add = [&](std::int64_t count, RankGroup group, std::int64_t next) {
    for (std::int64_t i = 0; group.size > 1 && i < count; ++i, group.first += next) groups.push_back(group);
  };
  const std::int64_t copies = layout.ranks() / layout.expert;
  add(layout.context, {0, 1, layout.tensor, &ParallelContext::tensor_group}, layout.tensor);
  add(layout.tensor, {0, layout.tensor, layout.context, &ParallelContext::context_group}, 1);
  if (layout.expert == 1) return groups;
  add(copies, {0, 1, layout.expert, &ParallelContext::expert_group}, layout.expert);
  add(layout.expert, {0, layout.expert, copies, &ParallelContext::copies_group}, 1);
  return groups;
}

const Var& Inputs::operator[](std::string_view port) const {
  const auto found = find_port(values_, port);
  if (found == values_.end()) throw std::out_of_range("input port '" + std::string(port) + "' is not connected");
  return found->second;
}

bool Inputs::has(std::string_view port) const {
  return find_port(values_, port) != values_.end();
}

std::vector<bool> Inputs::taken(std::string_view port) const {
  const auto found = find_port(taken_, port);
  if (found != taken_.end()) return found->second;
  return std::vector<bool>(samples_.size(), has(port));
}

const Var* Outputs::find(std::string_view port) const {
  const auto found = find_port(values_, port);
  return found == values_.end() ? nullptr : &found->second;
}

std::vector<std::int64_t> Inputs::lengths(Axis axis) const {
  const std::span<const std::int32_t> offsets = layout(axis).offsets;
  std::vector<std::int64_t> lengths;
  for (std::size_t at = 1; at < offsets.size(); ++at) lengths.push_back(offsets[at] - offsets[at - 1]);
  return lengths;
}

Tensor Inputs::host(std::string_view port) const {
  const auto found = find_port(hosts_, port);
  return found == hosts_.end() ? (*this)[port].value() : found->second;
}

bool PassMetrics::may_have_loss() const {
  return std::ranges::any_of(entries_, [](const auto& entry) {
    const auto* const now = std::get_if<MetricSum>(&entry);
    return now == nullptr || now->name == "loss";
  });
}

std::vector<MetricSum> PassMetrics::get() const {
  std::vector<MetricSum> metrics;
  for (const auto& entry : entries_) {
    if (const auto* metric = std::get_if<MetricSum>(&entry)) {
      metrics.push_back(*metric);
      continue;
    }
    if (const auto* later = std::get_if<std::function<MetricSum()>>(&entry)) {
      metrics.push_back((*later)());
      continue;
    }
    const auto& [pending, with_teacher, with_teacher_ce] = std::get<Losses>(entry);
    const LossSums& sums = pending.get();
    const auto tokens = static_cast<double>(sums.tokens);
    metrics.push_back({"loss", sums.total, tokens});
    metrics.push_back({"ce", sums.ce, tokens});
    if (!with_teacher) continue;
    metrics.push_back({"kl", sums.kl, tokens});
    if (with_teacher_ce) metrics.push_back({"teacher_ce", sums.teacher_ce, tokens});
  }
  return metrics;
}

}  // namespace maestro
