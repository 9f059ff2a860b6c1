// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/log_line.hpp"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <variant>

#include "runtime/core/iso_time.hpp"
#include "runtime/core/json_text.hpp"

namespace maestro {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
    case LogLevel::progress:
      return "progress";
  }
  return "?";
}

/// Returns the text before a message.
std::string prefix_of(const std::string& level) {
  return level == "error" || level == "warning" ? level + ": " : std::string();
}

std::string json_line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Returns a text without its indent, which is meaningless in JSON.
std::string without_indent(const std::string& text) {
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

/// Returns the length of a line's leading time and the space after it; 0: none.
std::size_t length_of_time(std::string_view line) {
  constexpr std::string_view pattern = "0000-00-00T00:00:00.000Z ";
  if (line.size() < pattern.size()) return 0;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const bool digit = std::isdigit(static_cast<unsigned char>(line[at])) != 0;
    if (pattern[at] == '0' ? !digit : line[at] != pattern[at]) return 0;
  }
  return pattern.size();
}

bool is_log_object(const Json& line) {
  return line.is_object() &&
         std::ranges::all_of(std::initializer_list<const char*>{"time", "level", "message"},
                             [&](const char* name) { return line.contains(name) && line.at(name).is_string(); });
}

}  // namespace

std::string format_line(const LogLine& line, LineForm form, SystemTime time) {
  if (form != LineForm::json) {
    const std::string when = form == LineForm::timed ? iso_time(time) + " " : std::string();
    std::string text = when + prefix_of(name_of(line.level));
    for (const char c : line.message) {
      text += c;
      if (c == '\n') text += when;
    }
    return text + "\n";
  }
  Json object = {{"time", iso_time(time)}, {"level", name_of(line.level)}, {"message", without_indent(line.message)}};
  for (const auto& [name, value] : line.fields) {
    const std::size_t dot = name.find('.');
    Json& member = dot == std::string::npos ? object[name] : object[name.substr(0, dot)][name.substr(dot + 1)];
    std::visit([&](const auto& held) { member = held; }, value.held());
  }
  return json_line(object);
}

RelayedLine relayed_line(const std::string& host, std::string_view line, LineForm form, SystemTime time) {
  if (form == LineForm::json) {
    const Result<nlohmann::json> parsed = parse_json(line, "line");
    if (parsed && is_log_object(*parsed)) {
      const Json& object = *parsed;
      Json with_host = {{"time", object.at("time")}, {"level", object.at("level")}, {"message", object.at("message")}};
      with_host["host"] = host;
      with_host.update(object);
      const std::string level = object.at("level");
      return {json_line(with_host), prefix_of(level) + object.at("message").get<std::string>()};
    }
  }
  const std::size_t own_time = length_of_time(line);
  const std::string text(line.substr(own_time));
  if (form == LineForm::json) {
    LogLine relayed{LogLevel::warning, text, {{"host", host}}};  // a line of the remote shell or a library
    return {format_line(relayed, form, time), text};
  }
  std::string when(line.substr(0, own_time));
  if (when.empty() && form == LineForm::timed) when = iso_time(time) + " ";
  return {when + host + ": " + text + "\n", text};
}

}  // namespace maestro
