// SPDX-License-Identifier: Apache-2.0
#include "actors/process/section_devices.hpp"

#include <algorithm>
#include <set>

#include "actors/job/plan_checks.hpp"
#include "actors/process/job_resolver.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/device/backend.hpp"

namespace maestro {

namespace {

/// Returns the CUDA devices of a host. Looks for the driver only if a section names a CUDA device (DB-1). Hosts are
/// assumed to be alike.
CudaDevices cuda_devices(const std::vector<PlannedSection>& sections) {
  const bool named = std::ranges::any_of(sections, [&](const PlannedSection& section) {
    return std::ranges::any_of(section.config.devices, &DeviceId::is_cuda);
  });
  if (!named) return {};
  return {static_cast<std::int64_t>(cuda_status().devices()), cuda_status().missing};
}

/// Returns the place, from 0, of the stage with this device among the stages of replica 0, then of replica 1, and so
/// on.
std::int64_t stages_before(const SectionConfig& config, std::size_t device) {
  auto at = static_cast<std::int64_t>(device);
  if (config.contexts.empty()) return at / (config.tensor * config.context);
  std::int64_t before = 0;
  for (const std::int64_t context : config.contexts) {
    const std::int64_t ranks = config.tensor * context;
    if (at < config.pipeline * ranks) return before + at / ranks;
    at -= config.pipeline * ranks;
    before += config.pipeline;
  }
  return before;
}

}  // namespace

std::vector<std::int64_t> processes_of_stage(const SectionConfig& config, std::int64_t stage) {
  std::vector<std::int64_t> processes;
  for (auto at = static_cast<std::size_t>(stage % config.pipeline); at < config.processes.size();
       at += static_cast<std::size_t>(config.pipeline)) {
    processes.push_back(config.processes[at]);
  }
  return processes;
}

std::vector<DeviceId> devices_of_stage(const SectionConfig& config, std::int64_t stage) {
  if (config.emulated() && !config.devices[0].numbered) return config.devices;  // each rank has a separate one
  std::vector<DeviceId> devices;
  for (std::size_t at = 0; at < config.devices.size(); ++at) {
    if (stages_before(config, at) % config.pipeline == stage % config.pipeline) devices.push_back(config.devices[at]);
  }
  return devices;
}

void check_named_once(const SectionConfig& config) {
  std::set<std::pair<DeviceId, std::int64_t>> named;  // with their processes, if given
  for (std::size_t at = 0; at < config.devices.size(); ++at) {
    const DeviceId& device = config.devices[at];
    const auto stage = static_cast<std::size_t>(stages_before(config, at));
    const std::int64_t process = stage < config.processes.size() ? config.processes[stage] : 0;
    if (device.kind == DeviceId::Kind::emulated || named.emplace(device, process).second) continue;  // PL-5
    throw JobError(config.name + ".devices: \"" + text_of(device) +
                   "\" is named twice; the stages and ranks of a section need devices of their own");
  }
}

void refuse_devices_of(const SectionConfig& config, const JobTable& settings, const std::vector<std::string>& names) {
  const auto near = nearest_name(config.devices_of, names);
  settings.fail("devices", "\"" + printable(config.devices_of) +
                               "\" is neither a device nor another section; expected cpu:K, cuda:K or emulated:K, for "
                               "example cpu:0, a single emulated, or a section" +
                               (near ? "; did you mean \"" + *near + "\"?" : ""));
}

void take_devices(SectionConfig& config, const JobTable& settings, const SectionConfig& other) {
  if (!other.devices_of.empty()) {
    settings.fail("devices", "\"" + other.name + "\" uses the devices of " + other.devices_of + "; name the section " +
                                 "that has them");
  }
  if (other.least > 0) {
    settings.fail("devices", "the replicas of \"" + other.name + "\" move to processes that join; name devices");
  }
  if (!config.processes.empty()) {
    settings.fail("processes", "the section is in the processes of \"" + other.name + "\", whose devices it uses; " +
                                   "leave processes out");
  }
  config.devices = other.devices;
}

void place_sections(ResolvedJob& plan, const RunOptions& run) {
  PlacementRequest request;
  request.processes = run.processes;
  request.hosts = run.launch_info.place.hosts;
  request.cores = cpu_devices_of(run);
  request.cuda = cuda_devices(plan.sections);
  check_devices(plan, (request.cores + request.cuda.of_host) * (request.hosts.back() + 1));
  for (const PlannedSection& section : plan.sections) {
    request.devices.push_back(section.config.devices);
    request.processes_of.push_back(section.config.processes);
    request.devices_of.push_back(section.config.devices_of);
    const std::int64_t stage = section.stage.index;
    if (stage < section.config.pipeline) continue;
    const std::vector<SectionId> stages = plan.graph.stages_of(section.config.name);
    request.chunk_of[stages[static_cast<std::size_t>(stage)]] =
        stages[static_cast<std::size_t>(stage % section.config.pipeline)];
  }
  plan.places = place(plan.graph, request);
}

}  // namespace maestro
