// SPDX-License-Identifier: Apache-2.0
// A section that another process computes: the module's side is the server, a replica of the section the client.
// docs/served-sections.md describes the calls and their order.
//
// A connection is a session of one replica. The parameters of a trained module lie in the run, which steps and stores
// them: the server begins from the values that it receives, and adds up gradients until they are fetched. Data of
// tensors and of parameters are little-endian, row by row.
namespace cpp maestro.served
namespace py maestro_served

// Fields of it are i32: a C++ enum holds no value that it lacks.
enum DataType {
  FP32 = 0
  BF16 = 1
  I32 = 2
}

struct Port {
  1: required string name
  2: required i32 dtype  // DataType
  3: required i64 columns
  // A gradient of the same shape may travel the other way; never of I32.
  4: required bool differentiable
  // The rows are patches of the samples' pictures, else tokens.
  5: required bool patches
}

// Values and gradients are FP32.
struct Parameter {
  1: required string name
  2: required list<i64> shape
  // Weight decay applies.
  3: required bool decayed
}

struct Module {
  1: required list<Port> inputs
  2: required list<Port> outputs
  // Those that can be trained.
  3: required list<Parameter> parameters
  // Of a forward pass, for plans.
  4: required double flops_per_row
  // Of the values that a frozen module computes with: a run is resumed with the same. Empty: not compared.
  5: required string fingerprint
  // In a few words.
  6: required string description
}

struct Session {
  // Of this file: 1.
  1: required i32 version
  2: required string section
  3: required i64 replica
  // The run steps the parameters; without it they stay as they are.
  4: required bool trained
  // Passes may be kept for backward(): the section is trained, or passes gradients to sections before it.
  5: required bool backward
}

// (rows, columns) of a port.
struct Tensor {
  1: required string port
  2: required i32 dtype  // DataType
  3: required i64 rows
  4: required i64 columns
  5: required binary data
}

struct MicroBatch {
  // Of the session, rising.
  1: required i64 number
  // Keep the state for backward(number).
  2: required bool keep
  3: required bool training
  // Of each sample, in the order of the rows.
  4: required list<i64> samples
  5: required list<i64> tokens
  6: required list<i64> patches
  // 1 / target tokens in the global batch: a loss is multiplied with it before its gradient is taken.
  7: required double loss_scale
  8: required list<Tensor> inputs
}

// Reported as sum / weight over the whole step.
struct Metric {
  1: required string name
  2: required double sum
  3: required double weight
}

struct PassResult {
  1: required list<Tensor> outputs
  2: required list<Metric> metrics
}

// Ends the run with this reason.
exception Refused {
  1: required string reason
}

service ServedModule {
  // The first call of a connection.
  Module open(1: Session session) throws (1: Refused refused)
  PassResult forward(1: MicroBatch batch) throws (1: Refused refused)
  // Takes gradients of outputs, where any came back; returns those of all differentiable inputs. Adds the gradients of
  // parameters up in the server, and forgets the pass.
  list<Tensor> backward(1: i64 number, 2: list<Tensor> gradients) throws (1: Refused refused)

  // Elements [first, first + count) of a parameter: the value that the module had before any run.
  binary initial_values(1: string parameter, 2: i64 first, 3: i64 count) throws (1: Refused refused)
  void set_values(1: string parameter, 2: i64 first, 3: binary values) throws (1: Refused refused)
  // The sum over the backward passes since clear_gradients().
  binary gradients(1: string parameter, 2: i64 first, 3: i64 count) throws (1: Refused refused)
  void clear_gradients() throws (1: Refused refused)
}
