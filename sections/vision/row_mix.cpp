// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/row_mix.hpp"

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

Var mixed(Tape& tape, const Var& x, Parameter& learned, const RowMix& mix) {
  const Block ids = tape.indices(mix.learned);
  const Block factors = tape.scratch({static_cast<std::int64_t>(mix.weights.size()), 1}, DType::f32);
  tape.ops().put(std::as_bytes(std::span(mix.weights)), factors.tensor());
  for (const Block& memory : {ids, factors}) keep(tape, memory);
  const Var base = embedding(tape, learned, ids.tensor(), nullptr, {});
  const Var terms = mul(tape, index_select(tape, x, tape.indices(mix.sources)), tape.input(factors.tensor()));
  return index_add(tape, base, terms, tape.indices(mix.targets));
}

}  // namespace maestro
