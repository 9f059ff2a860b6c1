// SPDX-License-Identifier: Apache-2.0
// A key set that lives as long as one run: rank 0 of `--hosts` makes it, and the remote shells carry it to the others.
//
// RK-1 (keys): files are in a folder that only this user can read, in memory where the system has a place there, and
//              are removed with the object.
#pragma once

#include <string>
#include <vector>

#include "actors/rpc/key_set.hpp"

namespace maestro {

class RunKeys {
 public:
  /// Makes a set for these hosts. Throws JobError.
  [[nodiscard]] static RunKeys make(const std::vector<std::string>& hosts);
  /// Out of what pack() gave. Throws JobError: it is damaged.
  [[nodiscard]] static RunKeys unpack(const std::string& line);
  ~RunKeys();
  RunKeys(RunKeys&& other) noexcept;
  RunKeys& operator=(RunKeys&&) = delete;

  [[nodiscard]] const KeySet& keys() const { return keys_; }

 private:
  RunKeys() = default;
  KeySet keys_;
};

/// Removes the sets that processes of this host, now dead, have left behind.
void sweep_run_keys() noexcept;

/// A secret of one line: private key, certificates and token.
[[nodiscard]] std::string pack(const KeySet& keys);

/// One line from the standard input, as a remote shell hands it over. Throws JobError when it ends first.
[[nodiscard]] std::string read_secret_line();

}  // namespace maestro
