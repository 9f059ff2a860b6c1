// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/decoder_shape.hpp"

#include <algorithm>

#include "runtime/core/result.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/state/hf_config.hpp"
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
  if (config.width % config.heads != 0) {
    refuse(section, setting("heads", config.heads) + " does not divide " + setting("width", config.width));
  }
  if (config.heads % config.kv_heads != 0) {
    refuse(section, setting("kv_heads", config.kv_heads) + " does not divide " + setting("heads", config.heads));
  }
  if (config.family == "gpt2" && config.kv_heads != config.heads) {
    refuse(section, "family \"gpt2\" has no grouped-query attention; leave kv_heads out or use family \"llama\"");
  }
  if (config.family == "llama" && config.width / config.heads % 2 != 0) {
    refuse(section, "rotary positions need an even head size, not width / heads = " +
                        std::to_string(config.width / config.heads));
  }
}

void check_data(const std::string& section, const DecoderConfig& config, const DataShape& data) {
  if (data.sequence > config.positions) {
    refuse(section, "samples of " + std::to_string(data.sequence) + " tokens do not fit " +
                        setting("positions", config.positions) + "; shorten data.sequence to " +
                        std::to_string(config.positions) + " or raise positions");
  }
  if (data.vocabulary > config.vocabulary) {
    refuse(section, setting("vocabulary", config.vocabulary) + " is smaller than the corpus' vocabulary of " +
                        std::to_string(data.vocabulary) + " tokens; set it to " + std::to_string(data.vocabulary) +
                        " or more");
  }
}

}  // namespace

DecoderConfig resolved(DecoderConfig config) {
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.ffn == 0) {
    config.ffn = config.family == "llama" ? (8 * config.width + 191) / 192 * 64 : 4 * config.width;
  }
  return config;
}

DecoderConfig read_decoder_shape(const JobTable& table) {
  const std::string weights = read_weights_folder(table);
  DecoderConfig defaults;
  if (!weights.empty()) {
    auto stored = read_hf_config(weights);
    if (!stored) table.fail("weights", stored.error().message);
    defaults = *std::move(stored);
  }
  return resolved(read_decoder(table, defaults));
}

void default_vocabulary(const JobTable& table, DecoderConfig& decoder, const DataShape& data) {
  if (table.has("vocabulary") || !read_weights_folder(table).empty()) return;
  decoder.vocabulary = std::max(decoder.vocabulary, data.vocabulary);
}

void check_decoder(const std::string& section, const DecoderConfig& config, const DataShape& data) {
  if (config.family != "gpt2" && config.family != "llama") {
    refuse(section, "family \"" + config.family + "\" is unknown; it is \"gpt2\" or \"llama\"");
  }
  check_sizes(section, config);
  check_heads(section, config);
  check_data(section, config, data);
}

double body_flops(const DecoderConfig& config, std::int64_t tokens) {
  const auto t = static_cast<double>(tokens);
  const auto width = static_cast<double>(config.width);
  const double head_size = width / static_cast<double>(config.heads);
  const double qkv_columns = width + 2.0 * static_cast<double>(config.kv_heads) * head_size;
  const double ffn_products = config.family == "llama" ? 3 : 2;
  const double products = 2.0 * t * width * (qkv_columns + width + ffn_products * static_cast<double>(config.ffn));
  const double scores = 2.0 * 2.0 * t * t / 2.0 * width;
  return static_cast<double>(config.layers) * (products + scores);
}

double head_flops(std::int64_t tokens, std::int64_t width, std::int64_t vocabulary) {
  return 2.0 * static_cast<double>(tokens) * static_cast<double>(width) * static_cast<double>(vocabulary);
}

double body_bytes(const DecoderConfig& config, std::int64_t tokens, DType precision) {
  const auto width = static_cast<double>(config.width);
  const auto ffn = static_cast<double>(config.ffn);
  const double kv = 2.0 * width * static_cast<double>(config.kv_heads) / static_cast<double>(config.heads);
  // Two norms, q, k, v, the attention's result, two branches, and the FFN before and behind its activation.
  const double ffn_values = config.family == "llama" ? 3.0 * ffn : 2.0 * ffn;
  const double activations = 2.0 * width + (width + kv) + width + 2.0 * width + ffn_values;
  const double residuals = 2.0 * width * sizeof(float);
  const double layer = activations * static_cast<double>(size_of(precision)) + residuals;
  const double ends = width * (sizeof(float) + static_cast<double>(size_of(precision)));
  return static_cast<double>(tokens) * (static_cast<double>(config.layers) * layer + ends);
}

double final_norm_bytes(const DecoderConfig& config, std::int64_t tokens, DType precision) {
  return static_cast<double>(tokens * config.width) * static_cast<double>(size_of(precision));
}

}  // namespace maestro
