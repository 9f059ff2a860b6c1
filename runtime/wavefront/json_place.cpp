#include "runtime/wavefront/json_place.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/printable.hpp"

namespace maestro {

using nlohmann::json;

namespace {

constexpr double longest_ms = 1e9;  // 11 days; sums of more would lose the microseconds

std::string join(const std::string& path, std::string_view key) {
  return path.empty() ? printable(key) : path + "." + printable(key);
}

std::string listed(std::span<const std::string> names) {
  constexpr std::size_t most = 12;
  std::string text;
  for (std::size_t at = 0; at < std::min(names.size(), most); ++at) text += (at > 0 ? ", " : "") + printable(names[at]);
  return names.size() > most ? text + ", ..." : text;
}

/// Follows the parser through the file: where it is, and which keys each open object has had.
class KeyWatch {
 public:
  explicit KeyWatch(const std::string& file_name) : file_name_(file_name) {}

  bool operator()(json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        open_.push_back({event == json::parse_event_t::array_start, 0, {}, {}});
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        open_.pop_back();
        next_item();
        break;
      case json::parse_event_t::value:
        next_item();
        break;
      case json::parse_event_t::key:
        open_.back().key = parsed.get<std::string>();
        if (!open_.back().keys.insert(open_.back().key).second) {
          throw JobError(file_name_ + ": " + place() + ": this key stands twice in its object");
        }
        break;
    }
    return true;
  }

 private:
  struct Open {
    bool list = false;
    std::size_t item = 0;
    std::string key;
    std::set<std::string> keys;
  };

  void next_item() {
    if (!open_.empty() && open_.back().list) ++open_.back().item;
  }
  std::string place() const {
    std::string path;
    for (const Open& open : open_)
      path = open.list ? path + "[" + std::to_string(open.item) + "]" : join(path, open.key);
    return path;
  }

  const std::string& file_name_;
  std::vector<Open> open_;
};

/// The library's text without its own prefix, on one line.
std::string reason(const json::exception& problem) {
  std::string text = problem.what();
  if (const auto end = text.find("] "); text.rfind('[', 0) == 0 && end != std::string::npos)
    text = text.substr(end + 2);
  return printable(text);
}

}  // namespace

json parse_json(std::string_view text, const std::string& file_name) {
  KeyWatch watch(file_name);
  try {
    return json::parse(text.begin(), text.end(),
                       [&](int, json::parse_event_t event, json& parsed) { return watch(event, parsed); });
  } catch (const json::exception& problem) {
    throw JobError(file_name + ": not a JSON file: " + reason(problem));
  }
}

std::string nearest_text(std::string_view name, std::span<const std::string> known) {
  if (const auto near = nearest_name(name, known)) return "; did you mean '" + printable(*near) + "'?";
  return known.empty() ? std::string() : "; there are: " + listed(known);
}

void JsonPlace::fail(const std::string& problem) const {
  throw JobError(*file_name_ + ": " + (path_.empty() ? "" : path_ + ": ") + problem);
}

void JsonPlace::expected(std::string_view what) const {
  std::string found = value_->dump(-1, ' ', false, json::error_handler_t::replace);
  fail("expected " + std::string(what) + ", got " + printable(found));
}

void JsonPlace::allow_keys(std::initializer_list<std::string_view> known) const {
  const std::vector<std::string> names(known.begin(), known.end());
  for (const auto& [key, value] : members()) {
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      value.fail("unknown key" + nearest_text(key, names));
    }
  }
}

JsonPlace JsonPlace::required(std::string_view key) const {
  if (auto found = optional(key)) return *std::move(found);
  fail("'" + std::string(key) + "' is missing");
}

std::optional<JsonPlace> JsonPlace::optional(std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  const auto found = value_->find(std::string(key));
  if (found == value_->end()) return std::nullopt;
  return JsonPlace(*found, *file_name_, join(path_, key));
}

std::vector<std::pair<std::string, JsonPlace>> JsonPlace::members() const {
  if (!value_->is_object()) expected("an object");
  std::vector<std::pair<std::string, JsonPlace>> all;
  for (const auto& [key, value] : value_->items()) {
    all.emplace_back(key, JsonPlace(value, *file_name_, join(path_, key)));
  }
  return all;
}

std::vector<JsonPlace> JsonPlace::items() const {
  if (!value_->is_array()) expected("a list");
  std::vector<JsonPlace> all;
  for (std::size_t at = 0; at < value_->size(); ++at) {
    all.emplace_back((*value_)[at], *file_name_, path_ + "[" + std::to_string(at) + "]");
  }
  return all;
}

std::string JsonPlace::text() const {
  if (!value_->is_string()) expected("a string");
  return value_->get<std::string>();
}

std::int64_t JsonPlace::whole_number(std::int64_t low, std::int64_t high) const {
  const std::string range = "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  if (!value_->is_number_integer()) expected(range);
  const bool beyond =
      value_->is_number_unsigned() && value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  const std::int64_t number = beyond ? 0 : value_->get<std::int64_t>();
  if (beyond || number < low || number > high) expected(range);
  return number;
}

double JsonPlace::milliseconds() const {
  if (!value_->is_number()) expected("a time in milliseconds");
  const double number = value_->get<double>();
  if (!std::isfinite(number) || number < 0 || number > longest_ms) expected("a time from 0 to 1e9 milliseconds");
  return number;
}

}  // namespace maestro
