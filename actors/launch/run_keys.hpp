// SPDX-License-Identifier: Apache-2.0
// A key set for a single run: rank 0 of `--hosts` makes it, and the remote shells carry it to the others.
//
// EK-1 (private and temporary): files are in a folder that only this user can read, in memory if the system has such a
//       folder, and are removed with the object.
#pragma once

#include <string>
#include <vector>

#include "actors/rpc/key_set.hpp"

namespace maestro {

class RunKeys {
 public:
  /// Makes a set for these hosts. Throws JobError.
  [[nodiscard]] static RunKeys make(const std::vector<std::string>& hosts);
  /// Reads the output of pack(). Throws JobError if it is damaged.
  [[nodiscard]] static RunKeys unpack(const std::string& line);
  ~RunKeys();
  RunKeys(RunKeys&& other) noexcept;
  RunKeys& operator=(RunKeys&&) = delete;

  [[nodiscard]] const KeySet& keys() const { return keys_; }

 private:
  RunKeys() = default;
  KeySet keys_;
};

/// Removes the sets of dead processes of this host.
void sweep_run_keys() noexcept;

/// Returns a secret in a single line: private key, certificates and token.
[[nodiscard]] std::string pack(const KeySet& keys);

/// Reads the line that the remote shell writes to the standard input. Throws JobError if the input ends first.
[[nodiscard]] std::string read_secret_line();

}  // namespace maestro
