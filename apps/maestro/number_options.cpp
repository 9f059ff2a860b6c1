// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/number_options.hpp"

#include <charconv>
#include <functional>
#include <optional>
#include <sstream>
#include <string>

namespace maestro {

namespace {

/// Returns the number that the text consists of; nothing for other text, and for a number beyond the type.
template <typename Number>
std::optional<Number> number_of(const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

std::string written(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

CLI::Validator bounded(const std::string& kind, const std::string& bounds, std::function<bool(const std::string&)> is) {
  return CLI::Validator(
      [kind, bounds, is = std::move(is)](std::string& text) {
        return is(text) ? std::string() : "'" + text + "' is not a " + kind + " " + bounds;
      },
      bounds, "");
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const bool open = most == std::numeric_limits<std::int64_t>::max();
  const std::string bounds = "from " + std::to_string(least) + (open ? " on" : " to " + std::to_string(most));
  return bounded("whole number", bounds, [least, most](const std::string& text) {
    const auto value = number_of<std::int64_t>(text);
    return value && *value >= least && *value <= most && text == std::to_string(*value);
  });
}

CLI::Validator seed_number() {
  return bounded("whole number", "from 0 to 2^64 - 1", [](const std::string& text) {
    const auto value = number_of<std::uint64_t>(text);
    return value && text == std::to_string(*value);
  });
}

CLI::Validator decimal_number(double least, double most) {
  return bounded("number", "from " + written(least) + " to " + written(most), [least, most](const std::string& text) {
    const auto value = number_of<double>(text);
    return value && *value >= least && *value <= most;
  });
}

}  // namespace maestro
