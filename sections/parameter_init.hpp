// SPDX-License-Identifier: Apache-2.0
// Initial values of parameters. Each parameter draws from a separate stream, so that its values depend only on the
// job's seed, the section's name and the parameter's name, not on other parameters or the rank that builds it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace maestro {

/// Returns FNV-1a (Fowler, Noll, Vo; 64 bits) over the section's name, a zero byte and the parameter's name.
[[nodiscard]] std::uint64_t parameter_stream(std::string_view section, std::string_view parameter);

/// Makes the `initialise` functions of ParameterSpec for a section.
class ParameterInit {
 public:
  using Fill = std::function<void(std::span<float>)>;
  ParameterInit(std::uint64_t seed, std::string section) : seed_(seed), section_(std::move(section)) {}

  /// Draws normal values of mean 0.
  [[nodiscard]] Fill normal(std::string_view parameter, double deviation) const;
  /// Draws uniform values in [-bound, bound).
  [[nodiscard]] Fill uniform(std::string_view parameter, double bound) const;
  [[nodiscard]] static Fill constant(float value);

 private:
  std::uint64_t seed_;
  std::string section_;
};

}  // namespace maestro
