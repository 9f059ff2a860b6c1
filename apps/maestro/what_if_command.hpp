// SPDX-License-Identifier: Apache-2.0
// `maestro what-if TRACE`: how long the steps of a traced run would have taken, had something been different.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/maestro/plug_in_option.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct WhatIfArguments {
  std::filesystem::path trace;
  std::vector<std::string> overrides;  ///< as for train --set
  PlugInChoice plug_ins;
  std::vector<std::string> faster;  ///< "student=2"
  std::vector<std::string> free;    ///< sections whose passes take no time
  double latency_ms = 0;
  std::int64_t processes = 0;      ///< 0: as traced
  std::filesystem::path timeline;  ///< of the last rehearsal, for Perfetto; empty: no timeline
  bool json = false;
};

/// Rehearses a traced run as it was, which shows how far rehearsals of it can be trusted, and with the changes.
class WhatIfCommand {
 public:
  explicit WhatIfCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  WhatIfArguments arguments_;
};

}  // namespace maestro
