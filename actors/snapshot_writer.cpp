#include "actors/snapshot_writer.hpp"

namespace maestro {

namespace {
constexpr const char* first_prefix = "exp_avg.";
constexpr const char* second_prefix = "exp_avg_sq.";
}  // namespace

Result<SectionSnapshot> take_snapshot(Section& section, const std::string& name) {
  const Parameters& parameters = section.parameters();
  SectionSnapshot snapshot;
  snapshot.section = name;
  snapshot.config = section.config_json();
  snapshot.updates = static_cast<std::uint64_t>(parameters.updates());
  const auto copy = [&](TensorSnapshot& into, std::span<float> flat, const char* prefix) -> Status {
    Result<TensorSnapshot> made = export_tensors(section, flat, prefix);
    if (!made) return made.error();
    into = std::move(*made);
    return {};
  };
  if (Status status = copy(snapshot.values, parameters.values(), ""); !status) return status.error();
  if (Status status = copy(snapshot.first_moments, parameters.first_moments(), first_prefix); !status) {
    return status.error();
  }
  if (Status status = copy(snapshot.second_moments, parameters.second_moments(), second_prefix); !status) {
    return status.error();
  }
  return snapshot;
}

Status restore_snapshot(Section& section, const std::filesystem::path& checkpoint, const std::string& name) {
  Result<StoredSection> stored = read_section(checkpoint, name);
  if (!stored) return stored.error();
  Parameters& parameters = section.parameters();
  const std::string model = (checkpoint / name / "model.safetensors").string();
  const std::string optimizer = (checkpoint / name / "optimizer.safetensors").string();
  if (Status status = import_tensors(section, parameters.values(), stored->state.parameters, model); !status) {
    return status;
  }
  parameters.set_updates(static_cast<std::int64_t>(stored->state.optimizer_step));
  std::vector<NamedTensor> first;
  std::vector<NamedTensor> second;
  for (const NamedTensor& tensor : stored->state.optimizer) {
    (tensor.name.rfind(second_prefix, 0) == 0 ? second : first).push_back(tensor);
  }
  if (Status status = import_tensors(section, parameters.first_moments(), first, optimizer, first_prefix); !status) {
    return status;
  }
  return import_tensors(section, parameters.second_moments(), second, optimizer, second_prefix);
}

void SnapshotWriter::write(std::filesystem::path staging, SectionSnapshot snapshot, Written written) {
  auto held = std::make_shared<SectionSnapshot>(std::move(snapshot));  // std::function wants copyable captures
  thread_.submit(Priority::critical, [this, staging = std::move(staging), held, written = std::move(written)] {
    SectionState state;
    state.config = held->config;
    state.parameters = held->values.tensors;
    state.optimizer = held->first_moments.tensors;
    state.optimizer.insert(state.optimizer.end(), held->second_moments.tensors.begin(),
                           held->second_moments.tensors.end());
    state.optimizer_step = held->updates;
    written(store_.write_section(staging, held->section, state));
  });
}

}  // namespace maestro
