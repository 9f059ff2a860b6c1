// SPDX-License-Identifier: Apache-2.0
// An error with a list, such as bad rows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// Invalid input whose entries have separate lines below the headline. `what()` has them, each after a line break and
/// two spaces.
class ListedError : public JobError {
 public:
  ListedError(std::string headline, std::vector<std::string> entries)
      : JobError(with_entries(headline, entries)), headline_(std::move(headline)), entries_(std::move(entries)) {}
  [[nodiscard]] const std::string& headline() const { return headline_; }
  [[nodiscard]] const std::vector<std::string>& entries() const { return entries_; }

 private:
  static std::string with_entries(std::string text, const std::vector<std::string>& entries) {
    for (const std::string& entry : entries) text.append("\n  ").append(entry);
    return text;
  }

  std::string headline_;
  std::vector<std::string> entries_;
};

}  // namespace maestro
