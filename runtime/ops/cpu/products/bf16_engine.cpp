// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/products/bf16_engine.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/result.hpp"
#include "runtime/ops/cpu/thread.hpp"

namespace maestro::cpu {

namespace {

using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;
using Description = dnnl::memory::desc;

constexpr std::int64_t full_block = 512;
constexpr std::int64_t row_step = 64;
constexpr std::int64_t tail_step = 16;

[[noreturn]] void refuse(const std::string& what, const dnnl::error& error) {
  throw JobError("oneDNN " + what + " failed: " + error.what() + " (status " +
                     std::to_string(static_cast<int>(error.status)) + ")",
                 ErrorCode::internal);
}

std::string name_of(const Bf16Engine::Key& key) {
  return "bf16 product (" + std::to_string(key.m) + ", " + std::to_string(key.k) + ") x (" + std::to_string(key.k) +
         ", " + std::to_string(key.n) + ")";
}

Type type_of(DType dtype) {
  return dtype == DType::f32 ? Type::f32 : Type::bf16;
}

using RowBlock = Bf16Engine::RowBlock;

template <class Body>
void for_row_blocks(std::int64_t rows, Body body) {
  std::int64_t first = 0;
  for (; rows - first >= full_block; first += full_block) body(RowBlock{first, full_block, full_block});
  const std::int64_t middle = (rows - first) / row_step * row_step;
  if (middle > 0) body(RowBlock{first, middle, middle});
  first += middle;
  const std::int64_t rest = rows - first;
  if (rest > 0) body(RowBlock{first, rest, (rest + tail_step - 1) / tail_step * tail_step});
}

void copy_rows(const Matrix& from, const Matrix& to) {
  const std::size_t row_bytes = static_cast<std::size_t>(from.columns) * size_of(from.dtype);
  for (std::int64_t row = 0; row < from.rows; ++row) {
    std::memcpy(to.row_slice(row, 1).data, from.row_slice(row, 1).data, row_bytes);
  }
}

/// Returns the block's rows of `m` followed by zero rows, in scratch.
Matrix padded_copy(const Matrix& m, const RowBlock& block, ScratchPool::Lease& scratch) {
  const Matrix copy = Matrix::of(scratch.tensor({block.padded, m.columns}, m.dtype));
  copy_rows(m.row_slice(block.first, block.count), copy.row_slice(0, block.count));
  const std::size_t row_bytes = static_cast<std::size_t>(m.columns) * size_of(m.dtype);
  std::memset(static_cast<std::byte*>(copy.data) + static_cast<std::size_t>(block.count) * row_bytes, 0,
              static_cast<std::size_t>(block.padded - block.count) * row_bytes);
  return copy;
}

/// A panel in the blocked layout that oneDNN requires.
class Bf16Panel final : public PackedPanel {
 public:
  Bf16Panel(std::int64_t depth, std::int64_t columns, const Description& layout)
      : depth_(depth),
        columns_(columns),
        layout_(layout),
        memory_(layout.get_size()),
        in_blocks_(layout == Description({depth, columns}, Type::bf16, Tag::BA16a64b2a)) {}
  [[nodiscard]] std::size_t bytes() const override { return memory_.size(); }
  [[nodiscard]] bool for_every_use() const override { return false; }
  [[nodiscard]] bool columns_readable() const override { return in_blocks_; }
  [[nodiscard]] std::int64_t depth() const { return depth_; }
  [[nodiscard]] std::int64_t columns() const { return columns_; }
  [[nodiscard]] const Description& layout() const { return layout_; }
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  /// Returns whether its layout is the layout of RowProductCall.
  [[nodiscard]] bool in_blocks() const { return in_blocks_; }

 private:
  std::int64_t depth_;
  std::int64_t columns_;
  Description layout_;
  AlignedMemory memory_;
  bool in_blocks_;
};

}  // namespace

Bf16Engine::Bf16Engine(ScratchPool& scratch, Isa isa)
    : kernels_(matrix_kernels(isa)),
      pointwise_(pointwise_kernels(isa)),
      scratch_(scratch),
      engine_(dnnl::engine::kind::cpu, 0) {}

std::size_t Bf16Engine::primitives() const {
  const std::lock_guard lock(mutex_);
  return products_.size();
}

Bf16Engine::Product Bf16Engine::compile(const Key& key, const Description& right) const {
  const bool outer = key.kind == Key::Kind::outer;
  const Description in({key.m, key.k}, Type::bf16, outer ? Dims{1, key.in_stride} : Dims{key.in_stride, 1});
  const Description out({key.m, key.n}, type_of(key.out), Dims{key.out_stride, 1});
  dnnl::post_ops finish;
  if (key.accumulate) finish.append_sum(1.0F);
  if (key.activation) {
    using enum dnnl::algorithm;
    const bool quick = *key.activation == GeluKind::quick;  // swish: x sigmoid(alpha x)
    const auto gelu = *key.activation == GeluKind::erf ? eltwise_gelu_erf : eltwise_gelu_tanh;
    finish.append_eltwise(1.0F, quick ? eltwise_swish : gelu, quick ? 1.702F : 0.0F, 0.0F);
  }
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(finish);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // so that any thread may run it
  const dnnl::matmul::desc operation =
      key.bias ? dnnl::matmul::desc(in, right, Description({1, key.n}, Type::f32, Tag::ab), out)
               : dnnl::matmul::desc(in, right, out);
  const dnnl::matmul::primitive_desc description(operation, attributes, engine_);
  return {description, dnnl::matmul(description)};
}

const Bf16Engine::Product& Bf16Engine::product(const Key& key, const Description& right) const {
  const std::lock_guard lock(mutex_);
  const auto found = products_.find(key);
  if (found != products_.end()) return found->second;
  return products_.emplace(key, compile(key, right)).first->second;
}

std::unique_ptr<PackedPanel> Bf16Engine::pack(const Tensor& w, PackFor use, std::unique_ptr<PackedPanel> reuse) const {
  const std::int64_t rows = w.rows();
  const std::int64_t columns = w.columns();
  const bool forward = use == PackFor::forward;
  const std::int64_t depth = forward ? columns : rows;
  const std::int64_t width = forward ? rows : columns;
  stay_on_this_thread();
  try {
    if (reuse == nullptr) {
      // The layout that oneDNN prefers for a full block; products of other sizes are compiled for it too.
      const Key usual{.m = full_block, .n = width, .k = depth, .in_stride = depth, .out_stride = width};
      const Product preferred = compile(usual, Description({depth, width}, Type::bf16, Tag::any));
      reuse = std::make_unique<Bf16Panel>(depth, width, preferred.description.weights_desc());
    }
    const auto& panel = static_cast<const Bf16Panel&>(*reuse);
    const Description plain({depth, width}, Type::f32, forward ? Dims{1, columns} : Dims{columns, 1});
    dnnl::memory from(plain, engine_, w.raw());
    dnnl::memory to(panel.layout(), engine_, panel.data());
    dnnl::stream stream(engine_);
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
  } catch (const dnnl::error& error) {
    refuse("packing of a (" + std::to_string(rows) + ", " + std::to_string(columns) + ") weight", error);
  }
  return reuse;
}

void Bf16Engine::run(const Key& key, const Description& right, const Operands& operands,
                     ScratchPool::Lease& scratch) const {
  try {
    const Product& wanted = product(key, right);
    const auto memory = [&](const Description& description, const void* data) {
      return dnnl::memory(description, engine_, const_cast<void*>(data));  // inputs are not written
    };
    const Description working = wanted.description.scratchpad_desc();
    const auto working_bytes = static_cast<std::int64_t>(working.get_size());
    std::byte* working_data = working_bytes > 0 ? scratch.tensor({working_bytes}, DType::u8).raw() : nullptr;
    std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, memory(wanted.description.src_desc(), operands.in)},
                                                    {DNNL_ARG_WEIGHTS, memory(right, operands.right)},
                                                    {DNNL_ARG_DST, memory(wanted.description.dst_desc(), operands.out)},
                                                    {DNNL_ARG_SCRATCHPAD, memory(working, working_data)}};
    if (key.bias) arguments.emplace(DNNL_ARG_BIAS, memory(wanted.description.bias_desc(), operands.bias));
    dnnl::stream stream(engine_);
    wanted.primitive.execute(stream, arguments);
    stream.wait();
  } catch (const dnnl::error& error) {
    refuse(name_of(key), error);
  }
}

void Bf16Engine::multiply_in_blocks(const Matrix& in, const std::byte* right, const Matrix& out,
                                    const Epilogue& epilogue) const {
  ScratchPool::Lease scratch = scratch_.lease();
  const std::int64_t blocks = (out.columns + bf16_block_columns - 1) / bf16_block_columns;
  float* rows = scratch.floats(in.rows * in.columns);
  for (std::int64_t row = 0; row < in.rows; ++row) {
    pointwise_.cast({in.row_slice(row, 1).data, true}, {rows + row * in.columns, false}, in.columns);
  }
  const Matrix sums = Matrix::of(scratch.tensor({in.rows, blocks * bf16_block_columns}, DType::f32));
  kernels_.row_product({.rows = rows,
                        .row_count = in.rows,
                        .blocks = reinterpret_cast<const std::uint16_t*>(right),
                        .depth = in.columns,
                        .block_count = blocks,
                        .to = static_cast<float*>(sums.data)});
  finish_rows(kernels_, sums.column_slice(0, out.columns), out, epilogue);
}

void Bf16Engine::multiply_block(const Matrix& in, const PackedPanel& right, const Matrix& out, const Epilogue& epilogue,
                                const RowBlock& block) const {
  const auto& panel = static_cast<const Bf16Panel&>(right);
  ScratchPool::Lease scratch = scratch_.lease();
  const bool whole = block.count == block.padded;
  // oneDNN 2.6 has only slow reference code for rows that are not adjacent.
  const bool direct_in = whole && in.stride == in.columns, direct = whole && out.stride == out.columns;
  const Matrix a = direct_in ? in.row_slice(block.first, block.count) : padded_copy(in, block, scratch);
  const Matrix c = direct ? out.row_slice(block.first, block.count) : padded_copy(out, block, scratch);
  const Key key{.m = block.padded,
                .n = out.columns,
                .k = in.columns,
                .in_stride = a.stride,
                .out_stride = c.stride,
                .out = out.dtype,
                .bias = epilogue.bias != nullptr,
                .activation = epilogue.activation,
                .accumulate = epilogue.accumulate};
  run(key, panel.layout(), {a.data, panel.data(), c.data, epilogue.bias}, scratch);
  if (!direct) copy_rows(c.row_slice(0, block.count), out.row_slice(block.first, block.count));
}

void Bf16Engine::multiply(const Matrix& in, const PackedPanel& right, PackFor /*use*/, const Matrix& out,
                          const Epilogue& epilogue) const {
  stay_on_this_thread();
  const auto& panel = static_cast<const Bf16Panel&>(right);
  assert(in.dtype == DType::bf16 && in.columns == panel.depth() && out.columns == panel.columns());
  if (in.rows == 1 && panel.in_blocks()) return multiply_in_blocks(in, panel.data(), out, epilogue);
  for_row_blocks(in.rows, [&](const RowBlock& block) { multiply_block(in, panel, out, epilogue, block); });
}

void Bf16Engine::multiply_each(const Matrix& in, const PackedPanel& right, const Matrix& out,
                               const Epilogue& epilogue) const {
  stay_on_this_thread();
  const auto& panel = static_cast<const Bf16Panel&>(right);
  assert(in.dtype == DType::bf16 && in.columns == panel.depth() && out.columns == panel.columns());
  if (panel.in_blocks()) return multiply_in_blocks(in, panel.data(), out, epilogue);
  // A primitive of a single shape: its rows do not depend on each other.
  for (std::int64_t first = 0; first < in.rows; first += tail_step) {
    multiply_block(in, panel, out, epilogue, {first, std::min(tail_step, in.rows - first), tail_step});
  }
}

void Bf16Engine::copy_column(const PackedPanel& right, std::int64_t column, float* to) const {
  const auto& panel = static_cast<const Bf16Panel&>(right);
  assert(panel.in_blocks() && column < panel.columns());
  const std::int64_t padded = (panel.depth() + bf16_block_depth - 1) / bf16_block_depth * bf16_block_depth;
  const bfloat16* pair = reinterpret_cast<const bfloat16*>(panel.data()) +
                         column / bf16_block_columns * bf16_block_columns * padded + column % bf16_block_columns * 2;
  for (std::int64_t depth = 0; depth < panel.depth(); ++depth) {
    to[depth] = float(pair[depth / 2 * (2 * bf16_block_columns) + depth % 2]);
  }
}

void Bf16Engine::add_outer_products(const Tensor& dy, const Tensor& x, const Tensor& dw) const {
  stay_on_this_thread();
  for_row_blocks(dy.rows(), [&](const RowBlock& block) {
    ScratchPool::Lease scratch = scratch_.lease();
    const bool whole = block.count == block.padded;
    const Matrix all_dy = Matrix::of(dy);
    const Matrix all_x = Matrix::of(x);
    const Matrix left = whole ? all_dy.row_slice(block.first, block.count) : padded_copy(all_dy, block, scratch);
    const Matrix right = whole ? all_x.row_slice(block.first, block.count) : padded_copy(all_x, block, scratch);
    const Key key{.kind = Key::Kind::outer,
                  .m = dy.columns(),
                  .n = x.columns(),
                  .k = block.padded,
                  .in_stride = left.stride,
                  .out_stride = x.columns(),
                  .out = DType::f32,
                  .accumulate = true};
    const Description plain({key.k, key.n}, Type::bf16, Tag::ab);
    run(key, plain, {left.data, right.data, dw.raw(), nullptr}, scratch);
  });
}

}  // namespace maestro::cpu
