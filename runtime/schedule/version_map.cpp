// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/version_map.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/collective/reduction_round.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

bool overlap(const RowRange& one, const RowRange& other) {
  return one.first < other.end() && other.first < one.end();
}

bool overlap(const WeightPart& one, const WeightPart& other) {
  if (!overlap(one.held_columns, other.held_columns)) return false;
  return std::ranges::any_of(one.held_rows, [&](const RowRange& rows) {
    return std::ranges::any_of(other.held_rows, [&](const RowRange& others) { return overlap(rows, others); });
  });
}

std::string text_of(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " value" : " values");
}

}  // namespace

std::int64_t WeightPart::elements() const {
  std::int64_t rows_held = 0;
  for (const RowRange& range : held_rows) rows_held += range.count;
  return rows_held * held_columns.count;
}

std::int64_t WeightBlock::elements() const {
  std::int64_t sum = 0;
  for (const WeightPart& part : parts) sum += part.elements();
  return sum;
}

VersionMap::VersionMap(std::vector<WeightBlock> blocks) : blocks_(std::move(blocks)) {
  std::ranges::sort(blocks_, {},
                    [](const WeightBlock& block) { return std::tuple(block.section, block.rank); });  // WG-3
  for (const WeightBlock& block : blocks_) {
    const std::int64_t first = elements_;
    for (const WeightPart& part : block.parts) {
      places_[part.name].push_back({&part, elements_});
      elements_ += part.elements();
    }
    for (std::int64_t replica = 0; replica < block.replicas; ++replica) {
      const ShardRange shard = shard_range(static_cast<std::size_t>(elements_ - first),
                                           static_cast<std::size_t>(block.replicas), static_cast<std::size_t>(replica));
      if (shard.count == 0) continue;
      const RowRange own{static_cast<std::int64_t>(shard.first), static_cast<std::int64_t>(shard.count)};
      pieces_.push_back(
          {block.section, block.rank, ReplicaIndex(static_cast<std::uint32_t>(replica)), own, first + own.first});
    }
  }
}

std::map<std::string, std::int64_t> VersionMap::parameters() const {
  std::map<std::string, std::int64_t> elements;
  for (const auto& [name, places] : places_) {
    for (const Place& place : places) elements[name] += place.part->elements();
  }
  return elements;
}

void VersionMap::require(const std::map<std::string, std::int64_t>& expected) const {
  for (const auto& [name, elements] : expected) {
    const auto found = places_.find(name);
    std::int64_t held = 0;
    if (found != places_.end()) {
      for (std::size_t at = 0; at < found->second.size(); ++at) {
        const WeightPart& part = *found->second[at].part;
        held += part.elements();
        for (std::size_t other = 0; other < at; ++other) {
          if (!overlap(part, *found->second[other].part)) continue;
          throw JobError("two ranks hold the same values of '" + name + "'", ErrorCode::internal);
        }
      }
    }
    if (held == elements) continue;
    throw JobError("the ranks that train '" + name + "' hold " + text_of(held) + " of it, and the generator has " +
                       text_of(elements),
                   ErrorCode::internal);
  }
  for (const auto& [name, places] : places_) {
    if (!expected.contains(name)) throw JobError("the generator lacks '" + name + "'", ErrorCode::internal);
  }
}

void VersionMap::for_each_run(std::string_view name, const std::function<void(const WeightRun&)>& use) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return;
  for (const Place& place : found->second) {
    maestro::for_each_run(*place.part, [&](const WeightRun& run) {
      use({place.first + run.in_version, run.in_parameter, run.count});
    });
  }
}

void for_each_run(const WeightPart& part, const std::function<void(const WeightRun&)>& use) {
  const bool whole_rows = part.held_columns.count == part.columns;
  std::int64_t first = 0;
  for (const RowRange& rows : part.held_rows) {
    const std::int64_t runs = whole_rows ? 1 : rows.count;
    const std::int64_t count = whole_rows ? rows.count * part.columns : part.held_columns.count;
    for (std::int64_t run = 0; run < runs; ++run, first += count) {
      use({first, (rows.first + run) * part.columns + part.held_columns.first, count});
    }
  }
}

}  // namespace maestro
