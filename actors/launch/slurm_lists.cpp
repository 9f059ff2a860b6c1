// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/slurm_lists.hpp"

#include <charconv>
#include <utility>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

constexpr std::int64_t most_nodes = 1 << 20;

[[noreturn]] void unreadable(std::string_view list, std::string_view variable, std::string_view expected) {
  throw JobError(std::string(variable) + " = \"" + printable(list) + "\" cannot be read; it is written like \"" +
                 std::string(expected) + "\"");
}

/// Takes a positive number from the front of `text`; returns 0 without one.
std::int64_t take_number(std::string_view& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 1) return 0;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

/// Takes "2" or "2(x3)": a node's tasks, and the number of such nodes. Returns {0, 0} without them.
std::pair<std::int64_t, std::int64_t> take_group(std::string_view& text) {
  const std::int64_t tasks = take_number(text);
  if (tasks == 0 || !take(text, "(x")) return {tasks, tasks == 0 ? 0 : 1};
  const std::int64_t nodes = take_number(text);
  return take(text, ")") ? std::pair{tasks, nodes} : std::pair<std::int64_t, std::int64_t>{};
}

}  // namespace

std::string first_host_of(std::string_view list, std::string_view variable) {
  std::string host;
  std::string_view rest = list;
  while (!rest.empty() && rest.front() != ',') {
    if (rest.front() != '[') {
      host += rest.front();
      rest.remove_prefix(1);
      continue;
    }
    const std::size_t close = rest.find(']');
    if (close == std::string_view::npos) unreadable(list, variable, "node[01-03,7],other");
    const std::string_view inside = rest.substr(1, close - 1);
    host += inside.substr(0, inside.find_first_of(",-"));
    rest.remove_prefix(close + 1);
  }
  if (host.empty()) unreadable(list, variable, "node[01-03,7],other");
  return host;
}

std::vector<std::int64_t> tasks_by_node(std::string_view list, std::string_view variable) {
  std::vector<std::int64_t> tasks;
  std::string_view rest = list;
  do {
    const auto [count, nodes] = take_group(rest);
    if (nodes == 0 || nodes > most_nodes - std::ssize(tasks)) unreadable(list, variable, "2(x3),1");
    tasks.insert(tasks.end(), static_cast<std::size_t>(nodes), count);
  } while (take(rest, ","));
  if (!rest.empty()) unreadable(list, variable, "2(x3),1");
  return tasks;
}

}  // namespace maestro
