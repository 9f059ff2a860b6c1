// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/language_model_head.hpp"

#include "runtime/core/result.hpp"
#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_section.hpp"
#include "sections/parallel_fit.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

LanguageModelHead::Options LanguageModelHead::Options::read(const JobTable& table) {
  Options options;
  options.decoder = read_decoder_shape(table);
  if (!table.has("tied") && read_weights_folder(table).empty()) options.decoder.tied = false;
  return options;
}

LanguageModelHead::LanguageModelHead(const SectionContext& context, const Options& options)
    : context_(context), decoder_(resolved(options.decoder)) {
  check_uncut(context.name, context.stage, "a language_model_head has no layers to cut");
  check_decoder(context.name, decoder_, options.data);
  check_parallel_fit(context.name, {.vocabulary = decoder_.vocabulary}, context.parallel.layout);
  if (decoder_.tied) {
    throw JobError(context.name + ": a tied output layer must live in the section of its embedding; set tied = false " +
                   "here and in the trunk, or use decoder_lm");
  }
  head_ = &add_head(parameters_, ParameterInit(context.seed, context.name), decoder_, context.parallel);
  context.allocate(parameters_);
}

Ports LanguageModelHead::ports() const {
  return {
      {{"hidden", context_.precision, decoder_.width, true, false, Axis::tokens, Sharding::rank_rows}, targets_port},
      {}};
}

void LanguageModelHead::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Tensor targets = targets_of(inputs);
  const HeadLoss loss{&targets, inputs.loss_scale(), decoder_.logit_softcap};
  const Var hidden = gathered(tape, inputs["hidden"], context_.parallel, inputs.layout());
  const VocabularyPart part = vocabulary_part(context_.parallel, decoder_.vocabulary);
  report_losses(outputs, cross_entropy_loss(tape, hidden, *head_, loss, part), false, context_.parallel);
}

Cost LanguageModelHead::cost(const SampleShape& sample) const {
  Cost cost{head_flops(sample.tokens, decoder_.width, decoder_.vocabulary), 0};
  cost.working =
      2.0 * static_cast<double>(sample.tokens * decoder_.width) * static_cast<double>(size_of(context_.precision));
  // After the fused loss only its input's gradient is kept.
  if (context_.trained)
    cost.bytes = static_cast<double>(sample.tokens * decoder_.width) * static_cast<double>(size_of(context_.precision));
  return cost;
}

std::vector<StateEntry> LanguageModelHead::state() {
  return {{std::string(head_name), head_, 0, 0, false}};
}

bool LanguageModelHead::ignores(std::string_view stored_name) const {
  return stored_name != head_name;  // the body's part of the model
}

std::string LanguageModelHead::config_json() const {
  return hf_config_text(decoder_);
}

void LanguageModelHead::freeze() {
  parameters_.freeze_packed(*context_.ops, context_.precision, products().matrices);
}

}  // namespace maestro
