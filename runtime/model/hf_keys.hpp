// SPDX-License-Identifier: Apache-2.0
// Reads config.json of Hugging Face models: keys with their checks. Only for sources of runtime/model
// and runtime/images.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/json_value.hpp"

namespace maestro {

/// The keys of an object. As in transformers, null counts as absent; an absent object is empty. Throws JobError.
class HfKeys {
 public:
  static constexpr std::int64_t most_size = std::int64_t{1} << 31;

  explicit HfKeys(JsonValue object) : object_(std::move(object)) {}

  [[nodiscard]] const nlohmann::json& json() const { return object_.json(); }
  [[nodiscard]] JsonValue find(std::string_view key) const {
    read_.emplace(key);
    return object_ ? object_.find(key) : object_;
  }
  [[nodiscard]] HfKeys inside(std::string_view key) const { return HfKeys(find(key)); }
  [[noreturn]] void fail(std::string_view key, const std::string& problem) const { object_.at(key).fail(problem); }
  /// Returns whether the key is present, possibly as null.
  [[nodiscard]] bool has(std::string_view key) const { return object_ && object_.at(key); }
  [[nodiscard]] std::int64_t size(std::string_view key, std::optional<std::int64_t> absent = {}, std::int64_t least = 1,
                                  std::int64_t most = most_size) const {
    return find(key).whole_number(least, most, absent);
  }
  /// Returns the size under `key` or its other name `alias`; if both are present, they must agree.
  [[nodiscard]] std::int64_t aliased_size(std::string_view key, std::string_view alias,
                                          std::int64_t most = most_size) const {
    const JsonValue value = find(key), other = find(alias);
    if (!other) return size(key, {}, 1, most);
    if (value && value.json() != other.json()) {
      value.refuse("contradicts " + std::string(alias) + " = " + shown(other.json()) +
                   ", another name of it; remove one");
    }
    return size(alias, {}, 1, most);
  }
  [[nodiscard]] double positive(std::string_view key, double absent) const { return find(key).positive(absent); }
  [[nodiscard]] bool flag(std::string_view key, bool absent) const { return find(key).flag(absent); }
  /// Refuses a setting with which the model would differ from this program's computation.
  void require_flag(std::string_view key, bool needed) const {
    if (flag(key, needed) != needed)
      find(key).refuse(std::string("is not supported; only ") + (needed ? "true is" : "false is"));
  }
  void require_text(std::string_view key, std::string_view absent, const std::vector<std::string>& supported) const {
    const JsonValue value = find(key);
    std::string text(absent);
    if (value) text = value.json().is_string() ? value.text() : value.json().dump();
    if (std::ranges::find(supported, text) == supported.end()) value.refuse_choice(supported);
  }
  void require_absent(std::string_view key) const {
    if (find(key)) find(key).refuse("is not supported; only models without it are");
  }
  /// Refuses the first key that no function above has read, since it may change the model. Keys with an empty value,
  /// false or null pass, and keys that `ignored` accepts.
  void refuse_unknown(const std::function<bool(std::string_view)>& ignored) const {
    for (const auto& [key, value] : object_.members()) {
      const nlohmann::json& held = value.json();
      const bool unset = held.is_null() || held == false || (!held.is_number() && held.empty()) || held == "";
      if (unset || read_.contains(key) || ignored(key)) continue;
      value.refuse("is unknown here and may change the model; if it does not, remove it");
    }
  }

 private:
  JsonValue object_;
  mutable std::set<std::string, std::less<>> read_;
};

/// Returns true for keys that do not change a forward pass without dropout.
[[nodiscard]] bool ignored_hf_key(std::string_view key);

/// Refuses a model_type whose model is code in its own folder, with the name of a folder that needs none.
void refuse_own_code(const HfKeys& keys);

/// Returns the end of a refusal for a setting that a transformers class has but ignores. If this program applied it,
/// the model would be another.
inline std::string not_applied_by(std::string_view architecture) {
  return "is not applied by transformers' " + std::string(architecture);
}

/// Returns read(keys) for the JSON object in `text`, or the first refusal.
template <class Read>
auto parse_hf_keys(std::string_view text, std::string_view where, const Read& read) {
  return read_json(text, std::string(where), ErrorCode::invalid_argument, [&](const JsonValue& root) {
    (void)root.at("");  // checks that it is an object
    return read(HfKeys(root));
  });
}

}  // namespace maestro
