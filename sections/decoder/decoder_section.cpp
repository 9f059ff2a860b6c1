// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/decoder_section.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/model/hf_config.hpp"
#include "sections/decoder/marked_layout.hpp"
#include "sections/parallel_fit.hpp"

namespace maestro {

namespace {

/// Checks how the experts' loads are kept equal, and sets what is absent.
void resolve_balance(const SectionContext& context, DecoderConfig& config) {
  ExpertConfig& experts = config.experts;
  const auto refuse = [&](bool given, const char* key, const std::string& problem) {
    if (given) throw JobError(context.name + "." + key + ": is without effect: " + problem + "; leave it out");
  };
  if (experts.count == 0) return;
  if (!context.trained || context.lora.given()) {
    const std::string problem = context.trained ? "with lora, routers are not trained" : "the section is not trained";
    refuse(experts.balance.value_or(LoadBalance::none) != LoadBalance::none, "balance", problem);
    refuse(experts.balance_weight.value_or(0) > 0, "balance_weight", problem);
    refuse(experts.bias_rate.has_value(), "bias_rate", problem);
    refuse(experts.z_weight > 0, "z_weight", problem);
    experts.balance = LoadBalance::none;
    return;
  }
  const LoadBalance balance = experts.balance.value_or(experts.score_bias ? LoadBalance::bias : LoadBalance::batch);
  if (balance == LoadBalance::bias && !experts.score_bias) {
    throw JobError(context.name + ".balance: family \"" + std::string(name_of(config.family)) +
                   "\" lacks a bias of scores; set balance = \"batch\"");
  }
  refuse(balance == LoadBalance::none && experts.balance_weight.value_or(0) > 0, "balance_weight",
         "balance is \"none\"");
  refuse(balance != LoadBalance::bias && experts.bias_rate.has_value(), "bias_rate", "balance is not \"bias\"");
  const bool usual = balance == LoadBalance::sequence || balance == LoadBalance::batch;
  experts.balance = balance;
  experts.balance_weight = experts.balance_weight.value_or(usual ? 1e-3 : 0);
  experts.bias_rate = experts.bias_rate.value_or(1e-3);
}

DecoderConfig checked(const SectionContext& context, const DecoderConfig& decoder, const DataShape& data) {
  DecoderConfig config = resolved(decoder);
  check_decoder(context.name, config, data);
  if (config.experts.count > 0 && context.lora.given() && context.lora.ffn) {
    throw JobError(context.name + ".lora.on: adapters of experts are not supported; leave \"ffn\" out");
  }
  resolve_balance(context, config);
  if (config.memory.given() && context.lora.given()) {
    throw JobError(context.name + ".lora: adapters of a decoder with memory_layer are not supported; leave lora out");
  }
  if (config.memory.given() && context.parallel.layout.tensor > 1) {
    throw JobError(context.name + ".tensor = " + std::to_string(context.parallel.layout.tensor) +
                   ": a decoder with memory_layer works on whole rows; leave tensor at 1");
  }
  if (config.latent.given() && context.lora.given() && context.lora.qkv) {
    throw JobError(context.name + ".lora.on: adapters of latent attention are not supported; leave \"qkv\" out");
  }
  CutSizes sizes{config.heads, config.kv_heads, config.ffn, config.vocabulary};
  if (config.experts.count > 0) {
    // All networks that tensor ranks cut are cut alike: a common divisor is one of each.
    const bool cut = context.parallel.layout.expert == 1;
    if (!cut && config.experts.dense_layers.empty()) sizes.ffn = 0;
    sizes.ffn = std::gcd(sizes.ffn, std::gcd(cut ? config.experts.ffn : 0, config.experts.shared_ffn));
  }
  const auto delta_layers = std::ranges::count(config.mixers, MixerKind::delta, &LayerMixer::kind);
  if (delta_layers > 0) sizes.delta_key_heads = config.delta.key_heads;
  check_parallel_fit(context.name, sizes, context.parallel.layout);
  check_expert_fit(context.name, config.experts.count, context.parallel.layout);
  if (context.parallel.layout.expert > 1 && (context.for_cuda || !context.memory().host())) {
    throw JobError(context.name + ".expert = " + std::to_string(context.parallel.layout.expert) +
                   " on cuda devices is not built; leave expert out, or use cpu devices");
  }
  check_stage(context.name, context.stage, config.layers);
  return config;
}

constexpr const char* heard_name = "heard";

std::int32_t rows_of_sample(const SequenceLayout& layout, std::size_t sample) {
  return sample + 1 < layout.offsets.size() ? layout.offsets[sample + 1] - layout.offsets[sample] : 0;
}

/// Checks that every sample has as many rows of visual as image tokens, as IP-1 requires.
void check_images(const std::string& section, const Inputs& inputs, std::span<const std::int32_t> tokens) {
  const SequenceLayout& layout = inputs.layout();
  const auto check = [&](std::size_t sample, std::int32_t token, const char* port, Axis axis) {
    const auto begin = tokens.begin() + layout.offsets[sample], end = tokens.begin() + layout.offsets[sample + 1];
    const auto marked = std::count(begin, end, token);
    const auto brought = inputs.has(port) ? rows_of_sample(inputs.layout(axis), sample) : 0;
    if (marked == brought) return;
    const std::string noun = token == image_token ? "image" : "sound";
    throw JobError(section + ": sample " + std::to_string(inputs.samples()[sample].value()) + " has " +
                   std::to_string(marked) + " " + noun + " tokens, but its " + noun + "s have " +
                   std::to_string(brought) + " rows; the data source and the " +
                   (token == image_token ? "vision" : "audio") + " section must use the same " +
                   (token == image_token ? "patches" : "frames"));
  };
  for (std::size_t sample = 0; sample < inputs.samples().size(); ++sample) {
    check(sample, image_token, "visual", Axis::visual);
    check(sample, sound_token, heard_name, Axis::heard);
  }
}

}  // namespace

DecoderSection::DecoderSection(const SectionContext& context, const DecoderConfig& decoder, const DataShape& data,
                               OutputLayer output_layer)
    : context_(context),
      output_layer_(output_layer),
      reads_images_(data.patch_columns > 0),
      visual_{data.visual.precision.value_or(context.precision), data.visual.taps},
      heard_(data.sounds ? std::optional(data.heard.precision.value_or(context.precision)) : std::nullopt),
      stack_(parameters_, ParameterInit(context.seed, context.name), checked(context, decoder, data), context.parallel,
             context.stage, {context.lora.given() ? &adapters_ : nullptr, context.lora}) {
  if (visual_.taps >= decoder.layers) {
    throw JobError(context.name + ": images have rows for " + std::to_string(visual_.taps) +
                   " layers, but the decoder has only " + std::to_string(decoder.layers) +
                   ", the last one not counted");
  }
  stack_.recompute(context.recompute);
  head_ = add_output_layer(ParameterInit(context.seed, context.name));
  for (const BlockOptions& layer : stack_.layer_options()) check_attention(context, layer.attention.shape);
  context.allocate(parameters());
  if (!context.lora.given() || context.meta) return;
  parameters_.allocate(false, context.memory(), context.values);
  freeze_weights(context.trained || context.passes_gradient);  // AO-1
}

Parameter* DecoderSection::add_output_layer(const ParameterInit& init) {
  if (output_layer_ == OutputLayer::none || !last_stage()) return nullptr;
  if (decoder().tied && first_stage()) return &stack_.token_embedding();
  return &add_head(parameters_, init, decoder(), context_.parallel);
}

Parameter* DecoderSection::tied() {
  if (context_.lora.given()) return nullptr;  // the embedding is frozen in every stage
  if (context_.stage.count == 1 || output_layer_ == OutputLayer::none || !decoder().tied) return nullptr;
  if (last_stage()) return head_;
  return first_stage() ? &stack_.token_embedding() : nullptr;
}

std::vector<StateEntry> DecoderSection::state() {
  return context_.lora.given() ? stack_.adapter_state() : weights().entries;
}

NamedParameters DecoderSection::weights() {
  NamedParameters weights{&parameters_, stack_.state()};
  if (separate_head()) weights.entries.push_back({head_->name(), head_, 0, 0, false, decoder().tied});
  return weights;
}

std::optional<AdapterConfig> DecoderSection::adapters() const {
  if (!context_.lora.given()) return std::nullopt;
  AdapterConfig config{context_.lora.rank, context_.lora.alpha, {}, decoder().gpt2(), ""};
  for (const StateEntry& entry : stack_.adapter_state()) {
    const std::string_view name = entry.name;
    if (!name.ends_with(adapter_a)) continue;
    // "...layers.0.self_attn.q_proj" is targeted as q_proj. GPT-2 has two modules c_proj: their targets include the
    // branch.
    const std::size_t module = name.rfind('.', name.size() - adapter_a.size() - 1);
    const std::size_t from = decoder().gpt2() ? name.rfind('.', module - 1) : module;
    const std::string target(name.substr(from + 1, name.size() - adapter_a.size() - from - 1));
    if (std::ranges::find(config.modules, target) == config.modules.end()) config.modules.push_back(target);
  }
  return config;
}

std::string DecoderSection::description() const {
  const LoraConfig& lora = context_.lora;
  if (!lora.given()) return described(decoder());
  const auto [body, adapters] = body_elements(decoder(), lora);
  const bool with_head = output_layer_ != OutputLayer::none && !decoder().tied;
  const std::int64_t all = body + adapters + (with_head ? decoder().vocabulary * decoder().width : 0);
  return described(decoder()) + "; LoRA rank " + std::to_string(lora.rank) + " on " + products_of(lora) + ", " +
         std::to_string(adapters) + " trained of " + std::to_string(all) + " parameters";
}

bool DecoderSection::ignores(std::string_view stored_name) const {
  if (is_stored_buffer(stored_name) || is_further_layer(decoder(), stored_name)) return true;
  if (stored_name.starts_with(memory_prefix) && !decoder().memory.given()) return true;
  // Some writers store the output layer of a tied model a second time; a body without output layer never uses it.
  if (stored_name == head_name) return head_ == nullptr || decoder().tied;
  if (context_.stage.count == 1) return false;
  if (names_of_model_.empty()) names_of_model_ = body_names(decoder(), context_.lora);
  return std::ranges::binary_search(names_of_model_, stored_name);
}

std::string DecoderSection::config_json() const {
  return hf_config_text(decoder());
}

ProductParameters DecoderSection::products() {
  ProductParameters products{stack_.matrices(), first_stage() ? &stack_.token_embedding() : nullptr};
  if (head_ != nullptr) products.matrices.push_back(head_);
  return products;
}

void DecoderSection::freeze() {
  if (context_.lora.given()) return;  // the weights are frozen already, and adapters stay as they are
  freeze_weights(context_.passes_gradient);
  frozen_ = true;
}

void DecoderSection::freeze_weights(bool passes_gradient) {
  const ProductParameters kept = products();
  parameters_.freeze_packed(*context_.ops, context_.precision, kept.matrices, passes_gradient, kept.table);
}

Ports DecoderSection::stage_ports(const Ports& behind) const {
  const Port stream{stream_name, DType::f32, decoder().width, true, false, Axis::tokens, Sharding::rank_rows};
  Port tokens = tokens_port;
  if (reads_images_) tokens.sharding = Sharding::replicated;  // IP-2; 4 bytes a row
  Ports ports;
  ports.inputs = first_stage() ? std::vector{tokens} : std::vector{stream};
  if (last_stage()) {
    ports.inputs.insert(ports.inputs.end(), behind.inputs.begin(), behind.inputs.end());
    ports.outputs = behind.outputs;
  } else {
    ports.outputs = {stream};
  }
  if (takes_memory()) {
    const MemoryConfig& memory = decoder().memory;
    ports.inputs.push_back(
        {"memory", memory.precision, memory.columns, true, false, Axis::tokens, Sharding::rank_rows});
  }
  if (!reads_images_) return ports;
  const Port visual{"visual", *visual_.precision, decoder().width, true, true, Axis::visual, Sharding::replicated};
  if (first_stage()) ports.inputs.push_back(visual);
  if (first_stage() && heard_) {
    ports.inputs.push_back({heard_name, *heard_, decoder().width, true, true, Axis::heard, Sharding::replicated});
  }
  for (std::int64_t tap = 0; tap < visual_.taps; ++tap) {
    if (!takes_tap(tap)) continue;
    const bool reads_tokens = std::ranges::find(ports.inputs, tokens.name, &Port::name) != ports.inputs.end();
    if (!reads_tokens) ports.inputs.push_back(tokens);
    Port rows = visual;
    rows.name = tap_name(visual.name, tap);
    ports.inputs.push_back(std::move(rows));
  }
  if (decoder().needs_marks()) {  // IP-3; 16 bytes a row
    ports.inputs.push_back({marks_name, DType::i32, mark_columns, false, true, Axis::tokens, Sharding::replicated});
  }
  return ports;
}

bool DecoderSection::takes_tap(std::int64_t tap) const {
  const Stage& stage = stack_.stage();
  return tap >= stage.first_layer && tap < stage.first_layer + stage.layers;
}

bool DecoderSection::takes_memory() const {
  const Stage& stage = stack_.stage();
  const MemoryConfig& memory = decoder().memory;
  return memory.given() && memory.layer >= stage.first_layer && memory.layer < stage.first_layer + stage.layers;
}

Var DecoderSection::embedded(Tape& tape, const Inputs& inputs) {
  const Tensor& tokens = inputs["tokens"].value();
  const SequenceLayout& layout = inputs.layout();
  if (!reads_images_) return stack_.embedded(tape, tokens, layout);
  const std::span<const std::int32_t> known = inputs.host("tokens").span<std::int32_t>();
  check_images(context_.name, inputs, known);
  const RowRange rows = context_rows(context_.parallel, layout);
  const Tensor own(tokens.data<std::int32_t>() + rows.first, DType::i32, Shape{rows.count});
  const Var x = stack_.embedded(tape, own, layout);
  if (decoder().needs_marks() && !inputs.has(marks_name) && !image_rows(known).empty()) {
    throw JobError(context_.name + ": nothing is connected to marks, but the model's images need them");
  }
  return with_rows(tape, inputs, with_rows(tape, inputs, x, "visual", known, image_token), heard_name, known,
                   sound_token);
}

Var DecoderSection::with_rows(Tape& tape, const Inputs& inputs, Var x, const char* port,
                              std::span<const std::int32_t> known, std::int32_t token) const {
  const std::vector<std::int32_t> marked = rows_of_token(known, token);
  if (marked.empty()) return x;
  const AddedRows rows = own_rows(tape, inputs, port, marked);
  return index_add(tape, x, rows.rows, rows.at);
}

std::vector<AddedRows> DecoderSection::added_rows(Tape& tape, const Inputs& inputs) const {
  std::vector<AddedRows> added;
  if (takes_memory()) added.push_back({decoder().memory.layer, inputs["memory"], {}});
  for (std::int64_t tap = 0; reads_images_ && tap < visual_.taps; ++tap) {
    if (!takes_tap(tap)) continue;
    const std::vector<std::int32_t> marked = image_rows(inputs.host("tokens").span<std::int32_t>());
    if (marked.empty()) break;
    const std::string port = tap_name("visual", tap);
    if (!inputs.has(port)) {
      throw JobError(context_.name + ": nothing is connected to " + port + ", but the images have rows for " +
                     std::to_string(visual_.taps) + " layers");
    }
    added.push_back(own_rows(tape, inputs, port, marked));
    added.back().layer = tap;
  }
  return added;
}

AddedRows DecoderSection::own_rows(Tape& tape, const Inputs& inputs, const std::string& port,
                                   std::span<const std::int32_t> marked) const {
  const ParallelContext& parallel = context_.parallel;
  if (parallel.layout.ranks() == 1) return {0, inputs[port], tape.indices(marked)};
  const RowRange own = parallel.layout.rows(Sharding::rank_rows, inputs.layout().rows(), parallel.rank);
  const auto first = std::ranges::lower_bound(marked, own.first) - marked.begin();
  const auto end = std::ranges::lower_bound(marked, own.end()) - marked.begin();
  std::vector<std::int32_t> taken(static_cast<std::size_t>(end - first)), at(taken.size());
  std::iota(taken.begin(), taken.end(), static_cast<std::int32_t>(first));
  std::ranges::transform(marked.subspan(static_cast<std::size_t>(first), at.size()), at.begin(),
                         [&](std::int32_t row) { return row - static_cast<std::int32_t>(own.first); });
  const Var visual =
      copy_to_group(tape, copy_to_group(tape, inputs[port], parallel.tensor_group), parallel.context_group);
  // A rank without image positions takes part, too: its gradient enters the sums as zeros.
  return {0, index_select(tape, visual, tape.indices(taken)), tape.indices(at)};
}

Var DecoderSection::incoming(Tape& tape, const Inputs& inputs) {
  return first_stage() ? embedded(tape, inputs) : inputs[stream_name];
}

Stream DecoderSection::stream(Tape& tape, const Inputs& inputs, Outputs& outputs, const Block& wanted) {
  const MarkedLayout marked(context_.name, tape, inputs, decoder());
  Var x = incoming(tape, inputs);
  const std::vector<AddedRows> added = added_rows(tape, inputs);
  ExpertPass experts{ExpertBalance::of(tape, inputs, decoder().experts, context_.parallel)};
  if (routes_ != nullptr) {
    const SequenceLayout& layout = inputs.layout();
    experts.routes = {routes_,
                      {.samples = inputs.samples(), .layout = layout, .own = routed_rows(context_.parallel, layout)}};
  }
  // The first layer frees its input.
  Stream result = stack_.transformed(tape, std::move(x), marked.layout(), wanted, added, experts);
  if (experts.balance != nullptr) experts.balance->report(outputs);
  return result;
}

void DecoderSection::put_stream(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  outputs.set(stream_name, whole(tape, stream(tape, inputs, outputs)));
}

Var DecoderSection::hidden(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  return stack_.normed(tape, stream(tape, inputs, outputs));
}

void DecoderSection::cap_logits(Tape& tape, const Tensor& logits) const {
  if (decoder().logit_softcap > 0) tape.ops().run(Softcap{.x = logits, .cap = decoder().logit_softcap});
}

Var DecoderSection::gathered_hidden(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  return gathered(tape, hidden(tape, inputs, outputs), context_.parallel, inputs.layout());
}

Var DecoderSection::logits(Tape& tape, const Var& hidden) {
  Var y = tape.output({hidden.value().rows(), head().shape()[0]}, DType::f32, false);
  tape.ops().run(Linear{.x = hidden.value(),
                        .w = &head().packed(tape.ops(), tape.compute(), PackFor::forward),
                        .y = y.value(),
                        .rows_alone = tape.rows_alone()});
  cap_logits(tape, y.value());
  return y;
}

Var DecoderSection::cached_logits(Tape& tape, std::span<const std::int32_t> tokens, const SequenceLayout& layout,
                                  std::span<const LayerCache> caches, std::span<const Tensor> visual,
                                  const Tensor& heard, const Var& memory) {
  assert(context_.parallel.layout.ranks() == 1 && context_.stage.count == 1 && head_ != nullptr);
  Block wanted;  // all rows of several sequences, or the last row of a sequence
  if (caches.front().sequences.empty()) {
    const std::int32_t last[] = {static_cast<std::int32_t>(layout.rows() - 1)};
    wanted = tape.indices(last);
  }
  Var x = stack_.embedded(tape, tape.indices(tokens).tensor(), layout);
  std::vector<AddedRows> added;
  if (memory.defined()) added.push_back({decoder().memory.layer, memory, {}});
  for (const Tensor& rows : visual) {
    const Block at = tape.indices(image_rows(tokens));
    if (&rows == visual.data()) {
      x = index_add(tape, x, tape.input(rows), at);
    } else {
      added.push_back({&rows - visual.data() - 1, tape.input(rows), at});
    }
  }
  if (heard.defined()) x = index_add(tape, x, tape.input(heard), tape.indices(rows_of_token(tokens, sound_token)));
  return logits(tape, stack_.normed(tape, stack_.transformed(tape, x, layout, wanted, caches, added)));
}

namespace {

/// Returns the shape of a stage's layers.
DecoderConfig config_of(DecoderConfig config, const Stage& stage) {
  config.layers = stage.layers;
  if (!config.mixers.empty()) {
    const auto first = config.mixers.begin() + stage.first_layer;
    config.mixers = {first, first + stage.layers};
  }
  config.memory.layer -= stage.first_layer;
  std::vector<std::int64_t>& dense = config.experts.dense_layers;
  for (std::int64_t& layer : dense) layer -= stage.first_layer;
  std::erase_if(dense, [&](std::int64_t layer) { return layer < 0 || layer >= stage.layers; });
  return config;
}

}  // namespace

Cost DecoderSection::decoder_cost(const SampleShape& sample) const {
  const DecoderConfig here = config_of(decoder(), stack_.stage());
  Cost cost{body_flops(here, sample.tokens), 0};
  if (head_ != nullptr) cost.flops += head_flops(sample.tokens, here.width, here.vocabulary);
  const std::int64_t tensor = context_.parallel.layout.tensor;
  cost.working = body_working_bytes(here, sample.tokens, context_.precision, tensor);
  if (context_.trained || context_.passes_gradient) {
    cost.bytes = body_bytes(here, sample.tokens, context_.precision, context_.recompute);
    if (context_.recompute > 0) cost.recomputed = body_flops(here, sample.tokens);
    if (!last_stage()) cost.bytes -= final_norm_bytes(here, sample.tokens, context_.precision);
  }
  return cost;
}

LayerCosts DecoderSection::layer_costs(const SampleShape& sample) const {
  const DecoderConfig& config = decoder();
  LayerCosts costs;
  for (std::int64_t i = 0; i < config.layers; ++i) costs.layers.push_back(layer_flops(config, i, sample.tokens));
  if (output_layer_ != OutputLayer::none) costs.after = head_flops(sample.tokens, config.width, config.vocabulary);
  return costs;
}

std::vector<std::int32_t> rows_of_token(std::span<const std::int32_t> tokens, std::int32_t token) {
  std::vector<std::int32_t> rows;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    if (tokens[row] == token) rows.push_back(static_cast<std::int32_t>(row));
  }
  return rows;
}

std::vector<std::int32_t> image_rows(std::span<const std::int32_t> tokens) {
  return rows_of_token(tokens, image_token);
}

Tensor targets_of(const Inputs& inputs) {
  const Tensor& targets = inputs["targets"].value();
  return targets.reshaped(Shape{targets.elements()});
}

}  // namespace maestro
