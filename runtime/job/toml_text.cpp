// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/toml_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "runtime/core/printable.hpp"

namespace maestro {
namespace {

constexpr std::size_t longest_line = 4096;  // bytes in a string's line; JobDocument refuses lines over 8 KiB
constexpr std::size_t longest_list = 100;   // bytes in a line

std::string escaped(char c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\t':
      return "\\t";
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0x20 && byte != 0x7f) return {c};
  std::array<char, 8> code{};
  std::snprintf(code.data(), code.size(), "\\u%04X", byte);
  return code.data();
}

std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text) out += escaped(c);
  return '"' + out + '"';
}

/// Returns a string over several lines: one for each line of `text`; a longer line has breaks that TOML ignores.
std::string in_lines(std::string_view text) {
  std::string out = "\"\"\"\n";
  std::size_t begin = out.size();
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\t' || c == '\n';  // at the start of a line it would belong to the break
    const bool inside = (static_cast<unsigned char>(c) & 0xc0u) == 0x80u;  // inside of a UTF-8 character
    if (out.size() - begin > longest_line && !inside) {
      out += "\\\n";
      begin = out.size();
      out += blank ? (c == ' ' ? "\\u0020" : escaped(c)) : escaped(c);
    } else if (c == '\n') {
      out += c;
      begin = out.size();
    } else {
      out += escaped(c);
    }
  }
  return out + "\"\"\"";
}

std::string string_text(std::string_view text) {
  std::string line = quoted(text);
  const bool fits = line.size() <= longest_line && text.find('\n') == std::string_view::npos;
  return fits ? line : in_lines(text);
}

std::string float_text(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const std::string digits = number_text(value);
  return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
}

std::string key_text(std::string_view key) {
  return is_bare_key(key) ? std::string(key) : quoted(key);
}

std::string value_text(const toml::node& node);

std::string list_text(const toml::array& list) {
  std::string line;
  std::string lines = "[\n";
  for (const toml::node& element : list) {
    const std::string value = value_text(element);
    line += (line.empty() ? "" : ", ") + value;
    lines += "  " + value + ",\n";
  }
  return line.size() <= longest_list ? '[' + line + ']' : lines + ']';
}

/// Returns a table inside a list of mixed elements.
std::string inline_text(const toml::table& table) {
  std::string out;
  for (const auto& [key, node] : table) {
    out += (out.empty() ? " " : ", ") + key_text(key.str()) + " = " + value_text(node);
  }
  return '{' + out + (out.empty() ? "}" : " }");
}

std::string value_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return string_text(text->get());
  if (const auto* number = node.as_floating_point()) return float_text(number->get());
  if (const auto* whole = node.as_integer()) return std::to_string(whole->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  if (const auto* list = node.as_array()) return list_text(*list);
  if (const auto* table = node.as_table()) return inline_text(*table);
  std::ostringstream out;  // dates and times
  node.visit([&](const auto& value) {
    if constexpr (toml::is_chronological<decltype(value)>) out << value.get();
  });
  return out.str();
}

bool is_list_of_tables(const toml::node& node) {
  const auto* list = node.as_array();
  return list != nullptr && !list->empty() && list->is_homogeneous(toml::node_type::table);
}

/// Writes values before tables: a value after a table's header would belong to that table.
void add_table(const toml::table& table, const std::string& path, std::string& out) {
  for (const auto& [key, node] : table) {
    if (!node.is_table() && !is_list_of_tables(node)) out += key_text(key.str()) + " = " + value_text(node) + '\n';
  }
  for (const auto& [key, node] : table) {
    const std::string name = (path.empty() ? "" : path + '.') + key_text(key.str());
    if (const auto* inner = node.as_table()) {
      out += (out.empty() ? "[" : "\n[") + name + "]\n";
      add_table(*inner, name, out);
    } else if (is_list_of_tables(node)) {
      for (const toml::node& element : *node.as_array()) {
        out += (out.empty() ? "[[" : "\n[[") + name + "]]\n";
        add_table(*element.as_table(), name, out);
      }
    }
  }
}

}  // namespace

bool is_bare_key(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string toml_text(const toml::table& root) {
  std::string out;
  add_table(root, "", out);
  return out;
}

}  // namespace maestro
