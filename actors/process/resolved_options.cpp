// SPDX-License-Identifier: Apache-2.0
// Options of the job file, overridden by options of the command line.
#include <unistd.h>

#include "actors/process/job_resolver.hpp"
#include "runtime/core/usable_cores.hpp"
#include "runtime/job/job_reader.hpp"

namespace maestro {

std::int64_t cpu_devices_of(const RunOptions& run) {
  if (run.cpu_devices > 0) return run.cpu_devices;
  return devices_of_host(run.launch_info.place, std::ssize(usable_cores()), sysconf(_SC_NPROCESSORS_ONLN));
}

TransportConfig resolve_transport(const Composition& composed) {
  const JobTable table = composed.document.root().table("transport");
  const RunOptions& run = composed.options;
  TransportConfig transport = read_transport(table);
  if (run.launch_info.several_hosts() && !table.has("slots")) transport.slots = slots_between_hosts;
  if (!run.listen.empty()) transport.listen = run.listen;
  if (!run.keys.empty()) transport.keys = run.keys.string();
  return transport;
}

void check_pause(const ResolvedJob& plan) {
  const std::optional<std::uint64_t>& after = plan.options.pause_after;
  if (!after) return;
  const std::string option = "--pause-after " + std::to_string(*after) + ": ";
  if (plan.options.control == "none") {
    throw JobError(option + "a run with --control none cannot be resumed; leave one of them out");
  }
  if (*after < static_cast<std::uint64_t>(all_steps(plan))) return;
  throw JobError(option + "the run ends after step " + std::to_string(all_steps(plan)) + " (train.steps)");
}

}  // namespace maestro
