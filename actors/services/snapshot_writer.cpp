// SPDX-License-Identifier: Apache-2.0
#include "actors/services/snapshot_writer.hpp"

#include "actors/messages/caf_compat.hpp"

namespace maestro {

namespace {

constexpr const char* first_prefix = "exp_avg.";
constexpr const char* second_prefix = "exp_avg_sq.";

/// Returns the name for errors about a tensor: the file, or the folder of several.
std::string label_of(const std::vector<SafetensorsFile>& files) {
  const std::filesystem::path& first = files.front().path();
  return (files.size() == 1 ? first : first.parent_path()).string();
}

}  // namespace

Result<SectionSnapshot> take_snapshot(std::span<Section* const> tensor_ranks, const std::string& name,
                                      SectionSnapshot into) {
  Section& section = *tensor_ranks.front();
  into.section = name;
  into.config = section.config_json();
  into.adapters = section.adapters().has_value();
  into.updates = static_cast<std::uint64_t>(section.parameters().updates());
  Result<TensorSnapshot> values =
      export_tensors(tensor_ranks, ParameterBuffer::values, "", {.reused = std::move(into.values.memory)});
  if (!values) return values.error();
  into.values = std::move(*values);
  if (section.parameters().optimizer_sharded()) return into;
  for (const ParameterBuffer which : {ParameterBuffer::first_moments, ParameterBuffer::second_moments}) {
    if (Status status = add_moments(into, tensor_ranks, which, which); !status) return status.error();
  }
  return into;
}

Status add_moments(SectionSnapshot& snapshot, std::span<Section* const> tensor_ranks, ParameterBuffer which,
                   ParameterBuffer from) {
  const bool first = which == ParameterBuffer::first_moments;
  TensorSnapshot& moments = first ? snapshot.first_moments : snapshot.second_moments;
  Result<TensorSnapshot> made = export_tensors(
      tensor_ranks, from, first ? first_prefix : second_prefix,
      {.dtype = tensor_ranks.front()->parameters().moments_dtype(), .reused = std::move(moments.memory)});
  if (!made) return made.error();
  moments = std::move(*made);
  return {};
}

Status restore_snapshot(Section& section, const std::filesystem::path& checkpoint, const std::string& name,
                        RestoredState which) {
  Result<StoredSection> stored = read_section(checkpoint, name);
  if (!stored) return stored.error();
  Parameters& parameters = section.parameters();
  const std::string model = label_of(stored->model);
  const std::string optimizer = label_of(stored->optimizer);
  if (Status status = import_tensors(section, ParameterBuffer::values, stored->state.parameters, model); !status) {
    return status;
  }
  if (which == RestoredState::values) return {};
  parameters.set_updates(static_cast<std::int64_t>(stored->state.optimizer_step));
  std::vector<NamedTensor> first;
  std::vector<NamedTensor> second;
  for (const NamedTensor& tensor : stored->state.optimizer) {
    (tensor.name.rfind(second_prefix, 0) == 0 ? second : first).push_back(tensor);
  }
  const auto import_moments = [&](ParameterBuffer which, const std::vector<NamedTensor>& tensors, const char* prefix) {
    // The gradients are still empty and have room for the other replicas' optimizer state.
    const bool shared = parameters.optimizer_sharded();
    Status status = import_tensors(section, shared ? ParameterBuffer::gradients : which, tensors, optimizer, prefix);
    if (status && shared) parameters.load_gathered_moments(which);
    return status;
  };
  if (Status status = import_moments(ParameterBuffer::first_moments, first, first_prefix); !status) return status;
  return import_moments(ParameterBuffer::second_moments, second, second_prefix);
}

SectionSnapshot SnapshotWriter::spare(const std::string& section, const StatePart& part) {
  const std::lock_guard lock(mutex_);
  auto found = spares_.extract({section, part.index});
  return found ? std::move(found.mapped()) : SectionSnapshot();
}

void SnapshotWriter::write(std::filesystem::path staging, SectionSnapshot snapshot, Written written) {
  auto held = std::make_shared<SectionSnapshot>(std::move(snapshot));  // std::function requires copyable captures
  const auto failed = [written](const std::string& problem) { written(Error{ErrorCode::unavailable, problem}); };
  const auto work = [this, staging = std::move(staging), held, written = std::move(written)]() -> Report {
    SectionState state;
    state.config = held->config;
    state.adapters = held->adapters;
    state.parameters = held->values.tensors;
    state.optimizer = held->first_moments.tensors;
    state.optimizer.insert(state.optimizer.end(), held->second_moments.tensors.begin(),
                           held->second_moments.tensors.end());
    state.optimizer_step = held->updates;
    state.part = held->part;
    for (const auto& [step, weights] : held->earlier) state.earlier.push_back({step, weights.tensors});
    auto files = store_.write_section(staging, held->section, state);
    held->earlier.clear();
    if (keeps_memory_) {
      const std::lock_guard lock(mutex_);
      spares_[{held->section, held->part.index}] = std::move(*held);
    }
    return [written, files = std::move(files)] { written(files); };
  };
  run(work, failed);
}

void SnapshotWriter::run(std::function<Report()> work, std::function<void(const std::string&)> failed) {
  ++pending_;
  thread_.submit(Priority::critical, [this, work = std::move(work), failed = std::move(failed)] {
    Report report;
    try {
      report = work();
    } catch (const std::exception&) {
      report = [failed, problem = describe(std::current_exception())] { failed(problem); };
    }
    --pending_;
    report();
  });
}

}  // namespace maestro
