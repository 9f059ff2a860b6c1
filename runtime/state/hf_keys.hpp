// SPDX-License-Identifier: Apache-2.0
// Reading config.json of Hugging Face models: keys with their checks. For the sources of runtime/state alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// The keys of an object, with errors that name the place. Throws JobError, which parse_hf_keys catches.
class HfKeys {
 public:
  static constexpr std::int64_t most_size = std::int64_t{1} << 31;

  HfKeys(const nlohmann::json& object, std::string_view where) : object_(object), where_(where) {}

  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw JobError(where_ + ": " + std::string(key) + " " + what);
  }
  [[nodiscard]] HfKeys inside(std::string_view key, const nlohmann::json& object) const {
    return {object, where_ + ": " + std::string(key)};
  }
  /// Null counts as absent, as it does for transformers.
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const {
    read_.emplace(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  /// Whether the key stands there, if only as null.
  [[nodiscard]] bool has(std::string_view key) const { return object_.contains(key); }
  [[nodiscard]] std::int64_t size(std::string_view key, std::optional<std::int64_t> absent = {}, std::int64_t least = 1,
                                  std::int64_t most = most_size) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr && absent) return *absent;
    if (value == nullptr) fail(key, "is missing");
    const bool good = value->is_number_integer() && *value >= least && *value <= most;
    if (!good) {
      fail(key, "is " + shown(*value) + "; it must be a whole number from " + std::to_string(least) + " to " +
                    (most == most_size ? "2^31" : std::to_string(most)));
    }
    return value->get<std::int64_t>();
  }
  /// The size under `key` or `alias`, another name of it. Both: they must agree.
  [[nodiscard]] std::int64_t aliased_size(std::string_view key, std::string_view alias,
                                          std::int64_t most = most_size) const {
    if (find(alias) == nullptr) return size(key, {}, 1, most);
    if (find(key) != nullptr && *find(key) != *find(alias)) {
      fail(key, "= " + shown(*find(key)) + " contradicts " + std::string(alias) + " = " + shown(*find(alias)) +
                    ", another name of it; remove one");
    }
    return size(alias, {}, 1, most);
  }
  [[nodiscard]] double positive(std::string_view key, double absent) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_number() || !(value->get<double>() > 0)) fail(key, "is " + shown(*value) + "; it must be above 0");
    return value->get<double>();
  }
  [[nodiscard]] bool flag(std::string_view key, bool absent) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) fail(key, "is " + shown(*value) + "; it must be true or false");
    return value->get<bool>();
  }
  /// Refuses a setting that would make another model than this program computes.
  void require_flag(std::string_view key, bool needed) const {
    if (flag(key, needed) != needed) {
      fail(key, std::string(needed ? "= false" : "= true") + " is not supported; only " + (needed ? "true" : "false") +
                    " is");
    }
  }
  void require_text(std::string_view key, std::string_view absent, const std::vector<std::string>& supported) const {
    const nlohmann::json* value = find(key);
    std::string text(absent);
    if (value != nullptr) text = value->is_string() ? value->get<std::string>() : value->dump();
    if (std::ranges::find(supported, text) == supported.end()) {
      std::string names;
      for (const std::string& name : supported) names += (names.empty() ? "" : ", ") + name;
      fail(key, "= " + printable(text) + " is not supported; " +
                    (supported.size() == 1 ? "the supported one is " : "these are: ") + names);
    }
  }
  void require_absent(std::string_view key) const {
    if (find(key) != nullptr) fail(key, "is not supported; only models without it are");
  }
  /// Refuses the first key that no function above has read, since it may change the model. Keys with an empty value,
  /// false or null pass, and keys that `ignored` accepts.
  void refuse_unknown(const std::function<bool(std::string_view)>& ignored) const {
    for (const auto& [key, value] : object_.items()) {
      const bool unset = value.is_null() || value == false || (!value.is_number() && value.empty()) || value == "";
      if (unset || read_.contains(key) || ignored(key)) continue;
      fail(printable(key),
           "= " + shown(value) + " is unknown here and may change the model; if it does not, remove it");
    }
  }

 private:
  const nlohmann::json& object_;
  std::string where_;
  mutable std::set<std::string, std::less<>> read_;
};

/// The end of a refusal: a setting that a class of transformers has and passes over. Applied here, it would make
/// another model of the file.
inline std::string not_applied_by(std::string_view architecture) {
  return " is not applied by transformers' " + std::string(architecture);
}

/// read(object, where) on the JSON object that `text` holds; a JobError it throws becomes the result's error.
template <class Read>
auto parse_hf_keys(std::string_view text, std::string_view where, Read read)
    -> Result<decltype(read(nlohmann::json(), where))> {
  try {
    const nlohmann::json object = parse_json(text, std::string(where)).value_or_throw();
    if (!object.is_object()) throw JobError(std::string(where) + " is not a JSON object");
    return read(object, where);
  } catch (const JobError& error) {
    return Error{ErrorCode::invalid_argument, error.what()};
  }
}

}  // namespace maestro
