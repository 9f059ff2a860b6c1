// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/row_mix.hpp"

#include <algorithm>

#include "runtime/core/result.hpp"
#include "runtime/ops/author_functions.hpp"

namespace maestro {

RowMix read_row_mix(const std::string& section, const Inputs& inputs, const RowRange& own) {
  const Tensor sources = inputs.host("sources"), weights = inputs.host("weights");
  const SequenceLayout& rows = inputs.layout(Axis::visual);
  const SequenceLayout& features = inputs.layout(Axis::patches);
  RowMix mix;
  std::size_t sample = 0;
  for (std::int64_t row = own.first; row < own.end(); ++row) {
    while (rows.offsets[sample + 1] <= row) ++sample;
    const std::int32_t first = features.offsets[sample], count = features.offsets[sample + 1] - first;
    const auto refuse = [&](const std::string& problem) {
      throw JobError(section + ": sample " + std::to_string(inputs.samples()[sample].value()) + ": row " +
                     std::to_string(row - rows.offsets[sample]) + " of the decoder " + problem);
    };
    mix.learned.push_back(-1);
    for (std::int64_t term = row * row_mix_terms; term < (row + 1) * row_mix_terms; ++term) {
      const float weight = weights.data<float>()[term];
      const std::int32_t source = sources.data<std::int32_t>()[term];
      if (weight == 0) continue;
      if (source == -1) {
        if (weight != 1) refuse("takes the newline row with the weight " + std::to_string(weight) + ", not 1");
        mix.learned.back() = 0;
        continue;
      }
      if (source < 0 || source >= count) {
        refuse("takes the feature " + std::to_string(source) + " of " + std::to_string(count));
      }
      mix.sources.push_back(first + source);
      mix.weights.push_back(weight);
      mix.targets.push_back(static_cast<std::int32_t>(row - own.first));
    }
  }
  return mix;
}

WeightedRows of_targets(const WeightedRows& mix, const RowRange& targets) {
  const auto first = std::ranges::lower_bound(mix.targets, targets.first) - mix.targets.begin();
  const auto end = std::ranges::lower_bound(mix.targets, targets.end()) - mix.targets.begin();
  WeightedRows part{{mix.sources.begin() + first, mix.sources.begin() + end},
                    {mix.weights.begin() + first, mix.weights.begin() + end},
                    {mix.targets.begin() + first, mix.targets.begin() + end}};
  for (std::int32_t& target : part.targets) target -= static_cast<std::int32_t>(targets.first);
  return part;
}

namespace {

/// Returns x plus the terms, (sources, C), by their weights.
Var plus_terms(Tape& tape, const Var& x, const Var& terms, const WeightedRows& mix) {
  const Block factors = tape.scratch({static_cast<std::int64_t>(mix.weights.size()), 1}, DType::f32);
  tape.ops().put(std::as_bytes(std::span(mix.weights)), factors.tensor());
  keep(tape, factors);
  return index_add(tape, x, mul(tape, terms, tape.input(factors.tensor())), tape.indices(mix.targets));
}

/// Returns the rows `ids` of a table, (N, C) f32.
Var entries(Tape& tape, Parameter& table, const std::vector<std::int32_t>& ids) {
  const Block held = tape.indices(ids);
  keep(tape, held);
  return embedding(tape, table, held.tensor(), nullptr, {});
}

}  // namespace

Var mixed(Tape& tape, const Var& x, Parameter& learned, const RowMix& mix) {
  const Var base = entries(tape, learned, mix.learned);
  return plus_terms(tape, base, index_select(tape, x, tape.indices(mix.sources)), mix);
}

Var plus_entries(Tape& tape, const Var& x, Parameter& table, const WeightedRows& mix) {
  return plus_terms(tape, x, entries(tape, table, mix.sources), mix);
}

}  // namespace maestro
