// SPDX-License-Identifier: Apache-2.0
#include "sections/memory/memory_layer.hpp"

#include <charconv>
#include <cmath>
#include <string>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/job_reader.hpp"
#include "sections/decoder/short_convolution.hpp"
#include "sections/memory/ngram_memory.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

MemoryConfig read_memory(const JobTable& decoder, const JobTable& root, std::int64_t layers) {
  const std::int64_t layer = decoder.integer(
      "memory_layer", -1, {},
      {"the layer, from 0 on, that reads a memory before its mixer: port `memory` takes its rows; absent: none"});
  const std::string name = decoder.text("memory", "memory", {"with memory_layer: the section whose rows are read"});
  if (!decoder.has("memory_layer")) {
    if (decoder.has("memory")) decoder.fail("memory", "is without effect without memory_layer; set that, too");
    return {};
  }
  if (layer < 0 || layer >= layers) {
    decoder.fail("memory_layer", std::to_string(layer) + " is not a layer: the decoder has " + std::to_string(layers) +
                                     " layers; the nearest is " + std::to_string(layer < 0 ? 0 : layers - 1));
  }
  const auto wanted = [](const std::string& type) { return type == ngram_memory_type; };
  if (!root.holds_table(name) || !wanted(read_type(root.table(name), ""))) {
    std::vector<std::string> memories;
    for (const std::string& table : root.tables_with("type")) {
      if (wanted(read_type(root.table(table), ""))) memories.push_back(table);
    }
    const auto near = nearest_name(name, memories);
    decoder.fail_among({"memory", "memory_layer"}, "needs a section '" + printable(name) + "' of type \"" +
                                                       ngram_memory_type + "\"" +
                                                       (near               ? "; the nearest is '" + *near + "'"
                                                        : memories.empty() ? "; the job has none"
                                                                           : ""));
  }
  const JobTable memory = root.table(name);
  const NGramShape shape = read_ngram_shape(memory);
  return {shape.columns(), shape.orders, layer, read_precision(memory)};
}

MemoryWeights add_memory(ParameterBuilder& add, const DecoderConfig& config) {
  const std::string prefix = std::string(memory_prefix) + "layers." + std::to_string(config.memory.layer) + ".";
  const std::int64_t width = config.width;
  const auto product = [&](const char* name) {
    return &add.stored(add.matrix(prefix + name + ".weight", Shape{width, config.memory.columns}, config.init_std));
  };
  const auto norm = [&](const char* name) { return &add.stored(add.vector(prefix + name + ".weight", width, 0.0F)); };
  MemoryWeights weights;
  weights.key = product("key_proj");
  weights.value = product("value_proj");
  weights.key_norm = norm("norm_key");
  weights.query_norm = norm("norm_query");
  weights.value_norm = norm("norm_conv");
  weights.filter =
      &add.undecayed(prefix + "conv1d.weight", Shape{width, 1, filter_width}, ParameterInit::constant(0), {});
  return weights;
}

MemoryConfig stored_memory(const std::filesystem::path& decoder) {
  const WeightsFolder weights = WeightsFolder::open(decoder).value_or_throw();
  const std::string begin = std::string(memory_prefix) + "layers.", end = ".key_proj.weight";
  for (const std::string& name : weights.names()) {
    if (!name.starts_with(begin) || !name.ends_with(end)) continue;
    MemoryConfig config;
    const char* const last = name.data() + name.size() - end.size();
    const auto [stop, error] = std::from_chars(name.data() + begin.size(), last, config.layer);
    if (error != std::errc() || stop != last) continue;
    config.columns = weights.described(name).value_or_throw().columns();
    return config;
  }
  return {};
}

Stream with_memory(Tape& tape, const Stream& x, const Var& rows, const MemoryWeights& weights,
                   const MemoryConfig& config, BlockOptions options, const SequenceLayout& layout) {
  options.convolution = {.width = filter_width, .dilation = config.orders, .silu = true};
  const double epsilon = options.norm.epsilon;
  const auto norm = [&](const Var& of, Parameter* weight) { return rms_norm(tape, of, *weight, epsilon, 1); };
  const Var stream = whole(tape, x);
  const Var memory = converted(tape, rows, tape.compute());
  const Var key = norm(linear(tape, memory, *weights.key, nullptr), weights.key_norm);
  const Var scores = dot(tape, key, norm(stream, weights.query_norm));
  const Var gate = memory_gate(tape, scores, 1 / std::sqrt(static_cast<double>(stream.value().columns())));
  const Var value = mul(tape, linear(tape, memory, *weights.value, nullptr), gate);
  const Var filtered = short_convolution(tape, norm(value, weights.value_norm), {weights.filter}, options, layout);
  return {add(tape, stream, value), filtered};
}

}  // namespace maestro
