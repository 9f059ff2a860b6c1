// SPDX-License-Identifier: Apache-2.0
// A section: a part of the model. It uses tensors and the tape, never actors or the network. The generic section
// replica actor hosts it: it hands over the inputs of a micro-batch, runs forward(), sends the outputs, brings
// gradients back through the tape and steps the optimizer.
//
// SE-1 (one at a time): forward() is called on the device thread of the replica, one micro-batch at a time; several
//       micro-batches may be between forward and backward, each with its own tape.
// SE-2 (constant ports): ports() is constant for the life of the section and the same in every replica.
// SE-3 (reproducible): a section that is built twice from the same context holds bitwise the same parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/collective/communicator.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/graph/pass.hpp"
#include "runtime/graph/port.hpp"
#include "runtime/job/lora_config.hpp"
#include "runtime/ops/functions.hpp"
#include "runtime/ops/parameters.hpp"
#include "runtime/ops/tape.hpp"
#include "runtime/state/adapter_config.hpp"

namespace maestro {

/// The inputs of a section for a micro-batch. Views live until the micro-batch retires.
class Inputs {
 public:
  Inputs(Pass pass, std::span<const SampleId> samples, SequenceLayout tokens, double loss_scale,
         SequenceLayout patches = {})
      : pass_(pass), samples_(samples), tokens_(tokens), patches_(patches), loss_scale_(loss_scale) {}
  /// `host` is the same in host memory; left out where value is there.
  void set(std::string port, Var value, const Tensor& host = Tensor()) {
    if (host.defined()) hosts_.emplace_back(port, host);
    values_.emplace_back(std::move(port), std::move(value));
  }

  /// Says which samples have rows at a port where some have none (Port::chosen).
  void set_taken(std::string port, std::vector<bool> taken) { taken_.emplace_back(std::move(port), std::move(taken)); }

  /// (M, columns) of the port's dtype, in memory of the operator table. An unknown or unconnected port is a programming
  /// error: throws std::out_of_range.
  [[nodiscard]] const Var& operator[](std::string_view port) const;
  /// The same in host memory, for sections whose work depends on tokens or places.
  [[nodiscard]] Tensor host(std::string_view port) const;
  [[nodiscard]] bool has(std::string_view port) const;
  /// Whether each sample has rows at the port: none where the port has no value, and all unless the port is chosen.
  [[nodiscard]] std::vector<bool> taken(std::string_view port) const;
  /// The samples of the micro-batch, in row order; of the training or the validation split by pass().
  [[nodiscard]] std::span<const SampleId> samples() const { return samples_; }
  /// Where each sample's rows begin on an axis and each row's position in its sample: of the whole micro-batch, also
  /// where a rank holds a part of its rows (Port::sharding). A sample may have no patches.
  [[nodiscard]] const SequenceLayout& layout(Axis axis = Axis::tokens) const {
    return axis == Axis::tokens ? tokens_ : patches_;
  }
  [[nodiscard]] Pass pass() const { return pass_; }
  /// 1 / target tokens in the global batch; gradients scaled with it add up over micro-batches and replicas.
  [[nodiscard]] double loss_scale() const { return loss_scale_; }

 private:
  Pass pass_;
  std::span<const SampleId> samples_;
  SequenceLayout tokens_;
  SequenceLayout patches_;
  double loss_scale_;
  std::vector<std::pair<std::string, Var>> values_;
  std::vector<std::pair<std::string, Tensor>> hosts_;
  std::vector<std::pair<std::string, std::vector<bool>>> taken_;
};

/// A figure summed over micro-batches: reported as sum / weight of the whole step.
struct MetricSum {
  std::string name;  ///< "loss", "ce", "kl", "teacher_ce", or a section's own
  double sum = 0;
  double weight = 0;
};

/// The figures of a pass. get() once the pass is complete on the device (Device::finish); converts to its metrics.
class PassMetrics {
 public:
  void add(MetricSum metric) { entries_.emplace_back(std::move(metric)); }
  void add(std::function<MetricSum()> later) { entries_.emplace_back(std::move(later)); }
  void add(const Pending<LossSums>& sums, bool with_teacher, bool with_teacher_ce) {
    entries_.emplace_back(Losses{sums, with_teacher, with_teacher_ce});
  }
  [[nodiscard]] std::vector<MetricSum> get() const;
  operator std::vector<MetricSum>() const { return get(); }  // NOLINT(google-explicit-constructor)

 private:
  struct Losses {
    Pending<LossSums> sums;
    bool with_teacher = false;
    bool with_teacher_ce = false;
  };
  std::vector<std::variant<MetricSum, Losses, std::function<MetricSum()>>> entries_;
};

class Outputs {
 public:
  /// The value of an output port, (M, columns) of the port's dtype.
  void set(std::string port, Var value) { values_.emplace_back(std::move(port), std::move(value)); }
  void metric(std::string name, double sum, double weight) { metrics_.add({std::move(name), sum, weight}); }
  /// A figure that is available when the pass is complete on the device.
  void metric(std::function<MetricSum()> later) { metrics_.add(std::move(later)); }
  /// Reports loss, ce, and with a teacher kl and teacher_ce.
  void losses(const Pending<LossSums>& sums, bool with_teacher) { losses(sums, with_teacher, with_teacher); }
  /// The same for a teacher whose cross-entropy is unknown: teacher_ce is reported only `with_teacher_ce`.
  void losses(const Pending<LossSums>& sums, bool with_teacher, bool with_teacher_ce) {
    metrics_.add(sums, with_teacher, with_teacher_ce);
  }

  [[nodiscard]] const Var* find(std::string_view port) const;
  [[nodiscard]] const std::vector<std::pair<std::string, Var>>& values() const { return values_; }
  [[nodiscard]] const PassMetrics& pass_metrics() const { return metrics_; }
  /// Once the pass is complete.
  [[nodiscard]] std::vector<MetricSum> metrics() const { return metrics_.get(); }

 private:
  std::vector<std::pair<std::string, Var>> values_;
  PassMetrics metrics_;
};

/// Work of a forward pass, for scheduler and planner; a backward pass counts twice the forward's FLOPs.
struct Cost {
  double flops = 0;
  double bytes = 0;       ///< activations kept for the backward pass, of all ranks together
  double recomputed = 0;  ///< FLOPs of the forward pass that the backward pass repeats (SectionContext::recompute)
  double working = 0;     ///< bytes that a pass takes for a while beside those kept, of all ranks together
};
struct SampleShape {
  std::int64_t tokens = 0;
  std::int64_t patches = 0;
  std::int64_t images = 0;
};

/// FLOPs of a sample by layer, and of the additional work of the first and the last stage: for partitioning into
/// stages.
struct LayerCosts {
  std::vector<double> layers;  ///< empty: the section cannot be cut
  double before = 0;
  double after = 0;
};

/// How a parameter, or some of its rows, is stored under its Hugging Face name. Rows are those of the whole parameter,
/// whatever part of it this rank holds (Parameter::runs).
struct StateEntry {
  std::string name;  ///< e.g. "transformer.h.0.attn.c_attn.weight"
  Parameter* parameter = nullptr;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;    ///< of the parameter; 0: all
  bool transposed = false;  ///< stored as (columns, rows), as GPT-2's Conv1D is
  bool copy = false;        ///< another stage stores it: read, and not written
};

/// Parameters with the names that they are stored under.
struct NamedParameters {
  Parameters* parameters = nullptr;
  std::vector<StateEntry> entries;
};

/// The parameters that matrix products read, in packed form, and an embedding's table, if any: tied if it is one of the
/// matrices.
struct ProductParameters {
  std::vector<Parameter*> matrices;
  Parameter* table = nullptr;
};

/// A process outside the run that a section depends on is gone. A run that may begin again from its newest checkpoint
/// does, as after the loss of a process of its own.
class ServiceLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Section {
 public:
  virtual ~Section() = default;
  [[nodiscard]] virtual Ports ports() const = 0;
  /// The trainable parameters. Frozen extras (a teacher's output layer) are the section's own affair.
  virtual Parameters& parameters() = 0;
  /// Throws JobError only for errors that could not be detected at start; anything else is a bug.
  virtual void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) = 0;
  [[nodiscard]] virtual Cost cost(const SampleShape& sample) const = 0;
  [[nodiscard]] virtual ProductParameters products() { return {}; }
  /// Bytes of frozen values that a rank holds beside parameters(), such as another model's output layer.
  [[nodiscard]] virtual double extra_bytes() const { return 0; }
  /// Every parameter under its Hugging Face name, for checkpoints and weights in and out.
  [[nodiscard]] virtual std::vector<StateEntry> state() = 0;
  /// Returns the parameters that a folder of weights holds: those above, or below adapters the frozen ones.
  [[nodiscard]] virtual NamedParameters weights() { return {&parameters(), state()}; }
  /// Whether the section observes SectionContext::lora.
  [[nodiscard]] virtual bool takes_adapters() const { return false; }
  /// Returns the adapters that parameters() are, without the folder of their base; nothing: parameters() are weights.
  [[nodiscard]] virtual std::optional<AdapterConfig> adapters() const { return std::nullopt; }
  /// Whether a stored tensor that is none of state() may stand in the section's file: another section's part of the
  /// same model, or a buffer that is computed here.
  [[nodiscard]] virtual bool ignores(std::string_view /*stored_name*/) const { return false; }
  /// Whether the section does its share of the work under a layout of several ranks (SectionContext::parallel).
  [[nodiscard]] virtual bool spreads_over_ranks() const { return false; }
  /// Whether a pass may run with nothing computed: it computes by the operators of its tape alone and has no effect
  /// beside its outputs. Then a dry pass states the memory of passes before a run; otherwise `cost` does.
  [[nodiscard]] virtual bool runs_dry() const { return false; }
  /// Whether the section observes SectionContext::recompute.
  [[nodiscard]] virtual bool recomputes() const { return false; }
  /// For pipelines; without layers the section cannot be cut into stages.
  [[nodiscard]] virtual LayerCosts layer_costs(const SampleShape& /*sample*/) const { return {}; }
  /// The parameter that the first and the last stage of a section both hold, such as a tied embedding; null: none. The
  /// runtime adds the two gradients up in both, so that the copies stay equal; it is stored by the first stage alone.
  [[nodiscard]] virtual Parameter* tied() { return nullptr; }
  /// config.json of the model family.
  [[nodiscard]] virtual std::string config_json() const = 0;
  /// The model in a few words, for `check`; empty: the type describes none.
  [[nodiscard]] virtual std::string description() const { return {}; }
  /// Returns a fingerprint of what a frozen section's outputs come from beside weights and corpus; empty: nothing. A
  /// run is resumed with the same.
  [[nodiscard]] virtual std::string origin() const { return {}; }
  /// Lines for a person to read before the run starts; available once the section is built.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
  /// Called once when the section will never be trained: a chance to drop memory that only training needs. Before the
  /// values come where Parameters::values_later().
  virtual void freeze() {}
  /// True when forward() of this frozen section may run on several device threads at once: then the replicas of a
  /// process share the same copy of its weights.
  [[nodiscard]] virtual bool shareable() const { return false; }
  /// Whether gradients of parameters() add up elsewhere until fetch_gradients().
  [[nodiscard]] virtual bool fetches_gradients() const { return false; }
  /// Writes the gradients of the step's backward passes to parameters(), before they are used; the optimizer follows.
  virtual void fetch_gradients() {}
  /// Ends waits of forward(), backward passes and fetch_gradients() for another process, for good. From any thread.
  virtual void interrupt() noexcept {}
};

/// The position of a rank in its replica, and its communicators. Groups are null if the degree is 1, and in meta
/// contexts.
struct ParallelContext {
  Layout layout;
  std::int64_t rank = 0;                  ///< of layout.ranks()
  Communicator* tensor_group = nullptr;   ///< the ranks of the same context part, by tensor index
  Communicator* context_group = nullptr;  ///< the ranks of the same tensor index, by context part
  [[nodiscard]] std::int64_t tensor() const { return layout.tensor_of(rank); }
  [[nodiscard]] std::int64_t context() const { return layout.context_of(rank); }
};

/// The consecutive layers of a section that a pipeline stage has. The first stage also has the operators before the
/// layers, the last stage those after them; between two stages the residual stream travels from port "stream" to port
/// "stream".
struct Stage {
  std::int64_t index = 0;
  std::int64_t count = 1;
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;  ///< 0 with a single stage: all
  [[nodiscard]] bool first() const { return index == 0; }
  [[nodiscard]] bool last() const { return index + 1 == count; }
};

/// The arguments for building a section.
struct SectionContext {
  std::string name;
  std::uint64_t seed = 1;  ///< of the job; a section derives its own streams from it and `name`
  DType precision = DType::f32;
  bool trained = false;
  /// Not trained itself, but gradients pass through it to sections before it: forward() is recorded, inputs may need a
  /// gradient, parameters have none.
  bool passes_gradient = false;
  /// Layers of a group that the backward pass computes again (Section::recomputes); 0: none.
  std::int64_t recompute = 0;
  DType moments = DType::f32;  ///< of the optimizer state, f32 or bf16
  /// Adapters to train instead of the weights (Section::takes_adapters).
  LoraConfig lora;
  /// A section on the meta device: only ports, cost, notes and config will be used; check the settings, but allocate
  /// and load nothing.
  bool meta = false;
  /// `later`: the builder of the section writes the values, by Parameters::load() or initialise().
  InitialValues values = InitialValues::drawn;
  const OperatorTable* ops = nullptr;
  /// Of a meta section: the section itself will work on a CUDA device, whose limits are checked without a device.
  bool for_cuda = false;
  ParallelContext parallel;
  Stage stage;
  std::int64_t replica = 0;  ///< ports and initial values do not depend on it (SE-2, SE-3)

  /// Where parameters go (Parameters::allocate).
  [[nodiscard]] MemorySpace& memory() const { return ops == nullptr ? host_memory() : ops->memory(); }
  /// Allocates a section's parameters; nothing in a meta context.
  void allocate(Parameters& parameters) const {
    if (!meta) parameters.allocate(trained, memory(), values, moments);
  }
};

using SectionFactory = std::function<std::unique_ptr<Section>(const SectionContext&)>;

}  // namespace maestro
