// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/json_text.hpp"

#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/core/printable.hpp"

namespace maestro {

using nlohmann::json;

namespace {

using ItemSink = std::function<void(json&&)>;
using MemberSink = std::function<void(const std::string&, json&&)>;

constexpr std::size_t longest_reason = 240;  // bytes: the library's message with the text that it read last
constexpr std::size_t longest_path = 200;

/// The library's text without its own prefix, "[json.exception.parse_error.101] ".
std::string reason(const json::exception& problem) {
  const std::string text = problem.what();
  const auto end = text.find("] ");
  return printable(end == std::string::npos ? text : text.substr(end + 2), longest_reason);
}

/// Takes the line out of "parse error at line 3, column 7: ..." and returns it; empty: there is none.
std::string take_line(std::string& reason) {
  constexpr std::string_view before = "parse error at line ", behind = ", ";
  if (!reason.starts_with(before)) return {};
  const std::size_t end = reason.find(behind);
  std::string line = reason.substr(before.size(), end - before.size());
  const std::size_t place = before.size() - std::string_view("line ").size();
  reason.erase(place, end + behind.size() - place);
  return line;
}

/// Builds the document from the parser's events. With `items`, elements of the outermost list are passed on instead,
/// with `members` those of the outermost object.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(const std::string& name, bool single_line) : name_(name), single_line_(single_line) {}
  Builder(const JsonList& list, const ItemSink& items) : name_(list.name), list_(&list), items_(&items) {}
  Builder(const std::string& name, const MemberSink& members) : name_(name), members_(&members) {}

  json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    auto [member, fresh] = open_.back().value->get_ref<json::object_t&>().emplace(value, nullptr);
    open_.back().key = &member->first;
    open_.back().member = &member->second;
    if (!fresh) fail("this key stands twice in its object");
    return true;
  }

  bool parse_error(std::size_t byte, const std::string& token, const json::exception& problem) override {
    if (dynamic_cast<const json::out_of_range*>(&problem) != nullptr) {
      fail("the number " + printable(token) + " at byte " + std::to_string(byte) + " is out of range");
    }
    std::string why = reason(problem), place = name_;
    if (items_ != nullptr) {
      place += ":" + take_line(why);
    } else if (single_line_) {
      (void)take_line(why);
    }
    throw JobError(place + " is not valid JSON: " + why, ErrorCode::corrupt);
  }

 private:
  /// An object or a list that is not complete yet.
  struct Open {
    json* value = nullptr;
    const std::string* key = nullptr;  // of an object: the key read last, and its value
    json* member = nullptr;
  };

  /// Where the next value belongs.
  json& place() {
    if (open_.empty()) return root_;
    json& outer = *open_.back().value;
    return outer.is_object() ? *open_.back().member : outer.emplace_back(nullptr);
  }

  void check_outermost(const json& value) const {
    if (!open_.empty()) return;
    if (items_ != nullptr && !value.is_array()) fail_as_no_list();
    if (members_ != nullptr && !value.is_object()) throw JobError(name_ + " is not a JSON object", ErrorCode::corrupt);
  }

  bool put(json value) {
    check_outermost(value);
    place() = std::move(value);
    return hand_over();
  }

  bool open(json value) {
    check_outermost(value);
    if (open_.size() == most_json_levels) fail("nested deeper than " + std::to_string(most_json_levels) + " levels");
    json& at = place();
    at = std::move(value);
    open_.push_back({&at, nullptr, nullptr});
    return true;
  }

  bool close() {
    open_.pop_back();
    return hand_over();
  }

  /// After a value is complete.
  bool hand_over() {
    if (open_.size() != 1) return true;
    if (members_ != nullptr) {
      // The key stays, so that a second one is refused (JT-3).
      (*members_)(*open_.front().key, std::exchange(*open_.front().member, json()));
      return true;
    }
    if (items_ == nullptr) return true;
    auto& list = root_.get_ref<json::array_t&>();
    json item = std::move(list.back());
    list.pop_back();
    ++items_done_;
    (*items_)(std::move(item));
    return true;
  }

  std::string path() const {
    std::string path;
    for (const Open& open : open_) {
      if (open.value->is_object()) {
        if (open.key != nullptr) path = join_json_path(path, *open.key);
      } else {
        const bool root = &open == &open_.front();
        const std::size_t complete = open.value->size() + (root ? items_done_ : 0);
        // The value being read is in the list already, unless it has failed.
        const bool inside = &open != &open_.back();
        path += "[" + std::to_string(complete - (inside ? 1 : 0)) + "]";
      }
    }
    return printable(path, longest_path);
  }

  [[noreturn]] void fail(const std::string& problem) const {
    const std::string at = path();
    throw JobError(name_ + ": " + (at.empty() ? "" : at + ": ") + problem, ErrorCode::corrupt);
  }

  [[noreturn]] void fail_as_no_list() const {
    throw JobError(name_ + " is not a list of " + list_->elements + ": its JSON starts with something other than [");
  }

  const std::string& name_;
  bool single_line_ = false;
  const JsonList* list_ = nullptr;
  const ItemSink* items_ = nullptr;
  const MemberSink* members_ = nullptr;
  json root_;
  std::vector<Open> open_;
  std::size_t items_done_ = 0;
};

template <class Input>
Result<json> build(Input&& input, const std::string& name, Builder builder) {
  try {
    json::sax_parse(std::forward<Input>(input), &builder);
    return builder.take();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::unavailable, name + ": not enough memory to read it"};
  } catch (const JobError& problem) {
    return Error{problem.code(), problem.what()};
  }
}

}  // namespace

Result<json> parse_json(std::string_view text, const std::string& name) {
  return build(text, name, Builder(name, text.find('\n') == text.npos));
}

Status parse_json_list(const JsonList& list, const ItemSink& sink) {
  const Result<json> read = build(list.text, list.name, Builder(list, sink));
  return read ? Status() : Status(read.error());
}

Status parse_json_members(std::string_view text, const std::string& name, const MemberSink& sink) {
  const Result<json> read = build(text, name, Builder(name, sink));
  return read ? Status() : Status(read.error());
}

std::string shown(const json& value) {
  return printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string join_json_path(const std::string& path, std::string_view key) {
  return path.empty() ? printable(key) : path + "." + printable(key);
}

}  // namespace maestro
