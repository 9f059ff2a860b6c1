// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/convolution/causal_conv.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/ops/cpu/convolution/conv_kernels.hpp"
#include "runtime/ops/cpu/operands.hpp"

namespace maestro::cpu {

namespace {

std::byte* element(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  return tensor.raw() + (row * tensor.columns() + column) * static_cast<std::int64_t>(size_of(tensor.dtype()));
}

Out column_of(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  return {element(tensor, row, column), tensor.dtype() == DType::bf16};
}

/// Copies between (N, w) and (w, N).
void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) to[column * rows + row] = from[row * columns + column];
  }
}

/// The filters of a call, row by row, and the arguments of its kernels.
class Filters {
 public:
  template <class Op>
  Filters(const Op& op, ScratchPool::Lease& lease)
      : shape_(op.shape), x_(op.x), channels_(op.shape.channels(op.x.columns())) {
    assert(op.weight.elements() == channels_ * shape_.width && op.weight.columns() == shape_.width);
    assert(!op.bias.defined() || op.bias.elements() == channels_);
    weight_ = lease.floats(channels_ * shape_.width);
    transpose(op.weight.template data<float>(), channels_, shape_.width, weight_);
    bias_ = op.bias.defined() ? op.bias.template data<float>() : nullptr;
  }
  [[nodiscard]] const ConvolutionShape& shape() const { return shape_; }
  [[nodiscard]] std::int64_t channels() const { return channels_; }
  [[nodiscard]] const float* weight(std::int64_t j) const { return weight_ + j * channels_; }
  /// Returns the term that reads row `row` of `from`, x or rows with only [in_gate | x].
  [[nodiscard]] ConvTerm term(const Tensor& from, std::int64_t row, std::int64_t j) const {
    const std::int64_t value = from.columns() - channels_;
    return {element(from, row, value), shape_.gated ? element(from, row, 0) : nullptr, weight(j), nullptr};
  }
  /// Returns row `row` of x as the call that reads `terms`.
  [[nodiscard]] ConvRow row(const std::vector<ConvTerm>& terms, std::int64_t row) const {
    return {
        terms.data(), std::ssize(terms),        bias_, shape_.gated ? element(x_, row, channels_) : nullptr, channels_,
        shape_.silu,  x_.dtype() == DType::bf16};
  }

 private:
  ConvolutionShape shape_;
  Tensor x_;
  std::int64_t channels_;
  float* weight_ = nullptr;
  const float* bias_ = nullptr;
};

/// The rows [begin, end) that x has of a sample, and the sample's first row, which may lie before x; counted in x.
struct SampleRows {
  std::int64_t sample = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
template <class Op>
std::vector<SampleRows> samples_of(const Op& op) {
  std::vector<SampleRows> samples;
  for (std::int64_t i = 0; i < op.layout.sequences(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t first = op.layout.offsets[at] - op.first, end = op.layout.offsets[at + 1] - op.first;
    const SampleRows rows{first, std::max<std::int64_t>(first, 0), std::min(end, op.x.rows())};
    if (rows.begin < rows.end) samples.push_back(rows);
  }
  return samples;
}

/// The rows that results read: of x, and before it with negative numbers.
class ReadRows {
 public:
  template <class Op>
  ReadRows(const Filters& filters, const Op& op)
      : filters_(filters), x_(op.x), before_(op.before), rows_before_(op.before.defined() ? op.before.rows() : 0) {}

  [[nodiscard]] std::int64_t rows_before() const { return rows_before_; }
  [[nodiscard]] ConvTerm term(std::int64_t row, std::int64_t j) const {
    if (row >= 0) return filters_.term(x_, row, j);
    assert(row >= -rows_before_);
    return filters_.term(before_, rows_before_ + row, j);
  }
  /// Sets the terms of row `row` of a sample.
  void read(std::int64_t row, std::int64_t sample, std::vector<ConvTerm>& terms) const {
    const ConvolutionShape& shape = filters_.shape();
    terms.clear();
    for (std::int64_t j = 0; j < shape.width; ++j) {
      const std::int64_t at = row - (shape.width - 1 - j) * shape.dilation;
      if (at >= sample) terms.push_back(term(at, j));
    }
  }

 private:
  const Filters& filters_;
  Tensor x_;
  Tensor before_;
  std::int64_t rows_before_;
};

/// The backward pass over a sample: keeps dsum of the rows that the gradient of the next row needs.
class SampleBackward {
 public:
  SampleBackward(Isa isa, const Filters& filters, const CausalConvBackward& op, ScratchPool::Lease& lease)
      : kernels_(conv_kernels(isa)),
        filters_(filters),
        op_(op),
        rows_(filters, op),
        kept_(filters.shape().reach() + 1) {
    const std::int64_t weights = filters.channels() * filters.shape().width;
    dsum_ = lease.floats(kept_ * filters.channels());
    if (!op.dweight.defined()) return;
    dweight_ = lease.floats(weights);
    transpose(op.dweight.data<float>(), filters.channels(), filters.shape().width, dweight_);
  }

  void run(const SampleRows& sample) {
    const std::int64_t reach = filters_.shape().reach();
    std::int64_t next = std::max({sample.sample, -rows_.rows_before(), sample.begin - reach});
    for (std::int64_t row = sample.begin; row < sample.end; ++row) {
      result(row, sample.sample);
      if (next + reach == row) input(next++, sample.begin, row);
    }
    while (next < sample.end) input(next++, sample.begin, sample.end - 1);
  }

  void finish() const {
    if (dweight_ == nullptr) return;
    transpose(dweight_, filters_.shape().width, filters_.channels(), op_.dweight.data<float>());
  }

 private:
  [[nodiscard]] float* dsum(std::int64_t row) const { return dsum_ + row % kept_ * filters_.channels(); }

  /// Differentiates the result of a row.
  void result(std::int64_t row, std::int64_t sample) {
    rows_.read(row, sample, terms_);
    for (ConvTerm& term : terms_) {
      if (dweight_ != nullptr) term.dweight = dweight_ + (term.weight - filters_.weight(0));
    }
    const bool gate = filters_.shape().gated && op_.dx.defined();
    kernels_.backward({filters_.row(terms_, row), in(op_.dy.row_slice(row, 1)), dsum(row),
                       gate ? column_of(op_.dx, row, filters_.channels()) : Out{},
                       op_.dbias.defined() ? op_.dbias.data<float>() : nullptr});
  }

  /// Writes the gradient of a row that results in [begin, last] read.
  void input(std::int64_t row, std::int64_t begin, std::int64_t last) {
    const Tensor& to = row < 0 ? op_.dbefore : op_.dx;
    if (!to.defined()) return;
    const ConvolutionShape& shape = filters_.shape();
    terms_.clear();
    for (std::int64_t j = shape.width - 1; j >= 0; --j) {
      const std::int64_t at = row + (shape.width - 1 - j) * shape.dilation;
      if (at >= begin && at <= last) terms_.push_back({dsum(at), nullptr, filters_.weight(j), nullptr});
    }
    const ConvTerm own = rows_.term(row, 0);
    const std::int64_t place = row < 0 ? rows_.rows_before() + row : row;
    kernels_.backward_input({terms_.data(), std::ssize(terms_), own.value, own.gate,
                             column_of(to, place, to.columns() - filters_.channels()), column_of(to, place, 0),
                             filters_.channels()});
  }

  const ConvKernels& kernels_;
  const Filters& filters_;
  const CausalConvBackward& op_;
  ReadRows rows_;
  std::int64_t kept_;
  float* dsum_ = nullptr;     // (kept, channels)
  float* dweight_ = nullptr;  // (w, channels)
  std::vector<ConvTerm> terms_;
};

/// Copies the columns of a row that later rows read to the tail.
void keep_row(const ConvolutionShape& shape, const Tensor& x, std::int64_t row, const Tensor& tail, std::int64_t at) {
  const std::int64_t channels = shape.channels(x.columns());
  const std::size_t bytes = static_cast<std::size_t>(channels) * size_of(x.dtype());
  if (shape.gated) std::memcpy(element(tail, at, 0), element(x, row, 0), bytes);
  std::memcpy(element(tail, at, tail.columns() - channels), element(x, row, x.columns() - channels), bytes);
}

/// A row of a cached convolution: its number in its sequence, the first number that x holds, the row of x with that
/// number, and the tail's first row.
struct CachedRow {
  std::int64_t number = 0;
  std::int64_t held = 0;
  std::int64_t held_row = 0;
  std::int64_t begin = 0;
};

}  // namespace

void causal_conv(Isa isa, ScratchPool& scratch, const CausalConv& op) {
  assert(op.y.dtype() == op.x.dtype() && op.y.rows() == op.x.rows());
  ScratchPool::Lease lease = scratch.lease();
  const Filters filters(op, lease);
  const ReadRows rows(filters, op);
  std::vector<ConvTerm> terms;
  for (const SampleRows& sample : samples_of(op)) {
    for (std::int64_t row = sample.begin; row < sample.end; ++row) {
      rows.read(row, sample.sample, terms);
      conv_kernels(isa).forward(filters.row(terms, row), out(op.y.row_slice(row, 1)));
    }
  }
}

void causal_conv_backward(Isa isa, ScratchPool& scratch, const CausalConvBackward& op) {
  assert(op.dy.dtype() == op.x.dtype() && op.dy.rows() == op.x.rows());
  ScratchPool::Lease lease = scratch.lease();
  const Filters filters(op, lease);
  if (op.dbefore.defined() && op.dbefore.bytes() > 0) std::memset(op.dbefore.raw(), 0, op.dbefore.bytes());
  SampleBackward backward(isa, filters, op, lease);
  for (const SampleRows& sample : samples_of(op)) backward.run(sample);
  backward.finish();
}

void cached_conv(Isa isa, ScratchPool& scratch, const CachedConv& op) {
  const ConvolutionShape& shape = op.shape;
  const std::int64_t reach = shape.reach(), rows = op.x.rows();
  const bool several = !op.sequences.empty();
  assert(op.tail.rows() >= reach && op.tail.columns() == shape.read_columns(op.x.columns()));
  assert(!several || (std::ssize(op.sequences) == rows && op.first == 0));
  ScratchPool::Lease lease = scratch.lease();
  const Filters filters(op, lease);
  std::vector<ConvTerm> terms;
  for (std::int64_t row = 0; row < rows; ++row) {
    CachedRow at{op.first + row, op.first, 0, 0};
    if (several) {
      const CachedSequence& sequence = op.sequences[static_cast<std::size_t>(row)];
      at = {sequence.rows, sequence.rows, row, sequence.begin};
    }
    terms.clear();
    for (std::int64_t j = 0; j < shape.width; ++j) {
      const std::int64_t number = at.number - (shape.width - 1 - j) * shape.dilation;
      if (number < 0) continue;
      terms.push_back(number >= at.held ? filters.term(op.x, number - at.held + at.held_row, j)
                                        : filters.term(op.tail, at.begin + number % reach, j));
    }
    conv_kernels(isa).forward(filters.row(terms, row), out(op.y.row_slice(row, 1)));
    if (several && reach > 0) keep_row(shape, op.x, row, op.tail, at.begin + at.number % reach);
  }
  for (std::int64_t row = several ? rows : std::max<std::int64_t>(0, rows - reach); row < rows; ++row) {
    keep_row(shape, op.x, row, op.tail, (op.first + row) % reach);
  }
}

}  // namespace maestro::cpu
