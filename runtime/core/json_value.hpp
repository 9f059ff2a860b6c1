// SPDX-License-Identifier: Apache-2.0
// A value of a JSON document with its place, so that every reader refuses a value in the same words. Not a public
// header: only sources that read JSON include it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/json_text.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// A view of a value, or of an absent one; the document and the name of its file outlive it. Every reader throws
/// JobError, "FILE: samples[3].id: expected a whole number from 0 to 7, got "a"" or "FILE: samples[3].id is missing".
/// The parameter `absent` is the value of an absent one.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& value, const std::string& file, std::string path = {})
      : value_(&value), file_(&file), path_(std::move(path)) {}

  explicit operator bool() const { return value_ != nullptr; }  ///< false: absent
  [[nodiscard]] bool null() const { return value_ == nullptr || value_->is_null(); }
  [[nodiscard]] const nlohmann::json& json() const;  ///< null if it is absent
  [[nodiscard]] const std::string& file() const { return *file_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Throws "FILE: PATH: PROBLEM".
  [[noreturn]] void fail(const std::string& problem) const;
  /// Throws "FILE: PATH = VALUE REASON".
  [[noreturn]] void refuse(const std::string& reason) const;
  /// Throws "FILE: PATH: expected WHAT, got VALUE".
  [[noreturn]] void expected(const std::string& what) const;

  [[nodiscard]] JsonValue at(std::string_view key) const;
  /// Returns the member, absent also if it is null, as other programs read their files.
  [[nodiscard]] JsonValue find(std::string_view key) const;
  [[nodiscard]] std::vector<std::pair<std::string, JsonValue>> members() const;
  [[nodiscard]] std::vector<JsonValue> items() const;
  /// Throws for a key of an object that is not in `keys`, with the nearest key that is.
  void allow_keys(std::initializer_list<std::string_view> keys) const;

  [[nodiscard]] std::string text(std::optional<std::string> absent = {}) const;
  [[nodiscard]] std::vector<std::string> texts() const;
  [[nodiscard]] std::map<std::string, std::string> texts_by_key() const;
  [[nodiscard]] bool flag(std::optional<bool> absent = {}) const;
  [[nodiscard]] std::int64_t whole_number(std::int64_t low, std::int64_t high = INT64_MAX,
                                          std::optional<std::int64_t> absent = {}) const;
  [[nodiscard]] std::uint64_t count(std::uint64_t most = UINT64_MAX, std::optional<std::uint64_t> absent = {}) const;
  [[nodiscard]] double number(double low = -std::numeric_limits<double>::infinity(),
                              double high = std::numeric_limits<double>::infinity()) const;
  [[nodiscard]] double positive(std::optional<double> absent = {}) const;
  /// Returns the value that `names` has for the text.
  template <class T>
  [[nodiscard]] T choice(const std::map<std::string, T, std::less<>>& names) const {
    const auto found = names.find(text());
    if (found != names.end()) return found->second;
    std::vector<std::string> known;
    for (const auto& [name, value] : names) known.push_back(name);
    refuse_choice(known);
  }
  [[noreturn]] void refuse_choice(std::span<const std::string> supported) const;

 private:
  [[nodiscard]] std::string place() const;

  const nlohmann::json* value_;  // null: absent
  const std::string* file_;
  std::string path_;  // "samples[3].id"; empty for the document
};

/// Returns read(root) of the document in `text`, which `file` names; a JobError becomes an error of the given code.
template <class Read>
auto read_json(std::string_view text, const std::string& file, ErrorCode code, const Read& read)
    -> Result<decltype(read(std::declval<const JsonValue&>()))> {
  try {
    const nlohmann::json document = parse_json(text, file).value_or_throw();
    return read(JsonValue(document, file));
  } catch (const JobError& error) {
    return Error{code, error.what()};
  }
}

}  // namespace maestro
