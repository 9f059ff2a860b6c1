// SPDX-License-Identifier: Apache-2.0
#include "actors/services/snapshot_writer.hpp"

#include "actors/messages/caf_compat.hpp"

namespace maestro {

namespace {

constexpr const char* first_prefix = "exp_avg.";
constexpr const char* second_prefix = "exp_avg_sq.";
constexpr const char* loads_prefix = "loads.";
constexpr const char* row_sums_prefix = "row_sums.";

/// A tensor that only training needs and that is not a moment, f32: experts' loads, which every rank has, or the sums
/// of squares of a table's rows, which lie with the rows.
struct FigureTensor {
  std::string name;
  const Parameter* parameter = nullptr;
  Tensor held;
  /// Returns the tensor's size over all ranks.
  [[nodiscard]] Shape whole_shape() const { return by_rows() ? Shape{parameter->whole_shape()[0]} : held.shape(); }
  /// Returns the elements that are held here.
  [[nodiscard]] std::vector<Parameter::Run> runs() const {
    return by_rows() ? parameter->runs() : std::vector<Parameter::Run>{{0, 0, held.elements()}};
  }

 private:
  [[nodiscard]] bool by_rows() const { return parameter->rule().by_rows(); }
};

std::vector<FigureTensor> figures_of(Parameters& parameters) {
  std::vector<FigureTensor> figures;
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.rule().kind == UpdateRule::Kind::loads) {
      figures.push_back({loads_prefix + parameter.name(), &parameter, parameter.value()});
    } else if (parameter.row_sums().defined()) {
      figures.push_back({row_sums_prefix + parameter.name(), &parameter, parameter.row_sums()});
    }
  }
  return figures;
}

TensorSnapshot copy_of_figures(std::span<Section* const> ranks) {
  std::size_t bytes = 0;
  for (const FigureTensor& figure : figures_of(ranks.front()->parameters())) {
    bytes += static_cast<std::size_t>(figure.whole_shape().elements()) * sizeof(float);
  }
  TensorSnapshot copy{AlignedMemory(bytes), {}};
  for (Section* const rank : ranks) {
    std::byte* at = copy.memory.data();
    for (const FigureTensor& figure : figures_of(rank->parameters())) {
      const Tensor whole(at, DType::f32, figure.whole_shape());
      for (const Parameter::Run& run : figure.runs()) {
        const Tensor from = figure.held.flat_slice(run.row, run.rows);
        rank->parameters().memory().read(whole.flat_slice(run.whole_row, run.rows).raw(), from.raw(), from.bytes());
      }
      if (rank == ranks.front()) copy.tensors.push_back({figure.name, whole});
      at += whole.bytes();
    }
  }
  return copy;
}

/// Restores figures. A checkpoint of a run that kept none leaves experts' loads as they are.
Status restore_figures(Parameters& parameters, const std::vector<NamedTensor>& stored, const std::string& file) {
  for (const FigureTensor& figure : figures_of(parameters)) {
    if (stored.empty() && figure.name.starts_with(loads_prefix)) continue;
    const auto found = std::ranges::find(stored, figure.name, &NamedTensor::name);
    const Shape expected = figure.whole_shape();
    if (found == stored.end() || found->tensor.dtype() != DType::f32 || found->tensor.shape() != expected) {
      return Error{ErrorCode::invalid_argument, file + ": tensor '" + figure.name + "' " +
                                                    (found == stored.end() ? "is missing" : "has another shape") +
                                                    ", expected F32 " + expected.to_string()};
    }
    for (const Parameter::Run& run : figure.runs()) {
      const ConstTensor from = found->tensor.flat_slice(run.whole_row, run.rows);
      parameters.memory().write(figure.held.flat_slice(run.row, run.rows).raw(), from.raw(), from.bytes());
    }
  }
  return {};
}

/// Returns the name for errors about a tensor: the file, or the folder of several.
std::string label_of(const std::vector<SafetensorsFile>& files) {
  const std::filesystem::path& first = files.front().path();
  return (files.size() == 1 ? first : first.parent_path()).string();
}

}  // namespace

Result<SectionSnapshot> take_snapshot(std::span<Section* const> ranks, const std::string& name, SectionSnapshot into) {
  Section& section = *ranks.front();
  into.section = name;
  into.config = section.config_json();
  into.adapters = section.adapters().has_value();
  into.updates = static_cast<std::uint64_t>(section.parameters().updates());
  Result<TensorSnapshot> values =
      export_tensors(ranks, ParameterBuffer::values, "", {.reused = std::move(into.values.memory)});
  if (!values) return values.error();
  into.values = std::move(*values);
  into.figures = copy_of_figures(ranks);
  if (section.parameters().optimizer_sharded()) return into;
  for (const ParameterBuffer which : {ParameterBuffer::first_moments, ParameterBuffer::second_moments}) {
    if (Status status = add_moments(into, ranks, which, which); !status) return status.error();
  }
  return into;
}

Status add_moments(SectionSnapshot& snapshot, std::span<Section* const> ranks, ParameterBuffer which,
                   ParameterBuffer from) {
  const bool first = which == ParameterBuffer::first_moments;
  TensorSnapshot& moments = first ? snapshot.first_moments : snapshot.second_moments;
  Result<TensorSnapshot> made =
      export_tensors(ranks, from, first ? first_prefix : second_prefix,
                     {.dtype = ranks.front()->parameters().moments_dtype(), .reused = std::move(moments.memory)});
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
  std::vector<NamedTensor> figures;
  for (const NamedTensor& tensor : stored->state.optimizer) {
    const bool of_second = tensor.name.starts_with(second_prefix);
    const bool is_figure = tensor.name.starts_with(loads_prefix) || tensor.name.starts_with(row_sums_prefix);
    (of_second ? second : is_figure ? figures : first).push_back(tensor);
  }
  if (Status status = restore_figures(parameters, figures, optimizer); !status) return status;
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
    for (const TensorSnapshot* more : {&held->second_moments, &held->figures}) {
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
