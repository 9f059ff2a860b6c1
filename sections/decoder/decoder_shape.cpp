// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/decoder_shape.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_vision_config.hpp"
#include "runtime/ops/delta_operators.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

[[noreturn]] void refuse(const std::string& section, const std::string& message) {
  throw JobError(section + ": " + message);
}

std::string setting(const char* key, std::int64_t value) {
  return std::string(key) + " = " + std::to_string(value);
}

void check_sizes(const std::string& section, const DecoderConfig& config) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"layers", config.layers},      {"width", config.width}, {"heads", config.heads},
      {"kv_heads", config.kv_heads},  {"ffn", config.ffn},     {"vocabulary", config.vocabulary},
      {"positions", config.positions}};
  for (const auto& [key, value] : sizes) {
    if (value < 1) refuse(section, setting(key, value) + " is too small; it must be at least 1");
  }
}

void check_heads(const std::string& section, const DecoderConfig& config) {
  if (config.head_size < 1) {
    refuse(section, setting("heads", config.heads) + " does not divide " + setting("width", config.width));
  }
  if (config.heads % config.kv_heads != 0) {
    refuse(section, setting("kv_heads", config.kv_heads) + " does not divide " + setting("heads", config.heads));
  }
  if (config.gpt2() && config.kv_heads != config.heads) {
    refuse(section, "family \"gpt2\" lacks grouped-query attention; leave kv_heads out or use family \"llama\"");
  }
  if (config.gpt2() && config.query_columns() != config.width) {
    refuse(section, setting("heads", config.heads) + " of " + setting("head_size", config.head_size) +
                        " columns do not make up " + setting("width", config.width));
  }
  if (!config.gpt2() && config.head_size % 2 != 0) {
    refuse(section, "rotary positions need an even head size, not " + std::to_string(config.head_size));
  }
  const std::int64_t rotated = config.rotated_columns();
  if (!config.gpt2() && (rotated == 0 || rotated % 2 != 0)) {
    refuse(section, setting("head_size", config.head_size) + " makes " + std::to_string(rotated) +
                        " columns rotate, as the family rotates a part of a head; their number must be even, as with "
                        "head_size = " +
                        std::to_string((config.head_size + 7) / 8 * 8));
  }
  const LatentConfig& latent = config.latent;
  if (latent.given() && (config.kv_heads != config.heads || latent.rope_size > config.head_size)) {
    refuse(section, setting("kv_heads", config.kv_heads) + " and " + setting("rope_size", latent.rope_size) +
                        " do not fit " + setting("heads", config.heads) + " of " +
                        setting("head_size", config.head_size));
  }
  if (latent.given() && latent.value_size > config.head_size) {
    refuse(section, setting("value_size", latent.value_size) + " is above " + setting("head_size", config.head_size));
  }
  const DeltaShape& delta = config.delta;
  if (delta.key_heads > 0 && delta.value_heads % delta.key_heads != 0) {
    refuse(section, setting("delta_value_heads", delta.value_heads) + " is not a multiple of " +
                        setting("delta_key_heads", delta.key_heads));
  }
}

void check_data(const std::string& section, const DecoderConfig& config, const DataShape& data) {
  if (data.sequence > config.positions) {
    refuse(section, "samples of " + std::to_string(data.sequence) + " tokens do not fit " +
                        setting("positions", config.positions) +
                        "; shorten data.sequence (data.longest of drawn lengths) to " +
                        std::to_string(config.positions) + " or raise positions");
  }
  if (data.vocabulary > config.vocabulary) {
    refuse(section, setting("vocabulary", config.vocabulary) + " is smaller than the corpus' vocabulary of " +
                        std::to_string(data.vocabulary) + " tokens; set it to " + std::to_string(data.vocabulary) +
                        " or more");
  }
  if (config.image_mask == ImageMask::prefix && config.window > 0 && data.patch_columns > 0 &&
      data.sequence > config.window) {
    refuse(section, "samples of " + std::to_string(data.sequence) + " tokens may have a prefix beyond the window of " +
                        std::to_string(config.window) + " tokens, which is not supported; set data.sequence = " +
                        std::to_string(config.window) + " or less");
  }
  if (config.needs_marks() && data.patch_columns > 0 && !data.marks) {
    refuse(section,
           "the model's images need marks of positions, which the data do not have; prepare the data with "
           "the model's folder, as --model or data.processor");
  }
}

/// A layer's feed-forward network, for a token.
struct Network {
  double products = 0;  ///< columns of its products with the width as the other side
  double kept = 0;      ///< values that the backward pass reads
  double working = 0;   ///< values that a pass holds temporarily
};
Network network_of(const DecoderConfig& config, std::int64_t layer) {
  const ExpertConfig& experts = config.experts;
  if (!experts.at(layer)) {
    const auto values = static_cast<double>(config.ffn_matrices() * config.ffn);
    return {values, values, values};
  }
  const auto routes = static_cast<double>(experts.per_token);
  const auto ffn = static_cast<double>(experts.ffn), shared = static_cast<double>(experts.shared_ffn);
  return {routes * 3 * ffn + 3 * shared + static_cast<double>(experts.count), routes * 2 * ffn + 3 * shared,
          routes * (2 * static_cast<double>(config.width) + 4 * ffn) + 3 * shared};
}

/// Returns the elements of an attention layer's matrices, which are its products for a token.
double attention_elements(const DecoderConfig& config) {
  const auto width = static_cast<double>(config.width);
  const auto queries = static_cast<double>(config.query_columns());
  const double results = width * static_cast<double>(config.result_columns());
  const LatentConfig& latent = config.latent;
  if (!latent.given()) {
    const double gates = config.output_gate ? queries : 0;
    return width * (queries + gates + 2.0 * static_cast<double>(config.key_columns())) + results;
  }
  const auto rank = static_cast<double>(latent.rank), from = static_cast<double>(latent.query_rank);
  const auto keys = static_cast<double>(config.heads * (config.head_size - latent.rope_size + latent.value_size));
  const double of_queries = from > 0 ? from * (width + queries) : width * queries;
  return of_queries + width * (rank + static_cast<double>(latent.rope_size)) + rank * keys + results;
}

/// Parameters of a body, and how many of them a token passes through.
struct ActiveElements {
  double all = 0;
  double active = 0;
};
ActiveElements active_elements(const DecoderConfig& config) {
  ActiveElements elements;
  const auto width = static_cast<double>(config.width);
  elements.all = elements.active = static_cast<double>(config.vocabulary) * width * (config.tied ? 1 : 2) +
                                   static_cast<double>(config.layers) * attention_elements(config);
  const ExpertConfig& experts = config.experts;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const double active = width * network_of(config, i).products;
    const std::int64_t idle = experts.at(i) ? experts.count - experts.per_token : 0;
    elements.active += active;
    elements.all += active + 3 * width * static_cast<double>(idle * experts.ffn);
  }
  return elements;
}

/// Returns "6.9B", or "62M" below a tenth of a billion.
std::string billions(double count) {
  std::ostringstream out;
  out << std::fixed;
  count < 1e8 ? out << std::setprecision(count < 1e7 ? 1 : 0) << count / 1e6 << "M"
              : out << std::setprecision(1) << count / 1e9 << "B";
  return out.str();
}

}  // namespace

DecoderConfig resolved(DecoderConfig config) {
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_size == 0 && config.heads > 0 && config.width % config.heads == 0)
    config.head_size = config.width / config.heads;
  ExpertConfig& experts = config.experts;
  if (!has_dense_layers(config.family) && experts.ffn != 0) config.ffn = experts.ffn;
  if (config.ffn == 0) config.ffn = config.gpt2() ? 4 * config.width : (8 * config.width + 191) / 192 * 64;
  if (experts.count > 0 && experts.ffn == 0) experts.ffn = config.ffn;
  if (has_latent_attention(config.family)) {  // shares as in DeepSeek-V2, section 3.1.2
    LatentConfig& latent = config.latent;
    if (latent.rope_size == 0) latent.rope_size = std::max<std::int64_t>(config.head_size / 6 * 2, 2);
    if (latent.value_size == 0) latent.value_size = config.head_size - latent.rope_size;
    if (latent.rank == 0) latent.rank = 4 * (config.head_size - latent.rope_size);
  }
  if (has_delta_rules(config.family)) {
    DeltaShape& delta = config.delta;
    if (delta.key_heads == 0) delta.key_heads = config.heads;
    if (delta.value_heads == 0) delta.value_heads = delta.key_heads;
    if (delta.key_size == 0) delta.key_size = config.head_size;
    if (delta.value_size == 0) delta.value_size = delta.key_size;
  }
  return config;
}

VisualRows visual_rows_of(const JobTable& projector) {
  VisualRows rows{read_precision(projector)};
  const std::string weights = read_weights_folder(projector);
  if (weights.empty()) return rows;
  const auto stored = read_hf_projector_config(weights);
  if (!stored) projector.fail("weights", stored.error().message);
  rows.taps = stored->taps;
  return rows;
}

VisualRows read_visual(const JobTable& table, const JobTable& root, const DataShape& data) {
  const std::string own = table.name() + "_projector";
  const std::string projector = table.text("projector", root.has(own) ? own : "projector",
                                           {"with images: the section that sends the visual rows; absent: "
                                            "NAME_projector, if the job has it, else \"projector\""});
  if (table.has("projector") && data.patch_columns == 0) {
    table.fail("projector", "is without effect: the data are without images");
  }
  return root.has(projector) ? visual_rows_of(root.table(projector)) : VisualRows();
}

DecoderConfig read_decoder_shape(const JobTable& table) {
  const std::string weights = read_weights_folder(table);
  if (weights.empty()) {
    const DecoderConfig own = resolved(read_decoder(table));
    return with_family(own, own.family);
  }
  auto stored = read_hf_config(weights);
  if (!stored) table.fail("weights", stored.error().message);
  return resolved(read_decoder(table, *std::move(stored)));
}

void default_vocabulary(const JobTable& table, DecoderConfig& decoder, const DataShape& data) {
  if (table.has("vocabulary") || !read_weights_folder(table).empty()) return;
  decoder.vocabulary = std::max(decoder.vocabulary, data.vocabulary);
}

void check_decoder(const std::string& section, const DecoderConfig& config, const DataShape& data) {
  check_sizes(section, config);
  check_heads(section, config);
  check_data(section, config, data);
}

std::string described(const DecoderConfig& config) {
  std::ostringstream out;
  out << name_of(config.family) << ", " << config.layers << " layers x " << config.width << ", " << config.heads
      << " heads of " << config.head_size;
  if (config.kv_heads != config.heads) out << " (" << config.kv_heads << " kv)";
  if (config.qk_norm != QkNorm::none) out << ", q/k norms";
  if (config.latent.given()) out << ", latents of " << config.latent.rank;
  if (!config.gpt2()) out << ", rope " << config.rope_theta;
  constexpr const char* scalings[] = {"", " linear", " llama3", " yarn", " longrope"};
  out << scalings[static_cast<std::size_t>(config.rope_scaling.kind)];
  if (config.window > 0) out << ", windows of " << config.window;
  if (config.attention_sinks) out << ", sinks";
  const auto convolutions = std::ranges::count(config.mixers, MixerKind::convolution, &LayerMixer::kind);
  if (convolutions > 0) out << ", convolutions of " << config.conv_width << " in " << convolutions << " layers";
  if (const auto layers = std::ranges::count(config.mixers, MixerKind::delta, &LayerMixer::kind); layers > 0) {
    out << ", delta rules of " << config.delta.value_heads << " heads of " << config.delta.value_size << " in "
        << layers << " layers";
  }
  const ExpertConfig& experts = config.experts;
  if (experts.count > 0) {
    out << ", " << experts.count << " experts of " << experts.ffn << ", " << experts.per_token << " a token";
    if (experts.shared_ffn > 0) out << ", a shared expert of " << experts.shared_ffn;
    const ActiveElements elements = active_elements(config);
    out << ", " << billions(elements.all) << " parameters, " << billions(elements.active) << " active";
  }
  if (config.memory.given())
    out << ", a memory of " << config.memory.columns << " columns at layer " << config.memory.layer;
  out << (config.tied ? ", tied" : ", untied") << ", vocabulary " << config.vocabulary;
  return out.str();
}

double layer_flops(const DecoderConfig& config, std::int64_t layer, std::int64_t tokens) {
  const auto t = static_cast<double>(tokens);
  const auto width = static_cast<double>(config.width);
  const double memory = config.memory.read_at(layer) ? 2.0 * static_cast<double>(config.memory.columns) : 0;
  const double ffn = network_of(config, layer).products + memory;
  if (config.mixer_of(layer).kind == MixerKind::convolution) {
    return 2.0 * t * width * (4.0 * width + ffn) + 2.0 * t * width * static_cast<double>(config.conv_width);
  }
  if (config.mixer_of(layer).kind == MixerKind::delta) {
    const DeltaShape& delta = config.delta;
    const auto value = static_cast<double>(delta.value_columns());
    const double products = width * (static_cast<double>(config.delta_columns()) + value + ffn);
    const double chunk = 2.0 * static_cast<double>(delta_chunk * delta.key_columns());
    const double states =
        3.0 * static_cast<double>(delta.key_size) * value + 1.5 * static_cast<double>(delta_chunk) * value;
    return 2.0 * t * (products + chunk + states + static_cast<double>(delta.qkv_columns() * config.conv_width));
  }
  const auto queries = static_cast<double>(config.query_columns());
  const double window = config.mixer_of(layer).windowed ? static_cast<double>(config.window) : t;
  const double pairs = window < t ? window * t - window * window / 2 : t * t / 2;
  return 2.0 * t * (attention_elements(config) + width * ffn) + 2.0 * 2.0 * pairs * queries;
}

double body_flops(const DecoderConfig& config, std::int64_t tokens) {
  double flops = 0;
  for (std::int64_t i = 0; i < config.layers; ++i) flops += layer_flops(config, i, tokens);
  return flops;
}

double head_flops(std::int64_t tokens, std::int64_t width, std::int64_t vocabulary) {
  return 2.0 * static_cast<double>(tokens) * static_cast<double>(width) * static_cast<double>(vocabulary);
}

namespace {

/// Returns the values of a row between a mixer's two products that a training pass keeps: q, k, v (with norms of q and
/// k a second time) and the attention's result, or a convolution's gates, input and result.
double mixer_values(const DecoderConfig& config, MixerKind kind) {
  if (kind == MixerKind::convolution) return 4.0 * static_cast<double>(config.width);
  if (kind == MixerKind::delta) {
    // The first product and its parts, the filter's result, the rule's, its norm's, with z, and the product of both.
    const auto value = static_cast<double>(config.delta.value_columns());
    return 2.0 * static_cast<double>(config.delta_columns() + config.delta.qkv_columns()) + 5.0 * value;
  }
  const auto queries = static_cast<double>(config.query_columns());
  const double qkv = queries + 2.0 * static_cast<double>(config.key_columns());
  if (const LatentConfig& latent = config.latent; latent.given()) {
    // Latents before and after their norms, the parts of the first product, heads, packed heads, and the values' parts.
    const auto results = static_cast<double>(config.result_columns());
    const auto latents = static_cast<double>(2 * latent.query_rank + 3 * latent.rank + 2 * latent.rope_size);
    const double nope = queries - static_cast<double>(config.heads * latent.rope_size);
    return latents + queries + nope + results + qkv + 2.0 * queries + 2.0 * results;
  }
  // With gates: the first product and its parts, the gate's sigmoid and the gated result.
  const double gated = config.output_gate ? qkv + 6.0 * queries : 0;
  return (config.qk_norm == QkNorm::none ? qkv : 2.0 * qkv) + queries + gated;
}

/// Returns the values of a row's share in the states that a training pass keeps, one for each chunk.
double delta_state_values(const DecoderConfig& config) {
  const DeltaShape& delta = config.delta;
  return static_cast<double>(delta.value_heads * delta.key_size * delta.value_size) / static_cast<double>(delta_chunk);
}

/// Returns the bytes of a row that a training pass keeps in a layer.
double layer_bytes(const DecoderConfig& config, std::int64_t layer, DType precision) {
  const auto width = static_cast<double>(config.width);
  // Norms, the mixer, two branches, and the FFN before and after its activation.
  const double norms = config.norms == BlockNorms::both ? 4.0 * width : 2.0 * width;
  const double ffn_values = network_of(config, layer).kept;
  const MixerKind kind = config.mixer_of(layer).kind;
  const double states = kind == MixerKind::delta ? sizeof(float) * delta_state_values(config) : 0;
  // Rows of a memory, keys and queries before and after their norms, values, gated and normed, and the filter's result.
  const double memory = config.memory.read_at(layer) ? static_cast<double>(config.memory.columns) + 7.0 * width : 0;
  const double activations = norms + mixer_values(config, kind) + 2.0 * width + ffn_values + memory;
  return activations * static_cast<double>(size_of(precision)) + 2.0 * width * sizeof(float) + states;
}

}  // namespace

double body_bytes(const DecoderConfig& config, std::int64_t tokens, DType precision, std::int64_t recompute) {
  const std::int64_t group = recompute == 0 ? std::max<std::int64_t>(config.layers, 1) : recompute;
  double largest = 0;  // of a group's layers
  for (std::int64_t first = 0; first < config.layers; first += group) {
    double bytes = 0;
    for (std::int64_t layer = first; layer < std::min(first + group, config.layers); ++layer) {
      bytes += layer_bytes(config, layer, precision);
    }
    largest = std::max(largest, bytes);
  }
  const double ends = static_cast<double>(config.width) * (sizeof(float) + static_cast<double>(size_of(precision)));
  const std::int64_t groups = (config.layers + group - 1) / group;
  const double streams = static_cast<double>(recompute == 0 ? 0 : groups) * ends;
  return static_cast<double>(tokens) * (largest + streams + ends);
}

double body_working_bytes(const DecoderConfig& config, std::int64_t tokens, DType precision, std::int64_t tensor) {
  const auto width = static_cast<double>(config.width);
  const double attention =
      static_cast<double>((config.output_gate ? 6 : 2) * config.query_columns() + 2 * config.key_columns());
  double most = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const MixerKind kind = config.mixer_of(layer).kind;
    const double mixer = kind == MixerKind::convolution                      ? 4.0 * width
                         : kind == MixerKind::delta || config.latent.given() ? mixer_values(config, kind)
                                                                             : attention;
    most = std::max({most, mixer, network_of(config, layer).working});
  }
  const double gathered = tensor == 1 ? 0 : 2.0 * width * static_cast<double>(tensor);
  const double branch = (most + 2.0 * width + gathered) * static_cast<double>(size_of(precision));
  return static_cast<double>(tokens) * (branch + 2.0 * width * sizeof(float));
}

double final_norm_bytes(const DecoderConfig& config, std::int64_t tokens, DType precision) {
  return static_cast<double>(tokens * config.width) * static_cast<double>(size_of(precision));
}

}  // namespace maestro
