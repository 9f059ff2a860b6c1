// SPDX-License-Identifier: Apache-2.0
// Values of a JSON file with their paths of keys. Not a public header: only sources that read JSON include it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/json_text.hpp"

namespace maestro {

inline constexpr std::int64_t most_tokens = std::int64_t{1} << 24;  ///< of a vocabulary

/// A value with its path of keys, for messages. Every reader throws JobError. The value outlives the
/// node.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string path) : value_(&value), path_(std::move(path)) {}
  [[nodiscard]] const nlohmann::json& value() const { return *value_; }
  [[noreturn]] void fail(const std::string& problem) const { throw JobError(path_ + " " + problem); }
  [[nodiscard]] bool null() const { return value_->is_null(); }
  [[nodiscard]] JsonNode at(std::string_view key) const {
    static const nlohmann::json nothing;
    if (!value_->is_object()) fail(null() ? "is missing" : "is " + shown(*value_) + "; it must be an object");
    const auto found = value_->find(key);
    return {found == value_->end() ? nothing : *found, join_json_path(path_, key)};
  }
  [[nodiscard]] std::vector<JsonNode> list() const {
    if (!value_->is_array()) fail("is " + shown(*value_) + "; it must be a list");
    std::vector<JsonNode> nodes;
    for (std::size_t i = 0; i < value_->size(); ++i)
      nodes.emplace_back((*value_)[i], path_ + "[" + std::to_string(i) + "]");
    return nodes;
  }
  [[nodiscard]] std::string text(std::optional<std::string> absent = {}) const {
    if (null() && absent) return *absent;
    if (!value_->is_string()) fail(null() ? "is missing" : "is " + shown(*value_) + "; it must be text");
    return value_->get<std::string>();
  }
  [[nodiscard]] bool flag(bool absent) const {
    if (null()) return absent;
    if (!value_->is_boolean()) fail("is " + shown(*value_) + "; it must be true or false");
    return value_->get<bool>();
  }
  [[nodiscard]] std::int32_t id() const {
    if (!value_->is_number_integer() || *value_ < 0 || *value_ >= most_tokens) {
      fail("is " + shown(*value_) + "; it must be a token id, from 0 to 2^24 - 1");
    }
    return value_->get<std::int32_t>();
  }
  [[nodiscard]] std::size_t count() const {
    if (null()) return 0;
    if (!value_->is_number_integer() || *value_ < 0) fail("is " + shown(*value_) + "; it must be a whole number");
    return value_->get<std::size_t>();
  }
  /// Returns the value that `names` has for the text.
  template <class T>
  [[nodiscard]] T choice(const std::map<std::string, T, std::less<>>& names) const {
    const auto found = names.find(text());
    if (found != names.end()) return found->second;
    std::string known;
    for (const auto& [name, value] : names) known += (known.empty() ? "" : ", ") + name;
    fail("= " + shown(*value_) + " is not supported; supported: " + known);
  }

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace maestro
