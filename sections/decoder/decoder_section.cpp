#include "sections/decoder/decoder_section.hpp"

#include "runtime/state/hf_config.hpp"
#include "sections/parallel_fit.hpp"

namespace maestro {

namespace {

DecoderConfig checked(const SectionContext& context, const DecoderConfig& decoder, const DataShape& data) {
  DecoderConfig config = resolved(decoder);
  check_decoder(context.name, config, data);
  check_parallel_fit(context.name, {config.heads, config.kv_heads, config.ffn, config.vocabulary},
                     context.parallel.layout);
  return config;
}

}  // namespace

DecoderSection::DecoderSection(const SectionContext& context, const DecoderConfig& decoder, const DataShape& data,
                               OutputLayer output_layer)
    : context_(context),
      stack_(parameters_, ParameterInit(context.seed, context.name), checked(context, decoder, data),
             context.parallel) {
  if (output_layer == OutputLayer::own_or_tied) {
    const ParameterInit init(context.seed, context.name);
    head_ = this->decoder().tied ? &stack_.token_embedding()
                                 : &add_head(parameters_, init, this->decoder(), context.parallel);
  }
  if (!context.prototype) parameters_.allocate(context.trained);
}

std::vector<StateEntry> DecoderSection::state() {
  std::vector<StateEntry> entries = stack_.state();
  if (owns_head()) entries.push_back({std::string(head_name), head_, 0, 0, false});
  return entries;
}

bool DecoderSection::ignores(std::string_view stored_name) const {
  // Some writers store the output layer of a tied model a second time; a body alone has no use for it at all.
  return is_stored_buffer(stored_name) || (stored_name == head_name && !owns_head());
}

std::string DecoderSection::config_json() const {
  return hf_config_text(decoder());
}

void DecoderSection::freeze() {
  std::vector<Parameter*> matrices = stack_.matrices();
  if (owns_head()) matrices.push_back(head_);
  parameters_.freeze_packed(*context_.ops, context_.precision, matrices, context_.passes_gradient);
  if (head_ != nullptr) {  // a tied one stays an embedding too; packed now, since forward passes may share it
    (void)head_->packed(*context_.ops, context_.precision, PackFor::forward);
    if (context_.passes_gradient) (void)head_->packed(*context_.ops, context_.precision, PackFor::backward_input);
  }
  frozen_ = true;
}

Var DecoderSection::hidden(Tape& tape, const Inputs& inputs) {
  return stack_.hidden(tape, inputs["tokens"].value(), inputs.layout());
}

Var DecoderSection::gathered_hidden(Tape& tape, const Inputs& inputs) {
  return gathered(tape, hidden(tape, inputs), context_.parallel, inputs.layout());
}

Cost DecoderSection::decoder_cost(const SampleShape& sample) const {
  const DecoderConfig& config = decoder();
  Cost cost{body_flops(config, sample.tokens), 0};
  if (head_ != nullptr) cost.flops += head_flops(sample.tokens, config.width, config.vocabulary);
  if (context_.trained || context_.passes_gradient) {
    cost.bytes = body_bytes(config, sample.tokens, context_.precision);
  }
  return cost;
}

Tensor targets_of(const Inputs& inputs) {
  const Tensor& targets = inputs["targets"].value();
  return targets.reshaped(Shape{targets.elements()});
}

}  // namespace maestro
