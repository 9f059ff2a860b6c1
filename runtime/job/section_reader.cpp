// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "runtime/core/printable.hpp"
#include "runtime/job/job_reader.hpp"

namespace maestro {
namespace {

constexpr NumberRange not_negative{.min = 0.0};
constexpr NumberRange positive{.min = 0.0, .min_open = true};
constexpr NumberRange decay{.min = 0.0, .max = 1.0, .max_open = true};
// Far above any model, and small enough that products of two sizes fit an int64.
constexpr std::int64_t no_bound = std::int64_t{1} << 31;  // of samples: a global batch is smaller
constexpr Range size_range{.min = 1, .max = std::int64_t{1} << 31};
constexpr Range size_or_automatic{.min = 0, .max = size_range.max};

std::string setting(std::string_view key, std::int64_t value) {
  return std::string(key) + " = " + std::to_string(value);
}

/// The divisor of `whole` nearest to `wanted`, the smaller of two.
std::int64_t nearest_divisor(std::int64_t whole, std::int64_t wanted) {
  std::int64_t best = 1;
  const auto consider = [&](std::int64_t divisor) {
    const auto distance = std::abs(divisor - wanted), best_distance = std::abs(best - wanted);
    if (distance < best_distance || (distance == best_distance && divisor < best)) best = divisor;
  };
  for (std::int64_t i = 1; i * i <= whole; ++i) {
    if (whole % i != 0) continue;
    consider(i);
    consider(whole / i);
  }
  return best;
}

/// "cpu:K" or "cuda:K"; whether it is there is seen when sections are placed.
bool is_device(std::string_view device) {
  constexpr std::size_t most_digits = 4;
  const std::string_view kind = device.starts_with("cuda:") ? "cuda:" : "cpu:";
  if (!device.starts_with(kind)) return false;
  device.remove_prefix(kind.size());
  const bool digits = std::all_of(device.begin(), device.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits && !device.empty() && device.size() <= most_digits;
}

void check_devices(const JobTable& section, const SectionConfig& config) {
  if (config.emulated() && config.devices_of_replica() > 1) {
    section.fail_among({"tensor", "context", "pipeline", "devices"},
                       "an emulated section has one device per replica; leave tensor, context and pipeline at 1 and " +
                           std::string("let emulation.gflops stand for all its devices"));
  }
  if (config.emulated()) return;
  for (const auto& device : config.devices) {
    if (is_device(device)) continue;
    section.fail("devices", "\"" + printable(device) +
                                "\" is no device; expected cpu:K or cuda:K, for example cpu:0, or emulated alone");
  }
  const auto named = static_cast<std::int64_t>(config.devices.size());
  const std::int64_t needed = config.replicas * config.devices_of_replica();
  if (named == 0 || named == needed) return;
  const std::string names = "names " + std::to_string(named) + (named == 1 ? " device" : " devices") + " for ";
  if (config.devices_of_replica() == 1) {
    section.fail_among({"devices", "replicas"}, names + setting("replicas", config.replicas) +
                                                    "; name one per replica, or none to place them automatically");
  }
  section.fail_among({"devices", "tensor", "context", "pipeline", "replicas"},
                     names + "replicas x pipeline x context x tensor = " + std::to_string(needed) + "; name " +
                         std::to_string(needed) + ", or none to place them automatically");
}

void check_heads(const JobTable& section, const DecoderConfig& config) {
  if (config.width % config.heads != 0) {
    section.fail_among({"heads", "width"},
                       setting("heads", config.heads) + " does not divide " + setting("width", config.width) +
                           "; nearest that does: " + std::to_string(nearest_divisor(config.width, config.heads)));
  }
  const std::int64_t kv_heads = config.kv_heads == 0 ? config.heads : config.kv_heads;
  if (config.heads % kv_heads != 0) {
    section.fail_among({"kv_heads", "heads"},
                       setting("kv_heads", kv_heads) + " does not divide " + setting("heads", config.heads) +
                           "; nearest that does: " + std::to_string(nearest_divisor(config.heads, kv_heads)));
  }
  if (config.family == "gpt2" && kv_heads != config.heads) {
    section.fail_among({"kv_heads", "family"},
                       "family \"gpt2\" has no grouped-query attention; leave kv_heads out or set family = \"llama\"");
  }
  const std::int64_t head_size = config.width / config.heads;
  if (config.family == "llama" && head_size % 2 != 0) {
    section.fail_among({"heads", "width", "family"},
                       "rotary positions need an even head size, but width / heads = " + std::to_string(head_size));
  }
}

}  // namespace

OptimizerConfig read_optimizer(const JobTable& section, OptimizerConfig defaults) {
  OptimizerConfig out = std::move(defaults);
  out.lr = section.number("lr", out.lr, not_negative);
  out.min_lr = section.number("min_lr", out.min_lr, not_negative);
  out.warmup_steps = section.integer("warmup_steps", out.warmup_steps, {.min = 0, .max = most_counted});
  out.schedule = section.choice("schedule", out.schedule, {"cosine", "linear", "constant"});
  out.weight_decay = section.number("weight_decay", out.weight_decay, not_negative);
  out.beta1 = section.number("beta1", out.beta1, decay);
  out.beta2 = section.number("beta2", out.beta2, decay);
  out.epsilon = section.number("epsilon", out.epsilon, positive);
  out.clip_norm = section.number("clip_norm", out.clip_norm, not_negative);
  if (out.min_lr > out.lr) {
    section.fail_among({"min_lr", "lr"}, "min_lr is the end of the schedule and must not exceed lr");
  }
  return out;
}

SectionConfig read_section(const JobTable& section, std::string name, SectionConfig defaults, Training training) {
  SectionConfig out = std::move(defaults);
  out.name = std::move(name);
  out.replicas = section.integer("replicas", out.replicas, {.min = 1, .max = 4096});
  constexpr Range degree{.min = 1, .max = 1024};
  out.tensor = section.integer("tensor", out.tensor, degree);
  out.context = section.integer("context", out.context, degree);
  out.pipeline = section.integer("pipeline", out.pipeline, degree);
  if (section.has("micro_batch_tokens") && !section.has("micro_batch")) out.micro_batch = no_bound;
  out.micro_batch = section.integer("micro_batch", out.micro_batch, {.min = 1, .max = no_bound});
  out.micro_batch_tokens =
      section.integer("micro_batch_tokens", out.micro_batch_tokens, {.min = 0, .max = most_counted});
  out.devices = section.texts("devices", out.devices);
  const auto precision = section.choice("precision", std::string(name_of(out.precision)), {"fp32", "bf16"});
  out.precision = precision == "bf16" ? DType::bf16 : DType::f32;
  out.weights = section.text("weights", out.weights);
  out.random = out.weights == random_weights;
  if (out.random) out.weights.clear();
  out.share = section.number("share", out.share, {.min = 0.0, .max = 1.0, .min_open = true});
  out.memory_mib = section.integer("memory_mib", out.memory_mib, {.min = 0, .max = most_counted});
  out.max_in_flight = section.integer("max_in_flight", out.max_in_flight, {.min = 1, .max = most_slots});
  if (training == Training::optimized) out.trained = section.flag("trained", out.trained);
  if (training == Training::optimized) out.zero = section.flag("zero", out.zero);
  if (training == Training::optimized) out.optimizer = read_optimizer(section, out.optimizer);
  check_devices(section, out);
  return out;
}

DecoderConfig read_decoder(const JobTable& section, DecoderConfig defaults) {
  DecoderConfig out = std::move(defaults);
  out.family = section.choice("family", out.family, {"gpt2", "llama"});
  out.layers = section.integer("layers", out.layers, {.min = 1, .max = 65536});
  out.width = section.integer("width", out.width, size_range);
  out.heads = section.integer("heads", out.heads, size_range);
  out.kv_heads = section.integer("kv_heads", out.kv_heads, size_or_automatic);
  out.ffn = section.integer("ffn", out.ffn, size_or_automatic);
  out.vocabulary = section.integer("vocabulary", out.vocabulary, {.min = 2, .max = size_range.max});
  out.positions = section.integer("positions", out.positions, size_range);
  out.tied = section.flag("tied", out.tied);
  out.rope_theta = section.number("rope_theta", out.rope_theta, positive);
  out.norm_epsilon = section.number("norm_epsilon", out.norm_epsilon, positive);
  out.init_std = section.number("init_std", out.init_std, positive);
  check_heads(section, out);
  return out;
}

}  // namespace maestro
