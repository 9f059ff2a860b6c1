// SPDX-License-Identifier: Apache-2.0
#include "apps/python/python_section.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>

#include "apps/python/python_arrays.hpp"

namespace maestro::python {

namespace nb = nanobind;

namespace {

using PortTuple = std::tuple<std::string, std::string, std::int64_t, bool, std::string>;
using ParameterTuple = std::tuple<std::string, std::vector<std::int64_t>, bool>;
using MetricTuple = std::tuple<std::string, double, double>;
using LaterMetric = std::pair<std::string, nb::object>;

/// Runs a call of a pass. Throws std::runtime_error with a line, or the complete traceback (YS-3).
template <class Call>
auto traced(bool one_process, Call call) {
  const nb::gil_scoped_acquire locked;
  try {
    return call();
  } catch (nb::python_error& problem) {
    const std::string text = one_process ? line_of(problem) : problem.what();
    RaisedExceptions::of_process().keep(text, problem);
    throw std::runtime_error(text);
  } catch (const nb::cast_error&) {
    throw std::runtime_error("forward() of the section in Python returns a value of another type than documented");
  }
}

/// Arrays that copies of the pointer share; the last owner takes the interpreter's lock to let them go.
using SharedArrays = std::shared_ptr<std::vector<Array>>;

SharedArrays shared_arrays() {
  return {new std::vector<Array>, [](std::vector<Array>* held) {
            const nb::gil_scoped_acquire locked;
            delete held;
          }};
}

class PythonSection final : public Section {
 public:
  PythonSection(const SectionContext& context, std::shared_ptr<OpenReplica> replica, bool one_process);
  ~PythonSection() override { open_.reset(); }  // before the parameters, whose memory close() may read

  [[nodiscard]] Ports ports() const override { return ports_; }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] std::vector<StateEntry> state() override;
  [[nodiscard]] std::string config_json() const override { return config_; }
  [[nodiscard]] std::string description() const override { return description_; }
  [[nodiscard]] std::string origin() const override { return fingerprint_; }
  [[nodiscard]] std::vector<std::string> notes() const override { return notes_; }

 private:
  /// A pass, until the closure of its backward pass has run or is dropped.
  struct KeptPass {
    KeptPass(const SharedObject& of, std::int64_t pass) : replica(of), number(pass) {}
    KeptPass(const KeptPass&) = delete;
    KeptPass& operator=(const KeptPass&) = delete;
    ~KeptPass() {
      if (!kept) return;
      const nb::gil_scoped_acquire locked;
      replica.get().attr("forget")(number);
    }
    SharedObject replica;
    std::int64_t number;
    bool kept = false;  // by the replica, for backward()
    std::vector<std::pair<Port, Var>> inputs;
    std::vector<std::pair<Port, Var>> outputs;
    SharedArrays arrays;  // the outputs' memory
  };
  [[nodiscard]] std::vector<Port> read_ports(const char* side) const;
  void place(const SectionContext& context);
  void add_parameters(const SectionContext& context);
  /// Runs a call of a pass on the section's device, in the order of the run's work (YS-4).
  template <class Call>
  auto compute(Call call) const;
  [[nodiscard]] nb::object value_of(const Port& port, const Inputs& inputs) const;
  void add_metrics(const nb::object& metrics, bool trains, Outputs& outputs) const;
  [[nodiscard]] nb::dict batch_of(const Inputs& inputs) const;
  [[nodiscard]] Tensor checked(const Port& port, const Array& array, std::int64_t rows) const;
  void backward(Tape& tape, KeptPass& pass) const;

  std::string name_;
  bool one_process_;  // of the run
  std::shared_ptr<OpenReplica> open_;
  SharedObject replica_;
  const DeviceQueue* device_ = nullptr;  // the CUDA device; null: the CPU
  Ports ports_;
  std::vector<std::string> host_inputs_;
  Parameters parameters_;
  double flops_per_row_ = 0;
  std::string description_, config_, fingerprint_;
  std::vector<std::string> notes_;
  std::int64_t passes_ = 0;
  SharedArrays last_arrays_;  // outputs of the last pass, which are read before the next
};

PythonSection::PythonSection(const SectionContext& context, std::shared_ptr<OpenReplica> replica, bool one_process)
    : name_(context.name), one_process_(one_process), open_(std::move(replica)), replica_(open_->object()) {
  with_python("section '" + name_ + "' in Python", [&] {
    const nb::object& made = replica_.get();
    ports_ = {read_ports("inputs"), read_ports("outputs")};
    flops_per_row_ = nb::cast<double>(made.attr("flops_per_row"));
    description_ = nb::cast<std::string>(made.attr("description"));
    config_ = nb::cast<std::string>(made.attr("config"));
    fingerprint_ = nb::cast<std::string>(made.attr("fingerprint"));
    notes_ = nb::cast<std::vector<std::string>>(made.attr("notes"));
    host_inputs_ = nb::cast<std::vector<std::string>>(made.attr("host_inputs"));
  });
  place(context);
  if (context.precision != DType::f32) {
    throw JobError(name_ +
                   ".precision: the module chooses its arithmetic, for example by torch.autocast; leave "
                   "precision out");
  }
  add_parameters(context);
}

std::vector<Port> PythonSection::read_ports(const char* side) const {
  std::vector<Port> ports;
  for (auto& [name, dtype, columns, differentiable, axis] :
       nb::cast<std::vector<PortTuple>>(replica_.get().attr(side))) {
    const std::string place = "section '" + name_ + "' in Python: port '" + name + "'";
    const auto known = dtype_named(dtype);
    if (!known) throw JobError(place + " has the dtype '" + dtype + "'; expected fp32, bf16 or i32");
    if (columns < 1) throw JobError(place + " has " + std::to_string(columns) + " columns; expected at least 1");
    if (differentiable && *known == DType::i32) throw JobError(place + " is i32 and cannot be differentiable");
    Port port{name, *known, columns, differentiable};
    const auto unit = std::ranges::find(section_axes, axis, [](Axis each) { return name_of(each); });
    if (unit == section_axes.end()) {
      throw JobError(place + " has the axis '" + axis + "'; expected tokens, patches or visual");
    }
    port.axis = *unit;
    ports.push_back(std::move(port));
  }
  return ports;
}

void PythonSection::place(const SectionContext& context) {
  if (!context.for_cuda && context.memory().host()) return;
  const std::string key = name_ + ".devices";
  const bool can = with_python(key, [&] { return nb::hasattr(replica_.get(), "place"); });
  if (!can) {
    throw JobError(key +
                   ": this section in Python computes on CPUs: its replicas are without place(); leave devices out, " +
                   "or name cpu:K");
  }
  if (context.meta) return;
  device_ = queue_of(*context.ops);
  if (device_ == nullptr) throw JobError(key + ": sections in Python compute on CPUs and CUDA devices");
  with_python(key, [&] {
    const auto wait = [device = device_] { device->wait(); };
    replica_.get().attr("place")(device_->device(), reinterpret_cast<std::uintptr_t>(device_->stream()),
                                 nb::cpp_function(wait, nb::call_guard<nb::gil_scoped_release>()));
  });
}

void PythonSection::add_parameters(const SectionContext& context) {
  const auto declared = with_python("section '" + name_ + "' in Python", [&] {
    return nb::cast<std::vector<ParameterTuple>>(replica_.get().attr("parameters"));
  });
  for (const auto& [name, sizes, decayed] : declared) {
    if (sizes.empty() || sizes.size() > static_cast<std::size_t>(Shape::max_rank)) {
      throw JobError("section '" + name_ + "' in Python: parameter '" + name + "' has " + std::to_string(sizes.size()) +
                     " dimensions; expected 1 to 4");
    }
    const Shape shape = Shape::of(sizes);
    parameters_.add({name, shape, decayed, [this, parameter = name, shape](std::span<float> values) {
                       with_python("the initial values of " + name_ + "." + parameter, [&] {
                         replica_.get().attr("initial")(parameter, view_of(Tensor(values.data(), DType::f32, shape)));
                       });
                     }});
  }
  context.allocate(parameters_);
  if (context.meta) return;
  with_python("section '" + name_ + "' in Python", [&] {
    nb::dict values, gradients;
    for (const Parameter& parameter : parameters_.all()) {
      values[parameter.name().c_str()] = view_of(parameter.value(), device_);
      if (parameter.trained()) gradients[parameter.name().c_str()] = view_of(parameter.gradient(), device_);
    }
    replica_.get().attr("bind")(values, gradients);
  });
}

nb::dict PythonSection::batch_of(const Inputs& inputs) const {
  nb::dict batch;
  std::vector<std::uint64_t> samples;
  for (const SampleId sample : inputs.samples()) samples.push_back(sample.value());
  batch["samples"] = samples;
  batch["tokens"] = inputs.lengths();
  batch["patches"] = inputs.lengths(Axis::patches);
  batch["visual"] = inputs.lengths(Axis::visual);
  batch["training"] = inputs.pass() == Pass::train;
  batch["loss_scale"] = inputs.loss_scale();
  return batch;
}

Tensor PythonSection::checked(const Port& port, const Array& array, std::int64_t rows) const {
  std::int64_t elements = 1;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) elements *= static_cast<std::int64_t>(array.shape(axis));
  const std::size_t last = array.ndim();
  const std::int64_t columns =
      last == 0 || (last == 1 && port.columns == 1) ? 1 : static_cast<std::int64_t>(array.shape(last - 1));
  if (!is_on(device_, array)) {
    throw std::runtime_error("forward() returns the output '" + port.name + "' in memory of " + place_of(array) +
                             ", but the section computes on " +
                             (device_ == nullptr ? "the CPU" : "cuda:" + std::to_string(device_->device())));
  }
  if (dtype_of(array) != port.dtype || columns != port.columns || elements != rows * port.columns) {
    throw std::runtime_error("forward() returns " + text_of(array) + " for the output '" + port.name + "', expected " +
                             std::string(name_of(port.dtype)) + " (" + std::to_string(rows) + ", " +
                             std::to_string(port.columns) + ")");
  }
  return Tensor(array.data(), port.dtype, Shape{rows, port.columns});
}

template <class Call>
auto PythonSection::compute(Call call) const {
  const struct Current {  // also after a call that throws
    const DeviceQueue* device;
    ~Current() {
      if (device != nullptr) device->make_current();
    }
  } current{device_};
  if (device_ != nullptr) static_cast<void>(device_->stream());  // issues earlier calls (OQ-1)
  return traced(one_process_, std::move(call));
}

nb::object PythonSection::value_of(const Port& port, const Inputs& inputs) const {
  const Tensor& value = inputs[port.name].value();
  const bool wants_host = device_ != nullptr && std::ranges::find(host_inputs_, port.name) != host_inputs_.end();
  if (!wants_host) return view_of(value, device_);
  const Tensor host = inputs.host(port.name);
  return view_of(host, host.raw() == value.raw() ? device_ : nullptr);  // values from devices are only there
}

void PythonSection::add_metrics(const nb::object& metrics, bool trains, Outputs& outputs) const {
  bool has_loss = false;
  for (const nb::handle metric : metrics) {
    if (nb::len(metric) == 3) {
      const auto [name, sum, weight] = nb::cast<MetricTuple>(metric);
      has_loss = has_loss || name == "loss";
      outputs.metric(name, sum, weight);
      continue;
    }
    auto [name, read] = nb::cast<LaterMetric>(metric);
    has_loss = has_loss || name == "loss";
    outputs.metric([name, read = SharedObject(std::move(read)), one_process = one_process_] {
      return traced(one_process, [&] {
        const auto [sum, weight] = nb::cast<std::pair<double, double>>(read.get()());
        return MetricSum{name, sum, weight};
      });
    });
  }
  if (trains && !has_loss && std::ranges::none_of(ports_.outputs, &Port::differentiable)) {
    throw std::runtime_error(
        "the section is trained, but its pass reports no loss and none of its outputs is differentiable");
  }
}

void PythonSection::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const auto pass = std::make_shared<KeptPass>(replica_, ++passes_);
  compute([&] {
    nb::dict given;
    for (const Port& port : ports_.inputs) {
      if (!inputs.has(port.name)) continue;
      given[port.name.c_str()] = value_of(port, inputs);
      pass->inputs.emplace_back(port, inputs[port.name]);
    }
    const nb::object answer = replica_.get().attr("forward")(pass->number, given, batch_of(inputs), tape.recording());
    pass->kept = tape.recording();
    const nb::object made = answer[0];
    add_metrics(answer[1], tape.recording() && !parameters_.all().empty(), outputs);
    const SharedArrays arrays = shared_arrays();
    for (const Port& port : ports_.outputs) {
      if (!nb::cast<bool>(made.attr("__contains__")(port.name))) {
        throw std::runtime_error("forward() returns nothing for the output '" + port.name + "'");
      }
      arrays->push_back(nb::cast<Array>(made[port.name.c_str()]));
      const Tensor value = checked(port, arrays->back(), inputs.layout(port.axis).rows());
      pass->outputs.emplace_back(port, tape.input(value, port.differentiable));
      outputs.set(port.name, pass->outputs.back().second);
    }
    pass->arrays = last_arrays_ = arrays;
  });
  if (tape.recording()) tape.record_root([this, &tape, pass] { backward(tape, *pass); });
}

void PythonSection::backward(Tape& tape, KeptPass& pass) const {
  std::vector<std::pair<Var, Block>> gradients;
  compute([&] {
    nb::dict given, wanted;
    for (const auto& [port, var] : pass.outputs) {
      if (port.differentiable && var.gradient().defined()) given[port.name.c_str()] = view_of(var.gradient(), device_);
    }
    for (const auto& [port, var] : pass.inputs) {
      if (!var.needs_gradient()) continue;
      gradients.emplace_back(var, tape.scratch(var.value().shape(), var.value().dtype()));
      wanted[port.name.c_str()] = view_of(gradients.back().second.tensor(), device_);
    }
    pass.kept = false;
    replica_.get().attr("backward")(pass.number, given, wanted);
  });
  for (const auto& [var, gradient] : gradients) tape.add_gradient(var, gradient);
}

Cost PythonSection::cost(const SampleShape& sample) const {
  const Axis axis = ports_.inputs.empty() ? Axis::tokens : ports_.inputs.front().axis;
  return {flops_per_row_ * static_cast<double>(sample.rows(axis)), 0};
}

std::vector<StateEntry> PythonSection::state() {
  std::vector<StateEntry> entries;
  for (Parameter& parameter : parameters_.all()) entries.push_back({parameter.name(), &parameter, 0, 0, false});
  return entries;
}

}  // namespace

OpenReplica::~OpenReplica() {
  const nb::gil_scoped_acquire locked;
  try {
    replica_.get().attr("close")();
  } catch (nb::python_error& problem) {
    problem.discard_as_unraisable("close() of a section in Python");
  }
}

std::shared_ptr<OpenReplica> PythonSectionType::open(const SectionContext& context) const {
  SharedObject replica;
  with_python("section '" + context.name + "' in Python",
              [&] { replica = SharedObject(open_.get()(context.name, context.seed, context.trained)); });
  return std::make_shared<OpenReplica>(std::move(replica));
}

std::unique_ptr<Section> PythonSectionType::create(const SectionContext& context) const {
  if (!context.meta || !described_->shared) {
    return std::make_unique<PythonSection>(context, open(context), one_process_);
  }
  std::shared_ptr<OpenReplica>& known = described_->replicas[{context.seed, context.trained}];
  if (known == nullptr) known = open(context);
  return std::make_unique<PythonSection>(context, known, one_process_);
}

}  // namespace maestro::python
