// SPDX-License-Identifier: Apache-2.0
#include "sections/weight_version.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <span>

#include "runtime/core/result.hpp"
#include "sections/parameter_holders.hpp"

namespace maestro {

namespace {

constexpr std::int64_t most_at_once = std::int64_t{1} << 16;  // elements that are rounded at once

void round_to(std::span<const float> values, DType dtype, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, values.data(), values.size_bytes());
    return;
  }
  auto* const rounded = reinterpret_cast<bfloat16*>(to);
  for (std::size_t at = 0; at < values.size(); ++at) rounded[at] = bfloat16(values[at]);
}

/// Writes elements [first, first + to.size()) of a tensor in f32 or bf16.
void widen(const ConstTensor& tensor, std::size_t first, std::span<float> to) {
  if (tensor.dtype() == DType::f32) {
    std::ranges::copy(tensor.span<float>().subspan(first, to.size()), to.begin());
    return;
  }
  const std::span<const bfloat16> from = tensor.span<bfloat16>().subspan(first, to.size());
  for (std::size_t at = 0; at < to.size(); ++at) to[at] = float(from[at]);
}

/// Calls `use` with every part that has elements in `own`, and its range of them.
void for_each_part(const std::vector<WeightPart>& parts, RowRange own,
                   const std::function<void(const WeightPart&, RowRange)>& use) {
  std::int64_t first = 0;
  for (const WeightPart& part : parts) {
    const std::int64_t begin = std::max(own.first - first, std::int64_t{0});
    const std::int64_t end = std::min(own.end() - first, part.elements());
    if (begin < end) use(part, {begin, end - begin});
    first += part.elements();
  }
}

std::vector<RowRange> rows_of(const Parameter& parameter) {
  std::vector<RowRange> rows;
  for (const Parameter::Run& run : parameter.runs()) rows.push_back({run.whole_row, run.rows});
  return rows;
}

}  // namespace

std::vector<WeightPart> sent_weights(Section& section, const ParallelContext& parallel) {
  std::set<const Parameter*> copies;
  for (const StateEntry& entry : section.state()) {
    if (entry.copy) copies.insert(entry.parameter);
  }
  std::vector<WeightPart> parts;
  for (const Parameter& parameter : section.parameters().all()) {
    if (copies.contains(&parameter) || !is_counted(parallel, parameter.holding())) continue;
    const Shape& whole = parameter.whole_shape();
    const ParameterSlice::Range columns = parameter.columns();
    parts.push_back({parameter.name(), whole[0], whole.elements() / whole[0], rows_of(parameter),
                     RowRange{columns.first, columns.count}});
  }
  return parts;
}

std::map<std::string, std::int64_t> weight_elements(Section& section) {
  std::map<std::string, std::int64_t> elements;
  for (const Parameter& parameter : section.parameters().all()) {
    elements[parameter.name()] = parameter.shape().elements();
  }
  return elements;
}

void copy_weights(Section& section, const std::vector<WeightPart>& parts, RowRange own, DType dtype, std::byte* to) {
  Parameters& parameters = section.parameters();
  std::vector<float> values(static_cast<std::size_t>(std::min(own.count, most_at_once)));
  for_each_part(parts, own, [&](const WeightPart& part, RowRange range) {
    const std::byte* from = parameters.find(part.name)->value().raw();
    for (std::int64_t at = range.first; at < range.end(); at += most_at_once) {
      const std::span<float> some =
          std::span(values).first(static_cast<std::size_t>(std::min(most_at_once, range.end() - at)));
      parameters.memory().read(reinterpret_cast<std::byte*>(some.data()),
                               from + static_cast<std::size_t>(at) * sizeof(float), some.size_bytes());
      round_to(some, dtype, to);
      to += some.size() * size_of(dtype);
    }
  });
}

void copy_weights(const std::vector<SafetensorsFile>& stored, const std::vector<WeightPart>& parts, RowRange own,
                  DType dtype, std::byte* to) {
  for_each_part(parts, own, [&](const WeightPart& part, RowRange range) {
    const auto file = std::ranges::find_if(stored, [&](const auto& each) { return each.contains(part.name); });
    const std::string folder = stored.front().path().parent_path().string();
    if (file == stored.end()) throw JobError(folder + " lacks '" + part.name + "'", ErrorCode::corrupt);
    const ConstTensor tensor = file->tensor(part.name).value_or_throw();
    if (tensor.elements() != part.rows * part.columns ||
        (tensor.dtype() != DType::f32 && tensor.dtype() != DType::bf16)) {
      throw JobError(file->path().string() + ": '" + part.name + "' has " + std::to_string(tensor.elements()) +
                         " values, and the model has " + std::to_string(part.rows * part.columns),
                     ErrorCode::corrupt);
    }
    std::vector<float> values;
    for_each_run(part, [&](const WeightRun& run) {
      const std::int64_t begin = std::max(run.in_version, range.first);
      const std::int64_t end = std::min(run.in_version + run.count, range.end());
      if (begin >= end) return;
      const auto first = static_cast<std::size_t>(run.in_parameter + begin - run.in_version);
      const auto count = static_cast<std::size_t>(end - begin);
      if (tensor.dtype() == dtype) {
        std::memcpy(to, tensor.raw() + first * size_of(dtype), count * size_of(dtype));
      } else {
        values.resize(count);
        widen(tensor, first, values);
        round_to(values, dtype, to);
      }
      to += count * size_of(dtype);
    });
  });
}

void take_weights(Section& section, const VersionMap& map, const ConstTensor& version) {
  Parameters& parameters = section.parameters();
  for (Parameter& parameter : parameters.all()) {
    parameters.load(parameter, [&](std::span<float> values, std::int64_t first) {
      const std::int64_t at = first * (parameter.shape().elements() / parameter.shape()[0]);
      map.for_each_run(parameter.name(), [&](const WeightRun& run) {
        const std::int64_t begin = std::max(run.in_parameter, at);
        const std::int64_t end = std::min(run.in_parameter + run.count, at + std::ssize(values));
        if (begin >= end) return;
        widen(version, static_cast<std::size_t>(run.in_version + begin - run.in_parameter),
              values.subspan(static_cast<std::size_t>(begin - at), static_cast<std::size_t>(end - begin)));
      });
    });
  }
}

WholeWeights whole_weights(const VersionMap& map, const ConstTensor& version) {
  const std::size_t size = size_of(version.dtype());
  WholeWeights whole;
  whole.memory = AlignedMemory(static_cast<std::size_t>(map.elements()) * size);
  std::size_t first = 0;
  for (const auto& [name, elements] : map.parameters()) {
    std::byte* const begin = whole.memory.data() + first * size;
    map.for_each_run(name, [&](const WeightRun& run) {
      std::memcpy(begin + static_cast<std::size_t>(run.in_parameter) * size,
                  version.raw() + static_cast<std::size_t>(run.in_version) * size,
                  static_cast<std::size_t>(run.count) * size);
    });
    whole.tensors.push_back({name, ConstTensor(begin, version.dtype(), Shape{elements})});
    first += static_cast<std::size_t>(elements);
  }
  return whole;
}

}  // namespace maestro
