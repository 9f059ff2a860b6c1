// SPDX-License-Identifier: Apache-2.0
#include "apps/emulate/compose.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/core/printable.hpp"
#include "runtime/graph/replica_mix.hpp"
#include "runtime/wavefront/workload_file.hpp"

namespace maestro {

namespace {

/// The ports of a workload's section, which never runs.
class EmulatedSection final : public Section {
 public:
  explicit EmulatedSection(Ports ports) : ports_(std::move(ports)) {}
  [[nodiscard]] Ports ports() const override { return ports_; }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape&, const Inputs&, Outputs&) override {
    throw std::logic_error("an emulated section cannot run forward");
  }
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {}; }
  [[nodiscard]] bool spreads_over_ranks() const override { return true; }
  [[nodiscard]] std::vector<StateEntry> state() override { return {}; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 private:
  Ports ports_;
  Parameters parameters_;
};

/// Returns an edge's axis: patches if some samples do not enter both sections, so that they send no rows.
Axis axis_of(const WorkloadCorpus& corpus, const WorkloadEdge& edge) {
  return corpus.by_patches(edge.from) || corpus.by_patches(edge.to) ? Axis::patches : Axis::tokens;
}

std::string output_of(Axis axis) {
  return axis == Axis::patches ? "by_patches" : "by_tokens";
}

Ports ports_of(const WorkloadCorpus& corpus, std::size_t section, std::int64_t columns) {
  const Workload& workload = corpus.workload();
  const bool partial = corpus.by_patches(section);
  Ports ports;
  if (partial) {
    ports.inputs.push_back({"pixels", DType::f32, 1, false, false, Axis::patches});
  } else {
    ports.inputs.push_back({"tokens", DType::i32, 1, false, false});
  }
  for (const WorkloadEdge& edge : workload.edges) {
    const Axis axis = axis_of(corpus, edge);
    if (edge.to == section) {
      const bool other_samples = corpus.sources_of(edge.from) != corpus.sources_of(section);
      const bool optional = axis == Axis::patches ? !partial : other_samples;
      ports.inputs.push_back({workload.sections[edge.from].name, DType::f32, columns, true, optional, axis});
    }
    const std::string output = output_of(axis);
    const bool known = std::ranges::any_of(ports.outputs, [&](const Port& port) { return port.name == output; });
    if (edge.from == section && !known) ports.outputs.push_back({output, DType::f32, columns, true, false, axis});
  }
  return ports;
}

/// Returns the keys for a section's replicas. A lane with several devices is a replica with as many tensor ranks, or
/// with as many context parts if the lanes differ.
std::string replicas_of(const WorkloadSection& section) {
  std::vector<std::int64_t> ranks;
  for (const std::vector<int>& lane : section.devices) ranks.push_back(std::ssize(lane));
  const std::string alike = "replicas = " + std::to_string(section.replicas) + "\n";
  if (ranks.empty()) return alike;
  const auto [least, most] = std::ranges::minmax(ranks);
  return least == most ? alike + "tensor = " + std::to_string(most) + "\n" : "replicas = " + text_of_mix(ranks) + "\n";
}

/// Returns the key for a section's devices. Lanes with equal device numbers share an emulated device.
std::string devices_of(const WorkloadSection& section) {
  if (section.devices.empty()) return "devices = [\"emulated\"]\n";
  std::string names;
  for (const std::vector<int>& lane : section.devices) {
    for (const int device : lane) {
      names += (names.empty() ? "\"" : ", \"") + text_of(DeviceId{DeviceId::Kind::emulated, device, {}, true}) + "\"";
    }
  }
  return "devices = [" + names + "]\n";
}

/// Returns the key for its replicas' speeds; empty if all are equal. A job multiplies it by a replica's devices, and a
/// workload's times do not depend on these.
std::string speeds_of(const WorkloadSection& section) {
  std::size_t most = 1;
  for (const std::vector<int>& lane : section.devices) most = std::max(most, lane.size());
  const auto widest = [&](const std::vector<int>& lane) { return lane.size() == most; };
  if (section.speeds.empty() && std::ranges::all_of(section.devices, widest)) return {};
  std::string speeds;
  for (std::int64_t replica = 0; replica < section.replicas; ++replica) {
    const std::size_t devices =
        section.devices.empty() ? most : section.devices[static_cast<std::size_t>(replica)].size();
    const double speed = section.speed(replica) * static_cast<double>(most) / static_cast<double>(devices);
    speeds += (speeds.empty() ? "" : ", ") + number_text(speed);
  }
  return "speed = [" + speeds + "]\n";
}

/// Returns the fewest and the most slots of an edge.
std::pair<std::int64_t, std::int64_t> slots_of_edges(const Workload& workload) {
  if (workload.edges.empty()) return {1, 1};
  std::pair<std::int64_t, std::int64_t> found{most_slots, 1};
  for (const WorkloadEdge& edge : workload.edges) {
    found = {std::min(found.first, edge.slots), std::max(found.second, std::min(edge.slots, most_slots))};
  }
  return found;
}

/// Tables of an emulated job besides its sections.
constexpr std::array<std::string_view, 4> own_tables{"workload", "train", "schedule", "transport"};

}  // namespace

std::string emulation_job(const WorkloadCorpus& corpus, const EmulationSettings& settings) {
  const Workload& workload = corpus.workload();
  const std::int64_t slots = slots_of_edges(workload).second;
  std::ostringstream job;
  const std::string file = std::filesystem::absolute(corpus.file()).string();
  job << "name = \"emulation\"\n[workload]\npath = " << nlohmann::json(file).dump()
      << "\ncolumns = " << settings.columns << "\n[train]\nsteps = " << settings.steps
      << "\nglobal_batch = " << corpus.samples(Split::train) << "\ncheckpoint_at_end = false\n[schedule]\npolicy = \""
      << settings.policy << "\"\nevaluations = " << settings.evaluations << "\n[transport]\nslots = " << slots << "\n";
  for (const WorkloadSection& section : workload.sections) {
    if (std::ranges::find(own_tables, section.name) != own_tables.end()) {
      throw JobError(corpus.file() + ": section '" + section.name + "': the emulated job has a table of this name; " +
                     "choose another name for the section");
    }
    const std::int64_t all = static_cast<std::int64_t>(corpus.samples(Split::train));
    const std::int64_t in_flight =
        section.max_in_flight == no_limit ? std::min(all, most_slots) : section.max_in_flight;
    job << "[" << section.name << "]\nmicro_batch = 1\nmax_in_flight = " << in_flight << "\n"
        << replicas_of(section) << speeds_of(section) << devices_of(section);
  }
  return job.str();
}

std::string note_on_slots(const WorkloadCorpus& corpus) {
  const auto [fewest, most] = slots_of_edges(corpus.workload());
  if (fewest == most) return {};
  return "the edges of " + printable(corpus.file()) + " have " + std::to_string(fewest) + " to " +
         std::to_string(most) + " slots; the emulated job gives each " + std::to_string(most) +
         ", and --set transport.slots=N another number to all";
}

void compose_emulation(App& app, std::shared_ptr<const WorkloadCorpus> corpus) {
  const JobTable table = app.table("workload");
  const std::string file = table.text("path", "", {"the workload file of an emulated run"});
  const std::int64_t columns = table.integer("columns", 64, {.min = 1}, {"floats that a sample sends over an edge"});
  if (corpus == nullptr) corpus = std::make_shared<const WorkloadCorpus>(load_workload(file), file);
  const Workload& workload = corpus->workload();
  app.set_costs([corpus](std::string_view section, const SampleRef& sample) { return corpus->cost(section, sample); });
  auto& data = app.source("workload", corpus);
  for (std::size_t index = 0; index < workload.sections.size(); ++index) {
    const std::string& name = workload.sections[index].name;
    const Ports ports = ports_of(*corpus, index, columns);
    auto& section = app.section(
        name, SectionFactory([ports](const SectionContext&) { return std::make_unique<EmulatedSection>(ports); }));
    workload.sections[index].has_backward ? section.splits_passes() : section.forward_only();
    if (!corpus->by_patches(index)) section.only_for(corpus->sources_of(index));
    const std::string from = corpus->by_patches(index) ? "pixels" : "tokens";
    app.connect(data.port(from), section.port(from));
  }
  for (const WorkloadEdge& edge : workload.edges) {
    app.connect({workload.sections[edge.from].name, output_of(axis_of(*corpus, edge))},
                {workload.sections[edge.to].name, workload.sections[edge.from].name});
  }
}

}  // namespace maestro
