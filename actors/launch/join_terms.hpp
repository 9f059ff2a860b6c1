// SPDX-License-Identifier: Apache-2.0
// How a process that a user starts joins a running job.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

/// A user's request for a part in a running job.
struct ElasticJoin {
  std::string section;
  std::string devices;       ///< ProcessEnv::join_devices
  std::string host;          ///< of the process, as it names it
  bool on_this_host = true;  ///< of rank 0
};
/// How a process that a user starts joins a running job: it executes maestro so.
struct JoinTerms {
  ProcessId process;
  std::vector<std::string> command;    ///< arguments
  std::vector<std::string> variables;  ///< "NAME=value"
  std::string folder;                  ///< working folder
};

}  // namespace maestro
