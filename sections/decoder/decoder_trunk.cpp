// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/decoder_trunk.hpp"

#include <algorithm>
#include <array>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"
#include "sections/decoder/top_log_probabilities.hpp"

namespace maestro {

namespace {

constexpr std::int64_t block_rows = 64;  // logits held at once: rows x vocabulary x 4 bytes

/// Returns the token ids of the corpus, if it is known: all further ids mean nothing to a student.
std::int64_t tokens_of(const DecoderTrunk::Options& options) {
  return options.data.vocabulary > 0 ? options.data.vocabulary : options.decoder.vocabulary;
}

std::vector<std::int32_t> rows_with_target(std::span<const std::int32_t> targets) {
  std::vector<std::int32_t> rows;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] != ignored_target) rows.push_back(static_cast<std::int32_t>(row));
  }
  return rows;
}

void check(const SectionContext& context, const DecoderTrunk::Options& options) {
  if (context.trained && options.boundary != TeacherOutput::hidden) {
    throw JobError(context.name + ": only boundary = \"hidden\" carries gradients back; set it, or run the section " +
                   "forward only");
  }
  if (context.reading == Reading::tokens && context.parallel.layout.context > 1) {
    throw JobError(context.name + ".context = " + std::to_string(context.parallel.layout.context) +
                   ": it has tokens of its own for images, so it sends the answers of a single context part; leave " +
                   "context at 1");
  }
  if (is_dense(options.boundary)) return;
  const std::int64_t tokens = tokens_of(options);
  if (names_tokens(options.boundary) && (options.top_k < 1 || options.top_k > tokens)) {
    throw JobError(context.name + ": top_k = " + std::to_string(options.top_k) + " must lie between 1 and the " +
                   "vocabulary of " + std::to_string(tokens));
  }
  if (options.boundary == TeacherOutput::top_k) return;
  const bool sampled = options.boundary == TeacherOutput::sampled;
  const std::string name(sampled ? "sampled" : "top_k_rest"), other(sampled ? "hidden" : "top_k");
  if (context.for_cuda || !context.memory().host()) {
    throw JobError(context.name + ": boundary = \"" + name + "\" is supported on CPUs only; remove devices, " +
                   "or set boundary = \"" + other + "\"");
  }
  if (context.parallel.layout.tensor > 1) {
    throw JobError(context.name + ": boundary = \"" + name +
                   "\" needs the whole output layer on a rank; leave tensor at 1, or set boundary = \"" + other + "\"");
  }
}

}  // namespace

TeacherOutput read_boundary(const JobTable& table, TeacherOutput fallback) {
  constexpr std::array<std::string_view, 5> names{"hidden", "logits", "top_k", "top_k_rest", "sampled"};
  return table.choice(
      "boundary", fallback, names,
      {"the output of a teacher: hidden states, logits, top_k logits, top_k log-probabilities with that of all other "
       "tokens, or, for loss = \"policy_gradient\", the log-probability of each sampled token; the same in the tables "
       "of teacher and student"});
}

std::int64_t read_top_k(const JobTable& table, std::int64_t fallback) {
  return table.integer(
      "top_k", fallback, {.min = 1},
      {"largest logits per token with boundary = \"top_k\" or \"top_k_rest\", at most the corpus' tokens; the same in "
       "the tables of teacher and student",
       "logits"});
}

DecoderTrunk::Options DecoderTrunk::Options::read(const JobTable& table) {
  Options options;
  options.decoder = read_decoder_shape(table);
  options.boundary = read_boundary(table, options.boundary);
  options.top_k = read_top_k(table, options.top_k);
  return options;
}

DecoderTrunk::DecoderTrunk(const SectionContext& context, const Options& options)
    : DecoderSection(context, options.decoder, options.data,
                     options.boundary == TeacherOutput::hidden ? OutputLayer::none : OutputLayer::own_or_tied),
      boundary_(options.boundary),
      top_k_(options.top_k),
      tokens_(tokens_of(options)),
      temperature_(options.temperature) {
  check(context, options);
}

Ports DecoderTrunk::ports() const {
  Ports behind;
  const Axis axis = answers_alone() ? Axis::answers : Axis::tokens;
  if (answers_alone() || boundary_ == TeacherOutput::sampled) behind.inputs.push_back(targets_port);
  switch (boundary_) {
    case TeacherOutput::hidden:
      behind.outputs = {{"hidden", context().precision, decoder().width, true, false, axis, Sharding::rank_rows}};
      break;
    case TeacherOutput::logits:
      behind.outputs = {{"logits", DType::f32, decoder().vocabulary, false, false, axis, Sharding::vocabulary}};
      break;
    case TeacherOutput::top_k:
      behind.outputs = {{"top_values", DType::f32, top_k_, false, false, axis, Sharding::rank_rows},
                        {"top_indices", DType::i32, top_k_, false, false, axis, Sharding::rank_rows}};
      break;
    case TeacherOutput::top_k_rest:
      behind.outputs = {{"top_values", DType::f32, top_k_, false, false, axis, Sharding::rank_rows},
                        {"top_indices", DType::i32, top_k_, false, false, axis, Sharding::rank_rows},
                        {"rest", DType::f32, 1, false, false, axis, Sharding::rank_rows}};
      break;
    case TeacherOutput::sampled:
      behind.outputs = {{"sampled", DType::f32, 1, false, false, axis, Sharding::rank_rows}};
      break;
  }
  return stage_ports(behind);
}

void DecoderTrunk::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  if (!last_stage()) return put_stream(tape, inputs, outputs);
  switch (boundary_) {
    case TeacherOutput::hidden:
      outputs.set("hidden",
                  answers_alone() ? own_rows(tape, sent_hidden(tape, inputs, outputs)) : hidden(tape, inputs, outputs));
      break;
    case TeacherOutput::logits:
      outputs.set("logits", logits(tape, sent_hidden(tape, inputs, outputs)));
      break;
    case TeacherOutput::top_k:
    case TeacherOutput::top_k_rest:
      put_top_k(tape, sent_hidden(tape, inputs, outputs), outputs);
      break;
    case TeacherOutput::sampled:
      put_sampled(tape, inputs, outputs);
      break;
  }
}

Var DecoderTrunk::sent_hidden(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Var all = gathered_hidden(tape, inputs, outputs);
  if (!answers_alone()) return all;
  const std::vector<std::int32_t> answers = rows_with_target(inputs.host(targets_port.name).span<std::int32_t>());
  return index_select(tape, all, tape.indices(answers));
}

void DecoderTrunk::put_top_k(Tape& tape, const Var& hidden, Outputs& outputs) {
  const PackedWeight& weight = head().packed(tape.ops(), tape.compute(), PackFor::forward);
  const std::int64_t rows = hidden.value().rows();
  const std::int64_t block = std::min(rows, block_rows);
  Var values = tape.output({rows, top_k_}, DType::f32, false);
  Var indices = tape.output({rows, top_k_}, DType::i32, false);
  const bool with_rest = boundary_ == TeacherOutput::top_k_rest;
  Var rest = with_rest ? tape.output({rows, 1}, DType::f32, false) : Var();
  const Block logits = tape.scratch({block, head().shape()[0]}, DType::f32);
  for (std::int64_t row = 0; row < rows; row += block) {
    const std::int64_t count = std::min(block, rows - row);
    const Tensor part = logits.tensor().row_slice(0, count);
    tape.ops().run(Linear{.x = hidden.value().row_slice(row, count), .w = &weight, .y = part});
    cap_logits(tape, part);
    top_k(tape, part, values.value().row_slice(row, count), indices.value().row_slice(row, count), head_part(),
          tokens_);
    if (!with_rest) continue;
    top_log_probabilities({part, tokens_}, values.value().row_slice(row, count), indices.value().row_slice(row, count),
                          rest.value().row_slice(row, count));
  }
  if (with_rest) outputs.set("rest", std::move(rest));
  outputs.set("top_values", own_rows(tape, values));
  outputs.set("top_indices", own_rows(tape, indices));
}

void DecoderTrunk::put_sampled(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Var all = gathered_hidden(tape, inputs, outputs);
  const std::span<const std::int32_t> targets = inputs.host(targets_port.name).span<std::int32_t>();
  Var sampled = tape.output({all.value().rows(), 1}, DType::f32, false);
  const std::span<float> to = sampled.value().span<float>();
  std::ranges::fill(to, 0.0F);
  const std::vector<std::int32_t> rows = rows_with_target(targets);
  const double temperature = inputs.pass() == Pass::train ? temperature_ : 1;
  const PackedWeight& weight = head().packed(tape.ops(), tape.compute(), PackFor::forward);
  const Block logits = tape.scratch({block_rows, head().shape()[0]}, DType::f32);
  for (std::size_t first = 0; first < rows.size(); first += block_rows) {
    const auto chosen = std::span(rows).subspan(first, std::min<std::size_t>(block_rows, rows.size() - first));
    const Var hidden = index_select(tape, all, tape.indices(chosen));
    const Tensor part = logits.tensor().row_slice(0, std::ssize(chosen));
    tape.ops().run(Linear{.x = hidden.value(), .w = &weight, .y = part});
    cap_logits(tape, part);
    for (std::size_t at = 0; at < chosen.size(); ++at) {
      const Tensor row = part.row_slice(static_cast<std::int64_t>(at), 1);
      const auto number = static_cast<std::size_t>(chosen[at]);
      to[number] =
          log_probability(row.span<float>().first(static_cast<std::size_t>(tokens_)), targets[number], temperature);
    }
  }
  outputs.set("sampled", std::move(sampled));
}

Var DecoderTrunk::own_rows(Tape& tape, const Var& x) const {
  const ParallelContext& parallel = context().parallel;
  if (parallel.layout.tensor == 1) return x;
  const RowRange own = row_part(x.value().rows(), parallel.layout.tensor, parallel.tensor());
  Var rows = tape.output({own.count, x.value().columns()}, x.value().dtype(), false);
  tape.ops().copy(x.value().row_slice(own.first, own.count), rows.value());
  return rows;
}

}  // namespace maestro
