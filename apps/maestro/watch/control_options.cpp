// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/watch/control_options.hpp"

#include "runtime/core/result.hpp"

namespace maestro {

void add_target_options(CLI::App& command, ControlTarget& target) {
  command.add_option("--at", target.address,
                     "unix:/PATH or HOST:PORT (default: the one run of this user on this host)");
  command.add_option("--keys", target.keys, "key folder, for a run on another host");
  command.add_option("--token-file", target.token_file, "file with the run's token");
}

int call_run(Console& console, const std::function<void()>& call) {
  try {
    call();
    return 0;
  } catch (const JobError& error) {
    if (error.code() == ErrorCode::invalid_argument) throw;
    console.error(error.what());
    return 1;
  }
}

}  // namespace maestro
