// SPDX-License-Identifier: Apache-2.0
// A section that another process computes: the module's side is the server, a replica of the section the client.
// docs/served-sections.md describes the calls and their order.
//
// A connection is a session of one replica. The run holds, steps and stores the parameters of a trained module: the
// server begins from the values that it receives, and adds up gradients until they are fetched. Tensors and parameters
// are little-endian, row by row.
namespace cpp maestro.served
namespace py maestro_served

// Fields with this type are i32, because a C++ enum cannot hold an unknown value.
enum DataType {
  FP32 = 0
  BF16 = 1
  I32 = 2
}

struct Port {
  1: required string name
  2: required i32 dtype  // DataType
  3: required i64 columns
  // A gradient with the same shape may be sent the other way; never for I32.
  4: required bool differentiable
  // The rows are patches of the samples' images, else tokens.
  5: required bool patches
  // The rows are those that a decoder receives for images, else as `patches` states.
  6: optional bool visual = false
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
  // Parameters that can be trained.
  3: required list<Parameter> parameters
  // FLOPs of a forward pass, for plans.
  4: required double flops_per_row
  // Fingerprint of a frozen module's values; it must be the same when a run is resumed. Empty: not compared.
  5: required string fingerprint
  // A description in a few words.
  6: required string description
}

struct Session {
  // Version of this file: 1.
  1: required i32 version
  2: required string section
  3: required i64 replica
  // The run steps the parameters; otherwise they do not change.
  4: required bool trained
  // Passes may be kept for backward(): the section is trained, or passes gradients to sections before it.
  5: required bool backward
}

// A port's (rows, columns) tensor.
struct Tensor {
  1: required string port
  2: required i32 dtype  // DataType
  3: required i64 rows
  4: required i64 columns
  5: required binary data
}

struct MicroBatch {
  // Rising number in the session.
  1: required i64 number
  // Keep the state for backward(number).
  2: required bool keep
  3: required bool training
  // Ids, tokens and patches of the samples, in the order of the rows.
  4: required list<i64> samples
  5: required list<i64> tokens
  6: required list<i64> patches
  // 1 / target tokens in the global batch; the loss is multiplied by it before its gradient is computed.
  7: required double loss_scale
  8: required list<Tensor> inputs
  // Rows of each sample that a decoder receives for its images.
  9: optional list<i64> visual
}

// Reported as sum / weight over a step.
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
  // Takes the gradients of outputs that received any; returns the gradients of all differentiable inputs. The server
  // adds up the parameters' gradients, and forgets the pass.
  list<Tensor> backward(1: i64 number, 2: list<Tensor> gradients) throws (1: Refused refused)

  // Returns elements [first, first + count) of a parameter as the module had them before any run.
  binary initial_values(1: string parameter, 2: i64 first, 3: i64 count) throws (1: Refused refused)
  void set_values(1: string parameter, 2: i64 first, 3: binary values) throws (1: Refused refused)
  // Returns the sum over the backward passes since clear_gradients().
  binary gradients(1: string parameter, 2: i64 first, 3: i64 count) throws (1: Refused refused)
  void clear_gradients() throws (1: Refused refused)
}
