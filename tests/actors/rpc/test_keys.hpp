// SPDX-License-Identifier: Apache-2.0
// Valid and invalid certificates for tests, newly generated: none is stored in the repository.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

#include "actors/rpc/key_set.hpp"

namespace maestro {

/// An authority in a folder, and certificates that it signs.
class TestAuthority {
 public:
  explicit TestAuthority(std::filesystem::path folder);
  ~TestAuthority();
  /// Returns keys that are valid from a day ago until `validity` from now; if it is negative, they have expired.
  [[nodiscard]] std::shared_ptr<const KeySet> keys(const std::string& name,
                                                   std::chrono::seconds validity = std::chrono::hours(1)) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
