// SPDX-License-Identifier: Apache-2.0
// JSON to values of templates and back, with the keys of objects in their order.
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/chat/template_call.hpp"
#include "runtime/chat/template_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;
using nlohmann::json;

namespace {

/// Builds the value from the parser's events.
class Builder final : public nlohmann::json_sax<json> {
 public:
  explicit Builder(const std::string& name) : name_(name) {}

  Value take() { return std::move(root_); }

  bool null() override { return put(Value()); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      fail("the number " + std::to_string(value) + " is beyond 64 bits");
    }
    return put(value);
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) fail("the number " + printable(text) + " is beyond 64 bits");
    return put(value);
  }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in JSON text
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool key(string_t& value) override {
    open_.back().key = std::move(value);
    return true;
  }
  bool end_object() override {
    Value made(std::move(open_.back().mapping));
    open_.pop_back();
    return put(std::move(made));
  }
  bool end_array() override {
    Value made = Value::list(std::move(open_.back().list));
    open_.pop_back();
    return put(std::move(made));
  }
  bool parse_error(std::size_t byte, const std::string&, const json::exception&) override {
    fail("it is not valid JSON at byte " + std::to_string(byte));
  }

 private:
  struct Open {
    bool is_object;
    std::string key;
    TemplateMapping mapping;
    TemplateValues list;
  };
  [[noreturn]] void fail(const std::string& problem) const {
    throw JobError(name_ + ": " + problem, ErrorCode::corrupt);
  }
  bool open(bool object) {
    // A message is two levels inside the conversation.
    if (open_.size() + 3 > most_template_levels) fail("nested deeper than 61 levels");
    open_.push_back({object, {}, {}, {}});
    return true;
  }
  bool put(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().mapping.set(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().list.push_back(std::move(value));
    }
    return true;
  }

  const std::string& name_;
  Value root_;
  std::vector<Open> open_;
};

/// Writes json.dumps() with the arguments of a call of tojson.
class Writer {
 public:
  explicit Writer(const TemplateCall& call)
      : call_(&call),
        ascii_(is_true(call.argument(1, false, "ensure_ascii"))),
        sorted_(is_true(call.argument(4, false, "sort_keys"))) {
    const Value indent = call.argument(2, Value(), "indent");
    if (indent.is_text()) indent_ = indent.text();
    if (indent.is_whole())
      indent_ = std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(indent.whole(), 0, 64)), ' ');
    if (indent_) between_ = ",";
    const Value separators = call.argument(3, Value(), "separators");
    if (separators.is_none()) return;
    if (!separators.has_elements() || separators.elements().size() != 2) call.fail("takes two separators");
    between_ = call.text_of(separators.elements()[0]);
    after_key_ = call.text_of(separators.elements()[1]);
  }

  std::string write(const Value& value) {
    put(value, 0);
    return std::move(out_);
  }

 private:
  void put(const Value& value, int level) {
    call_->check_length(out_);
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is(Kind::boolean)) {
      out_ += value.whole() != 0 ? "true" : "false";
    } else if (value.is_whole()) {
      out_ += std::to_string(value.whole());
    } else if (value.is(Kind::real)) {
      out_ += real_text(value.real());
    } else if (value.is_text()) {
      append_json_string(out_, value.text(), ascii_);
    } else if (value.is(Kind::list) || value.is(Kind::tuple)) {
      put_list(value.elements(), level);
    } else if (value.is_mapping()) {
      put_mapping(value.mapping(), level);
    } else {
      call_->fail("does not take " + kind_of(value));
    }
  }
  static std::string real_text(double value) {
    const std::string text = number_repr(value);
    return text == "nan" ? "NaN" : text == "inf" ? "Infinity" : text == "-inf" ? "-Infinity" : text;
  }
  void begin_line(int level) {
    if (!indent_) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *indent_;
  }
  void put_list(const TemplateValues& values, int level) {
    out_ += '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += between_;
      begin_line(level + 1);
      put(values[i], level + 1);
    }
    if (!values.empty()) begin_line(level);
    out_ += ']';
  }
  void put_mapping(const TemplateMapping& mapping, int level) {
    std::vector<TemplateMapping::Pair> pairs = mapping.pairs();
    if (sorted_) {
      std::ranges::stable_sort(pairs, [&](const auto& a, const auto& b) {
        return is_true(compared("<", a.first, b.first, call_->place()));
      });
    }
    out_ += '{';
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (i > 0) out_ += between_;
      begin_line(level + 1);
      append_json_string(out_, key_text(pairs[i].first), ascii_);
      out_ += after_key_;
      put(pairs[i].second, level + 1);
    }
    if (!pairs.empty()) begin_line(level);
    out_ += '}';
  }
  [[nodiscard]] std::string key_text(const Value& key) const {
    if (key.is_text()) return key.text();
    if (key.is_none()) return "null";
    if (key.is(Kind::boolean)) return key.whole() != 0 ? "true" : "false";
    if (key.is(Kind::real)) return real_text(key.real());
    if (!key.is_whole()) call_->fail("takes no key that is " + kind_of(key));
    return std::to_string(key.whole());
  }

  const TemplateCall* call_;
  bool ascii_;
  bool sorted_;
  std::optional<std::string> indent_;
  std::string between_ = ", ";
  std::string after_key_ = ": ";
  std::string out_;
};

}  // namespace

Value parse_template_json(std::string_view text, const std::string& name) {
  Builder builder(name);
  json::sax_parse(text, &builder);
  return builder.take();
}

Value json_text(const TemplateCall& call) {
  call.takes(5, {"ensure_ascii", "indent", "separators", "sort_keys"});
  return Writer(call).write(call.operand());
}

}  // namespace maestro
