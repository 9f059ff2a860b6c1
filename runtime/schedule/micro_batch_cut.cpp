// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/micro_batch_cut.hpp"

#include <algorithm>
#include <optional>

namespace maestro {

namespace {

CutBatch active_samples(const GraphNode& node, std::span<const SampleRef> samples) {
  CutBatch active;
  for (std::uint32_t place = 0; place < samples.size(); ++place) {
    if (activates(node, samples[place])) active.push_back(place);
  }
  return active;
}

std::vector<CutBatch> cut_by_count(const CutBatch& active, std::int64_t limit) {
  std::vector<CutBatch> batches;
  for (auto first = active.begin(); first != active.end();) {
    const auto end = first + std::min(limit, active.end() - first);
    batches.emplace_back(first, end);
    first = end;
  }
  return batches;
}

/// Returns the section whose micro-batches are followed.
std::optional<SectionId> first_consumer(const SectionGraph& graph, SectionId section) {
  const std::vector<EdgeId> outputs = graph.outputs(section);
  if (outputs.empty()) return std::nullopt;
  return graph.edge(outputs.front()).to;
}

/// Returns groups of `active`, each within a micro-batch of `other`; a sample that `other` leaves out joins the
/// previous group.
std::vector<CutBatch> group_by(const CutBatch& active, const std::vector<CutBatch>& other, std::size_t samples) {
  std::vector<std::size_t> batch_of(samples, 0);
  for (std::size_t at = 0; at < other.size(); ++at) {
    for (const std::uint32_t place : other[at]) batch_of[place] = at;
  }
  std::vector<CutBatch> groups;
  std::size_t last = 0;
  for (const std::uint32_t place : active) {
    if (groups.empty() || batch_of[place] != last) groups.emplace_back();
    last = batch_of[place];
    groups.back().push_back(place);
  }
  return groups;
}

/// Fills micro-batches with complete groups, and cuts a group that is too large for a micro-batch.
class RowCut {
 public:
  RowCut(const GraphNode& node, std::span<const SampleRef> samples) : node_(&node), samples_(samples) {}

  std::vector<CutBatch> cut(const std::vector<CutBatch>& groups) {
    for (const CutBatch& group : groups) {
      if (!fits(group)) close();
      if (fits(group)) {
        for (const std::uint32_t place : group) add(place);
        continue;
      }
      for (const std::uint32_t place : group) {
        if (!fits({place})) close();
        add(place);
      }
      close();
    }
    close();
    return std::move(batches_);
  }

 private:
  [[nodiscard]] std::int64_t rows_of(std::uint32_t place) const { return samples_[place].rows(node_->axis()); }
  [[nodiscard]] bool fits(const CutBatch& more) const {
    std::int64_t rows = rows_;
    for (const std::uint32_t place : more) rows += rows_of(place);
    return (node_->micro_batch_rows == 0 || rows <= node_->micro_batch_rows) &&
           static_cast<std::int64_t>(open_.size() + more.size()) <= node_->micro_batch;
  }
  void add(std::uint32_t place) {
    open_.push_back(place);
    rows_ += rows_of(place);
  }
  void close() {
    if (!open_.empty()) batches_.push_back(std::move(open_));
    open_.clear();
    rows_ = 0;
  }

  const GraphNode* node_;
  std::span<const SampleRef> samples_;
  std::vector<CutBatch> batches_;
  CutBatch open_;
  std::int64_t rows_ = 0;
};

}  // namespace

bool activates(const GraphNode& node, const SampleRef& sample) {
  return node.sources.has(sample.source) && std::ranges::all_of(node.ports.inputs, [&](const Port& port) {
           return port.optional || sample.rows(port.axis) > 0;
         });
}

namespace {

/// Cuts a section and, before it, the consumers that it follows, each once.
const std::vector<CutBatch>& cut_into(std::vector<std::optional<std::vector<CutBatch>>>& cut, const SectionGraph& graph,
                                      SectionId section, std::span<const SampleRef> samples) {
  std::optional<std::vector<CutBatch>>& batches = cut[section.value()];
  if (batches) return *batches;
  const GraphNode& node = graph.node(section);
  const CutBatch active = active_samples(node, samples);
  if (!node.follows_consumer()) return batches.emplace(cut_by_count(active, node.micro_batch));
  const std::optional<SectionId> consumer = first_consumer(graph, section);
  const auto groups =
      consumer ? group_by(active, cut_into(cut, graph, *consumer, samples), samples.size()) : cut_by_count(active, 1);
  return batches.emplace(RowCut(node, samples).cut(groups));
}

}  // namespace

std::vector<CutBatch> cut_section(const SectionGraph& graph, SectionId section, std::span<const SampleRef> samples) {
  std::vector<std::optional<std::vector<CutBatch>>> cut(graph.nodes().size());
  cut_into(cut, graph, section, samples);
  return *std::move(cut[section.value()]);
}

StepCut cut_step(const SectionGraph& graph, std::span<const SampleRef> samples) {
  std::vector<std::optional<std::vector<CutBatch>>> cut(graph.nodes().size());
  for (std::uint32_t section = 0; section < cut.size(); ++section) cut_into(cut, graph, SectionId(section), samples);
  StepCut made;
  for (auto& batches : cut) made.push_back(*std::move(batches));
  return made;
}

std::int64_t most_needed_at_once(const SectionGraph& graph, SectionId section, const SampleRef& largest) {
  const GraphNode& node = graph.node(section);
  const std::optional<SectionId> consumer = first_consumer(graph, section);
  if (!node.follows_consumer() || !consumer) return 1;
  const GraphNode& behind = graph.node(*consumer);
  std::int64_t needed = (behind.micro_batch + node.micro_batch - 1) / node.micro_batch;
  if (node.micro_batch_rows > 0) {
    // Together, any two neighbours in a cut group hold more rows than the bound.
    const bool bounded = behind.micro_batch_rows > 0 && behind.axis() == node.axis();
    const std::int64_t most_rows = largest.rows(node.axis());
    const std::int64_t rows = bounded ? std::max(behind.micro_batch_rows, most_rows) : behind.micro_batch * most_rows;
    needed = std::max(needed, 2 * ((rows + node.micro_batch_rows - 1) / node.micro_batch_rows) - 1);
  }
  return std::min(behind.micro_batch, needed) * most_needed_at_once(graph, *consumer, largest);
}

}  // namespace maestro
