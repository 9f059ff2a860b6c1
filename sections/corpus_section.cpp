// SPDX-License-Identifier: Apache-2.0
#include "sections/corpus_section.hpp"

#include "runtime/images/mixed_rows.hpp"

namespace maestro {

namespace {
constexpr std::int64_t place_columns = 3, mix_columns = mixed_terms;
}

Ports CorpusSection::ports() const {
  Ports ports;
  ports.outputs = {{"tokens", DType::i32, 1, false, false}, {"targets", DType::i32, 1, false, false}};
  if (corpus_->patch_columns() > 0) {
    ports.outputs.push_back({"pixels", DType::f32, corpus_->patch_columns(), false, false, Axis::patches});
    ports.outputs.push_back({"places", DType::i32, place_columns, false, false, Axis::patches});
  }
  if (corpus_->has_marks()) ports.outputs.push_back({"marks", DType::i32, mark_columns, false, false});
  if (corpus_->mixes_rows()) {
    ports.outputs.push_back({"sources", DType::i32, mix_columns, false, false, Axis::visual});
    ports.outputs.push_back({"weights", DType::f32, mix_columns, false, false, Axis::visual});
  }
  return ports;
}

void CorpusSection::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Split split = inputs.pass() == Pass::train ? Split::train : Split::validation;
  const Shape shape{inputs.layout().rows(), 1};
  Var tokens = tape.output(shape, DType::i32, false);
  Var targets = tape.output(shape, DType::i32, false);
  for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
    const auto first = static_cast<std::size_t>(inputs.layout().offsets[at]);
    const auto count = static_cast<std::size_t>(inputs.layout().offsets[at + 1]) - first;
    const SampleId sample = inputs.samples()[at];
    const auto read = tokens.value().span<std::int32_t>().subspan(first, count);
    const auto learned = targets.value().span<std::int32_t>().subspan(first, count);
    if (is_made(sample)) {
      made_->read(made_sample_id(sample), read, learned);
    } else {
      corpus_->read(split, sample, read, learned);
    }
  }
  outputs.set("tokens", std::move(tokens));
  outputs.set("targets", std::move(targets));
  if (corpus_->has_marks()) read_marks(tape, inputs, split, outputs);
  if (inputs.layout(Axis::patches).rows() > 0) read_pictures(tape, inputs, split, outputs);
  if (corpus_->mixes_rows() && inputs.layout(Axis::visual).rows() > 0) read_mix(tape, inputs, split, outputs);
}

void CorpusSection::read_marks(Tape& tape, const Inputs& inputs, Split split, Outputs& outputs) const {
  const SequenceLayout& layout = inputs.layout();
  Var marks = tape.output({layout.rows(), mark_columns}, DType::i32, false);
  for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
    const std::int64_t first = layout.offsets[at];
    corpus_->read_marks(split, inputs.samples()[at],
                        marks.value().row_slice(first, layout.offsets[at + 1] - first).span<std::int32_t>());
  }
  outputs.set("marks", std::move(marks));
}

void CorpusSection::read_pictures(Tape& tape, const Inputs& inputs, Split split, Outputs& outputs) const {
  const SequenceLayout& layout = inputs.layout(Axis::patches);
  const std::int64_t columns = corpus_->patch_columns();
  Var pixels = tape.output({layout.rows(), columns}, DType::f32, false);
  Var places = tape.output({layout.rows(), place_columns}, DType::i32, false);
  for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
    const std::int64_t first = layout.offsets[at];
    const std::int64_t count = layout.offsets[at + 1] - first;
    if (count == 0) continue;
    corpus_->read_pictures(split, inputs.samples()[at], pixels.value().row_slice(first, count).span<float>(),
                           places.value().row_slice(first, count).span<std::int32_t>());
  }
  outputs.set("pixels", std::move(pixels));
  outputs.set("places", std::move(places));
}

void CorpusSection::read_mix(Tape& tape, const Inputs& inputs, Split split, Outputs& outputs) const {
  const SequenceLayout& layout = inputs.layout(Axis::visual);
  Var sources = tape.output({layout.rows(), mix_columns}, DType::i32, false);
  Var weights = tape.output({layout.rows(), mix_columns}, DType::f32, false);
  for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
    const std::int64_t first = layout.offsets[at];
    const std::int64_t count = layout.offsets[at + 1] - first;
    if (count == 0) continue;
    corpus_->read_mix(split, inputs.samples()[at], sources.value().row_slice(first, count).span<std::int32_t>(),
                      weights.value().row_slice(first, count).span<float>());
  }
  outputs.set("sources", std::move(sources));
  outputs.set("weights", std::move(weights));
}

}  // namespace maestro
