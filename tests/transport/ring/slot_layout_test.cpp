// SPDX-License-Identifier: Apache-2.0
#include "transport/ring/slot_layout.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace maestro {
namespace {

PieceInfo example_piece() {
  PieceInfo piece;
  piece.epoch = Epoch(2);
  piece.edge = EdgeId(5);
  piece.seq = 70001;
  piece.step = StepId(12);
  piece.source_replica = ReplicaIndex(3);
  piece.row_offset = 128;
  piece.rows = 64;
  piece.row_bytes = 2048;
  piece.dtype = DType::bf16;
  return piece;
}

TEST(SlotLayout, parts_are_aligned_do_not_overlap_and_stay_inside) {  // LY-1, LY-2
  for (std::uint32_t slots : {1u, 2u, 5u}) {
    for (std::uint32_t pieces : {1u, 3u}) {
      for (std::size_t payload : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{1000}}) {
        const auto layout = SlotLayout::make(slots, pieces, payload);
        ASSERT_TRUE(layout.ok());
        std::vector<int> owners(layout->total_bytes(), 0);
        const auto claim = [&](std::size_t offset, std::size_t bytes) {
          ASSERT_EQ(offset % SlotLayout::alignment, 0u);
          ASSERT_LE(offset + bytes, owners.size());
          for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(owners[offset + i]++, 0);
        };
        for (std::uint32_t slot = 0; slot < slots; ++slot) {
          for (std::uint32_t piece = 0; piece < pieces; ++piece) claim(layout->header_offset(slot, piece), 64);
          claim(layout->payload_offset(slot), payload);
        }
      }
    }
  }
}

TEST(SlotLayout, a_byte_offset_counts_from_the_start_of_the_slot_payload) {
  const auto layout = SlotLayout::make(2, 1, 4096);
  EXPECT_EQ(layout->payload_offset(1, 100), layout->payload_offset(1) + 100);
  EXPECT_EQ(layout->slot_of(5), 1u);
}

TEST(SlotLayout, payloads_in_memory_of_a_device_lie_one_behind_the_other) {  // LY-4
  for (std::size_t payload : {std::size_t{0}, std::size_t{1}, std::size_t{256}, std::size_t{1000}}) {
    const auto layout = SlotLayout::make(3, 2, payload);
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
      EXPECT_EQ(layout->device_offset(slot) % SlotLayout::device_alignment, 0u);
      EXPECT_GE(layout->device_offset(slot), slot * payload);
      EXPECT_EQ(layout->device_offset(slot, payload), layout->device_offset(slot) + payload);
    }
    EXPECT_GE(layout->device_bytes(), layout->device_offset(2, payload));
  }
}

TEST(SlotLayout, impossible_rings_are_refused) {
  EXPECT_FALSE(SlotLayout::make(0, 1, 64).ok());
  EXPECT_FALSE(SlotLayout::make(1, 0, 64).ok());
  EXPECT_FALSE(SlotLayout::make(2, 1, ~std::size_t{0} / 2).ok());
  EXPECT_FALSE(SlotLayout::make(1, 1, ~std::size_t{0} - 70).ok());
}

TEST(PieceHeader, agrees_with_the_piece_it_was_made_for) {  // LY-3
  EXPECT_TRUE(validate(make_header(example_piece()), example_piece()).ok());
}

TEST(PieceHeader, the_first_field_that_differs_is_named_with_both_values) {  // LY-3
  const std::vector<std::pair<std::string, std::function<void(PieceInfo&)>>> changes{
      {"epoch is 1, expected 2", [](PieceInfo& p) { p.epoch = Epoch(1); }},
      {"edge is 4, expected 5", [](PieceInfo& p) { p.edge = EdgeId(4); }},
      {"sequence is 70000, expected 70001", [](PieceInfo& p) { p.seq = 70000; }},
      {"step is 11, expected 12", [](PieceInfo& p) { p.step = StepId(11); }},
      {"source replica is 0, expected 3", [](PieceInfo& p) { p.source_replica = ReplicaIndex(0); }},
      {"row offset is 0, expected 128", [](PieceInfo& p) { p.row_offset = 0; }},
      {"rows is 63, expected 64", [](PieceInfo& p) { p.rows = 63; }},
      {"row bytes is 1024, expected 2048", [](PieceInfo& p) { p.row_bytes = 1024; }},
      {"dtype is 0, expected 1", [](PieceInfo& p) { p.dtype = DType::f32; }},
      {"place is 1, expected 0", [](PieceInfo& p) { p.place = SlotMemory::device; }},
  };
  for (const auto& [text, change] : changes) {
    auto piece = example_piece();
    change(piece);
    const auto status = validate(make_header(piece), example_piece());
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.error().code, ErrorCode::corrupt);
    EXPECT_NE(status.error().message.find(text), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("edge 5, sequence 70001, step 12, source replica 3"), std::string::npos);
  }
}

TEST(PieceHeader, any_flipped_bit_is_found) {  // LY-3
  const auto intact = make_header(example_piece());
  for (std::size_t bit = 0; bit < sizeof(PieceHeader) * 8; ++bit) {
    auto damaged = intact;
    unsigned char bytes[sizeof(PieceHeader)];
    std::memcpy(bytes, &damaged, sizeof bytes);
    bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1u << (bit % 8)));
    std::memcpy(&damaged, bytes, sizeof bytes);
    EXPECT_FALSE(validate(damaged, example_piece()).ok()) << "bit " << bit;
  }
}

TEST(PieceHeader, memory_that_was_never_written_is_no_header) {
  EXPECT_NE(validate(PieceHeader(), example_piece()).error().message.find("no piece header"), std::string::npos);
}

}  // namespace
}  // namespace maestro
