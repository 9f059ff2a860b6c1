// SPDX-License-Identifier: Apache-2.0
// A decoder without a loss: the trained lower part of a model whose output layer is another section, or a teacher.
//
// Input   tokens        (M) i32
// Output  by boundary (over ranks: rows of each rank, and of logits its columns):
//   hidden   hidden        (M, width) act, differentiable: the state after the final norm
//   logits   logits        (M, vocabulary) f32
//   top_k    top_values    (M, k) f32, the k largest logits of each row among the corpus' tokens, descending
//            top_indices   (M, k) i32, their token ids
//   top_k_rest  the same with log-probabilities over the corpus' tokens as top_values, and
//            rest          (M, 1) f32, the log-probability of all other tokens; at least least_log_probability, like
//                          every value. On CPUs, with the complete output layer on a single rank.
//   sampled  sampled       (M, 1) f32, the log-probability of each row's target over the corpus' tokens; 0 without a
//                          target. At the temperature of the options in training, at 1 in validation. On CPUs, with the
//                          complete output layer on a single rank. With a further input targets (M) i32.
// If it reads tokens of its own (Reading::tokens), it has a further input targets (M) i32 (-1: no answer), and its
// outputs have only the rows of answers, (A, ...). In pipeline stages tokens go to the first, targets to the last, and
// the output comes from the last; see decoder_section.hpp. Only boundary = hidden can be trained: no gradient travels
// back over the other boundaries.
#pragma once

#include "runtime/ops/distillation_options.hpp"
#include "sections/decoder/decoder_section.hpp"

namespace maestro {

/// Reads "hidden", "logits", "top_k", "top_k_rest" or "sampled" at `boundary` of a job table.
[[nodiscard]] TeacherOutput read_boundary(const JobTable& table, TeacherOutput fallback);
/// Reads `top_k` of a job table, at least 1.
[[nodiscard]] std::int64_t read_top_k(const JobTable& table, std::int64_t fallback);

class DecoderTrunk final : public DecoderSection {
 public:
  struct Options {
    DecoderConfig decoder;
    TeacherOutput boundary = TeacherOutput::hidden;
    std::int64_t top_k = 64;
    DataShape data;
    double temperature = 1;  ///< temperature of boundary = sampled
    /// Reads shape keys, boundary and top_k; `data` and `temperature` keep their defaults. Throws JobError.
    static Options read(const JobTable& table);
  };
  /// Throws JobError for a decoder that does not fit the data, a boundary that cannot be trained, a top_k beyond the
  /// corpus' tokens, or top_k_rest or sampled on a GPU or several tensor ranks.
  DecoderTrunk(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  [[nodiscard]] Cost cost(const SampleShape& sample) const override { return decoder_cost(sample); }

 private:
  [[nodiscard]] bool answers_alone() const { return context().reading == Reading::tokens; }
  /// Returns the final hidden states of the context part, or only of its answers: (M_c, width).
  [[nodiscard]] Var sent_hidden(Tape& tape, const Inputs& inputs, Outputs& outputs);
  /// Sets the top-k outputs of `hidden` (M_c, width), of Sharding::context_rows.
  void put_top_k(Tape& tape, const Var& hidden, Outputs& outputs);
  /// Sets the output `sampled`.
  void put_sampled(Tape& tape, const Inputs& inputs, Outputs& outputs);
  /// Returns the rank's rows of x, (M_c, columns): (M_t, columns).
  [[nodiscard]] Var own_rows(Tape& tape, const Var& x) const;

  TeacherOutput boundary_;
  std::int64_t top_k_;
  std::int64_t tokens_;  // first rows of the output layer; top_k_ of them are sent
  double temperature_;
};

}  // namespace maestro
