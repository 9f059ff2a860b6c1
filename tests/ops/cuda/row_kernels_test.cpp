// SPDX-License-Identifier: Apache-2.0
// Embedding, gathering, scattering and rotation against the CPU's.
#include "runtime/ops/cuda/products/plain_weight.hpp"
#include "tests/ops/cuda/kernel_test.hpp"
#include "tests/ops/rotary_frequencies.hpp"

namespace maestro::cuda {
namespace {

class RowKernels : public KernelTest {};

TEST_F(RowKernels, embedding_of_tokens_and_positions) {
  for (const std::int64_t rows : odd_rows) {
    for (const std::int64_t columns : odd_columns) {
      for (const bool with_positions : {false, true}) {
        const double scale = with_positions ? 1 : 1.5;
        const OwnedTensor table = random(DType::f32, {40, columns});
        const OwnedTensor places = random(DType::f32, {20, columns});
        const OwnedTensor ids = random_ids(rows, -1, 39);
        const OwnedTensor positions = random_ids(rows, 0, 19);
        const OwnedTensor y(DType::f32, {rows, columns});
        reference_.run(Embedding{.table = table,
                                 .ids = ids,
                                 .positions_table = with_positions ? places.tensor() : Tensor(),
                                 .positions = span_of(positions),
                                 .y = y,
                                 .scale = scale});
        const Tensor device_table = upload(table);
        const Tensor device_places = with_positions ? upload(places) : Tensor();
        const Tensor device_ids = upload(ids);
        const Tensor device_positions = upload(positions);
        const Tensor device_y = empty(DType::f32, {rows, columns});
        for (const DType dtype : {DType::f32, DType::bf16}) {
          const PlainWeight packed(upload(OwnedTensor(dtype, {40, columns}, table.values())));
          const Embedding op{.table = dtype == DType::f32 ? device_table : Tensor(),
                             .packed = dtype == DType::f32 ? nullptr : &packed,
                             .ids = device_ids,
                             .positions_table = device_places,
                             .positions = span_of(device_positions),
                             .y = device_y,
                             .scale = scale};
          run([&] { embedding(at_, op); });
          EXPECT_EQ(download(device_y), y.values()) << rows << " x " << columns << " of " << name_of(dtype);
        }
      }
    }
  }
}

TEST_F(RowKernels, ids_are_shifted_into_a_range_in_place_or_not) {
  for (const std::int64_t rows : odd_rows) {
    for (const std::int64_t by : {-7, 0, 5}) {
      const OwnedTensor ids = random_ids(rows, -1, 20);
      const OwnedTensor shifted(DType::i32, Shape{rows});
      constexpr std::int64_t limit = 11;
      reference_.run(ShiftIds{.ids = ids, .by = by, .limit = limit, .out = shifted});
      const Tensor device_ids = upload(ids);
      const Tensor out = empty(DType::i32, Shape{rows});
      run([&] { shift_ids(at_, device_ids, by, limit, out); });
      EXPECT_EQ(download(out), shifted.values());
      shift_ids(at_, device_ids, by, limit, device_ids);
      check(cudaStreamSynchronize(stream_), "kernels");
      EXPECT_EQ(download(device_ids), shifted.values());
      for (std::int64_t row = 0; row < rows; ++row) {
        const double wanted = ids.get(row) + static_cast<double>(by);
        EXPECT_EQ(shifted.get(row), wanted >= 0 && wanted < static_cast<double>(limit) ? wanted : -1);
      }
    }
  }
}

TEST_F(RowKernels, columns_are_picked_row_by_row) {
  constexpr std::int64_t width = 13;
  for (const std::int64_t rows : odd_rows) {
    for (const std::int64_t picked : {1, 3, 300}) {
      OwnedTensor from(DType::i32, {rows, width});
      for (std::int64_t i = 0; i < rows * width; ++i) from.set(i, static_cast<double>(1000 + i));
      OwnedTensor columns(DType::i32, {rows, picked});
      columns.fill(random_ids(rows * picked, 0, width - 1).values());
      const OwnedTensor result(DType::i32, {rows, picked});
      reference_.run(PickColumns{.from = from, .columns = columns, .to = result});
      for (std::int64_t i = 0; i < rows * picked; ++i) {
        EXPECT_EQ(result.get(i), 1000 + static_cast<float>(i / picked * width) + columns.get(i));
      }
      const Tensor device_from = upload(from), device_columns = upload(columns);
      const Tensor to = empty(DType::i32, {rows, picked});
      run([&] { pick_columns(at_, device_from, device_columns, to); });
      EXPECT_EQ(download(to), result.values());
    }
  }
}

/// With few tokens, runs of equal ids span several chunks of sorted rows; with many, ids have several digits.
TEST_F(RowKernels, gradients_of_an_embedding_of_frequent_and_of_rare_tokens) {
  struct Case {
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t tokens;
  };
  for (const Case& c : {Case{0, 8, 4}, Case{1, 7, 4}, Case{33, 65, 2}, Case{700, 8, 3}, Case{700, 5, 70000},
                        Case{300, 768, 20}, Case{64, 8, 1}, Case{70, 8, 1}}) {
    SCOPED_TRACE(std::to_string(c.rows) + " rows of " + std::to_string(c.tokens) + " tokens");
    const OwnedTensor dy = random(DType::f32, {c.rows, c.columns});
    const OwnedTensor ids = random_ids(c.rows, -1, c.tokens - 1);
    const OwnedTensor positions = random_ids(c.rows, 0, 299);
    const OwnedTensor dtable = random(DType::f32, {c.tokens, c.columns});
    const OwnedTensor dpositions = random(DType::f32, {300, c.columns});
    const Tensor device_dy = upload(dy);
    const Tensor device_ids = upload(ids);
    const Tensor device_positions = upload(positions);
    const Tensor device_dtable = upload(dtable);
    const Tensor device_dpositions = upload(dpositions);
    const double scale = c.rows == 33 ? 1 : 1.5;
    reference_.run(EmbeddingBackward{.dy = dy,
                                     .ids = ids,
                                     .positions = span_of(positions),
                                     .dtable = dtable,
                                     .dpositions = dpositions,
                                     .scale = scale});
    run([&] {
      embedding_backward(at_,
                         {device_dy, device_ids, span_of(device_positions), device_dtable, device_dpositions, scale});
    });
    expect_near(device_dtable, dtable.values(), "dtable");
    expect_near(device_dpositions, dpositions.values(), "dpositions");
  }
}

TEST_F(RowKernels, rows_are_gathered_and_scattered_between_all_storage_types) {
  for (const std::int64_t count : odd_rows) {
    for (const std::int64_t columns : {1, 8, 65}) {
      for (const DType from : both_types) {
        for (const DType to : both_types) {
          const OwnedTensor source = random(from, {50, columns});
          const OwnedTensor index = random_ids(count, 0, 49);
          const OwnedTensor taken(to, {count, columns});
          reference_.run(IndexSelect{.from = source, .index = span_of(index), .to = taken});
          const Tensor device_source = upload(source);
          const Tensor device_index = upload(index);
          const Tensor device_taken = empty(to, {count, columns});
          run([&] { index_select(at_, device_source, span_of(device_index), device_taken); });
          EXPECT_EQ(download(device_taken), taken.values());
        }
      }
    }
  }
}

TEST_F(RowKernels, scattered_rows_of_one_place_are_added_up_before_they_are_rounded) {
  for (const DType from : both_types) {
    for (const DType to : both_types) {
      const OwnedTensor rows = random(from, {100, 24});
      const OwnedTensor index = random_ids(100, 0, 6);
      const OwnedTensor sums = random(to, {7, 24});
      Values wanted = sums.values();
      for (std::int64_t i = 0; i < 100 * 24; ++i) {
        const auto row = static_cast<std::int64_t>(index.get(i / 24));
        wanted[static_cast<std::size_t>(row * 24 + i % 24)] += rows.get(i);
      }
      const Tensor device_rows = upload(rows);
      const Tensor device_index = upload(index);
      const Tensor device_sums = upload(sums);
      run([&] { index_add(at_, device_rows, span_of(device_index), device_sums); });
      expect_near(device_sums, wanted, "sums");
    }
  }
}

TEST_F(RowKernels, rotation_and_its_gradient) {
  struct Case {
    std::int64_t heads;
    std::int64_t kv_heads;
    std::int64_t head_size;
    std::int64_t rotated;  // rotated columns of a head
    double magnitude;
    std::int64_t axes = 1;
  };
  for (const Case& c : {Case{1, 1, 2, 2, 1}, Case{2, 1, 128, 128, 1, 3}, Case{3, 3, 10, 8, 1.5, 2},
                        Case{4, 2, 16, 16, 1.25}, Case{3, 1, 10, 4, 1}, Case{8, 2, 64, 64, 1}, Case{2, 1, 64, 16, 0.5},
                        Case{1, 1, 256, 256, 1}, Case{1, 1, 16, 0, 1}}) {
    const AttentionShape shape{c.heads, c.kv_heads, c.head_size, true};
    RotaryFrequencies frequencies = testing::frequencies(10000, c.rotated, c.magnitude);
    for (std::int64_t pair = 0; c.axes > 1 && pair < c.rotated / 2; ++pair) {
      frequencies.axis.push_back(static_cast<std::uint8_t>(pair % c.axes));
    }
    for (const std::int64_t rows : odd_rows) {
      for (const DType act : both_types) {
        for (const int direction : {1, -1}) {
          const OwnedTensor qkv = random(act, {rows, shape.qkv_columns()});
          const OwnedTensor positions = random_ids(rows * c.axes, 0, 5000);
          const Rotary call{upload(qkv), shape, span_of(upload(positions)), &frequencies, direction};
          reference_.run(Rotary{.qkv = qkv,
                                .shape = shape,
                                .positions = span_of(positions),
                                .frequencies = &frequencies,
                                .direction = direction});
          run([&] { rotary(at_, call); });
          expect_near(call.qkv, qkv.values(), "qkv", 1e-6);
        }
      }
    }
  }
}

}  // namespace
}  // namespace maestro::cuda
