// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/watch/control_options.hpp"

#include "runtime/core/result.hpp"

namespace maestro {

void add_run_choice(CLI::App& command, RunChoice& choice) {
  CLI::Option* const run =
      command.add_option("run", choice.run, "the run's folder, train.out, or its address (default: the only live run)");
  command.add_option("--at", choice.service.address, "its address, unix:/PATH or HOST:PORT")->excludes(run);
  command.add_option("--keys", choice.service.keys, "key folder, for a run on another host");
  command.add_option("--token-file", choice.service.token_file, "file with the run's token");
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
