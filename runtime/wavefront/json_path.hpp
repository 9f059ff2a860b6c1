// SPDX-License-Identifier: Apache-2.0
// A value of a JSON file together with its place there, so that an error names file and place in a single line. Not a
// public header: only sources that read JSON include it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maestro {

/// Views: the value and the file name outlive it. Every reader throws JobError naming file and place.
class JsonPath {
 public:
  JsonPath(const nlohmann::json& value, const std::string& file_name, std::string path = {})
      : value_(&value), file_name_(&file_name), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& problem) const;
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Throws for a key of an object that is not in `keys`, with the nearest key that is.
  void allow_keys(std::initializer_list<std::string_view> keys) const;
  [[nodiscard]] JsonPath required(std::string_view key) const;
  [[nodiscard]] std::optional<JsonPath> optional(std::string_view key) const;
  [[nodiscard]] std::vector<std::pair<std::string, JsonPath>> members() const;
  [[nodiscard]] bool is_list() const;
  [[nodiscard]] bool is_null() const;
  [[nodiscard]] std::vector<JsonPath> items() const;  ///< of a list

  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::int64_t whole_number(std::int64_t low, std::int64_t high) const;
  [[nodiscard]] double number(double low, double high) const;
  [[nodiscard]] double milliseconds() const;  ///< 0 or more, at most 10^9

 private:
  [[noreturn]] void expected(std::string_view what) const;

  const nlohmann::json* value_;
  const std::string* file_name_;
  std::string path_;  // "samples[3].forward_ms"; empty for the whole file
};

/// "; did you mean 'vision'?" or "; there are: ...".
std::string nearest_text(std::string_view name, std::span<const std::string> known);

}  // namespace maestro
