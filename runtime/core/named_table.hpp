// SPDX-License-Identifier: Apache-2.0
// Factories by name that plug-ins add for the rest of the process.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// Thread-safe.
template <class Factory>
class NamedTable {
 public:
  /// `what`: "tokenizer", for errors. `own`: names that are built into the program.
  NamedTable(std::string what, std::vector<std::string> own) : what_(std::move(what)), own_(std::move(own)) {}

  /// Adds a factory; the same origin may replace its factory. Throws JobError, with both origins, if another origin has
  /// the name.
  void add(std::string name, Factory factory, std::string origin) {
    const std::lock_guard lock(mutex_);
    for (const std::string& own : own_) {
      if (own == name) refuse(name, "this program", origin);
    }
    const auto there = entries_.find(name);
    if (there != entries_.end() && there->second.second != origin) refuse(name, there->second.second, origin);
    entries_.insert_or_assign(std::move(name), std::make_pair(std::move(factory), std::move(origin)));
  }
  [[nodiscard]] std::optional<Factory> find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(name);
    return found == entries_.end() ? std::nullopt : std::optional(found->second.first);
  }
  /// Returns the program's names, then the added ones, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names = own_;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& one, const std::string& other) const {
    throw JobError(what_ + " '" + name + "' is registered twice, by " + one + " and by " + other +
                   "; choose another name");
  }

  std::string what_;
  std::vector<std::string> own_;
  mutable std::mutex mutex_;  // guards the entries
  std::map<std::string, std::pair<Factory, std::string>> entries_;
};

}  // namespace maestro
