// SPDX-License-Identifier: Apache-2.0
#include "actors/services/snapshot_writer.hpp"

#include "actors/messages/caf_compat.hpp"

namespace maestro {

namespace {

constexpr const char* first_prefix = "exp_avg.";
constexpr const char* second_prefix = "exp_avg_sq.";
constexpr const char* loads_prefix = "loads.";

/// Returns the parameters that hold experts' loads, which training alone needs: every replica and rank has all of them.
std::vector<Parameter*> loads_of(Parameters& parameters) {
  std::vector<Parameter*> loads;
  for (Parameter& parameter : parameters.all()) {
    if (parameter.rule().kind == UpdateRule::Kind::loads) loads.push_back(&parameter);
  }
  return loads;
}

TensorSnapshot copy_of_loads(Parameters& parameters) {
  const std::vector<Parameter*> loads = loads_of(parameters);
  std::size_t bytes = 0;
  for (const Parameter* each : loads) bytes += each->value().bytes();
  TensorSnapshot copy{AlignedMemory(bytes), {}};
  std::byte* at = copy.memory.data();
  for (const Parameter* each : loads) {
    parameters.memory().read(at, each->value().raw(), each->value().bytes());
    copy.tensors.push_back({loads_prefix + each->name(), Tensor(at, DType::f32, each->shape())});
    at += each->value().bytes();
  }
  return copy;
}

/// Restores loads. A checkpoint of a run that kept none leaves them as they are.
Status restore_loads(Parameters& parameters, const std::vector<NamedTensor>& stored, const std::string& file) {
  if (stored.empty()) return {};
  for (const Parameter* each : loads_of(parameters)) {
    const std::string name = loads_prefix + each->name();
    const auto found = std::ranges::find(stored, name, &NamedTensor::name);
    if (found == stored.end() || found->tensor.dtype() != DType::f32 || found->tensor.shape() != each->shape()) {
      return Error{ErrorCode::invalid_argument, file + ": tensor '" + name + "' " +
                                                    (found == stored.end() ? "is missing" : "has another shape") +
                                                    ", expected F32 " + each->shape().to_string()};
    }
    parameters.memory().write(each->value().raw(), found->tensor.raw(), each->value().bytes());
  }
  return {};
}

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
  into.loads = copy_of_loads(section.parameters());
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
  std::vector<NamedTensor> loads;
  for (const NamedTensor& tensor : stored->state.optimizer) {
    const bool of_second = tensor.name.starts_with(second_prefix), of_loads = tensor.name.starts_with(loads_prefix);
    (of_second ? second : of_loads ? loads : first).push_back(tensor);
  }
  if (Status status = restore_loads(parameters, loads, optimizer); !status) return status;
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
    for (const TensorSnapshot* more : {&held->second_moments, &held->loads}) {
      state.optimizer.insert(state.optimizer.end(), more->tensors.begin(), more->tensors.end());
    }
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
