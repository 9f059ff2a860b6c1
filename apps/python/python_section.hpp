// SPDX-License-Identifier: Apache-2.0
// A section that Python computes in the run's process, such as a PyTorch module. Tensors cross by DLPack, without a
// copy of inputs, parameters and gradients.
//
// YS-1 (the run's parameters): the module computes with the values in parameters() and adds gradients to theirs, so
//      that replicas, clipping, checkpoints, resume and export treat the section as any other.
// YS-2 (checked outputs): an output of another name, dtype or shape than its port's is refused with all of these.
// YS-3 (errors with their place): what Python raises ends the run with the traceback: in RunFailed.__cause__ if the run
//      has one process, else in the error, because the processes end at once.
// YS-4 (the run's stream): on a CUDA device, Python queues its work on the stream of the run's device, in the order of
//      the run's work there, and nothing waits for the device. A library without streams calls wait() before it reads.
#pragma once

#include <nanobind/nanobind.h>
#include <maestro/section.hpp>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "apps/python/python_calls.hpp"

namespace maestro::python {

/// A replica that open() has returned; closed by its last owner.
class OpenReplica {
 public:
  explicit OpenReplica(SharedObject replica) : replica_(std::move(replica)) {}
  ~OpenReplica();
  OpenReplica(const OpenReplica&) = delete;
  OpenReplica& operator=(const OpenReplica&) = delete;
  [[nodiscard]] const SharedObject& object() const { return replica_; }

 private:
  SharedObject replica_;
};

/// Makes replicas. The caller of the constructor holds the interpreter's lock; copies and create() need no lock.
///
/// `open(name, seed, trained)` returns an object with: `inputs` and `outputs`, lists of (name, dtype, columns,
/// differentiable, axis); `parameters`, a list of (name, shape, decayed), f32; `flops_per_row`, `description`,
/// `config` (JSON), `fingerprint`, `notes`, `host_inputs` (names); initial(name, values), which fills an array of the
/// CPU; bind(values, gradients), arrays by name for the replica's life (without gradients if it is frozen);
/// forward(number, inputs, batch, keep) -> ({output: array}, [(metric, sum, weight)]); backward(number,
/// output_gradients, input_gradients), which adds to the parameters' gradients and fills the inputs'; forget(number),
/// instead of it; close().
///
/// A replica with place(device, stream, wait) may be on a CUDA device: the call precedes bind(), with the device's
/// number, its cudaStream_t as a number, and a function that waits until the device has done the queued work. Arrays
/// are then in the device's memory, except `host_inputs` that have arrived in the CPU's. forward() may return (metric,
/// read) in place of a metric: read() returns (sum, weight) after the device has done the pass.
class PythonSectionType {
 public:
  PythonSectionType(nanobind::object open, bool one_process)
      : open_(std::move(open)), one_process_(one_process), described_(std::make_shared<Described>()) {}
  /// Throws JobError for what Python raises, and for ports or parameters that a section cannot have.
  [[nodiscard]] std::unique_ptr<Section> create(const SectionContext& context) const;
  /// Sets whether sections of meta contexts, also of copies of this type, share a replica: a plan makes hundreds. The
  /// replica does not follow keys that change. Not thread-safe.
  void share_described(bool share) const {
    described_->shared = share;
    described_->replicas.clear();
  }

 private:
  struct Described {
    bool shared = false;
    std::map<std::pair<std::uint64_t, bool>, std::shared_ptr<OpenReplica>> replicas;  // by seed and `trained`
  };
  [[nodiscard]] std::shared_ptr<OpenReplica> open(const SectionContext& context) const;

  SharedObject open_;
  bool one_process_;
  std::shared_ptr<Described> described_;
};

}  // namespace maestro::python
