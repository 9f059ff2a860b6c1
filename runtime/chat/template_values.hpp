// SPDX-License-Identifier: Apache-2.0
// Values of a chat template, as in Python: immutable and shared, so that a copy costs the same for every size. Not a
// public header.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/chat/template_lexer.hpp"

namespace maestro {

class TemplateValue;
struct TemplateObject;
using TemplateValues = std::vector<TemplateValue>;

/// Elements of a list, a tuple, a view of a mapping, or a range.
struct TemplateSequence;
class TemplateMapping;
/// A method of a value, or a function (its receiver is undefined).
struct TemplateMethod;
/// The result of map, selectattr and similar filters: it is read once.
struct TemplateIterator;

class TemplateValue {
 public:
  enum class Kind : std::uint8_t {
    undefined,
    none,
    boolean,
    integer,
    real,
    text,
    list,
    tuple,
    view,  ///< view of a mapping: keys, values, items
    range,
    mapping,
    iterator,
    method,
    object
  };

  TemplateValue() = default;
  TemplateValue(bool value) : kind_(Kind::boolean), data_(std::int64_t{value}) {}  // NOLINT: values convert
  template <std::integral T>
  requires(!std::same_as<T, bool>) TemplateValue(T value)
      : kind_(Kind::integer), data_(static_cast<std::int64_t>(value)) {}       // NOLINT
  TemplateValue(double value) : kind_(Kind::real), data_(value) {}             // NOLINT
  TemplateValue(std::string value);                                            // NOLINT
  TemplateValue(const char* value) : TemplateValue(std::string(value)) {}      // NOLINT
  TemplateValue(TemplateMapping value);                                        // NOLINT
  TemplateValue(TemplateObject* value) : kind_(Kind::object), data_(value) {}  // NOLINT
  [[nodiscard]] static TemplateValue undefined();
  /// Returns a text that jinja marks as safe: texts that are added to it are escaped.
  [[nodiscard]] static TemplateValue markup(std::string value);
  /// Returns a sequence. `kind`: list, tuple, view or range; `name` is the type name of a view or range.
  [[nodiscard]] static TemplateValue sequence(Kind kind, TemplateValues values, std::string name = "");
  [[nodiscard]] static TemplateValue list(TemplateValues values) { return sequence(Kind::list, std::move(values)); }
  [[nodiscard]] static TemplateValue tuple(TemplateValues values) { return sequence(Kind::tuple, std::move(values)); }
  [[nodiscard]] static TemplateValue iterator(TemplateValues values);
  [[nodiscard]] static TemplateValue method(TemplateValue receiver, std::string name);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is(Kind kind) const { return kind_ == kind; }
  [[nodiscard]] bool is_undefined() const { return kind_ == Kind::undefined; }
  [[nodiscard]] bool is_none() const { return kind_ == Kind::none; }
  [[nodiscard]] bool is_text() const { return kind_ == Kind::text; }
  [[nodiscard]] bool is_markup() const { return markup_; }
  [[nodiscard]] bool is_mapping() const { return kind_ == Kind::mapping; }
  /// Returns whether the value is Python's int, including bool.
  [[nodiscard]] bool is_whole() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  [[nodiscard]] bool is_number() const { return is_whole() || kind_ == Kind::real; }
  /// Returns whether the value has elements by position: list, tuple, view, range.
  [[nodiscard]] bool has_elements() const { return kind_ >= Kind::list && kind_ <= Kind::range; }

  [[nodiscard]] std::int64_t whole() const { return std::get<std::int64_t>(data_); }
  [[nodiscard]] double real() const { return is_whole() ? static_cast<double>(whole()) : std::get<double>(data_); }
  [[nodiscard]] const std::string& text() const { return *std::get<Text>(data_); }
  [[nodiscard]] const TemplateValues& elements() const;
  /// Returns the type name of a view or a range.
  [[nodiscard]] const std::string& type_name() const;
  [[nodiscard]] const TemplateMapping& mapping() const { return *std::get<Map>(data_); }
  [[nodiscard]] TemplateIterator& iterator() const { return *std::get<Iterator>(data_); }
  [[nodiscard]] const TemplateMethod& method() const { return *std::get<Method>(data_); }
  [[nodiscard]] TemplateObject* object() const { return std::get<TemplateObject*>(data_); }
  /// Returns whether both are the same elements in memory, or the same small value.
  [[nodiscard]] bool same_as(const TemplateValue& other) const;

  /// Returns the bytes that a copy of all elements would take.
  [[nodiscard]] std::size_t weight() const;
  [[nodiscard]] int depth() const;

 private:
  // Shared: values are immutable, and most are parts of the conversation that many expressions name.
  using Text = std::shared_ptr<const std::string>;
  using Elements = std::shared_ptr<const TemplateSequence>;
  using Map = std::shared_ptr<const TemplateMapping>;
  using Method = std::shared_ptr<const TemplateMethod>;
  using Iterator = std::shared_ptr<TemplateIterator>;

  Kind kind_ = Kind::none;
  bool markup_ = false;
  std::variant<std::int64_t, double, Text, Elements, Map, Method, Iterator, TemplateObject*> data_;
};

struct TemplateSequence {
  TemplateValues values;
  std::string name;
  std::size_t weight = 0;
  int depth = 0;
};

/// Pairs in the order of their keys' first assignment.
class TemplateMapping {
 public:
  using Pair = std::pair<TemplateValue, TemplateValue>;

  void set(TemplateValue key, TemplateValue value);
  [[nodiscard]] const TemplateValue* find(const TemplateValue& key) const;
  [[nodiscard]] const TemplateValue* find(std::string_view key) const;
  [[nodiscard]] const std::vector<Pair>& pairs() const { return pairs_; }
  [[nodiscard]] std::size_t weight() const { return weight_; }
  [[nodiscard]] int depth() const { return depth_; }

 private:
  std::vector<Pair> pairs_;
  std::map<std::string, std::size_t, std::less<>> places_;  // by text key, for mappings with many keys
  std::size_t weight_ = 0;
  int depth_ = 0;
};

struct TemplateMethod {
  TemplateValue receiver;
  std::string name;
};

struct TemplateIterator {
  TemplateValues values;
  std::size_t next = 0;
  int depth = 0;
};

inline constexpr std::size_t longest_template_text = std::size_t{16} << 20;  ///< bytes
inline constexpr int most_template_levels = 64;                              ///< nesting of values

/// Returns the value's type, for messages.
[[nodiscard]] std::string kind_of(const TemplateValue& value);
/// Returns whether `if` accepts the value.
[[nodiscard]] bool is_true(const TemplateValue& value);
/// Returns whether Python's == holds. Throws JobError for values that are too large to compare.
[[nodiscard]] bool equal(const TemplateValue& a, const TemplateValue& b, const TemplatePlace& place);
/// Returns the text that {{ }} prints: Python's str(). Throws JobError for values without a stable text.
[[nodiscard]] std::string printed(const TemplateValue& value, const TemplatePlace& place);
/// Returns Python's repr().
[[nodiscard]] std::string repr_of(const TemplateValue& value, const TemplatePlace& place, int level = 0);
/// Returns Python's repr() of a number.
[[nodiscard]] std::string number_repr(double value);
/// Returns the elements that a loop iterates over: keys of a mapping, characters of a text. An iterator is empty
/// afterwards.
[[nodiscard]] TemplateValues elements_of(const TemplateValue& value, const TemplatePlace& place);

/// Parses JSON. `name` is for messages. Throws JobError.
[[nodiscard]] TemplateValue parse_template_json(std::string_view text, const std::string& name);

}  // namespace maestro
