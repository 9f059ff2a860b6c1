// SPDX-License-Identifier: Apache-2.0
// Request and answer for a process that a user starts to join a running job.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

/// A user's request for a part in a running job.
struct ElasticJoin {
  std::string section;
  std::string devices;       ///< ProcessEnv::join_devices
  std::string host;          ///< name that the process gives its host
  bool on_this_host = true;  ///< the process runs on rank 0's host
};
/// Rank 0's answer: how the process executes maestro to join.
struct JoinTerms {
  ProcessId process;
  std::vector<std::string> command;    ///< arguments
  std::vector<std::string> variables;  ///< "NAME=value"
  std::string folder;                  ///< working folder
};

}  // namespace maestro
