// SPDX-License-Identifier: Apache-2.0
#include "actors/job/memory_estimate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runtime/core/mxfp4.hpp"
#include "runtime/core/result.hpp"
#include "runtime/ops/cpu/isa.hpp"
#include "sections/model_config.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

constexpr double mib = 1024.0 * 1024.0;
constexpr double bytes_of_f32 = sizeof(float);
constexpr double bytes_of_bf16 = sizeof(bfloat16);
constexpr double bytes_of_device_chunk = 256 * mib;  // a micro-batch's memory on a GPU grows in such chunks

/// Returns how many packed forms a matrix has that products of both directions read in bf16.
double bf16_forms(const MemoryDemand& demand) {
  return demand.on_cuda || cpu::best_products_pack_once() ? 1 : 2;
}

/// Returns the bytes of frozen values. In bf16, vectors stay in f32, and so do tables with rows that bf16 cannot hold
/// (PA-6). `forms`: packed forms of a matrix.
double frozen_bytes(const MemoryDemand& demand, const HeldElements& held, double forms) {
  const double blocks = static_cast<double>(held.blocks) * (mxfp4_bytes + 1) / mxfp4_block;
  if (demand.precision == DType::f32) return static_cast<double>(held.all - held.blocks) * bytes_of_f32 + blocks;
  const std::int64_t table_alone = held.tied ? 0 : held.table;
  const auto vectors = static_cast<double>(held.all - held.matrices - table_alone);
  double bytes =
      blocks + vectors * bytes_of_f32 + forms * static_cast<double>(held.matrices - held.blocks) * bytes_of_bf16;
  if (demand.from_file) return bytes + static_cast<double>(table_alone) * bytes_of_bf16;
  return bytes + static_cast<double>(held.table) * bytes_of_f32;
}

double parameter_bytes(const MemoryDemand& demand) {
  const HeldElements& held = demand.held;
  if (demand.shared) return held.extra_bytes;
  if (!demand.trained && !demand.keeps_activations) return frozen_bytes(demand, held, 1) + held.extra_bytes;
  const double bytes = static_cast<double>(held.all) * bytes_of_f32 +
                       frozen_bytes(demand, demand.below, bf16_forms(demand)) + held.extra_bytes;
  if (demand.precision == DType::f32) return bytes;  // products read the values themselves
  // A CPU packs matrices; a GPU's products read a copy of all values.
  return bytes + bf16_forms(demand) * static_cast<double>(demand.on_cuda ? held.all : held.matrices) * bytes_of_bf16;
}

HeldElements held_elements(Parameters& parameters, const ProductParameters& products) {
  HeldElements held;
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.rule().by_rows()) {  // the values and a sum of squares by row
      held.extra_bytes += static_cast<double>(parameter.shape().elements() + parameter.shape()[0]) * bytes_of_f32;
      held.tables.push_back({static_cast<std::size_t>(parameter.shape()[0]),
                             static_cast<std::size_t>(parameter.shape().columns()),
                             static_cast<std::size_t>(parameter.rule().per_token)});
    } else {
      held.all += parameter.shape().elements();
    }
    held.largest = std::max(held.largest, parameter.shape().elements());
  }
  for (const Parameter* matrix : products.matrices) {
    held.matrices += matrix->shape().elements();
    held.tied = held.tied || matrix == products.table;
  }
  if (products.table != nullptr) held.table = products.table->shape().elements();
  return held;
}

/// Returns the elements of parameters whose values `weights` holds in blocks, complete in the rows of a rank.
std::int64_t elements_in_blocks(Section& section, const std::filesystem::path& weights) {
  const std::vector<StateEntry> entries = section.state();
  if (weights.empty() || std::ranges::none_of(entries, &StateEntry::grouped)) return 0;
  const Result<WeightsFolder> folder = WeightsFolder::open(weights, part_of_config(section.config_json()));
  std::int64_t elements = 0;
  for (const StateEntry& entry : entries) {  // a folder that cannot be read is refused when it is loaded
    const Parameter& parameter = *entry.parameter;
    if (!folder || !entry.grouped || parameter.columns().first % mxfp4_block != 0) continue;
    if (parameter.columns().count % mxfp4_block != 0) continue;
    const auto blocks = folder->blocks(entry.name);
    if (blocks && blocks->has_value()) elements += parameter.shape().elements();
  }
  return elements;
}

}  // namespace

HeldElements held_elements(Section& section, const std::filesystem::path& weights) {
  const bool adapters = section.adapters().has_value();
  HeldElements held = held_elements(section.parameters(), adapters ? ProductParameters() : section.products());
  if (adapters) held.matrices = held.all;
  held.blocks = elements_in_blocks(section, weights);
  held.extra_bytes += section.extra_bytes();
  return held;
}

HeldElements held_below_adapters(Section& section) {
  return section.adapters() ? held_elements(*section.weights().parameters, section.products()) : HeldElements();
}

MemoryUse use_of(const MemoryDemand& demand) {
  const auto elements = static_cast<double>(demand.held.all);
  MemoryUse use;
  use.parameters = parameter_bytes(demand);
  if (demand.trained) {
    use.gradients = elements * bytes_of_f32 + demand.exchange_bytes;
    const auto moments = static_cast<double>(2 * size_of(demand.moments));
    use.optimizer = elements * moments / static_cast<double>(demand.moment_shards);
  }
  const double kept = demand.keeps_activations ? demand.sample_bytes : 0;
  double batch = (kept + demand.working_bytes) * static_cast<double>(demand.micro_batch);
  if (demand.on_cuda) batch = std::ceil(batch / bytes_of_device_chunk) * bytes_of_device_chunk;
  batch = demand.pass_bytes.value_or(batch);
  use.activations = batch * static_cast<double>(demand.in_flight);
  use.edges = demand.edge_bytes;
  use.device_edges = demand.device_edge_bytes;
  use.checkpoint = demand.checkpoint_bytes;
  return use;
}

void check_memory(const std::string& section, const MemoryDemand& demand, std::int64_t memory_mib) {
  const double limit = static_cast<double>(memory_mib) * mib;
  const MemoryUse use = use_of(demand);
  const double needed = demand.on_cuda ? use.on_device() : use.sum();
  if (memory_mib == 0 || needed <= limit) return;
  const double fixed = needed - use.activations;
  const std::string needs = section + ".micro_batch = " + std::to_string(demand.micro_batch) + " needs about " +
                            in_mib(needed) + " on each device (parameters " + in_mib(fixed) + ", activations of " +
                            std::to_string(demand.in_flight) + " micro-batches in flight " + in_mib(use.activations) +
                            "), more than memory_mib = " + std::to_string(memory_mib);
  const double one = use.activations / static_cast<double>(demand.micro_batch);
  const auto fits = static_cast<std::int64_t>((limit - fixed) / std::max(one, 1.0));
  if (limit > fixed && fits >= 1) {
    throw JobError(needs + "; nearest that fits: micro_batch = " + std::to_string(fits));
  }
  throw JobError(needs + "; not even one sample fits: raise tensor, pipeline or memory_mib" +
                 (demand.in_flight > 1 ? ", or lower max_in_flight" : ""));
}

std::string in_mib(double bytes) {
  return std::to_string(static_cast<std::int64_t>(std::ceil(bytes / mib))) + " MiB";
}

std::string text_of_bytes(double bytes) {
  char text[32];
  if (bytes < 999.5e6) {
    std::snprintf(text, sizeof text, "%.0f MB", std::ceil(bytes / 1e6));
  } else {
    std::snprintf(text, sizeof text, "%.1f GB", bytes / 1e9);
  }
  return text;
}

}  // namespace maestro
