// SPDX-License-Identifier: Apache-2.0
#include "sections/parameter_init.hpp"

#include <algorithm>

#include "runtime/core/normal_values.hpp"
#include "runtime/core/random.hpp"

namespace maestro {

std::uint64_t parameter_stream(std::string_view section, std::string_view parameter) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  for (const char c : section) mix(static_cast<unsigned char>(c));
  mix(0);
  for (const char c : parameter) mix(static_cast<unsigned char>(c));
  return hash;
}

ParameterInit::Fill ParameterInit::normal(std::string_view parameter, double deviation) const {
  return [seed = seed_, stream = parameter_stream(section_, parameter), deviation](std::span<float> values) {
    fill_normal(seed, stream, deviation, values);
  };
}

ParameterInit::Fill ParameterInit::uniform(std::string_view parameter, double bound) const {
  return [seed = seed_, stream = parameter_stream(section_, parameter), bound](std::span<float> values) {
    Random random(seed, stream);
    for (float& value : values) value = static_cast<float>((2.0 * random.uniform() - 1.0) * bound);
  };
}

ParameterInit::Fill ParameterInit::constant(float value) {
  return [value](std::span<float> values) { std::fill(values.begin(), values.end(), value); };
}

}  // namespace maestro
