// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/join_check.hpp"

#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "runtime/core/printable.hpp"

namespace maestro {
namespace {

struct Setting {
  std::string name;  ///< with its table: "student.lr"
  std::string value;
};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// Returns a job's settings. A line that neither opens a table nor has a key continues the value before it.
std::vector<Setting> settings_of(std::string_view job) {
  std::vector<Setting> settings;
  std::string table;
  for (std::size_t begin = 0, end = 0; begin < job.size(); begin = end + 1) {
    end = std::min(job.find('\n', begin), job.size());
    const std::string_view line = trimmed(job.substr(begin, end - begin));
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('[') && line.ends_with(']') && equals == std::string_view::npos) {
      table = std::string(trimmed(line.substr(1, line.size() - 2))) + ".";
    } else if (equals != std::string_view::npos) {
      settings.push_back({table + std::string(line.substr(0, equals)), std::string(line.substr(equals + 3))});
    } else if (!line.empty()) {
      if (settings.empty()) settings.emplace_back();
      settings.back().value += std::string(line);
    }
  }
  return settings;
}

std::string place_of(const JoinRequest& process) {
  return " on " + process.host + " (rank " + std::to_string(process.rank) + ")";
}

/// Values by name; the tables of an array share their names.
using Values = std::map<std::string, std::vector<std::string>>;

Values values_of(const std::vector<Setting>& settings) {
  Values values;
  for (const Setting& setting : settings) values[setting.name].push_back(setting.value);
  return values;
}

/// Returns a value for users, with numbers shortened: TOML has every digit, 0.00029999999999999997 for 0.0003.
std::string shown(const std::string& value) {
  double number = 0;
  const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
  if (parsed.ec == std::errc() && parsed.ptr == value.data() + value.size()) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::general).ptr};
  }
  return printable(value);
}

/// Returns the first setting of `a` that is missing or different in `b`.
std::string first_difference(const std::vector<Setting>& a, const Values& b, const std::string& a_place,
                             const std::string& b_place) {
  std::map<std::string, std::size_t> seen;
  for (const Setting& setting : a) {
    const std::size_t nth = seen[setting.name]++;
    const auto there = b.find(setting.name);
    const bool has = there != b.end() && nth < there->second.size();
    if (has && there->second[nth] == setting.value) continue;
    const std::string other = has ? shown(there->second[nth]) : "nothing";
    return printable(setting.name) + " = " + shown(setting.value) + a_place + ", " + other + b_place;
  }
  return {};
}

bool same_secret(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

/// Returns "2", "2 and 3", "2, 5-9 and 11".
std::string ranks_text(const std::vector<std::int64_t>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    const bool range = end - begin > 2;
    if (!range) end = begin + 1;
    parts.push_back(std::to_string(ranks[begin]) + (range ? "-" + std::to_string(ranks[end - 1]) : ""));
    begin = end;
  }
  std::string text;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    const bool last = at + 1 == parts.size();
    text += (at == 0 ? "" : last ? " and " : ", ") + parts[at];
  }
  return text;
}

}  // namespace

JoinCheck::JoinCheck(JoinRequest root, std::vector<std::uint32_t> hosts)
    : root_(std::move(root)), hosts_(std::move(hosts)) {
  present_.emplace(root_.rank, root_);
}

std::string JoinCheck::with_root(const std::string& of_root, const std::string& of_other,
                                 const JoinRequest& other) const {
  return of_root + place_of(root_) + ", " + of_other + place_of(other);
}

bool JoinCheck::knows_token(const JoinRequest& process) const {
  return same_secret(process.token, root_.token);
}

std::optional<Refusal> JoinCheck::admit(const JoinRequest& process) {
  if (!knows_token(process)) return Refusal{"its job token differs", false};  // GA-2
  if (process.version != root_.version) {
    return Refusal{"versions differ between hosts: maestro " + with_root(root_.version, process.version, process),
                   true};
  }
  if (process.processes != root_.processes) {
    return Refusal{"the number of processes differs between hosts: " +
                       with_root(std::to_string(root_.processes), std::to_string(process.processes), process),
                   true};
  }
  if (process.rank < 1 || process.rank >= std::ssize(hosts_)) {
    return Refusal{process_name(process) + " is not in the ranks 1 to " + std::to_string(hosts_.size() - 1), true};
  }
  if (const auto other = present_.find(process.rank); other != present_.end()) {
    return Refusal{"two processes have the same rank: " + process_name(other->second) + " and " + process_name(process),
                   true};
  }
  if (const std::string difference = job_difference(root_, process); !difference.empty()) {
    return Refusal{"jobs differ between hosts: " + difference, true};
  }
  present_.emplace(process.rank, process);
  return std::nullopt;
}

std::vector<JoinRequest> JoinCheck::present() const {
  std::vector<JoinRequest> processes;
  for (const auto& [rank, process] : present_) processes.push_back(process);
  return processes;
}

std::string JoinCheck::missing_text() const {
  std::map<std::uint32_t, std::vector<std::int64_t>> missing;  // by host
  for (std::int64_t rank = 1; rank < std::ssize(hosts_); ++rank) {
    if (!present_.contains(rank)) missing[hosts_.at(static_cast<std::size_t>(rank))].push_back(rank);
  }
  std::string text;
  for (const auto& [host, ranks] : missing) {
    text += (text.empty() ? "" : ", ") + std::string(ranks.size() == 1 ? "process " : "processes ") +
            ranks_text(ranks) + " (host " + std::to_string(host) + ")";
  }
  return text;
}

std::string process_name(const JoinRequest& process) {
  return "rank " + std::to_string(process.rank) + " (pid " + std::to_string(process.pid) + " on " + process.host + ")";
}

std::string job_difference(const JoinRequest& a, const JoinRequest& b) {
  if (a.job == b.job) return {};
  const auto of_a = settings_of(a.job);
  const auto of_b = settings_of(b.job);
  std::string difference = first_difference(of_a, values_of(of_b), place_of(a), place_of(b));
  if (difference.empty()) difference = first_difference(of_b, values_of(of_a), place_of(b), place_of(a));
  return difference;
}

}  // namespace maestro
