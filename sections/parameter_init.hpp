// SPDX-License-Identifier: Apache-2.0
// Initial values of parameters. Each parameter draws from a stream of its own, so that its values depend on the job's
// seed, the section's name and the parameter's name alone: neither on the other parameters nor on who builds it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace maestro {

/// FNV-1a (Fowler, Noll, Vo; 64 bits) over the section's name, a zero byte and the parameter's name.
[[nodiscard]] std::uint64_t parameter_stream(std::string_view section, std::string_view parameter);

/// Makes the `initialise` functions of ParameterSpec for a section.
class ParameterInit {
 public:
  using Fill = std::function<void(std::span<float>)>;
  ParameterInit(std::uint64_t seed, std::string section) : seed_(seed), section_(std::move(section)) {}

  /// Normal values of mean 0.
  [[nodiscard]] Fill normal(std::string_view parameter, double deviation) const;
  /// Uniform values in [-bound, bound).
  [[nodiscard]] Fill uniform(std::string_view parameter, double bound) const;
  [[nodiscard]] static Fill constant(float value);

 private:
  std::uint64_t seed_;
  std::string section_;
};

}  // namespace maestro
