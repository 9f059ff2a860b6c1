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

#include <array>
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
#include "runtime/model/adapter_config.hpp"
#include "runtime/ops/functions.hpp"
#include "runtime/ops/parameters.hpp"
#include "runtime/ops/tape.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// Inputs of a section for a micro-batch. Views live until the micro-batch retires.
class Inputs {
 public:
  Inputs(Pass pass, std::span<const SampleId> samples, SequenceLayout tokens, double loss_scale,
         SequenceLayout patches = {}, SequenceLayout visual = {})
      : pass_(pass), samples_(samples), layouts_{tokens, patches, visual}, loss_scale_(loss_scale) {}
  /// Sets a port's value; `host` is the same value in host memory, left out if `value` is there.
  void set(std::string port, Var value, const Tensor& host = Tensor()) {
    if (host.defined()) hosts_.emplace_back(port, host);
    values_.emplace_back(std::move(port), std::move(value));
  }

  /// States which samples have rows at a port if some have none (Port::chosen).
  void set_taken(std::string port, std::vector<bool> taken) { taken_.emplace_back(std::move(port), std::move(taken)); }

  /// Returns (M, columns) of the port's dtype, in memory of the operator table. An unknown or unconnected port is a
  /// programming error: throws std::out_of_range.
  [[nodiscard]] const Var& operator[](std::string_view port) const;
  /// Returns the same in host memory, for sections whose work depends on tokens or places.
  [[nodiscard]] Tensor host(std::string_view port) const;
  [[nodiscard]] bool has(std::string_view port) const;
  /// Sets the layout of a further axis.
  void set_layout(Axis axis, const SequenceLayout& layout) { layouts_[static_cast<std::size_t>(axis)] = layout; }
  /// Returns whether each sample has rows at the port: none at a port without a value, all unless the port is chosen.
  [[nodiscard]] std::vector<bool> taken(std::string_view port) const;
  /// Returns the samples of the micro-batch, in row order; of the training or the validation split by pass().
  [[nodiscard]] std::span<const SampleId> samples() const { return samples_; }
  /// Returns the first row of each sample on an axis and each row's position in its sample, for the complete
  /// micro-batch even if a rank holds a part of its rows (Port::sharding). A sample may be without images.
  [[nodiscard]] const SequenceLayout& layout(Axis axis = Axis::tokens) const {
    return layouts_[static_cast<std::size_t>(axis)];
  }
  /// Returns the number of rows of each sample on an axis.
  [[nodiscard]] std::vector<std::int64_t> lengths(Axis axis = Axis::tokens) const;
  [[nodiscard]] Pass pass() const { return pass_; }
  /// Returns 1 / target tokens in the global batch; gradients scaled with it add up over micro-batches and replicas.
  [[nodiscard]] double loss_scale() const { return loss_scale_; }
  /// Returns 1 / tokens of the section in the global batch, for losses over all tokens.
  [[nodiscard]] double token_scale() const { return token_scale_; }
  void set_token_scale(double scale) { token_scale_ = scale; }

 private:
  Pass pass_;
  std::span<const SampleId> samples_;
  std::array<SequenceLayout, all_axes.size()> layouts_;
  double loss_scale_;
  double token_scale_ = 0;
  std::vector<std::pair<std::string, Var>> values_;
  std::vector<std::pair<std::string, Tensor>> hosts_;
  std::vector<std::pair<std::string, std::vector<bool>>> taken_;
};

/// A figure summed over micro-batches: reported as sum / weight of the complete step.
struct MetricSum {
  std::string name;  ///< "loss", "ce", "kl", "teacher_ce", or the section's choice
  double sum = 0;
  double weight = 0;
};

/// Figures of a pass. Call get() after the pass is complete on the device (Device::finish); converts to its metrics.
class PassMetrics {
 public:
  void add(MetricSum metric) { entries_.emplace_back(std::move(metric)); }
  void add(std::function<MetricSum()> later) { entries_.emplace_back(std::move(later)); }
  void add(const Pending<LossSums>& sums, bool with_teacher, bool with_teacher_ce) {
    entries_.emplace_back(Losses{sums, with_teacher, with_teacher_ce});
  }
  [[nodiscard]] std::vector<MetricSum> get() const;
  operator std::vector<MetricSum>() const { return get(); }  // NOLINT(google-explicit-constructor)
  /// Returns whether the figure "loss" is among them, or may be: the name of a later figure is not known yet.
  [[nodiscard]] bool may_have_loss() const;

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
  /// Sets the value of an output port, (M, columns) of the port's dtype.
  void set(std::string port, Var value) { values_.emplace_back(std::move(port), std::move(value)); }
  void metric(std::string name, double sum, double weight) { metrics_.add({std::move(name), sum, weight}); }
  /// Adds a figure that is available when the pass is complete on the device.
  void metric(std::function<MetricSum()> later) { metrics_.add(std::move(later)); }
  /// Reports the loss of sum_loss(): its mean over the values.
  void loss(const Pending<LossSums>& sums) {
    metrics_.add([sums] {
      const LossSums known = sums.get();
      return MetricSum{"loss", known.total, static_cast<double>(known.tokens)};
    });
  }
  /// Reports loss, ce, and with a teacher kl and teacher_ce.
  void losses(const Pending<LossSums>& sums, bool with_teacher) { losses(sums, with_teacher, with_teacher); }
  /// Does the same for a teacher whose cross-entropy is unknown: teacher_ce is reported only `with_teacher_ce`.
  void losses(const Pending<LossSums>& sums, bool with_teacher, bool with_teacher_ce) {
    metrics_.add(sums, with_teacher, with_teacher_ce);
  }

  [[nodiscard]] const Var* find(std::string_view port) const;
  [[nodiscard]] const std::vector<std::pair<std::string, Var>>& values() const { return values_; }
  [[nodiscard]] const PassMetrics& pass_metrics() const { return metrics_; }
  /// Returns the figures after the pass is complete.
  [[nodiscard]] std::vector<MetricSum> metrics() const { return metrics_.get(); }

 private:
  std::vector<std::pair<std::string, Var>> values_;
  PassMetrics metrics_;
};

/// Work of a forward pass, for scheduler and planner; a backward pass counts twice the forward's FLOPs.
struct Cost {
  double flops = 0;
  double bytes = 0;       ///< activations kept for the backward pass, all ranks together
  double recomputed = 0;  ///< FLOPs of the forward pass that the backward pass repeats (SectionContext::recompute)
  double working = 0;     ///< bytes that a pass takes temporarily in addition, all ranks together
};
struct SampleShape {
  std::int64_t tokens = 0;
  std::int64_t patches = 0;
  std::int64_t visual = 0;  ///< rows that the decoder receives
  std::int64_t images = 0;  ///< tiles, which the encoder sees separately
  /// Positions with a target; 0 unless another model reads other tokens.
  std::int64_t answers = 0;
  std::int64_t heard = 0;  ///< rows that the decoder receives for sounds next to images
  [[nodiscard]] std::int64_t rows(Axis axis) const {
    if (axis == Axis::answers || axis == Axis::heard) return axis == Axis::heard ? heard : answers;
    return axis == Axis::tokens ? tokens : axis == Axis::patches ? patches : visual;
  }
};
/// Returns a sample's shape for a section with this reading.
[[nodiscard]] inline SampleShape shape_of(const SampleRef& sample, Reading reading) {
  const SampleRef read = sample.read_as(reading);
  return {read.tokens, read.patches, read.visual, read.images, read.answers, reading == Reading::own ? read.heard : 0};
}

/// A sample's FLOPs by layer, and the additional work of the first and the last stage: for partitioning into stages.
struct LayerCosts {
  std::vector<double> layers;  ///< empty: the section cannot be cut
  double before = 0;
  double after = 0;
};

/// The Hugging Face name of a parameter, or of some of its rows, and the stored form. Rows count in the full
/// parameter, regardless of the part that this rank holds (Parameter::runs).
struct StateEntry {
  std::string name;  ///< e.g. "transformer.h.0.attn.c_attn.weight"
  Parameter* parameter = nullptr;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;    ///< rows of the parameter; 0: all
  bool transposed = false;  ///< stored as (columns, rows), like GPT-2's Conv1D
  bool copy = false;        ///< stored by another stage: read, but not written
  bool vector = false;      ///< a single row of a matrix that is stored as a vector
  bool grouped = false;     ///< all groups of a parameter, stored as (groups, ...), transposed or not
  /// Offsets of a convolution's kernel, which is stored as (rows, channels, offsets) and held as (rows, offsets x
  /// channels); 0: none.
  std::int64_t offsets = 0;
};

/// Parameters with the names under which they are stored.
struct NamedParameters {
  Parameters* parameters = nullptr;
  std::vector<StateEntry> entries;
};

/// Parameters that matrix products read, in packed form, and an embedding's table, if any; it is tied if it is one of
/// the matrices.
struct ProductParameters {
  std::vector<Parameter*> matrices;
  Parameter* table = nullptr;
};

/// Reports the loss of a process outside the run that a section depends on. A run that may restart from its newest
/// checkpoint does so, as after the loss of one of its processes.
class ServiceLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Section {
 public:
  virtual ~Section() = default;
  [[nodiscard]] virtual Ports ports() const = 0;
  /// Returns the trainable parameters, without frozen extras (a teacher's output layer).
  virtual Parameters& parameters() = 0;
  /// Throws JobError only for errors that could not be detected at start; anything else is a bug.
  virtual void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) = 0;
  [[nodiscard]] virtual Cost cost(const SampleShape& sample) const = 0;
  [[nodiscard]] virtual ProductParameters products() { return {}; }
  /// Returns the bytes of a rank's frozen values other than parameters(), such as another model's output layer.
  [[nodiscard]] virtual double extra_bytes() const { return 0; }
  /// Returns every parameter under its Hugging Face name, for checkpoints and weights in and out.
  [[nodiscard]] virtual std::vector<StateEntry> state() = 0;
  /// Returns the parameters that a folder of weights holds: parameters(), or the frozen parameters below adapters.
  [[nodiscard]] virtual NamedParameters weights() { return {&parameters(), state()}; }
  /// Returns whether the section observes SectionContext::lora.
  [[nodiscard]] virtual bool takes_adapters() const { return false; }
  /// Returns the adapters that parameters() are, without the folder of their base; nothing: parameters() are weights.
  [[nodiscard]] virtual std::optional<AdapterConfig> adapters() const { return std::nullopt; }
  /// Returns whether a stored tensor that is not in state() may be in the section's file: another section's part of the
  /// same model, or a buffer that is computed here.
  [[nodiscard]] virtual bool ignores(std::string_view /*stored_name*/) const { return false; }
  /// Returns whether the section does its share of the work under a layout of several ranks (SectionContext::parallel).
  [[nodiscard]] virtual bool spreads_over_ranks() const { return false; }
  /// Returns whether a pass may run with nothing computed: it computes only by its tape's operators, without an effect
  /// other than its outputs. A dry pass then states the memory of passes before a run; otherwise `cost` does.
  [[nodiscard]] virtual bool runs_dry() const { return false; }
  /// Returns whether the section observes SectionContext::recompute.
  [[nodiscard]] virtual bool recomputes() const { return false; }
  /// Returns the costs for pipelines; without layers the section cannot be cut into stages.
  [[nodiscard]] virtual LayerCosts layer_costs(const SampleShape& /*sample*/) const { return {}; }
  /// Returns the parameter that a section's first and last stage both hold, such as a tied embedding; null: none. The
  /// runtime adds the two gradients up in both, so that the copies stay equal; only the first stage stores it.
  [[nodiscard]] virtual Parameter* tied() { return nullptr; }
  /// Returns the model family's config.json.
  [[nodiscard]] virtual std::string config_json() const = 0;
  /// Returns the model in a few words, for `check`; empty: the type describes none.
  [[nodiscard]] virtual std::string description() const { return {}; }
  /// Returns a fingerprint of a frozen section's sources of outputs other than weights and corpus; empty: none. A run
  /// resumes only with the same fingerprint.
  [[nodiscard]] virtual std::string origin() const { return {}; }
  /// Returns lines for a person to read before the run starts; available once the section is built.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
  /// Called once if the section will never be trained: a chance to drop memory that only training needs. With
  /// Parameters::values_later() the call precedes the values.
  virtual void freeze() {}
  /// Returns whether forward() of this frozen section may run on several device threads at once: then the replicas of a
  /// process share the same copy of its weights.
  [[nodiscard]] virtual bool shareable() const { return false; }
  /// Returns whether gradients of parameters() add up elsewhere until fetch_gradients().
  [[nodiscard]] virtual bool fetches_gradients() const { return false; }
  /// Writes the gradients of the step's backward passes to parameters(), before they are used; the optimizer follows.
  virtual void fetch_gradients() {}
  /// Ends waits of forward(), backward passes and fetch_gradients() for another process, for good. From any thread.
  virtual void interrupt() noexcept {}
};

/// A rank's position in its replica, and its communicators. Groups are null if the degree is 1, and in meta contexts.
struct ParallelContext {
  Layout layout;
  std::int64_t rank = 0;                  ///< index in layout.ranks()
  Communicator* tensor_group = nullptr;   ///< ranks of the same context part, by tensor index
  Communicator* context_group = nullptr;  ///< ranks of the same tensor index, by context part
  Communicator* expert_group = nullptr;   ///< ranks that share a layer's experts, by their part
  Communicator* copies_group = nullptr;   ///< with an expert group: ranks that own the same experts
  [[nodiscard]] std::int64_t tensor() const { return layout.tensor_of(rank); }
  [[nodiscard]] std::int64_t context() const { return layout.context_of(rank); }
  [[nodiscard]] std::array<Communicator*, 4> groups() const {
    return {tensor_group, context_group, expert_group, copies_group};
  }
};

/// The ranks first, first + stride, ... of a replica, which form a group.
struct RankGroup {
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t size = 1;
  Communicator* ParallelContext::*member = nullptr;  ///< where each of them has its communicator
};
/// Returns the groups of a layout's ranks, all of more than one rank.
[[nodiscard]] std::vector<RankGroup> rank_groups(const Layout& layout);

/// The consecutive layers of a section in a pipeline stage. The first stage also has the operators before the layers,
/// the last stage the operators after them; between two stages the residual stream travels from port "stream" to port
/// "stream".
struct Stage {
  std::int64_t index = 0;
  std::int64_t count = 1;
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;  ///< 0 with a single stage: all
  [[nodiscard]] bool first() const { return index == 0; }
  [[nodiscard]] bool last() const { return index + 1 == count; }
};

/// Arguments for building a section.
struct SectionContext {
  std::string name;
  std::uint64_t seed = 1;  ///< job's seed; a section derives its streams from it and `name`
  DType precision = DType::f32;
  bool trained = false;
  /// Gradients pass through the frozen section to sections before it: forward() is recorded, inputs may need a
  /// gradient, parameters have none.
  bool passes_gradient = false;
  /// Number of layers in a group that the backward pass computes again (Section::recomputes); 0: none.
  std::int64_t recompute = 0;
  DType moments = DType::f32;  ///< dtype of the optimizer state, f32 or bf16
  /// Adapters to train instead of the weights (Section::takes_adapters).
  LoraConfig lora;
  /// Marks a section on the meta device: only ports, cost, notes and config will be used; check the settings, but
  /// allocate and load nothing.
  bool meta = false;
  /// `later`: the section's builder writes the values, by Parameters::load() or initialise().
  InitialValues values = InitialValues::drawn;
  const OperatorTable* ops = nullptr;
  /// Meta section: the section itself will work on a CUDA device, whose limits are checked without a device.
  bool for_cuda = false;
  Reading reading = Reading::own;  ///< inputs count axes and samples as this reading does
  ParallelContext parallel;
  Stage stage;
  std::int64_t replica = 0;  ///< ports and initial values do not depend on it (SE-2, SE-3)

  /// Returns the memory for parameters (Parameters::allocate).
  [[nodiscard]] MemorySpace& memory() const { return ops == nullptr ? host_memory() : ops->memory(); }
  /// Allocates a section's parameters; nothing in a meta context.
  void allocate(Parameters& parameters) const {
    if (!meta) parameters.allocate(trained, memory(), values, moments);
  }
};

using SectionFactory = std::function<std::unique_ptr<Section>(const SectionContext&)>;

}  // namespace maestro
