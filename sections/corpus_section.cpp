// SPDX-License-Identifier: Apache-2.0
#include "sections/corpus_section.hpp"

#include <algorithm>

#include "runtime/images/mixed_rows.hpp"

namespace maestro {

namespace {

constexpr std::int64_t place_columns = 3, mix_columns = mixed_terms;

Split split_of(const Inputs& inputs) {
  return inputs.pass() == Pass::train ? Split::train : Split::validation;
}

Reading reading_of_other(const Corpus& corpus) {
  return corpus.other()->rewrites_tokens() ? Reading::tokens : Reading::images;
}

}  // namespace

Ports CorpusSection::ports() const {
  Ports ports;
  add_ports({corpus_.get()}, ports.outputs);
  if (made_ != nullptr) ports.outputs.push_back({"sampled", DType::f32, 1, false, false});
  if (corpus_->other() != nullptr) add_ports(other(), ports.outputs);
  if (corpus_->sounds() != nullptr) add_ports(sounds(), ports.outputs);
  return ports;
}

std::string CorpusSection::port_for(const std::string& port, Reading reading) {
  if (reading == Reading::sounds) return "sound_" + port;
  const bool of_text = port == "tokens" || port == "targets";
  return reading == Reading::own || (of_text && reading == Reading::images) ? port : "other_" + port;
}

Reading CorpusSection::reading_of(const Corpus& corpus, const std::string& reader) {
  return corpus.reads_other(reader) ? reading_of_other(corpus) : Reading::own;
}

const Corpus& CorpusSection::corpus_in(Reading reading, const Corpus& corpus) {
  if (reading == Reading::own) return corpus;
  return reading == Reading::sounds ? *corpus.sounds() : *corpus.other();
}

CorpusSection::Read CorpusSection::other() const {
  return {corpus_->other(), reading_of_other(*corpus_)};
}

CorpusSection::Read CorpusSection::sounds() const {
  return {corpus_->sounds(), Reading::sounds};
}

void CorpusSection::add_ports(const Read& read, std::vector<Port>& outputs) {
  const Corpus& corpus = *read.corpus;
  const auto add = [&](const char* name, DType dtype, std::int64_t columns, Axis axis) {
    outputs.push_back({port_for(name, read.reading), dtype, columns, false, false, axis_in(read.reading, axis)});
  };
  if (read.has_text()) {
    add("tokens", DType::i32, 1, Axis::tokens);
    add("targets", DType::i32, 1, Axis::tokens);
  }
  if (corpus.patch_columns() > 0) {
    add("pixels", DType::f32, corpus.patch_columns(), Axis::patches);
    add("places", DType::i32, place_columns, Axis::patches);
  }
  if (corpus.has_marks()) add("marks", DType::i32, mark_columns, Axis::tokens);
  if (corpus.mixes_rows()) {
    add("sources", DType::i32, mix_columns, Axis::visual);
    add("weights", DType::f32, mix_columns, Axis::visual);
  }
}

void CorpusSection::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  read_all({corpus_.get()}, tape, inputs, outputs);
  if (made_ != nullptr) read_sampled(tape, inputs, outputs);
  if (corpus_->other() != nullptr) read_all(other(), tape, inputs, outputs);
  if (corpus_->sounds() != nullptr) read_all(sounds(), tape, inputs, outputs);
}

void CorpusSection::read_all(const Read& read, Tape& tape, const Inputs& inputs, Outputs& outputs) const {
  if (read.has_text()) read_text(read, tape, inputs, outputs);
  if (read.corpus->has_marks()) read_marks(read, tape, inputs, outputs);
  if (inputs.layout(axis_in(read.reading, Axis::patches)).rows() > 0) read_pictures(read, tape, inputs, outputs);
  const bool visual = inputs.layout(axis_in(read.reading, Axis::visual)).rows() > 0;
  if (visual && read.corpus->mixes_rows()) read_mix(read, tape, inputs, outputs);
}

void CorpusSection::read_text(const Read& read, Tape& tape, const Inputs& inputs, Outputs& outputs) const {
  const SequenceLayout& layout = inputs.layout(axis_in(read.reading, Axis::tokens));
  const Shape shape{layout.rows(), 1};
  Var tokens = tape.output(shape, DType::i32, false);
  Var targets = tape.output(shape, DType::i32, false);
  for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
    const auto first = static_cast<std::size_t>(layout.offsets[at]);
    const auto count = static_cast<std::size_t>(layout.offsets[at + 1]) - first;
    const SampleId sample = inputs.samples()[at];
    const auto text = tokens.value().span<std::int32_t>().subspan(first, count);
    const auto learned = targets.value().span<std::int32_t>().subspan(first, count);
    if (is_made(sample)) {
      made_->read(made_sample_id(sample), text, learned);
    } else {
      read.corpus->read(split_of(inputs), sample, text, learned);
    }
  }
  outputs.set(port_for("tokens", read.reading), std::move(tokens));
  outputs.set(port_for("targets", read.reading), std::move(targets));
}

void CorpusSection::read_sampled(Tape& tape, const Inputs& inputs, Outputs& outputs) const {
  const SequenceLayout& layout = inputs.layout();
  Var sampled = tape.output({layout.rows(), 1}, DType::f32, false);
  const std::span<float> rows = sampled.value().span<float>();
  std::ranges::fill(rows, 0.0F);
  for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
    const SampleId sample = inputs.samples()[at];
    const auto first = static_cast<std::size_t>(layout.offsets[at]);
    const auto count = static_cast<std::size_t>(layout.offsets[at + 1]) - first;
    if (is_made(sample)) made_->sampled(made_sample_id(sample), rows.subspan(first, count));
  }
  outputs.set("sampled", std::move(sampled));
}

void CorpusSection::read_marks(const Read& read, Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const SequenceLayout& layout = inputs.layout(axis_in(read.reading, Axis::tokens));
  Var marks = tape.output({layout.rows(), mark_columns}, DType::i32, false);
  for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
    const std::int64_t first = layout.offsets[at];
    read.corpus->read_marks(split_of(inputs), inputs.samples()[at],
                            marks.value().row_slice(first, layout.offsets[at + 1] - first).span<std::int32_t>());
  }
  outputs.set(port_for("marks", read.reading), std::move(marks));
}

void CorpusSection::read_pictures(const Read& read, Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const SequenceLayout& layout = inputs.layout(axis_in(read.reading, Axis::patches));
  const std::int64_t columns = read.corpus->patch_columns();
  Var pixels = tape.output({layout.rows(), columns}, DType::f32, false);
  Var places = tape.output({layout.rows(), place_columns}, DType::i32, false);
  for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
    const std::int64_t first = layout.offsets[at];
    const std::int64_t count = layout.offsets[at + 1] - first;
    if (count == 0) continue;
    read.corpus->read_pictures(split_of(inputs), inputs.samples()[at],
                               pixels.value().row_slice(first, count).span<float>(),
                               places.value().row_slice(first, count).span<std::int32_t>());
  }
  outputs.set(port_for("pixels", read.reading), std::move(pixels));
  outputs.set(port_for("places", read.reading), std::move(places));
}

void CorpusSection::read_mix(const Read& read, Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const SequenceLayout& layout = inputs.layout(axis_in(read.reading, Axis::visual));
  Var sources = tape.output({layout.rows(), mix_columns}, DType::i32, false);
  Var weights = tape.output({layout.rows(), mix_columns}, DType::f32, false);
  for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
    const std::int64_t first = layout.offsets[at];
    const std::int64_t count = layout.offsets[at + 1] - first;
    if (count == 0) continue;
    read.corpus->read_mix(split_of(inputs), inputs.samples()[at],
                          sources.value().row_slice(first, count).span<std::int32_t>(),
                          weights.value().row_slice(first, count).span<float>());
  }
  outputs.set(port_for("sources", read.reading), std::move(sources));
  outputs.set(port_for("weights", read.reading), std::move(weights));
}

}  // namespace maestro
