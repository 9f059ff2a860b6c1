// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/generator.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

void Generator::forward(Tape& /*tape*/, const Inputs& /*inputs*/, Outputs& /*outputs*/) {
  throw std::logic_error("a generator does not compute micro-batches");
}

WeightVersion read_weights(const SafetensorsFile& file, StepId step) {
  WeightVersion version{step, {}, {}};
  for (const auto& [name, tensor] : file.tensors().value_or_throw()) {
    if (tensor.dtype() != DType::f32) {
      throw JobError(file.path().string() + ": '" + name + "' is not f32", ErrorCode::corrupt);
    }
    const std::span<const float> values = tensor.span<float>();
    version.parts.push_back({name, version.values.size(), values.size()});
    version.values.insert(version.values.end(), values.begin(), values.end());
  }
  return version;
}

WeightVersion copy_weights(Section& section, StepId step) {
  Parameters& parameters = section.parameters();
  WeightVersion version{step, {}, std::vector<float>(static_cast<std::size_t>(parameters.added_elements()))};
  std::size_t first = 0;
  for (Parameter& parameter : parameters.all()) {
    const auto count = static_cast<std::size_t>(parameter.shape().elements());
    parameters.memory().read(reinterpret_cast<std::byte*>(version.values.data() + first), parameter.value().raw(),
                             count * sizeof(float));
    version.parts.push_back({parameter.name(), first, count});
    first += count;
  }
  return version;
}

void take_weights(Section& section, const WeightVersion& version, DType precision) {
  std::map<std::string_view, const WeightVersion::Part*> parts;
  for (const WeightVersion::Part& part : version.parts) parts[part.name] = &part;
  Parameters& parameters = section.parameters();
  for (Parameter& parameter : parameters.all()) {
    const auto found = parts.find(parameter.name());
    if (found == parts.end() || found->second->count != static_cast<std::size_t>(parameter.shape().elements())) {
      throw JobError("the version before step " + std::to_string(version.step.value()) + " lacks values for '" +
                         parameter.name() + "' " + parameter.shape().to_string(),
                     ErrorCode::internal);
    }
    parameters.load(parameter, [&](std::span<float> values) {
      std::copy_n(version.values.begin() + static_cast<std::ptrdiff_t>(found->second->first), values.size(),
                  values.begin());
      if (precision != DType::bf16) return;
      for (float& value : values) value = float(bfloat16(value));
    });
  }
}

}  // namespace maestro
